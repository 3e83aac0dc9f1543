"""Time to target: when a run first held a config that was good enough, and what that costs."""

import numpy as np
import pandas as pd

from kt_lab.errors import UnknownName, UsageError
from kt_lab.stats.intervals import quantiles
from kt_lab.stats.tables import CELL, GROUP, RUN, by_cell, check_axis, check_columns


def convergence_targets(
    final: pd.DataFrame, *, reference: str = "pattern", within: float = 0.01
) -> pd.DataFrame:
    """Returns the latency that counts as converged, per workload.

    Args:
        final: From `final_latency`.
        reference: The searcher whose MEDIAN judged final latency sets the target. Runs that end
            without one count as infinite.
        within: How much slower than that median is still converged, as a fraction.

    Returns:
        The columns of CELL and `target_us` (microseconds), one row per workload and GPU.

    Raises:
        UsageError: A workload has no run of the reference.
    """
    check_columns(final, (*RUN, "judged_us"), what="final latencies")
    known = final["searcher"].astype(str).unique()
    if reference not in known:
        raise UnknownName("searcher", reference, known)
    rows = []
    for cell, table in final.groupby(list(CELL), observed=True, sort=True):
        judged = table.loc[table["searcher"] == reference, "judged_us"]
        if judged.empty:
            raise UsageError(
                f"every workload needs runs of the reference {reference!r}; {cell[2]} on "
                f"{cell[0]} has none - run it there, or leave the workload out"
            )
        median = float(quantiles(judged.fillna(np.inf).to_numpy(float), (0.5,))[0])
        rows.append((*cell, median * (1 + within)))
    return pd.DataFrame(rows, columns=[*CELL, "target_us"])


def time_to_target(
    curves: pd.DataFrame, targets: pd.DataFrame, *, x: str = "elapsed_s"
) -> pd.DataFrame:
    """Returns per run when its incumbent was first judged at least as fast as the target.

    Args:
        curves: From `incumbent_curves`.
        targets: Columns `workload`, `target_us` and, where GPUs differ, `gpu`; latencies in
            microseconds, one row per workload.
        x: "elapsed_s", "machine_s" or "spent_trials".

    Returns:
        One row per run: the columns of RUN, `axis` (the name of x), `target_us`, `reached`,
        `time` (in x; null when never reached), `total` (the whole run, in x) and `cost` (`time`
        if reached, else `total`: what the run contributes to the expected running time).
    """
    check_axis(x)
    check_columns(curves, (*RUN, x, "judged_us"), what="curves")
    target = by_cell(targets, "target_us", what="targets")
    rows = []
    for key, run in curves.groupby(list(RUN), observed=True, sort=True):
        level = target(key[0], key[2])
        steps = run[x].to_numpy(float)
        hits = np.flatnonzero(run["judged_us"].to_numpy(float, na_value=np.nan) <= level)
        time = steps[hits[0]] if hits.size else np.nan
        cost = time if hits.size else steps[-1]
        rows.append((*key, x, level, bool(hits.size), time, steps[-1], cost))
    names = [*RUN, "axis", "target_us", "reached", "time", "total", "cost"]
    return pd.DataFrame(rows, columns=names)


def expected_running_time(times: pd.DataFrame) -> pd.DataFrame:
    """Returns what reaching the target costs on average when failed runs are started anew.

    ERT = sum over runs of `cost` / number of runs that reached it; infinite when none did.

    Args:
        times: From `time_to_target`.

    Returns:
        One row per GROUP: `axis`, `target_us`, `ert` (in x), `n_success`, `n_runs`.

    Source:
        Hansen et al., "COCO: performance assessment", arXiv 1605.03560.
    """
    check_columns(times, (*GROUP, "axis", "reached", "cost"), what="times")
    keys = [*GROUP, "axis", "target_us"]
    table = times.groupby(keys, observed=True, sort=True, as_index=False).agg(
        cost=("cost", "sum"), n_success=("reached", "sum"), n_runs=("reached", "size")
    )
    reached = table["n_success"].to_numpy(float)
    safe = np.where(reached > 0, reached, 1.0)
    ert = np.where(reached > 0, table.pop("cost") / safe, np.inf)
    table.insert(len(keys), "ert", ert)
    return table
