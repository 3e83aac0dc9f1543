"""Readings of programs by their canonical text, in memory and across runs."""

import functools
import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from kt_lab import programs
from kt_lab.errors import StoreError
from kt_lab.trial import Measurement

# A run that ended otherwise may end otherwise the next time.
_LASTING = ("ok", "censored", "compile_error", "wrong_result")
_TABLE = "CREATE TABLE IF NOT EXISTS readings (key TEXT PRIMARY KEY, reading TEXT NOT NULL)"
_WAIT_S = 30.0  # for another process that is writing


@functools.cache
def emitter_digest() -> str:
    """Returns a hash of the code that turns programs into C: a reading is of what it wrote."""
    folder = Path(programs.__file__).parent
    names = ("emit_c.py", "error_function.py", *(p.name for p in folder.glob("c_*.py")))
    parts = [(folder / name).read_bytes() for name in sorted(names)]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def cache_key(text: str, *facts: str) -> str:
    """Returns the key of a program's reading.

    Args:
        text: Canonical text.
        facts: All else that its status and latency depend on: the emitter, compiler, flags,
            processor, threads, protocol, tolerance.
    """
    return hashlib.sha256(json.dumps([text, *facts]).encode()).hexdigest()


class Cache:
    """Readings by key; a file makes them last, and several processes may share it."""

    def __init__(self, path: Path | str | None = None):
        """Opens the file, or makes it; None: memory only.

        Raises:
            StoreError: The file is something else.
        """
        self._known: dict[str, Measurement] = {}
        self._path = Path(path) if path else None
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._execute(_TABLE)

    def get(self, key: str) -> Measurement | None:
        """Returns a reading, or None."""
        if key not in self._known and self._path:
            rows = self._execute("SELECT reading FROM readings WHERE key = ?", (key,))
            if rows:
                record = json.loads(rows[0][0])
                record["samples_us"] = tuple(record["samples_us"])
                self._known[key] = Measurement(**record)
        return self._known.get(key)

    def put(self, key: str, reading: Measurement) -> None:
        """Keeps a reading in the place of an older one."""
        if reading.status not in _LASTING:
            return
        self._known[key] = reading
        if self._path:
            names = ("status", "samples_us", "compile_s", "check_s", "measure_s", "error")
            record = {name: getattr(reading, name) for name in names}
            text = json.dumps(record | {"info": dict(reading.info)})
            self._execute("INSERT OR REPLACE INTO readings VALUES (?, ?)", (key, text))

    def _execute(self, statement: str, values: tuple = ()) -> list[tuple]:
        try:
            with closing(sqlite3.connect(self._path, timeout=_WAIT_S)) as connection, connection:
                return connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(
                f"a cache of readings must be an SQLite file that can be written, got "
                f"{self._path.name}: {error}; name another path"
            ) from None
