"""Journal: an append-only file of records that says so when it is not what was written.

The form, version 2: a line is `<crc32, 8 hex digits> <its number> <JSON>`, the checksum being of
everything after it, and the first line is the version's. Version 1 is plain lines of JSON; such a
file is read, and goes on in version 2 from where it ends.
"""

import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kt_lab.closing import Closing
from kt_lab.errors import StoreError
from kt_lab.store.files import lock, replacing, writing

VERSION = 2
_HEADER = "kt_lab_journal"


class Follower:
    """Reads a journal that another process may be writing, and leaves it as it is.

    Attributes:
        path: The journal; need not exist.
        end: The bytes read so far, which end with a complete line.
        lines: The number of the last of them.
        version: Its version; 0: none was read.
    """

    def __init__(self, path: Path | str):
        """Reads nothing yet."""
        self.path = Path(path)
        self._file: tuple[int, int] | None = None  # device and inode: a repaired one is another
        self.end = self.lines = self._sound = self.version = 0

    def fresh(self) -> Iterator[dict[str, Any]]:
        """Yields the complete records since the last time; a line without its end is not one.

        Raises:
            StoreError: A line is damaged, or the version is newer than this kt_lab.
        """
        try:
            with self.path.open("rb") as file:
                about = os.fstat(file.fileno())
                if self._file != (about.st_dev, about.st_ino):
                    self._file = about.st_dev, about.st_ino
                    self.end = self.lines = self._sound = self.version = 0
                file.seek(self.end)
                raw = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{self.path} must be readable, got {error}") from error
        for line in raw[: raw.rfind(b"\n") + 1].split(b"\n")[:-1]:
            record, damage = self._take(line)
            if damage:
                raise StoreError(
                    f"every line of a journal must be as it was written, got line {self.lines} of "
                    f"{self.path.name}: {damage}; `kt-lab doctor --journal {self.path}` keeps all "
                    "other lines and puts the damaged file aside; what is missing then is "
                    "computed again"
                )
            if record is not None:
                yield record

    def _take(self, line: bytes) -> tuple[dict[str, Any] | None, str]:
        """Returns the record of the next line (None: it holds none), and what is wrong with it."""
        place, self.end = self.lines + 1, self.end + len(line) + 1
        self.lines = place
        try:
            number, record = _parse(line, plain=self.version < VERSION)
        except ValueError as error:
            return None, str(error)
        doubled = number is not None and number <= self._sound
        self.lines = self._sound = place if number is None else max(number, self._sound)
        if number is not None and _HEADER in record:
            if record[_HEADER] > VERSION:
                raise StoreError(
                    f"a journal must be of version {VERSION} or older, got version "
                    f"{record[_HEADER]} in {self.path.name}; use the newer kt_lab that wrote it"
                )
            self.version, record = record[_HEADER], None
        self.version = self.version or 1
        if doubled:
            return None, f"line {number} stands there once more"
        return record, "" if self.lines == place else f"it stands where line {place} belongs"


def _parse(line: bytes, *, plain: bool) -> tuple[int | None, dict[str, Any]]:
    """Returns a line's number (None: version 1) and record, or raises ValueError."""
    if plain and line[:1] == b"{":
        number, text = None, line
    else:
        checksum, _, body = line.partition(b" ")
        if checksum != b"%08x" % zlib.crc32(body):
            raise ValueError("its checksum does not fit")
        number, text = body.split(b" ", 1)
    try:
        record = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError(f"it holds no record but {record!r:.40}")
    return None if number is None else int(number), record


def _line(number: int, record: Mapping[str, Any]) -> bytes:
    body = b"%d %s" % (number, json.dumps(record, separators=(",", ":")).encode())
    return b"%08x %s\n" % (zlib.crc32(body), body)


def read_journal(path: Path | str) -> list[dict[str, Any]]:
    """Returns all records of a journal, also of one that is being written; it is left as it is.

    Raises:
        StoreError: It is damaged, or newer than this kt_lab.
    """
    return list(Follower(path).fresh())


def put_aside(path: Path) -> None:
    """Gives a journal another name, so that one with its own begins anew; it may be damaged.

    Raises:
        StoreError: Another run is writing it.
    """
    with _held(path), writing(path):
        path.replace(path.with_suffix(f".{path.stat().st_mtime_ns}{path.suffix}"))


def _held(path: Path) -> BinaryIO:
    """Opens and locks a journal, or raises StoreError where another run is writing it."""
    file = lock(path, wait=False)
    if file is None:
        raise StoreError(
            f"a journal must have one writer, got {path.name}, which another run is "
            "writing; wait for that run or stop it, or name another path"
        )
    return file


class Journal(Closing):
    """An append-only file of JSON records that survives being cut off, and tells damage.

    One writer at a time, kept by a lock that ends with the process. A record counts once its line
    is complete; a last line without its end, as a kill leaves it, is dropped when the journal is
    opened again. A line that was changed, lost, doubled or moved is told by its number: any
    single flipped bit and any burst up to 32 bits for certain, other damage but for 1 in 2^32.

    What survives: `append` hands the record to the operating system, so a kill of the process
    loses nothing that was appended. A power loss may take what was appended in the last half
    minute or so, but for a `sync`, which waits for the disk; what it leaves is read as it was
    written, or told as damage, never taken for something else.
    """

    def __init__(self, path: Path | str):
        """Opens the journal for appending, made with its folder if absent.

        Raises:
            StoreError: Another run is writing it, it is damaged, or the disk refuses.
        """
        self.path = Path(path)
        self._file = file = _held(self.path)
        try:
            self._read = Follower(path)
            self.records = list(self._read.fresh())
            first = _line(1, {_HEADER: VERSION})
            if not self._read.end and not first.startswith(self.path.read_bytes()):
                raise StoreError(
                    f"a journal must begin with its version, got something else in "
                    f"{self.path.name}, which is left as it is; name another path"
                )
            with writing(self.path):
                os.truncate(file.fileno(), self._read.end)  # the torn tail of whoever wrote it
        except BaseException:
            self.close()
            raise

    def append(self, record: Mapping[str, Any], *, sync: bool = False) -> None:
        """Adds one record and hands it to the operating system; `sync` waits for the disk.

        Raises:
            StoreError: The disk is full, or refuses otherwise; the journal is as it was before.
        """
        read = self._read
        was = read.end, read.lines, read.version
        added = [record] if read.version == VERSION else [{_HEADER: VERSION}, record]
        raw = b"".join(_line(n, r) for n, r in enumerate(added, start=read.lines + 1))
        with writing(self.path, kept=f"the {read.lines:,} lines before are safe"):
            try:
                read.end, read.lines = read.end + len(raw), read.lines + len(added)
                read.version = VERSION
                while raw:
                    raw = raw[self._file.write(raw) :]
                if sync:
                    os.fsync(self._file.fileno())
            except BaseException:  # also Ctrl-C in the middle
                read.end, read.lines, read.version = was
                os.truncate(self._file.fileno(), read.end)
                raise

    def close(self) -> None:
        """Closes the file and gives it free; may be called twice. An empty one is removed."""
        if not self._file.closed and os.fstat(self._file.fileno()).st_size == 0:
            with suppress(OSError):  # Windows removes no open file
                self.path.unlink()
        self._file.close()


@dataclass(frozen=True, slots=True)
class Repaired:
    """What `repair` found.

    Attributes:
        kept: How many records are sound, and in the journal now.
        damaged: (line number, what is wrong with it) of the others.
        aside: Where the damaged file lies; None: nothing was damaged.
    """

    kept: int
    damaged: list[tuple[int, str]]
    aside: Path | None


def repair(path: Path | str) -> Repaired:
    """Keeps every sound record of a journal, in order, and puts the damaged file aside.

    Raises:
        StoreError: There is no such journal, it has no sound record, another run is writing it,
            it is newer than this kt_lab, or the disk refuses.
    """
    path = Path(path)
    file = lock(path, wait=False) if path.exists() else None
    if file is None:
        raise StoreError(f"a journal must exist and be in nobody's use to be repaired, got {path}")
    with file:
        read, sound, damaged = Follower(path), [], []
        *lines, torn = path.read_bytes().split(b"\n")
        for line in lines:
            record, damage = read._take(line)
            if damage:
                damaged.append((read.lines, damage))
            if record is not None:
                sound.append(record)
        if not damaged and (sound or not torn):
            return Repaired(len(sound), damaged, None)
        if not sound:
            raise StoreError(
                f"a journal must hold a sound record to be mended, got none in {path}"
            )
        copies = (path.with_name(f"{path.name}.damaged{n or ''}") for n in range(10**6))
        aside = next(copy for copy in copies if not copy.exists())
        with replacing(path) as partial:
            shutil.copyfile(path, aside)
            lines = enumerate([{_HEADER: VERSION}, *sound], start=1)
            partial.write_bytes(b"".join(_line(n, record) for n, record in lines))
    return Repaired(len(sound), damaged, aside)
