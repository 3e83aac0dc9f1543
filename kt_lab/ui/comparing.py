"""Comparing: an experiment in the background that can be watched and stopped; no widgets."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from kt_lab.cells import recorded, typed
from kt_lab.comparison import optima_table
from kt_lab.experiment import Experiment, load_runs, process_pool
from kt_lab.runners.workers import usable_cores
from kt_lab.stats.tables import RUN
from kt_lab.ui.background import Background
from kt_lab.ui.progress import DONE, IDLE, RUNNING, STOPPED


@dataclass(frozen=True, slots=True)
class CompareSnapshot:
    """A comparison at one moment; nothing in it changes afterwards.

    Attributes:
        state: "idle", "running", "done", "stopped" or "failed".
        stopping: Whether it was told to stop and waits for the runs under way.
        done: Runs that are finished, those of an earlier part included.
        total: Runs in all; 0: not known yet.
        resumed: Of the finished ones, how many an earlier part had computed.
        elapsed_s: Seconds since the start.
        eta_s: Seconds that the rest will take at the pace so far; None: unknown, or nothing left.
        error: Why it failed, in one line; else empty.
        traceback: The same in full.
    """

    state: str = IDLE
    stopping: bool = False
    done: int = 0
    total: int = 0
    resumed: int = 0
    elapsed_s: float = 0.0
    eta_s: float | None = None
    error: str = ""
    traceback: str = ""

    @property
    def alive(self) -> bool:
        """Whether its worker still runs."""
        return self.state == RUNNING


class CompareSession(Background):
    """One experiment in the background: idle -> running -> done, stopped or failed.

    A stored table of runs is read in the same way. The runs of an experiment are computed by
    processes of their own, which end with it, with this process, or when that is killed.
    Stopping lets the runs under way finish and keeps all that are finished; with a directory,
    the same request goes on from there, in whatever process.

    Attributes:
        name: Of the panel, or whatever must not run twice at a time.
        optima: From `kt_lab.comparison.optima_table`; None: not known yet. It is before the
            first run is finished.
        ended: An event, set once the worker has ended.
    """

    def __init__(
        self,
        name: str,
        *,
        source: Callable[[], Experiment | Path],
        directory: Path | str | None = None,
        workers: int | None = None,
    ):
        """Prepares a comparison; nothing is made before `start`.

        Args:
            name: Of the panel, or whatever must not run twice at a time.
            source: Makes the experiment, or names a stored table of runs; called in the worker
                thread.
            directory: Where finished runs are kept as they come; None: in memory only.
            workers: Processes; None: one per core that may be used; 0: the worker thread itself.
        """
        super().__init__(name)
        self._make, self._directory = source, directory
        self.optima: pd.DataFrame | None = None
        self._workers = usable_cores() if workers is None else workers
        self._tables: list[pd.DataFrame] = []
        self._count = self._resumed = self._total = 0
        self._began = self._first = self._last = self._ended_at = 0.0
        self._changed = threading.Lock()

    def snapshot(self) -> CompareSnapshot:
        """Returns what is known now; cheap enough to ask ten times a second."""
        with self._lock:
            about = self._about()
            now = self._ended_at or time.monotonic()
            fresh, left = self._count - self._resumed, self._total - self._count
            # From the first run on: before it, processes were starting.
            pace = (self._last - self._first) / (fresh - 1) if fresh > 1 else None
            return CompareSnapshot(
                done=self._count,
                total=self._total,
                resumed=self._resumed,
                elapsed_s=now - self._began if self._began else 0.0,
                eta_s=pace * left if pace and left and self.alive else None,
                **about,
            )

    def runs(self) -> pd.DataFrame:
        """Returns the tidy table of the finished runs so far; empty: none is."""
        with self._changed:
            with self._lock:
                tables, self._tables = self._tables, []
            if len(tables) > 1:
                tables = [typed(pd.concat(tables, ignore_index=True))]
            with self._lock:
                self._tables = tables + self._tables
            return tables[0] if tables else pd.DataFrame()

    # -- the worker -----------------------------------------------------------------------------

    def _run(self) -> str:
        """Computes the missing runs; returns the state that it ended in."""
        self._began = time.monotonic()
        try:
            if self._stopping.is_set():
                return STOPPED
            made = self._make()
            runs = load_runs(made) if isinstance(made, Path) else self._computed(made)
            if not self._count and len(runs):  # all of it was stored
                self.optima = _optima(runs[["gpu", "workload"]].astype(str).drop_duplicates())
                with self._changed, self._lock:
                    self._tables = [runs]
                    self._total = runs.groupby(list(RUN), observed=True).ngroups
                    self._count = self._resumed = self._total
            return DONE if self._count == self._total else STOPPED
        finally:
            self._ended_at = time.monotonic()

    def _computed(self, experiment: Experiment) -> pd.DataFrame:
        """Returns the runs of an experiment, computed now as far as they are missing."""
        cells = experiment.cells()
        asked = pd.DataFrame({"gpu": c.gpu, "workload": c.workload} for c in cells)
        self.optima = _optima(asked.drop_duplicates())
        self._total = len(cells)
        pool = process_pool(self._workers) if self._workers else None
        try:
            return experiment.run(
                directory=self._directory,
                executor=pool,
                on_progress=self._counted,
                on_run=self._take,
                stop=self._stopping.is_set,
            )
        finally:
            if pool is not None:  # idle by now: its processes end by themselves
                pool.shutdown(wait=False, cancel_futures=True)

    def _take(self, run: pd.DataFrame) -> None:
        with self._lock:
            self._tables.append(run)
            self._count += 1
            self._resumed += 1

    def _counted(self, done: int, total: int) -> None:  # noqa: ARG002
        with self._lock:  # a run that is reported was computed now
            self._resumed -= 1
            self._last = time.monotonic()
            self._first = self._first or self._last


def _optima(cells: pd.DataFrame) -> pd.DataFrame:
    """Returns `optima_table` of recorded workloads: columns gpu (as in `recorded`), workload."""
    found = [recorded(workload, gpu) for gpu, workload in cells[["gpu", "workload"]].to_numpy()]
    told = pd.DataFrame([{"gpu": each.gpu, "workload": each.workload} for each in found])
    return optima_table(told, landscapes=found)
