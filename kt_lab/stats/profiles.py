"""Distributions instead of means: performance profiles, and which share of runs got how far."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.stats.curves import judged_curves
from kt_lab.stats.tables import CELL, by_cell, check_columns, single_lanes
from kt_lab.stats.times import times_to_levels

WITHIN = tuple(np.geomspace(1.0, 0.01, 21).tolist())


def performance_profile(table: pd.DataFrame, *, value: str = "value") -> pd.DataFrame:
    """Returns on which share of workloads each searcher is within a factor of the best one.

    Args:
        table: Columns of CELL, `searcher` and `value`, one row per workload and searcher; of a
            table with a `scope`, its "workload" rows are taken. So the rows of `latency_at` of
            one budget and reference, or of `running_times` (value="estimate") of one target.
        value: The column that is compared, lower is better; inf or null: not solved.

    Returns:
        Steps: `searcher`, `tau` (factor over the lowest value of the workload, ascending from 1,
        the same for every searcher), `share` (workloads within that factor, in [0, 1]; it ends
        below 1 where a searcher solves not all, and is 0 at 1 alone where nobody solves any),
        `n_values` (its rows) and `n_workloads` (cells, those that nobody solves included).

    Source:
        Dolan and More, "Benchmarking optimization software with performance profiles",
        Mathematical Programming 2002, equation (2.1).
    """
    check_columns(table, (*CELL, "searcher", value), what="values")
    if "scope" in table.columns:
        table = table[table["scope"] == "workload"]
    keys = [*CELL, "searcher"]
    if (twice := table.duplicated(keys)).any():
        raise UsageError(
            "a profile needs one value per workload and searcher, got two of "
            f"{table.loc[twice, keys].iloc[0].to_dict()}; select one budget and one reference"
        )
    wide = table.set_index(keys)[value].astype(float).unstack().fillna(np.inf)
    wide = wide.div(wide.min(axis=1), axis=0).round(12).fillna(np.inf)
    taus = wide.stack().rename("tau")
    points = np.unique([1.0, *taus[np.isfinite(taus)]])  # 1: where nobody solves any, too
    return _shares(taus.reset_index(), "tau", points)


def _shares(table: pd.DataFrame, column: str, points: Sequence[float]) -> pd.DataFrame:
    """Returns per searcher which share of values is at most each point, workloads equal in weight.

    Args:
        table: Columns of CELL, `searcher` and `column`, inf where never.
        column: What is counted, and the name of the points.
        points: At which; ascending.
    """
    points = np.asarray(points, float)
    parts = []
    for searcher, group in table.groupby("searcher", observed=True, sort=True):
        shares = [
            np.searchsorted(np.sort(cell), points, side="right") / len(cell)
            for _, cell in group.groupby(list(CELL), observed=True)[column]
        ]
        part = pd.DataFrame({"searcher": searcher, column: points})
        part["share"] = np.mean(shares, axis=0)
        parts.append(part.assign(n_values=len(group), n_workloads=len(shares)))
    return pd.concat(parts, ignore_index=True)


def runtime_ecdf(
    runs: pd.DataFrame,
    optima: pd.DataFrame,
    *,
    within: Sequence[float] = WITHIN,
    x: str = "spent_trials",
    points: Sequence[float] | None = None,
) -> pd.DataFrame:
    """Returns which share of (run, target) pairs has been reached at what cost.

    Unlike COCO, failed runs are not restarted by simulation: the curve of a searcher ends at the
    share that its runs reach.

    Args:
        runs: The tidy table of runs, of one lane count.
        optima: Columns `workload`, `optimum_us` and, where GPUs differ, `gpu`.
        within: Targets: how much slower than the optimum, as fractions; 1 to 0.01, 21 of them.
        x: "spent_trials", "machine_s" or "elapsed_s".
        points: In x; None: 200 of equal ratio, from 1/1000 of the longest run (or 1 trial) to it.

    Returns:
        `searcher`, `time` (in x), `share` (every workload weighing the same), `n_values` (pairs
        of run and target), `n_workloads`, `axis`, `n_targets`.

    Source:
        Hansen et al., "COCO: performance assessment", arXiv 1605.03560, section 5.
    """
    single_lanes(runs)
    optimum = by_cell(optima, "optimum_us", what="optima")
    slack = 1 + np.asarray(within, dtype=float)
    times = times_to_levels(judged_curves(runs), lambda *c: optimum(*c) * slack, x=x)
    if points is None:
        longest = max(times["total"].max(), 1.0 if x == "spent_trials" else 1e-6)  # 0: none ended
        points = np.geomspace(1.0 if x == "spent_trials" else longest / 1000, longest, 200)
    found = _shares(times.fillna({"time": np.inf}), "time", points)
    return found.assign(axis=x, n_targets=slack.size)
