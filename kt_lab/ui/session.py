"""Session: a search in the background that can be paused, resumed and stopped; no widgets."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kt_lab.budget import Budget
from kt_lab.errors import UnrecordedConfig
from kt_lab.live import Confirmed
from kt_lab.runners import Runner
from kt_lab.trial import Config, History, Trial
from kt_lab.tune import tune
from kt_lab.ui.background import Background
from kt_lab.ui.progress import DONE, PAUSED, RUNNING, STOPPED, Progress, Snapshot
from kt_lab.ui.saving import save_history


class Session(Background):
    """One search in one daemon thread: idle -> running <-> paused -> done, stopped or failed.

    It may be paused and stopped between trials: a trial under way is finished first. It runs
    once, and at most one of a name at a time (`Background`).

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
        super().__init__(name)
        self.budget, self.facts = budget, dict(facts or {})
        self._make_searcher, self._make_runner = searcher, runner
        self._reference, self._reference_us = reference, None
        self._progress, self._trials = Progress(reference), []
        self._going = threading.Event()
        self._going.set()
        self._runner: Runner | None = None
        self._paused_s = 0.0

    # -- what a user does -----------------------------------------------------------------------

    def pause(self) -> None:
        """Holds the search after the trial under way."""
        with self._lock:
            self._require("pause", RUNNING, "only a running session can be paused")
            self._state = PAUSED
            self._going.clear()

    def resume(self) -> None:
        """Goes on after a pause."""
        with self._lock:
            self._require("resume", PAUSED, "only a paused session can be resumed")
            self._state = RUNNING
            self._going.set()

    def stop(self) -> None:
        """Ends the search after the trial under way and keeps what was found."""
        with self._lock:
            super().stop()
            if self.alive:
                self._going.set()

    # -- what a watcher sees --------------------------------------------------------------------

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
                recalled=getattr(self._runner, "recalled", 0),
                **self._about(),
            )

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

    def _run(self) -> str:
        """Searches; returns the state that the search ended in."""
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
            waited = time.perf_counter() - began
            if hasattr(self._runner, "rested"):
                self._runner.rested(waited)
            else:
                self._paused_s += waited
        if self._stopping.is_set():
            stop(True)

    def _judge(self, config: Config) -> float | None:
        judge = getattr(self._runner, "judge", None)
        try:
            return judge(config) if judge else None
        except UnrecordedConfig:  # the reference, where not everything was recorded
            return None

    def _cut(self) -> None:
        """Closes the runner of a trial that does not end."""
        if self._runner is not None:
            self._runner.close()


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


@dataclass(frozen=True, slots=True)
class ConfirmSnapshot:
    """A confirmation at one moment.

    Attributes:
        state: "idle", "running", "done", "stopped" or "failed".
        stopping: Whether it was told to stop and waits for what is under way.
        found: The confirmation, the stored winner and its file; None: not done.
        error: Why it failed, in one line; else empty.
        traceback: The same in full.
    """

    state: str
    stopping: bool
    found: Confirmed | None
    error: str
    traceback: str


class Confirming(Background):
    """The confirmation of a live search's finalists: idle -> running -> done, stopped or failed.

    It is short, and once the GPU is up it is finished even if it is told to stop.
    """

    def __init__(
        self, name: str, *, runner: Callable[[], Any], confirm: Callable[[Any], Confirmed]
    ):
        """Prepares a confirmation.

        Args:
            name: Of the panel; the search of that name is stopped first.
            runner: Opens the live runner; called in the worker thread, which closes it.
            confirm: Confirms with it, say `kt_lab.live.confirm_found` with its arguments.
        """
        super().__init__(name)
        self._make_runner, self._confirm = runner, confirm
        self._runner: Any = None
        self._found: Confirmed | None = None

    def snapshot(self) -> ConfirmSnapshot:
        """Returns what is known now."""
        with self._lock:
            return ConfirmSnapshot(found=self._found, **self._about())

    def _run(self) -> str:
        if self._stopping.is_set():
            return STOPPED
        with self._make_runner() as self._runner:
            if self._stopping.is_set():
                return STOPPED
            self._found = self._confirm(self._runner)
        return DONE

    def _cut(self) -> None:
        if self._runner is not None:
            self._runner.close()
