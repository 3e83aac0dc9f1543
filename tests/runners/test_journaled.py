"""Interrupted, killed, resumed: nothing lost, nothing measured twice."""

import json
import os
import queue
import signal
import threading
import time
from collections import Counter
from functools import partial

import pytest

from kt_lab.budget import Budget
from kt_lab.cells import history_table
from kt_lab.errors import StoreError, UnrecordedConfig
from kt_lab.evidence.interrupting import interrupt_and_resume
from kt_lab.runners.journaled import JournaledRunner, history_of
from kt_lab.runners.readings import header, measured, parse
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import make_searcher
from kt_lab.trial import Config, Measurement, Proposal
from kt_lab.tune import tune
from tests.runners.tables import SPACE, config, make_landscape

FACTS = {"workload": "toy/16", "seed": 0, "options": {"copies": 5}}
ALL = Budget(trials=16)


class Counting(ReplayRunner):
    """A replay that counts what it measures."""

    measured = 0

    def next(self):
        found = super().next()
        self.measured += 1
        return found


class Script:
    """Proposes what it was given, in order."""

    done = False

    def __init__(self, *positions):
        self.waiting = [Proposal(i, config(at)) for i, at in enumerate(positions)]

    def ask(self, n):
        now, self.waiting = self.waiting[:n], self.waiting[n:]
        return now

    def tell(self, trials):
        pass

    def close(self):
        pass


class Swayed(Script):
    """Proposes what depends on everything that it was told before it was asked."""

    def __init__(self, count):
        super().__init__()
        self.left, self.state, self.ids = count, 1, 0

    def ask(self, n):
        proposals = []
        while self.left and len(proposals) < n:
            self.left -= 1
            self.state = (self.state * 5 + 3) % 256
            proposals.append(Proposal(self.ids, config(self.state % 16)))
            self.ids += 1
        return proposals

    def tell(self, trials):
        for trial in trials:
            self.state = (self.state * 7 + trial.proposal.id + 1) % 256


class Stop(Exception):
    """Ends a part."""


def replay(lanes=1):
    return Counting(make_landscape(), seed=0, compile_lanes=lanes)


def resumed(path, searcher, *, lanes=1, budget=ALL, stop=None, facts=FACTS):
    """Runs one part; with `stop`, an error ends it after so many new measurements."""
    inner = replay(lanes)

    def on_trial(_):
        if stop is not None and inner.measured >= stop:
            raise Stop

    with JournaledRunner(inner, path, facts=facts) as runner:
        try:
            return tune(searcher, runner, budget=budget, on_trial=on_trial), inner.measured
        except Stop:
            return None, inner.measured


def table(history):
    return history_table(history, facts={}).drop(columns="search_s")


def same(one, other):
    """Whether two histories agree in everything that is stored but the searcher's seconds."""
    exact = [(t.proposal, t.measurement, t.first) for t in one]
    return exact == [(t.proposal, t.measurement, t.first) for t in other] and table(one).equals(
        table(other)
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "journal.jsonl"


# -- resuming -------------------------------------------------------------------------------------


def test_a_journal_changes_nothing_about_a_run_and_gives_it_back(path):
    alone = tune(Script(2, 3, 5, 0, 0), replay(lanes=2), budget=ALL)
    history, _ = resumed(path, Script(2, 3, 5, 0, 0), lanes=2)
    assert same(history, alone)
    assert [t.machine_s for t in history] == [t.machine_s for t in alone]
    facts, read = history_of(path)
    assert facts == FACTS
    assert same(read, history)
    assert [t.machine_s for t in read] == [t.machine_s for t in history]
    assert read.incumbent.config == history.incumbent.config


@pytest.mark.parametrize("name", ["random", "pattern"])
def test_a_run_in_parts_is_the_run_in_one(path, name):
    make = partial(make_searcher, name, SPACE, seed=1, budget=ALL)
    alone = tune(make(), replay(), budget=ALL)
    parts = [resumed(path, make(), stop=stop)[1] for stop in (1, 4, 2)]
    history, last = resumed(path, make())
    assert parts == [1, 4, 2]
    assert last == len(alone) - 7
    assert same(history, alone)
    again, measured = resumed(path, make())
    assert measured == 0
    assert same(again, alone)


@pytest.mark.parametrize("lanes", [1, 3, 16])
def test_a_searcher_swayed_by_what_it_was_told_finds_everything_again(path, lanes):
    """It asks for other configs unless it is asked as often, and told as much, as before."""
    parts = [resumed(path, Swayed(60), lanes=lanes, stop=stop)[1] for stop in (5, 1, 7, 1, 20)]
    history, last = resumed(path, Swayed(60), lanes=lanes)
    assert len(history) == 60 == sum(parts) + last
    _, read = history_of(path)
    assert [t.config for t in read] == [t.config for t in history]


def test_the_kth_proposal_of_a_config_gets_its_kth_measurement(path):
    history, _ = resumed(path, Script(0, 1, 0, 0, 2))
    readings = [t.measurement for t in history if t.config == config(0)]
    assert len({m.samples_us for m in readings}) == 3
    shorter, measured = resumed(path, Script(0, 0, 1, 0))
    assert [t.measurement for t in shorter if t.config == config(0)] == readings
    assert measured == 0


def test_another_way_through_the_space_uses_what_is_known_and_measures_the_rest(path):
    resumed(path, Script(0, 1, 2, 3, 4, 5), lanes=4)
    history, measured = resumed(path, Script(9, 4, 8, 2, 0, 7), lanes=4)
    assert {t.config for t in history} == {config(at) for at in (9, 4, 8, 2, 0, 7)}
    assert measured == 3
    assert len(history_of(path)[1]) == 9


def test_a_budget_of_seconds_counts_the_earlier_parts(path):
    budget = Budget(seconds=3.0)
    order = range(16)
    alone = tune(Script(*order), replay(), budget=budget)
    assert 4 < len(alone) < 12
    resumed(path, Script(*order), budget=budget, stop=3)
    history, _ = resumed(path, Script(*order), budget=budget)
    assert same(history, alone)


def test_the_clock_goes_on_where_it_stood(path):
    first, _ = resumed(path, Script(0, 1, 2), stop=2)
    _, held = history_of(path)
    inner = replay()
    with JournaledRunner(inner, path, facts=FACTS) as runner:
        assert runner.now == 0.0
        for at in (0, 1, 2):
            runner.submit([Proposal(at, config(at))])
        for known in held:
            runner.next()
            assert runner.now == known.machine_s
        runner.next()
        assert inner.now > 0
        assert runner.now == held[-1].machine_s + inner.now
    assert first is None


def test_a_refused_proposal_leaves_the_others_unclaimed(path):
    resumed(path, Script(0))
    landscape = make_landscape()
    landscape.table = landscape.table.drop(index=4)
    with JournaledRunner(ReplayRunner(landscape, seed=0), path, facts=FACTS) as runner:
        with pytest.raises(UnrecordedConfig):
            runner.submit([Proposal(0, config(0)), Proposal(1, config(4))])
        assert runner.pending == 0
        runner.submit([Proposal(0, config(0))])
        assert runner.next()[0].config == config(0)
        assert len(history_of(path)[1]) == 1


# -- what the journal holds ---------------------------------------------------------------------


class Answering:
    """Measures anything at once, with what it was given."""

    live, free, now = False, 1, 0.125

    def __init__(self, *answers):
        self.answers, self.queue = list(answers), []

    @property
    def pending(self):
        return len(self.queue)

    def submit(self, proposals):
        self.queue += proposals

    def next(self):
        return self.queue.pop(0), self.answers.pop(0)

    def close(self):
        pass


def test_a_journal_from_before_generations_were_told_is_read():
    record = measured(
        Proposal(0, config(0), generation=1, predicted=0.5), Measurement("ok", (1,)), 0
    )
    del record["generation"], record["predicted"]
    [(proposal, _, _)] = parse([header({}), record], name="old").readings
    assert (proposal.generation, proposal.predicted) == (None, None)


def test_every_fact_comes_back_exactly(path):
    values = {"A": 4, "B": True, "C": None, "D": ("x", (1, 2.5)), "E": "", "F": 1.0}
    proposal = Proposal(7, Config(values), 3, 1 / 3, "polish", generation=4, predicted=1 / 7)
    info = {"grid": "132x1", "registers": 32, "twin": {"A": 1}, "list": [1.5, None, False]}
    measurement = Measurement(
        "ok", (0.1, 1e-17, 123456789.123456789), 0.1 + 0.2, 1 / 7, 2 / 7, info, ""
    )
    failure = Measurement("compile_error", compile_s=1.5, error='ptxas said "no"\nüber')
    for inner in (Answering(measurement, failure), Answering()):
        with JournaledRunner(inner, path, facts=FACTS) as runner:
            runner.submit([proposal, Proposal(8, proposal.config)])
            assert runner.next() == (proposal, measurement)
            found, answer = runner.next()
            assert answer == failure
            for name, value in found.config.items():
                assert type(value) is type(values[name])
    _, history = history_of(path)
    assert history[0].proposal == proposal
    assert [type(v) for v in history[0].config.values()] == [type(v) for v in values.values()]
    assert history[0].measurement == measurement
    assert history[0].machine_s == 0.125


@pytest.mark.parametrize("info", [{"a": (1, 2)}, {"a": object()}, {"a": {1: 2}}])
def test_what_json_cannot_hold_is_refused_loudly(path, info):
    good = Measurement("ok", (1.0,))
    with JournaledRunner(
        Answering(good, Measurement("ok", (1.0,), info=info)), path, facts={}
    ) as r:
        r.submit([Proposal(0, config(0)), Proposal(1, config(1))])
        r.next()
        with pytest.raises(StoreError, match=r"info\['a'\]"):
            r.next()
    assert [t.config for t in history_of(path)[1]] == [config(0)]


def test_a_line_that_was_cut_off_is_measured_again(path):
    whole, _ = resumed(path, Script(0, 1, 2, 3))
    path.write_bytes(path.read_bytes().rstrip(b"\n")[:-40])
    torn = path.read_bytes()
    assert len(history_of(path)[1]) == 3
    assert path.read_bytes() == torn  # reading leaves the file alone
    history, measured = resumed(path, Script(0, 1, 2, 3))
    assert measured == 1
    assert same(history, whole)


def test_a_journal_may_be_cut_off_anywhere(path):
    whole, _ = resumed(path, Swayed(8), lanes=2)
    raw = path.read_bytes()
    for length in range(0, len(raw), 97):
        path.write_bytes(raw[:length])
        held = raw[:length].count(b"\n") > 1 and len(history_of(path)[1])  # after its version
        history, measured = resumed(path, Swayed(8), lanes=2)
        assert len(history) == len(whole) == held + measured


def test_other_facts_are_refused_by_name(path):
    resumed(path, Script(0))
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"another seed for .*: 0 when it began, 1 now") as caught:
        JournaledRunner(replay(), path, facts=FACTS | {"seed": 1})
    assert "another path" in str(caught.value)
    for told in (str(path), "resume=False", "--afresh"):  # what to put aside, and how
        assert told in str(caught.value)
    with pytest.raises(StoreError, match=r"another gpu .*: nothing when it began, 'h100' now"):
        JournaledRunner(replay(), path, facts=FACTS | {"gpu": "h100"})
    assert path.read_bytes() == before
    JournaledRunner(replay(), path, facts=FACTS).close()  # the refusals hold no claim


def test_facts_may_hold_tuples(path):
    for _ in range(2):
        JournaledRunner(replay(), path, facts={"a": (1, (2, 3))}).close()


def test_something_else_is_not_taken_for_a_journal(path, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"kind": "visit"}) + "\n")
    with pytest.raises(StoreError, match=r"begin with its facts.*other\.jsonl"):
        JournaledRunner(replay(), other, facts=FACTS)
    with pytest.raises(StoreError, match="begin with its facts"):
        history_of(other)
    with pytest.raises(StoreError, match=r"journal\.jsonl.*a run that has begun"):
        history_of(path)


def test_two_runs_cannot_write_one_journal(path):
    with JournaledRunner(replay(), path, facts=FACTS) as runner:
        with pytest.raises(StoreError, match="one writer"):
            JournaledRunner(replay(), path, facts=FACTS)
        runner.submit([Proposal(0, config(0))])
        runner.next()
    assert len(history_of(path)[1]) == 1


# -- signals --------------------------------------------------------------------------------------


def test_ctrl_c_within_a_measurement_waits_until_it_is_journaled(path):
    class Struck(Answering):
        def next(self):
            os.kill(os.getpid(), signal.SIGINT)
            return super().next()

    handler = signal.getsignal(signal.SIGINT)
    with JournaledRunner(Struck(Measurement("ok", (1.0,))), path, facts=FACTS) as runner:
        runner.submit([Proposal(0, config(0))])
        with pytest.raises(KeyboardInterrupt):
            runner.next()
    assert signal.getsignal(signal.SIGINT) is handler
    with JournaledRunner(Answering(), path, facts=FACTS) as runner:
        runner.submit([Proposal(0, config(0))])
        assert runner.next()[1].samples_us == (1.0,)


class Pump:
    """A live runner: a thread measures, and tells `on_measurement` before anybody collects."""

    live, free = True, 4

    def __init__(self):
        self.on_measurement = None
        self.pending = self.measured = 0
        self.now = 100.0  # start-up is over
        self._todo, self._done = queue.SimpleQueue(), queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while (proposal := self._todo.get()) is not None:
            self.now += 1.0
            self.measured += 1
            measurement = Measurement("ok", (float(self.measured),))
            self.on_measurement(proposal, measurement, self.now)
            self._done.put((proposal, measurement))

    def submit(self, proposals):
        self.pending += len(proposals)
        for proposal in proposals:
            self._todo.put(proposal)

    def next(self):
        found = self._done.get()
        self.pending -= 1
        return found

    def close(self):
        self._todo.put(None)
        self._thread.join()


def test_what_a_live_runner_finished_but_nobody_collected_is_kept(path):
    proposals = [Proposal(at, config(at)) for at in range(5)]
    with JournaledRunner(Pump(), path, facts=FACTS) as runner:
        runner.submit(proposals[:4])
        runner.next()  # and the others are finished by the time that it is closed
    assert len(history_of(path)[1]) == 4
    inner = Pump()
    with JournaledRunner(inner, path, facts=FACTS) as runner:
        runner.submit(proposals)
        assert runner.pending == 5
        found = [runner.next() for _ in proposals]
        assert runner.pending == 0
        assert runner.now == 105.0  # 104 when it was left, and 1 for the new one: no start-up
    assert inner.measured == 1
    assert [p for p, _ in found] == proposals
    assert [m.samples_us for _, m in found] == [(1.0,), (2.0,), (3.0,), (4.0,), (1.0,)]


def test_a_journal_that_cannot_be_written_ends_the_run_not_the_pump(path):
    with JournaledRunner(Pump(), path, facts=FACTS) as runner:
        runner._journal.close()
        runner.submit([Proposal(0, config(0))])
        with pytest.raises(StoreError, match="must reach the journal"):
            runner.next()


class Paced(ReplayRunner):
    """Takes its time, so that a strike finds the run under way.

    Most of it before measuring: a strike in `next` waits for the measurement, and a search of 16
    configs would be over after 16 of those.
    """

    def submit(self, proposals):
        time.sleep(0.01)
        super().submit(proposals)

    def next(self):
        time.sleep(0.001)
        return super().next()


def paced_replay(lanes):
    return Paced(make_landscape(), seed=0, compile_lanes=lanes)


def swayed(count):
    return Swayed(count)


@pytest.mark.parametrize(("lanes", "name"), [(1, "random"), (4, "swayed")])
def test_twenty_real_interrupts_lose_and_double_nothing(tmp_path, lanes, name):
    make = (
        partial(make_searcher, "random", SPACE, seed=2)
        if name == "random"
        else partial(swayed, 400)
    )
    alone = tune(make(), paced_replay(lanes), budget=ALL)
    found = interrupt_and_resume(
        partial(paced_replay, lanes),
        make,
        budget=ALL,
        times=20,
        seed=3,
        directory=tmp_path,
        expected=len(alone),
    )
    assert found.interrupts == 20
    assert (found.lost, found.doubled, found.cut_off) == (0, 0, 0)
    assert found.finished == found.journaled == len(found.history) == len(alone)
    if lanes == 1:
        assert same(found.history, alone)


def test_kills_lose_nothing_that_was_journaled(tmp_path):
    found = interrupt_and_resume(
        partial(paced_replay, 2),
        partial(swayed, 600),
        budget=ALL,
        times=2,
        seed=0,
        directory=tmp_path,
        kill_share=1.0,
        expected=600,
    )
    assert found.kills == 2
    assert (found.lost, found.doubled) == (0, 0)
    assert 0 <= found.cut_off <= 2
    assert len(found.history) == 600
    assert Counter(t.proposal.id for t in found.history).most_common(1)[0][1] == 1
