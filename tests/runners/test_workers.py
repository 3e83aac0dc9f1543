import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from kt_lab.errors import UsageError
from kt_lab.runners.workers import Outcome, Workers, wait_any
from kt_lab.runners.zygote import Zygote

ROOT = Path(__file__).resolve().parents[2]
MODULE = "tests.runners.worker_services"
SERVICE = f"{MODULE}:service"
FOR_EVER = 600.0


@pytest.fixture(scope="module")
def zygote():
    with Zygote(preload=[MODULE]) as shared:
        yield shared


@pytest.fixture
def pool(zygote):
    with Workers(1, service=SERVICE, zygote=zygote) as workers:
        yield workers


def ask(workers, *task, timeout_s=60.0):
    workers.submit("asked", task, timeout_s=timeout_s)
    tag, outcome = workers.next()
    assert tag == "asked"
    return outcome


def about(workers):
    return ask(workers, "about").value


def collect(workers):
    """Everything that is pending, by tag; a tag that comes twice fails."""
    found = {}
    while (done := workers.next()) is not None:
        tag, outcome = done
        assert tag not in found
        found[tag] = outcome
    return found


def parent_of(pid):
    """The parent's pid; None if the process has ended, reaped or not."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else int(parent)


def children(pid):
    return [int(p.name) for p in Path("/proc").glob("[0-9]*") if parent_of(p.name) == pid]


def until(reached, limit_s=30.0):
    end = time.perf_counter() + limit_s
    while not (found := reached()):
        assert time.perf_counter() < end, f"not within {limit_s} s"
        time.sleep(0.01)
    return found


def pids_in(folder, count):
    return until(lambda: (f := os.listdir(folder)) and len(f) == count and [int(p) for p in f])


def until_gone(pids):
    until(lambda: not any(parent_of(pid) for pid in pids))


def until_started(workers, count):
    while len(workers.startup_s) < count:
        wait_any([workers], timeout_s=60.0)
        assert workers.poll() == []


# -- tasks and outcomes -------------------------------------------------------------------------


def test_one_worker_answers_in_order_and_several_answer_everything_once(zygote):
    with Workers(1, service=SERVICE, zygote=zygote) as workers:
        for i in range(5):
            workers.submit(i, ("echo", i * i), timeout_s=60.0)
        assert workers.pending == 5
        found = collect(workers)
        assert list(found) == list(range(5))
        assert [outcome.value for outcome in found.values()] == [0, 1, 4, 9, 16]
        assert {(o.kind, o.error, o.active) for o in found.values()} == {("ok", "", 1)}
        assert workers.pending == 0
    with Workers(3, service=SERVICE, zygote=zygote) as workers:
        for i in range(30):
            workers.submit(("tag", i), ("echo", i), timeout_s=60.0)
        found = collect(workers)
        assert {tag[1]: outcome.value for tag, outcome in found.items()} == {
            i: i for i in range(30)
        }
        assert {outcome.active for outcome in found.values()} <= {1, 2, 3}


def test_what_a_task_does_to_its_process_is_told_and_costs_no_other_task(pool):
    assert ask(pool, "fail", "odd,\n\n  very odd").error == "ValueError: odd, very odd"
    first = about(pool)["pid"]
    for task, kind, error in (
        (("leave", 3), "crashed", "the process ended with exit code 3"),
        (("leave", None), "crashed", "the process ended with exit code 0"),
        (("die", signal.SIGKILL), "crashed", "the process ended with signal 9 (SIGKILL)"),
        (("die", signal.SIGTERM), "crashed", "the process ended with signal 15 (SIGTERM)"),
        (("give_up", "poisoned"), "crashed", "poisoned"),
        (("fail", "odd"), "error", "ValueError: odd"),
        (("unpicklable",), "error", "the answer cannot be pickled: .*"),
        (("stubborn",), "error", "the answer cannot be unpickled: ValueError: not here"),
        (("interrupt",), "ok", ""),
    ):
        pool.submit("before", ("echo", 1), timeout_s=60.0)
        pool.submit("it", task, timeout_s=60.0)
        pool.submit("after", ("echo", 2), timeout_s=60.0)
        found = collect(pool)
        assert (found["before"].value, found["after"].value) == (1, 2)
        assert found["it"].kind == kind
        error = error if ".*" in error else re.escape(error)
        assert re.fullmatch(error, found["it"].error)
    assert about(pool)["pid"] != first


def test_a_task_past_its_limit_is_ended_with_all_that_it_started(pool, tmp_path):
    outcome = ask(pool, "start_child", tmp_path, "sleep", FOR_EVER, timeout_s=0.5)
    assert (outcome.kind, outcome.error) == ("timeout", "no answer within 0.5 s")
    assert outcome.seconds >= 0.5
    until_gone(pids_in(tmp_path, 1))
    assert ask(pool, "echo", "next").value == "next"


def test_what_a_crashed_task_had_started_is_ended_too(pool, tmp_path):
    outcome = ask(pool, "start_child", tmp_path, "die", signal.SIGSEGV)
    assert outcome.error == "the process ended with signal 11 (SIGSEGV)"
    until_gone(pids_in(tmp_path, 1))


def test_a_slow_start_is_not_charged_to_the_task(zygote):
    settings = {"start_s": 0.4}
    service = f"{MODULE}:slow_service"
    with Workers(1, service=service, settings=settings, zygote=zygote) as workers:
        outcome = ask(workers, "sleep", 0.0, timeout_s=0.3)
        assert outcome.kind == "ok"
        assert outcome.seconds < 0.4
        assert len(workers.startup_s) == 1
        assert workers.startup_s[0] >= 0.4


def test_the_limit_bounds_how_many_run_at_a_time(zygote):
    with Workers(3, service=SERVICE, zygote=zygote) as workers:
        until_started(workers, 3)
        for limit in (1, 2, 3):
            workers.limit = limit
            for i in range(6):
                workers.submit(i, ("sleep", 0.01), timeout_s=60.0)
            assert max(outcome.active for outcome in collect(workers).values()) == limit


def test_a_task_that_cannot_be_pickled_is_refused_before_it_is_queued(pool):
    with pytest.raises(UsageError, match="a task must be picklable"):
        pool.submit("bad", lambda: None, timeout_s=1.0)
    assert pool.pending == 0
    assert pool.next() is None
    with pytest.raises(UsageError, match="the settings must be picklable"):
        Workers(1, service=SERVICE, settings={"callback": lambda: None})
    with pytest.raises(UsageError, match="workers must be a whole number >= 1"):
        Workers(0, service=SERVICE)


def test_memory_beyond_the_limit_is_an_error_of_the_task(zygote):
    with Workers(1, service=SERVICE, zygote=zygote, memory_gib=0.5) as workers:
        assert ask(workers, "allocate", 2**24).value == 2**24
        assert ask(workers, "allocate", 2**30) == Outcome(
            "error", None, "MemoryError", pytest.approx(0.0, abs=30.0), 1
        )
        assert ask(workers, "allocate", 2**24).kind == "ok"


# -- waiting ------------------------------------------------------------------------------------


def test_next_gives_up_in_time_and_poll_never_waits(pool, tmp_path):
    assert pool.next() is None
    assert pool.poll() == []
    pool.submit("long", ("hang", tmp_path), timeout_s=FOR_EVER)
    assert pool.next(timeout_s=0.0) is None
    assert pool.next(timeout_s=0.05) is None
    assert pool.poll() == []
    until_started(pool, 1)
    assert pool.pending == 1
    assert pool.deadline > time.perf_counter() + FOR_EVER / 2


def test_one_wait_serves_several_pools_and_another_thread(zygote):
    bell, ring = os.pipe()
    with (
        Workers(1, service=SERVICE, zygote=zygote) as one,
        Workers(1, service=SERVICE, zygote=zygote) as other,
    ):
        until_started(one, 1)
        until_started(other, 1)
        assert one.deadline is None
        assert wait_any([one, other], also=[bell], timeout_s=0.0) == []
        other.submit("x", ("echo", 5), timeout_s=60.0)
        while not (found := other.poll()):
            assert wait_any([one, other], also=[bell]) == []
            assert one.poll() == []
        assert [(tag, outcome.value) for tag, outcome in found] == [("x", 5)]
        thread = threading.Thread(target=os.write, args=(ring, b"!"))
        thread.start()
        assert wait_any([one, other], also=[bell]) == [bell]
        assert one.poll() == other.poll() == []
        thread.join()
        one.submit("late", ("sleep", FOR_EVER), timeout_s=0.2)
        os.read(bell, 1)
        while not (found := one.poll()):
            wait_any([one, other], also=[bell])  # returns for the deadline, if nothing else
        assert found[0][1].kind == "timeout"
    os.close(bell)
    os.close(ring)


def test_closing_ends_everything_and_may_be_repeated(zygote, tmp_path):
    workers = Workers(2, service=SERVICE, zygote=zygote, spares=1)
    until_started(workers, 3)
    for i in range(4):
        workers.submit(i, ("hang", tmp_path), timeout_s=FOR_EVER)
    pids = pids_in(tmp_path, 2)
    workers.close()
    assert [parent_of(pid) for pid in pids] == [None, None]
    assert not children(zygote.pid)
    workers.close()
    assert workers.next() is None
    assert workers.poll() == []
    assert workers.waitables() == []
    with pytest.raises(UsageError, match="must be open"):
        workers.submit("late", ("echo", 1), timeout_s=1.0)


# -- spares -------------------------------------------------------------------------------------


def test_a_spare_waits_without_tasks_and_takes_over_when_a_worker_is_lost(zygote):
    with Workers(1, service=SERVICE, zygote=zygote, spares=2) as workers:
        until_started(workers, 3)
        for i in range(20):
            workers.submit(i, ("about",), timeout_s=60.0)
        (first,) = {outcome.value["pid"] for outcome in collect(workers).values()}
        before = time.perf_counter()
        assert ask(workers, "die", signal.SIGKILL).kind == "crashed"
        after = about(workers)
        assert after["pid"] != first
        assert after["tasks"] == 1
        (pid, made, _) = after["made"][-1]
        assert pid == after["pid"]
        assert made < before
        until_started(workers, 4)


def test_a_lost_spare_is_replaced_without_a_word(zygote):
    with Workers(1, service=SERVICE, zygote=zygote, spares=1) as workers:
        until_started(workers, 2)
        first = about(workers)["pid"]
        (spare,) = set(children(zygote.pid)) - {first}
        os.kill(spare, signal.SIGKILL)
        until_started(workers, 3)
        assert about(workers)["pid"] == first
        os.kill(first, signal.SIGKILL)  # an idle worker costs nobody a task either
        until_started(workers, 4)
        assert ask(workers, "echo", 1).value == 1


# -- the forked process -------------------------------------------------------------------------


def test_a_worker_is_what_a_fresh_process_of_now_would_be(zygote, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KT_LAB_TEST_NOW", "parent")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.syspath_prepend(str(tmp_path))
    env = {"KT_LAB_TEST_OWN": "worker"}
    with Workers(2, service=SERVICE, settings={"a": 1}, env=env, zygote=zygote) as workers:
        until_started(workers, 2)
        for i in range(2):
            workers.submit(i, ("about",), timeout_s=60.0)
        one, other = (outcome.value for outcome in collect(workers).values())
    assert one["pid"] != other["pid"]
    assert one["group"] == one["pid"]
    assert one["parent"] == zygote.pid
    assert [(pid, settings) for pid, _, settings in one["made"]] == [(one["pid"], {"a": 1})]
    assert one["path"] == sys.path
    assert one["directory"] == str(tmp_path)
    assert one["stdin"] == ""
    assert one["environ"]["KT_LAB_TEST_NOW"] == "parent"
    assert one["environ"]["KT_LAB_TEST_OWN"] == "worker"
    assert one["environ"]["OMP_NUM_THREADS"] == "1"
    assert one["sockets"] == other["sockets"] == 1
    assert set(one["random"]).isdisjoint(other["random"])


def test_what_is_heavy_is_imported_once_in_the_zygote(zygote, pool):
    seen = about(pool)
    assert seen["imported_by"] == zygote.pid
    assert seen["remembered"] == [zygote.pid]
    assert "colorsys" in seen["modules"]


def test_the_death_of_one_worker_is_seen_while_its_siblings_live(zygote, tmp_path):
    with Workers(4, service=SERVICE, zygote=zygote) as workers:
        until_started(workers, 4)
        for i in range(4):
            workers.submit(i, ("hang", tmp_path), timeout_s=FOR_EVER)
        victims = pids_in(tmp_path, 4)
        for pid in victims[:2]:
            os.kill(pid, signal.SIGKILL)
            _, outcome = workers.next()
            assert outcome.error == "the process ended with signal 9 (SIGKILL)"
        assert workers.pending == 2


def test_a_fork_works_with_torch_which_was_imported_before():
    service = f"{MODULE}:torch_service"
    with (
        Zygote(preload=["torch"]) as zygote,
        Workers(2, service=service, zygote=zygote) as workers,
    ):
        for i in range(4):
            workers.submit(i, 64, timeout_s=60.0)
        found = collect(workers)
        assert len(os.listdir(f"/proc/{zygote.pid}/task")) == 1  # what makes the fork safe
    assert [outcome.value for outcome in found.values()] == [(64.0**3, 1, 1)] * 4


# -- starts that fail ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "error"),
    [
        (f"{MODULE}:broken_service", "OSError: no such device"),
        ("no_such_module:service", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_a_service_that_cannot_be_made_is_the_error_of_every_task(service, error):
    with Workers(2, service=service) as workers:
        for i in range(3):
            workers.submit(i, ("echo", i), timeout_s=60.0)
        for outcome in collect(workers).values():
            assert outcome.kind == "error"
            assert outcome.error == f"RuntimeError: the worker's service could not start: {error}"
            assert not outcome.served, "it says nothing of the task"


def test_a_service_that_kills_its_process_ends_every_task_and_is_not_tried_for_ever(
    zygote, tmp_path
):
    settings = {"folder": str(tmp_path)}
    service = f"{MODULE}:dying_service"
    with Workers(2, service=service, settings=settings, zygote=zygote, spares=1) as workers:
        for i in range(4):
            workers.submit(i, ("echo", i), timeout_s=60.0)
        found = collect(workers)
        assert sorted(found) == [0, 1, 2, 3]
        assert {outcome.error for outcome in found.values()} == {
            "the process ended with exit code 7, before the service was ready"
        }
        assert not any(outcome.served for outcome in found.values())
        assert workers.poll() == []
        assert len(os.listdir(tmp_path)) < 15


# -- deaths of others ---------------------------------------------------------------------------


def test_a_killed_zygote_costs_the_running_tasks_only(tmp_path):
    with (
        Zygote(preload=[MODULE]) as zygote,
        Workers(2, service=SERVICE, zygote=zygote, spares=1) as workers,
    ):
        until_started(workers, 3)
        for i in range(2):
            workers.submit(i, ("start_child", tmp_path, "sleep", FOR_EVER), timeout_s=FOR_EVER)
        for i in range(2, 12):
            workers.submit(i, ("echo", i), timeout_s=60.0)
        started = pids_in(tmp_path, 2)
        pids = children(first := zygote.pid)
        assert len(pids) == 3
        os.kill(first, signal.SIGKILL)
        found = collect(workers)
        assert sorted(found) == list(range(12))
        assert [found[i].kind for i in range(2)] == ["crashed"] * 2
        assert found[0].error == "the process ended with the zygote that it was forked from"
        assert [found[i].value for i in range(2, 12)] == list(range(2, 12))
        assert zygote.pid != first
        until_gone([*pids, *started])


def test_a_killed_zygote_costs_nothing_before_a_task_runs():
    with Zygote(preload=[MODULE]) as zygote:
        os.kill(zygote.pid, signal.SIGKILL)
        with Workers(2, service=SERVICE, zygote=zygote) as workers:
            workers.submit(0, ("echo", 0), timeout_s=60.0)
            os.kill(zygote.pid, signal.SIGKILL)
            workers.submit(1, ("echo", 1), timeout_s=60.0)
            assert {t: outcome.value for t, outcome in collect(workers).items()} == {0: 0, 1: 1}


def run_script(tmp_path, source, **options):
    script = tmp_path / "main.py"
    script.write_text(source)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, script], env=environment, **options)


def busy_script(tmp_path, *, task, lingering=False):
    """A script that waits for two workers, each at a task without end, and perhaps its fork."""
    return run_script(
        tmp_path,
        "import os, time\n"
        "from kt_lab.runners.workers import Workers\n"
        f"workers = Workers(2, service={SERVICE!r})\n"
        "for i in range(2):\n"
        f"    workers.submit(i, {task!r}, timeout_s=600.0)\n"
        f"if {lingering} and not os.fork():\n"
        "    time.sleep(600.0)\n"
        "workers.next()\n",
    )


@pytest.mark.parametrize("lingering", [False, True])
def test_nothing_outlives_the_parent(tmp_path, lingering):
    """Not even if a fork of the parent, which holds all its sockets, does."""
    (folder := tmp_path / "pids").mkdir()
    task = ("start_child", str(folder), "hang", str(folder))
    script = busy_script(tmp_path, task=task, lingering=lingering)
    try:
        pids = pids_in(folder, 4)
        (zygote,) = {parent_of(pid) for pid in pids} - set(pids)
        forks = set(children(script.pid)) - {zygote}
        assert len(forks) == lingering
    finally:
        script.kill()
        script.wait()
    until_gone([*pids, zygote])
    for pid in forks:
        os.kill(pid, signal.SIGKILL)


def test_no_worker_outlives_parent_and_zygote(tmp_path):
    (folder := tmp_path / "pids").mkdir()
    script = busy_script(tmp_path, task=("hang", str(folder)))
    try:
        pids = pids_in(folder, 2)
        script.send_signal(signal.SIGSTOP)  # it must not come to the zygote's help
        os.kill(parent_of(pids[0]), signal.SIGKILL)
    finally:
        script.kill()
        script.wait()
    until_gone(pids)


def test_a_script_needs_no_guard_and_leaves_nothing_behind_when_it_ends(tmp_path):
    script = run_script(
        tmp_path,
        "from kt_lab.runners.workers import Workers\n"
        "print('once', flush=True)\n"
        f"workers = Workers(2, service={SERVICE!r})\n"
        "workers.submit('tag', ('about',), timeout_s=60.0)\n"
        "tag, outcome = workers.next()\n"
        "print(tag, outcome.value['parent'])\n",
        stdout=subprocess.PIPE,
        text=True,
    )
    once, told = script.communicate(timeout=60)[0].splitlines()
    assert script.returncode == 0
    assert once == "once"
    tag, zygote = told.split()
    assert tag == "tag"
    until_gone([int(zygote)])


def test_workers_outlive_the_thread_that_made_them():
    made = []
    thread = threading.Thread(target=lambda: made.append(Workers(1, service=SERVICE)))
    thread.start()
    thread.join()
    with made[0] as workers:
        first = about(workers)["pid"]
        assert about(workers)["pid"] == first


def test_fifty_random_kills_lose_and_repeat_nothing(zygote):
    rng = random.Random(0)
    with Workers(4, service=SERVICE, zygote=zygote, spares=2) as workers:
        for i in range(200):
            workers.submit(i, ("sleep", 0.005), timeout_s=60.0)
        found, kills = [], 0
        while (done := workers.next()) is not None:
            found.append(done)
            if kills < 50 and rng.random() < 0.5 and (pids := children(zygote.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(pids), signal.SIGKILL)
                    kills += 1
    assert kills == 50
    assert sorted(tag for tag, _ in found) == list(range(200))
    kinds = Counter(outcome.kind for _, outcome in found)
    assert set(kinds) <= {"ok", "crashed"}
    assert kinds["crashed"] <= 50
    assert kinds["ok"] >= 150
