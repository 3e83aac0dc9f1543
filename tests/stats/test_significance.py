"""Tests, equivalence, power and the score P: textbook values and degenerate cases."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from kt_lab import stats
from kt_lab.comparison.methodology import cutoff_draws, methodology_runs, methodology_scores
from kt_lab.errors import UnknownName, UsageError
from kt_lab.stats.significance import holm, signed_ranks

FEW = {"resamples": 300}


def grid(one, join, values):
    """Runs of one trial: {(searcher, kernel, workload): latencies by seed}."""
    return join(
        *(
            one([us], searcher=s, kernel=k, workload=f"{k}/{w}", seed=seed)
            for (s, k, w), row in values.items()
            for seed, us in enumerate(row)
        )
    )


def test_holm_matches_the_textbook():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]).tolist() == [1, 1]
    assert holm([]).size == 0


def test_signed_ranks_match_the_textbook():
    """Darwin's maize: 15 pairs, W- = 24, two-sided exact p 0.0413."""
    darwin = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48.0])
    found = signed_ranks(darwin)
    assert found["p"] == pytest.approx(0.0413, abs=1e-4)
    assert found["rank_biserial"] == pytest.approx((96 - 24) / 120)
    assert found["smallest_p"] == 2**-14
    brute = np.mean([  # Pratt with ties: every assignment of signs
        abs(np.dot(signs, [2.5, 2.5, 4, 5])) >= 9 for signs in itertools.product([1, -1], repeat=4)
    ])  # fmt: skip
    assert signed_ranks(np.array([0, 1, 1, -2.0, 3]))["p"] >= brute
    assert signed_ranks(np.array([0, 1, 1, 2, 3.0]))["p"] == pytest.approx(2 / 16)


def test_few_signed_ranks_are_those_of_scipy_with_ties_and_zeros_too():
    rng = np.random.default_rng(0)
    for n in range(1, 14):
        for logs in (rng.standard_normal(n), rng.integers(-3, 4, n).astype(float)):
            slow = n > 11 and len({*np.abs(logs)}) < n  # scipy tries 2**n signs one by one
            if logs.any() and not slow:
                wanted = scipy.stats.wilcoxon(logs, zero_method="pratt").pvalue
                assert signed_ranks(logs)["p"] == pytest.approx(wanted, rel=1e-12), logs


def test_identical_searchers_are_never_different(experiment, join):
    runs = experiment(searchers=("pattern",))
    runs = join(runs, runs.assign(searcher="twin"))
    for unit, pairs in (("kernel", 2), ("workload", 4)):
        row = stats.paired_tests(runs, unit=unit).iloc[0]
        assert (row.ratio, row.p, row.p_holm, row.rank_biserial) == (1, 1, 1, 0)
        assert (row.n_pairs, row.n_zero, row.smallest_p) == (pairs, pairs, 2.0 ** (1 - pairs))
    assert stats.probability_best(runs, **FEW).probability.tolist() == [0.5, 0.5]
    row = stats.equivalence(runs, "twin", "pattern", budgets=(None,), paired=True).iloc[0]
    assert (row.estimate, row.low, row.high, row.verdict) == (1, 1, 1, "equivalent")


def test_kernels_are_the_unit_and_weigh_the_same(one, join):
    runs = grid(one, join, {
        **{("pattern", k, w): [1.0] for k, w in (("k", "a"), ("k", "b"), ("l", "a"))},
        ("a", "k", "a"): [2.0], ("a", "k", "b"): [8.0], ("a", "l", "a"): [0.25],
    })  # fmt: skip
    row = stats.paired_tests(runs).iloc[0]
    assert (row.unit, row.n_pairs, row.ratio, row.p) == ("kernel", 2, pytest.approx(1), 1)
    row = stats.paired_tests(runs, unit="workload").iloc[0]
    assert (row.n_pairs, row.ratio) == (3, pytest.approx(4 ** (1 / 3)))
    with pytest.raises(UnknownName, match="kernel"):
        stats.paired_tests(runs, unit="gpu")


def test_six_kernels_all_faster_reach_the_smallest_p(one, join):
    runs = grid(one, join, {(s, f"k{k}", "a"): [(1.5 + k / 10 if s == "a" else 3) + k]
                            for s in ("pattern", "a", "b") for k in range(6)})  # fmt: skip
    table = stats.paired_tests(runs, reference=None)
    assert list(zip(table.searcher, table.reference, strict=True)) == [
        ("a", "b"), ("a", "pattern"), ("b", "pattern")]  # fmt: skip
    assert table.p.tolist() == [2**-5, 2**-5, 1]
    assert table.p_holm.tolist() == [3 * 2**-5, 3 * 2**-5, 1]
    assert (table.rank_biserial[0], table.smallest_p[0]) == (-1, 2**-5)


def test_a_workload_on_two_gpus_is_one_pair(one, join):
    cells = [("g", "pattern", 1.0), ("h", "pattern", 4.0), ("g", "a", 2.0), ("h", "a", 8.0)]
    runs = join(*(one([us], gpu=gpu, searcher=name) for gpu, name, us in cells))
    row = stats.paired_tests(runs, unit="workload").iloc[0]
    assert (row.n_pairs, row.ratio) == (1, pytest.approx(2))
    with pytest.raises(UsageError, match="each of its GPUs"):
        stats.paired_tests(join(runs, one([1.0], gpu="g", searcher="a", seed=1)))


def test_a_searcher_without_some_workload_is_refused(one, join):
    runs = grid(one, join, {("pattern", "k", "a"): [1.0], ("pattern", "k", "b"): [1.0],
                            ("a", "k", "a"): [1.0]})  # fmt: skip
    for compare in (stats.paired_tests, stats.probability_best):
        with pytest.raises(UsageError, match="a lacks some on k/b"):
            compare(runs)


def test_failures_lose_and_are_not_dropped(one, join):
    runs = grid(one, join, {("pattern", "k", "a"): [9.0, 9.0], ("a", "k", "a"): [1.0, None]})
    assert stats.paired_tests(runs).ratio[0] == np.inf
    best = stats.probability_best(runs, resamples=2000).set_index("searcher")
    assert best.probability["a"] == pytest.approx(0.25, abs=0.05)  # both seeds are the first
    row = stats.equivalence(runs, "a", "pattern", budgets=(None,)).iloc[0]
    assert (row.estimate, row.high, row.verdict) == (np.inf, np.inf, "undecided")
    row = stats.equivalence(runs, "pattern", "a", budgets=(None,)).iloc[0]
    assert (row.estimate, row.low, row.high, row.verdict) == (0, 0, np.inf, "undecided")


@pytest.mark.parametrize("unit", ["workload", "kernel"])
def test_each_of_two_that_fail_somewhere_is_infinitely_slow_whoever_comes_first(unit, one, join):
    """Not one of them as fast as can be, by the order of their names."""
    runs = grid(one, join, {("a", "k", "v"): [None], ("pattern", "k", "v"): [2.0],
                            ("a", "k", "w"): [2.0], ("pattern", "k", "w"): [None]})  # fmt: skip
    row = stats.paired_tests(runs, reference=None, unit=unit).iloc[0]
    assert row[["ratio", "inverse"]].tolist() == [np.inf, np.inf]
    fails = runs[runs["workload"] == "k/v"]
    row = stats.paired_tests(fails, reference=None, unit=unit).iloc[0]
    assert row[["ratio", "inverse"]].tolist() == [np.inf, 0.0]
    works = fails.assign(judged_us=np.where(fails["searcher"] == "a", 8.0, 2.0), status="ok",
                         latency_us=1.0)  # fmt: skip
    row = stats.paired_tests(works, reference=None, unit=unit).iloc[0]
    assert row[["ratio", "inverse"]].tolist() == pytest.approx([4.0, 0.25])


def test_the_faster_searcher_is_best_for_sure_and_one_seed_suffices(one, join):
    runs = grid(one, join, {("pattern", "k", "a"): [2.0], ("a", "k", "a"): [1.0]})
    table = stats.probability_best(runs, **FEW).set_index("searcher")
    assert table.probability.to_dict() == {"a": 1, "pattern": 0}
    assert table.ratio.to_dict() == pytest.approx({"a": 1, "pattern": 2})
    row = stats.equivalence(runs, "a", "pattern", budgets=(None,)).iloc[0]
    assert (row.low, row.high, row.verdict, row.p_slower) == (0, np.inf, "undecided", 0.5)


def test_equivalence_of_one_workload_is_welch(one, join):
    rng = np.random.default_rng(3)
    a, b = np.exp(rng.normal(0.002, 0.01, 12)), np.exp(rng.normal(0, 0.02, 9))
    runs = grid(one, join, {("a", "k", "w"): a, ("pattern", "k", "w"): b})
    row = stats.equivalence(runs, "a", "pattern", budgets=(1,), margin=0.02).iloc[0]
    known = scipy.stats.ttest_ind(np.log(a), np.log(b), equal_var=False)
    bounds = known.confidence_interval(0.9)
    assert (row.low, row.high) == pytest.approx((np.exp(bounds.low), np.exp(bounds.high)))
    assert row.p_difference == pytest.approx(known.pvalue)
    shifted = [scipy.stats.ttest_ind(np.log(a) + s * np.log(1.02), np.log(b), equal_var=False,
               alternative=w).pvalue for s, w in ((1, "greater"), (-1, "less"))]  # fmt: skip
    assert (row.p_faster, row.p_slower) == pytest.approx(shifted)


def test_constant_runs_are_decided_by_the_margin(one, join):
    runs = grid(one, join, {("pattern", "k", "a"): [2.0] * 3, ("near", "k", "a"): [2.01] * 3,
                            ("far", "k", "a"): [2.1] * 3})  # fmt: skip
    for name, verdict in (("near", "equivalent"), ("far", "different")):
        row = stats.equivalence(runs, name, "pattern", budgets=(None,)).iloc[0]
        assert (row.low, row.high) == pytest.approx((row.estimate, row.estimate))
        assert row.verdict == verdict
    for margin in (0, float("nan")):
        with pytest.raises(UsageError, match="margin must be > 0"):
            stats.equivalence(runs, "near", "far", margin=margin)


def simulated(rng, parts, *, kernels, workloads, seeds, shift=0.0):
    """Log ratios of shape (kernels, workloads, seeds) with these variance components."""
    total = shift + rng.normal(0, parts.kernel**0.5, (kernels, 1, 1))
    total = total + rng.normal(0, parts.workload**0.5, (kernels, workloads, 1))
    return total + rng.normal(0, parts.seed**0.5, (kernels, workloads, seeds))


def test_failures_of_some_seeds_decide_nothing_paired_or_not(one, join):
    """Both find nothing from the same seed: no difference there, but no equal latency either."""
    found = (None, 10.01, 9.99, 10.02, 10.0, 9.98)
    runs = join(
        *(
            one([us and us * factor], searcher=name, seed=seed)
            for name, factor in (("pattern", 1.0), ("a", 1.0001))
            for seed, us in enumerate(found)
        )
    )
    for paired in (False, True):
        told = stats.equivalence(runs, "a", "pattern", budgets=(None,), paired=paired).iloc[0]
        assert told.verdict == "undecided"
        assert told[["low", "high"]].tolist() == [0.0, np.inf]
        assert told[["p_faster", "p_slower", "p_difference"]].tolist() == [0.5, 0.5, 1.0]
    every = stats.equivalence(runs[runs.seed > 0], "a", "pattern", budgets=(None,), paired=True)
    assert every.verdict.tolist() == ["equivalent"]


def test_power_agrees_with_simulation():
    rng, size = np.random.default_rng(0), {"kernels": 6, "workloads": 3, "seeds": 5}
    parts = stats.Components(kernel=4e-5, workload=1e-4, seed=2e-4)
    arm = stats.Components(kernel=0.0, workload=0.0, seed=1e-4)
    hits = {"kernels": 0, "workloads": 0}
    for _ in range(2000):
        means = simulated(rng, parts, **size, shift=np.log(1.01)).mean((1, 2))
        error = means.std(ddof=1) / 6**0.5
        hits["kernels"] += abs(means.mean()) > scipy.stats.t.isf(0.025, 5) * error
        own, other = simulated(rng, arm, **size, shift=np.log(1.005)), simulated(rng, arm, **size)
        error = ((own.var(axis=2, ddof=1) + other.var(axis=2, ddof=1)).mean() / own.size) ** 0.5
        reach = scipy.stats.t.isf(0.025, 2 * 18 * 4) * error
        hits["workloads"] += abs(own.mean() - other.mean()) > reach
    for claim, difference in (("kernels", 0.01), ("workloads", 0.005)):
        known = stats.power(parts, **size, claim=claim, difference=difference)
        assert 0.3 < known < 0.95
        assert hits[claim] / 2000 == pytest.approx(known, abs=0.035)


def test_variance_components_are_found_again(one):
    rng, parts = np.random.default_rng(1), stats.Components(4e-4, 2e-4, 3e-4)
    own = simulated(rng, parts, kernels=60, workloads=3, seeds=4)
    table = pd.concat([one([1.0])] * 1440, ignore_index=True)
    at = np.indices((2, 60, 3, 4)).reshape(4, -1)
    table["searcher"] = np.array(["a", "pattern"])[at[0]]
    table["kernel"] = [f"k{k}" for k in at[1]]
    table["workload"] = [f"k{k}/{w}" for k, w in zip(at[1], at[2], strict=True)]
    table["seed"] = at[3]
    table["judged_us"] = np.exp(np.append(own.ravel(), np.zeros(720)))
    found = stats.variance_components(table, "a", "pattern")
    assert found.seed == pytest.approx(parts.seed, rel=0.2)
    assert found.workload == pytest.approx(parts.workload, rel=0.35)
    assert found.kernel == pytest.approx(parts.kernel, rel=0.5)
    assert (found.kernels, found.workloads, found.seeds) == (60, 3, 4)


def test_the_needed_number_is_the_smallest_that_suffices():
    parts = stats.Components(1e-4, 0.0, 1e-3, kernels=4, workloads=2, seeds=10)
    table = stats.power_table(parts).set_index(["claim", "vary", "power"]).needed
    needed = table["kernels", "kernels", 0.8]
    assert stats.power(parts, kernels=needed, seeds=10) >= 0.8
    assert stats.power(parts, kernels=needed - 1, seeds=10) < 0.8
    assert table["kernels", "kernels", 0.9] > needed
    assert pd.isna(table["kernels", "seeds", 0.8])  # kernels differ by as much: no seed helps
    assert table["workloads", "seeds", 0.8] > 1
    assert stats.power(parts, kernels=1, seeds=10) == 0
    with pytest.raises(UsageError, match="a difference > -1"):
        stats.power(parts, kernels=4, seeds=10, difference=float("nan"))
    assert stats.power(stats.Components(0, 0, 0), kernels=2, seeds=2) == 1


def landscape(values, judged=None):
    """The readings of one landscape of one visit."""
    facts = {"gpu": "h100", "kernel": "softmax", "workload": "softmax/a", "visit": 0}
    table = pd.DataFrame({**facts, "config": range(len(values)), "latency_us": values})
    return table.assign(judged_us=table["latency_us"] if judged is None else judged)


def test_every_order_of_random_search_scores_zero_and_the_oracle_one(one, join):
    values = [2.0, None, 3.0, 5.0, 9.0]
    optima = pd.DataFrame({"workload": ["softmax/a"], "optimum_us": [2.0]})
    orders = itertools.permutations(range(5))
    runs = [one([values[i] for i in order], config=list(order), seed=s)
            for s, order in enumerate(orders)]  # fmt: skip
    runs = join(*runs, *(one([2.0], seed=s, searcher="oracle") for s in range(120)))
    table = methodology_scores(runs, landscape(values), optima, limit=4, cutoffs=(0, 1), **FEW)
    mean = table.set_index("searcher")
    assert mean.estimate["pattern"] == pytest.approx(0, abs=1e-12)
    assert (mean.estimate["oracle"], mean.standard_error["oracle"]) == pytest.approx((1, 0))
    assert mean.low["pattern"] < 0 < mean.high["pattern"]
    assert mean.difference["oracle"] == pytest.approx(1)
    assert (mean.to_trials["oracle"], mean.held["pattern"]) == (2, 0)


def test_a_run_that_fails_throughout_scores_as_the_slowest_config(one):
    optima = pd.DataFrame({"workload": ["softmax/a"], "optimum_us": [1.0]})
    readings = landscape([1.0, 3.0])  # random search after one trial: 2
    found = methodology_runs(one([None]), readings, optima, cutoffs=(0, 0))
    assert found.score.tolist() == [-1]
    with pytest.raises(UsageError, match="can be beaten"):
        methodology_scores(one([1.0]), landscape([1.0, 1.0]), optima)
    with pytest.raises(UsageError, match="every landscape"):
        methodology_runs(one([1.0], workload="softmax/b"), readings, optima)


def test_scores_are_of_the_same_workloads_and_one_run_has_no_spread(one, join):
    readings = landscape([1.0, 3.0, 5.0])
    other = readings.assign(workload="softmax/b")
    optima = pd.DataFrame({"workload": ["softmax/a", "softmax/b"], "optimum_us": [1.0, 1.0]})
    runs = join(*(one([3.0, 1.0], searcher=s, workload=f"softmax/{w}")
                  for s, w in (("pattern", "a"), ("pattern", "b"), ("a", "a"))))  # fmt: skip
    with pytest.raises(UsageError, match="a lacks softmax/b: run it, or leave one of them out"):
        methodology_scores(runs, pd.concat([readings, other]), optima, cutoffs=(0, 1))
    where = (("pattern", "h100"), ("pattern", "h200"), ("a", "h100"))
    both = join(*(one([3.0, 1.0], searcher=s, gpu=g) for s, g in where))
    twice = pd.concat([readings, readings.assign(gpu="h200")])
    with pytest.raises(UsageError, match="the same GPUs; a lacks one of softmax/a: run it"):
        methodology_scores(both, twice, optima[:1], cutoffs=(0, 1))
    # Equal runs wherever both ran; of one seed, a has the GPU alone on which scores are high.
    where = [(s, g, seed) for s in ("pattern", "a") for g in ("h100", "h200") for seed in (0, 1)]
    where.remove(("a", "h200", 1))
    some = join(*(one([1.0 if g == "h100" else 3.0], searcher=s, gpu=g, seed=n)
                  for s, g, n in where))  # fmt: skip
    with pytest.raises(UsageError, match="every seed on the same GPUs; a lacks one of softmax/a"):
        methodology_scores(some, twice, optima[:1], cutoffs=(0, 0))
    once = runs[runs["workload"] == "softmax/a"]
    found = methodology_scores(once, readings, optima, cutoffs=(0, 1))
    assert found.estimate.notna().all()
    unsure = found[["low", "high", "standard_error", "difference_low", "difference_high"]]
    assert unsure.isna().all(axis=None)


def test_the_cutoff_is_the_inverse_of_the_expected_rank():
    values = np.arange(1.0, 102)  # best 1, median 51
    # 95 %: level 3.5; from the slowest, 3 is number 98 (from 0): 98 / (102 - 98) = 24.5
    assert cutoff_draws(values, 0.95) == 25
    assert cutoff_draws([*values, None], 0.95) == 25
    assert cutoff_draws(values, 0.999) == 33  # the one before the optimum: 99 / 3
    assert cutoff_draws(values, 1) == 50
    assert cutoff_draws([5.0], 0.95) == 1
    with pytest.raises(UsageError, match="ok config"):
        cutoff_draws([None], 0.95)


def test_power_with_two_kernels_grows_with_seeds():
    """One degree of freedom, where scipy's noncentral t is NaN for some of these."""
    parts = stats.Components(0, 0, 0.021**2, 2, 4.5, 30)
    found = [stats.power(parts, kernels=2, seeds=seeds) for seeds in (10, 30, 100, 200)]
    assert found == sorted(found)
    assert 0.2 < found[0] < found[-1] < 1
