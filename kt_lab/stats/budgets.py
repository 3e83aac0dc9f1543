"""What searchers hold when a budget is spent: the incumbent after 25, 50, 100... trials.

A run without an incumbent at a budget is infinitely slow there, never dropped. An infinite value
makes the geomean over the seeds of its workload infinite, and with it every geomean over
workloads; infinite over infinite is 1 (both found nothing), and where one workload's ratio is
infinite and another's 0, the failure of the searcher that is judged prevails.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.stats.curves import judged_curves
from kt_lab.stats.pairs import Bootstrap, ratio_table
from kt_lab.stats.tables import RUN, by_cell, check_axis, single_lanes

BUDGETS = (25, 50, 100, 200, None)
Budgets = Sequence[float | None]


def judged_at(
    runs: pd.DataFrame, budgets: Budgets = BUDGETS, *, x: str = "spent_trials"
) -> pd.DataFrame:
    """Returns the judged latency of every run's incumbent when a budget is spent.

    Args:
        runs: The tidy table of runs.
        budgets: In x; None: the end of the run. A run that ends earlier keeps its last incumbent.
        x: "spent_trials", "machine_s" or "elapsed_s".

    Returns:
        One row per run and budget: the columns of RUN, `axis`, `budget` (inf: the end) and
        `judged_us` (microseconds; inf where the run has no judged incumbent by then).
    """
    points = np.array([np.inf if b is None else b for b in budgets], dtype=float)
    if points.size == 0 or not (points > 0).all():
        raise UsageError(f"budgets must be > 0 (None: the end), at least one, got {budgets}")
    points = np.unique(points)  # one that is given twice is no further evidence
    curves = judged_curves(runs)
    number = curves.groupby(list(RUN), observed=True, sort=True).ngroup()
    curves, number = curves.iloc[np.argsort(number, kind="stable")], np.sort(number)
    first = np.flatnonzero(np.diff(number, prepend=-1))
    at, value = curves[check_axis(x)].to_numpy(float), curves["judged_us"].to_numpy(float)
    judged = np.full((first.size, points.size), np.inf)
    for column, point in enumerate(points):
        passed = np.bincount(number[at <= point], minlength=first.size)
        found = np.where(passed > 0, value[first + np.maximum(passed, 1) - 1], np.nan)
        judged[:, column] = np.where(np.isnan(found), np.inf, found)
    keys = curves[list(RUN)].iloc[np.repeat(first, points.size)].reset_index(drop=True)
    plain = {n: "int64" if n in ("lanes", "seed") else str for n in RUN}
    budget = np.tile(points, first.size)
    return keys.astype(plain).assign(axis=x, budget=budget, judged_us=judged.ravel())


def workload_logs(
    runs: pd.DataFrame, budgets: Budgets = (None,), *, x: str = "spent_trials"
) -> pd.DataFrame:
    """Returns log latencies per budget, workload, searcher and seed, averaged over GPUs.

    The same workload on several GPUs is one piece of evidence: its runs of one seed become one
    value here, so whatever they share is not counted twice.

    Returns:
        Columns `budget` (inf: the end), `kernel`, `workload`, `searcher`, `seed`, `log` (inf
        without an incumbent), sorted by them.

    Raises:
        UsageError: Several lane counts; a searcher without runs of some workload, or whose seeds
            of one are not on all its GPUs.
    """
    single_lanes(runs)
    table = judged_at(runs, budgets, x=x)
    table["log"] = np.log(table["judged_us"])
    keys = ["budget", "kernel", "workload", "searcher", "seed"]
    found = table.groupby(keys, observed=True, sort=True)["log"].agg(["mean", "size"])
    gpus = found["size"].unstack("searcher").groupby(level="workload")
    good = gpus.min().eq(gpus.max().max(axis=1), axis=0).stack()
    if not good.all():
        workload, searcher = good.index[~good][0]
        raise UsageError(
            "compared searchers must have runs of every workload, with the same seeds on each of "
            f"its GPUs; {searcher} lacks some on {workload}: run them, or leave one of them out"
        )
    return found["mean"].rename("log").reset_index()


def workload_means(logs: pd.DataFrame) -> pd.DataFrame:
    """Returns mean logs over seeds: a row per (kernel, workload), a column per searcher."""
    return logs.groupby(["kernel", "workload", "searcher"], observed=True)["log"].mean().unstack()


def latency_at(
    runs: pd.DataFrame,
    budgets: Budgets = BUDGETS,
    *,
    x: str = "spent_trials",
    optima: pd.DataFrame | None = None,
    reference: str | None = "pattern",
    **how: float,
) -> pd.DataFrame:
    """Returns the quality of searchers at budgets, relative to the optimum and to a searcher.

    Args:
        runs: The tidy table of runs, of one lane count.
        budgets: In x; None: the end of the run.
        x: "spent_trials", "machine_s" or "elapsed_s".
        optima: Columns `workload`, `optimum_us` and, where GPUs differ, `gpu`, as for
            `convergence_bands`; None: no rows relative to the optimum.
        reference: The searcher that every other is divided by; None: no such rows.
        **how: `confidence`, `resamples` and `seed` of the intervals, as in `latency_ratios`.

    Returns:
        The schema of `latency_ratios`, a row per workload and searcher and a geomean row per
        searcher, for every `budget` (in x; null: the end) and `reference` ("optimum", or the
        searcher), with the further column `axis`. `p90` and `worst` of rows against the optimum
        are the quality of a bad and of the worst seed. `n_success` counts runs with an incumbent
        by then.

    Source:
        The fixed-cost view of Hansen et al., arXiv 1605.03560, section 3; the interval: Davison
        and Hinkley, "Bootstrap Methods and their Application" 1997, section 3.8.
    """
    if optima is None and reference is None:
        raise UsageError("latency_at needs optima or a reference searcher, got neither")
    return judged_ratios(judged_at(runs, budgets, x=x), optima=optima, reference=reference, **how)


def judged_ratios(
    table: pd.DataFrame, *, optima: pd.DataFrame | None, reference: str | None, **how: float
) -> pd.DataFrame:
    """Returns what `latency_at` does, from what `judged_at` returned, of one axis."""
    table = table.assign(weight=1.0, amount=np.log(table["judged_us"]))
    table["success"] = np.isfinite(table["amount"])
    references = [] if reference is None else [reference]
    if optima is not None:
        references.insert(0, None)
        optimum = by_cell(optima, "optimum_us", what="optima")
        cells = zip(table["gpu"], table["workload"], strict=True)
        table["level"] = np.log([optimum(*cell) for cell in cells])
    tables = []
    for budget, samples in table.groupby("budget", sort=True):
        for other in references:
            facts = {"measure": "latency_at", "unit": "us", "reference": other or "optimum"}
            found = ratio_table(
                samples, facts, reference=other, logged=True, bootstrap=Bootstrap(**how)
            )
            tables.append(found.assign(axis=table["axis"].iloc[0], budget=budget))
    return pd.concat(tables, ignore_index=True).replace({"budget": np.inf}, np.nan)
