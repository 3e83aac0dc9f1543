import itertools

import numpy as np
import pytest

from kt_lab import covering
from kt_lab.covering import cover
from kt_lab.errors import UsageError


def best_by_trying_all(costs, k, objective):
    score = (lambda v: np.log(v).mean()) if objective == "geomean" else np.max
    sets = itertools.combinations(range(len(costs)), k)
    return min(score(costs[list(chosen)].min(axis=0)) for chosen in sets)


def served(costs, use):
    return np.array([costs[use[g], g] for g in range(costs.shape[1])])


@pytest.mark.parametrize("objective", covering.OBJECTIVES)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_small_pools_are_solved_exactly(objective, k):
    for seed in range(10):
        costs = np.exp(np.random.default_rng(seed).random((12, 4)))
        picks, use = cover(costs, range(4), k, objective=objective)
        assert len(picks) <= k
        assert set(use.values()) == set(picks)
        found = served(costs, use)
        value = np.log(found).mean() if objective == "geomean" else found.max()
        assert value == pytest.approx(best_by_trying_all(costs, k, objective), abs=1e-5)


def test_greedy_choice_and_swaps_keep_their_promise(monkeypatch):
    monkeypatch.setattr(covering, "_EXACT", 0)
    for seed in range(20):
        costs = np.exp(-np.random.default_rng(seed).random((12, 5)))
        _, use = cover(costs, range(5), 3, base=np.ones(5))
        gain = -np.log(served(costs, use)).mean()
        assert gain >= (1 - 1 / np.e) * -best_by_trying_all(costs, 3, "geomean")
    # Greedy alone takes the compromise first and is then one short; a swap mends that.
    costs = np.exp([[0.4, 0.4], [0.0, 1.0], [1.0, 0.0]])
    assert cover(costs, range(2), 2)[1] == {0: 1, 1: 2}


def test_the_worst_case_and_the_mean_choose_differently():
    costs = np.array([[1.0, 1.0, 1.6], [1.2, 1.2, 1.2]])
    assert cover(costs, "abc", 1)[0] == [0]
    assert cover(costs, "abc", 1, objective="minimax")[0] == [1]


def test_workloads_of_one_group_share_a_config():
    costs = np.array([[1.0, 2.0, 1.0], [1.5, 1.0, 2.0]])
    assert cover(costs, [0, 1, 2], 2)[1] == {0: 0, 1: 1, 2: 0}
    assert cover(costs, ["x", "x", "y"], 2)[1] == {"x": 1, "y": 0}
    assert cover(costs, ["x", "x", "x"], 2)[1] == {"x": 0}


def test_what_fails_is_covered_first_and_made_fast_then():
    costs = np.array([[1.0, np.nan, 1.0], [5.0, 5.0, np.inf], [6.0, 6.0, 6.0]])
    assert cover(costs, range(3), 1)[0] == [2]
    assert cover(costs, range(3), 2)[1] == {0: 0, 1: 1, 2: 0}


def test_nothing_replaces_a_default_that_it_does_not_beat():
    costs = np.array([[1.0, 2.0], [2.0, np.nan]])
    assert cover(costs, range(2), 2, base=np.ones(2)) == ([], {})
    assert cover(costs, range(2), 2, base=np.array([1.1, 1.5])) == ([0], {0: 0})


def test_equal_configs_leave_the_first():
    assert cover(np.ones((4, 2)), range(2), 3) == ([0], {0: 0, 1: 0})


@pytest.mark.parametrize("bad", [{"k": 0}, {"k": 1, "objective": "mean"}])
def test_what_cannot_be_asked_is_refused(bad):
    with pytest.raises(UsageError, match=r"objective must be one of|k must be a whole"):
        cover(np.ones((1, 1)), [0], bad.pop("k"), **bad)
