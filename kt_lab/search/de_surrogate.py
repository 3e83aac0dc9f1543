"""DESurrogateHybrid: differential evolution whose trials a random forest selects.

Reproduces Helion's DESurrogateHybrid (helion 1.5.1, `surrogate_version` 1); Jin, "Surrogate-
assisted evolutionary computation" (2011), is the idea. It is `differential_evolution` but for:

1. Observations are the finite readings of the NP members kept from the starts, then of every
   trial, each time that one comes up, as first read.
2. A trial recombines four distinct random members x, a, b, c; it belongs to no member. With fewer
   than `surrogate_threshold` observations a generation's trials are NP of them.
3. From then on 3 * NP are drawn and the NP of lowest predicted latency are measured, or NP random
   ones while there is no model. The model is a random forest regressor of latency on the encoded
   config, refitted on all observations in the generations that `refit_frequency` divides.
4. The j-th trial replaces the j-th member if it reads faster; nothing is re-timed before the end.
5. The last generation is the G-th; the search stops early, by default once the best has changed
   by less than 0.1 % over 3 generations for the third time in a row.
"""

import importlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kt_lab.search.base import option
from kt_lab.search.batches import Member, Request
from kt_lab.search.differential_evolution import (
    DifferentialEvolutionOptions,
    DifferentialEvolutionSearch,
)
from kt_lab.search.neighbourhood import Row

_ENOUGH = 10  # observations below which nothing is fitted


@dataclass(frozen=True)
class DESurrogateOptions(DifferentialEvolutionOptions):
    """Options of `de_surrogate`; every default is Helion's."""

    min_improvement_delta: float | None = option(
        0.001, "The search may stop when the best changes by less; none: never.", low=0.0, high=1.0
    )
    patience: int | None = option(
        3,
        "Generations over which the best must change, and how often it may fail to; none: the "
        "search does not stop early.",
        unit="generations",
        low=1,
        high=1000,
    )
    surrogate_threshold: int = option(
        100, "Observations before trials are selected.", unit="readings", low=1, high=100_000
    )
    candidate_ratio: int = option(
        3, "Trials drawn for each that is measured.", unit="configs", low=1, high=1000
    )
    refit_frequency: int = option(
        5, "The forest is refitted every so many generations.", unit="generations", low=1, high=100
    )
    n_estimators: int = option(50, "Trees of the forest.", unit="trees", low=1, high=10_000)
    random_state: int = option(42, "Seed of every forest (Helion's).", low=0, high=2**32 - 1)


class DESurrogateSearch(DifferentialEvolutionSearch):
    """Measures the recombinations that a forest predicts to be fast."""

    name: ClassVar[str] = "de_surrogate"
    Options: ClassVar[type] = DESurrogateOptions
    predicts: ClassVar[str | None] = "latency_us"
    _last: ClassVar[int] = 0

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        importlib.import_module("sklearn.ensemble")  # here, so that no ask is charged for it
        self._rows: list[Row] = []
        self._values: list[float] = []
        self._trees: list | None = None

    def _note(self, members: list[Member]) -> None:
        """Remembers the readings of members that did not fail, doubles included."""
        for member in members:
            if math.isfinite(member.value):
                self._rows.append(member.row)
                self._values.append(member.value)

    def _trials(self, generation: int) -> list[Row]:
        """Returns a population's worth of trials, selected once enough was observed."""
        options, n = self.options, len(self._population)  # a small space fills less of it
        self._said = {}
        if len(self._rows) < options.surrogate_threshold:
            return self._drawn(n)
        if generation % options.refit_frequency == 0 and len(self._rows) >= _ENOUGH:
            self._trees = self._fitted()
        rows = self._drawn(n * options.candidate_ratio)
        if self._trees is None:
            return self._random.sample(rows, n)
        latencies = self._predicted(rows)
        chosen = np.argsort(latencies, kind="stable")[:n].tolist()
        self._said = {rows[i]: float(latencies[i]) for i in chosen}
        return [rows[i] for i in chosen]

    def _drawn(self, n: int) -> list[Row]:
        members = self._population
        return self._shrunk([self._recombine(*self._random.sample(members, 4)) for _ in range(n)])

    def _fitted(self) -> list:
        """Returns the trees of a forest fitted to all observations."""
        from sklearn.ensemble import RandomForestRegressor  # slow to import: not at module level

        forest = RandomForestRegressor(
            n_estimators=self.options.n_estimators,
            max_depth=15,
            min_samples_split=5,
            min_samples_leaf=2,
            random_state=self.options.random_state,
            n_jobs=1,  # does not change the trees
        )
        x = self.space.encode_rows(np.asarray(self._rows))
        return [tree.tree_ for tree in forest.fit(x, self._values).estimators_]

    def _predicted(self, rows: list[Row]) -> np.ndarray:
        """Returns the forest's latency of each row in microseconds, shape (n,)."""
        x = self.space.encode_rows(np.asarray(rows)).astype(np.float32)
        return sum(tree.value[tree.apply(x), 0, 0] for tree in self._trees) / len(self._trees)

    def _compete(self, trials: list[Member]) -> Iterator[list[Request]]:
        """Puts the j-th trial against the j-th member."""
        for j, trial in enumerate(trials):
            if trial.value < self._population[j].value:
                self._population[j] = trial
        return iter(())
