"""Epochs of a search in a space too large to be listed: anew when one has come to its end.

Whoever looks where improvement is expected most stays in the basin of the best, where there is
always another config that differs little. So when nothing better was read for long, and a descent
from the best (`kt_lab.search.descent`) brought nothing either, the search begins once more as if
it knew nothing; every third time it goes on from the best of all beginnings at once, with all that
was read. What draws one search draws the next as well: so every other beginning leaves alone what
is like the bests before it.
"""

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from kt_lab.search.descent import next_step
from kt_lab.search.neighbourhood import Row
from kt_lab.space import ParameterSpace

_LEAST = 200  # readings of an epoch
_IDLE = 60  # readings without a better one, at least
_BETTER = 0.99  # times the best: noise alone makes new minima
_JOINT = 3  # of so many epochs that end, one is followed by that of all


class Epochs:
    """Which readings the running epoch of a search knows.

    Attributes:
        since: It knows the configs from this number on.
        avoided: Numbers of the configs whose like it leaves alone, the best of every beginning:
            in the second epoch, and in each that follows one of all readings.
        descending: Whether nothing is left of the epoch but the descent from its best.
        descended: Whether that is over.
    """

    def __init__(self, idle: float):
        """Begins the first.

        Args:
            idle: Share of an epoch's readings without a better one that ends it; 0: none ends.
        """
        self.since, self.avoided = 0, []
        self._idle = idle or math.inf
        self._firsts = [0]  # of the epochs that began from nothing
        self._ended = self._before = self._marked = 0
        self._mark = math.inf
        self.descending = self.descended = False
        self._waits, self._from = 0, math.inf

    def ended(self, values: Sequence[float], *, left: float = math.inf) -> bool:
        """Returns whether the running epoch has come to its end, and begins the next if so.

        Args:
            values: What was read of every config in the order of asking, lower is better, NaN
                while under way, inf where it failed.
            left: Trials that may follow: with too few for an epoch none ends, but descends.
        """
        told = np.asarray(values[self.since :], dtype=float)
        told = told[~np.isnan(told)]
        n = len(told) - self._before
        if told.min(initial=math.inf) < _BETTER * self._mark:
            self._mark, self._marked = told.min(), n
        going = n - self._marked <= max(_IDLE, self._idle * n)
        if n < _LEAST or (going and not self.descending):
            return False
        if not self.descending:
            self.descending, self._from = True, told.min()
        if left < _LEAST or not self.descended:
            return False
        self.descending, self.descended = False, False
        if told.min() < _BETTER * self._from:  # lower ground: more may be found from there
            self._mark, self._marked = told.min(), n
            return False
        self.avoided = [] if self._ended % _JOINT else self._bests(values)
        self._ended += 1
        joint = self._ended % _JOINT == 0
        self.since = 0 if joint else len(values)
        self._mark = np.nanmin(values) if joint else math.inf
        self._before = int(np.count_nonzero(~np.isnan(values))) if joint else 0
        self._marked = 0
        if not joint:
            self._firsts.append(self.since)
        return True

    def step(
        self,
        space: ParameterSpace,
        known: Mapping[Row, int],
        values: Sequence[float],
        *,
        rng: np.random.Generator,
    ) -> tuple[Row, None, str] | None:
        """Returns a step of the descent that ends an epoch, if one does and there is one.

        The descent is over when there is none and what is under way has led on no more.

        Args:
            space: A ParameterSpace.
            known: Number of every row that was asked for or told, in order.
            values: As for `ended`.
            rng: Draws.
        """
        if not self.descending or self.descended:
            return None
        row = next_step(space, known, values, self.since, rng=rng)
        self._waits = 0 if row else self._waits or len(values)
        self.descended = row is None and not np.isnan(values[: self._waits]).any()
        return row and (row, None, "step")

    def parents(self, values: Sequence[float], kinds: Sequence[Hashable], most: int) -> list[int]:
        """Returns the numbers of the configs that candidates descend from, most of them at most.

        Those are the best of each kind in the epoch; where there are fewer kinds, in an epoch of
        all the best of each beginning; then whatever is best.

        Args:
            values: As for `ended`.
            kinds: What every config has in common with those that are like it.
            most: >= 1.
        """
        us = np.nan_to_num(np.asarray(values, dtype=float), nan=math.inf, posinf=math.inf)
        bests = [] if self.since else self._bests(values)
        order = self.since + np.argsort(us[self.since :], kind="stable")
        firsts = {kinds[at]: at for at in reversed(order)}
        tops = sorted(firsts.values(), key=lambda at: (us[at], at))
        chosen = dict.fromkeys([*tops, *bests, *order])
        return [int(at) for at in chosen if math.isfinite(us[at])][:most]

    def _bests(self, values: Sequence[float]) -> list[int]:
        """Returns the number of the best config of each beginning, the best of them first."""
        us = np.nan_to_num(np.asarray(values, dtype=float), nan=math.inf, posinf=math.inf)
        parts = np.split(np.arange(len(us)), self._firsts[1:])
        return sorted((int(p[us[p].argmin()]) for p in parts if len(p)), key=us.__getitem__)
