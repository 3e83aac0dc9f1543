"""The surrogate of likelihood-free Bayesian optimisation: a forest that tells good from bad."""

from collections.abc import Sequence

import numpy as np

from kt_lab.search.forest import Forest, grow

# Microseconds; keeps weights finite when all good readings are equal. Helion has the same number
# in milliseconds: where readings are that close, the good one at the bar weighs less here.
_LEAST = 1e-5


def threshold(latencies: np.ndarray, quantile: float) -> float:
    """Returns the latency in microseconds up to which a reading is good; NaN: none is.

    Args:
        latencies: Microseconds, shape (n,); inf where the config failed.
        quantile: Of the finite ones, in (0, 1).
    """
    finite = latencies[np.isfinite(latencies)]
    return float(np.quantile(finite, quantile)) if len(finite) else np.nan


def labels(latencies: np.ndarray, quantile: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns which readings are good, and their weights, both of shape (n,).

    Good are the readings at or below the quantile of the finite ones. A good reading weighs by
    how far it is below the quantile, with mean 1 over the good ones; a bad one weighs 1.

    Args:
        latencies: Microseconds, shape (n,); inf where the config failed.
        quantile: In (0, 1).
    """
    bar = threshold(latencies, quantile)
    good = latencies <= bar
    weights = np.ones(len(latencies))
    if not good.any():
        return good, weights
    gain = np.maximum(_LEAST, bar - latencies[good])
    weights[good] = gain / gain.mean()
    return good, weights


def fit(
    x: np.ndarray,
    latencies: np.ndarray,
    *,
    quantile: float,
    n_estimators: int,
    criterion: str,
    random_state: int,
) -> Forest | None:
    """Returns a fitted random forest, or None when all readings have the same label.

    Args:
        x: Encoded configs, shape (n, width).
        latencies: Microseconds, shape (n,); inf where the config failed.
        quantile: Share of the finite readings that counts as good.
        n_estimators: Trees.
        criterion: Split criterion of scikit-learn.
        random_state: Seed of the forest.
    """
    good, weights = labels(latencies, quantile)
    if good.all() or not good.any():
        return None
    return grow(
        x, good, weights, n_estimators=n_estimators, criterion=criterion, random_state=random_state
    )


def score(forest: Forest, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns each config's probability of being good, (n,), and its leaves, (n, trees).

    The same numbers as scikit-learn's `predict_proba` and `apply`, in one pass.
    """
    leaves = forest.leaves(x)
    return forest.probabilities(leaves), leaves


def select(good: np.ndarray, leaves: np.ndarray, n: int, *, penalty: float) -> Sequence[int]:
    """Returns the indices of n configs that are promising and unlike each other.

    Greedy: first the most promising config; then the highest probability minus `penalty` times
    the mean, over those already chosen, of the share of trees in which both fall into one leaf.

    Args:
        good: Probability of being good, shape (n_configs,).
        leaves: Leaf of each config in each tree, shape (n_configs, trees).
        n: How many to choose, at most all.
        penalty: Weight of the similarity, >= 0.
    """
    left = np.array(good, dtype=float)
    alike = np.zeros(len(left))
    chosen: list[int] = []
    for rank in range(min(n, len(left))):
        chosen.append(int(np.argmax(left - penalty * alike / max(rank, 1))))
        left[chosen[-1]] = -np.inf
        alike += (leaves == leaves[chosen[-1]]).mean(axis=1)
    return chosen
