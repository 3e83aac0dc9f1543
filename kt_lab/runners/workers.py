"""Killable worker processes: a task that hangs or crashes costs its process, never the caller.

`concurrent.futures` cannot end one running task, so a compiler that never returns or a kernel
that never ends would take the pool with it. Here each worker is a spawned process with a pipe of
its own; a task past its deadline is ended with SIGKILL and the worker is started afresh.
"""

import importlib
import logging
import multiprocessing as mp
import os
import signal
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from kt_lab.errors import UsageError

_STARTUP_S = 180.0  # importing torch and triton on a cold, busy disk


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended.

    Attributes:
        kind: "ok" (value holds the result), "error" (the task raised), "timeout" or "crashed".
        value: What the task returned.
        error: The exception, or how the process ended, in one line.
        seconds: Wall-clock seconds from dispatch to the end.
        active: How many tasks were running when this one was dispatched, itself included.
    """

    kind: str
    value: Any = None
    error: str = ""
    seconds: float = 0.0
    active: int = 1


class _Worker:
    """One spawned process, its pipe, and the task that it is at."""

    def __init__(self, *, service: str, settings: Mapping[str, Any], env: Mapping[str, str]):
        context = mp.get_context("spawn")
        self.pipe, child = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(child, service, dict(settings), dict(env)), daemon=True
        )
        self.process.start()
        child.close()
        self.tag: Any = None
        self.busy = False
        self.started = self.deadline = 0.0
        self.active = 1
        self.ready = False

    def dispatch(self, tag: Any, task: Any, *, timeout_s: float, active: int) -> None:
        self.tag, self.busy, self.active = tag, True, active
        self.started = time.perf_counter()
        # A worker that is still importing gets its start-up time on top.
        self.deadline = self.started + timeout_s + (0.0 if self.ready else _STARTUP_S)
        self.pipe.send(task)

    def kill(self) -> None:
        if self.process.is_alive():
            try:  # the whole group: ptxas is a child of the compiling process
                os.killpg(self.process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                self.process.kill()
        self.process.join(timeout=10)
        self.pipe.close()


class Workers:
    """A fixed number of worker processes behind one queue."""

    def __init__(
        self,
        count: int,
        *,
        service: str,
        settings: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ):
        """Starts the processes; they import in the background.

        Args:
            count: How many processes, >= 1.
            service: "module:function"; called once per process with `settings`, it returns the
                callable that handles tasks.
            settings: Keyword arguments of the service function; picklable.
            env: Environment variables set before anything is imported.
        """
        if count < 1:
            raise UsageError(f"Workers needs count >= 1, got count={count}")
        self._make = lambda: _Worker(service=service, settings=settings or {}, env=env or {})
        self._workers = [self._make() for _ in range(count)]
        self._queue: deque[tuple[Any, Any, float]] = deque()
        self.limit = count

    @property
    def pending(self) -> int:
        """Tasks submitted and not yet handed back."""
        return len(self._queue) + sum(w.busy for w in self._workers)

    def submit(self, tag: Any, task: Any, *, timeout_s: float) -> None:
        """Queues a task; `tag` comes back with its outcome."""
        self._queue.append((tag, task, timeout_s))
        self._dispatch()

    def next(self, timeout_s: float | None = None) -> tuple[Any, Outcome] | None:
        """Waits for the next finished task; None when `timeout_s` passes first."""
        end = None if timeout_s is None else time.perf_counter() + timeout_s
        while True:
            busy = [w for w in self._workers if w.busy]
            if not busy:
                return None
            now = time.perf_counter()
            until = min([w.deadline for w in busy] + ([end] if end is not None else []))
            ready = wait([w.pipe for w in busy], timeout=max(0.0, until - now))
            now = time.perf_counter()
            for worker in busy:
                if worker.pipe in ready or worker.pipe.poll():
                    if (done := self._collect(worker)) is not None:
                        return done
                elif now >= worker.deadline:
                    limit = worker.deadline - worker.started
                    return self._replace(worker, "timeout", f"no answer within {limit:.0f} s")
            if end is not None and now >= end:
                return None

    def close(self) -> None:
        """Ends every process at once; may be called twice."""
        self._queue.clear()
        for worker in self._workers:
            worker.kill()
        self._workers = []

    def __enter__(self):
        """Returns itself."""
        return self

    def __exit__(self, *_):
        """Closes."""
        self.close()

    def _dispatch(self) -> None:
        for worker in self._workers:
            active = sum(w.busy for w in self._workers)
            if not self._queue or active >= self.limit:
                return
            if not worker.busy:
                tag, task, timeout_s = self._queue.popleft()
                worker.dispatch(tag, task, timeout_s=timeout_s, active=active + 1)

    def _collect(self, worker: _Worker) -> tuple[Any, Outcome] | None:
        try:
            message = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join(timeout=10)
            how = f"the process ended with exit code {worker.process.exitcode}"
            return self._replace(worker, "crashed", how)
        if message == "ready":
            worker.ready = True
            return None
        kind, value, error = message
        seconds = time.perf_counter() - worker.started
        done = worker.tag, Outcome(kind, value, error, seconds, worker.active)
        worker.busy = False
        if kind == "lost":  # the service says that its process can no longer be trusted
            return self._replace(worker, "crashed", error)
        self._dispatch()
        return done

    def _replace(self, worker: _Worker, kind: str, error: str) -> tuple[Any, Outcome]:
        seconds = time.perf_counter() - worker.started
        done = worker.tag, Outcome(kind, None, error, seconds, worker.active)
        worker.kill()
        self._workers[self._workers.index(worker)] = self._make()
        self._dispatch()
        return done


class WorkerLost(Exception):
    """Raised by a service whose process must not be used again (a poisoned GPU context)."""


def _serve(pipe, service: str, settings: dict, env: dict) -> None:
    """Runs in the worker: load the service, then answer tasks until the pipe closes."""
    os.setpgid(0, 0)
    os.environ.update(env)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the caller
    module, _, name = service.partition(":")
    try:
        handle = getattr(importlib.import_module(module), name)(**settings)
    except Exception as error:
        logging.getLogger(__name__).debug("a worker could not start", exc_info=True)
        handle = _failing(f"{type(error).__name__}: {error}")
    pipe.send("ready")
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            answer = ("ok", handle(task), "")
        except WorkerLost as error:
            answer = ("lost", None, str(error))
        except Exception as error:
            answer = ("error", None, f"{type(error).__name__}: {error}")
        pipe.send(answer)


def _failing(reason: str):
    def handle(_):
        raise RuntimeError(f"the worker's service could not start: {reason}")

    return handle
