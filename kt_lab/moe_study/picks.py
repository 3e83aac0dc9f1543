"""What a pick is worth when no reading judges a choice that it took part in, with intervals."""

from collections.abc import Sequence

import numpy as np

from kt_lab.landscape import Landscape

RESAMPLES = 2000


def picks(landscape: Landscape, positions: np.ndarray) -> list[int]:
    """Returns which of some configs reads lowest in each visit, one per visit."""
    read = (landscape.medians_us(visit)[positions] for visit in range(landscape.visits))
    return [int(positions[np.nanargmin(one)]) for one in read]


def judged_draws(
    landscape: Landscape, chosen: Sequence[int], *, resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Returns the latency of picks as the other visits judge it, with bootstrap resamples of it.

    Args:
        landscape: Of what.
        chosen: The config that each visit picked, one per visit; the same one throughout for a
            config that nobody picked.
        resamples: How often visits and, within them, samples are drawn anew.
        seed: Equal seeds draw the same visits, so that what a visit does to two configs cancels
            in their ratio.

    Returns:
        Microseconds, shape (1 + resamples,): the estimate first (geometric mean over the visits
        that picked, of the median of all other samples), then the resamples. Two visits are few:
        intervals from these span what the two visits say, not what a third one might.
    """
    visits = range(landscape.visits)
    drawn = np.random.default_rng(seed).integers(len(visits), size=(resamples, len(visits)))
    told = np.empty((1 + resamples, len(visits)))
    for visit in visits:
        others = [landscape.samples[v][chosen[visit]] for v in visits if v != visit]
        pooled = np.concatenate(others or [landscape.samples[visit][chosen[visit]]])
        rng = np.random.default_rng((seed, visit, chosen[visit]))
        at = rng.integers(len(pooled), size=(resamples, len(pooled)))
        told[0, visit] = np.median(pooled)
        told[1:, visit] = np.median(pooled[at], axis=1)
    logs = np.log(told)
    resampled = np.take_along_axis(logs[1:], drawn, axis=1).mean(axis=1)
    return np.exp(np.concatenate([[logs[0].mean()], resampled]))


def ratio(numerator: np.ndarray, denominator: np.ndarray, *, level: float = 0.95) -> dict:
    """Returns estimate, low and high of a ratio of draws, by percentiles of the resamples."""
    draws = numerator / denominator
    tail = (1 - level) / 2
    low, high = np.quantile(draws[1:], [tail, 1 - tail], method="inverted_cdf")
    return {"estimate": float(draws[0]), "low": float(low), "high": float(high)}
