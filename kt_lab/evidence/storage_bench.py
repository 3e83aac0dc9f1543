"""The small experiment that the faults of the store happen to, and processes that run it."""

import json
import multiprocessing as mp
import os
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab import experiment as experiments
from kt_lab.budget import Budget
from kt_lab.cells import NOT_REPEATABLE
from kt_lab.experiment import Experiment
from kt_lab.store import Journal

WORKLOAD = "softmax/4096x640"
NAME = "storage"
_NOBODY = 65534  # a user whom file permissions bind, unlike root
_PACE_S = 0.005  # of a run, so that kills find several under way
Said = list[str]  # what the parts of a case ended with: "done", or an error


def experiment(**changes: Any) -> Experiment:
    """Returns the small experiment that everything happens to: 8 runs of 6 trials."""
    about = {"seeds": 4, "budget": Budget(trials=6), "lanes": (4,)} | changes
    return Experiment(NAME, (WORKLOAD,), ("random", "pattern"), **about)


def plain(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns what must be identical: every column but the measured CPU seconds."""
    return runs.drop(columns=list(NOT_REPEATABLE), errors="ignore")


class Bench:
    """The undisturbed run, and processes that run the same under some trouble."""

    def __init__(self, folder: Path):
        """Runs the experiment alone, twice: what it is, and what its table is when stored.

        Args:
            folder: For what is kept here; other users can read it, none can write it.
        """
        self._context = mp.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        folder.mkdir(parents=True)
        self.tally = folder / "tally"
        self.facts = json.loads(json.dumps(experiment().facts()))
        self.records: list[dict[str, Any]] = []
        with counted(self.tally, records=self.records):
            self.alone = experiment().run(directory=folder)
        self.table = (folder / f"{NAME}.parquet").read_bytes()

    def start(self, folder: Path, **trouble: Any) -> tuple[Any, Any]:
        """Starts a process that runs the experiment; returns it and what it reports through."""
        theirs, ours = self._context.Pipe(duplex=False)
        child = self._context.Process(target=_part, args=(folder, self.tally, ours, trouble))
        child.start()
        ours.close()
        return child, theirs

    def ends(self, child: Any, pipe: Any) -> Said:
        """Waits for a process; returns what it ended with, nothing when it was killed."""
        try:
            return [pipe.recv()]
        except EOFError:
            return []
        finally:
            child.join()

    def spread(self, folder: Path, rng: Any, *, runs: int | None = None, parts: int = 0) -> None:
        """Leaves a random number of runs in one to three journals, as ended processes do."""
        runs = int(rng.integers(2, len(self.records))) if runs is None else runs
        parts = parts or int(rng.integers(1, 4))
        chosen = rng.permutation(len(self.records))[:runs]
        folder.mkdir(parents=True, exist_ok=True)
        for part in range(parts):
            self.journal(folder, part, self.facts, chosen[part::parts])

    def journal(self, folder: Path, part: int, facts: Mapping[str, Any], runs: Any) -> None:
        """Writes one journal of some runs."""
        with Journal(folder / f"{NAME}{f'+{part}' if part else ''}.jsonl") as kept:
            kept.append({"facts": facts})
            for at in runs:
                kept.append({"claim": self.records[at]["cell"], "of": self.records[at]["of"]})
                kept.append(self.records[at])


@contextmanager
def counted(tally: Path, *, records: list | None = None, pace_s: float = 0.0) -> Iterator[None]:
    """While open, every run that reaches a journal is a line of a file, and goes to `records`."""
    append, run = Journal.append, experiments.run_cell

    def telling(self, record, **how):
        append(self, record, **how)
        if "cell" in record:
            file.write(record["cell"].encode() + b"\n")
            if records is not None:
                records.append(record)

    def paced(cell):
        time.sleep(pace_s)
        return run(cell)

    with tally.open("ab", buffering=0) as file:
        Journal.append, experiments.run_cell = telling, paced
        try:
            yield
        finally:
            Journal.append, experiments.run_cell = append, run


def _part(folder: Path, tally: Path, pipe: Any, trouble: Mapping[str, Any]) -> None:
    """Runs the experiment in a process of its own, under a trouble, and says how that ended."""
    asked = experiment()
    with counted(tally, pace_s=_PACE_S):
        if "room" in trouble:
            most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (trouble["room"], most))
        if "nobody" in trouble and os.geteuid() == 0:
            os.seteuid(_NOBODY)
        if "clock" in trouble:
            steps = np.random.default_rng(trouble["clock"])
            now = time.time()
            time.time = lambda: now - float(steps.exponential(1e6))
        try:
            asked.run(directory=folder)
            pipe.send("done")
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")
