"""Clocks of a run: the wall, and a simulated pipeline of compile lanes and one timing lane."""

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kt_lab.errors import UsageError, whole


class RealClock:
    """Seconds of the wall since the clock was made."""

    def __init__(self):
        """Starts at zero."""
        self._start = time.perf_counter()

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start


@dataclass(frozen=True, slots=True)
class Job:
    """Work for the simulated pipeline.

    Attributes:
        tag: Handed back when the job is complete.
        compile_s: Seconds in a compile lane as a function of how many lanes then compile
            (itself included); None when there is nothing to compile.
        timing_s: Seconds in the timing lane, decided when the lane takes the job up; None when
            the job ends with its compilation.
    """

    tag: Any
    compile_s: Callable[[int], float] | None
    timing_s: Callable[[], float] | None


class SimulatedClock:
    """A discrete-event simulation of compile lanes that feed one timing lane.

    Jobs wait for a compile lane in order of arrival, are timed in order of compilation, and
    complete one at a time. The clock stands still until `next` is called, and then jumps to the
    next completion: the searcher thinks in no time (its own seconds are counted apart).
    """

    def __init__(self, *, compile_lanes: int, overlap: bool = True):
        """Sets up an idle pipeline at time zero.

        Args:
            compile_lanes: How many compilations run at once, >= 1.
            overlap: Whether timing may go on while other jobs compile. False models tuners that
                compile a whole batch before they time it (Helion's precompile).
        """
        self.now = 0.0
        self._lanes = whole("compile_lanes", compile_lanes, low=1)
        self._overlap = overlap
        self._order = itertools.count()
        self._waiting: deque[Job] = deque()
        self._compiling: list[tuple[float, int, Job]] = []
        self._compiled: deque[Job] = deque()
        self._timing: tuple[float, Job] | None = None
        self.timing_busy_s = 0.0

    @property
    def free(self) -> int:
        """Compile lanes without work.

        A compiled job that waits for timing still holds its lane's place, so that a slow timing
        lane does not pile up stale proposals.
        """
        return max(0, self._lanes - self.pending + (self._timing is not None))

    @property
    def pending(self) -> int:
        """Jobs submitted and not yet complete."""
        busy = self._timing is not None
        return len(self._waiting) + len(self._compiling) + len(self._compiled) + busy

    def submit(self, job: Job) -> None:
        """Queues a job at the present time."""
        if job.compile_s is None:
            self._compiled.append(job)
        else:
            self._waiting.append(job)
        self._dispatch()

    def next(self) -> Any:
        """Advances to the next completion and returns the job's tag."""
        while True:
            compiled_at = self._compiling[0][0] if self._compiling else None
            if self._timing and (compiled_at is None or self._timing[0] <= compiled_at):
                self.now, job = self._timing
                self._timing = None
                self._dispatch()
                return job.tag
            if compiled_at is None:
                raise UsageError("SimulatedClock.next needs a pending job, got an idle pipeline")
            self.now, _, job = heapq.heappop(self._compiling)
            if job.timing_s is None:
                self._dispatch()
                return job.tag
            self._compiled.append(job)
            self._dispatch()

    def _dispatch(self) -> None:
        while self._waiting and len(self._compiling) < self._lanes:
            job = self._waiting.popleft()
            done = self.now + job.compile_s(len(self._compiling) + 1)
            heapq.heappush(self._compiling, (done, next(self._order), job))
        if self._timing is None and self._compiled and (self._overlap or not self._compiling):
            job = self._compiled.popleft()
            seconds = job.timing_s() if job.timing_s else 0.0
            self.timing_busy_s += seconds
            self._timing = (self.now + seconds, job)
