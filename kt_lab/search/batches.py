"""What batch searchers share: members, queues, readings, and the re-timing rule.

An algorithm is a Python generator that yields one batch of requests at a time and goes on when
all of it has been told, so it reads like the loop that it reproduces although it is driven by ask
and tell. A fresh searcher pickles; one that has been asked does not.
"""

import math
import random
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from kt_lab.search.base import Options, Searcher, count, option
from kt_lab.search.neighbourhood import Row
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


class Request(NamedTuple):
    """A wish to have a member measured.

    Attributes:
        member: What to measure.
        origin: Which part of the algorithm wants it.
        repetitions: Timed launches; None leaves it to the runner.
        again: Whether a member is measured although it was measured before.
    """

    member: Member
    origin: str
    repetitions: int | None = None
    again: bool = False


@dataclass(frozen=True)
class BatchOptions(Options):
    """What every batch searcher has; the defaults are Helion's full effort."""

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


class BatchSearcher(Searcher):
    """A searcher that measures batch after batch; subclasses write the batches.

    A config's value is its latest reading, whatever its repetitions (Helion's rule). A failed
    reading counts as infinitely slow, a censored one as its bound but never as a new best.

    Attributes:
        presets: Options by effort, `make_searcher(name, space, seed=0, **presets["quick"])`.
    """

    needs: ClassVar[str] = "ParameterSpace"
    Options: ClassVar[type] = BatchOptions
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"full": {}}

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        # Starts and moves draw from streams of their own: searchers with one seed start alike.
        self._start_seed, self._move_seed = np.random.SeedSequence(self.seed).spawn(2)
        self._random = random.Random(int(self._move_seed.generate_state(1, np.uint64)[0]))
        self._members: dict[Row, Member] = {}  # visited: queued or told
        self._known: dict[Config, Member] = {}
        self._population: list[Member] = []
        self._best_ever = math.inf  # lowest reading so far, lucky ones included
        self._generation = 0  # the one that is being proposed; 0: the starts
        self._said: dict[Row, float | None] = {}  # by the model, of the rows that it chose
        self._queue: deque[Request] = deque()
        self._out: dict[int, Member] = {}
        self._plan: Iterator[list[Request]] | None = None

    # -- ask and tell -------------------------------------------------------------------------

    def ask(self, n: int) -> list[Proposal]:
        """Returns up to n queued proposals; none while results of the batch are outstanding."""
        proposals: list[Proposal] = []
        wanted = count(n)
        while len(proposals) < wanted and (self._queue or self._advance()):
            member, origin, repetitions, again = self._queue.popleft()
            if repetitions is None and member.measured and not again:
                continue  # somebody else measured it while it waited
            proposal = self.propose(
                member.config,
                repetitions=repetitions,
                origin=origin,
                generation=self._generation,
                predicted=self._said.get(member.row) if repetitions is None else None,
            )
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
        if self._out:
            return False
        if self._plan is None:
            self._plan = self._run()
        while not self._queue and not self.done:  # a batch of known configs only is empty
            batch = next(self._plan, None)
            self.done = batch is None
            self._queue.extend(batch or ())
        return bool(self._queue)

    # -- what subclasses write ----------------------------------------------------------------

    @abstractmethod
    def _run(self) -> Iterator[list[Request]]:
        """Yields the batches of the whole search."""

    # -- what they write it with --------------------------------------------------------------

    def _retimings(self, members: Iterable[Member]) -> list[Request]:
        """Returns the re-timings that the rule asks for: none for a single fast member."""
        limit = self.options.rebenchmark_threshold * self._best_ever
        fast = [m for m in members if math.isfinite(m.value) and m.value < limit]
        if len(fast) < 2:  # nothing to compare a single member with
            return []
        return [Request(m, "retime", self.options.rebenchmark_repetitions) for m in fast]

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
