"""Background: one job in one thread, with states, a stop, and one job at a time of each name."""

import atexit
import threading
import traceback
from typing import Any

from kt_lab.errors import KtLabError, UsageError
from kt_lab.ui.progress import FAILED, IDLE, RUNNING

_EXIT_S = 5.0  # how long the end of the process waits for what is under way
_ALIVE: list["Background"] = []  # in order of starting
_REGISTRY = threading.Lock()


class Background:
    """One job in one daemon thread: idle -> running -> done, stopped or failed.

    It runs once; for another make another. Of the jobs of one name in a process only one runs:
    starting the next stops the one before, and waits in the background until that has ended.
    Whoever watches pulls `snapshot` at a pace of his own; nothing is pushed but changes of state.
    A kind of job says what it does in `_run`, which returns the state that it ends in and looks
    at `_stopping` now and then, and what it shows in `snapshot`.

    Attributes:
        name: Of the panel, or whatever must not run twice at a time.
        ended: An event, set once the worker has ended.
    """

    def __init__(self, name: str):
        """Prepares a job; nothing happens before `start`."""
        self.name = name
        self._state, self._error, self._traceback = IDLE, None, ""
        self._lock = threading.RLock()
        self._stopping, self.ended = threading.Event(), threading.Event()

    def start(self) -> Any:
        """Begins in the background; returns the job itself.

        Raises:
            UsageError: It was started before.
        """
        with self._lock:
            self._require("start", IDLE, "make another session")
            self._state = RUNNING
        with _REGISTRY:
            previous = [job for job in _ALIVE if job.name == self.name]
            _ALIVE.append(self)
        name = f"session {self.name}"
        threading.Thread(target=self._work, args=(previous,), name=name, daemon=True).start()
        return self

    def stop(self) -> None:
        """Ends the job after what is under way, and keeps what was found.

        Never refused: where nothing runs, nothing happens.
        """
        with self._lock:
            if self.alive:
                self._stopping.set()

    def wait(self, timeout: float | None = None) -> Any:
        """Returns the snapshot once the job has ended, or after `timeout` seconds.

        Raises:
            UsageError: It was not started.
            Exception: What it failed with.
        """
        if self._state == IDLE:
            raise UsageError(f"waiting needs a started session, got {self.name!r} idle; start it")
        self.ended.wait(timeout)
        if self._error is not None:
            raise self._error
        return self.snapshot()

    def close(self, timeout: float = _EXIT_S) -> None:
        """Stops; what takes longer than `timeout` seconds loses what it works with."""
        self.stop()
        if self._state != IDLE and not self.ended.wait(timeout):
            self._cut()

    @property
    def alive(self) -> bool:
        """Whether its worker still runs."""
        return self._state != IDLE and not self.ended.is_set()

    def snapshot(self) -> Any:
        """Returns what is known now, unchangeable; cheap enough to ask ten times a second."""
        raise AssertionError("a kind of job has a snapshot of its own")

    # -- the worker -----------------------------------------------------------------------------

    def _run(self) -> str:
        """Does the job; returns the state that it ended in."""
        raise AssertionError("a kind of job has work of its own")

    def _cut(self) -> None:
        """Takes from a job that does not end what it works with."""

    def _work(self, previous: "list[Background]") -> None:
        state, error = FAILED, None
        try:
            for job in previous:
                job.stop()
                job.ended.wait()
            state = self._run()
        except BaseException as found:  # whatever it is, a watcher must learn of it
            error = found
        with _REGISTRY:
            _ALIVE.remove(self)
        with self._lock:
            self._state, self._error = state, error
            self._traceback = "".join(traceback.format_exception(error)) if error else ""
            self.ended.set()

    def _about(self) -> dict[str, Any]:
        """Returns the fields that every snapshot has: state, stopping, error, traceback."""
        return {
            "state": self._state,
            "stopping": self._stopping.is_set() and self.alive,
            "error": one_line(self._error),
            "traceback": self._traceback,
        }

    def _require(self, verb: str, state: str, step: str) -> None:
        now = "stopping" if self._stopping.is_set() and self.alive else self._state
        if now != state:
            raise UsageError(
                f"to {verb} a session it must be {state}, got {self.name!r} {now}; {step}"
            )


def one_line(error: BaseException | None) -> str:
    """Returns the reason of an error for a status line; None: an empty one."""
    if error is None:
        return ""
    said = str(error).strip().partition("\n")[0]
    return said if isinstance(error, KtLabError) else f"{type(error).__name__}: {said}"


def alive(name: str | None = None) -> list[Background]:
    """Returns the jobs of this process that run, or those of one name."""
    with _REGISTRY:
        return [job for job in _ALIVE if name in (None, job.name)]


@atexit.register
def close_all() -> None:
    """Stops every job of this process and takes its runner or workers; called at its end."""
    found = alive()
    for job in found:
        job.stop()
    for job in found:
        job.close()
