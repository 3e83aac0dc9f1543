"""Foreign JSON, plain or gzipped: read with suspicion, written in one step."""

import gzip
import hashlib
import io
import json
import reprlib
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from kt_lab.errors import LandscapeError
from kt_lab.store.files import replacing

_LARGEST = 2**29  # bytes once unpacked; the largest public file is a fifth of it
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 120


def read_json(path: Path | str, *, closing: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads a JSON object, and what a manifest should say of its file.

    NaN and Infinity are read: real files have them in fields that nobody here uses, such as what
    an observer could not measure. `number` and `check_values` refuse them where they matter.

    Args:
        path: A file, gzipped or not, whatever its suffix.
        closing: What an interrupted writer did not get to write; tried if the text does not
            parse as it is, after a trailing comma is taken away.

    Returns:
        The object; and its file's name, sha256, and whether it was closed.

    Raises:
        LandscapeError: The file cannot be read, is no UTF-8, larger than 512 MiB unpacked, no
            JSON object, nested too deeply, or holds a name twice.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        facts = {"file": path.name, "sha256": hashlib.sha256(raw).hexdigest(), "closed": True}
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(_LARGEST + 1)
        if len(raw) > _LARGEST:
            raise ValueError(f"more than {_LARGEST:,} bytes")
        text = raw.decode("utf-8-sig")
        try:
            found = json.loads(text, object_pairs_hook=_distinct)
        except json.JSONDecodeError:
            text, facts["closed"] = text.rstrip().removesuffix(",") + closing, False
            found = json.loads(text, object_pairs_hook=_distinct)
        if not isinstance(found, dict):
            raise ValueError(f"a {type(found).__name__} at the top")
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise LandscapeError(
            f"an imported file must be one JSON object in UTF-8, plain or gzipped, got "
            f"{path.name}: {type(error).__name__}: {str(error)[:200]}; fetch or write it again"
        ) from None
    return found, facts


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(name, times)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{name[:80]!r} {times} times in one object")
    return found


def to_json(value: Any) -> str:
    """Returns compact JSON; what it has no type for is told as text."""
    return json.dumps(value, separators=(",", ":"), default=str, allow_nan=False)


def write_text(path: Path | str, text: str) -> Path:
    """Writes text by atomic replacement, gzipped if the name ends in .gz; returns the path.

    Raises:
        LandscapeError: It would replace the manifest of a landscape.
    """
    path, raw = Path(path), text.encode()
    manifest = path.suffix == ".json" and path.with_suffix(".parquet").exists()
    law = "another tuner's file must have another name than a landscape's manifest"
    require(not manifest, law, path.name, f"{path.parent}; choose one")
    with replacing(path) as partial:
        partial.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
    return path


def require(good: Any, law: str, got: Any, where: str) -> None:
    """Raises LandscapeError unless a law about a file holds.

    Args:
        good: Whether it holds.
        law: What must be ("a record must ...").
        got: What is there instead; shown shortened.
        where: Which part of which file, and perhaps what to do about it.
    """
    if not good:
        raise LandscapeError(f"{law}, got {_SHOWN.repr(got)} in {where}")


def number(value: Any, name: str, where: str, *, low: float = 0.0) -> float:
    """Returns a number of a file, low <= number <= 1e12, or raises LandscapeError."""
    good = type(value) in (int, float) and low <= value <= 1e12
    if name.startswith(("time", "runtimes")):
        where = f"{where}; mark the config as failed, or drop it"
    require(good, f"{name} must be a number in {low:g}..1e12", value, where)
    return float(value)


def member(found: Any, name: str, kind: type, where: str) -> Any:
    """Returns what an object of a file holds under a name, or raises LandscapeError."""
    value = found.get(name) if isinstance(found, dict) else None
    names = {dict: "an object", list: "a list", str: "a string"}
    require(isinstance(value, kind), f"{name} must be {names[kind]}", value, where)
    return value
