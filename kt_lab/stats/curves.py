"""From trials to curves: the incumbent of every run after every trial, and bands over seeds."""

from collections import deque
from collections.abc import Sequence

import numpy as np
import pandas as pd

from kt_lab.errors import UnknownName, UsageError
from kt_lab.stats.intervals import median_interval, quantiles
from kt_lab.stats.tables import CELL, GROUP, RUN, by_cell, check_axis, check_columns, check_judged
from kt_lab.trial import CENSORED, OK

_TRIAL = (*RUN, "trial", "config", "first", "repetitions", "status", "latency_us", "judged_us")
_CLOCK = ("machine_s", "search_s")
# The last tables asked about: one study answers many questions from the same curves.
_KNOWN: deque[tuple[tuple, tuple]] = deque(maxlen=2)
BANDS = ("iqr", "interval", "none")
_SECONDS_POINTS = 200  # of a default grid of seconds: finer than a pixel column of a paper panel


def incumbent_curves(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the incumbent of every run after each of its trials.

    A config's standing value is its ok reading with the most repetitions, the latest of equals
    (`kt_lab.trial.supersedes`); the incumbent is the config whose standing value is lowest, the
    earliest of equals. A re-measurement can therefore raise `reading_us`, or dethrone.

    Args:
        runs: The tidy table of runs, one row per trial, in any order.

    Returns:
        One row per trial, sorted by run and trial: the columns of RUN, `trial`, `spent_trials`
        (first measurements so far, failures included), `machine_s`, `elapsed_s` (seconds since
        the run began), `incumbent` (config, null before the first ok trial), `reading_us` (its
        standing latency, what the searcher saw) and `judged_us` (its latency in the visit that
        the searcher did not see).
    """
    return _known(runs)[2].copy(deep=False)  # what is written to is copied then


def judged_curves(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns `incumbent_curves` of runs that were judged; raises UsageError for others."""
    check_judged(runs)
    return incumbent_curves(runs)


def _known(runs: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """Returns `ordered_runs` and their curves, found once for a table; not to be changed."""
    key = _key(runs)
    for known, found in _KNOWN:
        if known == key:
            return found
    table, run = ordered_runs(runs)
    found = table, run, _curves(table, run)
    _KNOWN.append((key, found))
    return found


def _key(runs: pd.DataFrame) -> tuple:
    """Returns what tells tables of runs apart: digests of the columns that curves depend on."""
    check_columns(runs, (*_TRIAL, *_CLOCK))
    key: list = [len(runs)]
    for name in (*_TRIAL, *_CLOCK):
        column = runs[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            key.append(tuple(column.cat.categories))
            column = column.cat.codes
        plain = isinstance(column.dtype, np.dtype) and column.dtype != object
        values = column if plain else pd.util.hash_pandas_object(column, index=False)
        key += [str(column.dtype), hash(values.to_numpy().tobytes())]
    return tuple(key)


def _curves(table: pd.DataFrame, run: np.ndarray) -> pd.DataFrame:
    good = (table["status"] == OK).to_numpy() & table["latency_us"].notna().to_numpy()
    at = _standing_incumbent(
        run,
        table["config"].to_numpy(np.int64),
        good,
        table["repetitions"].fillna(0).to_numpy(np.int64),
        table["latency_us"].to_numpy(float, na_value=np.nan),
    )
    some = at >= 0
    curves = table[[*RUN, "trial"]].copy()
    spent = np.cumsum(table["first"].to_numpy(np.int64))
    before = np.append(0, spent)[np.searchsorted(run, np.arange(run[-1] + 1))]
    curves["spent_trials"] = spent - before[run]
    curves["machine_s"] = table["machine_s"].astype(float)
    curves["elapsed_s"] = curves["machine_s"] + table["search_s"].astype(float)
    config = pd.array(table["config"].to_numpy(np.int64)[at], dtype="Int64")
    config[~some] = pd.NA
    curves["incumbent"] = config
    for name, source in (("reading_us", "latency_us"), ("judged_us", "judged_us")):
        curves[name] = np.where(some, table[source].to_numpy(float, na_value=np.nan)[at], np.nan)
    return curves


def ordered_runs(runs: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Returns the table sorted by run and trial, and the number of each row's run."""
    check_columns(runs, (*_TRIAL, *_CLOCK))
    run = runs.groupby(list(RUN), observed=True, sort=True, dropna=False).ngroup().to_numpy()
    trial = runs["trial"].to_numpy()
    order = np.lexsort((trial, run))
    run, trial = run[order], trial[order]
    twice = np.flatnonzero((np.diff(run) == 0) & (np.diff(trial) == 0))
    if twice.size:
        row = runs.iloc[order[twice[0]]]
        raise UsageError(
            f"a run holds each trial once, got trial {row['trial']} twice in "
            f"{dict(row[list(RUN)])}; was a file read twice, or do two studies share it?"
        )
    already = (np.diff(order) > 0).all()  # as most tables are stored
    return (runs if already else runs.iloc[order]).reset_index(drop=True), run


def _standing_incumbent(run, config, good, repetitions, latency) -> np.ndarray:
    """Returns, after every row, the row of the incumbent's standing reading; -1: none yet.

    A reading stands from its row until another of its config supersedes it (`trial.supersedes`):
    most until their run ends, so the running minimum of those, per run, is nearly the answer.
    The others count within their time only, and few of them were ever the lowest.
    """
    rows = np.flatnonzero(good)
    low = config.min()  # a live run of an endless space says -1
    name = run[rows] * (config.max() - low + 1) + config[rows] - low
    order = np.argsort(name, kind="stable")  # the readings of a config in order
    rows, new = rows[order], np.diff(name[order], prepend=-1) != 0
    count = repetitions[rows]
    step = np.cumsum(new) * (count.max(initial=0) + 1)  # lifts each config above those before
    stands = np.maximum.accumulate(count + step) == count + step
    rows, new = rows[stands], new[stands]  # a config's first reading always stands
    ends = np.searchsorted(run, run[rows], side="right")
    later = np.flatnonzero(~new)
    ends[later - 1] = rows[later]
    ranked = np.sort(rows)
    ranked = ranked[np.argsort(latency[ranked], kind="stable")]  # of equals the earliest first
    rank = np.full(run.size, ranked.size)
    rank[ranked] = np.arange(ranked.size)
    lasting = np.full(run.size, ranked.size)
    kept = np.delete(rows, later - 1)
    lasting[kept] = rank[kept]
    fall = run * (ranked.size + 1)  # puts every run below those before it
    lowest = np.minimum.accumulate(lasting - fall) + fall
    passing = later[rank[rows[later - 1]] < lowest[rows[later - 1]]] - 1
    for at, end in zip(rows[passing], ends[passing], strict=True):
        np.minimum(lowest[at:end], rank[at], out=lowest[at:end])
    return np.append(ranked, -1)[lowest]


def final_latency(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per run: what it ended with and what it cost.

    Returns:
        The columns of RUN, `incumbent`, `reading_us`, `judged_us` (null when nothing was ok, or
        when the incumbent failed in the judging visit), `machine_s`, `search_s`, `elapsed_s`
        (the run's totals in seconds), `spent_trials`, `trials` (re-measurements included) and
        `failures` (trials that ended neither ok nor censored).
    """
    table, run, curves = _known(runs)
    last = np.flatnonzero(np.append(np.diff(run) != 0, True))
    final = curves.iloc[last].reset_index(drop=True).drop(columns="trial")
    final.insert(
        final.columns.get_loc("elapsed_s"), "search_s", table["search_s"].to_numpy()[last]
    )
    failed = (~table["status"].isin([OK, CENSORED])).to_numpy()
    final["trials"] = np.bincount(run)
    final["failures"] = np.bincount(run, weights=failed).astype(np.int64)
    return final


def step_values(run: pd.DataFrame, points: np.ndarray, *, x: str, value: str) -> np.ndarray:
    """Returns the latency of one run's incumbent at points of x, inf where it has none.

    Args:
        run: The rows of one run, from `incumbent_curves`.
        points: Shape (n,), in x; a point beyond the end gives the final incumbent.
        x: The axis.
        value: "judged_us" or "reading_us".
    """
    known = np.append(run[value].to_numpy(float, na_value=np.nan), np.nan)
    found = known[np.searchsorted(run[x].to_numpy(float), points, side="right") - 1]  # [-1]: none
    return np.where(np.isnan(found), np.inf, found)


def convergence_bands(
    curves: pd.DataFrame,
    *,
    x: str = "spent_trials",
    grid: Sequence[float] | None = None,
    optima: pd.DataFrame | None = None,
    value: str = "judged_us",
    band: str = "iqr",
) -> pd.DataFrame:
    """Returns median and interquartile range over seeds of the incumbent's latency.

    Every run is a step function of x; one that has ended keeps its last value. A run that has no
    incumbent yet counts as infinitely slow in the quantiles, and an infinite quantile is null:
    nothing is dropped, so the curve of a searcher that often fails is not flattered.

    Args:
        curves: From `incumbent_curves`.
        x: "spent_trials", "machine_s" or "elapsed_s".
        grid: Values of x, increasing, for every workload. None: per workload every count of
            trials, or 200 points from 0 to the end of its longest run.
        optima: Columns `workload`, `optimum_us` and, where GPUs differ, `gpu`; latencies are
            then divided by the optimum. None: microseconds.
        value: "judged_us", or "reading_us" for what the searchers believed.
        band: What `low` and `high` are: "iqr", the quartiles; "interval", of the median over
            seeds, 95% (`kt_lab.stats.intervals.median_interval`; null below six seeds); "none":
            the median.

    Returns:
        One row per (GROUP, point): the columns of GROUP, `axis` (the name of x), `x`, `median`,
        `low`, `high` (the band), `unit` ("us" or "ratio"), `n_seeds`, `n_found` (runs with an
        incumbent by then) and `n_running` (runs that had not ended before x).
    """
    check_axis(x)
    if band not in BANDS:
        raise UnknownName("band", band, BANDS)
    check_columns(curves, (*RUN, x, value), what="curves")
    optimum = None if optima is None else by_cell(optima, "optimum_us", what="optima")
    parts = []
    for cell, table in curves.groupby(list(CELL), observed=True, sort=True):
        points = _default_grid(table, x) if grid is None else np.asarray(grid, float)
        scale = 1.0 if optimum is None else optimum(cell[0], cell[2])
        for _, group in table.groupby(["searcher", "lanes"], observed=True, sort=True):
            parts.append(_band(group, x, value, points, scale, kind=band))
    bands = pd.concat(parts, ignore_index=True)
    bands["unit"] = "us" if optima is None else "ratio"
    return bands.astype(dict.fromkeys(("gpu", "kernel", "workload", "searcher"), "category"))


def _default_grid(table: pd.DataFrame, x: str) -> np.ndarray:
    """Returns every trial count, or evenly spaced seconds up to the end of the longest run."""
    end = table[x].max()
    if x == "spent_trials":
        return np.arange(1.0, max(end, 1.0) + 1)
    return np.linspace(0.0, end, _SECONDS_POINTS)


def _band(group: pd.DataFrame, x: str, value: str, points: np.ndarray, scale: float, *, kind: str):
    """Returns the rows of one searcher on one workload."""
    seeds = [run for _, run in group.groupby("seed", observed=True, sort=True)]
    latency = np.full((len(seeds), points.size), np.inf)  # (seeds, points)
    ends = np.empty(len(seeds))
    for row, run in enumerate(seeds):
        latency[row] = step_values(run, points, x=x, value=value)
        ends[row] = run[x].iloc[-1]
    latency /= scale
    low, median, high = quantiles(latency, (0.25, 0.5, 0.75))
    if kind != "iqr":
        low, high = median_interval(latency) if kind == "interval" else (median, median)
    band = pd.DataFrame({name: group[name].iloc[0] for name in GROUP}, index=range(points.size))
    band["axis"] = x
    band["x"] = points
    for name, column in (("median", median), ("low", low), ("high", high)):
        band[name] = np.where(np.isinf(column), np.nan, column)
    band["unit"] = ""
    band["n_seeds"] = len(seeds)
    band["n_found"] = np.isfinite(latency).sum(axis=0)
    band["n_running"] = (ends[:, None] >= points).sum(axis=0)
    return band
