"""Experiments on the recorded landscapes: the same on any executor, resumable, honest."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from kt_lab.budget import Budget
from kt_lab.cells import (
    ANATOMY,
    COSTS,
    LAUNCHES,
    NOT_REPEATABLE,
    from_launches,
    run_cell,
    to_launches,
)
from kt_lab.errors import LandscapeError, StoreError, UnknownName, UsageError
from kt_lab.experiment import LATER, Experiment, compare_cell, load_runs, process_pool
from kt_lab.landscape import Landscape, landscapes
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search.random import RandomSearch
from kt_lab.store import read_table, write_table
from tests.runners.tables import make_landscape

WORKLOADS = ("softmax/4096x640", "int4_gemm/1x1x7168x8192")
SEARCHERS = ("random", "pattern", "lfbo_pattern", "tpe")


def _experiment(**changes):
    arguments = {
        "name": "small",
        "workloads": WORKLOADS,
        "searchers": SEARCHERS,
        "seeds": 2,
        "budget": Budget(trials=25),
        "lanes": (4,),
    }
    return Experiment(**(arguments | changes))


@pytest.fixture(scope="module")
def serial():
    return _experiment().run()


def _repeatable(runs):
    return runs.drop(columns=[n for n in NOT_REPEATABLE if n in runs])


def test_one_row_per_trial_with_the_columns_of_the_house(serial):
    assert list(serial.columns) == [
        *("workload", "kernel", "gpu", "searcher", "lanes", "seed", "trial", "config", "first"),
        *("repetitions", "status", "latency_us", "judged_us", "compile_s", "measure_s"),
        *("machine_s", "search_s", "origin", "generation", "predicted", "twin"),
    ]
    counts = serial.groupby(["workload", "searcher", "seed"], observed=True)["first"].sum()
    assert len(counts) == 2 * 4 * 2
    assert (counts == 25).all()
    assert serial.loc[serial["status"] != "ok", "latency_us"].isna().all()
    assert serial.loc[serial["status"] == "ok", "judged_us"].notna().all()


@pytest.mark.parametrize("executor", [process_pool, ThreadPoolExecutor])
def test_the_same_seed_gives_the_same_history_on_any_executor(serial, executor):
    with executor(2) as pool:
        pooled = _experiment().run(executor=pool)
    pd.testing.assert_frame_equal(_repeatable(pooled), _repeatable(serial))


@pytest.mark.parametrize("name", ["", "../escaped", "a/b", "a+b", ".hidden", "a\nb", "a\tb"])
def test_a_name_is_that_of_a_file_in_the_folder(name):
    with pytest.raises(UsageError, match=r"a name must have no \+ / .* got "):
        _experiment(name=name)


def test_seeds_differ_and_read_different_visits(serial):
    random = serial[(serial["searcher"] == "random") & (serial["workload"] == WORKLOADS[0])]
    first, second = (random[random["seed"] == s]["config"].tolist() for s in (0, 1))
    assert first != second


def test_stored_runs_are_read_back_and_recomputed_exactly(serial, tmp_path):
    experiment = _experiment()
    experiment.run(directory=tmp_path)
    stored = load_runs(tmp_path / "small.parquet", expect=experiment.facts())
    pd.testing.assert_frame_equal(_repeatable(stored), _repeatable(serial))
    for cell in experiment.cells()[::5]:
        assert compare_cell(stored, cell) == []


def test_how_a_config_is_judged_is_not_stored_but_comes_from_the_landscape(serial, tmp_path):
    experiment = _experiment()
    experiment.run(directory=tmp_path)
    path = tmp_path / "small.parquet"
    frame, facts = read_table(path)
    assert "judged_us" not in frame
    assert load_runs(path)["judged_us"].equals(serial["judged_us"])
    workload = facts["landscapes"].popitem()[0]
    other = facts["landscapes"] | {workload: "0" * 64}
    write_table(frame, path, facts=facts | {"landscapes": other})
    law = f"must come with the landscapes .* got another {workload}"
    with pytest.raises(StoreError, match=law):
        load_runs(path)


def test_a_table_stored_without_costs_is_compared_in_what_it_has(serial, tmp_path):
    experiment = _experiment()
    experiment.run(directory=tmp_path)
    path = tmp_path / "small.parquet"
    frame, facts = read_table(path)
    write_table(frame.drop(columns=["compile_s", LAUNCHES]), path, facts=facts)
    thin = load_runs(path, expect=experiment.facts())
    assert thin[list(COSTS)].isna().all(axis=None)
    assert set(thin) == set(serial)
    assert compare_cell(thin, experiment.cells()[0]) == []


def test_a_stored_table_gives_every_second_back_bit_for_bit(serial, tmp_path):
    experiment = _experiment()
    experiment.run(directory=tmp_path)
    stored, _ = read_table(tmp_path / "small.parquet")
    assert LAUNCHES in stored
    assert not {"measure_s", "judged_us"} & set(stored)
    back = load_runs(tmp_path / "small.parquet")
    same = _repeatable(serial)
    assert back.dtypes.equals(serial.dtypes)
    pd.testing.assert_frame_equal(back[list(same)], same, check_exact=True)


def test_seconds_that_are_no_launches_stay_seconds(serial):
    hashes = _experiment().facts()["landscapes"]
    launches = to_launches(serial, hashes)
    again = from_launches(serial.assign(launches=launches), hashes)
    assert np.array_equal(again, serial["measure_s"])
    assert to_launches(serial.assign(measure_s=serial["measure_s"] + 1e-5), hashes) is None


def test_a_run_is_compared_with_those_of_its_gpu(serial):
    both = pd.concat([serial, serial.assign(gpu="h100")], ignore_index=True)
    assert compare_cell(both, _experiment().cells()[0]) == []


def test_a_changed_run_is_noticed(serial, monkeypatch):
    cell = _experiment().cells()[SEARCHERS.index("tpe")]
    same = (serial["workload"] == cell.workload) & (serial["searcher"] == cell.searcher)
    at = serial.index[same & (serial["seed"] == cell.seed)]
    changed = serial.copy()
    changed.loc[at[3], "config"] += 1
    assert compare_cell(changed, cell) == ["config"]
    assert compare_cell(changed.drop(index=at[5]), cell) == ["trial"]
    monkeypatch.setattr("kt_lab.experiment.EARLY", 3)
    assert compare_cell(changed, cell) == [LATER, "config"]
    assert compare_cell(serial.drop(index=at[5]), cell) == [LATER, "trial"]
    assert compare_cell(serial.drop(index=at[1]), cell) == ["trial"]
    assert compare_cell(serial, cell) == []


def test_whether_another_cpu_excuses_a_run_is_not_told_by_the_name_of_its_row(monkeypatch):
    monkeypatch.setattr("kt_lab.experiment.EARLY", 3)
    rows = {"tpe_beater": "random", "Bayes": ("optuna", {"sampler": "tpe"})}
    mine = _experiment(workloads=WORKLOADS[:1], searchers=rows, seeds=1, budget=Budget(trials=5))
    changed = (runs := mine.run()).assign(config=runs["config"] + (runs["trial"] == 4))
    bad, excused = mine.cells()
    assert compare_cell(changed, bad) == ["config"]
    assert compare_cell(changed, excused) == [LATER, "config"]


def test_a_table_stored_without_the_newer_columns_is_compared_in_those_it_has(serial, tmp_path):
    cell = next(c for c in _experiment().cells() if c.searcher == "lfbo_pattern")
    write_table(serial.drop(columns=list(ANATOMY)), tmp_path / "old.parquet", facts={})
    old = load_runs(tmp_path / "old.parquet")
    assert old.dtypes.equals(serial.dtypes)
    assert old[list(ANATOMY)].isna().all(axis=None)
    assert compare_cell(old, cell) == []
    assert compare_cell(old.assign(latency_us=old["latency_us"] + 1), cell) == ["latency_us"]
    assert compare_cell(serial.assign(generation=serial["generation"] + 1), cell) == ["generation"]


def test_samples_that_were_taken_over_are_told(serial):
    twins = serial[serial["twin"]]
    assert len(twins)
    assert (twins["first"] & (twins["measure_s"] == 0)).all()
    timed = serial[(serial["status"] == "ok") & ~serial["twin"]]
    assert (timed["measure_s"] > 0).all()


def test_an_interrupted_experiment_resumes_where_it_stopped(serial, tmp_path, monkeypatch):
    calls = []

    def counting(cell):
        if len(calls) == 5:
            raise KeyboardInterrupt
        calls.append(cell)
        return run_cell(cell)

    monkeypatch.setattr("kt_lab.experiment.run_cell", counting)
    with pytest.raises(KeyboardInterrupt):
        _experiment().run(directory=tmp_path)
    journal = tmp_path / "small.jsonl"
    with journal.open("ab") as file:
        file.write(b'{"cell": "softmax')  # cut off in mid-write
    monkeypatch.setattr("kt_lab.experiment.run_cell", lambda c: calls.append(c) or run_cell(c))
    runs = _experiment().run(directory=tmp_path)
    assert len(calls) == len(set(calls)) == 16
    pd.testing.assert_frame_equal(_repeatable(runs), _repeatable(serial))
    assert not journal.exists()


def test_a_run_that_is_interrupted_is_none(serial, tmp_path, monkeypatch):
    class Interrupted(ReplayRunner):
        left = 30  # so that it is in the second run

        def next(self):
            Interrupted.left -= 1
            if not Interrupted.left:
                raise KeyboardInterrupt
            return super().next()

    monkeypatch.setattr("kt_lab.cells.ReplayRunner", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        _experiment().run(directory=tmp_path)
    runs = _experiment().run(directory=tmp_path)
    pd.testing.assert_frame_equal(_repeatable(runs), _repeatable(serial))


@pytest.mark.parametrize("old", [0, 1])
def test_a_journal_that_an_older_kt_lab_began_may_lack_columns(old, monkeypatch, tmp_path):
    small = _experiment(searchers=["random"], seeds=1)

    def one(cell):
        table = run_cell(cell)
        return table.drop(columns="twin") if cell.workload == WORKLOADS[old] else table

    monkeypatch.setattr("kt_lab.experiment.run_cell", one)
    runs = small.run(directory=tmp_path)
    lacking = runs["workload"] == WORKLOADS[old]
    assert runs["twin"].isna().equals(lacking)
    whole = _experiment(searchers=["random"], seeds=1).run(executor=ThreadPoolExecutor(1))
    assert _repeatable(runs[~lacking]).equals(_repeatable(whole[~lacking]))
    stored = load_runs(tmp_path / "small.parquet", expect=small.facts())
    pd.testing.assert_frame_equal(_repeatable(stored), _repeatable(runs), check_exact=True)


def test_another_request_does_not_mix_with_stored_runs(tmp_path):
    _experiment(searchers=["random"]).run(directory=tmp_path)
    with pytest.raises(StoreError, match="other seeds in small"):
        _experiment(searchers=["random"], seeds=3).run(directory=tmp_path)
    begun = tmp_path / "small.jsonl"  # of the other request
    begun.write_text("what was computed\n")
    with pytest.raises(StoreError, match="other seeds in small"):
        _experiment(searchers=["random"], seeds=3).run(directory=tmp_path)
    assert begun.read_text() == "what was computed\n"
    journal = tmp_path / "other.jsonl"
    journal.write_text(json.dumps({"facts": {"seeds": 1}}) + "\n")
    with pytest.raises(StoreError, match="must belong to the same experiment"):
        _experiment(name="other").run(directory=tmp_path)


def test_a_foreign_or_truncated_file_is_refused(tmp_path):
    path = tmp_path / "small.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(StoreError, match="kt_lab's facts"):
        load_runs(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StoreError, match="readable Parquet"):
        load_runs(path)
    write_table(pd.DataFrame({"a": [1]}), path, facts={"of": "something else"})
    with pytest.raises(StoreError, match=r"a table of runs must hold .*got a in small"):
        load_runs(path)


@pytest.mark.parametrize(
    ("changes", "error", "law"),
    [
        ({"seeds": 0}, UsageError, "seeds must be a whole number >= 1, got seeds=0"),
        ({"name": 3}, UsageError, "got 3"),
        ({"workloads": "softmax/4096x640"}, UsageError, "workloads must be listed, as in"),
        ({"searchers": "scout"}, UsageError, "searchers must be listed, as in"),
        ({"searchers": RandomSearch}, UsageError, "searchers must be listed, as in"),
        ({"searchers": []}, UsageError, "at least one"),
        ({"searchers": ["lfbo_patern"]}, UnknownName, "did you mean 'lfbo_pattern'"),
        ({"searchers": {"p": ("pattern", {"copys": 3})}}, UnknownName, "did you mean 'copies'"),
        ({"searchers": {"p": ("pattern", {"copies": 0})}}, UsageError, "copies must be in"),
        ({"searchers": {"p": ("pattern", {"copies": {1}})}}, UsageError, "numbers, texts, flags"),
        ({"workloads": ["softmax/1x1"]}, LandscapeError, "must name one landscape, got none"),
        ({"workloads": ["softmax/4096x640"] * 2}, UsageError, "must be named once, got softmax"),
        ({"budget": 3}, UsageError, r"budget must be a Budget, got 3; Budget\(trials="),
        ({"seeds": 1.5}, UsageError, "seeds must be a whole number >= 1, got seeds=1.5"),
        ({"lanes": 4}, UsageError, r"lanes must be listed, as in \(4, 16\), got 4"),
        ({"lanes": (0,)}, UsageError, "lanes must be a whole number >= 1, got lanes=0"),
        ({"lanes": (4, 4)}, UsageError, r"different counts >= 1, got \(4, 4\)"),
    ],
)
def test_a_bad_request_is_refused_before_anything_runs(changes, error, law):
    with pytest.raises(error, match=law):
        _experiment(**changes)


def test_a_searcher_may_stand_alone_in_its_tuple():
    alone = _experiment(searchers={"r": ("random",)})
    assert alone.cells() == _experiment(searchers={"r": "random"}).cells()


def test_a_landscape_and_its_own_file_are_one_workload():
    file = next(e.path for e in landscapes() if e.workload == "softmax/4096x640")
    with pytest.raises(UsageError, match=f"as softmax/4096x640 and as {file}"):
        _experiment(workloads=["softmax/4096x640", str(file)])


def test_a_workload_on_which_nothing_works_is_refused_before_anything_runs(tmp_path):
    table = make_landscape().table.reset_index(drop=True)
    none = pd.Series([[] for _ in range(len(table))])
    dead = table.assign(status="compile_error", samples_us=none, visit=none)
    path = Landscape(dead, make_landscape().manifest).save(tmp_path / "toy")
    with pytest.raises(UsageError, match="works, got none of toy/16 on test; leave it out"):
        _experiment(workloads=[WORKLOADS[0], str(path)])


def test_numpys_numbers_are_as_good_as_pythons(tmp_path):
    budget = Budget(trials=np.int64(12), seconds=np.float32(60))
    given = {"searchers": {"p": ("pattern", {"copies": np.int64(3)})}, "seeds": np.int64(1)}
    ours = _experiment(**given, lanes=np.array([4]), budget=budget)
    plain = {"searchers": {"p": ("pattern", {"copies": 3})}, "seeds": 1}
    theirs = _experiment(**plain, lanes=[4], budget=Budget(trials=12, seconds=60))
    assert len(ours.run(directory=tmp_path)) == 24
    assert len(theirs.run(directory=tmp_path)) == 24  # read, as the answer to the same request
