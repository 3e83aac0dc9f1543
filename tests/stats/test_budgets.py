"""Quality at budgets, costs to targets, profiles and distributions: answers known by hand."""

import numpy as np
import pandas as pd
import pytest

from kt_lab import stats
from kt_lab.comparison.methodology import methodology_runs
from kt_lab.errors import UnknownName, UsageError
from kt_lab.stats.budgets import judged_at

FEW = {"resamples": 300}
OPTIMA = pd.DataFrame({"workload": ["softmax/a", "softmax/b"], "optimum_us": [2.0, 2.0]})


def only(table, **at):
    """The one row with these values."""
    for name, value in at.items():
        table = table[table[name].isna() if value is None else table[name] == value]
    assert len(table) == 1
    return table.iloc[0]


def test_the_incumbent_at_each_budget_is_judged(one):
    runs = one([None, 8.0, 9.0, 4.0], judged=[None, 8.5, 9.0, 4.5])
    table = judged_at(runs, (1, 2, 3, 4, 90, None))
    assert table.judged_us.tolist() == [np.inf, 8.5, 8.5, 4.5, 4.5, 4.5]
    seconds = judged_at(runs, (0.5, 2.0), x="machine_s")
    assert seconds.judged_us.tolist() == [np.inf, 8.5]
    with pytest.raises(UsageError, match="budgets must be > 0"):
        judged_at(runs, (0,))


def test_a_budget_that_is_given_twice_is_no_further_evidence(one, join):
    runs = join(*(one([8.0, 4.0 + s], seed=s) for s in range(3)))
    assert judged_at(runs, (2, 2, None, np.inf)).equals(judged_at(runs, (2, None)))


def test_runs_that_nobody_judged_are_refused_and_not_called_equal(one, join):
    runs = join(one([8.0, 4.0]), one([2.0, 1.0], searcher="a"))
    live = runs.assign(judged_us=np.nan)
    read = runs.drop_duplicates("config").assign(visit=0)
    for compare in (
        lambda: stats.latency_ratios(live, **FEW),
        lambda: stats.convergence_time_ratios(live, **FEW),
        lambda: stats.equivalence(live, "a", "pattern", budgets=(None,)),
        lambda: judged_at(live, (None,)),
        lambda: stats.running_times(live, OPTIMA, **FEW),
        lambda: stats.runtime_ecdf(live, OPTIMA),
        lambda: methodology_runs(live, read, OPTIMA),
    ):
        with pytest.raises(UsageError, match=r"must be judged, .*judged_us=runs\.latency_us\)"):
            compare()
    told = stats.latency_ratios(live.assign(judged_us=live["latency_us"]), **FEW)
    assert only(told, searcher="a", scope="geomean").estimate == pytest.approx(0.25)
    nothing = join(one([None, None]), one([2.0, 1.0], searcher="a"))
    assert np.isinf(judged_at(nothing, (None,)).judged_us).sum() == 1


def test_tables_without_a_row_or_a_clock_are_refused(one, join):
    runs = join(one([8.0, 4.0]), one([2.0, 1.0], searcher="a"))
    with pytest.raises(UsageError, match="must hold at least one row"):
        stats.latency_ratios(runs.iloc[:0], **FEW)
    blind = runs.assign(machine_s=runs["machine_s"].where(runs["searcher"] == "a"))
    with pytest.raises(UsageError, match="every run must tell its machine_s"):
        stats.wall_clock_ratios(blind, x="machine_s", **FEW)


def test_latency_at_is_relative_to_the_optimum_and_to_a_searcher(one, join):
    runs = join(
        *(one([8.0, 4.0], seed=s, workload=w) for s in range(3) for w in OPTIMA.workload),
        *(
            one([4.0, 2.0], seed=s, workload=w, searcher="a")
            for s in range(3)
            for w in OPTIMA.workload
        ),
    )
    table = stats.latency_at(runs, (1, None), optima=OPTIMA, **FEW)
    at = {"scope": "geomean", "searcher": "a"}
    row = only(table, **at, budget=1, reference="optimum")
    assert (row.estimate, row.low, row.high) == pytest.approx((2, 2, 2))
    assert (row.worst, row.p90, row.axis, row.n_workloads) == (2, 2, "spent_trials", 2)
    row = only(table, **at, budget=None, reference="pattern")
    assert (row.estimate, row.low, row.high) == pytest.approx((0.5, 0.5, 0.5))
    assert row.worst == pytest.approx(0.5)
    row = only(table, scope="workload", searcher="pattern", budget=1, reference="optimum",
               workload="softmax/a")  # fmt: skip
    assert (row.value, row.reference_value, row.estimate) == pytest.approx((8, 2, 4))


def test_at_the_end_it_is_the_latency_ratio(experiment):
    runs = experiment()
    final = stats.latency_ratios(runs, **FEW)
    table = stats.latency_at(runs, (None,), **FEW)[final.columns]
    pd.testing.assert_frame_equal(table.drop(columns="measure"), final.drop(columns="measure"))


def test_a_run_without_an_incumbent_is_infinitely_slow_at_that_budget(one, join):
    runs = join(one([None, 4.0]), *(one([4.0, 4.0], seed=s) for s in range(1, 4)))
    table = stats.latency_at(runs, (1, 2), optima=OPTIMA, reference=None, **FEW)
    early = only(table, scope="geomean", budget=1)
    assert (early.estimate, early.low, early.worst) == (np.inf, pytest.approx(2), np.inf)
    assert (early.n_success, early.n_runs) == (3, 4)
    assert only(table, scope="geomean", budget=2).worst == pytest.approx(2)


def test_tails_are_the_worst_seed_and_the_ninetieth_percentile(one, join):
    runs = join(*(one([2.0 + s], seed=s) for s in range(11)))
    row = only(stats.latency_at(runs, (1,), optima=OPTIMA, reference=None, **FEW),
               scope="workload")  # fmt: skip
    assert (row.worst, row.p90) == pytest.approx((6, 5.5))


def test_all_failed_runs_are_equal_to_each_other_and_infinitely_far_from_the_optimum(one, join):
    runs = join(one([None]), one([None], searcher="a"))
    table = stats.latency_at(runs, (1,), optima=OPTIMA, **FEW)
    at = {"scope": "geomean", "searcher": "a"}
    assert only(table, **at, reference="pattern").estimate == 1
    assert only(table, **at, reference="optimum").estimate == np.inf
    assert stats.probability_best(runs, **FEW).probability.tolist() == [0.5, 0.5]


def test_latency_at_needs_something_to_compare_with(one):
    with pytest.raises(UsageError, match="got neither"):
        stats.latency_at(one([1.0]), reference=None)
    with pytest.raises(UnknownName):
        stats.latency_at(one([1.0]), reference="lfbo")


def test_running_times_count_censored_runs_in_full(one, join):
    runs = join(
        one([9.0, 2.0]),  # reaches 5 % after 2 trials
        one([9.0, 9.0, 9.0], seed=1),  # never, 3 trials
        one([2.02, 9.0], seed=2),  # reaches after 1, so too within 1 %
        one([2.0], workload="softmax/b"),
        one([9.0] * 4, searcher="a"),
        one([2.0], searcher="a", workload="softmax/b"),
    )
    table = stats.running_times(runs, OPTIMA, within=(0.05,), **FEW)
    at = {"axis": "spent_trials", "searcher": "pattern"}
    row = only(table, **at, workload="softmax/a")
    assert (row.estimate, row.success_rate) == pytest.approx((3, 2 / 3))
    assert row.unit == "trials"
    assert row.target_us == pytest.approx(2.1)
    assert only(table, **at, scope="geomean").estimate == pytest.approx(3**0.5)
    assert only(table, **at, scope="pooled").estimate == pytest.approx(7 / 3)
    never = {"axis": "spent_trials", "searcher": "a"}
    assert only(table, **never, workload="softmax/a").estimate == np.inf
    assert only(table, **never, scope="geomean").estimate == np.inf
    pooled = only(table, **never, scope="pooled")
    assert (pooled.estimate, pooled.success_rate) == (5, 0.5)
    assert pooled.low <= 5 <= pooled.high == np.inf
    assert set(table[table.axis == "elapsed_s"].unit) == {"s"}
    alone = stats.running_times(one([9.0, 2.0]), OPTIMA, within=(0.05,), **FEW)
    pooled = only(alone, axis="spent_trials", scope="pooled")
    assert pooled.estimate == 2
    assert np.isnan([pooled.low, pooled.high]).all()  # one run tells of no spread


def test_runs_that_tried_nothing_never_reach_a_target_however_little_they_cost(one, join):
    """Seconds that end before a first trial does spend no trial: 0 trials for 0 successes."""
    idle = [one([None], seed=s, searcher=n).assign(first=False) for n in "ab" for s in (0, 1)]
    some = join(*idle, one([9.0, 2.0], seed=2))
    table = stats.running_times(some, OPTIMA, within=(0.05,), **FEW)
    for scope in ("workload", "geomean", "pooled"):
        row = only(table, axis="spent_trials", scope=scope, searcher="a")
        assert row[["estimate", "low", "high"]].tolist() == [np.inf] * 3
    one_of_three = join(*idle[:2], one([9.0, 2.0], seed=2, searcher="a"))
    table = stats.running_times(one_of_three, OPTIMA, within=(0.05,), **FEW)
    for scope in ("workload", "geomean", "pooled"):
        row = only(table, axis="spent_trials", scope=scope)
        assert row[["estimate", "low", "high"]].tolist() == [2, 2, np.inf]


def test_a_profile_counts_workloads_within_a_factor_of_the_best():
    table = pd.DataFrame(
        [("g", "k", w, s, v) for w, row in {"a": (1, 2), "b": (3, 1), "c": (5, np.inf),
         "d": (np.inf, np.inf)}.items() for s, v in zip("xy", row, strict=True)],
        columns=["gpu", "kernel", "workload", "searcher", "value"],
    )  # fmt: skip
    profile = stats.performance_profile(table)
    assert profile[profile.searcher == "x"].tau.tolist() == [1, 2, 3]
    assert profile[profile.searcher == "x"].share.tolist() == [0.5, 0.5, 0.75]
    assert profile[profile.searcher == "y"].share.tolist() == [0.25, 0.5, 0.5]
    with pytest.raises(UsageError, match="one budget"):
        stats.performance_profile(pd.concat([table, table]))
    nobody = stats.performance_profile(table.assign(value=np.inf))
    assert nobody[["searcher", "tau", "share"]].values.tolist() == [["x", 1, 0], ["y", 1, 0]]


def test_a_searcher_twice_as_fast_has_the_whole_profile_at_one(experiment, join):
    runs = experiment(searchers=("pattern",))
    half = runs.assign(
        searcher="half", latency_us=runs.latency_us / 2, judged_us=runs.judged_us / 2
    )
    table = stats.latency_at(join(runs, half), (None,), **FEW)
    assert only(table, scope="geomean", searcher="half").estimate == pytest.approx(0.5, rel=1e-12)
    profile = stats.performance_profile(table)
    assert profile[profile.tau == 1].set_index("searcher").share.to_dict() == {
        "half": 1,
        "pattern": 0,
    }
    assert only(profile, searcher="pattern", tau=2).share == 1


def test_the_runtime_distribution_counts_runs_and_targets(one, join):
    runs = join(one([4.0, 2.0]), one([4.0, 4.0], seed=1))
    table = stats.runtime_ecdf(runs, OPTIMA, within=(1.0, 0.0), points=(0.5, 1, 2, 9))
    assert table.share.tolist() == [0, 0.5, 0.75, 0.75]
    assert (table.n_values[0], table.n_targets[0]) == (4, 2)
    assert stats.runtime_ecdf(one([None]), OPTIMA).share.max() == 0
    cut = one([None]).assign(first=False, machine_s=0.0)  # its budget ended before any trial did
    for x in ("spent_trials", "machine_s"):
        assert stats.runtime_ecdf(cut, OPTIMA, x=x).share.max() == 0
        assert len(stats.convergence_bands(stats.incumbent_curves(cut), x=x)) > 0


def test_origins_get_the_cost_and_the_gain_of_their_trials(one):
    runs = one([None, 8.0, 4.0, 4.0, 2.0, 4.0], config=[0, 1, 2, 3, 4, 2])
    runs["origin"] = ["start", "start", "start", "step", "step", "retime"]
    runs.loc[3, "measure_s"] = 0.0
    table = stats.anatomy(runs).set_index("origin")
    assert table.evaluations.to_dict() == {"start": 3, "step": 2, "retime": 0}
    assert table.remeasurements["retime"] == 1
    assert (table.failures["start"], table.duplicates["step"], table.n_runs["step"]) == (1, 1, 1)
    assert table.improvements.to_dict() == {"start": 1, "step": 1, "retime": 0}
    assert table.gain_share.to_dict() == pytest.approx({"start": 0.5, "step": 0.5, "retime": 0})
    assert table.machine_s.to_dict() == pytest.approx({"start": 3, "step": 2, "retime": 1})
    said = stats.anatomy(runs.assign(twin=pd.array([0, 0, 1, 0, None, 0], dtype="boolean")))
    assert said.set_index("origin").duplicates.to_dict() == {"start": 1, "step": 0, "retime": 0}


def test_origins_that_gain_nothing_have_no_share(one, join):
    table = stats.anatomy(join(one([5.0, 5.0]), one([None], seed=1)))
    assert (table.log_gain.tolist(), table.n_runs.tolist()) == ([0], [2])
    assert table.gain_share.isna().all()
    assert table.evaluations.tolist() == [1.5]


def test_a_searcher_that_lost_in_total_has_no_shares_of_a_gain(one):
    runs = one([9.0, 8.9, 8.8], judged=[9.0, 9.2, 9.9])
    table = stats.anatomy(runs.assign(origin=["start", "step", "step"]))
    assert table.log_gain.min() < 0
    assert table.gain_share.isna().all()
