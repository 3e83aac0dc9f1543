"""Random moves of a row to another valid row, as Kernel Tuner's strategies make them."""

import numpy as np

from kt_lab.space import ParameterSpace

_DRAWS = 64  # from the box around a row before the draw goes elsewhere


def hamming(space: ParameterSpace, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns a uniformly random valid row that differs from `row` in exactly one parameter.

    Kernel Tuner's neighbour method "Hamming". The row itself comes back when there is none.

    Args:
        space: Which rows are valid.
        row: Value indices, shape (parameters,), valid or not.
        rng: Source of the draw.
    """
    rows = space.neighbour_rows(row, radius=max(p.cardinality for p in space.parameters))
    return rows[rng.integers(len(rows))] if len(rows) else row


def adjacent(space: ParameterSpace, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns a uniformly random valid row at most one step from `row` in every parameter.

    Kernel Tuner's neighbour method "adjacent": the box of radius 1, the row itself excluded (all
    values of an unordered parameter are one step apart). Drawn by rejection; a box that hardly
    holds a valid row falls back to `hamming`, as Kernel Tuner's widens.

    Args:
        space: Which rows are valid.
        row: Value indices, shape (parameters,), valid or not.
        rng: Source of the draw.
    """
    steps = [(int(i), *p.neighbours(int(i))) for i, p in zip(row, space.parameters, strict=True)]
    drawn = rng.integers([len(s) for s in steps], size=(_DRAWS, len(steps)))
    rows = np.stack([np.asarray(s)[drawn[:, i]] for i, s in enumerate(steps)], axis=1)
    rows = rows[(rows != row).any(axis=1)]
    rows = rows[space.valid(rows)] if len(rows) else rows
    return rows[0] if len(rows) else hamming(space, row, rng)
