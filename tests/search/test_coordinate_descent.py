"""Coordinate descent proposes what Inductor's tuner measures, and stops where it stops."""

import functools
import random

import pytest

from kt_lab.search import make_searcher
from kt_lab.search.conformance import CHECKS
from kt_lab.search.conformance_cases import bowl, broken, drive, flat, small_space
from kt_lab.space import Choice, Flag, Integer, ParameterSpace, PowerOfTwo
from kt_lab.trial import Measurement, Trial


def ok(latency):
    return Measurement("ok", (float(latency),))


def triton_space():
    return ParameterSpace(
        [
            Integer("num_stages", 1, 5, role="stages"),
            PowerOfTwo("num_warps", 1, 32, role="warps"),
            PowerOfTwo("BLOCK_M", 16, 256, role="tile"),
            PowerOfTwo("BLOCK_N", 16, 256, role="tile"),
            PowerOfTwo("BLOCK_K", 16, 128, role="tile"),
        ],
        default={"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2},
    )


def rugged(seed, failing=0.1):
    """A landscape of random latencies, some of them closer together than 0.1 %."""

    def evaluate(config):
        dice = random.Random(f"{seed} {sorted(config.items())}")
        if dice.random() < failing:
            return Measurement("launch_error")
        return ok(dice.choice((100.0, 100.05, 90.0, 80.0)) * dice.choice((1.0, 1.2, 1.5)))

    return evaluate


def inductors(space, evaluate, *, directions):
    """What the real tuner measures, members of the space only, in order."""
    tuner = pytest.importorskip("torch._inductor.runtime.coordinate_descent_tuner")

    class TritonConfig:
        num_ctas, maxnreg, ir_override = 1, None, None

        def __init__(self, config):
            self.kwargs = {k: v for k, v in config.items() if k.startswith("BLOCK")}
            self.num_warps, self.num_stages = config["num_warps"], config["num_stages"]

        @property
        def values(self):
            return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}

    measured = []

    def benchmark(config):
        row = space.row(config.values)  # an error outside the space: Inductor goes on
        measured.append(space.config(row))
        latency = evaluate(measured[-1]).latency_us
        if latency is None:
            raise RuntimeError("fails")
        return latency

    meta = {
        "warp_size": 32,
        "max_threads_per_block": 1024,
        "coordinate_descent_check_all_directions": directions,
    }
    tuner.CoordescTuner(is_mm=True, inductor_meta=meta).autotune(
        benchmark, TritonConfig(space.default)
    )
    return list(dict.fromkeys(measured))


@pytest.mark.parametrize("directions", [False, True])
def test_it_measures_what_inductor_measures_in_the_same_order(directions):
    space = triton_space()
    for seed in range(12):
        evaluate = rugged(seed)
        if evaluate(space.default).latency_us is None:
            continue  # Inductor raises
        measured = inductors(space, evaluate, directions=directions)
        searcher = make_searcher(
            "coordinate_descent", space, seed=0, check_all_directions=directions
        )
        proposals = drive(searcher, evaluate, trials=10**4, batch=10**4)
        assert [p.config for p in proposals] == measured
        assert searcher.done


def test_the_serial_and_the_parallel_run_propose_alike():
    space = triton_space()
    runs = [
        drive(make_searcher("coordinate_descent", space, seed=0), rugged(1), batch=batch)
        for batch in (1, 3, 100)
    ]
    assert runs[0] == runs[1] == runs[2]


def test_fields_are_tiles_then_warps_then_stages_then_the_rest():
    space = ParameterSpace(
        [
            Flag("fast"),
            Integer("num_stages", 1, 3, role="stages"),
            Choice("order", ("a", "b", "c")),
            PowerOfTwo("num_warps", 2, 8, role="warps"),
            PowerOfTwo("M", 16, 64, role="tile"),
        ],
        default={"fast": False, "num_stages": 2, "order": "b", "num_warps": 4, "M": 32},
    )
    proposals = drive(make_searcher("coordinate_descent", space, seed=0), flat)
    moved = [
        (name, p.config[name])
        for p in proposals[1:]
        for name in space.names
        if p.config[name] != space.default[name]
    ]
    assert moved == [
        ("M", 64),
        ("M", 16),
        ("num_warps", 8),
        ("num_warps", 2),
        ("num_stages", 3),
        ("num_stages", 1),
        ("fast", True),
        ("order", "a"),
        ("order", "c"),
    ]


def test_an_improvement_of_a_thousandth_or_less_is_not_adopted():
    space = ParameterSpace([Integer("x", 0, 9)], default={"x": 0})
    for step, length in ((0.0009, 2), (0.0011, 10)):
        searcher = make_searcher("coordinate_descent", space, seed=0)
        found = drive(searcher, lambda c, s=step: ok(100.0 * (1 - s) ** c["x"]))
        assert len(found) == length
        assert searcher.done


def test_the_radius_goes_nearest_first_upwards_then_downwards():
    space = ParameterSpace([Integer("x", 0, 9)], default={"x": 4})
    searcher = make_searcher("coordinate_descent", space, seed=0, radius=3)
    assert [p.config["x"] for p in drive(searcher, flat)] == [4, 5, 6, 7, 3, 2, 1]


def test_all_directions_leave_a_valley_that_no_single_field_leaves():
    space = ParameterSpace([Integer("x", 0, 9), Integer("y", 0, 9)], default={"x": 0, "y": 0})

    def diagonal(config):
        return ok(100.0 - config["x"] if config["x"] == config["y"] else 200.0)

    plain = drive(make_searcher("coordinate_descent", space, seed=0), diagonal)
    assert [tuple(p.config.values()) for p in plain] == [(0, 0), (1, 0), (0, 1)]
    searcher = make_searcher("coordinate_descent", space, seed=0, check_all_directions=True)
    assert (9, 9) in {tuple(p.config.values()) for p in drive(searcher, diagonal)}
    assert searcher.done


def test_a_failing_default_is_left_for_anything_that_works():
    space = ParameterSpace([Integer("x", 0, 9)], default={"x": 0})
    searcher = make_searcher("coordinate_descent", space, seed=0)
    found = drive(searcher, lambda c: ok(50.0 - c["x"]) if c["x"] else broken(c))
    assert found[-1].config["x"] == 9


def test_restarts_go_on_until_the_space_is_exhausted():
    space = small_space()
    evaluate = bowl(space, failing=0.3)
    once = drive(make_searcher("coordinate_descent", space, seed=0), evaluate, trials=10**4)
    searcher = make_searcher("coordinate_descent", space, seed=0, restart=True)
    found = drive(searcher, evaluate, trials=10**4)
    assert found[: len(once)] == once
    assert len(found) == space.size
    assert searcher.done


def test_only_restarts_depend_on_the_seed():
    space = small_space()
    assert not make_searcher("coordinate_descent", space, seed=0).seeded
    assert make_searcher("coordinate_descent", space, seed=0, restart=True).seeded


@pytest.mark.parametrize(
    "options", [{"restart": True}, {"check_all_directions": True}, {"radius": 2}], ids=str
)
def test_its_variants_conform(options):
    for check in CHECKS:
        check(functools.partial(make_searcher, "coordinate_descent", **options))


def test_a_fields_neighbours_are_asked_for_together():
    searcher = make_searcher("coordinate_descent", triton_space(), seed=0)
    [start] = searcher.ask(99)
    searcher.tell([Trial(0, start, flat(start.config))])
    assert [p.config["BLOCK_M"] for p in searcher.ask(99)] == [128, 32]
