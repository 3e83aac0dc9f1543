"""The forest is scikit-learn's, node by node, however it was grown."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from kt_lab.search import forest

FORESTS = [
    {"n_estimators": 20, "criterion": "log_loss", "random_state": 42},
    {"n_estimators": 7, "criterion": "entropy", "random_state": 0},
    {"n_estimators": 7, "criterion": "gini", "random_state": 2**32 - 1},
]


def data(n, width=7, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 5, size=(n, width)).astype(float)
    good = x.sum(axis=1) + rng.normal(size=n) < np.quantile(x.sum(axis=1), 0.2)
    good[:2] = True, False
    return x, good, np.where(good, rng.exponential(size=n), 1.0)


def nodes(trees):
    """Everything that scikit-learn stores of its trees."""
    states = [tree.__getstate__() for tree in trees]
    return [(s["nodes"].tobytes(), s["values"].tobytes(), s["max_depth"]) for s in states]


@pytest.mark.parametrize("options", FORESTS, ids=lambda o: o["criterion"])
@pytest.mark.parametrize("n", [2, 255, 256, 257, 700])
def test_every_tree_is_scikit_learns_bit_by_bit(options, n):
    x, good, weights = data(n)
    grown = forest.grow(x, good, weights, **options)
    reference = RandomForestClassifier(**options, n_jobs=1).fit(x, good, sample_weight=weights)
    assert nodes(grown.trees) == nodes([e.tree_ for e in reference.estimators_])
    leaves = grown.leaves(x)
    assert (leaves == reference.apply(x)).all()
    expected = reference.predict_proba(x)[:, 1]
    assert grown.probabilities(leaves) == pytest.approx(expected, abs=1e-12)


def test_a_constant_column_and_a_single_column_are_no_obstacle():
    x, good, weights = data(50)
    for columns in ([0], [0, 0, 1]):
        narrow = x[:, columns]
        narrow[:, -1] = 3.0
        grown = forest.grow(narrow, good, weights, **FORESTS[0])
        reference = RandomForestClassifier(**FORESTS[0]).fit(narrow, good, sample_weight=weights)
        assert nodes(grown.trees) == nodes([e.tree_ for e in reference.estimators_])


def test_a_release_that_was_not_compared_fits_its_own_forest(monkeypatch):
    x, good, weights = data(100)
    grown = forest.grow(x, good, weights, **FORESTS[0])
    monkeypatch.setattr(forest, "COMPARED", "0.0.")
    monkeypatch.setattr(forest, "_grow", None)
    fitted = forest.grow(x, good, weights, **FORESTS[0])
    assert nodes(grown.trees) == nodes(fitted.trees)


def test_the_installed_release_is_the_one_that_is_compared():
    import sklearn

    assert sklearn.__version__.startswith(forest.COMPARED)


def test_growing_leaves_the_global_random_state_alone():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    forest.grow(*data(60), **FORESTS[0])
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
