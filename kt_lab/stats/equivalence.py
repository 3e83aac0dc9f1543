"""Are two searchers as good as each other: two one-sided tests on fixed workloads."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import scipy

from kt_lab.errors import UsageError
from kt_lab.stats.budgets import Budgets, workload_logs
from kt_lab.stats.intervals import log_ratio, mean_log
from kt_lab.stats.tables import check_searcher, single_lanes


def equivalence(
    runs: pd.DataFrame,
    searcher: str,
    reference: str,
    *,
    margin: float = 0.01,
    budgets: Budgets = (50, 100, 200),
    x: str = "spent_trials",
    level: float = 0.05,
    paired: bool = False,
) -> pd.DataFrame:
    """Returns whether two searchers' geomean latencies lie within a margin of each other.

    Seeds of the two count as independent runs: within a workload the difference of mean logs has
    Welch's variance s1^2/n1 + s2^2/n2; the estimate is the mean over workloads, its variance the
    sum of theirs / W^2, its degrees of freedom Satterthwaite's.
    Workloads are fixed: this is a claim about these workloads and GPUs, not kernels at large.
    With one seed, or with some but not all runs without an incumbent, nothing is decided.

    Args:
        runs: The tidy table of runs, of one lane count.
        searcher: The searcher that is judged.
        reference: The one it is divided by.
        margin: Ratios from 1 / (1 + margin) to 1 + margin count as equivalent, > 0.
        budgets: In x; None: the end of the run.
        x: "spent_trials", "machine_s" or "elapsed_s".
        level: Of each test, in (0, 0.5).
        paired: Use the differences of equal seeds instead, and their variance: for searchers
            that start alike from a seed, where the unpaired test is wary.

    Returns:
        One row per budget: `axis`, `budget` (null: the end), `searcher`, `reference`, `lanes`,
        `margin`, `level`, `paired`, `n_workloads`, `n_seeds` (the fewest of any workload and
        searcher), `estimate`, `low`, `high` (ratio and its 1 - 2 level interval), `p_faster` (of
        the hypothesis that the searcher is faster by the margin or more), `p_slower` (slower),
        `p_difference` (two-sided, of no difference at all), `verdict`: "equivalent" (p_faster
        and p_slower below the level), else "different" (p_difference below it), else
        "undecided".

    Source:
        Schuirmann 1987 (two one-sided tests); Lakens 2017 (the verdicts); Welch 1947.
    """
    if not margin > 0 or not 0 < level < 0.5:
        raise UsageError(f"margin must be > 0 and level in (0, 0.5), got {margin}, {level}")
    both = [check_searcher(runs, name) for name in (searcher, reference)]
    logs = workload_logs(runs[runs["searcher"].isin(both)], budgets, x=x)
    rows = []
    for budget, table in logs.groupby("budget", sort=True):
        arms = table.groupby(["workload", "searcher"], observed=True)[["log", "seed"]].agg(list)
        pairs = _pairs(*(arms.xs(name, level="searcher") for name in both), paired=paired)
        row = {"axis": x, "budget": budget, "searcher": searcher, "reference": reference}
        row |= {"lanes": single_lanes(runs), "margin": margin, "level": level, "paired": paired}
        row |= {"n_workloads": len(pairs), "n_seeds": arms["seed"].map(len).min()}
        rows.append(row | _verdict(*welch(pairs), math.log1p(margin), level))
    return pd.DataFrame(rows).replace({"budget": np.inf}, np.nan)


def _pairs(own: pd.DataFrame, other: pd.DataFrame, *, paired: bool) -> list[tuple]:
    """Returns the logs of both arms per workload, or their differences beside zeros.

    Where an arm is infinite in part, nothing is decided, and no difference may hide it.
    """
    pairs = list(zip(own["log"].map(np.asarray), other["log"].map(np.asarray), strict=True))
    if paired and own["seed"].tolist() != other["seed"].tolist():
        raise UsageError("paired runs must have the same seeds, got others; try paired=False")
    if not paired or any(0 < np.isinf(arm).mean() < 1 for pair in pairs for arm in pair):
        return pairs
    return [(log_ratio(*pair), np.zeros(len(pair[0]))) for pair in pairs]


def _verdict(estimate: float, error: float, freedom: float, theta: float, level: float) -> dict:
    """Returns interval, p-values and verdict of a mean of log ratios."""
    p_faster = _upper(estimate + theta, error, freedom)
    p_slower = _upper(theta - estimate, error, freedom)
    p_none = 2 * _upper(abs(estimate), error, freedom) if estimate else 1.0
    reach = scipy.stats.t.isf(level, freedom) * error if error else 0.0
    verdict = "different" if p_none < level else "undecided"
    return {
        "estimate": np.exp(estimate),
        "low": 0.0 if np.isinf(reach) else np.exp(estimate - reach),
        "high": np.inf if np.isinf(reach) else np.exp(estimate + reach),
        "p_faster": p_faster,
        "p_slower": p_slower,
        "p_difference": p_none,
        "verdict": "equivalent" if max(p_faster, p_slower) < level else verdict,
    }


def welch(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float, float]:
    """Returns estimate, standard error and degrees of freedom of a mean of differences.

    Args:
        pairs: Per workload the logs of both arms, shapes (>= 1,), inf where nothing was found.

    Returns:
        The error is inf where a variance is unknown, 0 where every arm is constant.
    """
    means, parts, freedoms = [], [], []
    for pair in pairs:
        means.append(float(log_ratio(*(arm.mean() for arm in pair))))
        for arm in pair:
            spread = 0.0 if (arm == arm[0]).all() else np.inf
            if spread and np.isfinite(arm).all():
                spread = arm.var(ddof=1)
            parts.append((spread if arm.size > 1 else np.inf) / arm.size / len(pairs) ** 2)
            freedoms.append(max(arm.size - 1, 1))
    total, freedom = sum(parts), 1.0
    if 0 < total < np.inf:
        freedom = total**2 / sum(part**2 / n for part, n in zip(parts, freedoms, strict=True))
    return mean_log(np.array(means)), math.sqrt(total), freedom


def _upper(distance: float, error: float, freedom: float) -> float:
    """Returns the one-sided p-value of a distance >= the one seen, given none."""
    if error == 0:
        return float(distance <= 0)
    if math.isinf(error):
        return 0.5
    return float(scipy.stats.t.sf(distance / error, freedom))
