"""A session's states, its worker, and what is kept whatever happens."""

import dataclasses
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from kt_lab import Budget
from kt_lab.errors import GpuBusy, UsageError
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.runners.journaled import JournaledRunner, history_of
from kt_lab.search import make_searcher
from kt_lab.tune import tune
from kt_lab.ui import session as session_module
from kt_lab.ui.background import alive
from tests.runners import live_fakes as fakes
from tests.ui.gated import LONG_S, SPACE, GatedRunner, Watched, session


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    for each in alive():
        each.close(timeout=0)
    assert all(each.ended.wait(LONG_S) for each in alive())


# -- transitions ----------------------------------------------------------------------------------


def test_a_session_runs_to_its_end_and_keeps_every_trial():
    runner, searcher = GatedRunner(open_gate=True), Watched(SPACE, seed=0)
    ran = session(runner, searcher=searcher, trials=7)
    assert ran.snapshot().state == "idle"
    assert ran.snapshot().incumbent is None
    found = ran.start().wait(LONG_S)
    assert found.state == "done"
    alone = tune(Watched(SPACE, seed=0), GatedRunner(open_gate=True), budget=Budget(trials=7))
    assert [t.config for t in ran.history] == [t.config for t in alone]
    assert (found.trials, found.incumbent) == (7, alone.incumbent.config)
    assert found.statuses == {"ok": 7}
    assert runner.closed
    assert searcher.closed
    assert not alive()


def test_pause_holds_the_search_until_it_is_resumed():
    runner = GatedRunner()
    held = session(runner, trials=4).start()
    runner.under_way()
    runner.let()
    runner.under_way()
    assert held.snapshot().readings == 1
    held.pause()
    assert held.snapshot().state == "paused"
    runner.let(3)  # the trial under way ends, and no other begins
    assert not runner.asked.acquire(timeout=0.1)
    assert held.snapshot().readings == 2
    assert not runner.queue
    held.resume()
    assert held.snapshot().state == "running"
    assert held.wait(LONG_S).readings == 4


def test_stop_waits_for_the_trial_under_way_and_keeps_the_best_so_far():
    runner, searcher = GatedRunner(), Watched(SPACE, seed=0)
    ending = session(runner, searcher=searcher).start()
    runner.under_way()
    runner.let()
    runner.under_way()
    ending.stop()
    told = ending.snapshot()
    assert (told.state, told.stopping, told.readings) == ("running", True, 1)
    with pytest.raises(UsageError, match="stopping"):
        ending.pause()
    runner.let()
    found = ending.wait(LONG_S)
    assert (found.state, found.stopping, found.readings) == ("stopped", False, 2)
    assert found.incumbent == ending.history.incumbent.config
    assert runner.closed
    assert searcher.closed


def test_a_paused_session_can_be_stopped():
    runner = GatedRunner()
    held = session(runner).start()
    runner.under_way()
    held.pause()
    runner.let()
    held.stop()
    assert held.wait(LONG_S).state == "stopped"
    assert len(held.history) == 1


def test_stop_during_start_up_measures_nothing():
    opening = threading.Event()
    runner = GatedRunner(open_gate=True)

    def slow():
        assert opening.wait(LONG_S)
        return runner

    early = session(slow).start()
    early.stop()
    opening.set()
    assert early.wait(LONG_S).state == "stopped"
    assert not early.history
    assert runner.closed


def test_what_is_not_possible_is_refused_with_the_next_step():
    runner = GatedRunner()
    ran = session(runner, trials=1)
    ran.stop()  # nothing runs: nothing happens
    for verb in ("pause", "resume", "wait"):
        with pytest.raises(UsageError, match="idle"):
            getattr(ran, verb)()
    ran.start()
    for verb in ("start", "resume"):
        with pytest.raises(UsageError, match="running"):
            getattr(ran, verb)()
    runner.under_way()
    ran.pause()
    with pytest.raises(UsageError, match="paused"):
        ran.pause()
    ran.resume()
    runner.let()
    assert ran.wait(LONG_S).state == "done"
    for verb in ("start", "pause", "resume"):
        with pytest.raises(UsageError, match="done"):
            getattr(ran, verb)()
    ran.stop()
    assert ran.snapshot().state == "done"


def test_wait_returns_at_its_timeout_while_the_search_goes_on():
    runner = GatedRunner()
    ran = session(runner, trials=1).start()
    assert ran.wait(timeout=0.01).state == "running"
    runner.let()
    assert ran.wait(LONG_S).state == "done"


# -- failures -------------------------------------------------------------------------------------


class Broken(Watched):
    def __init__(self, method, after):
        super().__init__(SPACE, seed=0)
        self.method, self.left = method, after

    def ask(self, n):
        return self.fail("ask") or super().ask(n)

    def tell(self, trials):
        return self.fail("tell") or super().tell(trials)

    def fail(self, method):
        self.left -= method == self.method
        if self.left < 0:
            raise ZeroDivisionError(f"in {method}\nsecond line")


@pytest.mark.parametrize(("method", "kept"), [("ask", 2), ("tell", 2)])
def test_a_searcher_that_fails_ends_the_session_with_its_reason(method, kept):
    runner, searcher = GatedRunner(open_gate=True), Broken(method, 2)
    failing = session(runner, searcher=searcher).start()
    with pytest.raises(ZeroDivisionError):
        failing.wait(LONG_S)
    found = failing.snapshot()
    assert (found.state, found.error) == ("failed", f"ZeroDivisionError: in {method}")
    assert "in fail" in found.traceback
    assert len(failing.history) == kept
    assert found.incumbent is not None
    assert runner.closed
    assert searcher.closed
    assert not alive()


@pytest.mark.parametrize("part", ["searcher", "runner"])
def test_a_factory_that_fails_ends_the_session(part):
    def broken():
        raise UsageError("there must be light, got none; switch it on")

    runner, searcher = GatedRunner(), Watched(SPACE, seed=0)
    parts = {"runner": runner, "searcher": searcher} | {part: broken}
    failing = session(**parts).start()
    with pytest.raises(UsageError, match="light"):
        failing.wait(LONG_S)
    found = failing.snapshot()
    assert (found.state, found.error) == ("failed", "there must be light, got none; switch it on")
    assert part == "searcher" or searcher.closed


@pytest.mark.parametrize("method", ["submit", "next", "close"])
def test_a_runner_that_fails_ends_the_session(method):
    runner, searcher = GatedRunner(open_gate=True), Watched(SPACE, seed=0)
    setattr(runner, method, lambda *_: 1 / 0)
    failing = session(runner, searcher=searcher).start()
    with pytest.raises(ZeroDivisionError):
        failing.wait(LONG_S)
    assert failing.snapshot().state == "failed"
    assert len(failing.history) == (5 if method == "close" else 0)
    assert searcher.closed


# -- one at a time --------------------------------------------------------------------------------


def test_starting_again_under_a_name_stops_the_one_before_and_waits_for_its_end():
    runners = [GatedRunner(), GatedRunner(open_gate=True), GatedRunner(open_gate=True)]
    made = []

    def factory(number):
        return lambda: made.append(number) or runners[number]

    first, second, third = (session(factory(n), name="again") for n in range(3))
    first.start()
    runners[0].under_way()
    second.start()
    third.start()
    assert second.wait(0.05).state == third.wait(0.05).state == "running"
    assert made == [0]
    runners[0].let()
    assert first.wait(LONG_S).state == "stopped"
    assert third.wait(LONG_S).state == "done"
    assert second.wait(LONG_S).state in ("stopped", "done")
    assert runners[0].closed
    assert made[0] == 0


def test_sessions_of_other_names_run_side_by_side():
    runners = [GatedRunner(), GatedRunner()]
    both = [session(r, name=f"n{i}", trials=1).start() for i, r in enumerate(runners)]
    for runner in runners:
        runner.under_way()
    assert alive() == both
    assert alive("n1") == both[1:]
    for runner in runners:
        runner.let()
    assert [each.wait(LONG_S).state for each in both] == ["done", "done"]


def test_close_takes_the_runner_from_a_trial_that_does_not_end():
    runner = GatedRunner()
    stuck = session(runner).start()
    runner.under_way()
    stuck.close(timeout=0.01)
    with pytest.raises(RuntimeError, match="closed under way"):
        stuck.wait(LONG_S)


def test_the_end_of_the_process_closes_runners_and_widgets_are_not_imported(tmp_path):
    """A daemon thread alone would be cut off, and a GPU's workers with it."""
    told = tmp_path / "closed"
    program = f"""
import pathlib, sys
from tests.ui.gated import GatedRunner, session
runner = GatedRunner()
closed = runner.close
runner.close = lambda: (closed(), pathlib.Path({str(told)!r}).write_text("yes"))
ran = session(runner).start()
runner.under_way()
runner.open_gate = True
runner.let()
assert not {{"ipywidgets", "matplotlib", "torch"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == 0
    assert told.read_text() == "yes"


def test_a_second_session_on_a_gpu_tells_who_holds_it(tmp_path, monkeypatch):
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))

    def runner():
        return GpuRunner(
            fakes.WORKLOAD, kernel=fakes.CALM, services=fakes.SERVICES, compile_workers=1
        )

    def random():
        return make_searcher("random", fakes.CALM_SPACE, seed=0)

    opened = runner()
    try:
        second = session(lambda: runner(), name="second", searcher=random).start()
        with pytest.raises(GpuBusy):
            second.wait(LONG_S)
        assert "held by this very process" in second.snapshot().error
    finally:
        opened.close()
    third = session(runner, name="third", searcher=random, trials=6).start()
    found = third.wait(LONG_S)
    assert (found.state, found.trials) == ("done", 6)
    assert found.judged_us is None


# -- what a watcher sees --------------------------------------------------------------------------


def test_a_snapshot_never_changes():
    runner = GatedRunner()
    ran = session(runner, trials=2).start()
    runner.under_way()
    runner.let()
    runner.under_way()
    early = ran.snapshot()
    assert early == ran.snapshot()
    runner.let()
    ran.wait(LONG_S)
    assert (early.readings, early.statuses) == (1, {"ok": 1})
    with pytest.raises(dataclasses.FrozenInstanceError):
        early.trials = 5
    with pytest.raises(TypeError):
        early.statuses["ok"] = 5


@pytest.mark.parametrize("journal", [False, True])
def test_the_seconds_of_a_pause_are_not_charged(monkeypatch, tmp_path, journal):
    runner = GatedRunner()
    runner.live = True
    monkeypatch.setattr(session_module, "time", SimpleNamespace(perf_counter=lambda: runner.now))
    path = tmp_path / "run.jsonl"
    held = session(JournaledRunner(runner, path, facts={}) if journal else runner, trials=3)
    held.start()
    runner.under_way()
    held.pause()
    runner.let()
    assert not runner.asked.acquire(timeout=0.1)
    runner.now += 100
    held.resume()
    runner.let(2)
    assert held.wait(LONG_S).state == "done"
    assert [round(t.elapsed_s, 1) for t in held.history] == [1.0, 2.0, 3.0]
    if journal:  # whoever resumes it is not charged, either
        assert [round(t.elapsed_s, 1) for t in history_of(path)[1]] == [1.0, 2.0, 3.0]
