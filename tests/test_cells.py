"""The tidy table of a history, from runners that know positions and from others."""

import pytest

from kt_lab import stats
from kt_lab.budget import Budget
from kt_lab.cells import history_table
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
