"""The hand-off between ask/tell and a search that owns its loop, with peers made up here."""

import importlib
import os
import random
import sys
import threading

import numpy as np
import pytest

from kt_lab.errors import UnknownName, UsageError
from kt_lab.search import get_searcher, make_searcher, searchers
from kt_lab.search.conformance_cases import bowl, broken, drive, foreign_trials, tiny_space
from kt_lab.search.peers import PEERS
from kt_lab.search.peers.handoff import PeerError, PeerSearcher
from kt_lab.trial import Config, Trial

SPACE = tiny_space(100)


def step(n):
    return Config(step=n)


class Walk(PeerSearcher):
    """Draws three steps a batch from both global generators, for five batches."""

    name = "walk"
    heard = unwound = None

    def _job(self):
        self.heard = []

        def search(measure):
            try:
                for _ in range(5):
                    drawn = [random.randrange(100), np.random.randint(100), random.randrange(100)]  # noqa: NPY002
                    self.heard.append(measure([(step(int(d)), "walk", None) for d in drawn]))
            except BaseException as error:
                self.unwound = type(error).__name__
                raise

        return search


class Told(PeerSearcher):
    """Measures what it is made with, batch by batch."""

    name = "told"

    def __init__(self, *batches, end=None):
        super().__init__(SPACE, seed=0)
        self._wanted, self._end, self.heard = batches, end, []

    def _job(self):
        def search(measure):
            for batch in self._wanted:
                self.heard.append(measure(batch))
            if self._end:
                raise self._end

        return search


def new(*steps):
    return [(step(n), "start", None) for n in steps]


def again(*steps):
    return [(step(n), "retime", 40) for n in steps]


def asked(proposals):
    return [(p.config["step"], p.origin, p.repetitions) for p in proposals]


def test_a_batch_is_proposed_at_once_and_answered_in_its_order():
    searcher = Told(new(5, 1, 9))
    proposals = searcher.ask(2)
    assert asked(proposals) == [(5, "start", None), (1, "start", None)]
    assert searcher.heard == []
    proposals += searcher.ask(9)
    assert searcher.ask(9) == []  # it waits
    measured = bowl(SPACE)
    searcher.tell([Trial(i, p, measured(p.config)) for i, p in enumerate(proposals)][::-1])
    assert searcher.ask(1) == []
    assert searcher.done
    assert searcher.heard == [[measured(step(n)).latency_us for n in (5, 1, 9)]]


def test_what_was_measured_before_is_answered_from_memory_free_of_charge():
    searcher = Told(new(3, 4), new(4, 3, 4), new(3, 7, 7))
    assert [p.config["step"] for p in drive(searcher, bowl(SPACE))] == [3, 4, 7]
    assert [len(batch) for batch in searcher.heard] == [2, 3, 3]
    assert searcher.heard[1] == [searcher.heard[0][i] for i in (1, 0, 1)]


def test_a_reading_that_nobody_asked_for_is_remembered():
    trials = foreign_trials(SPACE, 3)
    searcher = Told([(t.config, "start", None) for t in trials])
    searcher.tell(trials)
    assert searcher.ask(5) == []
    assert searcher.done
    assert searcher.heard == [[t.latency_us or float("inf") for t in trials]]


def test_a_re_measurement_is_proposed_and_replaces_the_reading():
    searcher = Told(new(3, 4), again(4, 3), new(3))
    proposals = []
    while batch := searcher.ask(10):
        searcher.tell([Trial(0, p, bowl(SPACE)(step(p.id))) for p in batch])
        proposals += batch
    assert asked(proposals)[2:] == [(4, "retime", 40), (3, "retime", 40)]
    assert searcher.heard[2] == [bowl(SPACE)(step(3)).latency_us]  # proposal 3 re-timed step 3


def test_failures_are_infinitely_slow():
    searcher = Told(new(3))
    drive(searcher, broken)
    assert searcher.heard == [[float("inf")]]


def test_an_error_of_the_peer_comes_out_of_ask_with_its_cause():
    cause = RuntimeError("no such thing")
    searcher = Told(new(3), end=cause)
    with pytest.raises(PeerError, match="RuntimeError: no such thing") as caught:
        drive(searcher, bowl(SPACE))
    assert caught.value.__cause__ is cause
    assert searcher.done


def test_a_peer_that_gives_up_where_everything_fails_is_done():
    searcher = Told(new(3, 4), end=RuntimeError("nothing works"))
    drive(searcher, broken)
    assert searcher.done


def test_an_error_before_anything_was_measured_is_no_end():
    with pytest.raises(PeerError, match="broken from the start"):
        Told(end=RuntimeError("broken from the start")).ask(1)


def test_interleaved_peers_draw_what_they_draw_alone():
    def steps(proposals):
        return [p.config["step"] for p in proposals]

    alone = [steps(drive(Walk(SPACE, seed=seed), bowl(SPACE))) for seed in (1, 2)]
    pair = [Walk(SPACE, seed=seed) for seed in (1, 2)]
    found = [[], []]
    for _ in range(20):
        for searcher, mine in zip(pair, found, strict=True):
            mine += steps(drive(searcher, bowl(SPACE), trials=2))
            random.random()
            np.random.random()  # noqa: NPY002
    assert found == alone
    assert alone[0] != alone[1]


def test_the_callers_world_is_untouched_and_the_peers_is_kept(monkeypatch):
    monkeypatch.setenv("KT_LAB_MINE", "mine")
    seen = []

    class Changer(PeerSearcher):
        def _job(self):
            def search(measure):
                os.environ["KT_LAB_PEER"] = "1"
                del os.environ["KT_LAB_MINE"]
                measure(new(1))
                seen.append((os.environ["KT_LAB_PEER"], os.environ.get("KT_LAB_MINE")))
                measure(new(2))

            return search

    before = dict(os.environ)
    searcher = Changer(SPACE, seed=0)
    for _ in range(2):
        drive(searcher, bowl(SPACE), trials=1)
        assert dict(os.environ) == before
    searcher.close()
    assert dict(os.environ) == before
    assert seen == [("1", None)]


def test_close_unwinds_a_peer_in_mid_search():
    before = set(threading.enumerate())
    searcher = Walk(SPACE, seed=0)
    assert searcher.ask(1)
    assert set(threading.enumerate()) - before
    searcher.close()
    searcher.close()
    assert set(threading.enumerate()) == before
    assert searcher.unwound
    assert searcher.done
    assert searcher.ask(1) == []


def test_the_peers_own_cpu_time_is_counted():
    class Busy(PeerSearcher):
        def _job(self):
            return lambda measure: (sum(range(10**6)), measure(new(1)))

    searcher = Busy(SPACE, seed=0)
    assert searcher.thread_s == 0
    drive(searcher, bowl(SPACE))
    assert searcher.thread_s > 0


def test_peers_are_found_by_name_but_not_listed():
    assert not set(PEERS) & set(searchers())
    for name in PEERS:
        assert get_searcher(name).name == name
    with pytest.raises(UnknownName, match="helion_lfbo_tree"):
        get_searcher("helion_lfbo_three")


def test_without_helion_the_error_says_how_to_get_it(monkeypatch):
    driver = "kt_lab.search.peers.helion_driver"
    monkeypatch.delitem(sys.modules, driver, raising=False)
    monkeypatch.setitem(sys.modules, "helion", None)
    monkeypatch.setattr(
        importlib.import_module("kt_lab.search.peers"), "helion_driver", None, False
    )
    with pytest.raises(UsageError, match=r"pip install .* -e \"\.\[peers\]\""):
        make_searcher("helion_pattern", SPACE, seed=0)
