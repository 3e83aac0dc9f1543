"""Time to target: when a run first held a config that was good enough, and what that costs."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.stats.curves import judged_curves
from kt_lab.stats.intervals import percentile_bounds, quantiles, resample_means
from kt_lab.stats.pairs import Bootstrap, ratio_table
from kt_lab.stats.tables import (
    CELL,
    RUN,
    UNITS,
    by_cell,
    check_axis,
    check_columns,
    check_searcher,
)


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
    check_searcher(final, reference)
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
    target = by_cell(targets, "target_us", what="targets")
    return times_to_levels(curves, lambda *cell: [target(*cell)], x=x)


def times_to_levels(
    curves: pd.DataFrame, levels: Callable[[str, str], Sequence[float]], *, x: str
) -> pd.DataFrame:
    """Returns `time_to_target` for several targets per workload, (gpu, workload) -> targets."""
    check_axis(x)
    check_columns(curves, (*RUN, x, "judged_us"), what="curves")
    number = curves.groupby(list(RUN), observed=True, sort=True).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    steps = np.split(curves[x].to_numpy(float)[order], starts[1:])
    judged = curves["judged_us"].to_numpy(float, na_value=np.nan)[order]
    judged = np.split(np.where(np.isnan(judged), np.inf, judged), starts[1:])
    keys = curves[list(RUN)].iloc[order[starts]]
    rows = []
    for key, at_s, value in zip(keys.itertuples(index=False), steps, judged, strict=True):
        wanted = np.asarray(levels(key[0], key[2]), dtype=float)
        best = np.minimum.accumulate(value)
        reach = np.searchsorted(-best, -wanted)
        for level, at in zip(wanted, reach, strict=True):
            # An infinite target, of a reference that found nothing, is reached by finding any.
            at = max(at, np.searchsorted(-best, -np.inf, side="right"))
            reached = bool(at < at_s.size)
            time = at_s[at] if reached else np.nan
            rows.append((*key, x, level, reached, time, at_s[-1], time if reached else at_s[-1]))
    names = [*RUN, "axis", "target_us", "reached", "time", "total", "cost"]
    return pd.DataFrame(rows, columns=names)


def running_times(
    runs: pd.DataFrame,
    optima: pd.DataFrame,
    *,
    within: Sequence[float] = (0.10, 0.05, 0.02, 0.01),
    axes: Sequence[str] = ("spent_trials", "elapsed_s"),
    **how: float,
) -> pd.DataFrame:
    """Returns what it costs to come near the optimum, with runs that never do counted in full.

    The expected running time is the cost of all runs (until the target, else to their end) over
    the number of runs that reached it: what starting anew until it is reached costs on average.

    Args:
        runs: The tidy table of runs, of one lane count.
        optima: Columns `workload`, `optimum_us` and, where GPUs differ, `gpu`.
        within: Targets: how much slower than the optimum is near enough, as fractions.
        axes: What costs are counted in; see `kt_lab.stats.tables.AXES`.
        **how: `confidence`, `resamples` and `seed` of the intervals, as in `latency_ratios`.

    Returns:
        The schema of `latency_ratios` per `axis` and `within`, with estimate, low and high in
        `unit` ("trials" or "s"), a null reference, and `success_rate` (n_success / n_runs). Scope
        "workload"; "geomean" over workloads, infinite as soon as no run reaches the target of
        one; "pooled": the cost of all runs of all workloads over all successes, finite where
        any run succeeds, and ruled by the workloads that are hardest to tune.

    Source:
        Hansen et al., "COCO: performance assessment", arXiv 1605.03560, section 3.
    """
    bootstrap = Bootstrap(**how)
    optimum = by_cell(optima, "optimum_us", what="optima")
    curves = judged_curves(runs)
    slack = 1 + np.asarray(within, dtype=float)
    tables = []
    for x in axes:
        times = times_to_levels(curves, lambda *cell: optimum(*cell) * slack, x=x)
        times["amount"], times["success"], times["level"] = times["cost"], times["reached"], 1.0
        times["weight"] = times["reached"].astype(float)
        for at, share in enumerate(within):
            samples = times.iloc[at :: slack.size]
            facts = {"measure": "running_time", "unit": UNITS[x], "within": share}
            table = ratio_table(samples, facts, reference=None, logged=False, bootstrap=bootstrap)
            tables += [part.assign(axis=x) for part in (table, _pooled(table, samples, bootstrap))]
    found = pd.concat(tables, ignore_index=True)
    return found.assign(success_rate=found["n_success"] / found["n_runs"])


def _pooled(table: pd.DataFrame, samples: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Returns the geomean rows turned into rows of all runs pooled."""
    pooled = table[table["scope"] == "geomean"].set_index("searcher", drop=False)
    for searcher, runs in samples.groupby(samples["searcher"].astype(str)):
        draws: dict = {}
        for (kernel, _), part in runs.groupby(["kernel", "workload"], observed=True, sort=True):
            both = part[["amount", "weight"]].to_numpy(float)

            def draw(n, rng, both=both):
                return both[rng.integers(len(both), size=(n, len(both)))].sum(axis=1)

            draws.setdefault(kernel, []).append(draw)
        cost, reached = resample_means(draws, bootstrap.resamples, bootstrap.rng(searcher)).T
        with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0: free, but nothing reached
            drawn = np.where(reached > 0, cost / reached, np.inf)
        total = runs["amount"].sum() / runs["weight"].sum() if runs["weight"].any() else np.inf
        bounds = percentile_bounds(drawn, bootstrap.confidence) if len(runs) > 1 else (np.nan,) * 2
        pooled.loc[searcher, ["estimate", "low", "high"]] = total, *bounds
    return pooled.assign(scope="pooled")
