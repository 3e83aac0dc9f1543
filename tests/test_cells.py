"""The tidy table of a history, from runners that know positions and from others."""

import numpy as np
import pytest

from kt_lab import stats
from kt_lab.budget import Budget
from kt_lab.cells import history_table, typed
from kt_lab.comparison import compare
from kt_lab.comparison.figures import budget_of
from kt_lab.experiment import Experiment
from kt_lab.runners.synthetic import SyntheticLandscape, SyntheticRunner
from kt_lab.search import make_searcher
from kt_lab.search.conformance_cases import small_space
from kt_lab.search.random import RandomSearch
from kt_lab.trial import History, Measurement, Proposal, Trial
from kt_lab.tune import tune
from tests.runners.tables import config

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


class Lucky(RandomSearch):
    """Proposes something with every third seed only."""

    def ask(self, n):
        return [] if self.seed % 3 else super().ask(n)


def test_a_run_that_proposed_nothing_counts_and_has_its_own_searchers_name():
    """Else its searcher would be judged by the seeds with which it did."""
    budget = Budget(trials=10)
    runs = Experiment("own", ["softmax/4096x640"], [Lucky, "random"], 6, budget).run()
    assert set(runs["searcher"]) == {"Lucky", "random"}, "not the name of what it inherits from"
    table = stats.final_latency(runs).set_index(["searcher", "seed"])["judged_us"]
    assert table.loc["Lucky"].isna().tolist() == [False, True, True] * 2
    assert table.loc["random"].notna().all()


def test_seeds_are_stored_as_they_are():
    for seed, kind in ((5, "int16"), (20261128, "int64")):
        trials = [Trial(0, Proposal(0, config(0)), Measurement("ok", (1.0,)))]
        facts = {"searcher": "random", "lanes": 1, "seed": seed, "gpu": "g"}
        facts |= {"kernel": "k", "workload": "w"}
        table = typed(history_table(History(trials), facts=facts, judged_us=[1.0] * 16))
        assert (table["seed"].tolist(), str(table["seed"].dtype)) == ([seed], kind)


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
