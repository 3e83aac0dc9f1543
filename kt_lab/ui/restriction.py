"""Which values of each parameter are allowed, and how many valid configs that leaves."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kt_lab.errors import SpaceError, UnknownName
from kt_lab.rows import ENUMERABLE
from kt_lab.space import ParameterSpace

_DRAWS = 200_000  # combinations looked at where there are too many to count


def allowed_rows(space: ParameterSpace, allowed: Mapping[str, Sequence[Any]]) -> np.ndarray | None:
    """Returns the valid rows whose values are all allowed, shape (n, parameters); n may be 0.

    Args:
        space: The space.
        allowed: Values by parameter; a parameter that is not named may have any.

    Returns:
        None where more than 10**6 combinations are allowed: too many to list.

    Raises:
        UnknownName: There is no such parameter.
        SpaceError: A parameter has no such value.
    """
    indices = _indices(space, allowed)
    if not all(indices):
        return np.empty((0, len(indices)), dtype=np.int64)
    if space.enumerable:
        rows = space.enumerate()
        kept = [np.isin(rows[:, slot], each) for slot, each in enumerate(indices)]
        return rows[np.logical_and.reduce(kept)]
    if math.prod(map(len, indices)) > ENUMERABLE:
        return None
    rows = np.stack([axis.ravel() for axis in np.meshgrid(*indices, indexing="ij")], axis=1)
    return rows[space.valid(rows)]


def restrict(space: ParameterSpace, allowed: Mapping[str, Sequence[Any]]) -> ParameterSpace:
    """Returns the space with some values only; the space itself where all are allowed.

    Raises:
        SpaceError: Nothing valid is left, or more than can be listed.
    """
    if [len(each) for each in _indices(space, allowed)] == [
        p.cardinality for p in space.parameters
    ]:
        return space
    rows = allowed_rows(space, allowed)
    if rows is None or not len(rows):
        left = f"more than {ENUMERABLE:,} combinations" if rows is None else "no valid config"
        step = "allow fewer values, or all of them" if rows is None else "allow more values"
        raise SpaceError(
            f"allowed values must leave between 1 config and {ENUMERABLE:,} combinations, got "
            f"{left}; {step}"
        )
    return space.only(rows)


def count_text(space: ParameterSpace, allowed: Mapping[str, Sequence[Any]]) -> str:
    """Returns how many valid configs are left, in words: exact, or "more than N"."""
    rows = allowed_rows(space, allowed)
    if rows is not None:
        return f"{len(rows):,} valid configs"
    rng = np.random.default_rng(0)
    drawn = [rng.choice(np.asarray(each), size=_DRAWS) for each in _indices(space, allowed)]
    rows = np.unique(np.stack(drawn, axis=1), axis=0)
    return f"more than {max(0, int(space.valid(rows).sum()) - 1):,} valid configs"


def _indices(space: ParameterSpace, allowed: Mapping[str, Sequence[Any]]) -> list[list[int]]:
    """Returns the allowed value indices of every parameter, ascending."""
    for name in allowed:
        if name not in space.names:
            raise UnknownName("parameter", name, space.names)
    return [
        sorted({p.index(value) for value in allowed[p.name]})
        if p.name in allowed
        else list(range(p.cardinality))
        for p in space.parameters
    ]
