"""Searchers of any Space: what each does step by step, and all promises on two such spaces."""

import math
import statistics

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.prior import Prior, PriorReading
from kt_lab.search import get_searcher, make_searcher
from kt_lab.search.annealing import acceptance
from kt_lab.search.conformance import CHECKS, check_pending, check_searcher, check_table
from kt_lab.search.conformance_cases import bowl, drive, flat, huge_space, small_space
from kt_lab.search.random import RandomSearch
from kt_lab.search.starts import uniform
from kt_lab.trial import Config, Measurement, Proposal, Trial
from tests.search.words import LETTERS, Schedules, Words

PLAYERS = ("greedy", "beam", "annealing", "evolution", "lfbo")
TARGET = {"a": 3, "b": 2, "c": 0, "d": 1}  # how often each letter stands in the best words


def far(config):
    """How many letters a word has too many or too few."""
    return sum(abs(config["word"].count(x) - n) for x, n in TARGET.items())


def valley(config):
    return Measurement("ok", (10.0 * 1.5 ** far(config),))


class Rowing(RandomSearch):
    """Looks at parameters although it says that any space will do."""

    def ask(self, n):
        self.space.row(self.space.default)
        return super().ask(n)


class Forgetful(RandomSearch):
    def ask(self, n):
        return [self.propose(self.space.default) for _ in range(n)]


def words(proposals):
    return [p.config["word"] for p in proposals]


@pytest.mark.parametrize("space", [Words, Schedules])
@pytest.mark.parametrize("name", ["random", *PLAYERS])
def test_players_keep_every_promise_on_spaces_without_parameters(name, space):
    assert len(check_searcher(get_searcher(name), space=space)) == len(CHECKS)


def test_the_suite_catches_what_breaks_on_the_given_space_only():
    assert check_searcher(Rowing)
    with pytest.raises(AttributeError, match="row"):
        check_searcher(Rowing, space=Words)
    told = check_table(Rowing, space=Words)["verdict"]
    assert told["check_huge"] == told["check_one_config"] == "kept"
    assert "AttributeError" in told["check_ask"]

    with pytest.raises(AssertionError, match="proposed again"):
        check_pending(Forgetful, Words)


@pytest.mark.parametrize("name", ["random", *PLAYERS])
def test_configs_of_one_key_are_measured_once(name):
    space = Schedules(longest=3)
    proposals = drive(make_searcher(name, space, seed=0), valley, trials=1000)
    keys = [space.key(p.config) for p in proposals]
    assert len(set(keys)) == len(keys)
    assert 0.9 * math.comb(3 + 4, 4) <= len(keys)  # of all multisets of at most 3 letters


def test_a_slow_space_is_drawn_from_one_by_one():
    class Counted(Words):
        drawn = 0

        def sample(self, n, *, rng):
            self.drawn += n
            return super().sample(n, rng=rng)

    space = Counted()
    next(uniform(space, rng=np.random.default_rng(0)))
    assert space.drawn == 1


@pytest.mark.parametrize("name", PLAYERS)
@pytest.mark.parametrize("space", [Words, Schedules, small_space, huge_space])
def test_players_beat_random_search(name, space):
    space = space()
    landscape = valley if isinstance(space, Words) else bowl(space)

    def best(of, seed):
        searcher = make_searcher(of, space, seed=seed, budget=Budget(trials=60))
        found = drive(searcher, landscape, trials=60)
        return min(landscape(p.config).latency_us for p in found)

    mine, uniform = (
        statistics.mean(math.log(best(of, seed)) for seed in range(5)) for of in (name, "random")
    )
    assert mine < uniform


# -- greedy and beam ------------------------------------------------------------------------------


def test_greedy_moves_to_the_best_of_the_first_neighbours_that_improve():
    space = Words()
    searcher = make_searcher("greedy", space, seed=1, branch=2)
    here, met, proposals = "", set(), searcher.ask(9)
    assert words(proposals) == [""]
    for _ in range(20):
        searcher.tell([Trial(p.id, p, valley(p.config)) for p in proposals])
        here = min([here, *words(proposals)], key=lambda w: far(Config(word=w)))
        met |= set(words(proposals))
        near = {c["word"] for c in space.neighbours(Config(word=here))}
        proposals = searcher.ask(9)
        assert 1 <= len(proposals) <= 2
        if near <= met:
            break
        assert {p.origin for p in proposals} == {"neighbour"}
        assert set(words(proposals)) <= near - met
    assert {p.origin for p in proposals} == {"restart"}
    assert far(Config(word=here)) == min(far(Config(word=w)) for w in met)


def test_greedy_starts_elsewhere_only_when_every_neighbour_is_measured():
    space = Words(longest=3)
    proposals = drive(make_searcher("greedy", space, seed=0), flat, trials=1000)
    restart = next(p.id for p in proposals if p.origin == "restart")
    assert sorted(words(proposals)[:restart]) == ["", *LETTERS]
    assert len(proposals) > 0.9 * sum(4**n for n in range(4))  # in the end hardly any is left
    once = drive(make_searcher("greedy", space, seed=0, restart=False), flat, trials=1000)
    assert len(once) == 5


def test_a_reading_that_is_hardly_faster_moves_no_beam():
    def noisy(config):
        return Measurement("ok", (100.0 - 0.1 * len(config["word"]),))

    def far_from_start(**options):
        searcher = make_searcher("greedy", Words(), seed=0, restart=False, **options)
        return max(map(len, words(drive(searcher, noisy, trials=100))))

    assert far_from_start() == 1
    assert far_from_start(min_improvement=0.0) > 3


def test_a_beam_keeps_the_fastest_and_draws_round_each_of_them():
    space = Words()
    prior = Prior(tuple(PriorReading(Config(word=w), 1.0, "", "") for w in ("ddd", "ab", "cc")))
    searcher = make_searcher("beam", space, seed=0, width=2, branch=3, prior=prior)
    first = searcher.ask(99)
    assert words(first) == ["", "ddd"]  # as many starts as are kept: the default, the prior's
    searcher.tell([Trial(p.id, p, valley(p.config)) for p in first])
    second = searcher.ask(99)
    assert len(second) == 6
    near = [{c["word"] for c in space.neighbours(p.config)} for p in first]
    assert [len(set(words(second)) & part) for part in near] == [3, 3]
    searcher.tell([Trial(p.id, p, valley(p.config)) for p in second])
    kept = sorted([*first, *second], key=lambda p: far(p.config))[:2]
    near = {c["word"] for p in kept for c in space.neighbours(p.config)}
    assert set(words(searcher.ask(99))) <= near


# -- annealing ------------------------------------------------------------------------------------


def test_acceptance_is_of_the_logarithm_and_knows_failures():
    assert acceptance(100.0, 99.0, 0.5) == acceptance(100.0, 100.0, 0.02) == 1.0
    assert acceptance(10.0, 10.0 * math.e, 1.0) == pytest.approx(math.exp(-1))
    assert acceptance(1e-3, 2e-3, 0.5) == pytest.approx(0.25)  # 2 ** -(1 / T), whatever the unit
    assert acceptance(1e3, 2e3, 0.5) == pytest.approx(0.25)
    assert acceptance(math.inf, 5.0, 0.02) == acceptance(math.inf, math.inf, 0.02) == 1.0
    assert acceptance(5.0, math.inf, 1e6) == 0.0


def test_annealing_starts_from_the_fastest_of_default_and_prior():
    space = Words()
    expert = Config(word="aabd")
    prior = Prior((PriorReading(expert, 1.0, "", ""), PriorReading(Config(word="c"), 2.0, "", "")))
    searcher = make_searcher("annealing", space, seed=0, prior=prior)
    first = searcher.ask(9)
    assert words(first) == ["", "aabd", "c"]
    searcher.tell([Trial(p.id, p, valley(p.config)) for p in first])
    [step] = searcher.ask(9)
    assert step.config in space.neighbours(expert)


def test_a_cold_chain_never_stands_on_a_slower_config():
    class Spied(Words):
        stood = ()

        def mutate(self, config, *, rng):
            self.stood = (*self.stood, -config["word"].count("a"))
            near = self.neighbours(config)
            return near[rng.integers(len(near))]

    def stood(**options):
        space = Spied(longest=99)
        drive(make_searcher("annealing", space, seed=0, **options), endless, trials=40)
        return space.stood

    def endless(config):
        return Measurement("ok", (0.9 ** config["word"].count("a"),))

    cold = stood(start_temperature=1e-6, end_temperature=1e-6)
    assert list(cold) == sorted(cold, reverse=True)
    hot = stood(start_temperature=1e6, end_temperature=1e6)
    assert list(hot) != sorted(hot, reverse=True)


def test_chains_share_the_budget_and_a_cold_one_starts_elsewhere():
    space = huge_space()
    budget = Budget(trials=80)
    searcher = make_searcher("annealing", space, seed=0, budget=budget, chains=4)
    proposals = drive(searcher, flat, trials=100, batch=8)
    assert {p.origin for p in proposals[:60]} == {"start", "walk"}
    assert "restart" in {p.origin for p in proposals[80:]}


# -- evolution and lfbo ---------------------------------------------------------------------------


def test_evolution_breeds_by_the_space_and_keeps_the_fastest():
    class Spied(Schedules):
        parents = ()

        def cross(self, a, b, *, rng):
            self.parents = (*self.parents, a, b)
            return super().cross(a, b, rng=rng)

    space = Spied()
    searcher = make_searcher("evolution", space, seed=0, population=4, children=3)
    first = drive(searcher, valley, trials=4)
    assert {p.origin for p in first} == {"start"}
    assert {p.generation for p in first} == {0}
    second = searcher.ask(9)
    assert len(second) == 3
    assert {(p.origin, p.generation) for p in second} == {("generation", 1)}
    assert set(space.parents) <= {p.config for p in first}
    searcher.tell([Trial(p.id, p, valley(p.config)) for p in second])
    space.parents = ()
    searcher.ask(9)
    kept = sorted((*first, *second), key=lambda p: far(p.config))[:4]
    assert {far(c) for c in space.parents} <= {far(p.config) for p in kept}


def test_lfbo_learns_from_the_encoding_which_letters_are_good():
    space = Words(longest=9)

    def landscape(config):
        return Measurement("ok", (1.0 + config["word"].count("d"),))

    told = [Config(word=w) for w in ("d", "ad", "bd", "cd", "ddd", "a", "b", "c")]
    prior = Prior(tuple(PriorReading(c, 1.0, "", "") for c in told))
    options = {"initial": 9, "batch": 4, "parents": 9, "mutants": 0, "quantile": 0.3}
    searcher = make_searcher("lfbo", space, seed=0, prior=prior, **options)
    assert len(drive(searcher, landscape, trials=9)) == 9
    chosen = searcher.ask(99)
    assert len(chosen) == 4
    assert {p.origin for p in chosen} == {"model"}
    assert not any("d" in word for word in words(chosen))


def test_lfbo_lists_the_neighbours_of_few_configs_per_ask():
    class Counted(Words):
        listed = 0

        def neighbours(self, config, *, radius=1):
            self.listed += 1
            return super().neighbours(config, radius=radius)

    space = Counted()
    searcher = make_searcher("lfbo", space, seed=0, mutants=0, parents=2, batch=2)
    for _ in range(4):
        before = space.listed
        proposals = searcher.ask(16)
        assert space.listed - before <= 2
        searcher.tell([Trial(p.id, p, valley(p.config)) for p in proposals])


@pytest.mark.parametrize("name", PLAYERS)
def test_what_was_told_is_not_proposed_again(name):
    space = Schedules(longest=2)
    searcher = make_searcher(name, space, seed=0)
    told = [Config(word=w) for w in ("", "ba", "cd")]
    searcher.tell([Trial(i, Proposal(10**6 + i, c), valley(c)) for i, c in enumerate(told)])
    proposals = drive(searcher, valley, trials=100)
    keys = {space.key(p.config) for p in proposals}
    assert keys
    assert not keys & {"", "ab", "cd"}
