"""The searcher Max-Q: rewards, episodes, and what it learns of configs."""

import functools
import math

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.search import make_searcher
from kt_lab.search.conformance import CHECKS
from kt_lab.search.conformance_cases import (
    bowl,
    broken,
    drive,
    flat,
    huge_space,
    small_space,
    tiny_space,
)
from kt_lab.space import Integer, ParameterSpace
from kt_lab.trial import Config, Measurement, Proposal, Trial

TABLE = {"learner": "table", "actors": 1}


def max_q(space, *, trials=None, seed=0, **options):
    budget = Budget(trials=trials) if trials else None
    return make_searcher("max_q", space, seed=seed, budget=budget, **options)


def line(latencies, default=0):
    """A space of one parameter, and the given latencies; None fails."""
    space = ParameterSpace([Integer("x", 0, len(latencies) - 1)], default={"x": default})

    def evaluate(config):
        latency = latencies[config["x"]]
        return broken(config) if latency is None else Measurement("ok", (float(latency),))

    return space, evaluate


def test_the_reward_is_the_speed_up_over_the_default():
    space, evaluate = line([100, 50, None, 200])
    searcher = max_q(space)
    drive(searcher, evaluate)
    assert [searcher._reward(v) for v in (100.0, 50.0, math.inf, 200.0)] == [1.0, 2.0, 0.0, 0.5]
    searcher = max_q(space, reward="log")
    drive(searcher, evaluate)
    assert [searcher._reward(v) for v in (100.0, 12.5, math.inf)] == pytest.approx(
        [1.0, math.log2(9), 0.0]
    )


def test_where_the_default_fails_the_first_reading_that_does_not_is_the_reference():
    space, evaluate = line([None, None, 80, 40])
    searcher = max_q(space, **TABLE)
    drive(searcher, evaluate, batch=1)
    assert searcher._reference in (80.0, 40.0)
    searcher = max_q(space, **TABLE)
    drive(searcher, broken)
    assert searcher._reference == math.inf


def test_learned_values_are_those_of_value_iteration():
    latencies = [100, 90, 140, None, 70, 95, 60, 110, None, 30, 75, 100]
    space, evaluate = line(latencies)
    searcher = max_q(space, gamma=0.9, moves=4, **TABLE)
    drive(searcher, evaluate, trials=1000)
    assert searcher.done
    configs = space.configs(space.enumerate())
    reward = np.asarray([0.0 if t is None else 100 / t for t in latencies])
    near = [[c["x"] for c in space.neighbours(config)] for config in configs]
    exact = reward.copy()
    for _ in range(100):  # a failure ends the episode: nothing is reached through it
        exact = np.asarray(
            [
                r if not r else max(r, 0.9 * max(exact[j] for j in js))
                for r, js in zip(reward, near, strict=True)
            ]
        )
    for _ in range(2000):
        searcher._learner.learn()
    known = [searcher._learner.values(searcher._features([c]))[0] for c in configs]
    assert known == pytest.approx(exact, abs=1e-9)


def test_it_only_moves_to_unmeasured_neighbours_and_each_config_is_proposed_once():
    space = small_space()
    searcher = max_q(space, actors=1, start="incumbent")
    proposals = drive(searcher, bowl(space, failing=0.3), trials=10**4, batch=1)
    assert len(proposals) == len({p.config for p in proposals}) == space.size
    assert searcher.done
    seen = set()
    for p in proposals:
        if p.origin == "move":
            assert seen & set(space.neighbours(p.config))
        seen.add(p.config)


def test_episodes_start_where_they_are_told_to():
    space, evaluate = line([100 - x for x in range(40)], default=20)
    near = {
        rule: drive(max_q(space, start=rule, moves=1, actors=1), evaluate, trials=12, batch=1)
        for rule in ("default", "incumbent", "random")
    }
    assert {p.origin for p in near["incumbent"][1:]} == {"move"}
    found = [p.config["x"] for p in near["incumbent"]]
    assert found[:3] in ([20, 21, 22], [20, 19, 21])
    assert max(found) >= 29  # climbs from the fastest
    assert sorted(p.config["x"] for p in near["default"][:3]) == [19, 20, 21]
    assert sum(p.origin == "start" for p in near["random"]) > 4


def test_it_stops_where_nothing_promises_more():
    space, evaluate = line([100] * 41, default=20)
    searcher = max_q(space, epsilon_start=0.0, epsilon_end=0.0, **TABLE)
    _, last = drive(searcher, evaluate, trials=2, batch=1)
    rng = np.random.default_rng(0)
    # A table values an unmeasured move at 0, and staying at T_ref / T = 1.
    assert searcher._choose(last.config, rng, may_stop=True) is None
    beyond = Config(x=2 * last.config["x"] - 20)
    assert searcher._choose(last.config, rng, may_stop=False) == beyond


def test_random_moves_become_rare_as_the_budget_is_spent():
    searcher = max_q(small_space(), trials=100)
    assert [searcher._epsilon(n) for n in (0, 30, 60, 100)] == pytest.approx(
        [0.3, 0.175, 0.05, 0.05]
    )


def test_as_many_lanes_are_busy_as_there_are_actors():
    searcher = max_q(huge_space(), actors=5, start="random")
    first = searcher.ask(99)
    assert [p.config for p in first] == [huge_space().default]  # everybody waits for T_ref
    drive(searcher, bowl(huge_space()), trials=1)
    proposals = drive(max_q(huge_space(), actors=5), bowl(huge_space()), trials=200, batch=5)
    assert len(proposals) == 200


class Ring:
    """A Space that is no ParameterSpace: numbers on a ring, moves to both sides."""

    default = Config(at=0)
    fingerprint = "ring"
    length = 30

    def contains(self, config):
        return set(config) == {"at"} and config["at"] in range(self.length)

    def sample(self, n, *, rng):
        return [Config(at=int(i)) for i in rng.integers(self.length, size=n)]

    def neighbours(self, config, *, radius=1):
        return [Config(at=(config["at"] + d) % self.length) for d in (-radius, radius)]

    def encode(self, configs):
        turns = np.asarray([c["at"] for c in configs]) / self.length * 2 * np.pi
        return np.stack([np.cos(turns), np.sin(turns)], axis=1)


def test_any_space_will_do():
    def evaluate(config):
        return Measurement("ok", (10.0 + abs(config["at"] - 15),))

    searcher = max_q(Ring(), actors=2)
    proposals = drive(searcher, evaluate, trials=500)
    assert {p.config["at"] for p in proposals} == set(range(30))
    assert searcher.done


def test_a_network_many_steps_and_the_plain_rule_are_options():
    net = {"learner": "network"}
    for options in (net, net | {"double": False}, net | {"target_rate": 1.0}, {"updates": 2}):
        options = options | {"steps": 3, "moves": 6}
        searcher = max_q(small_space(), **options)
        assert len(drive(searcher, bowl(small_space()), trials=40)) == 40
        assert searcher._learner.transitions >= 30


def test_it_learns():
    def valley(config):
        return Measurement("ok", (100.0 + 10.0 * sum(abs(v - 4) for v in config.values()),))

    proposals = drive(max_q(huge_space(), trials=150), valley, trials=150)
    latencies = [valley(p.config).latency_us for p in proposals]
    assert latencies[0] == 420.0
    assert min(latencies) < 150


@pytest.mark.parametrize(
    "options",
    [TABLE, {"learner": "network", "start": "random"}, {"moves": 50, "steps": 4, "actors": 16}],
    ids=str,
)
def test_its_variants_conform(options):
    for check in CHECKS:
        check(functools.partial(make_searcher, "max_q", **options))


def test_a_tiny_space_is_learned_to_the_end():
    searcher = max_q(tiny_space(12))
    assert len(drive(searcher, bowl(tiny_space(12)), trials=100)) == 12


@pytest.mark.parametrize("start", ["default", "mixed", "incumbent", "random"])
def test_a_default_that_fails_ends_no_search(start):
    space = small_space()
    good = bowl(space)

    def reading(config):
        return Measurement("timeout", error="late") if config == space.default else good(config)

    searcher = make_searcher("max_q", space, seed=0, start=start, budget=Budget(trials=60))
    assert len(drive(searcher, reading, trials=60)) == 60


@pytest.mark.parametrize("start", ["default", "mixed"])
def test_a_reading_of_a_config_that_is_the_default_in_all_but_name_counts_as_its(start):
    class Keyed(ParameterSpace):
        def key(self, config):
            return str(config["a"])

    space = Keyed([Integer("a", 0, 5), Integer("b", 0, 5)], default={"a": 0, "b": 0})
    searcher = make_searcher("max_q", space, seed=0, start=start)
    twin = Config(a=0, b=2)
    searcher.tell([Trial(0, Proposal(99, twin), flat(twin))])
    assert {p.config["a"] for p in drive(searcher, flat, trials=20)} == {1, 2, 3, 4, 5}
