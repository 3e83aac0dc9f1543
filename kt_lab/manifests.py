"""What a landscape's files must hold: read with suspicion, for anybody may have made them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import LandscapeError
from kt_lab.space import ParameterSpace
from kt_lab.trial import STATUSES


def read_manifest(path: Path) -> dict[str, Any]:
    """Returns a landscape's manifest, or raises LandscapeError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"a {type(found).__name__} at the top")
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(path, error) from None
    for name in ("kernel", "workload", "gpu"):
        if not isinstance(found.get(name), str):
            raise LandscapeError(f"a landscape must hold a text {name}; {path.name} does not")
    return found


def is_manifest(path: Path) -> bool:
    """Returns whether a JSON file is a landscape's: beside its table, or by what it says."""
    return path.with_suffix(".parquet").exists() or b'"fingerprint"' in path.read_bytes()


def require_free(path: Path) -> None:
    """Raises LandscapeError where a manifest would replace a file that is no landscape's.

    What it says counts alone: a table beside another tuner's file makes that no manifest.
    """
    if path.exists() and b'"fingerprint"' not in path.read_bytes():
        raise LandscapeError(
            "a landscape is NAME.parquet with its manifest NAME.json, got a name that would write "
            f"over {path.name}, which is no landscape's; save it under another name"
        )


def unreadable(path: Path, error: Exception) -> LandscapeError:
    """Returns the error of a file that cannot be read."""
    return LandscapeError(
        f"a landscape must be a Parquet file with its JSON manifest beside it, got "
        f"{path.name}: {type(error).__name__}: {str(error)[:200]}"
    )


def check_columns(
    table: pd.DataFrame, manifest: Mapping[str, Any], wanted: set[str], name: str
) -> None:
    """Raises LandscapeError unless a table has the wanted columns, and its manifest its facts."""
    if missing := sorted((wanted - set(table.columns)) | ({"space", "fingerprint"} - {*manifest})):
        raise LandscapeError(f"a landscape must hold {', '.join(missing)}; {name} does not")
    lists = [table[column].tolist() for column in ("samples_us", "visit")]
    arrays = {type(cell) for cells in lists for cell in cells} <= {np.ndarray}
    alike = arrays and [*map(len, lists[0])] == [*map(len, lists[1])]
    visits = np.concatenate([[0], *lists[1]]) if alike else np.array([-1])
    if visits.dtype.kind not in "iuf" or not (visits >= 0).all():
        raise LandscapeError(f"lists must hold every sample and its visit; {name} does not")
    if foreign := sorted(set(map(str, set(table["status"]))) - set(STATUSES)):
        raise LandscapeError(f"status must be one of {STATUSES}, got {foreign} in {name}")


def recorded_rows(table: pd.DataFrame, space: ParameterSpace) -> tuple[np.ndarray, np.ndarray]:
    """Returns the value indices of every recorded config, and which are members of the space.

    Returns:
        Shapes (configs, parameters), whole numbers, and (configs,), booleans.

    Raises:
        LandscapeError: A column is missing, or holds something else.
    """
    names = [f"p_{name}" for name in space.names]
    try:
        rows = table[names].to_numpy(dtype=np.int64)
    except (KeyError, TypeError, ValueError) as error:
        raise LandscapeError(
            f"a landscape must hold whole numbers in {', '.join(names)}, got {error}"
        ) from None
    good = ((rows >= 0) & (rows < [p.cardinality for p in space.parameters])).all(axis=1)
    good[good] = space.valid(rows[good])
    return rows, good
