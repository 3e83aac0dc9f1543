"""What is looked at of a space that is too large to be listed."""

from collections.abc import Sequence

import numpy as np

from kt_lab.search.epochs import Epochs
from kt_lab.search.neighbourhood import Row, offspring_rows, reshaped_rows, slots
from kt_lab.search.scout_options import ScoutOptions
from kt_lab.space import ParameterSpace

_SHAPE = ("tile", "warps")  # roles of what configs have in common that are alike
DRAWS = 1 << 22  # half a second's; where less than 0.1 % is valid, fewer members must do
_PARENTS = 8  # best configs whose neighbours and crossovers are candidates


def unlike(space: ParameterSpace, rows: np.ndarray, known: Sequence[Row]) -> np.ndarray:
    """Returns which rows have tiles and warps that no known one has, shape (n,)."""
    return ~np.isin(_shapes(space, rows), _shapes(space, known))


def candidates(
    space: ParameterSpace,
    epochs: Epochs,
    known: Sequence[Row],
    values: Sequence[float],
    origins: np.ndarray | None,
    options: ScoutOptions,
    *,
    rng: np.random.Generator,
) -> np.ndarray:
    """Returns members, known ones and doubles among them, shape (n, parameters).

    They descend from the epoch's best configs, or differ from these or from `origins` in their
    scales and in little else: where every parameter is drawn at once hardly anything is fast, and
    much compiles until it is stopped. Without `origins` the rest is drawn uniformly.

    Args:
        space: A ParameterSpace.
        epochs: Of the search.
        known: Every row that was asked for or told, in order.
        values: What each took, NaN while under way, inf where it failed.
        origins: What somebody thought good, shape (m, parameters); None: no longer asked for.
        options: How many, and which share of them near the best.
        rng: Draws.
    """
    size = options.pool // 2
    best = epochs.parents(values, _shapes(space, known).tolist(), _PARENTS)
    near = int(options.near * size) if best else 0
    parents = np.asarray(known, dtype=int).reshape(-1, len(space.names))[best]
    like = [] if origins is None else [origins, parents]
    rows = [reshaped_rows(space, np.concatenate(like), size - near, rng=rng)] if like else []
    if not any(map(len, rows)):  # other scales may hardly ever fit
        rows = [space.sample_rows(max(1, size - near), rng=rng, most=DRAWS)]
    if best:
        rows += offspring_rows(space, parents, near, size // 2, rng=rng)
    drawn = np.concatenate(rows)
    other = unlike(space, drawn, [known[at] for at in epochs.avoided])
    return drawn[other] if other.any() else drawn  # without such roles all are alike


def _shapes(space: ParameterSpace, rows: Sequence[Row] | np.ndarray) -> np.ndarray:
    """Returns a number for what each row has in common with those like it, shape (n,)."""
    values = np.asarray(rows, dtype=np.int64).reshape(-1, len(space.names))
    found = np.zeros(len(values), dtype=np.int64)
    for at in (at for role in _SHAPE for at in slots(space, role)):
        found = found * space.parameters[at].cardinality + values[:, at]
    return found
