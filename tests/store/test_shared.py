"""Several processes compute one table: shared, taken over, never twice, never another's."""

import json
import os
import shutil
import threading
from concurrent.futures import ProcessPoolExecutor
from itertools import islice

import pandas as pd
import pytest

from kt_lab.budget import Budget
from kt_lab.cells import NOT_REPEATABLE, columns, run_cell
from kt_lab.errors import StoreError
from kt_lab.experiment import Experiment, load_runs
from kt_lab.store import Journal, Shared, read_journal, repair
from kt_lab.store.files import lock

FACTS = {"experiment": "small", "seeds": 3}


@pytest.fixture
def target(tmp_path):
    return tmp_path / "small.parquet"


@pytest.fixture
def computed(monkeypatch):
    """The cells that were computed, in order."""
    calls = []
    monkeypatch.setattr("kt_lab.experiment.run_cell", lambda c: calls.append(c) or run_cell(c))
    return calls


def small(**changes):
    about = {"seeds": 3, "budget": Budget(trials=6), "lanes": (4,)} | changes
    return Experiment("small", ("softmax/4096x640",), ("random", "pattern"), **about)


def repeatable(runs):
    return runs.drop(columns=[n for n in NOT_REPEATABLE if n in runs])


@pytest.fixture(scope="module")
def alone():
    return small().run()


def interrupted(directory, after):
    """Leaves the journal of a run that was stopped after so many."""
    got = []
    small().run(directory=directory, on_run=got.append, stop=lambda: len(got) == after)


# -- claims ---------------------------------------------------------------------------------------


def test_a_run_is_claimed_once_and_given_free_by_the_end_of_its_process(target):
    keys = list("abcd")
    with Shared(target, FACTS) as one, Shared(target, FACTS) as two:
        first = one.claims(keys)
        assert next(first) == "a"
        assert list(islice(two.claims(keys), 2)) == ["b", "c"]
        assert next(first) == "d"
        one.add("a", {"x": [1]})
        two.look()
        assert two.runs == {"a": {"x": [1]}}
        assert list(two.claims(keys)) == []  # d is in the first one's hands
        one.close()
        two.look()
        assert list(two.claims(keys)) == ["d"]
    with Shared(target, FACTS) as three:
        assert three.runs == {"a": {"x": [1]}}
        assert list(three.claims(keys)) == ["b", "c", "d"]


def test_a_journal_that_goes_on_does_not_revive_its_claims(target):
    with Shared(target, FACTS) as one, Shared(target, FACTS) as two:
        assert list(islice(one.claims("ab"), 1)) == ["a"]
        one.close()
        with Shared(target, FACTS) as again:  # in the journal of the one that ended
            assert list(two.claims("ab")) == ["a", "b"]
            assert list(again.claims("ab")) == []
    assert len(list(target.parent.glob("*.jsonl"))) == 2


def test_a_forked_child_does_not_hold_what_its_parent_locked(tmp_path):
    file = lock(tmp_path / "lock", wait=True)
    with ProcessPoolExecutor(1) as pool:
        pool.submit(os.getpid).result()
        assert lock(tmp_path / "lock", wait=False) is None
        file.close()
        lock(tmp_path / "lock", wait=False).close()


# -- experiments ----------------------------------------------------------------------------------


def test_three_at_a_time_share_the_runs_and_end_alike(alone, computed, tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(small().run(directory=tmp_path)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(computed) == len(set(computed)) == 6
    assert len(found) == 3
    for runs in (*found, load_runs(tmp_path / "small.parquet", expect=small().facts())):
        pd.testing.assert_frame_equal(repeatable(runs), repeatable(alone))
    assert os.listdir(tmp_path) == ["small.parquet"]


def test_what_others_finish_is_told_as_it_comes(tmp_path, monkeypatch):
    inside, done, got = threading.Event(), [], []

    def gated(cell):
        inside.set()
        return run_cell(cell)

    other = Shared(tmp_path / "small.parquet", json.loads(json.dumps(small().facts())))
    held = list(islice(other.claims(_keys()), 2))
    theirs = {key: _rows(key) for key in held}
    monkeypatch.setattr("kt_lab.experiment.run_cell", gated)
    how = {"on_run": got.append, "on_progress": lambda *at: done.append(at)}
    thread = threading.Thread(target=lambda: small().run(directory=tmp_path, **how))
    thread.start()
    assert inside.wait(30)
    for key, rows in theirs.items():
        other.add(key, rows)
    thread.join(30)
    assert not thread.is_alive()
    assert done == [(n, 6) for n in range(1, 7)]
    assert len(got) == 6
    other.close()


def _keys():
    from kt_lab.experiment import _key

    return [_key(cell) for cell in small().cells()]


def _rows(key):
    from kt_lab.experiment import _key

    [table] = [run_cell(c) for c in small().cells() if _key(c) == key]
    return columns(table)


def test_a_stop_does_not_wait_for_what_others_have_in_hand(tmp_path):
    other = Shared(tmp_path / "small.parquet", json.loads(json.dumps(small().facts())))
    list(islice(other.claims(_keys()), 2))
    got = []
    runs = small().run(directory=tmp_path, on_run=got.append, stop=lambda: len(got) == 4)
    assert len(got) == 4
    assert len(runs) == 4 * 6
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    other.close()


def test_a_journal_of_an_older_kt_lab_resumes(alone, computed, tmp_path):
    interrupted(tmp_path, 4)
    path = tmp_path / "small.jsonl"
    old = [
        {"facts": r["facts"]} if "facts" in r else {"cell": r["cell"], "rows": r["rows"]}
        for r in read_journal(path)
        if "claim" not in r
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in old) + '{"cell": "softm')
    computed.clear()
    runs = small().run(directory=tmp_path)
    assert len(computed) == 2
    pd.testing.assert_frame_equal(repeatable(runs), repeatable(alone))


def test_a_journal_that_lost_its_facts_still_says_whose_it_is(alone, computed, tmp_path):
    interrupted(tmp_path, 4)
    path = tmp_path / "small.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"facts", b"farts") + b"".join(lines[2:]))
    with pytest.raises(StoreError, match="got line 2 of small"):
        small().run(directory=tmp_path)
    repair(path)
    kept = path.read_bytes()
    with pytest.raises(StoreError, match="must belong to the same experiment"):
        small(seeds=4).run(directory=tmp_path)
    assert path.read_bytes() == kept
    computed.clear()
    runs = small().run(directory=tmp_path)
    assert len(computed) == 2
    pd.testing.assert_frame_equal(repeatable(runs), repeatable(alone))


def test_another_request_in_any_journal_is_refused_by_what_differs(tmp_path):
    interrupted(tmp_path, 2)
    shutil.move(tmp_path / "small.jsonl", tmp_path / "small+7.jsonl")
    law = r"got other budget, seeds in small\+7\.jsonl"
    with pytest.raises(StoreError, match=law):
        small(seeds=2, budget=Budget(trials=5)).run(directory=tmp_path)
    with Journal(tmp_path / "smaller.jsonl") as other:
        other.append({"facts": {}})
    small().run(directory=tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["small.parquet", "smaller.jsonl"]


def test_what_a_kill_left_beside_a_finished_table_is_swept(alone, computed, tmp_path):
    small().run(directory=tmp_path)
    Shared(tmp_path / "small.parquet", FACTS).close()
    (tmp_path / "small.lock").touch()
    computed.clear()
    runs = small().run(directory=tmp_path)
    assert os.listdir(tmp_path) == ["small.parquet"]
    assert not computed
    pd.testing.assert_frame_equal(repeatable(runs), repeatable(alone))


def test_a_table_that_is_stored_while_one_waits_to_begin_is_taken(computed, tmp_path, monkeypatch):
    small().run(directory=tmp_path)
    table = (tmp_path / "small.parquet").read_bytes()
    (tmp_path / "small.parquet").unlink()
    computed.clear()

    class Late(Shared):
        def __init__(self, target, facts):
            super().__init__(target, facts)
            target.write_bytes(table)

    monkeypatch.setattr("kt_lab.experiment.Shared", Late)
    assert len(small().run(directory=tmp_path)) == 36
    assert not computed
    assert os.listdir(tmp_path) == ["small.parquet"]


def test_an_experiment_whose_name_begins_alike_keeps_its_journal(alone, tmp_path):
    interrupted(tmp_path, 2)
    shutil.move(tmp_path / "small.jsonl", tmp_path / "small.2.jsonl")  # that of a "small.2"
    small().run(directory=tmp_path)
    assert (tmp_path / "small.2.jsonl").exists()
    pd.testing.assert_frame_equal(
        repeatable(load_runs(tmp_path / "small.parquet")), repeatable(alone)
    )
