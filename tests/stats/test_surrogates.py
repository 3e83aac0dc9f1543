"""What models knew: exact on degenerate cases, and the bar is the searcher's own."""

import numpy as np
import pandas as pd
import pytest

from kt_lab.cells import Cell, run_cell
from kt_lab.errors import UnknownName, UsageError
from kt_lab.search import surrogate
from kt_lab.stats.surrogates import (
    calibration,
    model_choices,
    rank_correlation,
    surrogate_quality,
)

INF, NAN = np.inf, np.nan
FEW = {"resamples": 200}


@pytest.mark.parametrize(
    ("predicted", "latency", "expected"),
    [
        ([1.0, 2.0, 3.0, 9.0], [10.0, 20.0, 25.0, 26.0], 1.0),
        ([9.0, 3.0, 2.0, 1.0], [10.0, 20.0, 25.0, 26.0], -1.0),
        ([1.0, 2.0, 3.0], [5.0, 6.0, INF], 1.0),  # a failure is the slowest
        ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, INF, INF], np.sqrt(0.9)),  # failures are alike
        ([7.0, 7.0, 7.0], [1.0, 2.0, 3.0], 0.0),  # told nothing apart
        ([1.0, 2.0, 3.0], [5.0, 5.0, 5.0], NAN),  # nothing to rank
        ([1.0, 2.0], [INF, INF], NAN),
        ([1.0], [5.0], NAN),
    ],
)
def test_the_rank_correlation_of_simple_cases_is_exact(predicted, latency, expected):
    latency, predicted = np.array(latency), np.array(predicted)
    for said, unit in ((predicted, "latency_us"), (1 - predicted / 10, "p_good")):
        found = rank_correlation(said, latency, predicts=unit)
        assert found == pytest.approx(expected, abs=1e-15, nan_ok=True)


def runs_of(one, predicted, latency, generation, *, searcher="lfbo_pattern", **at):
    """One run: starts read 1..10 us, then choices."""
    starts = list(range(1, 11))
    table = one([*starts, *[None if v == INF else v for v in latency]], searcher=searcher, **at)
    table["generation"] = pd.array([0] * 10 + list(generation), dtype="Int16")
    return table.assign(predicted=np.array([NAN] * 10 + list(predicted), dtype=np.float32))


def test_good_is_by_the_bar_of_the_readings_before_the_generation(one):
    runs = runs_of(one, [0.75, 0.5, 0.25], [1.9, 2.0, INF], [1, 1, 2])
    runs.loc[10, "config"] = 0  # the fastest start, read again: from 1.0 to 1.9
    found = model_choices(runs)
    assert found["bar_us"].tolist() == pytest.approx(
        [np.quantile(range(1, 11), 0.1)] * 2 + [np.quantile([1.9, 2, 2, *range(3, 11)], 0.1)]
    )
    assert found["good"].tolist() == [True, False, False]
    assert found["latency_us"].tolist() == [1.9, 2.0, INF]
    half = model_choices(runs, searchers={"lfbo_pattern": ("lfbo_pattern", {"quantile": 0.5})})
    assert half["bar_us"].iloc[0] == 5.5


def test_the_bar_is_the_one_that_the_searcher_sets(monkeypatch):
    bars, threshold = [], surrogate.threshold
    monkeypatch.setattr(surrogate, "threshold", lambda *a: bars.append(threshold(*a)) or bars[-1])
    cell = Cell("int4_gemm/1x16x7168x8192", "h200", "row", "lfbo_tree", (), 16, 1, 200, None)
    found = model_choices(run_cell(cell), searchers={"row": "lfbo_tree"})
    told = found.groupby("generation")["bar_us"].unique()
    assert [len(values) for values in told] == [1] * len(told)
    assert len(told) > 1
    assert [v[0] for v in told] == pytest.approx(bars[: len(told)], rel=1e-6)


def test_quality_is_exact_and_weighs_generations_by_their_configs(one, join):
    said, latency = [0.9, 0.5, 0.1, 0.2, 0.8], [1.0, 5.0, INF, 1.0, 9.0]
    runs = join(*(runs_of(one, said, latency, [1, 1, 1, 2, 2], seed=s) for s in (0, 1)))
    table = surrogate_quality(model_choices(runs), **FEW).set_index(["measure", "generation"])
    rank = table.loc["rank_correlation"]
    assert rank["estimate"].tolist() == pytest.approx([(3 * 1 - 2 * 1) / 5, 1.0, -1.0])
    assert rank[["low", "high"]].to_numpy().tolist() == [[e, e] for e in rank["estimate"]]
    assert rank["n_failed"].tolist() == [2, 2, 0]
    assert rank["n_configs"].tolist() == [10, 6, 4]
    assert rank[["n_kernels", "n_workloads", "n_seeds", "n_runs"]].iloc[0].tolist() == [1, 1, 2, 2]
    errors = [0.1**2, 0.5**2, 0.1**2, 0.8**2, 0.8**2]
    assert table.loc["brier"]["estimate"].tolist() == pytest.approx(
        [np.mean(errors), np.mean(errors[:3]), np.mean(errors[3:])]
    )


def test_failures_only_have_no_rank_but_a_brier_score(one):
    runs = runs_of(one, [0.5, 0.3], [INF, INF], [1, 1])
    table = surrogate_quality(model_choices(runs), **FEW)
    rank = table[table["measure"] == "rank_correlation"]
    assert len(rank) == 2
    assert rank[["estimate", "low", "high"]].isna().all(axis=None)
    assert rank["n_runs"].tolist() == [0, 0]
    brier = table[table["measure"] == "brier"]["estimate"]
    assert brier.tolist() == pytest.approx([0.17, 0.17])


def test_workloads_weigh_alike_and_the_interval_resamples_kernels(one, join):
    good, bad = ([0.9, 0.1], [1.0, 9.0]), ([0.1, 0.9], [1.0, 9.0])
    runs = join(
        *(runs_of(one, *good, [1, 1], seed=s, kernel="a", workload="a/x") for s in range(3)),
        runs_of(one, *bad, [1, 1], kernel="b", workload="b/x"),
    )
    row = surrogate_quality(model_choices(runs), **FEW).iloc[-1]
    assert (row["measure"], row["generation"]) == ("rank_correlation", 1)
    assert (row["estimate"], row["low"], row["high"]) == (0.0, -1.0, 1.0)
    assert (row["n_kernels"], row["n_seeds"], row["n_runs"]) == (2, 1, 4)


def test_a_latency_is_judged_by_its_median_absolute_log_error(one):
    said = [2.0, 20.0, 5.0, -1.0]
    runs = runs_of(one, said, [1.0, 10.0, INF, 8.0], [1, 1, 1, 2], searcher="ucb_pattern")
    choices = model_choices(runs)
    assert choices["bar_us"].isna().all()
    table = surrogate_quality(choices, **FEW).set_index(["measure", "generation"])
    assert set(table.index.get_level_values(0)) == {"rank_correlation", "log_error"}
    assert table.loc["log_error"]["estimate"].tolist() == pytest.approx([INF, np.log(2), INF])
    assert calibration(choices, **FEW).empty


def test_calibration_counts_what_was_good_in_each_bin(one):
    said = [0.25, 0.25, 0.25, 0.3, 0.95, 1.0]
    runs = runs_of(one, said, [1.0, 9.0, 9.0, INF, 1.5, 1.0], [1] * 6)
    table = calibration(model_choices(runs), bins=5, **FEW)
    assert table["bin_low"].tolist() == [0.2, 0.8]
    assert table["n_configs"].tolist() == [4, 2]
    assert table["predicted"].tolist() == pytest.approx([1.05 / 4, 0.975])
    assert table["observed"].tolist() == [0.25, 1.0]
    assert table["calibration_error"].tolist() == pytest.approx([(0.05 + 0.05) / 6] * 2)


def test_tables_without_predictions_or_their_generation_are_refused(one):
    runs = runs_of(one, [0.5], [1.0], [1])
    with pytest.raises(UsageError, match="must hold predictions, got none"):
        model_choices(runs.assign(predicted=NAN))
    lost = runs.assign(generation=pd.array([pd.NA] * len(runs), dtype="Int16"))
    with pytest.raises(UsageError, match=r"must come with its generation.*1 without"):
        model_choices(lost)
    with pytest.raises(UnknownName, match="lfbo_pattern"):
        model_choices(runs.assign(searcher="lfbo_patern"))
