"""Asking for a comparison by names: which runs it needs, computed now or read where they lie."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from kt_lab.budget import Budget
from kt_lab.comparison.words import asked_words
from kt_lab.errors import UnknownName, UsageError
from kt_lab.experiment import Experiment, load_runs, process_pool
from kt_lab.landscape import data_directory, landscapes, load_landscape
from kt_lab.search import searchers
from kt_lab.search.peers import PEERS
from kt_lab.studies import FIELD, SEARCHERS


def names_of(text: str, *, reference: str | None = None) -> list[str]:
    """Returns the names of a list with commas, spaces around them stripped.

    Args:
        text: "random, pattern".
        reference: What the others will be compared with; None: with nothing.

    Raises:
        UsageError: The reference is not among the names.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if reference is not None and reference not in names:
        raise UsageError(
            f"the reference {reference!r}, which the others are compared with, must be among the "
            f"searchers, got {', '.join(names) or 'none'}; add it to them"
        )
    return names


def rows_of(names: Sequence[str]) -> dict[str, Any]:
    """Returns what runs under each name: a row of the field, a searcher or a peer."""
    known = {name: name for name in (*searchers(), *PEERS)} | FIELD
    if isinstance(names, str):
        raise UsageError(f"searchers must be a list of names, got {names!r}; give [{names!r}]")
    for name in names:
        if name not in known:
            raise UnknownName("searcher", name, known)
    return {name: known[name] for name in names}


def find_workloads(names: Sequence[str] | None, *, gpu: str | None) -> list[str]:
    """Returns what an Experiment runs on, for keys, kernels and files; None: all that ship.

    Without `gpu`, a workload that several GPUs recorded is the one of REFERENCE_GPU, as in
    `load_landscape`; runs on another GPU name it, or its files.
    """
    if isinstance(names, str):
        raise UsageError(f"workloads must be a list of keys, got {names!r}; give [{names!r}]")
    shipped = [each for each in landscapes() if gpu in (None, each.gpu)]
    keys = [each.workload for each in shipped]
    found: list[str] = []
    for name in keys if names is None else names:
        same = [each.workload for each in shipped if name in (each.workload, each.kernel)]
        if not same and not name.endswith(".parquet"):
            if not shipped:
                load_landscape(name, gpu=gpu)  # raises: it tells where landscapes were looked for
            raise UnknownName("workload", name, {*keys, *(each.kernel for each in shipped)})
        found += same or [name]
    return list(dict.fromkeys(found))


def request(
    searchers: Sequence[str] = SEARCHERS,
    workloads: Sequence[str] | None = None,
    *,
    seeds: int = 5,
    trials: int | None = 200,
    seconds: float | None = None,
    lanes: int = 16,
    gpu: str | None = None,
    name: str | None = None,
) -> Experiment:
    """Returns the experiment that compares searchers by replay.

    Args:
        searchers: Registered ones, peers, rows of the study `field`.
        workloads: Keys, kernels or landscapes' .parquet files; None: all that ship.
        seeds: How many per searcher and workload.
        trials: Budget of every run; None: no limit of trials.
        seconds: Budget in machine seconds; None: no limit of seconds.
        lanes: Simulated compile lanes.
        gpu: Whose landscapes; None: REFERENCE_GPU's, where several GPUs recorded a workload.
        name: Of the experiment and its files; None: made of searchers x workloads x seeds and a
            digest of all of it.
    """
    experiment = Experiment(
        name or "compare",
        find_workloads(workloads, gpu=gpu),
        rows_of(searchers),
        seeds=seeds,
        budget=Budget(trials=trials, seconds=seconds),
        lanes=(lanes,),
        gpu=gpu,
    )
    if name is not None:
        return experiment
    digest = hashlib.sha256(json.dumps(experiment.facts(), sort_keys=True).encode()).hexdigest()
    size = "x".join(str(len(each)) for each in (searchers, experiment.workloads, range(seeds)))
    return replace(experiment, name=f"compare-{size}-{digest[:8]}")


def compare(
    searchers: Sequence[str] = SEARCHERS,
    workloads: Sequence[str] | None = None,
    *,
    workers: int = 1,
    directory: Path | str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    **about: Any,
) -> pd.DataFrame:
    """Runs searchers on workloads by replay and returns the tidy table of runs.

    Args:
        searchers: As for `request`.
        workloads: As for `request`.
        workers: Processes; 1: this one.
        directory: Keeps the runs, and resumes them; None: nowhere.
        on_progress: Called with (runs done, runs in all).
        about: What else `request` takes.
    """
    experiment = request(searchers, workloads, **about)
    how = {"directory": directory, "on_progress": on_progress}
    if workers == 1:
        runs = experiment.run(**how)
    else:
        with process_pool(workers) as pool:
            runs = experiment.run(executor=pool, **how)
    runs.attrs["budget"] = asked_words(experiment.budget.trials, experiment.budget.seconds)
    return runs


def stored_runs() -> dict[str, Path]:
    """Returns the stored tables of runs by name: the studies, then comparisons of panels.

    A study's own folder prevails over a copy in another one.
    """
    root = data_directory()
    runs = sorted(
        root.glob("runs/*/*.parquet"), key=lambda path: (path.parent.name == path.stem, path)
    )
    found = [*runs, *sorted(root.glob("comparisons/*.parquet"))]
    return {path.stem: path for path in found}


def open_runs(name: str | Path) -> pd.DataFrame:
    """Returns a stored table of runs, by its name or as a file.

    Raises:
        UnknownName: There is none of that name.
        StoreError: The file is missing or no table of runs.
    """
    if isinstance(name, Path) or name.endswith(".parquet"):
        return load_runs(name)
    known = stored_runs()
    if name not in known:
        raise UnknownName("stored comparison", name, known)
    return load_runs(known[name])
