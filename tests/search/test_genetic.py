"""The genetic algorithm: Kernel Tuner's parents, crossovers, repair and generations."""

import functools

import numpy as np
import pytest

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
from kt_lab.search.genetic import kept, rank
from kt_lab.space import Constraint, Integer, ParameterSpace
from kt_lab.trial import Trial


def genetic(space, **options):
    return make_searcher("genetic", space, seed=0, **options)


def generation(searcher, evaluate):
    """Asks for a whole generation, tells it, and returns it."""
    proposals = searcher.ask(10**4)
    searcher.tell([Trial(p.id, p, evaluate(p.config)) for p in proposals])
    return proposals


def test_the_first_generation_is_the_default_and_distinct_random_configs():
    first = genetic(small_space()).ask(10**4)
    assert first[0].config == small_space().default
    assert len({p.config for p in first}) == len(first) == 26
    assert {p.origin for p in first} == {"start"}


@pytest.mark.parametrize(("size", "asked", "population"), [(60, 26, 26), (50, 26, 2), (90, 60, 3)])
def test_a_population_of_more_than_half_of_the_space_shrinks(size, asked, population):
    assert len(genetic(tiny_space(size), population=asked).ask(10**4)) == population


def test_parents_ranks_are_beta_distributed():
    rng = np.random.default_rng(0)
    ranks = np.asarray([rank(100, rng) for _ in range(20_000)])
    assert ranks.min() == 0
    assert ranks.max() < 100
    assert ranks.mean() == pytest.approx(100 / 3.5 - 0.5, abs=0.6)  # Beta(1, 2.5) has mean 1/3.5
    # Its distribution function is 1 - (1 - x)^2.5.
    assert (ranks < 10).mean() == pytest.approx(1 - 0.9**2.5, abs=0.01)
    assert (ranks < 50).mean() == pytest.approx(1 - 0.5**2.5, abs=0.01)


def masks(method, n=6, same=()):
    rng = np.random.default_rng(0)
    a, b = np.zeros(n, dtype=int), np.ones(n, dtype=int)
    b[list(same)] = 0
    return {tuple(kept(method, a, b, rng).tolist()) for _ in range(2000)}


def test_a_single_point_keeps_a_head():
    heads = {tuple(i < cut for i in range(6)) for cut in range(6)}
    assert masks("single_point") == heads


def test_two_points_swap_a_slice_and_spare_the_ends_of_a_long_genome():
    assert masks("two_point") == {
        tuple(not (a <= i < b) for i in range(6)) for a in range(1, 5) for b in range(a + 1, 5)
    }
    assert len(masks("two_point", n=4)) == 6
    assert masks("two_point", n=1) == {(True,)}


def test_uniform_keeps_each_parameter_or_not():
    assert len(masks("uniform")) == 2**6


def test_disruptive_uniform_swaps_half_of_what_differs():
    found = masks("disruptive_uniform", same=(0,))
    assert all(mask[0] and sum(mask) == 3 for mask in found)  # 3 of 5 are swapped
    assert len(found) == 10


def test_children_are_valid_distinct_and_made_of_their_parents():
    space = huge_space()  # half of it is invalid
    searcher = genetic(space, mutation_chance=10**6)
    evaluate = bowl(space)
    parents = {p.config for p in generation(searcher, evaluate)}
    children = [p.config for p in generation(searcher, evaluate)]
    assert {space.contains(c) for c in children} == {True}
    assert len(set(children)) == len(children)
    values = {n: {c[n] for c in parents} for n in space.names}
    unrepaired = [c for c in children if all(c[n] in values[n] for n in space.names)]
    assert len(unrepaired) > len(children) / 2


def test_one_child_in_so_many_is_mutated():
    space = huge_space()
    parents = [np.zeros(8, dtype=int)] * 2
    for chance, expected in ((1, 1.0), (5, 0.2), (55, 1 / 55)):
        searcher = genetic(space, mutation_chance=chance)
        rng = np.random.default_rng(0)
        pairs = [searcher._pair(parents, rng) for _ in range(1000)]
        moved = [np.count_nonzero(child) for pair in pairs for child in pair]
        assert set(moved) <= {0, 1}
        assert np.mean(moved) == pytest.approx(expected, abs=0.04)


def test_an_invalid_child_is_repaired_next_to_where_it_was():
    space = huge_space()
    parents = [np.asarray([9, 0, *[0] * 6]), np.asarray([0, 9, *[0] * 6])]
    searcher = genetic(space, crossover="uniform", mutation_chance=10**6)
    rng = np.random.default_rng(0)
    for _ in range(200):
        for child in searcher._pair(parents, rng):
            assert space.valid(child[None, :])[0]


def test_it_ends_after_its_generations():
    searcher = genetic(huge_space(), population=6, generations=4)
    proposals = drive(searcher, bowl(huge_space()), trials=10**4, batch=6)
    assert searcher.done
    assert 12 < len(proposals) <= 24


def scattered(n):
    """Configs of which no two are neighbours."""
    axes = [Integer("a", 0, n - 1), Integer("b", 0, n - 1)]
    return ParameterSpace(axes, constraints=[Constraint("c", f"b == a * 7 % {n}")],
                          default={"a": 0, "b": 0})  # fmt: skip


@pytest.mark.parametrize("make", [tiny_space, scattered])
@pytest.mark.parametrize("evaluate", [flat, broken])
def test_what_its_generations_leave_of_a_small_space_follows(make, evaluate):
    searcher = genetic(make(30))
    proposals = drive(searcher, evaluate, trials=100)
    assert len({p.config for p in proposals}) == len(proposals) == 30
    assert searcher.done
    bred = [p.origin != "random" for p in proposals]
    assert bred == sorted(bred, reverse=True), "first the generations, then the rest"
    larger = genetic(make(53))  # two populations and more end as Kernel Tuner's do
    assert "random" not in {p.origin for p in drive(larger, evaluate, trials=100)}


def test_a_generation_waits_for_the_last_one():
    searcher = genetic(small_space(), population=6)
    first = searcher.ask(10**4)
    evaluate = bowl(small_space())
    searcher.tell([Trial(p.id, p, evaluate(p.config)) for p in first[:-1]])
    assert searcher.ask(1) == []
    searcher.tell([Trial(9, first[-1], evaluate(first[-1].config))])
    assert searcher.ask(1)


@pytest.mark.parametrize("method", ["single_point", "two_point", "uniform", "disruptive_uniform"])
def test_its_crossovers_conform(method):
    for check in CHECKS:
        check(functools.partial(make_searcher, "genetic", population=6, crossover=method))


def test_it_learns():
    space = huge_space()
    proposals = drive(genetic(space), bowl(space), trials=300)
    latencies = [bowl(space)(p.config).latency_us for p in proposals]
    assert sum(latencies[-50:]) < sum(latencies[:50]) - 50 * 100
