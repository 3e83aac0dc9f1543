"""Statistics of paired rounds: which of several configs is fastest, and by how much.

Everything takes log latencies of shape (rounds, configs), NaN where a config was not timed, and
compares within rounds only, so that what a round does to all its configs alike drops out.

Sources: Wilcoxon 1945; Hodges and Lehmann 1963; Noether 1967 (with ties, the closed interval is
conservative); Tukey 1977 (fences); Rubin 1981 (Bayesian bootstrap).
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

RESAMPLES = 1000


@lru_cache(maxsize=256)
def _beyond(n: int, tail: float) -> int:
    """Returns how many Walsh averages of n values may lie beyond a bound of error `tail`."""
    mass = np.ones(1)  # of the sum of positive ranks, under symmetry
    for rank in range(1, n + 1):
        mass = (np.pad(mass, (0, rank)) + np.pad(mass, (rank, 0))) / 2
    return int(np.searchsorted(np.cumsum(mass), tail, side="right"))


@lru_cache(maxsize=32)
def _each_two(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of all twos of n values, each with itself included; read only."""
    return np.triu_indices(n)


def signed_rank(values: np.ndarray, *, tail: float) -> tuple[float, float, float]:
    """Returns lower bound, estimate and upper bound of a centre of symmetry.

    The estimate is that of Hodges and Lehmann, the median of all averages of two values (a value
    with itself included); the bounds are order statistics of the same averages.

    Args:
        values: Shape (n,), n >= 1, no NaN.
        tail: Probability that the centre lies beyond one bound, at most; with few values, the
            bounds are infinite.
    """
    first, second = _each_two(len(values))
    walsh = np.sort((values[first] + values[second]) / 2)
    beyond = _beyond(len(values), tail)
    low, high = (walsh[beyond - 1], walsh[-beyond]) if beyond else (-np.inf, np.inf)
    middle = walsh[(walsh.size - 1) // 2 : walsh.size // 2 + 1]
    estimate = np.nan if np.isnan(walsh[-1]) else np.mean(middle)  # as np.median, sorted once
    return float(low), float(estimate), float(high)


def leader(logs: np.ndarray, chosen: Sequence[int]) -> int:
    """Returns which of the chosen columns is lowest on average, the first of equals.

    Args:
        logs: Shape (rounds, configs); the chosen columns without NaN.
        chosen: Positions of columns, at least one.
    """
    paired = logs[:, chosen] - np.median(logs[:, chosen], axis=1, keepdims=True)
    return chosen[int(np.argmin([_tamed(column).mean() for column in paired.T]))]


def probability_of_best(
    logs: np.ndarray, winner: int, *, failed: Sequence[bool] | None = None
) -> float | None:
    """Returns the probability that one config is the fastest of all, ties shared.

    Each of RESAMPLES Bayesian bootstrap resamples gives the rounds random weights; a config
    beats the winner when its mean log ratio to it, over the rounds that both have, is below 0.
    Ratios beyond Tukey's fences are drawn back to them first. The same rounds give the same
    answer.

    Args:
        logs: Shape (rounds, configs); NaN where a config was not timed.
        winner: The column that is judged.
        failed: Which configs are out of the question; None: none.

    Returns:
        In [0, 1]; 1 without rivals, None when the winner failed.
    """
    out = np.zeros(logs.shape[1], dtype=bool) if failed is None else np.asarray(failed)
    if out[winner]:
        return None
    rivals = [i for i in range(logs.shape[1]) if i != winner and not out[i]]
    behind = logs[:, rivals] - logs[:, [winner]]
    known = np.isfinite(behind)
    for column, there in zip(behind.T, known.T, strict=True):
        if there.any():
            column[there] = _tamed(column[there])
    weights = np.random.default_rng(0).standard_exponential((RESAMPLES, len(behind)))
    with np.errstate(invalid="ignore"):  # 0 / 0: two configs that never met
        mean = weights @ np.where(known, behind, 0.0) / (weights @ known.astype(float))
    ties = (mean == 0).sum(axis=1)
    return float(np.where((mean < 0).any(axis=1), 0.0, 1 / (1 + ties)).mean())


def _tamed(values: np.ndarray) -> np.ndarray:
    """Returns values drawn back to Tukey's fences, 1.5 interquartile ranges off the quartiles."""
    low, high = np.quantile(values, [0.25, 0.75])
    reach = 1.5 * (high - low)
    return np.clip(values, low - reach, high + reach)
