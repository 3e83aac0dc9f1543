"""Simulated annealing: Kernel Tuner's acceptance and schedule, and what is added to them."""

import functools
import math

import pytest

from kt_lab.budget import Budget
from kt_lab.errors import UsageError
from kt_lab.search import make_searcher
from kt_lab.search.conformance import CHECKS
from kt_lab.search.conformance_cases import bowl, drive, flat, huge_space, small_space, tiny_space
from kt_lab.search.simulated_annealing import acceptance
from kt_lab.trial import Measurement

SERIAL = {"chains": 1, "restart": False}  # Kernel Tuner's


def annealing(space, *, trials=None, seed=0, **options):
    budget = Budget(trials=trials) if trials else None
    return make_searcher("simulated_annealing", space, seed=seed, budget=budget, **options)


def test_acceptance_is_relative_and_knows_failures():
    assert acceptance(100.0, 99.0, 0.1) == 1.0
    assert acceptance(100.0, 110.0, 0.1) == pytest.approx(math.exp(-1))
    assert acceptance(1e-3, 1.1e-3, 0.1) == pytest.approx(math.exp(-1))  # whatever the unit
    assert acceptance(100.0, 100.0, 1e-4) == 1.0
    assert acceptance(math.inf, 100.0, 1e-4) == 1.0
    assert acceptance(math.inf, math.inf, 1e-4) == 1.0
    assert acceptance(100.0, math.inf, 1e9) == 0.0
    assert acceptance(100.0, 1e300, 1e-4) == 0.0


@pytest.mark.parametrize("trials", [40, 100, 200])
def test_the_schedule_is_fitted_to_the_budget_and_freezes_when_three_quarters_are_spent(trials):
    searcher = annealing(small_space(), trials=trials, **SERIAL)
    proposals = drive(searcher, bowl(small_space()), trials=10**4)
    assert len(proposals) == math.ceil(0.75 * trials)  # ln(T_min / T) / ln(T_min) = 0.75
    assert searcher.done


def test_without_a_budget_of_trials_the_schedule_is_as_long_as_alpha_says():
    searcher = annealing(huge_space(), **SERIAL, alpha=0.9, min_temperature=1e-2)
    proposals = drive(searcher, bowl(huge_space()), trials=10**4)
    assert len(proposals) == 22  # 0.1 * 0.9^c <= 0.01


def test_a_frozen_chain_starts_again_with_what_is_left_of_its_share():
    searcher = annealing(huge_space(), trials=160, chains=1)
    proposals = drive(searcher, flat, trials=160)
    starts = [p.id for p in proposals if p.origin == "start"]
    assert starts[:4] == [0, 120, 150, 158]  # three quarters of 160, of 40, of 10, of 2
    assert proposals[0].config == huge_space().default
    assert not searcher.done


def test_chains_share_the_budget_and_keep_as_many_lanes_busy():
    searcher = annealing(huge_space(), trials=160, chains=4, restart=False)
    assert len(searcher.ask(99)) == 4
    searcher = annealing(huge_space(), trials=160, chains=4, restart=False)
    proposals = drive(searcher, bowl(huge_space()), trials=10**4)
    assert len([p for p in proposals if p.origin == "start"]) == 4
    assert len(proposals) == 4 * 30


def walk(searcher, evaluate, trials=10**4):
    """Runs a search and returns the latency of where its chain stood at every step."""
    space, where, neighbour = searcher.space, [], searcher._neighbour

    def spy(row, rng):
        where.append(evaluate(space.config(row)).latency_us)
        return neighbour(row, rng)

    searcher._neighbour = spy
    drive(searcher, evaluate, trials=trials)
    return where


def test_a_cold_chain_never_moves_to_a_slower_config():
    cold = {"start_temperature": 1e-6, "min_temperature": 1e-9}
    where = walk(annealing(small_space(), trials=400, **cold, **SERIAL), bowl(small_space()))
    assert where == sorted(where, reverse=True)
    assert where[-1] < where[0]


def test_a_hot_chain_walks_anywhere_but_into_failures():
    evaluate = bowl(small_space(), failing=0.3)
    hot = annealing(small_space(), trials=200, start_temperature=1e6, **SERIAL)
    where = walk(hot, evaluate, trials=100)
    worked = [i for i, latency in enumerate(where) if latency]
    assert worked == list(range(worked[0], len(where)))  # once left, failures are not entered
    latencies = where[worked[0] :]
    assert latencies != sorted(latencies, reverse=True)


def test_a_chain_stuck_among_known_configs_goes_on_elsewhere():
    space = tiny_space(40)
    searcher = annealing(space, trials=40, chains=1)
    proposals = drive(searcher, lambda c: Measurement("ok", (10.0 + c["step"],)), trials=10**4)
    assert len(proposals) == 40
    assert searcher.done


def test_a_start_at_or_below_the_end_is_refused():
    with pytest.raises(UsageError, match="start_temperature must be above min_temperature"):
        annealing(small_space(), start_temperature=1e-4, min_temperature=1e-4)


@pytest.mark.parametrize("options", [{"chains": 1}, {"chains": 16}, SERIAL], ids=str)
def test_its_variants_conform(options):
    for check in CHECKS:
        check(functools.partial(make_searcher, "simulated_annealing", **options))


def test_it_learns():
    def valley(config):
        return Measurement("ok", (100.0 + 10.0 * sum(abs(v - 4) for v in config.values()),))

    where = walk(annealing(huge_space(), trials=400, **SERIAL), valley)  # from 420 at the default
    assert sum(where[-50:]) / 50 < 200 < where[0]
