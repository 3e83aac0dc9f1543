"""Random moves of a row to another valid row, as Kernel Tuner 1.5.0 makes them.

Kernel Tuner knows no unordered parameters: the values of each stand in the order of their list.
"""

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from kt_lab.space import ParameterSpace

_DRAWS = 256  # from the box around a row before it counts as empty

Draw = Callable[[ParameterSpace, np.ndarray, np.random.Generator], np.ndarray]


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
    """Returns a uniformly random valid row at most one value from `row` in every parameter.

    Kernel Tuner's neighbour method "adjacent", where every value of a parameter occurs in a valid
    config: the box of radius 1 without the row itself. Drawn by rejection; a box that hardly holds
    a valid row falls back to `hamming`.

    Args:
        space: Which rows are valid.
        row: Value indices, shape (parameters,), valid or not.
        rng: Source of the draw.
    """
    last = np.asarray([p.cardinality for p in space.parameters]) - 1
    low, high = np.maximum(row - 1, 0), np.minimum(row + 1, last)
    rows = rng.integers(low, high + 1, size=(_DRAWS, len(row)))
    rows = rows[(rows != row).any(axis=1)]
    rows = rows[space.valid(rows)] if len(rows) else rows
    return rows[0] if len(rows) else hamming(space, row, rng)


class Returning:
    """Draws neighbours with Kernel Tuner's cache of them, which leads a walk back.

    `Searchspace.get_random_neighbor` notes each row whose neighbours it has listed with all of
    these. From a row that it has listed, a neighbour is drawn uniformly. From any other, if at
    least two noted rows are its neighbours, one of these is drawn, each once only; else the row's
    own neighbours are listed. So a walk comes back to where it was, which costs no measurement,
    and sets out again from there; annealing without this is clearly worse.
    """

    def __init__(self, draw: Draw, space: ParameterSpace):
        """Has listed nothing yet.

        Args:
            draw: `hamming` or `adjacent`.
            space: Which rows are valid.
        """
        self._draw, self._space = draw, space
        self._listed: dict[tuple, None] = {}
        self._taken: dict[tuple, set[int]] = defaultdict(set)

    def __call__(self, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Returns a neighbour of a valid row; the row itself when it has none."""
        key = tuple(row.tolist())
        if key not in self._listed:
            noted = np.asarray(list(self._listed), dtype=np.int64).reshape(-1, len(row))
            near = [i for i in self._near(noted, row) if i not in self._taken[key]]
            if len(near) > 1:
                chosen = near[rng.integers(len(near))]
                self._taken[key].add(chosen)
                return noted[chosen]
            self._listed[key] = None
        return self._draw(self._space, row, rng)

    def _near(self, rows: np.ndarray, row: np.ndarray) -> list[int]:
        apart = np.abs(rows - row)
        if self._draw is hamming:
            return np.flatnonzero((apart > 0).sum(axis=1) == 1).tolist()
        return np.flatnonzero(apart.max(axis=1, initial=0) <= 1).tolist()
