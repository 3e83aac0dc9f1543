"""LFBOPatternSearch: pattern search whose neighbours a random forest selects.

Reproduces Helion's LFBOPatternSearch (helion 1.5.1, `lfbo_version` 3) with the fixes of September
2026 (pytorch/helion #3518, #3524): only measured configs count as visited, every step tries at
least one real neighbour, a descent never loses its incumbent, labels follow re-timings, and an
exhaustive descent polishes the best config in the end. Song et al., "A General Recipe for
Likelihood-free Bayesian Optimization" (2022), is the method. Not reproduced: finalisation
(`kt_lab.confirm`) and the adaptive compile timeout (the runner's).
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kt_lab.search import surrogate
from kt_lab.search.base import option
from kt_lab.search.batches import Member, Request
from kt_lab.search.neighbourhood import Row
from kt_lab.search.screened import ScreenedOptions, ScreenedSearcher


@dataclass(frozen=True)
class LFBOPatternOptions(ScreenedOptions):
    """Options of `lfbo_pattern`; every default is Helion's."""

    quantile: float = option(
        0.10, "Share of the readings that the forest learns as good.", low=0.0, high=1.0
    )
    patience: int = option(
        1, "Gainless steps that a descent survives in all.", unit="generations", low=0, high=1000
    )
    similarity_penalty: float = option(
        1.0, "Weight of unlikeness among the selected neighbours.", low=0.0, high=1000.0
    )
    polish_rounds: int = option(
        10, "Rounds of exhaustive descent in the end; 0: none.", unit="rounds", low=0, high=1000
    )
    n_estimators: int = option(100, "Trees of the forest.", unit="trees", low=1, high=10_000)
    criterion: str = option(
        "log_loss", "What a split improves.", choices=("log_loss", "entropy", "gini")
    )
    random_state: int = option(42, "Seed of every forest (Helion's).", low=0, high=2**32 - 1)


class LFBOPatternSearch(ScreenedSearcher):
    """Measures the neighbours that a forest finds promising and unlike each other."""

    name: ClassVar[str] = "lfbo_pattern"
    Options: ClassVar[type] = LFBOPatternOptions
    predicts: ClassVar[str | None] = "p_good"

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        importlib.import_module("sklearn.ensemble")  # here, so that no ask is charged for it
        self._forest: surrogate.Forest | None = None

    def _learn(self) -> None:
        """Fits the forest from scratch to the latest reading of every measured config."""
        measured = [m for m in self._members.values() if m.measured]
        options = self.options
        self._forest = surrogate.fit(
            self.space.encode_rows(np.asarray([m.row for m in measured])),
            np.asarray([m.value for m in measured]),
            quantile=options.quantile,
            n_estimators=options.n_estimators,
            criterion=options.criterion,
            random_state=options.random_state,
        )

    def _select(self, pool: list[Row], n: int) -> dict[int, float | None]:
        if self._forest is None:  # nothing to learn from: all readings failed, or all are good
            return self._shuffled(pool, n)
        x = self.space.encode_rows(np.asarray(pool))
        good, leaves = surrogate.score(self._forest, x)
        chosen = surrogate.select(good, leaves, n, penalty=self.options.similarity_penalty)
        return {i: float(good[i]) for i in chosen}

    def _patience(self) -> int:
        return self.options.patience

    def _polish(self, best: Member) -> Iterator[list[Request]]:
        return self._descend(best, self.options.polish_rounds)
