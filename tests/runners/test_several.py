"""Several GPUs measure one search: who did what, how they differ, and what if one breaks."""

from dataclasses import replace

import pytest

from kt_lab.budget import Budget
from kt_lab.cells import recorded
from kt_lab.errors import SpaceError, UsageError
from kt_lab.live import tune_live
from kt_lab.recorded_gpu import ReplayedGpu
from kt_lab.runners.journaled import JournaledRunner
from kt_lab.runners.several import SeveralRunner, several_gpus
from kt_lab.search import make_searcher
from kt_lab.trial import Config, Proposal
from kt_lab.tune import tune
from tests.runners import live_fakes as fakes

LANDSCAPE = recorded("softmax/4096x640", "h200")
BUDGET = Budget(trials=60)


class Card(ReplayedGpu):
    """A recorded GPU that is slower by a factor, and breaks after so many results."""

    def __init__(self, *, slower=1.0, breaks=None, slug="test", drift=0.0, process=0):
        super().__init__(LANDSCAPE, process=process)
        self.facts["slug"] = slug
        self.slower, self.breaks, self.drift, self.closed = slower, breaks, drift, 0
        self.given = []

    def submit(self, proposals):
        self.given += proposals
        super().submit(proposals)

    def next(self):
        if self.breaks == 0:
            raise RuntimeError("the card fell off the bus")
        self.breaks = self.breaks and self.breaks - 1
        proposal, found = super().next()
        samples = tuple(us * self.slower for us in found.samples_us)
        self.slower *= 1 + self.drift
        return proposal, replace(found, samples_us=samples)

    def close(self):
        self.closed += 1


def search(runner, *, name="random"):
    return tune(make_searcher(name, LANDSCAPE.space, seed=0, budget=BUDGET), runner, budget=BUDGET)


def both(**changes):
    return {"a": Card(), "b": Card(slower=1.25, process=1, **changes)}


def test_two_gpus_share_a_search_in_the_order_of_their_clocks():
    cards = both()
    with SeveralRunner(cards, every=3) as runner:
        assert runner.free == sum(card.free for card in cards.values())
        history = search(runner)
        devices = runner.facts["devices"]
    by = [trial.measurement.info["device"] for trial in history]
    assert set(by) == {"a", "b"}
    assert len(history) == 60 == len({trial.config for trial in history})
    clock = [trial.machine_s for trial in history]
    assert clock == sorted(clock)
    alone = search(Card())
    assert clock[-1] < alone[-1].machine_s, "two compile and time at once"
    assert devices["b"]["offset"] == pytest.approx(0.25, abs=0.05)
    assert devices["a"]["offset"] == 0
    for name, card in cards.items():
        controls = [p for p in card.given if p.origin == "control"]
        asked = [p for p in card.given if p.origin != "control"]
        assert card.given[0].origin == "control", "before anything else"
        assert len(controls) == -(-len(asked) // 3)
        assert {p.config for p in controls} == {card.space.default}
        mine = [t.proposal for t in history if t.measurement.info["device"] == name]
        assert sorted(p.id for p in mine) == sorted(p.id for p in asked)
        assert card.closed == 1


def test_the_same_search_repeats_itself():
    first, again = (search(SeveralRunner(both()), name="pattern") for _ in range(2))
    told = [[(t.config, t.latency_us, t.machine_s) for t in h] for h in (first, again)]
    assert told[0] == told[1]


def test_a_gpu_that_gets_slower_is_seen_to_drift():
    runner = SeveralRunner(both(drift=0.02), every=2)
    search(runner)
    devices = runner.facts["devices"]
    assert devices["b"]["drift"] > 0.02
    assert abs(devices["a"]["drift"]) < 0.02


def test_what_a_broken_gpu_had_under_way_goes_to_the_others():
    cards = both(breaks=3)
    runner = SeveralRunner(cards)
    history = search(runner)
    assert len(history) == 60 == len({trial.config for trial in history})
    by = [trial.measurement.info["device"] for trial in history]
    assert by.count("b") == 2, "what it had finished counts; one of three was the control"
    assert cards["b"].closed == 1
    assert runner.facts["devices"]["b"]["lost"] == "RuntimeError: the card fell off the bus"
    assert runner.facts["devices"]["a"]["lost"] is None
    assert runner.free == cards["a"].free


def test_the_last_gpu_to_break_ends_the_search():
    runner = SeveralRunner({"a": Card(breaks=2), "b": Card(breaks=2, process=1)})
    with pytest.raises(RuntimeError, match="fell off the bus"):
        search(runner)
    runner.close()
    assert set(runner.lost) == {"a", "b"}


def test_gpus_of_two_kinds_and_mixed_clocks_are_refused():
    with pytest.raises(UsageError, match=r"one kind, got a \(test\), b \(other\)"):
        SeveralRunner({"a": Card(), "b": Card(slug="other")})
    live = Card()
    live.live = True
    with pytest.raises(UsageError, match="all live or all simulated"):
        SeveralRunner([Card(), live])
    with pytest.raises(UsageError, match="at least one"):
        SeveralRunner([])


def test_a_foreign_config_and_an_idle_runner_are_refused():
    runner = SeveralRunner([Card()])
    with pytest.raises(SpaceError):
        runner.submit([Proposal(0, Config({"X": 1}))])
    with pytest.raises(UsageError, match="needs a pending proposal"):
        runner.next()


def test_a_resumed_search_on_several_gpus_measures_nothing_twice(tmp_path):
    path = tmp_path / "run.jsonl"
    histories, given = [], []
    for _ in range(2):
        cards = both()
        kept = JournaledRunner(SeveralRunner(cards), path, facts={"search": "random"})
        histories.append(search(kept))
        kept.close()
        given.append([p for c in cards.values() for p in c.given if p.origin != "control"])
    assert len(given[0]) == 60
    assert given[1] == []
    assert {t.config: t.latency_us for t in histories[0]} == {
        t.config: t.latency_us for t in histories[1]
    }


def test_live_gpus_share_a_search_and_one_of_them_confirms(monkeypatch, tmp_path):
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))
    with several_gpus(
        fakes.WORKLOAD,
        devices=(0, 1),
        every=10,
        kernel=fakes.CALM,
        services=fakes.SERVICES,
        compile_workers=1,
    ) as runner:
        result = tune_live(
            runner, searcher="random", budget=Budget(trials=40), seed=3, directory=tmp_path
        )
    history = result.history
    assert history.trials_spent == 40
    assert {t.measurement.info["device"] for t in history} == {"device-0", "device-1"}
    assert result.winner.config == fakes.SPACE.default  # the fastest there is
    devices = result.winner.provenance["devices"]
    assert all(row["readings"] >= 1 and row["offset"] == 0 for row in devices.values())
    runner._first.pending = 1
    with pytest.raises(UsageError, match="closed one"):
        runner._first.next()
