"""One worker: the parent's view of its process, and what runs in it."""

import importlib
import logging
import pickle
import resource
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from kt_lab.errors import UsageError
from kt_lab.runners.zygote import Process

STARTUP_S = 180.0  # importing torch and triton on a cold, busy disk
REAP_S = 10.0  # how long a killed process may take to die before nobody waits for it
_UNSERVED = "unserved"  # on the pipe: the service could not be made


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended.

    Attributes:
        kind: "ok" (value holds the result), "error" (the task raised), "timeout" or "crashed".
        value: What the task returned.
        error: The exception, or how the process ended, in one line.
        seconds: Wall-clock seconds from when a worker took the task up to the end.
        active: How many tasks were running when this one was taken up, itself included.
        served: Whether there was a service to take it up; if not, it says nothing of the task.
    """

    kind: str
    value: Any = None
    error: str = ""
    seconds: float = 0.0
    active: int = 1
    served: bool = True


@dataclass(frozen=True, slots=True)
class Task:
    """A task in the queue.

    Attributes:
        tag: Comes back with the outcome.
        data: The pickled task.
        timeout_s: How long it may take once a worker has it.
    """

    tag: Any
    data: bytes
    timeout_s: float


class Worker:
    """The parent's view of one process.

    Attributes:
        process: The process itself.
        ready: Whether its service is made.
        task: What it is at.
        lost: None, or what becomes of its task once the process has ended.
        started: When the process was asked for, later when it got its task; `perf_counter`.
        deadline: When the start, the task or, once lost, the dying has taken too long.
    """

    def __init__(self, process: Process):
        """Takes over a process that has just been asked for."""
        self.process = process
        self.ready = False
        self.task: Task | None = None
        self.lost: Outcome | None = None
        self.started = time.perf_counter()
        self.deadline = self.started + STARTUP_S
        self._active = 1

    def waitables(self) -> list[Connection]:
        """Returns what is readable when there is news."""
        # The pipe of a lost worker is at its end, and would be readable until it is reaped.
        return [self.process.leash] + ([] if self.lost else [self.process.pipe])

    def dispatch(self, task: Task, *, active: int) -> bool:
        """Sends a task; False if the process has died in the meantime."""
        self.started = time.perf_counter()  # before the worker can begin
        try:
            self.process.pipe.send_bytes(task.data)
        except OSError:
            return False
        self.task, self._active = task, active
        self.deadline = self.started + task.timeout_s
        return True

    def finish(self, kind: str, value: Any = None, error: str = "") -> Outcome:
        """Returns the outcome of a task that ends now."""
        seconds, served = time.perf_counter() - self.started, self.ready and kind != _UNSERVED
        kind = "error" if kind == _UNSERVED else kind
        return Outcome(kind, value, error, seconds, self._active, served)

    def lose(self, kind: str, error: str = "") -> None:
        """Kills the process; its outcome waits for how it ended."""
        self.lost = self.finish(kind, error=error)
        self.deadline = time.perf_counter() + REAP_S
        self.process.kill()


class WorkerLost(Exception):
    """Raised by a service whose process must not be used again (a poisoned GPU context)."""


def pickled(what: str, value: Any) -> bytes:
    """Pickles a value; raises UsageError, which calls it `what`, if that cannot be done."""
    try:
        return pickle.dumps(value)
    except Exception as error:
        raise UsageError(
            f"{what} must be picklable, got {named(error)}; define what it holds in a module"
        ) from error


def named(error: BaseException) -> str:
    """Returns an exception with its type in one line: "ValueError: why"."""
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


# -- in the process -----------------------------------------------------------------------------


def serve(
    pipe: Connection, service: str, settings: bytes, memory_gib: float | None, asked: float
) -> None:
    """Runs in the worker: make the service, then answer tasks until the pipe closes."""
    if memory_gib is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = int(memory_gib * 2**30)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    module, _, name = service.partition(":")
    failed = b""  # instead of every answer
    try:
        handle = getattr(importlib.import_module(module), name)(**pickle.loads(settings))
    except Exception as error:
        logging.getLogger(__name__).debug("a worker could not start", exc_info=True)
        told = f"RuntimeError: the worker's service could not start: {named(error)}"
        failed = pickle.dumps((_UNSERVED, None, told))
    pipe.send(("ready", time.perf_counter() - asked, ""))
    while True:
        data = pipe.recv_bytes()
        pipe.send_bytes(failed or _answer(handle, data))


def _answer(handle: Any, data: bytes) -> bytes:
    try:
        answer = ("ok", handle(pickle.loads(data)), "")
    except WorkerLost as error:
        answer = ("lost", None, " ".join(str(error).split()))
    except Exception as error:
        answer = ("error", None, named(error))
    try:
        return pickle.dumps(answer)
    except Exception as error:
        return pickle.dumps(("error", None, f"the answer cannot be pickled: {named(error)}"))
