"""What is known of a run while it goes on: counts, incumbent and curve, kept trial by trial."""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from kt_lab.trial import CENSORED, OK, Config, Trial, supersedes

IDLE = "idle"
RUNNING = "running"
PAUSED = "paused"
DONE = "done"
STOPPED = "stopped"
FAILED = "failed"


class Point(NamedTuple):
    """The incumbent from some trial on: a step of the convergence curve.

    Attributes:
        spent_trials: First measurements by then, failures included.
        elapsed_s: Machine and searcher seconds by then.
        reading_us: The incumbent's standing latency, what the searcher saw; NaN: none yet.
        judged_us: Its latency in visits that the searcher does not read; NaN: unknown.
    """

    spent_trials: int
    elapsed_s: float
    reading_us: float
    judged_us: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session at one moment; nothing in it changes afterwards.

    Attributes:
        state: "idle", "running", "paused", "done", "stopped" or "failed".
        stopping: Whether it was told to stop and waits for the trial under way.
        trials: First measurements of distinct configs so far, failures included.
        readings: All measurements so far, re-measurements included.
        recalled: Of these at most, how many an earlier part of the run took, from its journal.
        statuses: How many measurements ended with each status.
        incumbent: The config with the lowest standing latency; None: nothing was ok yet.
        reading_us: Its standing latency in microseconds; None likewise.
        judged_us: Its latency in visits that the searcher does not read; None in a live run.
        reference_us: The reference config's latency, judged if the runner judges, else as it was
            read in this run; None: not measured.
        curve: Where the incumbent changed, and the last trial so far.
        elapsed_s: Machine and searcher seconds so far, without pauses.
        error: Why it failed, in one line; else empty.
        traceback: The same in full.
    """

    state: str = IDLE
    stopping: bool = False
    trials: int = 0
    readings: int = 0
    recalled: int = 0
    statuses: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    incumbent: Config | None = None
    reading_us: float | None = None
    judged_us: float | None = None
    reference_us: float | None = None
    curve: tuple[Point, ...] = ()
    elapsed_s: float = 0.0
    error: str = ""
    traceback: str = ""

    @property
    def alive(self) -> bool:
        """Whether its worker still runs."""
        return self.state in (RUNNING, PAUSED)

    @property
    def failures(self) -> dict[str, int]:
        """Measurements that ended neither ok nor censored, by status."""
        return {name: n for name, n in self.statuses.items() if name not in (OK, CENSORED)}


class Progress:
    """The running sums of one search; a trial costs O(log n), a snapshot what changed."""

    def __init__(self, reference: Config | None = None):
        """Begins with nothing.

        Args:
            reference: The config to compare with, usually the space's default.
        """
        self._reference = reference
        self._statuses: Counter[str] = Counter()
        self._trials, self._elapsed_s = 0, 0.0
        self._standing: dict[Config, tuple[float, int, int]] = {}  # latency, number, repetitions
        self._heap: list[tuple[float, int, Config]] = []  # stale entries go when they surface
        self._leader: tuple[float, int, Config] | None = None
        self._curve: list[Point] = []

    def take(self, trial: Trial, judge: Callable[[Config], float | None] | None = None) -> None:
        """Counts one trial in.

        Args:
            trial: The next one.
            judge: Returns a config's latency in unseen visits; None: nothing does.
        """
        self._statuses[trial.status] += 1
        self._trials += trial.first
        self._elapsed_s = trial.elapsed_s
        if trial.status == OK:
            old, count = self._standing.get(trial.config), len(trial.measurement.samples_us)
            if supersedes(old=old and old[2], new=count):
                self._standing[trial.config] = (trial.latency_us, trial.number, count)
                heapq.heappush(self._heap, (trial.latency_us, trial.number, trial.config))
        while self._heap and self._standing[self._heap[0][2]][:2] != self._heap[0][:2]:
            heapq.heappop(self._heap)
        if self._heap and self._heap[0] != self._leader:
            self._leader = reading, _, config = self._heap[0]
            judged = judge(config) if judge else None
            judged = math.nan if judged is None else judged
            self._curve.append(Point(self._trials, self._elapsed_s, reading, judged))

    def snapshot(self, *, judged_reference_us: float | None = None, **about: object) -> Snapshot:
        """Returns what is known now.

        Args:
            judged_reference_us: The reference's judged latency, where the runner judges.
            about: The session's own fields: state, stopping, error, traceback.
        """
        last = self._curve[-1] if self._curve else None
        read = self._standing.get(self._reference)
        here = (self._trials, self._elapsed_s)
        end = (Point(*here, *(last[2:] if last else (math.nan, math.nan))),)
        return Snapshot(
            trials=self._trials,
            readings=self._statuses.total(),
            statuses=MappingProxyType(dict(self._statuses)),
            incumbent=self._leader and self._leader[2],
            reading_us=last and last.reading_us,
            judged_us=last.judged_us if last and not math.isnan(last.judged_us) else None,
            reference_us=judged_reference_us or (read and read[0]),
            curve=(*self._curve, *(end if self._statuses else ())),
            elapsed_s=self._elapsed_s,
            **about,
        )
