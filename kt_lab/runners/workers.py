"""Killable worker processes: a task that hangs or crashes costs its process, never the caller.

`concurrent.futures` cannot end one running task, so a compiler that never returns or a kernel
that never ends would take the pool with it. Here each worker is a process of its own, forked from
a zygote that has imported everything; a task past its deadline is ended with SIGKILL, and another
process takes the worker's place.
"""

import math
import os
import pickle
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

from kt_lab.closing import Closing
from kt_lab.errors import UsageError, whole
from kt_lab.runners.worker import (
    REAP_S,
    STARTUP_S,
    Outcome,
    Task,
    Worker,
    WorkerLost,
    named,
    pickled,
)
from kt_lab.runners.zygote import Zygote

__all__ = ["COMPILER", "Outcome", "WorkerLost", "Workers", "Zygote"]
__all__ += ["answered", "served", "usable_cores", "wait_any"]

_ENTRY = "kt_lab.runners.worker:serve"
COMPILER, _GPU = "compile processes must start", "timing process must reach a working GPU"
_STARTS = 3  # starts that fail in a row before a task is given up for them


class Workers(Closing):
    """A fixed number of worker processes behind one queue; to be used by one thread at a time.

    Attributes:
        limit: How many tasks may run at a time; at first one for each worker.
        startup_s: Seconds from the request for a process until its service was ready, the
            zygote's imports included, of every process that became ready.
    """

    def __init__(
        self,
        count: int,
        *,
        service: str,
        settings: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        zygote: Zygote | None = None,
        spares: int = 0,
        memory_gib: float | None = None,
    ):
        """Asks for the processes, which start in the background.

        Args:
            count: How many workers, >= 1.
            service: "module:function"; called once per process with `settings`, it returns the
                callable that handles tasks. The module may name what all its processes need in a
                tuple `PRELOAD`, see Zygote.
            settings: Keyword arguments of the service function; picklable.
            env: Environment variables set before the service is made.
            zygote: Forks the processes and stays open; None: one for these workers alone.
            spares: Processes kept ready beyond `count`, >= 0. They get no task before they take
                the place of a lost worker.
            memory_gib: RLIMIT_DATA of each process, which counts what the zygote has imported
                too; None: no limit.

        Raises:
            UsageError: A count out of range, or settings that cannot be pickled.
        """
        count, spares = whole("workers", count, low=1), whole("spares", spares, low=0)
        self._call = (service, pickled("the settings", dict(settings or {})), memory_gib)
        self._env = dict(env or {})
        self._own = None if zygote else Zygote(preload=[service.partition(":")[0]], env=env)
        self._zygote = zygote or self._own
        self._count, self._spares = count, spares
        self._workers: list[Worker] = []  # the first `count` are at work, the others spare
        self._queue: deque[Task] = deque()
        self._done: deque[tuple[Any, Outcome]] = deque()
        self._failures, self._failed_at = 0, -math.inf
        self._closed = False
        self.limit = count
        self.startup_s: list[float] = []
        self._fill()

    @property
    def pending(self) -> int:
        """Tasks submitted and not yet handed back."""
        at_work = sum(worker.task is not None for worker in self._workers)
        return len(self._queue) + at_work + len(self._done)

    def waitables(self) -> list[Connection]:
        """Returns what `multiprocessing.connection.wait` takes: if readable, call `poll`."""
        return [end for worker in self._workers for end in worker.waitables()]

    @property
    def deadline(self) -> float | None:
        """The `time.perf_counter()` when to call `poll` even if nothing is readable, if ever."""
        if self._done:
            return 0.0
        until = min((worker.deadline for worker in self._workers), default=math.inf)
        return None if until == math.inf else until

    def submit(self, tag: Any, task: Any, *, timeout_s: float) -> None:
        """Queues a task; `tag` comes back with its outcome.

        Raises:
            UsageError: The task cannot be pickled, or the workers are closed.
        """
        if self._closed:
            raise UsageError("Workers must be open to take a task, got closed ones; make others")
        self._queue.append(Task(tag, pickled("a task", task), timeout_s))
        self._dispatch()

    def poll(self) -> list[tuple[Any, Outcome]]:
        """Returns the tasks that have finished since, without waiting."""
        self._advance()
        done = list(self._done)
        self._done.clear()
        return done

    def next(self, timeout_s: float | None = None) -> tuple[Any, Outcome] | None:
        """Waits for the next finished task.

        Returns:
            Its tag and outcome; None when `timeout_s` passes first or no task is pending.
        """
        end = None if timeout_s is None else time.perf_counter() + timeout_s
        while True:
            self._advance()
            if self._done:
                return self._done.popleft()
            left = None if end is None else end - time.perf_counter()
            if not self.pending or (left is not None and left <= 0):
                return None
            wait_any([self], timeout_s=left)

    def close(self) -> None:
        """Ends every process at once; may be called twice."""
        self._closed = True
        self._queue.clear()
        self._done.clear()
        for worker in self._workers:
            worker.process.kill()
        if self._own:
            self._own.close()
        end = time.perf_counter() + REAP_S
        for process in (worker.process for worker in self._workers):
            # One without an id has not been forked, and will die of its closed leash if it is.
            while not process.poll() and process.pid and (left := end - time.perf_counter()) > 0:
                process.leash.poll(left)
            process.close()
        self._workers = []

    # -- one step -------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Takes in all that has happened, and gives out what can be given out."""
        if self._closed:
            return
        ready = set(wait(self.waitables(), timeout=0))
        now = time.perf_counter()
        for worker in list(self._workers):
            if not worker.lost and worker.process.pipe in ready:
                self._read(worker)
            if worker.process.leash in ready and worker.process.poll():
                while not worker.lost and worker.process.pipe.poll():
                    self._read(worker)  # its last words
                self._bury(worker)
            elif now >= worker.deadline:
                if worker.lost:
                    self._bury(worker)
                else:
                    limit = worker.task.timeout_s if worker.task else STARTUP_S
                    worker.lose("timeout", f"no answer within {limit:g} s")
        self._fill()
        self._dispatch()

    def _read(self, worker: Worker) -> None:
        try:
            data = worker.process.pipe.recv_bytes()
        except (EOFError, OSError):
            return worker.lose("crashed")
        try:
            kind, value, error = pickle.loads(data)
        except Exception as why:
            kind, value, error = "error", None, f"the answer cannot be unpickled: {named(why)}"
        if kind == "lost":  # the service says that its process can no longer be trusted
            return worker.lose("crashed", error)
        if kind == "ready":
            worker.ready, self._failures = True, 0
            self.startup_s.append(value)
        else:
            self._done.append((worker.task.tag, worker.finish(kind, value, error)))
        worker.task, worker.deadline = None, math.inf
        return None

    def _bury(self, worker: Worker) -> None:
        """Hands back the task of a lost worker; the next in the list takes its place."""
        if not worker.lost:
            worker.lose("crashed")
        lost, process = worker.lost, worker.process
        error = lost.error or process.poll() or "the process does not answer and does not end"
        self._workers.remove(worker)
        process.close()
        task = worker.task
        if not worker.ready:
            task = self._forfeit(worker)
            error = f"{error}, before the service was ready"
        if task:
            self._done.append((task.tag, replace(lost, error=error)))

    def _forfeit(self, worker: Worker) -> Task | None:
        """Returns the task that a failed start costs: none, unless starting seems hopeless."""
        if worker.started > self._failed_at:  # those that fell together count once
            self._failures, self._failed_at = self._failures + 1, time.perf_counter()
        hopeless = self._failures >= _STARTS or worker.lost.kind == "timeout"
        if hopeless and self._queue and not any(other.ready for other in self._workers):
            return self._queue.popleft()
        return None

    def _fill(self) -> None:
        wanted = self._count + self._spares
        if self._failures:  # a service that does not start is tried for the sake of a task only
            wanted = min(self._count, len(self._queue))
        while len(self._workers) < wanted:
            call = (*self._call, time.perf_counter())
            self._workers.append(Worker(self._zygote.fork(_ENTRY, *call, env=self._env)))

    def _dispatch(self) -> None:
        lanes = self._workers[: self._count]
        active = sum(worker.task is not None for worker in lanes)
        for worker in lanes:
            if not self._queue or active >= self.limit:
                return
            if worker.ready and not worker.task and not worker.lost:
                if worker.dispatch(self._queue[0], active=active + 1):
                    self._queue.popleft()
                    active += 1
                else:
                    worker.lose("crashed")


def usable_cores() -> int:
    """Returns how many cores this process may use: fewer than there are if it is pinned."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def wait_any(
    pools: Sequence[Workers], *, also: Sequence[Any] = (), timeout_s: float | None = None
) -> list[Any]:
    """Waits until some workers must be polled, or something else is readable.

    Args:
        pools: Workers; call `poll` on each afterwards.
        also: File descriptors, sockets or connections to wait for beside them, for example the
            read end of a pipe that other threads write to.
        timeout_s: The longest wait; None: as long as it takes.

    Returns:
        Those of `also` that are readable.
    """
    ends = [end for pool in pools for end in pool.waitables()]
    limits = [pool.deadline - time.perf_counter() for pool in pools if pool.deadline is not None]
    if timeout_s is not None:
        limits.append(timeout_s)
    ready = wait([*ends, *also], timeout=max(0.0, min(limits)) if limits else None)
    return [end for end in also if end in ready]


def answered(outcome: Outcome, law: str = _GPU) -> Any:
    """Returns the answer to a task that must not fail, or raises UsageError by this law."""
    if outcome.kind != "ok":
        said = "kt-lab doctor" in outcome.error
        hint = "" if said else "; see kt-lab doctor, then run the same again"
        raise UsageError(f"the {law}, got {outcome.kind}: {outcome.error}{hint}")
    return outcome.value


def served(outcome: Outcome, law: str = _GPU) -> Outcome:
    """Returns an outcome that says something of its task; raises UsageError by this law if not.

    Where no service can be made, the failure is of no config, and so would be all that follow.
    """
    if not outcome.served:
        answered(outcome, law)
    return outcome
