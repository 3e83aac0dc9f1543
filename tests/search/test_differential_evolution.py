"""DifferentialEvolutionSearch: Helion's rules, one by one."""

import functools
import math
import random

import pytest

from kt_lab.errors import UsageError
from kt_lab.prior import Prior, PriorReading
from kt_lab.search import get_searcher, make_searcher
from kt_lab.search.conformance import check_searcher
from kt_lab.search.conformance_cases import (
    bowl,
    broken,
    drive,
    flat,
    huge_space,
    small_space,
    tiny_space,
)
from kt_lab.search.differential_evolution import mutate
from kt_lab.space import Choice, Constraint, Flag, Integer, ParameterSpace, PowerOfTwo
from kt_lab.trial import Measurement, Trial


def de(space, **options):
    return make_searcher("differential_evolution", space, seed=0, **options)


def ok(us):
    return Measurement("ok", (float(us),))


def walk(searcher, evaluate):
    """Yields batch after batch; each is told before the next."""
    while batch := searcher.ask(10**4):
        yield batch
        searcher.tell([Trial(p.id, p, evaluate(p.config)) for p in batch])


def wide(side=1000):
    """A space so large that no trial comes up twice."""
    return ParameterSpace(
        [Integer(f"x{i}", 0, side - 1) for i in range(4)],
        default={f"x{i}": side // 2 for i in range(4)},
    )


# -- mutation -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [Integer("x", 0, 4), Integer("x", 0, 8, 2), PowerOfTwo("x", 1, 16)]
)
def test_ordered_parameters_take_one_clamped_step_of_the_sign(kind):
    step = functools.partial(mutate, kind, rng=random.Random(0))
    assert [step(a, 3, 3) for a in range(5)] == [0, 1, 2, 3, 4]
    assert [step(a, 4, 0) for a in range(5)] == [1, 2, 3, 4, 4]
    assert [step(a, 0, 1) for a in range(5)] == [0, 0, 1, 2, 3]


def test_flags_flip_where_the_others_differ():
    flip = functools.partial(mutate, Flag("x"), rng=random.Random(0))
    assert [flip(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)] == [
        0, 1, 1, 0, 1, 0, 0, 1,
    ]  # fmt: skip


def test_choices_become_one_of_the_others_that_is_new():
    rng = random.Random(0)
    kind = Choice("x", tuple("abcd"))
    assert mutate(kind, 0, 2, 2, rng=rng) == 0
    assert mutate(kind, 0, 0, 2, rng=rng) == 2
    assert mutate(kind, 2, 0, 2, rng=rng) == 0
    assert {mutate(kind, 3, 0, 2, rng=rng) for _ in range(50)} == {0, 2}


def test_trials_recombine_three_other_members():
    space = wide()
    searcher = de(space, population_size=4, crossover_rate=1.0)
    next(batches := walk(searcher, bowl(space)))
    next(batches)
    rows = [m.row for m in searcher._population]
    for _ in range(20):
        for i, trial in enumerate(searcher._trials(2)):
            donors = [row for j, row in enumerate(rows) if j != i]
            steps = [[t - d for t, d in zip(trial, row, strict=True)] for row in donors]
            assert any(set(map(abs, s)) == {1} for s in steps)


def test_at_least_one_parameter_is_recombined():
    space = wide()
    searcher = de(space, population_size=10, crossover_rate=0.0)
    list(zip(walk(searcher, bowl(space)), range(2), strict=False))
    for member, trial in zip(searcher._population, searcher._trials(2), strict=True):
        assert sum(a != b for a, b in zip(member.row, trial, strict=True)) == 1


def test_the_share_of_recombined_parameters_is_the_rate():
    space = wide()
    searcher = de(space, population_size=40, crossover_rate=0.25)
    list(zip(walk(searcher, bowl(space)), range(2), strict=False))
    kept = [
        a == b
        for _ in range(50)
        for member, trial in zip(searcher._population, searcher._trials(2), strict=True)
        for a, b in zip(member.row, trial, strict=True)
    ]
    expected = 0.25 + 0.75**4 / 4  # of trials that recombine none, one does
    assert 1 - sum(kept) / len(kept) == pytest.approx(expected, abs=0.03)


def test_trials_are_shrunk_to_8192_elements_a_thread():
    space = ParameterSpace(
        [PowerOfTwo(n, 1, 4096, role="tile") for n in "AB"]
        + [PowerOfTwo("num_warps", 1, 2, role="warps")],
        default={"A": 1, "B": 1, "num_warps": 1},
    )
    searcher = de(space, population_size=8, starts="uniform")
    elements = [
        p.config["A"] * p.config["B"] / (32 * p.config["num_warps"])
        for p in drive(searcher, lambda c: ok(2**30 / c["A"] / c["B"]), trials=400)
        if p.origin == "trial"
    ]
    assert max(elements) == 8192


# -- the run --------------------------------------------------------------------------------------


def entered(searcher, monkeypatch):
    """Lets a search run through; returns its batches, and how many configs it wanted in each."""
    sizes = []
    enter = searcher._enter
    monkeypatch.setattr(searcher, "_enter", lambda rows: sizes.append(len(rows)) or enter(rows))
    return list(walk(searcher, bowl(searcher.space))), sizes


def test_a_run_takes_two_populations_then_one_per_generation(monkeypatch):
    batches, sizes = entered(de(wide(), rebenchmark_threshold=0.0), monkeypatch)
    assert [b[0].origin for b in batches] == ["start", *["trial"] * 38]
    assert sizes == [80, *[40] * 38]  # 1600 in all, as Helion's
    assert [len(b) for b in batches[:3]] == [80, 40, 40]
    assert max(map(len, batches[1:])) == 40  # later on, some come up that are known


def test_the_better_half_of_the_starts_is_kept():
    space = wide()
    searcher = de(space, population_size=5)
    start = next(walk(searcher, None))
    searcher.tell([Trial(p.id, p, ok(p.id) if p.id % 2 else broken(p.config)) for p in start])
    searcher.ask(1)
    assert [m.config for m in searcher._population] == [start[i].config for i in (1, 3, 5, 7, 9)]


def test_starts_are_default_prior_and_draws_of_which_invalid_ones_are_not_replaced():
    space = ParameterSpace(
        [Integer("a", 0, 99), Integer("b", 0, 99)],
        constraints=[Constraint("rare", "a % 10 == 0 or b == 3")],
        default={"a": 0, "b": 0},
    )
    prior = Prior((PriorReading(space.configs([[20, 7]])[0], 1.0, "k/w", "gpu"),))
    searcher = de(space, prior=prior)
    start = searcher.ask(10**4)
    assert [tuple(p.config.values()) for p in start[:2]] == [(0, 0), (20, 7)]
    assert 4 < len(start) < 20  # of 80 draws a tenth is valid
    searcher.tell([Trial(p.id, p, ok(100 + p.id)) for p in start])
    searcher.ask(1)
    assert len(searcher._population) == 40  # invalid draws fill it, and are recombined
    assert sum(math.isinf(m.value) for m in searcher._population) == 40 - len(start)
    uniform = make_searcher("differential_evolution", space, seed=0, starts="uniform").ask(10**4)
    assert len(uniform) == len({p.config for p in uniform}) == 80


def test_a_member_is_replaced_by_a_faster_trial_only():
    space = wide()
    evaluate = bowl(space, failing=0.2)
    searcher = de(space, population_size=10, rebenchmark_threshold=0.0)
    before, replaced = None, 0
    for batch in walk(searcher, evaluate):
        if before:
            pairs = list(zip(searcher._population, before, strict=True))
            assert all(new is old or new.value < old.value for new, old in pairs)
            replaced += sum(new is not old for new, old in pairs)
        before = list(searcher._population) if batch[0].origin == "trial" else None
    assert replaced > 20


def test_fast_trials_are_retimed_with_the_member_they_challenge():
    space = wide()
    searcher = de(space, population_size=4, rebenchmark_repetitions=7)
    batches = list(walk(searcher, lambda c: ok(100 + c["x0"] % 10)))  # all within 1.5x
    kinds = [b[0].origin for b in batches[:6]]
    assert kinds == ["start", "trial", *["retime"] * 4]
    for i, pair in enumerate(batches[2:6]):
        assert [p.repetitions for p in pair] == [7, 7]
        assert pair[0].config == batches[1][i].config  # the trial, then its member
        assert pair[1].config in {p.config for p in batches[0]}
    assert [p.origin for p in batches[-1]] == ["retime"] * 4  # in the end the population


def test_what_is_slow_or_failed_is_not_retimed():
    space = wide()
    searcher = de(space, population_size=4, max_generations=3)
    readings = {}

    def evaluate(config):
        readings.setdefault(config, 100 * 2 ** len(readings))
        return ok(readings[config]) if len(readings) % 3 else broken(config)

    assert "retime" not in {p.origin for b in walk(searcher, evaluate) for p in b}


def test_the_latest_reading_decides_between_the_two():
    space = wide()
    searcher = de(space, population_size=4, max_generations=3)
    batches = walk(searcher, lambda _: ok(100))
    next(batches)
    trials = next(batches)
    first = list(searcher._population)
    searcher.tell([Trial(p.id, p, ok(90)) for p in trials])  # all lucky
    pair = searcher.ask(99)
    searcher.tell([Trial(p.id, p, ok(110 if p.config == trials[0].config else 100)) for p in pair])
    searcher.ask(99)
    assert searcher._population[0] is first[0]


# -- duplicates -----------------------------------------------------------------------------------


def test_known_configs_are_answered_from_memory():
    space = small_space()
    proposals = drive(de(space, rebenchmark_threshold=0.0), bowl(space), trials=10**4)
    assert len(proposals) == len({p.config for p in proposals}) < 450


def test_known_configs_are_measured_again_on_request():
    space = small_space()
    options = {"rebenchmark_threshold": 0.0, "duplicates": "measure"}
    batches = list(walk(de(space, **options), bowl(space)))
    assert len(batches) == 39
    told = [p.config for b in batches for p in b]
    assert len(told) > 2 * len(set(told))
    assert all(len({p.config for p in b}) == len(b) for b in batches)
    assert {p.repetitions for b in batches for p in b} == {None}


def test_a_generation_of_known_configs_does_not_end_the_search():
    space = tiny_space(12)
    searcher = de(space, rebenchmark_threshold=0.0)
    proposals = drive(searcher, bowl(space), trials=500)
    assert len(proposals) == len({p.config for p in proposals}) <= 12
    assert searcher.done


# -- ends -----------------------------------------------------------------------------------------


def test_it_stops_when_the_best_no_longer_changes():
    space = wide()
    for patience in (1, 2, 3):
        searcher = de(
            space, rebenchmark_threshold=0.0, min_improvement_delta=0.001, patience=patience
        )
        batches = list(walk(searcher, flat))
        # the window fills, then the best fails to change `patience` times
        assert len(batches) - 1 == 2 * patience - 1
    for alone in ({"patience": 2}, {"min_improvement_delta": 0.001}):
        searcher = de(space, rebenchmark_threshold=0.0, max_generations=9, **alone)
        assert len(list(walk(searcher, flat))) == 8


def test_failures_to_change_count_in_a_row():
    searcher = de(wide(), min_improvement_delta=0.01, patience=1)
    assert searcher._failures([100.0], 0) == 0
    assert searcher._failures([100.0, 99.5], 0) == 1
    assert searcher._failures([100.0, 90.0], 1) == 0
    assert searcher._failures([math.inf, 90.0], 1) == 1
    assert searcher._failures([100.0, 110.0], 1) == 0  # worse, by a re-timing: a change


def test_tiny_spaces_end_once_measured():
    for n in (1, 2, 3):
        searcher = de(tiny_space(n), starts="uniform")
        assert len(drive(searcher, flat, trials=99)) >= n
        assert searcher.done


@pytest.mark.parametrize("name", ["differential_evolution", "de_surrogate"])
@pytest.mark.parametrize("evaluate", [bowl, lambda _: broken])
def test_where_hardly_any_draw_is_valid_it_starts_again_from_valid_ones(name, evaluate):
    axes = [Integer(n, 0, 99) for n in "abc"]  # 50 of 10**6
    laws = [Constraint("c", "a == b and c == a * 7 % 100"), Constraint("d", "a % 2 == 0")]
    space = ParameterSpace(axes, constraints=laws, default=dict.fromkeys("abc", 0))
    searcher = make_searcher(name, space, seed=0, population_size=10, max_generations=5)
    batches = list(walk(searcher, evaluate(space)))
    assert [len(batch) for batch in batches[:2]] == [1, 19]
    assert {p.origin for batch in batches[:2] for p in batch} == {"start"}
    assert {p.generation for batch in batches[:2] for p in batch} == {0}
    assert searcher.done


def test_a_small_space_of_which_hardly_any_draw_is_valid_is_found_whole():
    axes = [Integer(n, 0, 19) for n in "abc"]  # 20 of 8000: some draws are valid
    law = Constraint("c", "a == b and b == c")
    space = ParameterSpace(axes, constraints=[law], default=dict.fromkeys("abc", 0))
    for seed in range(3):
        searcher = make_searcher("differential_evolution", space, seed=seed)
        found = [p.config for batch in walk(searcher, lambda _: ok(1.0)) for p in batch
                 if p.origin != "retime"]  # fmt: skip
        assert len(found) == len(set(found)) == 20


def test_when_everything_fails_all_generations_are_run():
    space = wide()
    assert len(list(walk(de(space), broken))) == 39


def test_it_improves_on_its_starts():
    space = small_space()
    evaluate = bowl(space, failing=0.1)
    proposals = drive(de(space, population_size=10), evaluate, trials=10**4)
    found = {o: [evaluate(p.config).latency_us for p in proposals if p.origin == o] for o in
             ("start", "trial")}  # fmt: skip
    best = {o: min(v for v in values if v) for o, values in found.items()}
    assert best["trial"] < best["start"]


def test_the_defaults_are_helions(monkeypatch):
    options = de(small_space()).options
    assert (options.population_size, options.max_generations, options.crossover_rate) == (
        40, 40, 0.8,
    )  # fmt: skip
    assert (options.min_improvement_delta, options.patience) == (None, None)
    assert options.rebenchmark_threshold == 1.5
    quick = get_searcher("differential_evolution").presets["quick"]
    _, sizes = entered(de(wide(), **quick), monkeypatch)
    assert sizes == [40, *[20] * 6]


def test_a_population_too_small_to_recombine_is_refused():
    with pytest.raises(UsageError, match="population_size"):
        de(small_space(), population_size=3)


@pytest.mark.parametrize("duplicates", ["memory", "measure"])
def test_it_conforms_past_its_starts(duplicates):
    deep = {"population_size": 4, "max_generations": 9, "duplicates": duplicates}
    make = functools.partial(make_searcher, "differential_evolution", **deep)
    check_searcher(make)
    proposals = drive(make(huge_space(), seed=0), bowl(huge_space()), trials=60)
    assert "trial" in {p.origin for p in proposals}
