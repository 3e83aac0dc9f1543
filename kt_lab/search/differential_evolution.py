"""Differential evolution: configs that are recombined, each against its own successor.

Reproduces Helion's DifferentialEvolutionSearch (helion 1.5.1, `de_version` 1) with batched
updates, its default; Storn and Price, "Differential Evolution" (1997), is the method.

1. The 2 * NP starts are measured and the NP best of them become the population x_1..x_NP. They
   are the default, the prior and random draws, doubles and invalid draws included: an invalid
   config counts as infinitely slow, is not measured, and passes its values on nevertheless.
2. In each of the generations 2..G-1 every x_i gets a trial u_i: a, b, c are the first three,
   other than i, of four distinct members drawn at random; each parameter j of u_i is
   v_j = a_j + F(b_j, c_j) with probability CR and x_ij otherwise, but at least one is v_j.
   F is one step of the sign of b_j - c_j, kept within the parameter's bounds; a Flag flips if
   b_j and c_j differ; a Choice becomes b_j or c_j, whichever is not a_j, or either at random.
   Tiles are then halved until a thread holds at most 8192 elements (`starts.Shrink`).
3. All trials are measured, then in order of i: if u_i and x_i are both within
   `rebenchmark_threshold` of the best reading, they are re-timed together; u_i replaces x_i if
   it is faster.
4. In the end the population is re-timed.

Helion measures 2 * NP + NP * (G - 2) = 1600 times, the same config anew as often as it comes up.
Where constraints are hardly ever met, the starts may hold no valid config but the default, and no
trial is valid: Helion then measures one config. Here a listed space, less than 1 % of it valid, of
which 2 * NP configs were not found is searched once more, from valid starts, drawn uniformly.

A budget of trials counts distinct configs, so here a known config is answered from memory, at no
cost, by its latest reading; `duplicates="measure"` measures it again, which costs seconds but no
trial. Not reproduced: finalisation and the adaptive compile timeout (see `pattern`).
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kt_lab.search.base import option, prior_configs
from kt_lab.search.batches import BatchOptions, BatchSearcher, Member, Request
from kt_lab.search.neighbourhood import Row
from kt_lab.search.starts import Shrink, shrunk_rows, starts
from kt_lab.space import Flag, Parameter

_PER_THREAD = 8192  # elements that a thread holds at most
_PARENTS = 4  # members drawn per trial
_RARE = 0.01  # share of valid configs below which a search that found few begins again


@dataclass(frozen=True)
class DifferentialEvolutionOptions(BatchOptions):
    """Options of `differential_evolution`; every default is Helion's."""

    starts: str = option(
        "helion",
        'Initial configs after the default and the prior: "helion" draws parameters one by one '
        "and halves tiles to fit a random number of elements per thread, invalid configs and "
        'doubles included; "uniform" draws uniformly from the valid configs.',
        choices=("helion", "uniform"),
    )
    population_size: int = option(
        40, "Members; twice as many starts are measured.", unit="configs", low=4, high=10_000
    )
    max_generations: int = option(
        40, "Generations, the starts being the first two.", unit="generations", low=0, high=10_000
    )
    crossover_rate: float = option(
        0.8, "Probability that a parameter of a trial is recombined.", low=0.0, high=1.0
    )
    min_improvement_delta: float | None = option(
        None,
        "With a patience: the search may stop when the best changes by less.",
        low=0.0,
        high=1.0,
    )
    patience: int | None = option(
        None,
        "Generations over which the best must change, and how often it may fail to; none: the "
        "search does not stop early.",
        unit="generations",
        low=1,
        high=1000,
    )
    duplicates: str = option(
        "memory",
        'Trials that are known: answered from "memory", or, as Helion does, "measure"d again.',
        choices=("memory", "measure"),
    )


class DifferentialEvolutionSearch(BatchSearcher):
    """Measures one recombination of every member per generation and keeps the faster of both."""

    name: ClassVar[str] = "differential_evolution"
    Options: ClassVar[type] = DifferentialEvolutionOptions
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "full": {},
        "quick": {"population_size": 20, "max_generations": 8, "rebenchmark_threshold": 0.9},
    }
    _last: ClassVar[int] = -1  # the last generation, from max_generations

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        self._shrink = Shrink(space)

    def _run(self) -> Iterator[list[Request]]:
        """Yields the batches of the whole search."""
        yield from self._evolve(self.options.starts)
        space, found = self.space, len(self._members)
        rare = space.enumerable and space.size < _RARE * space.cartesian_size
        if rare and found < min(2 * self.options.population_size, space.size):
            self._generation = 0
            yield from self._evolve("uniform")

    def _evolve(self, rule: str) -> Iterator[list[Request]]:
        options = self.options
        members = self._enter(self._first_rows(rule))
        yield self._requests(members, "start")
        self._population = sorted(members, key=lambda m: m.value)[: options.population_size]
        if len(self._population) < _PARENTS:  # a tiny space, all of which is measured
            return
        self._note(self._population)
        best = [self._best().value]
        failures = 0
        for generation in range(2, options.max_generations + self._last + 1):
            self._generation = generation - 1  # told from 0, though the starts count as two
            trials = self._enter(self._trials(generation))
            yield self._requests(trials, "trial")
            self._note(trials)
            yield from self._compete(trials)
            best.append(self._best().value)
            failures = self._failures(best, failures)
            if options.patience is not None and failures >= options.patience:
                break
        yield self._retimings(dict.fromkeys(self._population))

    def _first_rows(self, rule: str) -> list[Row]:
        """Returns the starts: 2 * NP by Helion's rule, fewer by the other."""
        n, rng = 2 * self.options.population_size, np.random.default_rng(self._start_seed)
        if rule != "helion":
            found = starts(self.space, n, rule=rule, rng=rng, prior=self.prior)
            return [tuple(row) for row in self.space.rows(found).tolist()]
        known = [self.space.default, *prior_configs(self.space, self.prior)]
        rows = [tuple(r) for r in self.space.rows(dict.fromkeys(known)).tolist()][:n]
        drawn = shrunk_rows(self.space, n - len(rows), rng=rng)
        return rows + [tuple(row) for row in drawn.tolist()]

    def _enter(self, rows: Sequence[Row]) -> list[Member]:
        """Returns the rows' members; an invalid one counts as measured and infinitely slow."""
        valid = self.space.valid(np.asarray(rows)).tolist()
        return [
            self._visit(row) if good else Member(row, self.space.config(row), measured=True)
            for row, good in zip(rows, valid, strict=True)
        ]

    def _requests(self, members: list[Member], origin: str) -> list[Request]:
        """Returns what is to be measured: each config once, and known ones if options say so."""
        again = self.options.duplicates == "measure"
        return [
            Request(m, origin, again=again and m.measured)
            for m in dict.fromkeys(members)
            if not m.measured or (again and m.row in self._members)
        ]

    def _note(self, members: list[Member]) -> None:
        """Learns from members that were measured just now; nothing to learn here."""

    def _trials(self, generation: int) -> list[Row]:  # noqa: ARG002 - for subclasses
        """Returns the trial of every member."""
        members = self._population
        found = []
        for i, member in enumerate(members):
            drawn = self._random.sample(range(len(members)), _PARENTS)
            a, b, c = [members[j] for j in drawn if j != i][:3]
            found.append(self._recombine(member, a, b, c))
        return self._shrunk(found)

    def _recombine(self, x: Member, a: Member, b: Member, c: Member) -> list[int]:
        """Returns the value indices of one trial, before its tiles are shrunk."""
        rng, parameters = self._random, self.space.parameters
        slots = [j for j in range(len(parameters)) if rng.random() < self.options.crossover_rate]
        moved = list(x.row)
        for j in slots or [rng.randrange(len(parameters))]:
            moved[j] = mutate(parameters[j], a.row[j], b.row[j], c.row[j], rng=rng)
        return moved

    def _shrunk(self, rows: list[list[int]]) -> list[Row]:
        return [tuple(r) for r in self._shrink.to(np.asarray(rows), _PER_THREAD).tolist()]

    def _compete(self, trials: list[Member]) -> Iterator[list[Request]]:
        """Puts every trial against the member in its place, re-timing both if both are fast."""
        for i, trial in enumerate(trials):
            member = self._population[i]
            if trial is not member:
                yield self._retimings([trial, member])
            if trial.value < member.value:
                self._population[i] = trial

    def _failures(self, best: list[float], failures: int) -> int:
        """Returns how many generations in a row found the best no better than before."""
        delta, patience = self.options.min_improvement_delta, self.options.patience
        if delta is None or patience is None or len(best) <= patience:
            return failures
        now, then = best[-1], best[-patience - 1]
        if not (math.isfinite(now) and math.isfinite(then)) or then == 0.0:
            return failures
        return failures + 1 if abs(now / then - 1.0) < delta else 0


def mutate(parameter: Parameter, a: int, b: int, c: int, *, rng: random.Random) -> int:
    """Returns the value index of a + (b - c): one step, a flip, or an alternative."""
    if b == c:
        return a
    if isinstance(parameter, Flag):
        return 1 - a
    if parameter.ordered:
        step = 1 if b > c else -1
        return min(max(a + step, 0), parameter.cardinality - 1)
    return rng.choice([value for value in (b, c) if value != a])
