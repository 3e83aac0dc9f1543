"""A large table of runs, made up, and what it takes to load and to summarise it."""

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd

from kt_lab import stats
from kt_lab.cells import recorded, typed
from kt_lab.comparison import budget_table
from kt_lab.experiment import load_runs
from kt_lab.store import write_table
from kt_lab.studies import GPU, WORKLOADS

SEARCHERS = ("random", "pattern", "lfbo_pattern", "tpe", "scout")
_TRIALS = 200  # of a run


def made_up(trials: int, path: Path, *, seed: int = 0) -> int:
    """Stores runs of five searchers on nine recorded workloads; returns how many trials.

    Configs, latencies, failures and re-measurements are drawn at random; columns, types and what
    a stored table leaves out are those of real runs.

    Args:
        trials: About how many.
        path: Of the table.
        seed: Fixes all of it.
    """
    rng = np.random.default_rng(seed)
    seeds = max(2, round(trials / (_TRIALS * len(WORKLOADS) * len(SEARCHERS))))
    shape = len(WORKLOADS), len(SEARCHERS), seeds, _TRIALS
    workload, searcher, number, trial = (at.ravel() for at in np.indices(shape, np.int32))
    landscapes = {key: recorded(key, GPU) for key in WORKLOADS}
    most = np.array([landscape.space.size for landscape in landscapes.values()])[workload]
    config = (rng.random(trial.size) ** 3 * most).astype(np.int32)  # some are asked for again
    runs = pd.DataFrame({"config": config, "run": np.arange(trial.size) // _TRIALS})
    good = rng.random(trial.size) < 0.85
    latency = np.where(good, 100 * np.exp(rng.exponential(0.5, trial.size)), np.nan)
    seconds = rng.exponential(0.3, shape).cumsum(axis=-1).ravel()
    frame = pd.DataFrame(
        {
            "workload": pd.Categorical.from_codes(workload, list(WORKLOADS)),
            "kernel": pd.Categorical([key.partition("/")[0] for key in WORKLOADS])[workload],
            "gpu": GPU,
            "searcher": pd.Categorical.from_codes(searcher, list(SEARCHERS)),
            "lanes": 16,
            "seed": number,
            "trial": trial,
            "config": config,
            "first": ~runs.duplicated().to_numpy(),
            "repetitions": rng.choice([5, 10, 20], trial.size),
            "status": np.where(good, "ok", "compile_error"),
            "latency_us": latency,
            "compile_s": rng.exponential(0.2, trial.size).round(4),
            "measure_s": rng.exponential(0.1, trial.size).round(5),
            "machine_s": seconds.round(4),
            "search_s": (seconds / 100).round(3),
            "origin": rng.choice(["start", "search", "polish"], trial.size),
            "generation": trial // 20,
            "twin": rng.random(trial.size) < 0.05,
            "judged_us": np.nan,
        }
    )
    facts = {"landscapes": {key: each.manifest["sha256"] for key, each in landscapes.items()}}
    write_table(typed(frame).drop(columns="judged_us"), path, facts=facts)
    return len(frame)


def measured(path: Path) -> dict[str, float]:
    """Loads and summarises a table in a fresh process; returns seconds by step, and peak MiB.

    The peak is of the whole process, of which importing takes a part (`imported_mib`).
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_steps, path).result()


def _steps(path: Path) -> dict[str, float]:
    found = {"imported_mib": _peak_mib()}
    for key in WORKLOADS:  # its own cost, and not that of the table
        recorded(key, GPU)
    began = time.perf_counter()
    runs = load_runs(path)
    found["load_s"], began = time.perf_counter() - began, time.perf_counter()
    stats.incumbent_curves(runs)
    found["curves_s"], began = time.perf_counter() - began, time.perf_counter()
    for ratios in (stats.latency_ratios, stats.wall_clock_ratios, stats.convergence_time_ratios):
        ratios(runs, reference="pattern")
    found["ratios_s"] = time.perf_counter() - began
    found["summary_s"] = found["load_s"] + found["curves_s"] + found["ratios_s"]
    # the kernel adds its counters up lazily: a later reading of a peak may be a little lower
    found["summary_mib"] = max(found["imported_mib"], _peak_mib())
    began = time.perf_counter()
    budget_table(runs, reference="pattern")
    found["compare_s"] = time.perf_counter() - began
    return found | {"trials": len(runs), "peak_mib": max(found["summary_mib"], _peak_mib())}


def _peak_mib() -> float:
    """Returns the most memory that this process had; `getrusage` would count its parent's too."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
