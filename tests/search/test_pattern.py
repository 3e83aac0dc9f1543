"""PatternSearch: Helion's rules, one by one, on landscapes where the answer is known."""

import math

import pytest

from kt_lab.prior import Prior, PriorReading
from kt_lab.search import make_searcher
from kt_lab.search.conformance_cases import broken, drive, flat, small_space
from kt_lab.search.neighbourhood import pattern_rows
from kt_lab.space import Choice, Constraint, Flag, Integer, ParameterSpace, PowerOfTwo
from kt_lab.trial import Measurement, Proposal, Trial


def ok(*samples):
    return Measurement("ok", tuple(map(float, samples)))


def line(n=41, start=0):
    return ParameterSpace([Integer("x", 0, n - 1)], default={"x": start})


def tell(searcher, proposals, latency):
    searcher.tell([Trial(p.id, p, latency(p)) for p in proposals])


def batch(searcher, latency):
    """Asks for a whole batch, tells it, and returns it."""
    proposals = searcher.ask(10**4)
    assert searcher.ask(1) == []  # results are outstanding
    tell(searcher, proposals, latency)
    return proposals


def quiet(space, **options):
    """A searcher that re-times nothing."""
    return make_searcher("pattern", space, seed=0, rebenchmark_threshold=0.0, **options)


def test_neighbourhood_is_single_moves_in_slot_order_then_products_of_tile_pairs():
    space = ParameterSpace(
        [
            PowerOfTwo("M", 16, 64, role="tile"),
            PowerOfTwo("num_warps", 1, 8, role="warps"),
            PowerOfTwo("N", 16, 64, role="tile"),
            Choice("order", ("a", "b", "c")),
            Flag("fast"),
        ],
        default={"M": 16, "num_warps": 1, "N": 16, "order": "a", "fast": False},
    )
    rows = pattern_rows(space, (1, 0, 2, 1, 0))
    assert rows == [
        (0, 0, 2, 1, 0),
        (2, 0, 2, 1, 0),
        (1, 1, 2, 1, 0),
        (1, 0, 1, 1, 0),
        (1, 0, 2, 0, 0),
        (1, 0, 2, 2, 0),
        (1, 0, 2, 1, 1),
        (0, 0, 1, 1, 0),
        (2, 0, 1, 1, 0),
    ]
    assert pattern_rows(space, (1, 0, 2, 1, 0), cap=3) == rows[:3]


def test_three_tiles_move_in_every_pair():
    space = ParameterSpace(
        [PowerOfTwo(n, 16, 64, role="tile") for n in "ABC"],
        default={"A": 32, "B": 32, "C": 32},
    )
    assert len(pattern_rows(space, (1, 1, 1))) == 6 + 3 * 4


def test_the_default_comes_first_and_the_prior_second():
    space = small_space()
    known = space.configs(space.enumerate()[[100, 3]])
    prior = Prior(tuple(PriorReading(c, 5.0, "k/w", "gpu") for c in known))
    searcher = make_searcher("pattern", space, seed=0, prior=prior)
    first = searcher.ask(10**4)
    assert [p.config for p in first[:3]] == [space.default, *known]
    assert len(first) <= 100
    assert {p.origin for p in first} == {"start"}
    assert {p.repetitions for p in first} == {None}


def test_generations_follow_the_gradient_to_the_optimum():
    space = line()
    searcher = quiet(space, initial_population=1)
    proposals = drive(searcher, lambda c: ok(1000 - 10 * c["x"]), trials=10**4)
    assert [p.config["x"] for p in proposals] == list(range(21))  # 20 generations
    assert searcher.done
    searcher = quiet(space, initial_population=1, max_generations=1000)
    proposals = drive(searcher, lambda c: ok(1000 - 10 * c["x"]), trials=10**4)
    assert [p.config["x"] for p in proposals] == list(range(41))


def test_a_copy_stops_at_a_local_optimum():
    searcher = quiet(line(), initial_population=1)
    valley = lambda c: ok(100 + abs(c["x"] - 5))  # noqa: E731
    assert [p.config["x"] for p in drive(searcher, valley)] == [0, 1, 2, 3, 4, 5, 6]


def test_a_copy_stops_when_a_step_gains_less_than_the_delta():
    slope = lambda c: ok(100 * 0.9995 ** c["x"])  # noqa: E731
    searcher = quiet(line(), initial_population=1)
    assert [p.config["x"] for p in drive(searcher, slope)] == [0, 1]
    searcher = quiet(line(), initial_population=1, min_improvement_delta=0.0)
    assert len(drive(searcher, slope)) == 21


def test_a_constant_landscape_ends_after_one_generation():
    space = small_space()
    searcher = quiet(space, initial_population=30, copies=2)
    starts = batch(searcher, lambda _: ok(100))
    rows = [tuple(r) for r in space.rows([p.config for p in starts]).tolist()]
    near = {
        row
        for start in rows[:2]  # ties keep the order of measurement
        for row in pattern_rows(space, start)
        if space.valid(space.rows([space.config(row)]))[0]
    }
    second = batch(searcher, lambda _: ok(100))
    assert {tuple(r) for r in space.rows([p.config for p in second]).tolist()} == near - set(rows)
    assert {p.origin for p in second} == {"neighbour"}
    assert searcher.ask(1) == []
    assert searcher.done


def test_only_the_best_copies_move_and_no_config_is_measured_twice():
    searcher = quiet(line(), initial_population=41, starts="uniform", copies=5)
    assert len(drive(searcher, lambda c: ok(1 + c["x"]), trials=500)) == 41
    space = small_space()
    proposals = drive(quiet(space), lambda c: ok(1 + sum(space.row(c))), trials=10**4)
    configs = [p.config for p in proposals]
    assert len(set(configs)) == len(configs)


def test_copies_share_what_they_visited():
    searcher = quiet(line(), initial_population=1, copies=2)
    searcher.tell([Trial(0, Proposal(99, c), ok(50)) for c in searcher.space.configs([[1]])])
    assert [p.config["x"] for p in searcher.ask(5)] == [0]
    tell(searcher, [Proposal(0, searcher.space.default)], lambda _: ok(100))
    assert searcher.ask(5) == []  # its only neighbour was measured elsewhere: nothing is fresh
    assert searcher.done


def test_no_more_than_max_generations():
    space = small_space()
    searcher = quiet(space, max_generations=0, initial_population=9)
    assert len(drive(searcher, flat, trials=500)) <= 9
    assert searcher.done


def test_a_landscape_of_failures_ends_after_the_starts():
    searcher = make_searcher("pattern", small_space(), seed=0, initial_population=20)
    assert {p.origin for p in drive(searcher, broken, trials=500)} == {"start"}
    assert searcher.done


def test_invalid_neighbours_are_dropped_unmeasured():
    space = ParameterSpace(
        [Integer("x", 0, 9)],
        constraints=[Constraint("gap", "x != 3")],
        default={"x": 0},
    )
    proposals = drive(quiet(space, initial_population=1), lambda c: ok(100 - c["x"]))
    assert [p.config["x"] for p in proposals] == [0, 1, 2]


def test_members_within_the_threshold_are_retimed_together():
    searcher = make_searcher("pattern", line(5), seed=0, starts="uniform", initial_population=5)
    values = {0: 149.0, 1: 150.0, 2: 100.0, 3: 151.0, 4: math.inf}

    def latency(p):
        value = values[p.config["x"]]
        return ok(value) if math.isfinite(value) else broken(p.config)

    first = batch(searcher, latency)
    again = searcher.ask(10)
    assert {p.config["x"] for p in again} == {0, 2}  # 150 is not below 1.5 * 100
    assert {p.origin for p in again} == {"retime"}
    assert {p.repetitions for p in again} == {40}
    assert [p.config for p in again] == [p.config for p in first if p.config["x"] in (0, 2)]
    assert [p.id for p in again] == [5, 6]


def test_a_single_fast_member_is_not_retimed():
    searcher = make_searcher("pattern", line(5), seed=0, starts="uniform", initial_population=5)
    batch(searcher, lambda p: ok(100 if p.config["x"] == 2 else 300))
    assert searcher.ask(10) == []
    assert searcher.done


def test_a_rereading_replaces_and_the_lowest_reading_stays_the_reference():
    searcher = make_searcher(
        "pattern", line(41, start=20), seed=0, initial_population=1, rebenchmark_repetitions=7
    )
    tell(searcher, searcher.ask(1), lambda _: ok(100))
    near = searcher.ask(9)
    assert sorted(p.config["x"] for p in near) == [19, 21]
    tell(searcher, near, lambda p: ok({19: 60, 21: 95}[p.config["x"]]))  # 19 was lucky
    step = searcher.ask(9)  # only 19 is below 1.5 * 60, and alone it is not re-timed
    assert [(p.config["x"], p.origin) for p in step] == [(18, "neighbour")]
    tell(searcher, step, lambda _: ok(89))
    again = searcher.ask(9)
    assert sorted((p.config["x"], p.origin) for p in again) == [(18, "retime"), (19, "retime")]
    tell(searcher, again, lambda p: ok({18: 98, 19: 100}[p.config["x"]]))
    step = searcher.ask(9)
    assert [p.config["x"] for p in step] == [17]
    tell(searcher, step, lambda _: ok(89.9))  # below 1.5 * 60; 18 now stands at 98 and is not
    assert [(p.config["x"], p.origin) for p in searcher.ask(9)] == [(16, "neighbour")]


def test_the_best_config_stays_in_the_population_when_its_copy_has_stopped():
    space = line(41, start=5)
    other = space.configs([[30]])[0]
    prior = Prior((PriorReading(other, 1.0, "k/w", "gpu"),))
    searcher = make_searcher("pattern", space, seed=0, initial_population=2, prior=prior)
    latency = lambda p: ok(100 if p.config["x"] == 5 else 140 - abs(p.config["x"] - 30))  # noqa: E731
    retimed = []
    for _ in range(6):
        asked = batch(searcher, latency)
        retimed.append({p.config["x"] for p in asked if p.origin == "retime"})
    # x = 5 stops after the first generation and is re-timed with the second one all the same
    assert retimed == [set(), {5, 30}, set(), {4, 5, 6, 29, 30, 31}, set(), {5, 28, 29}]


def test_what_others_measured_meanwhile_is_not_asked_for():
    searcher = quiet(line(), initial_population=41, starts="uniform")
    first = searcher.ask(3)
    waiting = [c for c in searcher.space.configs(searcher.space.enumerate())]
    waiting = [c for c in waiting if c not in {p.config for p in first}][:30]
    searcher.tell([Trial(i, Proposal(900 + i, c), ok(100)) for i, c in enumerate(waiting)])
    assert not {p.config for p in searcher.ask(99)} & set(waiting)


def test_a_copy_follows_the_reread_values():
    searcher = make_searcher("pattern", line(41, start=20), seed=0, initial_population=1)
    tell(searcher, searcher.ask(1), lambda _: ok(100))
    tell(searcher, searcher.ask(9), lambda p: ok({19: 90, 21: 95}[p.config["x"]]))
    again = searcher.ask(9)
    assert sorted(p.config["x"] for p in again) == [19, 20, 21]
    tell(searcher, again, lambda p: ok({19: 99, 20: 100, 21: 91}[p.config["x"]]))
    assert [p.config["x"] for p in searcher.ask(9)] == [22]


def test_a_failed_rereading_takes_a_member_out():
    searcher = make_searcher("pattern", line(41, start=20), seed=0, initial_population=1)
    tell(searcher, searcher.ask(1), lambda _: ok(100))
    tell(searcher, searcher.ask(9), lambda p: ok({19: 90, 21: 95}[p.config["x"]]))
    tell(
        searcher,
        searcher.ask(9),
        lambda p: broken(p.config) if p.config["x"] == 19 else ok(100 - p.config["x"] / 10),
    )
    assert [p.config["x"] for p in searcher.ask(9)] == [22]


def test_a_censored_reading_is_never_the_best():
    searcher = quiet(line(41, start=20), initial_population=1)
    tell(searcher, searcher.ask(1), lambda _: ok(100))
    tell(
        searcher,
        searcher.ask(9),
        lambda p: Measurement("censored", (10.0,)) if p.config["x"] == 19 else ok(95),
    )
    assert [p.config["x"] for p in searcher.ask(9)] == [22]


def test_starts_do_not_depend_on_the_algorithm():
    space = small_space()
    one, other = (make_searcher(n, space, seed=5) for n in ("pattern", "lfbo_pattern"))
    assert [p.config for p in one.ask(200)] == [p.config for p in other.ask(200)]


def test_results_in_any_order_give_the_same_next_batch():
    space = small_space()
    batches = []
    for step in (1, -1):
        searcher = make_searcher("pattern", space, seed=0, initial_population=20)
        told = [Trial(p.id, p, ok(100 + p.id % 7)) for p in searcher.ask(99)]
        searcher.tell(told[::step])
        batches.append(searcher.ask(99))
    assert batches[0] == batches[1]


def test_it_beats_random_search_on_a_smooth_landscape():
    space = small_space()
    latency = lambda c: ok(100 + float((space.row(c) ** 2).sum()))  # noqa: E731
    best = min(latency(c).latency_us for c in space.configs(space.enumerate()))
    proposals = drive(quiet(space, initial_population=10), latency, trials=500)
    assert min(latency(p.config).latency_us for p in proposals) == best
    assert len(proposals) < 150


@pytest.mark.parametrize("n", [1, 3, 7])
def test_the_batch_size_of_the_loop_does_not_matter(n):
    space = small_space()
    latency = lambda c: ok(100 + float((space.row(c) ** 2).sum()))  # noqa: E731
    runs = [
        drive(make_searcher("pattern", space, seed=0), latency, trials=900, batch=b)
        for b in (n, 10**4)
    ]
    assert runs[0] == runs[1]
