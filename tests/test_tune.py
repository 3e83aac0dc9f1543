"""The loop, on a landscape whose every number is known."""

from dataclasses import replace
from pathlib import Path

import pytest

import kt_lab.evidence
from kt_lab.budget import Budget
from kt_lab.errors import UnrecordedConfig, UsageError
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import make_searcher
from kt_lab.trial import Proposal
from kt_lab.tune import tune, tune_whole
from tests.runners.tables import SPACE, config, make_landscape


class Script:
    """Proposes what it was given, in order, whatever it is told."""

    done = False

    def __init__(self, *positions):
        self.waiting = [Proposal(i, config(at)) for i, at in enumerate(positions)]
        self.told = []
        self.closed = False

    def ask(self, n):
        now, self.waiting = self.waiting[:n], self.waiting[n:]
        return now

    def tell(self, trials):
        self.told += trials

    def close(self):
        self.closed = True


def _tune(searcher, *, lanes=1, **limits):
    runner = ReplayRunner(make_landscape(), seed=0, compile_lanes=lanes)
    return tune(searcher, runner, budget=Budget(**limits)), runner


def test_every_proposal_becomes_a_trial_in_order_of_completion():
    searcher = Script(2, 3, 5, 0)
    history, runner = _tune(searcher, trials=10)
    assert [t.config for t in history] == [config(at) for at in (2, 3, 5, 0)]
    assert [t.status for t in history] == ["ok", "compile_error", "wrong_result", "ok"]
    assert [t.number for t in history] == [0, 1, 2, 3]
    assert searcher.told == list(history)
    assert searcher.closed
    seconds = [t.machine_s for t in history]
    assert seconds == sorted(seconds)
    assert seconds[-1] == runner.now


def test_failures_spend_trials_and_repeats_do_not():
    history, _ = _tune(Script(3, 0, 0, 0, 5, 1, 2), trials=4)
    assert [t.first for t in history] == [True, True, False, False, True, True]
    assert history.trials_spent == 4
    assert config(2) not in {t.config for t in history}


@pytest.mark.parametrize("lanes", [1, 3, 16])
@pytest.mark.parametrize("name", ["random", "pattern", "lfbo_pattern", "tpe"])
def test_no_searcher_can_overrun_its_budget(name, lanes):
    searcher = make_searcher(name, SPACE, seed=1)
    history, _ = _tune(searcher, lanes=lanes, trials=7)
    assert history.trials_spent == 7


def test_seconds_end_a_run_and_what_ends_later_is_not_seen():
    full, _ = _tune(Script(*range(16)), trials=100)
    limit = full[7].machine_s
    cut, _ = _tune(Script(*range(16)), seconds=limit + 1e-9)
    assert [replace(t, search_s=0.0) for t in cut] == [replace(t, search_s=0.0) for t in full[:8]]


def test_lanes_never_idle_while_there_are_proposals():
    one, slow = _tune(Script(*range(16)), trials=100)
    four, fast = _tune(Script(*range(16)), lanes=4, trials=100)
    assert {t.config for t in one} == {t.config for t in four}
    assert fast.now < slow.now


def test_an_interrupt_keeps_what_was_measured():
    def stop(trial):
        if trial.number == 2:
            raise KeyboardInterrupt

    searcher = Script(*range(16))
    runner = ReplayRunner(make_landscape(), seed=0, compile_lanes=1)
    history = tune(searcher, runner, budget=Budget(trials=9), on_trial=stop)
    assert len(history) == 3
    assert searcher.closed


def test_an_error_of_the_runner_still_closes_the_searcher():
    landscape = make_landscape()
    landscape.table = landscape.table.drop(index=0)
    searcher = Script(0)
    with pytest.raises(UnrecordedConfig):
        tune(searcher, ReplayRunner(landscape, seed=0), budget=Budget(trials=1))
    assert searcher.closed


class Slow(Script):
    """Thinks while its proposals are taken, as a generator does: 100 s of a thread for each."""

    thread_s = 0.0

    def ask(self, n):
        for proposal in super().ask(n):
            self.thread_s += 100
            yield proposal


def test_what_a_generator_thinks_is_its_searchs_time():
    history, _ = _tune(Slow(1, 2, 3), trials=3)
    assert [t.config for t in history] == [config(1), config(2), config(3)]
    assert [round(t.search_s, -2) for t in history] == [100, 200, 300]


def test_a_number_is_no_budget():
    searcher = Script(0)
    with pytest.raises(UsageError, match=r"must be a Budget, got 50; pass Budget\(trials=50\)"):
        tune(searcher, ReplayRunner(make_landscape(), seed=0), budget=50)
    assert searcher.closed


class Stuck(Script):
    """Asks for the same config for ever."""

    def ask(self, _n):
        return [Proposal(len(self.told), config(0))]


def test_a_search_that_only_repeats_itself_ends_without_a_budget_of_seconds():
    searcher = Stuck()
    history, _ = _tune(searcher, trials=50)
    assert history.trials_spent == 1
    assert len(history) == 1001  # a thousand in a row that told nothing of a new config
    assert searcher.closed


def test_a_runner_with_work_of_another_run_under_way_is_refused():
    runner = ReplayRunner(make_landscape(), seed=0, compile_lanes=4)
    first = tune(Script(*range(16)), runner, budget=Budget(seconds=1e-6))
    assert not len(first)
    assert runner.pending
    searcher = Script(0)
    with pytest.raises(UsageError, match=r"one run at a time, .* under way: \d+; make a runner"):
        tune(searcher, runner, budget=Budget(trials=4))
    assert searcher.closed
    assert not searcher.told


def test_a_replay_of_another_run_is_refused():
    runner = ReplayRunner(make_landscape(), seed=0)
    assert len(tune(Script(0), runner, budget=Budget(trials=4))) == 1
    with pytest.raises(UsageError, match=r"for one run, got one whose clock stands at \d"):
        tune(Script(1), runner, budget=Budget(trials=4))


@pytest.mark.parametrize("found", [None, [SPACE.default], "random", [None]])
def test_what_is_asked_must_be_proposals(found):
    class Mistaken(Script):
        def ask(self, n):  # noqa: ARG002
            return found

    searcher = Mistaken(0)
    with pytest.raises(UsageError, match=r"ask must return a list of Proposal, as self.propose"):
        tune(searcher, ReplayRunner(make_landscape(), seed=0), budget=Budget(trials=4))
    assert searcher.closed


def test_where_part_of_a_run_is_worth_nothing_an_interrupt_ends_the_caller_too():
    class Interrupted(ReplayRunner):
        def next(self):
            raise KeyboardInterrupt

    searcher = Script(0)
    with pytest.raises(KeyboardInterrupt):
        tune_whole(searcher, Interrupted(make_landscape(), seed=0), budget=Budget(trials=4))
    assert searcher.closed


def test_no_evidence_takes_part_of_a_run_for_a_run():
    pieces = Path(kt_lab.evidence.__file__).parent.glob("*.py")
    found = {p.stem for p in pieces if "import tune\n" in p.read_text(encoding="utf-8")}
    assert found == {"interrupting"}  # what is asked there is what an interrupt leaves
