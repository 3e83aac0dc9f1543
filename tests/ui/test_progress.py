"""What a session knows and keeps of its run is what the studies compute from the same trials."""

import pandas as pd
import pytest

from kt_lab import Budget, load_landscape, stats
from kt_lab.cells import history_table
from kt_lab.errors import UsageError
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import make_searcher
from kt_lab.store import read_table
from kt_lab.ui.progress import Progress
from kt_lab.ui.session import Session
from tests.ui.gated import LONG_S, GatedRunner, session

LANDSCAPE = load_landscape("softmax/4096x640")


def replay_session(name, searcher, trials):
    budget = Budget(trials=trials)
    return Session(
        name,
        searcher=lambda: make_searcher(searcher, LANDSCAPE.space, seed=1, budget=budget),
        runner=lambda: ReplayRunner(LANDSCAPE, seed=1),
        budget=budget,
        reference=LANDSCAPE.space.default,
        facts={"workload": "softmax/4096x640", "kernel": "softmax", "gpu": "h200"}
        | {"searcher": searcher, "lanes": 16, "seed": 1},
    )


@pytest.mark.parametrize("searcher", ["lfbo_pattern", "random"])
def test_the_curve_is_that_of_the_studies(searcher, tmp_path):
    """Re-measurements, failures and ties included: the same incumbent after every trial."""
    ran = replay_session("curve", searcher, 130)
    found = ran.start().wait(LONG_S)
    table, _ = read_table(ran.save(tmp_path / "run.parquet"))
    progress, curves = Progress(), stats.incumbent_curves(table)
    judge = ReplayRunner(LANDSCAPE, seed=1).judge
    for trial, (_, expected) in zip(ran.history, curves.iterrows(), strict=True):
        progress.take(trial, judge)
        mine = progress.snapshot()
        assert mine.trials == expected["spent_trials"]
        assert mine.elapsed_s == trial.elapsed_s
        if mine.incumbent is None:
            assert pd.isna(expected["incumbent"])
            continue
        assert LANDSCAPE.index(mine.incumbent) == expected["incumbent"]
        values = expected[["reading_us", "judged_us"]].astype(float)
        assert [mine.reading_us, mine.judged_us] == pytest.approx(values.tolist())
        assert mine.curve[-1] == (mine.trials, mine.elapsed_s, mine.reading_us, mine.judged_us)
    assert found.curve == mine.curve
    assert len(found.curve) < len(ran.history) / 3, "a curve holds what changed, not every trial"
    assert dict(found.statuses) == table["status"].value_counts().to_dict()
    assert found.reference_us == judge(LANDSCAPE.space.default)


def test_a_stored_replay_is_a_run_of_the_studies(tmp_path):
    ran = replay_session("stored", "random", 20)
    ran.start().wait(LONG_S)
    table, _ = read_table(ran.save(tmp_path / "run.parquet"))
    columns = {n: ran.facts[n] for n in ("workload", "kernel", "gpu", "searcher", "lanes", "seed")}
    judged = ReplayRunner(LANDSCAPE, seed=1).judged_us
    expected = history_table(ran.history, facts=columns, judged_us=judged)
    pd.testing.assert_frame_equal(table.drop(columns="values"), expected, check_dtype=False)


def test_a_live_run_is_stored_with_its_configs_numbered(tmp_path, monkeypatch):
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    ran = session(GatedRunner(open_gate=True), facts={"workload": "fake/16", "gpu": "none"})
    with pytest.raises(UsageError, match="at least one trial"):
        ran.save()
    ran.start().wait(LONG_S)
    paths = [ran.save(), ran.save()]
    assert len(set(paths)) == 2
    assert paths[0].parent == tmp_path / "sessions" / "fake" / "16" / "none"
    table, _ = read_table(paths[0])
    assert table["config"].tolist() == [0, 1, 2, 3, 4]
    assert table["judged_us"].isna().all()
    assert '"A"' in table["values"][0]
