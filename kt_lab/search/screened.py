"""Screened searchers: descents whose random neighbours a model selects from.

What Helion's LFBOPatternSearch, LFBOTreeSearch and UCBPatternSearch have in common.
"""

import itertools
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from kt_lab.search.base import option
from kt_lab.search.batches import Member
from kt_lab.search.generations import GenerationOptions, GenerationSearcher
from kt_lab.search.neighbourhood import Row, random_rows


@dataclass(frozen=True)
class ScreenedOptions(GenerationOptions):
    """What every screened searcher has; the defaults are Helion's LFBOPatternSearch's."""

    num_neighbors: int = option(
        300, "Neighbours drawn per descent and step.", unit="configs", low=1, high=100_000
    )
    radius: int = option(
        2,
        "Steps that a tile and num_warps may move, and how many other parameters may change.",
        unit="steps",
        low=1,
        high=100,
    )
    frac_selected: float = option(
        0.10, "Share of the drawn neighbours that is measured.", low=0.0, high=1.0
    )


class ScreenedSearcher(GenerationSearcher):
    """Measures the neighbours that a model finds promising; subclasses are the model."""

    Options: ClassVar[type] = ScreenedOptions

    def _candidates(self, current: Member) -> list[Member]:
        """Returns the selected neighbours; only these count as visited."""
        pool = [current.row, *self._fresh(self._draws(current.row))]
        if len(pool) == 1:
            return []
        quota = max(2, int(self.options.frac_selected * len(pool)))
        chosen = self._select(pool, quota)
        chosen.pop(0, None)  # the incumbent: kept
        said = {pool[i]: said for i, said in itertools.islice(chosen.items(), quota - 1)}
        self._said |= said
        return [self._visit(row) for row in said]

    def _draws(self, row: Row) -> list[Row]:
        """Returns neighbours in order of drawing, doubles and invalid ones included."""
        options = self.options
        rows = random_rows(
            self.space, row, options.num_neighbors, radius=options.radius, rng=self._random
        )
        return self._capped([r for r in rows if r != row])

    def _capped(self, rows: list[Row]) -> list[Row]:
        cap = self.options.neighbours_cap
        return rows if cap < 0 else rows[:cap]

    @abstractmethod
    def _select(self, pool: list[Row], n: int) -> dict[int, float | None]:
        """Returns position -> prediction of the n most promising rows of the pool, best first."""

    def _shuffled(self, pool: list[Row], n: int) -> dict[int, float | None]:
        """Returns n random positions: what is selected while there is no model."""
        ranks = [self._random.random() for _ in pool]
        return dict.fromkeys(sorted(range(len(pool)), key=ranks.__getitem__)[:n])
