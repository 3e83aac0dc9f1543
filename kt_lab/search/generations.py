"""What generation searchers share: batches, readings, the re-timing rule, copies and polish.

The skeleton of Helion's PatternSearch (helion 1.5.1, `pattern_version` 2). The algorithm is a
Python generator that yields one batch at a time and goes on when all of it has been told, so it
reads like the loop that it reproduces although it is driven by ask and tell. A fresh searcher
pickles; one that has been asked does not.
"""

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kt_lab.search.base import Options, Searcher, count, option
from kt_lab.search.neighbourhood import Row, pattern_rows
from kt_lab.search.starts import starts
from kt_lab.trial import CENSORED, Config, Proposal, Trial


@dataclass(eq=False, slots=True)
class Member:
    """A config that was queued or told.

    Attributes:
        row: Its value indices.
        config: The config itself.
        value: Its latest reading in microseconds; inf when that failed, or before any.
        measured: Whether anything was told about it.
    """

    row: Row
    config: Config
    value: float = math.inf
    measured: bool = False


@dataclass(eq=False, slots=True)
class Copy:
    """One of the descents that run side by side from the best starts."""

    current: Member
    patience: int
    candidates: list[Member]
    live: bool = True


Request = tuple[Member, str, int | None]  # member, origin, repetitions


@dataclass(frozen=True)
class GenerationOptions(Options):
    """What every generation searcher has; the defaults are Helion's full effort."""

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
    rebenchmark_threshold: float = option(
        1.5,
        "After each batch, members faster than this multiple of the best reading are re-timed.",
        low=0.0,
        high=100.0,
    )
    rebenchmark_repetitions: int = option(
        40,
        "Timed launches of a re-timing (Helion re-times for four times as long as it times).",
        unit="launches",
        low=1,
        high=100_000,
    )
    starts: str = option(
        "helion",
        'Initial configs after the default and the prior: "helion" draws parameters one by one '
        'and halves tiles to fit a random number of elements per thread; "uniform" draws '
        "uniformly from the valid configs.",
        choices=("helion", "uniform"),
    )


class GenerationSearcher(Searcher):
    """A searcher that measures batch after batch; subclasses generate the candidates.

    A config's value is its latest reading, whatever its repetitions (Helion's rule). A failed
    reading counts as infinitely slow, a censored one as its bound but never as a new best.
    """

    needs: ClassVar[str] = "ParameterSpace"
    Options: ClassVar[type] = GenerationOptions

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        # Starts and moves draw from streams of their own: searchers with one seed start alike.
        self._start_seed, self._move_seed = np.random.SeedSequence(self.seed).spawn(2)
        self._members: dict[Row, Member] = {}  # visited: queued or told
        self._known: dict[Config, Member] = {}
        self._population: list[Member] = []
        self._best_ever = math.inf  # lowest reading so far, lucky ones included
        self._queue: deque[Request] = deque()
        self._out: dict[int, Member] = {}
        self._plan: Iterator[list[Request]] | None = None

    # -- ask and tell -------------------------------------------------------------------------

    def ask(self, n: int) -> list[Proposal]:
        """Returns up to n queued proposals; none while results of the batch are outstanding."""
        proposals: list[Proposal] = []
        wanted = count(n)
        while len(proposals) < wanted and (self._queue or self._advance()):
            member, origin, repetitions = self._queue.popleft()
            if repetitions is None and member.measured:
                continue  # somebody else measured it while it waited
            proposal = self.propose(member.config, repetitions=repetitions, origin=origin)
            self._out[proposal.id] = member
            proposals.append(proposal)
        return proposals

    def tell(self, trials: Iterable[Trial]) -> None:
        """Takes readings; configs that are no members of the space are ignored."""
        for trial in trials:
            member = self._known.get(trial.config)
            if self._out.get(trial.proposal.id) is member:
                self._out.pop(trial.proposal.id, None)
            if member is None:
                if not self.space.contains(trial.config):
                    continue
                member = self._visit(tuple(self.space.row(trial.config).tolist()))
            self._read(member, trial)

    def _read(self, member: Member, trial: Trial) -> None:
        member.measured = True
        member.value = math.inf if trial.latency_us is None else trial.latency_us
        self._best_ever = min(self._best_ever, member.value)
        bound = trial.measurement.bound_us
        if trial.status == CENSORED and bound is not None:
            best = self._best_ever if math.isfinite(self._best_ever) else 0.0
            member.value = max(bound, best)

    def _advance(self) -> bool:
        """Queues the next batch, if no result of the last one is outstanding."""
        if self._out or self.done:
            return False
        if self._plan is None:
            self._plan = self._run()
        batch = next(self._plan, None)
        self.done = batch is None
        self._queue.extend(batch or ())
        return bool(self._queue)

    # -- the algorithm ------------------------------------------------------------------------

    def _run(self) -> Iterator[list[Request]]:
        """Yields the batches of the whole search."""
        options = self.options
        first = starts(
            self.space,
            options.initial_population,
            rule=options.starts,
            rng=np.random.default_rng(self._start_seed),
            prior=self.prior,
        )
        rows = [tuple(row) for row in self.space.rows(first).tolist()]
        self._population = [self._visit(row) for row in rows]
        yield from self._round("start")
        ranked = sorted(self._population, key=lambda m: m.value)[: options.copies]
        copies = [
            Copy(m, self._patience(), []) for m in ranked if math.isfinite(m.value)
        ]  # none when every start failed: the search ends, as Helion's does
        for _ in range(options.max_generations):
            if not self._step(copies):
                break
            yield from self._round("neighbour")
            for copy in copies:
                self._settle(copy)
        if copies:
            yield from self._polish(self._best())

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
        yield [(m, origin, None) for m in self._population if not m.measured]
        limit = self.options.rebenchmark_threshold * self._best_ever
        fast = [m for m in self._population if math.isfinite(m.value) and m.value < limit]
        if len(fast) > 1:  # nothing to compare a single member with
            yield [(m, "retime", self.options.rebenchmark_repetitions) for m in fast]

    def _descend(self, current: Member, rounds: int) -> Iterator[list[Request]]:
        """Polishes: measures the whole pattern neighbourhood and moves, until nothing improves."""
        for _ in range(rounds):
            fresh = self._fresh(pattern_rows(self.space, current.row))
            if not fresh:
                return
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

    # -- members ------------------------------------------------------------------------------

    def _visit(self, row: Row) -> Member:
        member = self._members.get(row)
        if member is None:
            member = self._members[row] = Member(row, self.space.config(row))
            self._known[member.config] = member
        return member

    def _fresh(self, rows: list[Row]) -> list[Row]:
        """Returns the valid rows that nobody visited, each once, in order."""
        rows = [row for row in dict.fromkeys(rows) if row not in self._members]
        if not rows:
            return []
        valid = self.space.valid(np.asarray(rows)).tolist()
        return [row for row, good in zip(rows, valid, strict=True) if good]

    def _best(self) -> Member:
        return min(self._population, key=lambda m: m.value)
