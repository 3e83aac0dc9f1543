"""The score P of the auto-tuning methodology: 0 is random search, 1 finds the optimum at once.

Differences from the published implementation: the axis is trials, not seconds (its seconds are
trials times a median); the baseline is the expected latency, not the latency at the expected rank;
runs are averaged, not smoothed by isotonic regression.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from kt_lab.baseline import expected_best
from kt_lab.errors import UsageError
from kt_lab.stats.curves import judged_curves, step_values
from kt_lab.stats.intervals import percentile_bounds, resample_means
from kt_lab.stats.pairs import Bootstrap
from kt_lab.stats.significance import seed_draws
from kt_lab.stats.tables import CELL, RUN, by_cell, check_columns, check_searcher, single_lanes

_FACTS = ["from_trials", "to_trials", "held"]
_KEYS = ["kernel", "workload", "searcher", "seed"]
_UNCERTAIN = ["low", "high", "standard_error", "difference_low", "difference_high"]


def methodology_runs(
    runs: pd.DataFrame,
    readings: pd.DataFrame,
    optima: pd.DataFrame,
    *,
    cutoffs: tuple[float, float] = (0.01, 0.95),
    limit: int | None = None,
) -> pd.DataFrame:
    """Returns the score P of every run.

    P_t = (S(t) - F(t)) / (S(t) - optimum) at every count t of trials between the budgets of the
    two cutoffs (`cutoff_draws`), averaged over t. F is the judged latency of the
    run's incumbent (of its last one once it has ended), S the exact expectation of the same for
    uniform random search, averaged over the visits that are read. Where there is no incumbent
    yet, both are charged the slowest judged config of the landscape. So P is linear in F: random
    search scores 0 on average, exactly, and a run that holds the optimum throughout scores 1.

    Args:
        runs: The tidy table of runs, of one lane count.
        readings: From `kt_lab.baseline.readings`.
        optima: Columns `workload`, `optimum_us` and, where GPUs differ, `gpu`.
        cutoffs: Of start and end, increasing, in [0, 1].
        limit: Largest count of trials that is scored, e.g. the budget of the runs; None: none.

    Returns:
        One row per run: the columns of RUN, `score` (null where random search already expects
        the optimum), `from_trials`, `to_trials` (the range of t) and `held` (share of it that
        lies beyond the end of the run).

    Source:
        Willemsen et al., "A Methodology for Comparing Auto-Tuning Optimization Algorithms",
        FGCS 2024, doi 10.1016/j.future.2024.05.021, sections 3.2-3.4.
    """
    single_lanes(runs)
    check_columns(readings, (*CELL, "config", "visit", "latency_us", "judged_us"), what="readings")
    optimum = by_cell(optima, "optimum_us", what="optima")
    known = {cell: part for cell, part in readings.groupby(list(CELL), observed=True)}
    rows = []
    for cell, table in judged_curves(runs).groupby(list(CELL), observed=True, sort=True):
        if cell not in known:
            raise UsageError(f"readings must hold every landscape of the runs, got none of {cell}")
        latency = known[cell].groupby("config")["latency_us"].mean()
        start, end = (min(cutoff_draws(latency, c), limit or len(latency)) for c in cutoffs)
        t = np.arange(start, end + 1)
        base, worst = _random_search(known[cell], t)
        room = base - optimum(cell[0], cell[2])
        open_ = room > 1e-12 * worst  # elsewhere there is nothing left to win
        for key, run in table.groupby(list(RUN), observed=True, sort=True):
            judged = step_values(run, t, x="spent_trials", value="judged_us")
            scores = ((base - np.minimum(judged, worst)) / room.clip(1e-300))[open_]
            held = (t > run["spent_trials"].iloc[-1]).mean()
            rows.append((*key, scores.mean() if scores.size else np.nan, start, end, held))
    return pd.DataFrame(rows, columns=[*RUN, "score", *_FACTS])


def cutoff_draws(values: Sequence[float | None], cutoff: float) -> int:
    """Returns how many evaluations random search needs to come some way to the optimum.

    The way is measured from the median: the level is optimum + (median - optimum) (1 - cutoff).
    With the n ok values from slowest to fastest, i is the first (from 0) at or below it (the one
    before, if that is the optimum), and the answer i / (n + 1 - i), rounded up: the inverse of
    the expected rank of the best of m draws. Failures are not counted.

    Args:
        values: Latencies per config, shape (N,), in microseconds; null: failed.
        cutoff: In [0, 1]; 0.95 is the methodology's end, 0.01 its start.

    Returns:
        At least 1.

    Source:
        Willemsen et al., FGCS 2024, doi 10.1016/j.future.2024.05.021, section 3.3.
    """
    column = np.asarray(values, dtype=np.float64)
    ranked = -np.sort(-column[~np.isnan(column)])
    if not 0 <= cutoff <= 1 or ranked.size == 0:
        raise UsageError(f"a cutoff must lie in 0..1, with an ok config; got {cutoff}")
    level = ranked[-1] + (np.median(ranked) - ranked[-1]) * (1 - cutoff)
    at = int(np.argmax(ranked <= level))
    if cutoff < 1 and ranked[at] == ranked[-1]:
        at -= 1
    return max(1, math.ceil(at / (ranked.size + 1 - at)))


def _random_search(readings: pd.DataFrame, t: np.ndarray) -> tuple[np.ndarray, float]:
    """Returns the expectation of random search after t trials, and the slowest judged config."""
    worst = float(readings["judged_us"].max())
    found = []
    for _, visit in readings.groupby("visit"):
        table = expected_best(visit["latency_us"], t, judged=visit["judged_us"])
        none = table["p_none"]
        found.append((1 - none) * table["expected"].fillna(worst) + none * worst)
    return np.mean(found, axis=0), worst


def methodology_scores(
    runs: pd.DataFrame,
    readings: pd.DataFrame,
    optima: pd.DataFrame,
    *,
    reference: str = "pattern",
    cutoffs: tuple[float, float] = (0.01, 0.95),
    limit: int | None = None,
    **how: float,
) -> pd.DataFrame:
    """Returns the score P of every searcher with its sampling error over runs.

    The published error is the spread of an averaged curve over time; here kernels, their
    workloads and their seeds are resampled, the same for every searcher.

    Args:
        runs: The tidy table of runs, of one lane count, every searcher on every workload.
        readings: From `kt_lab.baseline.readings`.
        optima: Columns `workload`, `optimum_us` and, where GPUs differ, `gpu`.
        reference: Whose score is subtracted from every other.
        cutoffs: As in `methodology_runs`.
        limit: As in `methodology_runs`.
        **how: `confidence`, `resamples` and `seed` of the intervals, as in `latency_ratios`.

    Returns:
        One row per searcher: `searcher`, `reference`, `lanes`, `estimate` (mean over workloads,
        each weighing the same; `methodology_runs` has them one by one), `low`, `high`,
        `standard_error` (of the resampling), `difference`, `difference_low`, `difference_high`
        (P - P of the reference), `from_trials`, `to_trials`, `held` (means), `n_kernels`,
        `n_workloads` (those without a score do not count), `n_seeds` (the fewest of any
        workload), `confidence`. Bounds and errors are null where one run of each on one
        workload is all there is.

    Raises:
        UsageError: A searcher without runs of some workload; nothing that random search leaves
            to win.
    """
    check_searcher(runs, reference)
    table = _complete(methodology_runs(runs, readings, optima, cutoffs=cutoffs, limit=limit))
    bootstrap = Bootstrap(**how)
    each = table.groupby(_KEYS[:3], observed=True)
    means = each[["score", *_FACTS]].mean().groupby("searcher", observed=True).mean()
    drawn = resample_means(seed_draws(table, "score"), bootstrap.resamples, bootstrap.rng(""))
    other = means.index.get_loc(reference)
    rows = pd.DataFrame({"searcher": means.index.astype(str), "reference": reference})
    rows["lanes"], rows["estimate"] = single_lanes(runs), means["score"].to_numpy()
    rows["difference"] = rows["estimate"] - rows["estimate"].iloc[other]
    alone = table["workload"].nunique() == 1 and each.size().max() == 1
    rows[_UNCERTAIN] = np.nan if alone else _uncertainty(drawn, other, bootstrap.confidence)
    rows[_FACTS] = means[_FACTS].to_numpy()
    for name in ("kernel", "workload"):
        rows[f"n_{name}s"] = table[name].nunique()
    return rows.assign(n_seeds=each.size().min(), confidence=bootstrap.confidence)


def _complete(scores: pd.DataFrame) -> pd.DataFrame:
    """Returns means over GPUs, if every seed of a workload ran on all of them: else none compare.

    A seed that lacks a GPU would weigh those that it has more than other seeds do.
    """
    cells = scores.groupby(["workload", "searcher", "seed"], observed=True)["gpu"].nunique()
    for workload, gpus in cells.unstack(["searcher", "seed"]).iterrows():
        if gpus.min() < gpus.max():
            raise UsageError(
                "compared searchers must have the runs of every seed on the same GPUs; "
                f"{gpus.idxmin()[0]} lacks one of {workload}: run it, or leave one of them out"
            )
    table = scores.groupby(_KEYS, observed=True)[["score", *_FACTS]].mean().dropna().reset_index()
    if table.empty:
        raise UsageError("a score needs a workload on which random search can be beaten, got none")
    counts = table.groupby(["workload", "searcher"], observed=True).size().unstack("searcher")
    for workload, row in counts.iterrows():
        if row.isna().any():
            raise UsageError(
                f"compared searchers must have runs of every workload; {row.isna().idxmax()} "
                f"lacks {workload}: run it, or leave one of them out"
            )
    return table


def _uncertainty(drawn: np.ndarray, other: int, confidence: float) -> np.ndarray:
    """Returns _UNCERTAIN of every column of resampled means, differences to column `other`."""
    away = percentile_bounds(drawn - drawn[:, [other]], confidence)
    spread = drawn.std(axis=0, ddof=1)
    return np.column_stack([*percentile_bounds(drawn, confidence), spread, *away])
