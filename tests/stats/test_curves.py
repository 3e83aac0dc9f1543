"""Incumbents, finals and bands on runs whose answers are known by hand."""

import numpy as np
import pandas as pd
import pytest

from kt_lab import stats
from kt_lab.errors import UnknownName, UsageError


def test_the_incumbent_is_the_lowest_reading_and_failures_spend_trials(one):
    curves = stats.incumbent_curves(one([None, 5.0, 7.0, 4.0]))
    assert curves.spent_trials.tolist() == [1, 2, 3, 4]
    assert curves.incumbent.tolist() == [pd.NA, 1, 1, 3]
    assert curves.reading_us.fillna(-1).tolist() == [-1, 5, 5, 4]


def test_a_remeasurement_with_as_many_repetitions_replaces_the_value(one):
    runs = one([5.0, 6.0, 9.0], config=[0, 1, 0], repetitions=[5, 5, 5])
    curves = stats.incumbent_curves(runs)
    assert curves.incumbent.tolist() == [0, 0, 1]
    assert curves.reading_us.tolist() == [5, 5, 6]
    assert curves.spent_trials.tolist() == [1, 2, 2]


def test_a_careless_reading_does_not_replace_a_careful_one(one):
    runs = one([5.0, 6.0, 1.0, 9.0], config=[0, 1, 1, 0], repetitions=[50, 50, 5, 20])
    assert stats.incumbent_curves(runs).incumbent.tolist() == [0, 0, 0, 0]


def test_a_dethroned_config_comes_back_when_it_is_remeasured(one):
    runs = one([5.0, 6.0, 9.0, 4.0], config=[0, 1, 0, 0])
    assert stats.incumbent_curves(runs).reading_us.tolist() == [5, 5, 6, 4]


def test_a_later_failure_keeps_the_reading(one):
    runs = one([5.0, None], config=[0, 0])
    assert stats.incumbent_curves(runs).incumbent.tolist() == [0, 0]


def test_equal_readings_keep_the_earlier_config(one):
    assert stats.incumbent_curves(one([5.0, 5.0])).incumbent.tolist() == [0, 0]


def test_the_incumbent_is_judged_by_the_other_visit(one):
    curves = stats.incumbent_curves(one([5.0, 4.0], judged=[5.5, 6.5]))
    assert curves.judged_us.tolist() == [5.5, 6.5]


def test_elapsed_is_machine_and_search(one):
    curves = stats.incumbent_curves(one([5.0, 4.0], search_s=[0.5, 2.0]))
    assert curves.elapsed_s.tolist() == [1.5, 4.0]


def test_curves_agree_with_the_history_of_the_library(experiment):
    runs = experiment(kernels=1, workloads=1, seeds=3, n=60, searchers=("pattern",))
    rng = np.random.default_rng(1)
    runs["config"] = rng.integers(8, size=len(runs))
    runs["repetitions"] = rng.integers(1, 4, size=len(runs))
    curves = stats.incumbent_curves(runs.sample(frac=1, random_state=0))
    for seed, table in runs.groupby("seed"):
        standing = {}
        for at, row in enumerate(table.itertuples()):
            old = standing.get(row.config)
            if old is None or row.repetitions >= old.repetitions:
                standing[row.config] = row
            best = min(standing.values(), key=lambda r: (r.latency_us, r.trial))
            found = curves[(curves.seed == seed) & (curves.trial == at)].iloc[0]
            assert (found.incumbent, found.reading_us) == (best.config, best.latency_us)


def test_row_order_does_not_matter(experiment):
    runs = experiment()
    shuffled = runs.sample(frac=1, random_state=3)
    pd.testing.assert_frame_equal(stats.incumbent_curves(runs), stats.incumbent_curves(shuffled))


def test_a_trial_that_occurs_twice_is_refused(one, join):
    with pytest.raises(UsageError, match="trial 0 twice"):
        stats.incumbent_curves(join(one([1.0]), one([2.0])))


def test_a_missing_column_is_named(one):
    with pytest.raises(UsageError, match="lacks judged_us"):
        stats.incumbent_curves(one([1.0]).drop(columns="judged_us"))


def test_an_empty_table_is_refused(one):
    with pytest.raises(UsageError, match="at least one row"):
        stats.incumbent_curves(one([1.0]).iloc[:0])


def test_final_latency_sums_up_each_run(one, join):
    runs = join(
        one([None, 5.0, 4.0], judged=[None, 5.2, 4.2], search_s=[0.1, 0.2, 0.3]),
        one([None, None], seed=1),
    )
    final = stats.final_latency(runs).set_index("seed")
    first = final.loc[0]
    assert (first.judged_us, first.machine_s, first.search_s) == (4.2, 3.0, 0.3)
    assert (first.elapsed_s, first.spent_trials, first.trials, first.failures) == (3.3, 3, 3, 1)
    assert np.isnan(final.loc[1].judged_us)
    assert final.loc[1].failures == 2


def test_bands_are_quartiles_of_step_functions(one, join):
    runs = join(*(one([9.0, level], seed=s) for s, level in enumerate([1.0, 2.0, 3.0, 4.0, 5.0])))
    band = stats.convergence_bands(stats.incumbent_curves(runs), grid=[0, 1, 1.5, 2, 7])
    assert band["median"].fillna(-1).tolist() == [-1, 9, 9, 3, 3]
    assert band["low"].fillna(-1).tolist() == [-1, 9, 9, 2, 2]
    assert band["high"].fillna(-1).tolist() == [-1, 9, 9, 4, 4]
    assert band["n_running"].tolist() == [5, 5, 5, 5, 0]
    assert band["n_found"].tolist() == [0, 5, 5, 5, 5]


def test_runs_without_an_incumbent_are_infinitely_slow_not_dropped(one, join):
    runs = join(one([1.0]), one([1.0], seed=1), one([None], seed=2), one([None], seed=3))
    band = stats.convergence_bands(stats.incumbent_curves(runs)).iloc[0]
    assert band["low"] == 1
    assert np.isnan(band["median"])
    assert band["n_found"] == 2


def test_bands_are_divided_by_the_optimum(one):
    optima = pd.DataFrame({"workload": ["softmax/a"], "optimum_us": [2.0]})
    band = stats.convergence_bands(
        stats.incumbent_curves(one([8.0, 2.0])), x="machine_s", grid=[1, 2], optima=optima
    )
    assert band["median"].tolist() == [4, 1]
    assert set(band["unit"]) == {"ratio"}


def test_an_optimum_that_is_absent_or_double_is_refused(one):
    curves = stats.incumbent_curves(one([8.0]))
    other = pd.DataFrame({"workload": ["softmax/b"], "optimum_us": [2.0]})
    with pytest.raises(UsageError, match="absent"):
        stats.convergence_bands(curves, optima=other)
    with pytest.raises(UsageError, match="one row per"):
        stats.convergence_bands(curves, optima=pd.concat([other, other]))


def test_an_unknown_axis_is_refused(one):
    with pytest.raises(UnknownName, match="elapsed_s"):
        stats.convergence_bands(stats.incumbent_curves(one([8.0])), x="elapsed")


def test_many_runs_have_the_curves_that_each_has_alone(one):
    base = one((10 + np.random.default_rng(0).exponential(size=500)).tolist())
    runs = pd.concat([base] * 200, ignore_index=True)
    runs["seed"] = np.repeat(np.arange(200), 500)
    curves = stats.incumbent_curves(runs)
    alone = stats.incumbent_curves(base)["reading_us"].to_numpy()
    assert len(curves) == 100_000
    assert (curves["reading_us"].to_numpy().reshape(200, 500) == alone).all()


def test_runs_without_numbers_of_configs_stay_apart(join, one):
    """A live run of an endless space says -1 for every config: all are one, within a run."""
    runs = join(one([5.0, 7.0], config=[-1, -1]), one([6.0, 4.0], config=[0, -1], seed=1))
    assert stats.incumbent_curves(runs).reading_us.tolist() == [5, 7, 6, 4]
