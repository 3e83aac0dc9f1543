"""The geometric mean of stored ratios, one per workload, with its interval."""

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.stats.intervals import (
    CONFIDENCE,
    RESAMPLES,
    Draw,
    Interval,
    mean_log,
    percentile_interval,
    resample_means,
)
from kt_lab.stats.tables import check_columns


def geomean_interval(
    ratios: pd.DataFrame,
    *,
    column: str = "ratio",
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Returns the geometric mean of one ratio per workload, resampling kernels and workloads.

    For ratios without seeds (say the tuned latency over a vendor library's); ratios of searchers
    go through `latency_ratios` and its kin, which resample seeds as well.

    Args:
        ratios: Columns `kernel` and `column`, one row per workload; every ratio >= 0.
        column: The column of ratios, unitless.
        confidence: In (0, 1).
        resamples: Number of bootstrap resamples.
        seed: Fixes the resampling.
    """
    check_columns(ratios, ("kernel", column), what="ratios")
    values = ratios[column].to_numpy(float, na_value=np.nan)
    if not (values >= 0).all():
        raise UsageError(
            f"every ratio must be >= 0 and not null, got {values[~(values >= 0)][0]} in "
            f"{column!r}; a workload without a result has the ratio inf, or no row"
        )
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    draws: dict[str, list[Draw]] = {}
    for kernel, log in zip(ratios["kernel"].astype(str), logs, strict=True):
        draws.setdefault(kernel, []).append(lambda n, _, log=log: np.full(n, log))
    means = resample_means(draws, resamples, np.random.default_rng(seed))
    return Interval(float(np.exp(mean_log(logs))), *percentile_interval(means, confidence))
