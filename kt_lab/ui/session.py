"""Session: a search in the background that can be paused, resumed and stopped; no widgets."""

import atexit
import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kt_lab.budget import Budget
from kt_lab.errors import KtLabError, UnrecordedConfig, UsageError
from kt_lab.runners import Runner
from kt_lab.trial import Config, History, Trial
from kt_lab.tune import tune
from kt_lab.ui.progress import DONE, FAILED, IDLE, PAUSED, RUNNING, STOPPED, Progress, Snapshot
from kt_lab.ui.saving import save_history

_EXIT_S = 5.0  # how long the end of the process waits for a trial under way
_ALIVE: list["Session"] = []  # in order of starting
_REGISTRY = threading.Lock()


class Session:
    """One search in one daemon thread: idle -> running <-> paused -> done, stopped or failed.

    It may be paused and stopped between trials: a trial under way is finished first. It runs
    once; for another search make another session. Of the sessions of one name in a process only
    one runs: starting the next stops the one before, and waits in the background until that has
    ended. Whoever watches pulls `snapshot` at a pace of his own; nothing is pushed per trial.

    While paused, the clock of a live runner stands still for the search: what was in flight
    finishes uncharged.

    Attributes:
        name: Of the panel, or whatever must not run twice at a time.
        budget: When the search stops by itself.
        facts: What `save` stores beside the trials.
        ended: An event, set once the worker has ended.
    """

    def __init__(
        self,
        name: str,
        *,
        searcher: Callable[[], Any],
        runner: Callable[[], Runner],
        budget: Budget,
        reference: Config | None = None,
        facts: Mapping[str, Any] | None = None,
    ):
        """Prepares a session; nothing is made before `start`.

        Args:
            name: Of the panel, or whatever must not run twice at a time.
            searcher: Makes the searcher; called in the worker thread.
            runner: Makes the runner; called in the worker thread, which closes it.
            budget: When to stop.
            reference: The config to compare with.
            facts: What `save` stores; workload, kernel, gpu, searcher, lanes and seed become
                columns.
        """
        self.name, self.budget, self.facts = name, budget, dict(facts or {})
        self._make_searcher, self._make_runner = searcher, runner
        self._reference, self._reference_us = reference, None
        self._progress, self._trials = Progress(reference), []
        self._state, self._error, self._traceback = IDLE, None, ""
        self._lock = threading.RLock()
        self._stopping, self._going, self.ended = (threading.Event() for _ in range(3))
        self._going.set()
        self._runner: Runner | None = None
        self._paused_s = 0.0
        self._callbacks: list[Callable[[str], None]] = []

    # -- what a user does -----------------------------------------------------------------------

    def start(self) -> "Session":
        """Begins the search in the background; returns the session.

        Raises:
            UsageError: It was started before.
        """
        with self._lock:
            self._require("start", IDLE, "make another session")
            self._state = RUNNING
        with _REGISTRY:
            previous = [session for session in _ALIVE if session.name == self.name]
            _ALIVE.append(self)
        self._tell(RUNNING)
        name = f"session {self.name}"
        threading.Thread(target=self._work, args=(previous,), name=name, daemon=True).start()
        return self

    def pause(self) -> None:
        """Holds the search after the trial under way."""
        with self._lock:
            self._require("pause", RUNNING, "only a running session can be paused")
            self._state = PAUSED
            self._going.clear()
        self._tell(PAUSED)

    def resume(self) -> None:
        """Goes on after a pause."""
        with self._lock:
            self._require("resume", PAUSED, "only a paused session can be resumed")
            self._state = RUNNING
            self._going.set()
        self._tell(RUNNING)

    def stop(self) -> None:
        """Ends the search after the trial under way and keeps what was found.

        Never refused: where nothing runs, nothing happens.
        """
        with self._lock:
            if self.alive:
                self._stopping.set()
                self._going.set()

    def wait(self, timeout: float | None = None) -> Snapshot:
        """Returns the session's snapshot once it has ended, or after `timeout` seconds.

        Raises:
            UsageError: It was not started.
            Exception: What the session failed with.
        """
        if self._state == IDLE:
            raise UsageError(f"waiting needs a started session, got {self.name!r} idle; start it")
        self.ended.wait(timeout)
        if self._error is not None:
            raise self._error
        return self.snapshot()

    def close(self, timeout: float = _EXIT_S) -> None:
        """Stops; a trial that takes longer than `timeout` seconds loses its runner."""
        self.stop()
        if self._state != IDLE and not self.ended.wait(timeout) and self._runner is not None:
            self._runner.close()

    # -- what a watcher sees --------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether its worker still runs."""
        return self._state in (RUNNING, PAUSED)

    @property
    def history(self) -> History:
        """The trials so far."""
        with self._lock:
            return History(self._trials)

    def snapshot(self) -> Snapshot:
        """Returns what is known now; cheap enough to ask ten times a second."""
        with self._lock:
            return self._progress.snapshot(
                judged_reference_us=self._reference_us,
                state=self._state,
                stopping=self._stopping.is_set() and self.alive,
                error=_one_line(self._error),
                traceback=self._traceback,
            )

    def on_state(self, callback: Callable[[str], None]) -> None:
        """Calls back with the new state at each change, in whichever thread made it."""
        self._callbacks.append(callback)

    def save(self, path: Path | str | None = None) -> Path:
        """Writes the trials so far as a tidy table of runs (`kt_lab.ui.saving.save_history`).

        Args:
            path: The .parquet file; None: a new one in `sessions` of the folder of recorded data.

        Raises:
            UsageError: There is no trial yet.
        """
        facts = self.facts | {"state": self._state}
        return save_history(self.history, path, facts=facts, judge=self._judge)

    # -- the worker -----------------------------------------------------------------------------

    def _work(self, previous: "list[Session]") -> None:
        state, error = FAILED, None
        try:
            for session in previous:
                session.stop()
                session.ended.wait()
            state = self._search()
        except BaseException as found:  # whatever it is, a watcher must learn of it
            error = found
        with _REGISTRY:
            _ALIVE.remove(self)
        with self._lock:
            self._state, self._error = state, error
            self._traceback = "".join(traceback.format_exception(error)) if error else ""
            self.ended.set()
        self._tell(state)

    def _search(self) -> str:
        """Returns the state that the search ended in."""
        stopped: list[bool] = []
        with ExitStack() as stack:
            searcher = self._make_searcher()
            stack.callback(searcher.close)
            self._runner = runner = self._make_runner()
            stack.callback(runner.close)
            if self._reference is not None:
                self._reference_us = self._judge(self._reference)
            self._hold(stopped.append)
            if not stopped:
                tune(
                    searcher,
                    _Patient(runner, self),
                    budget=self.budget,
                    on_trial=self._take,
                    on_interrupt=lambda: stopped.append(True),
                )
        return STOPPED if stopped else DONE

    def _take(self, trial: Trial) -> None:
        with self._lock:
            self._trials.append(trial)
            self._progress.take(trial, self._judge)
        self._hold(_interrupt)

    def _hold(self, stop: Callable[[bool], Any]) -> None:
        """Waits while paused; calls `stop` if the session was stopped."""
        began = time.perf_counter()
        if not self._going.is_set():
            self._going.wait()
            self._paused_s += time.perf_counter() - began
        if self._stopping.is_set():
            stop(True)

    def _judge(self, config: Config) -> float | None:
        judge = getattr(self._runner, "judge", None)
        try:
            return judge(config) if judge else None
        except UnrecordedConfig:  # the reference, where not everything was recorded
            return None

    def _require(self, verb: str, state: str, step: str) -> None:
        now = "stopping" if self._stopping.is_set() and self.alive else self._state
        if now != state:
            raise UsageError(
                f"to {verb} a session it must be {state}, got {self.name!r} {now}; {step}"
            )

    def _tell(self, state: str) -> None:
        for callback in self._callbacks:
            try:
                callback(state)
            except Exception:  # a watcher's mistake must not end the search
                logging.getLogger(__name__).exception("a callback of session %s", self.name)


class _Patient:
    """A runner whose clock, if it is the wall's, stands still while its session is paused."""

    def __init__(self, runner: Runner, session: Session):
        self._runner, self._session = runner, session

    @property
    def now(self) -> float:
        return self._runner.now - (self._session._paused_s if self._runner.live else 0.0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


def _interrupt(_: bool) -> None:
    raise KeyboardInterrupt  # what `tune` ends by, keeping what was measured


def _one_line(error: BaseException | None) -> str:
    if error is None:
        return ""
    said = str(error).strip().partition("\n")[0]
    return said if isinstance(error, KtLabError) else f"{type(error).__name__}: {said}"


def alive(name: str | None = None) -> list[Session]:
    """Returns the sessions of this process that run, or those of one name."""
    with _REGISTRY:
        return [session for session in _ALIVE if name in (None, session.name)]


@atexit.register
def close_all() -> None:
    """Stops every session of this process and closes their runners; called at its end."""
    found = alive()
    for session in found:
        session.stop()
    for session in found:
        session.close()
