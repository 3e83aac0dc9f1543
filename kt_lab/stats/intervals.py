"""Intervals by hierarchical bootstrap: kernels, then their workloads, then their seeds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

CONFIDENCE = 0.95
RESAMPLES = 4000

Draw = Callable[[int, np.random.Generator], np.ndarray]
"""draw(n, rng) -> (n, ...) values of one workload, each from seeds resampled anew: usually one
log ratio, or several numbers that belong together, along further axes."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A geometric mean of ratios and its interval, unitless; inf and 0 are legal values."""

    estimate: float
    low: float
    high: float


def quantiles(values: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """Returns linear quantiles along the first axis that stay exact where values are infinite.

    `numpy.quantile` interpolates inf - inf to NaN. Here a quantile between a finite and an
    infinite value is infinite, and one that falls on a value is that value.

    Args:
        values: Shape (n, ...), n >= 1; may hold +inf, never NaN.
        levels: Each in [0, 1].

    Returns:
        Shape (levels, ...).
    """
    ranked = np.sort(np.asarray(values, float), axis=0)
    found = []
    for level in levels:
        position = level * (len(ranked) - 1)
        below = math.floor(position)
        above = min(below + 1, len(ranked) - 1)
        weight = position - below
        if weight == 0:
            found.append(ranked[below])
            continue
        with np.errstate(invalid="ignore"):
            mixed = ranked[below] + weight * (ranked[above] - ranked[below])
        found.append(np.where(ranked[below] == ranked[above], ranked[below], mixed))
    return np.stack(found)


def median_interval(
    values: np.ndarray, *, confidence: float = CONFIDENCE
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the exact interval of the median along the first axis, from order statistics.

    Whatever the distribution, at least `confidence` of such intervals hold the median. Fewer than
    six values give no 95% interval: both ends are then NaN.

    Args:
        values: Shape (n, ...), n >= 1; may hold +inf, never NaN.
        confidence: In (0, 1).

    Source:
        Conover, "Practical Nonparametric Statistics", 3rd edition 1999, section 3.2.
    """
    ranked = np.sort(np.asarray(values, float), axis=0)
    rank = int(scipy.stats.binom.ppf((1 - confidence) / 2, len(ranked), 0.5))
    if rank == 0:
        return np.full((2, *ranked.shape[1:]), np.nan)
    return ranked[rank - 1], ranked[-rank]


def log_ratio(value: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Returns value - reference of two logarithms; 0 where both are the same infinity."""
    with np.errstate(invalid="ignore"):
        return np.where(value == reference, 0.0, np.subtract(value, reference))


def mean_log(logs: np.ndarray) -> float:
    """Returns the mean of log ratios; +inf where +inf and -inf meet.

    A workload on which only the searcher fails and one on which only the reference fails have
    no mean; the failure of the searcher that is judged prevails.
    """
    with np.errstate(invalid="ignore"):
        mean = float(np.mean(logs))
    return math.inf if math.isnan(mean) else mean


def percentile_bounds(values: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the percentile interval of resampled values, along the first axis.

    Order statistics, rounded outwards, never interpolation: infinities stay infinities.
    """
    ranked = np.sort(values, axis=0)
    tail = (1 - confidence) / 2 * (len(ranked) - 1)
    return ranked[math.floor(tail)], ranked[math.ceil(len(ranked) - 1 - tail)]


def percentile_interval(logs: np.ndarray, confidence: float) -> tuple[float, float]:
    """Returns the percentile interval of resampled log ratios, as ratios."""
    low, high = percentile_bounds(logs, confidence)
    return float(np.exp(low)), float(np.exp(high))


def resample_means(
    draws: Mapping[str, Sequence[Draw]], resamples: int, rng: np.random.Generator
) -> np.ndarray:
    """Returns the mean of what was drawn, of every hierarchical resample, (resamples, ...).

    Each resample draws as many kernels as there are, with replacement; within each drawn kernel
    as many of its workloads as it has; within each drawn workload its seeds. Workloads of one
    kernel are alike, so resampling workloads alone would give intervals that are too narrow.

    Args:
        draws: Per kernel one Draw per workload.
        resamples: Number of resamples.
        rng: The only source of randomness.
    """
    kernels = sorted(draws)
    chosen = rng.integers(len(kernels), size=(resamples, len(kernels)))
    shape = draws[kernels[0]][0](0, rng).shape[1:]
    total, count = np.zeros((resamples, *shape)), np.zeros(resamples)
    for number, kernel in enumerate(kernels):
        slots = np.nonzero(chosen == number)[0]  # the resample of each time it was drawn
        workloads = draws[kernel]
        members = rng.integers(len(workloads), size=(slots.size, len(workloads)))
        for position, draw in enumerate(workloads):
            where = slots[np.nonzero(members == position)[0]]
            with np.errstate(invalid="ignore"):
                np.add.at(total, where, draw(where.size, rng))
            count += np.bincount(where, minlength=resamples)
    mean = (total.T / count).T
    return np.where(np.isnan(mean), np.inf, mean)
