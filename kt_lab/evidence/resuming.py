"""Rows of a result that are stored as they are done, so that a stopped command goes on."""

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_OFTEN = 4  # times that a number stands on average, from which on places are shorter


def as_text(result: Mapping[str, Any]) -> str:
    """Returns a result as JSON with a line for every fact and every row: small, and to be read."""

    def told(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"), default=str)

    lines = []
    for name, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            rows = ",\n".join(f"  {told(row)}" for row in value)
            lines.append(f" {told(name)}: [\n{rows}\n ]")
        else:
            lines.append(f" {told(name)}: {told(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns rows as columns, whose names stand once; every row has those of the first.

    Lists of numbers that come again and again, as latencies of a landscape do, stand as places
    `at` in their distinct `values`, which takes about half of the bytes.
    """
    return {name: _placed([row[name] for row in rows]) for name in rows[0]} if rows else {}


def _placed(column: list[Any]) -> list[Any] | dict[str, Any]:
    if not all(isinstance(each, list | tuple) for each in column):
        return column
    if not all(v is None or isinstance(v, float | int) for each in column for v in each):
        return column
    values = list(dict.fromkeys(v for each in column for v in each))
    if sum(map(len, column)) < _OFTEN * len(values):
        return column
    places = {value: at for at, value in enumerate(values)}
    return {"values": values, "at": [[places[v] for v in each] for each in column]}


def rows_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows that `columns` was given."""
    told = [
        [[c["values"][at] for at in each] for each in c["at"]] if isinstance(c, Mapping) else c
        for c in table.values()
    ]
    return [dict(zip(table, row, strict=True)) for row in zip(*told, strict=True)]


def short(value: float | None, digits: int = 7) -> float | None:
    """Returns a number with so many digits, None for none or inf: a file has many thousands.

    No timer has more than seven.
    """
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


def rounded(value: Any) -> Any:
    """Returns a value whose fractions have the digits of `short`; whole numbers keep all."""
    if isinstance(value, Mapping):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    if isinstance(value, float) and math.isfinite(value) and not value.is_integer():
        return short(value)
    return value


def _apart(provenances: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the provenances that differ in more than their time, the first of each kind."""
    kept: list[dict[str, Any]] = []
    for one in provenances:
        if not any(one | {"utc": None} == other | {"utc": None} for other in kept):
            kept.append(dict(one))
    return kept


class Rows:
    """The rows of one result file.

    Attributes:
        result: Facts, `provenance`, `rows`, each with its key, and, where rows were kept,
            `resumed`: the provenances that they were measured with, once where only the time
            differs, with the first time; what the file holds.
    """

    def __init__(
        self, path: Path, facts: Mapping[str, Any], provenance: Mapping[str, Any], *, again: bool
    ):
        """Reads the rows that the file holds, if it was made with the same facts.

        Args:
            path: The file; there need not be one.
            facts: What a row depends on besides its key.
            provenance: Of this process.
            again: Measure every row that is asked for once more; the others stay.
        """
        self._path, self._began = path, time.monotonic()
        self._again, self._anew = again, []
        stored = json.loads(path.read_text()) if path.exists() else {}
        same = all(stored.get(name) == value for name, value in facts.items())
        kept = stored.get("rows", []) if same else []
        self.result: dict[str, Any] = {**facts, "rows": kept, "provenance": dict(provenance)}
        if kept:
            earlier = [*stored.get("resumed", []), stored["provenance"]]
            self.result["resumed"] = _apart(earlier)

    def has(self, key: Mapping[str, Any]) -> bool:
        """Returns whether a row of that key is there and need not be measured once more."""
        if self._again and key not in self._anew:
            return False
        rows = self.result["rows"]
        return any(all(row[name] == value for name, value in key.items()) for row in rows)

    def in_order(self, keys: Sequence[Mapping[str, Any]]) -> None:
        """Puts the rows of these keys in the keys' order, after all others."""
        rows = self.result["rows"]
        places = [
            next((n for n, key in enumerate(keys) if key.items() <= row.items()), -1)
            for row in rows
        ]
        self.result["rows"] = [rows[at] for at in sorted(range(len(rows)), key=places.__getitem__)]

    def once(self, key: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]) -> None:
        """Measures and stores a row unless one of its key is there; it may tell its `seconds`.

        Fractions keep the digits of `short`.
        A row that is measured once more takes the place of the one before when it is done.
        """
        if self.has(key):
            return
        rows = self.result["rows"]
        began = time.monotonic()
        row = {**key, **rounded(measure())}
        row = {"seconds": round(time.monotonic() - began, 1), **row}
        self._anew.append(dict(key))
        at = next((n for n, old in enumerate(rows) if key.items() <= old.items()), len(rows))
        rows[at : at + 1] = [row]
        partial = self._path.with_name(self._path.name + ".partial")
        partial.write_text(as_text(self.result))
        partial.replace(self._path)
        told = " ".join(map(str, key.values()))
        sys.stderr.write(f"[{time.monotonic() - self._began:7.0f} s] {told}\n")
