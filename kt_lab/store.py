"""Durable results: an append-only journal while running, Parquet when done; no pickle, no eval."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kt_lab.errors import StoreError


class Journal:
    """An append-only file of JSON records, one a line, that survives being cut off.

    One writer at a time. A record counts once its line is complete; a last line without its end,
    as a kill leaves it, is dropped when the journal is opened again.
    """

    def __init__(self, path: Path | str):
        """Opens the journal for appending, made with its folder if absent."""
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.records = list(self._replay())
        self._file = self.path.open("a", encoding="utf-8")

    def append(self, record: Mapping[str, Any], *, sync: bool = False) -> None:
        """Adds one record and hands it to the operating system; `sync` waits for the disk."""
        self._file.write(json.dumps(record, separators=(",", ":")) + "\n")
        self._file.flush()
        if sync:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file; may be called twice."""
        self._file.close()

    def __enter__(self):
        """Returns itself."""
        return self

    def __exit__(self, *_):
        """Closes."""
        self.close()

    def _replay(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        raw = self.path.read_bytes()
        complete = raw.rfind(b"\n") + 1
        if complete < len(raw):  # the torn tail of an interrupted writer
            os.truncate(self.path, complete)
        for number, line in enumerate(raw[:complete].splitlines(), start=1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise StoreError(
                    f"every complete line of a journal must be JSON, got line {number} of "
                    f"{self.path.name} ({error}); move the file away to begin afresh, or delete "
                    "that line to keep the rest"
                ) from None


def claimed(path: Path | str) -> BinaryIO:
    """Returns a journal's file with a lock on it that ends with the process, at the latest.

    Raises:
        StoreError: Another run is writing the journal.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        pass  # Windows: nobody keeps two runs apart there
    except BlockingIOError:
        file.close()
        raise StoreError(
            f"a journal must have one writer, got {path.name}, which another run is writing; "
            "wait for that run or stop it, or name another path"
        ) from None
    return file


def write_table(frame: pd.DataFrame, path: Path | str, *, facts: Mapping[str, Any]) -> Path:
    """Writes a table to Parquet by atomic replacement, with JSON facts in its metadata."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    metadata = {b"kt_lab": json.dumps(facts, sort_keys=True, default=str).encode()}
    partial = path.with_name(path.name + ".partial")
    floats = [n for n in frame.columns if frame[n].dtype.kind == "f" and _varied(frame[n])]
    pq.write_table(
        table.replace_schema_metadata(metadata),
        partial,
        compression="zstd",
        compression_level=19,
        use_dictionary=[f.name for f in table.schema if f.name not in floats],
        use_byte_stream_split=floats,
        dictionary_pagesize_limit=4 * 2**20,
    )
    os.replace(partial, path)
    return path


def _varied(column: pd.Series) -> bool:
    """Whether a column of floats has too many distinct values for a dictionary to help."""
    return column.nunique() > 2**18


def read_table(path: Path | str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Reads a table and its facts.

    Raises:
        StoreError: The file is missing, truncated, or was not written by `write_table`.
    """
    path = Path(path)
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"a stored table must be a readable Parquet file, got {path.name}: "
            f"{type(error).__name__}: {error}"
        ) from None
    facts = (table.schema.metadata or {}).get(b"kt_lab")
    if facts is None:
        raise StoreError(
            f"a stored table must carry kt_lab's facts, got none in {path.name}; "
            "it was written by something else"
        )
    return table.to_pandas(), json.loads(facts)
