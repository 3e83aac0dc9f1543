"""Chains: what they wait for, what is free, and how a search of chains ends."""

import math

import numpy as np
import pytest

from kt_lab.prior import Prior, PriorReading
from kt_lab.search.chains import ChainSearcher
from kt_lab.search.conformance_cases import bowl, drive, huge_space, small_space, tiny_space
from kt_lab.search.moves import Returning, adjacent, hamming
from kt_lab.space import Choice, Constraint, Integer, ParameterSpace
from kt_lab.trial import Config, Measurement, Proposal, Trial


class Scripted(ChainSearcher):
    """Runs given lists of steps of `tiny_space`, one list per chain, and notes what it is sent."""

    def __init__(self, space, *scripts, prior=None):
        super().__init__(space, seed=0, prior=prior)
        self.scripts, self.heard = list(scripts), []
        self._left = list(scripts)

    def _chains(self):
        return len(self.scripts)

    def _chain(self, rng):  # noqa: ARG002
        for steps in self._left.pop(0):
            values = yield "script", [Config(step=s) for s in steps]
            self.heard.append((steps, values))


def tell(searcher, proposals, latency=lambda p: 10.0 + p.config["step"]):
    searcher.tell([Trial(p.id, p, Measurement("ok", (latency(p),))) for p in proposals])


def steps(proposals):
    return [p.config["step"] for p in proposals]


def test_a_chain_goes_on_when_all_of_its_readings_are_there_in_the_order_it_asked():
    searcher = Scripted(tiny_space(9), [[3, 1], [5]])
    asked = searcher.ask(9)
    assert steps(asked) == [3, 1]
    tell(searcher, asked[:1])
    assert searcher.ask(9) == []
    tell(searcher, asked[1:])
    assert steps(searcher.ask(9)) == [5]
    assert searcher.heard == [([3, 1], [13.0, 11.0])]


def test_chains_run_at_their_own_pace_and_share_what_is_known():
    searcher = Scripted(tiny_space(9), [[1], [2], [7]], [[3], [1], [8]])
    one, three = searcher.ask(9)
    assert steps([one, three]) == [1, 3]
    tell(searcher, [three])
    assert searcher.ask(9) == []  # the second chain needs 1, which the first is waiting for
    tell(searcher, [one])
    assert steps(searcher.ask(9)) == [2, 8]  # 1 was free
    assert not searcher.done


def test_a_lane_that_asks_for_one_at_a_time_serves_every_chain():
    searcher = Scripted(tiny_space(9), [[0], [1], [2]], [[5], [6], [7]])
    found = []
    while asked := searcher.ask(1):
        found += steps(asked)
        tell(searcher, asked)
    assert found == [0, 5, 1, 6, 2, 7]
    assert searcher.done


def test_what_somebody_else_measured_is_not_proposed():
    searcher = Scripted(tiny_space(9), [[4, 5]])
    foreign = Trial(0, Proposal(99, Config(step=4)), Measurement("compile_error"))
    searcher.tell([foreign])
    tell(searcher, asked := searcher.ask(9))
    assert steps(asked) == [5]
    assert searcher.ask(9) == []
    assert searcher.heard == [([4, 5], [math.inf, 15.0])]


def test_a_censored_reading_counts_as_its_bound():
    searcher = Scripted(tiny_space(9), [[4], [5]])
    [proposal] = searcher.ask(9)
    searcher.tell([Trial(0, proposal, Measurement("censored", (70.0, 60.0)))])
    searcher.ask(9)
    assert searcher.heard == [([4], [60.0])]


def test_a_chain_that_walks_among_known_configs_for_ever_is_ended():
    searcher = Scripted(tiny_space(9), [[n % 2] for n in range(10**6)])
    tell(searcher, searcher.ask(9))
    tell(searcher, searcher.ask(9))
    assert searcher.ask(9) == []
    assert searcher.done


def test_a_searcher_is_done_when_every_config_is_known():
    searcher = Scripted(tiny_space(3), [[0, 1, 2], [0], [1]])
    tell(searcher, searcher.ask(9))
    assert searcher.ask(9) == []
    assert searcher.done
    assert searcher.heard == [([0, 1, 2], [10.0, 11.0, 12.0])]  # the chain learns of the last one


def test_starts_are_the_default_the_prior_then_everything_else_once():
    class Starts(ChainSearcher):
        def _chain(self, rng):  # noqa: ARG002
            while (start := self._start()) is not None:
                yield "start", [start]

    space = small_space()
    known = space.configs(space.enumerate()[[100, 3]])
    prior = Prior(tuple(PriorReading(c, 5.0, "k/w", "gpu") for c in known))
    proposals = drive(Starts(space, seed=0, prior=prior), bowl(space), trials=10**4)
    configs = [p.config for p in proposals]
    assert configs[:3] == [space.default, *known]
    assert len(configs) == len(set(configs)) == space.size


# -- moves ----------------------------------------------------------------------------------------


def draws(move, space, row, n):
    rng = np.random.default_rng(0)
    return np.asarray([move(space, np.asarray(row), rng) for _ in range(n)])


def test_hamming_moves_change_one_parameter_to_any_other_value_uniformly():
    space = ParameterSpace(
        [Integer("a", 0, 4), Choice("b", ("x", "y", "z"))], default={"a": 0, "b": "x"}
    )
    found = draws(hamming, space, (2, 1), 3000)
    assert ((found != (2, 1)).sum(axis=1) == 1).all()
    _, counts = np.unique(found, axis=0, return_counts=True)
    assert counts.tolist() == pytest.approx([500] * 6, abs=90)


def test_adjacent_moves_are_uniform_in_the_box_without_the_row_itself():
    space = ParameterSpace(
        [Integer("a", 0, 4), Integer("b", 0, 4), Choice("c", ("x", "y", "z", "w"))],
        constraints=[Constraint("law", "a + b <= 5")],
        default={"a": 0, "b": 0, "c": "x"},
    )
    found = draws(adjacent, space, (3, 2, 1), 6000)
    assert np.abs(found - (3, 2, 1)).max() == 1
    kinds, counts = np.unique(found, axis=0, return_counts=True)
    assert len(kinds) == 6 * 3 - 1  # a + b <= 5 leaves 6 of 9 pairs
    assert counts.tolist() == pytest.approx([6000 / 17] * 17, abs=90)


def test_a_walk_returns_to_what_it_listed_once_two_of_that_are_near():
    space = ParameterSpace([Integer("a", 0, 9), Integer("b", 0, 9)], default={"a": 0, "b": 0})
    rng = np.random.default_rng(0)
    for draw, near in ((hamming, [(0, 0), (0, 9)]), (adjacent, [(0, 0), (1, 2)])):
        move = Returning(draw, space)
        one, two = map(np.asarray, near)
        here = np.asarray((0, 1))
        move(one, rng)
        move(two, rng)  # listed: one noted row near it would not be enough
        found = [tuple(move(here, rng).tolist()) for _ in range(300)]
        assert found[0] in near
        assert found.count(found[0]) < 100  # after that only one is left: it is listed itself
        assert len(set(found)) >= 5
        far = np.asarray((9, 5))
        assert {tuple(move(far, rng).tolist()) for _ in range(300)}.isdisjoint(near)


def test_moves_in_a_space_of_one_config_stay_and_from_an_invalid_row_become_valid():
    row = np.asarray([0])
    for move in (hamming, adjacent):
        assert move(tiny_space(1), row, np.random.default_rng(0)).tolist() == [0]
    space = huge_space()
    wrong = np.asarray([9, 9, 0, 0, 0, 0, 0, 0])
    assert not space.valid(wrong[None, :])[0]
    assert (draws(adjacent, space, wrong, 20)[:, :2].sum(axis=1) <= 9).all()
