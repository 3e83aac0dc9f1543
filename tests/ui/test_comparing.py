"""A comparison in the background: its states, what it keeps, and that nothing outlives it."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from kt_lab import experiment as experiment_module
from kt_lab.cells import NOT_REPEATABLE, run_cell
from kt_lab.comparison import compare, finished_part, open_runs, request, stored_runs
from kt_lab.errors import UnknownName, UsageError
from kt_lab.ui import background, compared, comparing
from kt_lab.ui.background import alive
from kt_lab.ui.comparing import CompareSession
from tests.ui.gated import LONG_S

WORKLOAD = "softmax/4096x640"
SMALL = {"seeds": 2, "trials": 8}
asked = partial(request, ["random", "pattern"], [WORKLOAD], **SMALL)


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    for each in alive():
        each.close(timeout=0)
    assert all(each.ended.wait(LONG_S) for each in alive())


@pytest.fixture
def gate(monkeypatch):
    """Runs say that they began (`began`), and end when they are let (`let`)."""

    class Gate:
        began, let = threading.Semaphore(0), threading.Semaphore(0)

    def gated(cell):
        Gate.began.release()
        assert Gate.let.acquire(timeout=LONG_S)
        return run_cell(cell)

    monkeypatch.setattr(experiment_module, "run_cell", gated)
    return Gate


def session(name="compare", source=asked, **how):
    return CompareSession(name, source=source, workers=0, **how)


def plain(runs):
    order = ["workload", "searcher", "seed", "trial"]
    runs = runs.astype({"searcher": str, "workload": str}).sort_values(order)
    return runs.drop(columns=list(NOT_REPEATABLE), errors="ignore").reset_index(drop=True)


def test_a_session_computes_what_the_experiment_does():
    ran = session()
    assert ran.snapshot().state == "idle"
    assert ran.runs().empty
    found = ran.start().wait(LONG_S)
    assert (found.state, found.done, found.total, found.resumed) == ("done", 4, 4, 0)
    assert found.eta_s is None
    assert list(ran.optima["workload"]) == [WORKLOAD]
    alone = compare(["random", "pattern"], [WORKLOAD], **SMALL)
    pd.testing.assert_frame_equal(plain(ran.runs()), plain(alone), check_categorical=False)
    with pytest.raises(UsageError, match="done"):
        ran.start()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.done = 1


def test_stop_keeps_the_runs_that_began_and_the_same_request_goes_on(gate, tmp_path):
    first = session(directory=tmp_path).start()
    gate.let.release()
    for _ in range(2):
        assert gate.began.acquire(timeout=LONG_S)
    first.stop()
    told = first.snapshot()
    assert (told.state, told.stopping, told.done) == ("running", True, 1)
    gate.let.release()
    found = first.wait(LONG_S)
    assert (found.state, found.stopping, found.done) == ("stopped", False, 2)
    assert first.runs().groupby(["searcher", "seed"], observed=True).ngroups == 2
    again = session(directory=tmp_path).start()
    gate.let.release(2)
    found = again.wait(LONG_S)
    assert (found.state, found.done, found.resumed) == ("done", 4, 2)
    gate.let.release(4)
    alone = asked().run()
    pd.testing.assert_frame_equal(plain(again.runs()), plain(alone), check_categorical=False)
    stored = session(directory=tmp_path).start().wait(LONG_S)
    assert (stored.state, stored.done, stored.resumed) == ("done", 4, 4)


def test_eta_is_told_from_the_second_run_on(gate):
    ran = session().start()
    assert ran.snapshot().eta_s is None
    for done in (1, 2, 3):
        gate.let.release()
        assert gate.began.acquire(timeout=LONG_S)
        until = time.monotonic() + LONG_S
        while ran.snapshot().done < done and time.monotonic() < until:
            time.sleep(0.005)
    assert ran.snapshot().eta_s > 0
    gate.let.release()
    assert ran.wait(LONG_S).eta_s is None


def test_starting_again_under_a_name_stops_the_one_before(gate, tmp_path):
    first, second = session(directory=tmp_path), session(directory=tmp_path)
    first.start()
    assert gate.began.acquire(timeout=LONG_S)
    second.start()
    assert second.wait(0.05).total == 0, "two would write one journal"
    gate.let.release(4)
    assert first.wait(LONG_S).state == "stopped"
    assert second.wait(LONG_S).state == "done"


def test_what_fails_ends_the_session_with_its_reason(monkeypatch):
    broken = session(source=lambda: 1 / 0).start()
    with pytest.raises(ZeroDivisionError):
        broken.wait(LONG_S)
    assert broken.snapshot().state == "failed"
    assert "Traceback" in broken.snapshot().traceback
    calls = []

    def second_fails(cell):
        calls.append(cell)
        return run_cell(cell) if len(calls) == 1 else 1 / 0

    monkeypatch.setattr(experiment_module, "run_cell", second_fails)
    later = session().start()
    with pytest.raises(ZeroDivisionError):
        later.wait(LONG_S)
    assert later.snapshot().done == 1
    assert len(later.runs()) == 8


def test_two_at_a_time_share_the_runs(gate, tmp_path):
    first = session("one", directory=tmp_path).start()
    assert gate.began.acquire(timeout=LONG_S)
    second = session("two", directory=tmp_path).start()
    assert gate.began.acquire(timeout=LONG_S), "the second begins another run meanwhile"
    gate.let.release(4)
    for each in (first, second):
        found = each.wait(LONG_S)
        assert (found.state, found.done, found.total) == ("done", 4, 4)
    assert not gate.let.acquire(blocking=False), "four runs were computed, none of them twice"
    pd.testing.assert_frame_equal(plain(first.runs()), plain(second.runs()))
    assert [p.suffix for p in tmp_path.iterdir()] == [".parquet"]


def test_an_executor_gets_no_more_runs_once_it_is_stopped():
    got = []
    with ThreadPoolExecutor(2) as pool:
        pool.window = 2
        runs = asked(seeds=10).run(executor=pool, on_run=got.append, stop=lambda: len(got) > 2)
    assert 3 <= len(got) <= 5
    assert len(runs) == sum(map(len, got))
    assert asked().run(stop=lambda: True).empty


def test_workers_end_when_their_process_is_killed():
    program = """
import os, time
from kt_lab.runners.pool import Pool
pool = Pool(1)
print(pool.submit(os.getpid).result(), flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    worker = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    until = time.monotonic() + LONG_S
    while _runs(worker) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _runs(worker)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_sessions_need_no_widgets():
    for module in (background, compared, comparing):
        assert "ipywidgets" not in Path(module.__file__).read_text(encoding="utf-8")


# -- asking by names ------------------------------------------------------------------------------


def test_every_other_request_has_files_of_its_own():
    names = {asked().name, asked(seeds=3).name, asked(lanes=4).name}
    assert len(names) == 3
    assert asked().name == asked().name
    with pytest.raises(UnknownName, match="searcher"):
        request(["patern"], [WORKLOAD])


def test_stored_runs_are_opened_by_name_or_file(tmp_path, monkeypatch):
    assert "headline" in stored_runs()
    runs = compare(["random"], [WORKLOAD], directory=tmp_path / "comparisons", **SMALL)
    (path,) = (tmp_path / "comparisons").glob("*.parquet")
    pd.testing.assert_frame_equal(plain(open_runs(path)), plain(runs), check_categorical=False)
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    assert stored_runs() == {path.stem: path}
    for folder in ("mine", "mine_before"):
        (tmp_path / "runs" / folder).mkdir(parents=True)
        shutil.copy(path, tmp_path / "runs" / folder / "mine.parquet")
    assert stored_runs()["mine"].parent.name == "mine"
    with pytest.raises(UnknownName, match="headline"):
        open_runs("headline")


def test_only_seeds_that_all_searchers_have_finished_are_compared():
    runs = compare(["random", "pattern"], [WORKLOAD], **SMALL)
    assert len(finished_part(runs)) == len(runs)
    late = (runs["searcher"] == "pattern") & (runs["seed"] == 1)
    part = finished_part(runs[~late])
    assert set(part["seed"]) == {0}
    assert part["searcher"].nunique() == 2
    assert finished_part(runs[:0]).empty
