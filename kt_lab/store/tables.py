"""Finished tables: Parquet with JSON facts, written whole or not at all, damage told."""

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kt_lab.errors import StoreError
from kt_lab.store.files import replacing

_SUM, _MARK = b"kt_lab_crc32", b"crc32 of the rest: "  # Parquet itself does not guard its footer


def write_table(
    frame: pd.DataFrame, path: Path | str, *, facts: Mapping[str, Any], split: Sequence[str] = ()
) -> Path:
    """Writes a table to Parquet by atomic replacement, with JSON facts in its metadata.

    Neither a kill nor a power loss leaves half a table: there is the old one or the new one.

    Args:
        frame: The table.
        path: Its file.
        facts: JSON-ready.
        split: Numbers that no dictionary helps, besides floats of many values: stored by bytes.

    Raises:
        StoreError: The disk is full, or refuses otherwise; what was there before still is.
    """
    path = Path(path)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    metadata = {b"kt_lab": json.dumps(facts, sort_keys=True, default=str).encode()}
    metadata[_SUM] = _MARK + b"0" * 8
    bytewise = [n for n in frame.columns if frame[n].dtype.kind == "f" and _varied(frame[n])]
    bytewise += [n for n in split if n in frame]
    with replacing(path) as partial:
        pq.write_table(
            table.replace_schema_metadata(metadata),
            partial,
            compression="zstd",
            compression_level=19,
            use_dictionary=[f.name for f in table.schema if f.name not in bytewise],
            use_byte_stream_split=bytewise,
            dictionary_pagesize_limit=4 * 2**20,
        )
        raw = partial.read_bytes()
        with partial.open("r+b") as file:
            file.seek(raw.rfind(_MARK) + len(_MARK))
            file.write(_checksum(raw))
    return path


def _checksum(raw: bytes) -> bytes:
    """Returns the checksum of a whole file, taking its own place for zeros: 8 hex digits."""
    at = raw.rfind(_MARK) + len(_MARK)
    return b"%08x" % zlib.crc32(raw[at + 8 :], zlib.crc32(b"0" * 8, zlib.crc32(raw[:at])))


def _varied(column: pd.Series) -> bool:
    """Whether a column of floats has too many distinct values for a dictionary to help."""
    return column.nunique() > 2**18


def read_table(path: Path | str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Reads a table and its facts.

    Raises:
        StoreError: The file is missing, truncated or damaged (tables that were written with
            checksums tell), or was not written by `write_table`.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        at = raw.rfind(_MARK) + len(_MARK)
        if at >= len(_MARK) and raw[at : at + 8] != _checksum(raw):
            raise OSError("its checksum does not fit")
        table = pq.read_table(pa.BufferReader(raw))
        if at < len(_MARK) and _SUM in (table.schema.metadata or {}):
            raise OSError("its checksum is damaged")
        frame = table.to_pandas()
        facts = json.loads((table.schema.metadata or {}).get(b"kt_lab", b"null"))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StoreError(
            f"a stored table must be a readable Parquet file, got {path.name}: "
            f"{type(error).__name__}: {error}; move it away and run again, or take another copy"
        ) from None
    if facts is None:
        raise StoreError(
            f"a stored table must carry kt_lab's facts, got none in {path.name}; "
            "it was written by something else"
        )
    return frame, facts
