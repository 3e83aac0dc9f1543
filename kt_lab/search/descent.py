"""How an epoch of a search in a large space ends: by single steps from the plainest of its best.

What hardly matters drifts while a model proposes. So a parameter that is good only beside the
defaults of others is tried beside whatever these have come to, and seems to be bad: a persistent
grid, say, that wins with the defaults of its own loop, which a flat one has not.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from kt_lab.search.neighbourhood import Row, pattern_rows
from kt_lab.space import ParameterSpace

_LEVEL = 1.005  # times the best: nobody can tell which of these is faster


def next_step(
    space: ParameterSpace,
    known: Mapping[Row, int],
    values: Sequence[float],
    since: int,
    *,
    rng: np.random.Generator,
) -> Row | None:
    """Returns a config one step from the centre, that nobody asked for; None: there is none.

    The centre is that of the best which differs from the default in fewest parameters but scales
    (tiles, warps, stages). First each of these is set back to its default, then come the steps of
    pattern search, drawn in any order.

    Args:
        space: A ParameterSpace.
        known: Number of every row that was asked for or told, in order.
        values: What each took, NaN while under way, inf where it failed.
        since: The epoch's first number.
        rng: Draws.
    """
    us = np.asarray(values[since:], dtype=float)
    if not np.isfinite(us).any():
        return None
    best, every = np.flatnonzero(us <= _LEVEL * np.nanmin(us)), list(known)
    rows = np.asarray([every[since + at] for at in best])
    default = np.asarray(space.row(space.default))
    plain = np.asarray([p.role is None for p in space.parameters])
    off = (rows != default) & plain
    centre = rows[np.lexsort((us[best], off.sum(axis=1)))[0]]
    at = np.flatnonzero((centre != default) & plain)
    back = np.where(np.eye(len(centre), dtype=bool)[at], default, centre)
    for near in (back.tolist(), pattern_rows(space, tuple(centre.tolist()))):
        new = [row for row in dict.fromkeys(map(tuple, near)) if row not in known]
        fit = np.flatnonzero(space.valid(np.asarray(new))) if new else ()
        if len(fit):
            return new[rng.choice(fit)]
    return None
