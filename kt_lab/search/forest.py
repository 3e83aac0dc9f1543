"""scikit-learn's random forest of two classes, tree by tree the same, without its overhead.

`RandomForestClassifier.fit` spends nine tenths of its time on cloning and checking when there are
a few hundred readings. Here its own trees are grown by its own builder from the same bootstrap
samples, in one thread. That needs names that scikit-learn keeps to itself, so it is done with the
release that the tests compare it with, and any other release fits its own forest.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

COMPARED = "1.9."  # the release whose forests are grown here
_SEEDS = np.iinfo(np.int32).max  # a tree's seed is below; and no limit of depth
_DRAWS = 256  # bootstrap draws are made in multiples of this


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Trees that tell good from bad.

    Attributes:
        trees: scikit-learn's `Tree`s.
        good: For each tree the probability of being good in each of its nodes, (nodes,).
    """

    trees: Sequence[Any]
    good: Sequence[np.ndarray]

    def leaves(self, x: np.ndarray) -> np.ndarray:
        """Returns the leaf of each config in each tree, shape (n, trees)."""
        x = np.ascontiguousarray(x, dtype=np.float32)
        return np.stack([tree.apply(x) for tree in self.trees]).T

    def probabilities(self, leaves: np.ndarray) -> np.ndarray:
        """Returns the mean probability of being good, shape (n,), in leaves of (n, trees)."""
        return sum(g[at] for g, at in zip(self.good, leaves.T, strict=True)) / len(self.trees)


def grow(
    x: np.ndarray,
    good: np.ndarray,
    weights: np.ndarray,
    *,
    n_estimators: int,
    criterion: str,
    random_state: int,
) -> Forest:
    """Returns the trees of `RandomForestClassifier(...).fit(x, good, sample_weight=weights)`.

    Args:
        x: Encoded configs, shape (n, width).
        good: Labels, shape (n,), of both classes.
        weights: How much each config counts, shape (n,).
        n_estimators: Trees.
        criterion: Split criterion of scikit-learn: "log_loss", "entropy" or "gini".
        random_state: Seed of the forest.
    """
    import sklearn  # slow to import: not at module level

    build = _grow if sklearn.__version__.startswith(COMPARED) else _fit
    x = np.ascontiguousarray(x, dtype=np.float32)
    trees = build(x, good, weights, n_estimators, criterion, random_state)
    values = [tree.value[:, 0, :] for tree in trees]
    return Forest(trees, [v[:, 1] / v.sum(axis=1) for v in values])


def _fit(x, good, weights, n_estimators, criterion, random_state) -> list:
    """Grows the trees by scikit-learn's public class."""
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(
        n_estimators=n_estimators, criterion=criterion, random_state=random_state, n_jobs=1
    )
    forest.fit(x, good, sample_weight=weights)
    return [tree.tree_ for tree in forest.estimators_]


def _grow(x, good, weights, n_estimators, criterion, random_state) -> list:
    """Grows the trees one by one, as `RandomForestClassifier` would with its other defaults."""
    from sklearn.tree._criterion import Entropy, Gini
    from sklearn.tree._splitter import BestSplitter
    from sklearn.tree._tree import DepthFirstTreeBuilder, Tree

    n, width = x.shape
    cumulative = (weights / np.sum(weights)).cumsum()
    cumulative /= cumulative[-1]
    seeds, draws = _bootstrap(n_estimators, random_state, -(-n // _DRAWS) * _DRAWS)
    drawn = cumulative.searchsorted(draws[:, :n], side="right")  # `RandomState.choice`'s rule
    classes = np.array([2], dtype=np.intp)
    labels = good.astype(np.float64)[:, None]
    measure = Gini if criterion == "gini" else Entropy
    features = max(1, int(np.sqrt(width)))
    rng = np.random.RandomState(0)  # making one costs ten times as much as seeding one
    trees = []
    for seed, sample in zip(seeds, drawn, strict=True):
        rng.seed(seed)
        counts = np.bincount(sample, minlength=n).astype(np.float64)
        splitter = BestSplitter(measure(1, classes), features, 1, 0.0, rng, None)
        trees.append(Tree(width, classes, 1))
        builder = DepthFirstTreeBuilder(splitter, 2, 1, 0.0, _SEEDS, 0.0)
        builder.build(trees[-1], x, labels, counts, None)
    return trees


@functools.lru_cache(maxsize=4)
def _bootstrap(n_estimators: int, random_state: int, n: int) -> tuple[list[int], np.ndarray]:
    """Returns the seeds of a forest's trees, and n uniform draws of each, shape (trees, n).

    The first draws do not depend on how many follow, so they serve every smaller sample.
    """
    rng = np.random.RandomState(random_state)
    seeds = [int(rng.randint(_SEEDS)) for _ in range(n_estimators)]
    draws = np.empty((n_estimators, n))
    for i, seed in enumerate(seeds):
        rng.seed(seed)
        draws[i] = rng.random_sample(n)
    draws.setflags(write=False)
    return seeds, draws
