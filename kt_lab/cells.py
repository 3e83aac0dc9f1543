"""One run of an experiment: complete enough to be computed anywhere, told as a tidy table."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.budget import Budget
from kt_lab.capture.searcher import searcher_class, searcher_source, source_hash
from kt_lab.errors import StoreError, UsageError
from kt_lab.landscape import Landscape, load_landscape
from kt_lab.prior import Prior
from kt_lab.runners.replay import ReplayRunner, judged_us, timing_costs_s
from kt_lab.search import get_searcher
from kt_lab.search.base import Searcher
from kt_lab.space import ParameterSpace
from kt_lab.trial import OK, Config, History, Measurement, Proposal, Trial
from kt_lab.tune import tune_whole

CATEGORIES = ("workload", "kernel", "gpu", "searcher", "status", "origin")
NOT_REPEATABLE = ("search_s", "elapsed_s")  # measured on the machine that runs the searcher
# Searchers whose later trials may differ between CPUs: Optuna sorts its observations without
# keeping the order of equal ones, and numpy's order of these follows from the CPU's vector
# instructions (seen from about 270 trials on).
BY_CPU = ("tpe", "optuna")
ANATOMY = {"generation": "Int16", "predicted": "float32", "twin": "boolean"}
"""Columns that older tables of runs lack: all null there; in newer ones `twin` never is."""
JUDGED = "judged_us"
LAUNCHES = "launches"
COSTS = ("compile_s", "measure_s")
"""Columns that a stored table may lack, to save room; `machine_s` holds their effect."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of an experiment, complete enough to be computed anywhere.

    Attributes:
        workload: Key of a recorded workload, or the .parquet file of a landscape.
        gpu: Short name of the GPU whose landscape is replayed; None: the only one there is.
        searcher: The row's name in tables and figures.
        algorithm: Registered name of the searcher that runs, or its class and its source's hash.
        options: Its options.
        lanes: Simulated compile lanes.
        seed: Of the searcher and of the replay.
        trials: Budget in trials; None: no limit.
        seconds: Budget in machine seconds; None: no limit.
        source: Of a searcher that is not registered (`capture.searcher`); else None.
    """

    workload: str
    gpu: str | None
    searcher: str
    algorithm: str
    options: tuple[tuple[str, Any], ...]
    lanes: int
    seed: int
    trials: int | None
    seconds: float | None
    source: str | None = None


@lru_cache(maxsize=64)
def recorded(workload: str, gpu: str | None) -> Landscape:
    """Loads a landscape, once per process."""
    return load_landscape(workload, gpu=gpu)


def require_apart(workloads: Iterable[str], gpu: str | None) -> None:
    """Loads landscapes; raises UsageError where two names are of one, or nothing works in one."""
    told: dict[tuple[str, str], str] = {}
    for workload in workloads:
        landscape = recorded(workload, gpu)
        if (key := (landscape.workload, landscape.gpu)) in told:
            raise UsageError(
                f"a workload of one GPU must be named once, got {key[0]} on {key[1]} as "
                f"{told[key]} and as {workload}; leave one of them out"
            )
        if not landscape.table["status"].eq(OK).any():
            raise UsageError(
                f"a workload must have a config that works, got none of {key[0]} on {key[1]}; "
                "leave it out"
            )
        told[key] = workload


def row_name(given: Any) -> str:
    """Returns what a row of an experiment is called where nobody named it."""
    algorithm = given[0] if isinstance(given, tuple | list) else given
    if isinstance(algorithm, type):  # an inherited name is that of another searcher
        return str(vars(algorithm).get("name") or algorithm.__name__)
    return str(algorithm)


def row_of(given: Any) -> tuple[str, dict[str, Any], str | None]:
    """Returns what the facts call a searcher, its options, and its source if it has one.

    Raises:
        UsageError: It is neither a name nor a class, or its options are not JSON.
    """
    algorithm, *told = given if isinstance(given, tuple | list) else [given]
    options = {k: v.item() if isinstance(v, np.generic) else v for k, v in dict(*told).items()}
    try:
        json.dumps(options)
    except TypeError:
        raise UsageError(
            "options of a run that is stored must be numbers, texts, flags or lists of them, got "
            f"{options} for {row_name(given)}"
        ) from None
    if isinstance(algorithm, str):
        return algorithm, options, None
    if not (isinstance(algorithm, type) and issubclass(algorithm, Searcher)):
        raise UsageError(
            f"a searcher must be a registered name or a subclass of Searcher, got {algorithm!r}; "
            "give the class itself, and its options beside it: (MySearcher, {'k': 3})"
        )
    source = searcher_source(algorithm)
    return f"{algorithm.__name__}@{source_hash(source)}", options, source


def searcher_kind(algorithm: str, source: str | None) -> type:
    """Returns the class of a registered searcher, or the one that a source holds."""
    return get_searcher(algorithm) if source is None else searcher_class(source)


def run_cell(
    cell: Cell, *, prior: Prior | None = None, space: ParameterSpace | None = None
) -> pd.DataFrame:
    """Computes one run by replay; returns its tidy table (one row per trial).

    A run whose seconds end before its first trial does is one row that failed: without any, it
    would be absent wherever runs are counted, and only the lucky seeds would be left.

    Args:
        cell: What is run.
        prior: What the searcher knows beforehand.
        space: Where it searches, a part of the recorded space; None: all of it.
    """
    landscape = recorded(cell.workload, cell.gpu)
    budget = Budget(trials=cell.trials, seconds=cell.seconds)
    runner = ReplayRunner(landscape, seed=cell.seed, compile_lanes=cell.lanes)
    kind = searcher_kind(cell.algorithm, cell.source)
    searcher = kind(
        space or landscape.space, seed=cell.seed, budget=budget, prior=prior, **dict(cell.options)
    )
    history = tune_whole(searcher, runner, budget=budget)
    if not history:
        start = Proposal(0, landscape.space.default)
        late = Measurement("timeout", info={"config": landscape.index(start.config)})
        history = History([Trial(0, start, late, first=False, machine_s=cell.seconds or 0.0)])
    facts = {name: getattr(landscape, name) for name in ("workload", "kernel", "gpu")}
    facts |= {name: getattr(cell, name) for name in ("searcher", "lanes", "seed")}
    return history_table(history, facts=facts, judged_us=runner.judged_us)


def columns(table: pd.DataFrame) -> dict[str, list]:
    """Returns a table as JSON-ready lists, missing values as None: quick to hand on and write."""
    return {n: table[n].to_numpy(dtype=object, na_value=None).tolist() for n in table.columns}


def history_table(
    history: History, *, facts: Mapping[str, Any], judged_us: np.ndarray | None = None
) -> pd.DataFrame:
    """Returns a history as the tidy table of runs that `stats` reads, one row per trial.

    Args:
        history: A finished or a running search.
        facts: Constant columns: workload, kernel, gpu, searcher, lanes, seed.
        judged_us: What each config of the space is judged by, shape (space.size,); None in a
            live run, where nothing is known but the readings.

    Returns:
        `config` is the position in the space, as the measurements' info["config"] tell it; if any
        does not (a SyntheticRunner's, some live ones), the configs of the history are numbered
        from 0, and `judged_us` is null.
        `generation` and `predicted` are the proposal's (rounded to five digits: the last bits
        differ between machines); `twin`: its samples were taken over from an identical launch.
    """
    said = [np.nan if (p := t.proposal.predicted) is None else float(f"{p:.5g}") for t in history]
    repetitions = [len(t.measurement.samples_us) for t in history]
    at = np.asarray([t.measurement.info.get("config", -1) for t in history], dtype=np.int32)
    if (at < 0).any():
        numbers: dict[Config, int] = {}
        at[:] = [numbers.setdefault(t.config, len(numbers)) for t in history]
        judged_us = None
    known = np.full(len(at), np.nan) if judged_us is None else judged_us[at]
    return pd.DataFrame(
        {
            **facts,
            "trial": np.asarray([t.number for t in history], dtype=np.int32),
            "config": at,
            "first": np.asarray([t.first for t in history], dtype=bool),
            "repetitions": np.asarray(repetitions, dtype=np.int16),
            "status": [t.status for t in history],
            "latency_us": np.asarray([t.latency_us for t in history], dtype=np.float32),
            "judged_us": known.astype(np.float32),
            "compile_s": _seconds([t.measurement.compile_s for t in history], digits=4),
            "measure_s": _seconds([t.measurement.measure_s for t in history], digits=5),
            "machine_s": _seconds([t.machine_s for t in history], digits=4),
            "search_s": _seconds([t.search_s for t in history], digits=3),
            "origin": [t.proposal.origin for t in history],
            "generation": pd.array([t.proposal.generation for t in history], dtype="Int16"),
            "predicted": np.asarray(said, dtype=np.float32),
            "twin": pd.array(["twin" in t.measurement.info for t in history], dtype="boolean"),
        }
    )


def _seconds(values: Sequence[float], *, digits: int) -> np.ndarray:
    """Returns seconds as float32, rounded to what was measured: noise does not compress."""
    return np.round(np.asarray(values, dtype=float), digits).astype(np.float32)


def judged(frame: pd.DataFrame, landscapes: Mapping[str, str]) -> np.ndarray:
    """Returns how the configs of runs are judged, shape (rows,), in microseconds.

    Args:
        frame: Runs without it.
        landscapes: SHA-256 by workload of the landscapes that they replayed.

    Raises:
        StoreError: A landscape is another one by now.
    """
    out, configs = np.full(len(frame), np.nan, dtype=np.float32), frame["config"].to_numpy()
    for landscape, visit, at in _replayed(frame, landscapes):
        out[at] = judged_us(landscape, visit=visit)[configs[at]]
    return out


def to_launches(frame: pd.DataFrame, landscapes: Mapping[str, str]) -> np.ndarray | None:
    """Returns how many launches `measure_s` of runs stands for, int16; None: not exactly so.

    Raises:
        StoreError: A landscape is another one by now.
    """
    before, each = _timing_costs(frame, landscapes)
    launches = np.rint((frame["measure_s"].to_numpy(float) - before) / each)
    exact = np.array_equal(_seconds(before + launches * each, digits=5), frame["measure_s"])
    return launches.astype(np.int16) if exact and (np.abs(launches) < 2**15).all() else None


def from_launches(frame: pd.DataFrame, landscapes: Mapping[str, str]) -> np.ndarray:
    """Returns `measure_s` of runs, shape (rows,), from `launches` as `to_launches` gave them."""
    before, each = _timing_costs(frame, landscapes)
    return _seconds(before + frame[LAUNCHES].to_numpy() * each, digits=5)


def _timing_costs(frame: pd.DataFrame, landscapes: Mapping[str, str]) -> np.ndarray:
    """Returns what timing cost a row besides its launches and per launch, seconds, (2, rows)."""
    out, configs = np.ones((2, len(frame))), frame["config"].to_numpy()
    first, twin = (frame[name].to_numpy(bool, na_value=False) for name in ("first", "twin"))
    for landscape, visit, at in _replayed(frame, landscapes):
        costs = timing_costs_s(landscape, visit=visit)[:, configs[at]]
        out[:, at] = np.where(twin[at], 0, np.where(first[at], costs[0], costs[1])), costs[2]
    return out


def _replayed(frame: pd.DataFrame, landscapes: Mapping[str, str]):
    """Yields the landscapes that runs replayed, the visit that was read, and at which rows."""
    for (workload, gpu), rows in frame.groupby(["workload", "gpu"], observed=True):
        landscape = recorded(workload, gpu)
        if landscape.manifest["sha256"] != landscapes[workload]:
            raise StoreError(
                f"stored runs must come with the landscapes that they replayed, got another "
                f"{workload} on {gpu} than theirs; run the experiment again"
            )
        visits = rows["seed"].to_numpy() % max(1, landscape.visits)
        for visit in np.unique(visits):
            yield landscape, int(visit), frame.index.get_indexer(rows.index[visits == visit])


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns a table of runs with its dtypes; what is missing is null."""
    types: dict[str, Any] = dict.fromkeys(("lanes", "seed", "repetitions"), "int16")
    if len(frame) and frame["seed"].max() >= 2**15:  # of a single run, say a date
        types["seed"] = "int64"
    types |= dict.fromkeys(("trial", "config"), "int32") | {"first": "bool"}
    floats = ("latency_us", "judged_us", "compile_s", "measure_s", "machine_s", "search_s")
    frame = frame.assign(**{name: None for name in (*ANATOMY, *COSTS) if name not in frame})
    frame = frame.astype(types | dict.fromkeys(floats, "float32") | ANATOMY)
    return frame.astype(dict.fromkeys(CATEGORIES, "category"))
