"""The tidy table of a history, from runners that know positions and from others."""

import numpy as np
import pytest

from kt_lab import stats
from kt_lab.budget import Budget
from kt_lab.cells import history_table
from kt_lab.comparison import compare
from kt_lab.comparison.figures import budget_of
from kt_lab.runners.synthetic import SyntheticLandscape, SyntheticRunner
from kt_lab.search import make_searcher
from kt_lab.search.conformance_cases import small_space
from kt_lab.tune import tune

FACTS = {"workload": "made/up", "kernel": "made", "gpu": "none", "searcher": "pattern"}


def test_configs_without_a_position_are_numbered_so_that_statistics_tell_them_apart():
    space, budget = small_space(), Budget(trials=60)
    runner = SyntheticRunner(SyntheticLandscape(space, seed=0, failing=0.1), seed=1)
    history = tune(make_searcher("pattern", space, seed=0, budget=budget), runner, budget=budget)
    table = history_table(history, facts=FACTS | {"lanes": 1, "seed": 0})
    assert table["config"].nunique() == len({t.config for t in history}) == 60
    configs = dict(zip(table["config"], (t.config for t in history), strict=True))
    final = stats.final_latency(table).iloc[0]
    best = history.incumbent
    assert configs[final["incumbent"]] == best.config
    assert final["reading_us"] == pytest.approx(best.latency_us)
    judged = history_table(history, facts={}, judged_us=[1.0] * space.size)["judged_us"]
    assert judged.isna().all(), "nobody knows whose they are"


def test_runs_whose_seconds_end_before_a_trial_does_count_as_failures():
    """Some seeds' first config takes longer than that: only the lucky ones would be left."""
    runs = compare(
        ["random", "pattern"], ["attention/1x32x8x8192x128x2"], seeds=12, seconds=0.8, lanes=1
    )
    late = runs[runs["status"] == "timeout"]
    assert 0 < len(late) < 12
    assert set(late["searcher"]) == {"random"}
    assert late["latency_us"].isna().all()
    assert not late["first"].any(), "no trial was spent"
    assert late["machine_s"].tolist() == pytest.approx([0.8] * len(late))
    ratio = stats.latency_ratios(runs, reference="pattern").set_index(["scope", "searcher"])
    row = ratio.loc[("geomean", "random")]
    assert (row["n_runs"], row["n_success"], row["estimate"]) == (12, 12 - len(late), np.inf)
    assert budget_of(runs) == "200 trials or 0.8 machine seconds"
    runs.attrs.clear()  # as of tables from elsewhere
    assert budget_of(runs) == "unknown: no run spent more than 1 trial"


def test_a_budget_is_told_where_most_runs_spent_the_same():
    shared = compare(["random", "pattern"], ["softmax/4096x640"], seeds=2, trials=30)
    assert budget_of(shared) == "30 trials"
    shared.attrs["budget"] = "500 trials"  # which the space did not have
    assert budget_of(shared[shared["seed"] >= 0]) == "500 trials"
    own = compare(["pattern"], ["softmax/4096x640"], seeds=2, trials=100_000)
    assert budget_of(own) == "100,000 trials"
    own.attrs.clear()
    most = own.groupby("seed")["first"].sum().max()
    assert budget_of(own) == f"unknown: no run spent more than {most:,} trials"
