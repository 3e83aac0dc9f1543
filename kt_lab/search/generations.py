"""What generation searchers share: descents side by side, re-timing and polish.

The skeleton of Helion's PatternSearch (helion 1.5.1, `pattern_version` 2).
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kt_lab.search.base import option
from kt_lab.search.batches import BatchOptions, BatchSearcher, Member, Request
from kt_lab.search.neighbourhood import pattern_rows
from kt_lab.search.starts import starts


@dataclass(eq=False, slots=True)
class Copy:
    """One of the descents that run side by side from the best starts."""

    current: Member
    patience: int
    candidates: list[Member]
    live: bool = True


@dataclass(frozen=True)
class GenerationOptions(BatchOptions):
    """What every generation searcher has; the defaults are Helion's full effort."""

    starts: str = option(
        "helion",
        'Initial configs after the default and the prior: "helion" draws parameters one by one '
        'and halves tiles to fit a random number of elements per thread; "uniform" draws '
        'uniformly from the valid configs; "available" draws none unless all of those fail.',
        choices=("helion", "uniform", "available"),
    )
    initial_population: int = option(
        100, "Configs measured before the descents begin.", unit="configs", low=1, high=10_000
    )
    copies: int = option(
        5, "Best starts that are descended from, side by side.", unit="descents", low=1, high=100
    )
    max_generations: int = option(
        20, "Steps that a descent takes at most.", unit="generations", low=0, high=1000
    )
    min_improvement_delta: float = option(
        0.001, "A descent stops when a step changes the latency by less.", low=0.0, high=1.0
    )
    neighbours_cap: int = option(
        -1, "Neighbours generated per step at most; -1: all.", unit="configs", low=-1, high=10**6
    )


class GenerationSearcher(BatchSearcher):
    """A searcher of side-by-side descents; subclasses generate the candidates."""

    Options: ClassVar[type] = GenerationOptions
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "full": {},
        "quick": {
            "starts": "available",
            "initial_population": 30,
            "copies": 2,
            "max_generations": 5,
            "rebenchmark_threshold": 0.9,
        },
    }

    def _run(self) -> Iterator[list[Request]]:
        """Yields the batches of the whole search."""
        options = self.options
        yield from self._begin(options.starts)
        if options.starts == "available" and not math.isfinite(self._best_ever):
            yield from self._begin("helion")
        ranked = sorted(self._population, key=lambda m: m.value)[: options.copies]
        copies = [
            Copy(m, self._patience(), []) for m in ranked if math.isfinite(m.value)
        ]  # none when every start failed: the search ends, as Helion's does
        for self._generation in range(1, options.max_generations + 1):
            if not self._step(copies):
                self._generation -= 1  # nothing was proposed in it
                break
            yield from self._round("neighbour")
            for copy in copies:
                self._settle(copy)
        if copies:
            yield from self._polish(self._best())

    def _begin(self, rule: str) -> Iterator[list[Request]]:
        """Measures the initial population."""
        first = starts(
            self.space,
            self.options.initial_population,
            rule=rule,
            rng=np.random.default_rng(self._start_seed),
            prior=self.prior,
        )
        rows = [tuple(row) for row in self.space.rows(first).tolist()]
        self._population = [self._visit(row) for row in rows]
        yield from self._round("start")

    def _step(self, copies: list[Copy]) -> bool:
        """Gathers the candidates of all live copies; returns whether there are any."""
        best = self._best()
        live = [copy for copy in copies if copy.live]
        if live:
            self._learn()
        for copy in live:
            copy.candidates = [copy.current, *self._candidates(copy.current)]
            copy.live = len(copy.candidates) > 1
        live = [copy for copy in live if copy.live]
        if live:
            self._population = list(
                dict.fromkeys([best, *(m for copy in live for m in copy.candidates)])
            )
        return bool(live)

    def _settle(self, copy: Copy) -> None:
        """Moves a copy to its best candidate, or stops it."""
        if not copy.live:
            return
        best = min(copy.candidates, key=lambda m: m.value)
        if self._stalls(best, copy.current):
            copy.live = copy.patience > 0
            copy.patience -= 1  # never replenished
        copy.current = best

    def _stalls(self, best: Member, current: Member) -> bool:
        if best is current:
            return True
        if not (math.isfinite(best.value) and math.isfinite(current.value)) or not current.value:
            return False
        return abs(best.value / current.value - 1.0) < self.options.min_improvement_delta

    def _round(self, origin: str) -> Iterator[list[Request]]:
        """Measures what the population has not measured, then re-times its fastest members."""
        yield [Request(m, origin) for m in self._population if not m.measured]
        yield self._retimings(self._population)

    def _descend(self, current: Member, rounds: int) -> Iterator[list[Request]]:
        """Polishes: measures the whole pattern neighbourhood and moves, until nothing improves."""
        for _ in range(rounds):
            fresh = self._fresh(pattern_rows(self.space, current.row))
            if not fresh:
                return
            self._generation += 1
            self._population = [current, *map(self._visit, fresh)]
            yield from self._round("polish")
            best = self._best()
            if self._stalls(best, current):
                return
            current = best

    # -- what subclasses decide ---------------------------------------------------------------

    @abstractmethod
    def _candidates(self, current: Member) -> list[Member]:
        """Returns unmeasured members to try next around `current`."""

    def _learn(self) -> None:
        """Prepares for a generation from everything measured so far."""

    def _patience(self) -> int:
        """Returns how many stalled generations a copy survives."""
        return 0

    def _polish(self, best: Member) -> Iterator[list[Request]]:  # noqa: ARG002
        """Yields what is measured after the last generation."""
        return iter(())
