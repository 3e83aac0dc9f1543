"""Ratios with exact answers, infinities, and the laws of their intervals."""

import numpy as np
import pandas as pd
import pytest

from kt_lab import stats
from kt_lab.errors import UnknownName, UsageError
from kt_lab.evidence.geomeans import geomean_interval
from kt_lab.stats.intervals import percentile_interval, resample_means

MEASURES = (stats.latency_ratios, stats.wall_clock_ratios, stats.convergence_time_ratios)
FEW = {"resamples": 300}


def rows(table, searcher, scope="geomean"):
    """The (estimate, low, high) of a searcher."""
    found = table[(table.searcher == searcher) & (table.scope == scope)]
    return found[["estimate", "low", "high"]].to_numpy().tolist()


@pytest.mark.parametrize("ratios", MEASURES)
def test_a_searcher_identical_to_the_reference_is_exactly_one(ratios, experiment, join):
    runs = experiment(searchers=("pattern",))
    twin = runs.assign(searcher=pd.Categorical(["twin"] * len(runs)))
    table = ratios(join(runs, twin), **FEW)
    for searcher in ("pattern", "twin"):
        assert rows(table, searcher) == [[1, 1, 1]]
        assert rows(table, searcher, "workload") == [[1, 1, 1]] * 4


def test_constant_runs_give_their_ratio_without_spread(one, join):
    runs = join(
        *(one([8.0], seed=s) for s in range(3)),
        *(one([6.0], seed=s, searcher="lfbo", step=0.5) for s in range(3)),
    )
    for ratios, expected in zip(MEASURES, (0.75, 0.5, 0.5), strict=True):
        table = ratios(runs, **FEW)
        np.testing.assert_allclose(rows(table, "lfbo"), [[expected] * 3], rtol=1e-12)
    latency = stats.latency_ratios(runs, **FEW)
    workload = latency[(latency.searcher == "lfbo") & (latency.scope == "workload")].iloc[0]
    assert (workload.value, workload.reference_value) == pytest.approx((6, 8))
    assert (workload.n_kernels, workload.n_workloads, workload.n_seeds) == (1, 1, 3)


def test_one_run_of_each_does_not_say_how_sure_it_is(one, join):
    runs = join(one([8.0]), one([6.0], searcher="lfbo", step=0.5))
    for ratios, expected in zip(MEASURES, (0.75, 0.5, 0.5), strict=True):
        table = ratios(runs, **FEW)
        for scope in ("workload", "geomean"):
            ((estimate, *ends),) = rows(table, "lfbo", scope)
            assert estimate == pytest.approx(expected)
            assert np.isnan(ends).all()
            assert rows(table, "pattern", scope) == [[1, 1, 1]]


def test_the_latency_ratio_is_a_geomean_of_geomeans(one, join):
    runs = join(
        *(one([v], seed=s) for s, v in enumerate([1.0, 4.0])),
        *(one([v], seed=s, searcher="a") for s, v in enumerate([2.0, 2.0])),
        *(one([v], seed=s, workload="softmax/b") for s, v in enumerate([1.0, 1.0])),
        *(one([v], seed=s, workload="softmax/b", searcher="a") for s, v in enumerate([4.0, 9.0])),
    )
    table = stats.latency_ratios(runs, **FEW)
    np.testing.assert_allclose([r[0] for r in rows(table, "a", "workload")], [1, 6])
    assert rows(table, "a")[0][0] == pytest.approx(6**0.5)


def test_a_run_without_any_ok_makes_the_latency_ratio_infinite(one, join):
    good = [one([5.0], seed=s) for s in range(4)]
    bad = [one([5.0 if s else None], seed=s, searcher="a") for s in range(4)]
    table = stats.latency_ratios(join(*good, *bad), **FEW)
    estimate, low, high = rows(table, "a")[0]
    assert (estimate, low, high) == (np.inf, 1, np.inf)
    row = table[(table.searcher == "a") & (table.scope == "geomean")].iloc[0]
    assert (row.n_success, row.n_runs) == (3, 4)


def test_two_searchers_that_both_find_nothing_are_equal(one, join):
    runs = [one([None], seed=s, searcher=name) for s in (0, 1) for name in ("pattern", "a")]
    table = stats.latency_ratios(join(*runs), **FEW)
    assert rows(table, "a") == [[1, 1, 1]]


def test_opposite_infinities_count_against_the_searcher(one, join):
    runs = join(
        one([None]),
        one([1.0], searcher="a"),
        one([1.0], workload="softmax/b"),
        one([None], workload="softmax/b", searcher="a"),
    )
    table = stats.latency_ratios(runs, **FEW)
    assert [r[0] for r in rows(table, "a", "workload")] == [0, np.inf]
    assert rows(table, "a")[0][0] == np.inf


def test_wall_clock_counts_the_whole_run_and_the_search(one, join):
    runs = join(
        *(one([5.0, 4.0], seed=s) for s in (0, 1)),
        *(one([4.0], seed=s, searcher="a", search_s=[2.0]) for s in (0, 1)),
    )
    waited, busy = (stats.wall_clock_ratios(runs, x=x, **FEW) for x in ("elapsed_s", "machine_s"))
    assert rows(waited, "a")[0] == pytest.approx([1.5] * 3)
    assert rows(busy, "a")[0] == pytest.approx([0.5] * 3)


def test_convergence_time_is_the_expected_running_time(one, join):
    runs = join(
        *(one([9.0, 4.0], seed=s) for s in range(4)),
        one([4.0], seed=0, searcher="a"),  # reached after 1 s
        *(one([9.0, 9.0, 9.0], seed=s, searcher="a") for s in (1, 2, 3)),  # never, 3 s each
    )
    table = stats.convergence_time_ratios(runs, **FEW)
    row = table[(table.searcher == "a") & (table.scope == "workload")].iloc[0]
    assert (row.value, row.reference_value, row.target_us) == pytest.approx((10, 2, 4.04))
    assert row.estimate == pytest.approx(5)
    assert (row.n_success, row.n_runs) == (1, 4)
    assert (row.reference_n_success, row.reference_n_runs) == (4, 4)
    assert row.high == np.inf  # a resample without the one success
    assert row.low < 5


ENDS = {"pattern": 4.0, "a": 9.0}


def test_no_success_is_infinite_and_reported(one, join):
    runs = join(*(one([us], seed=s, searcher=n) for s in (0, 1) for n, us in ENDS.items()))
    table = stats.convergence_time_ratios(runs, **FEW)
    assert rows(table, "a") == [[np.inf] * 3]
    assert table[table.searcher == "a"].n_success.tolist() == [0, 0]


def test_intervals_are_deterministic_and_do_not_depend_on_other_searchers(experiment):
    runs = experiment(searchers=("pattern", "random", "tpe"))
    first = stats.latency_ratios(runs, **FEW)
    pd.testing.assert_frame_equal(first, stats.latency_ratios(runs.sample(frac=1), **FEW))
    fewer = stats.latency_ratios(runs[runs.searcher != "tpe"], **FEW)
    assert rows(first, "random") == rows(fewer, "random")
    assert rows(first, "random") != rows(stats.latency_ratios(runs, seed=1, **FEW), "random")


def test_estimates_lie_inside_their_intervals(experiment):
    for ratios in MEASURES:
        table = ratios(experiment(kernels=3, seeds=8), **FEW)
        assert (table.low <= table.estimate).all()
        assert (table.estimate <= table.high).all()


def test_intervals_cover_the_truth(one):
    """Two equal searchers on 4 kernels: about 95 % of the seed-level intervals hold 1."""
    rng = np.random.default_rng(5)
    base = one([1.0])
    tables = []
    for name in ("pattern", "a"):
        table = pd.concat([base] * (60 * 20), ignore_index=True)
        table["searcher"] = name
        table["workload"] = [f"softmax/{w}" for w in range(60) for _ in range(20)]
        table["seed"] = list(range(20)) * 60
        table["judged_us"] = table["latency_us"] = np.exp(rng.normal(scale=0.2, size=1200))
        tables.append(table)
    found = stats.latency_ratios(pd.concat(tables, ignore_index=True), resamples=1000)
    found = found[(found.searcher == "a") & (found.scope == "workload")]
    covered = ((found.low <= 1) & (found.high >= 1)).mean()
    assert 0.82 <= covered <= 1


def test_different_seed_sets_are_resampled_independently(one, join):
    runs = join(*(one([5.0], seed=s) for s in range(4)), one([5.0], seed=9, searcher="a"))
    np.testing.assert_allclose(rows(stats.latency_ratios(runs, **FEW), "a"), [[1] * 3])


@pytest.mark.parametrize("ratios", MEASURES)
def test_mixed_lanes_and_missing_references_are_refused(ratios, one, join):
    with pytest.raises(UsageError, match=r"one lane count, got lanes \[1, 8\]"):
        ratios(join(one([1.0]), one([1.0], seed=1, lanes=1)))
    with pytest.raises(UnknownName, match="did you mean 'pattern'"):
        ratios(one([1.0]), reference="patern")
    with pytest.raises(UsageError, match="softmax/b on h100 has none"):
        ratios(join(one([1.0]), one([1.0], searcher="a", workload="softmax/b")))


def test_the_same_workload_on_two_gpus_is_two_cells_but_one_workload(one, join):
    once = [
        *(one([v], gpu=g) for g, v in (("a100", 1.0), ("h100", 1.0))),
        *(one([v], gpu=g, searcher="a") for g, v in (("a100", 2.0), ("h100", 8.0))),
    ]
    ((estimate, *ends),) = rows(stats.latency_ratios(join(*once), **FEW), "a")
    assert estimate == pytest.approx(4)
    assert np.isnan(ends).all()  # one run of each tells of no spread, on two GPUs neither
    table = stats.latency_ratios(join(*once, *(run.assign(seed=1) for run in once)), **FEW)
    assert [r[0] for r in rows(table, "a", "workload")] == pytest.approx([2, 8])
    row = table[(table.searcher == "a") & (table.scope == "geomean")].iloc[0]
    assert row.estimate == pytest.approx(4)
    assert pd.isna(row.gpu)
    assert (row.n_workloads, row.n_gpus) == (1, 2)
    assert (row.low, row.high) == pytest.approx((4, 4))  # never one GPU without the other


def test_geomean_interval_of_plain_ratios():
    same = pd.DataFrame({"kernel": ["a", "a", "b"], "ratio": [1.0, 1.0, 1.0]})
    assert geomean_interval(same) == stats.Interval(1, 1, 1)
    spread = pd.DataFrame({"kernel": ["a", "b"], "ratio": [0.5, 2.0]})
    found = geomean_interval(spread)
    assert (found.estimate, found.low, found.high) == pytest.approx((1, 0.5, 2))
    with pytest.raises(UsageError, match="not null"):
        geomean_interval(pd.DataFrame({"kernel": ["a"], "ratio": [None]}))


def test_kernels_are_resampled_not_only_workloads():
    """Ten workloads of each of two kernels are two pieces of evidence, not twenty."""
    table = pd.DataFrame({"kernel": ["a"] * 10 + ["b"] * 10, "ratio": [0.5] * 10 + [2.0] * 10})
    found = geomean_interval(table)
    assert (found.low, found.high) == pytest.approx((0.5, 2))


def test_quantiles_with_infinities():
    values = np.array([1.0, 2.0, np.inf, np.inf])
    assert stats.quantiles(values, (0, 0.25, 0.5, 1)).tolist() == [1, 1.75, np.inf, np.inf]
    assert stats.quantiles(np.array([3.0]), (0.5,)).tolist() == [3]
    random = np.random.default_rng(0).normal(size=(11, 3))
    expected = np.quantile(random, [0.1, 0.5], axis=0)
    np.testing.assert_allclose(stats.quantiles(random, (0.1, 0.5)), expected)


def test_a_run_costs_its_time_to_the_target_or_all_of_it(one, join):
    runs = join(one([9.0, 4.0]), one([9.0, 9.0, 9.0], seed=1), one([9.0], seed=2, searcher="a"))
    targets = pd.DataFrame({"workload": ["softmax/a"], "target_us": [4.0]})
    times = stats.time_to_target(stats.incumbent_curves(runs), targets, x="machine_s")
    assert times.reached.tolist() == [False, True, False]
    assert times[times.searcher == "pattern"].cost.tolist() == [2, 3]


def test_a_run_that_found_nothing_reaches_no_target_not_even_an_infinite_one(one, join):
    runs = join(one([None, 9.0]), one([None, None], searcher="lost"))
    targets = pd.DataFrame({"workload": ["softmax/a"], "target_us": [np.inf]})
    times = stats.time_to_target(stats.incumbent_curves(runs), targets, x="machine_s")
    told = times.set_index("searcher")
    assert told["reached"].to_dict() == {"pattern": True, "lost": False}
    assert told.loc["pattern", "time"] == 2


def kernel_draws(kernels, rng):
    """Log ratios of searches whose truth over kernels at large is 0, as `resample_means` asks."""

    def drawn(values):
        return lambda n, rng: rng.choice(values, (n, len(values))).mean(axis=1)

    found = {}
    for kernel in range(kernels):
        middles = rng.normal(0, 0.02) + rng.normal(0, 0.01, 3)
        found[str(kernel)] = [drawn(rng.normal(middle, 0.03, 10)) for middle in middles]
    return found


@pytest.mark.parametrize(("kernels", "least", "most"), [(2, 0.6, 0.85), (8, 0.9, 0.99)])
def test_intervals_cover_kernels_at_large_only_where_they_are_many(kernels, least, most):
    rng, covered = np.random.default_rng(0), 0
    for _ in range(300):
        means = resample_means(kernel_draws(kernels, rng), 300, rng)
        low, high = percentile_interval(means, 0.95)
        covered += low <= 1 <= high
    assert least < covered / 300 < most
