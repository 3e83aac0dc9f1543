"""Random search against brute force and simulation; the noise floor against known noise."""

import itertools

import numpy as np
import pandas as pd
import pytest

from kt_lab import baseline
from kt_lab.errors import UsageError


def brute_force(values, k, judged):
    """Mean and median judged value of the incumbent over every ordered draw; chance of none."""
    found, orders = [], list(itertools.permutations(range(len(values)), k))
    for order in orders:
        ok = [i for i in order if values[i] is not None]
        if ok:
            found.append(judged[min(ok, key=lambda i: (values[i], order.index(i)))])
    outcomes = found + [np.inf] * (len(orders) - len(found))
    median = np.quantile(outcomes, 0.5, method="inverted_cdf")
    return (np.mean(found) if found else np.nan), median, 1 - len(found) / len(orders)


@pytest.mark.parametrize(
    ("values", "judged"),
    [
        ([3.0, 1.0, 2.0, 5.0], None),
        ([3.0, None, 2.0, 5.0, None], None),
        ([3.0, 1.0, 1.0, 5.0, None], [3.5, 2.0, 1.0, 4.0, None]),
        ([2.0, 2.0, 2.0], [1.0, 2.0, 6.0]),
        ([None, None, 4.0], None),
    ],
)
def test_expected_best_is_the_brute_force(values, judged):
    table = baseline.expected_best(values, range(1, len(values) + 1), judged=judged)
    for row in table.itertuples():
        expected, median, none = brute_force(values, row.draws, judged or values)
        assert row.expected == pytest.approx(expected, nan_ok=True)
        assert row.p_none == pytest.approx(none, abs=1e-12)
        assert (np.inf if np.isnan(row.median) else row.median) == median


def test_expected_best_agrees_with_simulation():
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(size=300))
    values[rng.random(300) < 0.3] = np.nan
    judged = values * np.exp(0.1 * rng.normal(size=300))
    for k in (1, 7, 40):
        best = []
        for _ in range(4000):
            drawn = rng.choice(300, size=k, replace=False)
            drawn = drawn[~np.isnan(values[drawn])]
            best.append(judged[drawn[np.argmin(values[drawn])]] if drawn.size else np.nan)
        row = baseline.expected_best(values, k, judged=judged).iloc[0]
        error = np.nanstd(best) / np.sqrt(len(best))
        assert row.expected == pytest.approx(np.nanmean(best), abs=4 * error)
        assert row.p_none == pytest.approx(np.isnan(best).mean(), abs=0.03)
        share = (np.where(np.isnan(best), np.inf, best) <= row["median"]).mean()
        assert share == pytest.approx(0.5, abs=0.04)


def test_all_draws_find_the_best_exactly():
    values = np.arange(1.0, 20001)
    table = baseline.expected_best(values, [1, 20000])
    np.testing.assert_allclose(table.expected, [10000.5, 1], rtol=1e-9)
    # ranks 1..N without failures: E[min of k] = (N + 1) / (k + 1)
    ks = [2, 10, 500]
    found = baseline.expected_best(values, ks).expected
    np.testing.assert_allclose(found, [20001 / (k + 1) for k in ks], rtol=1e-9)


def test_nothing_but_failures_has_no_expectation():
    row = baseline.expected_best([None, None], 2).iloc[0]
    assert np.isnan(row.expected)
    assert np.isnan(row["median"])
    assert row.p_none == 1


def test_a_pick_that_cannot_be_judged_counts_as_none():
    row = baseline.expected_best([1.0, 2.0], 2, judged=[None, 3.0]).iloc[0]
    assert row.p_none == 1
    row = baseline.expected_best([1.0, 2.0], 1, judged=[None, 3.0]).iloc[0]
    assert (row.expected, row.p_none) == (3, 0.5)


def test_the_expectation_can_be_relative_to_the_optimum():
    row = baseline.expected_best([2.0, 4.0], 1, optimum_us=2.0).iloc[0]
    assert (row.expected, row.unit) == (1.5, "ratio")


def test_wrong_arguments_are_named():
    with pytest.raises(UsageError, match=r"1\.\.2"):
        baseline.expected_best([1.0, 2.0], 3)
    with pytest.raises(UsageError, match="one value per config"):
        baseline.expected_best([1.0, 2.0], 1, judged=[1.0])
    with pytest.raises(UsageError, match="not 0 or inf"):
        baseline.expected_best([1.0, np.inf], 1)


def test_without_noise_the_floor_is_zero():
    floor = baseline.noise_floor([3.0, 2.0, None], [3.0, 2.0, None])
    assert (floor.regret, floor.optimum, floor.picks, floor.configs) == (0, 1, (1, 1), 2)
    assert floor.level == 1


def test_the_floor_is_judged_on_the_other_visit():
    floor = baseline.noise_floor([1.0, 2.0, 4.0], [3.0, 2.0, None])
    # the first visit picks 0 (judged 3), the second 1 (judged 2); both pool to 2
    assert floor.picks == (0, 1)
    assert floor.judged_us == (3, 2)
    assert floor.read_us == (1, 2)
    assert floor.regret == pytest.approx(0.25)
    assert floor.excluded == 1


def test_the_floor_is_symmetric_never_negative_and_grows_with_noise():
    rng = np.random.default_rng(0)
    latency = 10 * (1 + rng.exponential(0.3, size=400))
    levels = []
    for noise in (0.0, 0.02, 0.1):
        first, second = (latency * np.exp(noise * rng.normal(size=(2, 400)))).tolist()
        floor = baseline.noise_floor(first, second)
        assert floor.regret == baseline.noise_floor(second, first).regret
        assert floor.regret >= 0
        levels.append(floor.regret)
    assert levels == sorted(levels)


def test_a_drift_between_visits_cancels():
    latency = [3.0, 2.0, 2.5]
    floor = baseline.noise_floor(latency, [1.2 * v for v in latency])
    assert floor.regret == pytest.approx(0)


def test_a_floor_needs_one_common_config():
    with pytest.raises(UsageError, match="0 of 2"):
        baseline.noise_floor([1.0, None], [None, 1.0])


def test_the_profile_counts_failures_in_the_share():
    table = pd.DataFrame({"workload": ["a"] * 4, "latency_us": [2.0, 3.0, None, 2.0]})
    profile = baseline.landscape_profile(table)
    assert profile.ratio.tolist() == [1, 1, 1.5]
    assert profile.share.tolist() == [0.25, 0.5, 0.75]
