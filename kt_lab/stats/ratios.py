"""Searchers against a reference: latency, wall-clock and convergence-time ratios.

All three tables share one schema: one row per (workload, searcher), then one geomean row per
searcher over its workloads. A ratio below 1 is better than the reference. Intervals are
percentile bootstraps: a workload's row resamples its seeds, a geomean row resamples kernels, the
workloads of each and the seeds of each of those.
"""

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.stats.curves import final_latency, judged_curves
from kt_lab.stats.pairs import Bootstrap, ratio_table
from kt_lab.stats.tables import UNITS, check_axis, check_judged, single_lanes
from kt_lab.stats.times import convergence_targets, time_to_target

LATENCY = "latency"
WALL_CLOCK = "wall_clock"
CONVERGENCE = "convergence_time"
TARGET = "target_time"


def latency_ratios(
    runs: pd.DataFrame, *, reference: str = "pattern", **how: float
) -> pd.DataFrame:
    """Returns the ratios of judged final latencies to those of the reference.

    Per workload: the geometric mean over seeds of the judged latency of the final incumbent,
    divided by the same of the reference. A run that ends without a judged incumbent counts as
    infinitely slow and makes the ratio of its workload infinite; it is never dropped.

    Args:
        runs: The tidy table of runs, of one lane count.
        reference: The searcher that every other is divided by.
        **how: `confidence` of the intervals, in (0, 1); number of bootstrap `resamples`; `seed`,
            which fixes them: a searcher's rows do not depend on which others are present.

    Returns:
        One row per (workload, searcher) and per geomean, in this order of columns: `measure`,
        `scope` ("workload" or "geomean"), `gpu`, `kernel`, `workload` (null in a geomean row; a
        geomean over several GPUs has a null gpu), `searcher`, `reference`, `lanes`, `estimate`,
        `low`, `high` (unitless; null where one run of each on one workload is all there is),
        `p90`, `worst` (90th percentile and slowest of the seeds, over the reference's mean; in a
        geomean row, geomeans of those), `value`, `reference_value` (in `unit`; null in a geomean
        row), `unit`, `target_us`, `within` (null here),
        `n_kernels`, `n_workloads`, `n_gpus`, `n_seeds` (the fewest of any workload), `n_success`
        (runs with a finite result), `n_runs`, `reference_n_success`, `reference_n_runs`,
        `confidence`. In a geomean, every workload weighs the same; one on several GPUs is one
        workload, the mean over them.

    Raises:
        UsageError: Several lane counts, or a workload without the reference.
    """
    samples = final_latency(_comparable(runs))
    judged = samples["judged_us"].fillna(np.inf)
    samples = samples.assign(amount=np.log(judged), weight=1.0, success=np.isfinite(judged))
    facts = {"measure": LATENCY, "unit": "us"}
    return ratio_table(
        samples, facts, reference=reference, logged=True, bootstrap=Bootstrap(**how)
    )


def wall_clock_ratios(
    runs: pd.DataFrame, *, reference: str = "pattern", x: str = "elapsed_s", **how: float
) -> pd.DataFrame:
    """Returns the ratios of what whole runs cost, until the searcher or its budget stopped them.

    Per workload: the arithmetic mean over seeds (costs add up) divided by the reference's. A
    searcher that gives up early is cheap: read it beside `latency_ratios`.

    Args:
        runs: The tidy table of runs, of one lane count.
        reference: The searcher that every other is divided by.
        x: "elapsed_s", "machine_s" or "spent_trials".
        **how: `confidence`, `resamples` and `seed`, as in `latency_ratios`.

    Returns:
        As `latency_ratios`, where every run is a success; `p90` and `worst` are null.
    """
    samples = final_latency(_comparable(runs))
    if samples[check_axis(x)].isna().any():
        raise UsageError(f"every run must tell its {x} to be compared by it; give another x")
    samples = samples.assign(amount=samples[x].astype(float), weight=1.0, success=True)
    facts = {"measure": WALL_CLOCK, "unit": UNITS[x]}
    return ratio_table(
        samples, facts, reference=reference, logged=False, bootstrap=Bootstrap(**how)
    )


def convergence_time_ratios(
    runs: pd.DataFrame,
    *,
    reference: str = "pattern",
    within: float = 0.01,
    x: str = "elapsed_s",
    optima: pd.DataFrame | None = None,
    **how: float,
) -> pd.DataFrame:
    """Returns the ratios of expected running times to a fixed target per workload.

    The target is `within` above the median judged final latency of the reference, or above the
    optimum where optima are given, and stays fixed in the resampling. Runs that never reach it
    enter with their whole cost (see `running_times`); a searcher that no run of reaches it has an
    infinite ratio.

    Args:
        runs: The tidy table of runs, of one lane count.
        reference: The searcher that sets the target and that every other is divided by.
        within: Distance of the target, as a fraction of that latency.
        x: "elapsed_s", "machine_s" or "spent_trials".
        optima: Columns `workload`, `optimum_us` and, where GPUs differ, `gpu`; None: the target
            is the reference's.
        **how: `confidence`, `resamples` and `seed`, as in `latency_ratios`.

    Returns:
        As `latency_ratios`, with `target_us` and `within`; `n_success` counts the runs that
        reached it; `p90` and `worst` are null. With optima, `measure` is "target_time".
    """
    if optima is None:
        final = final_latency(_comparable(runs))
        targets = convergence_targets(final, reference=reference, within=within)
    else:
        targets = optima.assign(target_us=optima["optimum_us"] * (1 + within))
    times = time_to_target(judged_curves(runs), targets, x=x)
    samples = times.assign(
        amount=times["cost"], weight=times["reached"].astype(float), success=times["reached"]
    )
    facts = {
        "measure": CONVERGENCE if optima is None else TARGET,
        "unit": UNITS[x],
        "within": within,
    }
    return ratio_table(
        samples, facts, reference=reference, logged=False, bootstrap=Bootstrap(**how)
    )


def _comparable(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the runs when they share one lane count and are judged."""
    single_lanes(runs)
    check_judged(runs)
    return runs
