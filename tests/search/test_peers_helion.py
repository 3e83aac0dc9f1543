"""The real Helion's search classes keep every promise of a searcher, and stay Helion's."""

import functools
import importlib.util
import os
import random
import subprocess
import sys

import pytest

from kt_lab.budget import Budget
from kt_lab.kernels import get_kernel, get_workload
from kt_lab.parameters import Ordered
from kt_lab.prior import Prior, PriorReading
from kt_lab.runners.synthetic import SyntheticLandscape, SyntheticRunner
from kt_lab.search import make_searcher
from kt_lab.search.conformance import CHECKS
from kt_lab.search.conformance_cases import bowl, broken, drive, small_space, tiny_space
from kt_lab.search.peers import PEERS
from kt_lab.search.peers.helion import HelionOptions, mapping
from kt_lab.space import Choice, Flag, Integer, ParameterSpace, PowerOfTwo
from kt_lab.trial import Measurement
from kt_lab.tune import tune

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("helion") is None,
    reason="needs the package helion, which the extra peers installs",
)

# Small populations let 60 trials reach what evolves; the others start with 100 at any rate.
SIZES = {"helion_de": 8, "helion_de_surrogate": 8}


@functools.cache
def space():
    return small_space()


def recorded_space(key):
    return get_kernel(key.partition("/")[0]).space(get_workload(key))


def rugged(configs):
    """A landscape with many local optima, a tenth of whose configs fails."""
    smooth = bowl(configs)

    def evaluate(config):
        dice = random.Random(repr(sorted(config.items()))).random()
        if dice > 0.9:
            return Measurement("compile_error", error="fails by construction")
        return Measurement("ok", (smooth(config).samples_us[0] * (0.7 + 0.6 * dice),) * 3)

    return evaluate


def origins(proposals):
    return {p.origin for p in proposals}


@pytest.mark.parametrize("name", [n for n in PEERS if n.startswith("helion_")])
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_helion_conforms(name, check):
    sizes = {"population": SIZES[name], "max_generations": 4} if name in SIZES else {}
    check(functools.partial(make_searcher, name, **sizes))


@pytest.mark.parametrize(
    "configs",
    [
        small_space,
        functools.partial(recorded_space, "softmax/4096x640"),
        functools.partial(recorded_space, "int4_gemm/1x1x7168x8192"),
        functools.partial(recorded_space, "int4_gemm/1x2048x2048x2048"),
    ],
    ids=["small", "softmax", "int4_gemm M=1", "int4_gemm M=2048"],
)
def test_helions_pattern_search_and_our_reproduction_measure_the_same_in_the_same_order(configs):
    """Without random starts nothing is drawn: two independent programs must agree throughout."""
    configs = configs()
    evaluate = rugged(configs)
    theirs = make_searcher("helion_pattern", configs, seed=0, effort="quick")
    ours = make_searcher(
        "pattern",
        configs,
        seed=0,
        initial_population=1,
        copies=2,
        max_generations=5,
        rebenchmark_threshold=0.9,
    )
    found = [[p.config for p in drive(s, evaluate, trials=10**4)] for s in (theirs, ours)]
    theirs.close()
    assert len(found[0]) > 15
    assert found[0] == found[1]


def test_the_thread_adds_nothing_to_helions_own_search():
    from kt_lab.search.peers import helion_driver

    evaluate, seen = rugged(space()), []

    def measure(requests):
        seen.extend(r for r in requests if r[2] is not None or r[0] not in {s[0] for s in seen})
        return [evaluate(config).latency_us or float("inf") for config, _, _ in requests]

    task = helion_driver.Task(
        space=space(),
        algorithm="LFBOTreeSearch",
        seed=5,
        options=HelionOptions(population=20, max_generations=2),
        seeds=(),
    )
    state = random.getstate()
    try:
        helion_driver.search(task, measure)
    finally:
        random.setstate(state)
    options = {"population": 20, "max_generations": 2}
    searcher = make_searcher("helion_lfbo_tree", space(), seed=5, **options)
    proposals = drive(searcher, evaluate, trials=10**4)
    assert [(p.config, p.origin, p.repetitions) for p in proposals] == seen
    assert {"start", "neighbour", "retime"} <= origins(proposals)


def test_interleaved_searches_propose_what_they_propose_alone():
    def made():
        return [
            make_searcher("helion_lfbo_tree", space(), seed=1, population=20),
            make_searcher("helion_de", space(), seed=1, population=8),
        ]

    evaluate = rugged(space())
    alone = [drive(s, evaluate, trials=90) for s in made()]
    pair, found = made(), [[], []]
    for _ in range(30):
        for searcher, mine in zip(pair, found, strict=True):
            mine += drive(searcher, evaluate, trials=3, batch=3)
            random.random()
    for searcher in pair:
        searcher.close()
    assert found == alone


def test_the_environment_and_torchs_random_state_are_left_alone():
    import torch

    before = dict(os.environ), torch.get_rng_state().tolist()
    searcher = make_searcher("helion_lfbo_pattern", space(), seed=0, population=10)
    drive(searcher, bowl(space()), trials=15)  # in mid-search
    assert (dict(os.environ), torch.get_rng_state().tolist()) == before
    searcher.close()
    assert (dict(os.environ), torch.get_rng_state().tolist()) == before


def test_an_abandoned_search_lets_the_interpreter_end():
    code = (
        "from kt_lab.search import make_searcher\n"
        "from kt_lab.search.conformance_cases import small_space\n"
        "searcher = make_searcher('helion_pattern', small_space(), seed=0)\n"
        "assert searcher.ask(3)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def test_only_re_timings_measure_a_config_again():
    searcher = make_searcher("helion_de", tiny_space(12), seed=0)
    proposals = drive(searcher, bowl(tiny_space(12)), trials=10**4)
    first = [p.config for p in proposals if p.origin != "retime"]
    assert len(first) == len(set(first)) == 12  # of 1,600 that evolution wanted
    again = [p for p in proposals if p.origin == "retime"]
    assert {p.repetitions for p in again} == {40}
    assert {p.config for p in again} <= set(first)


@pytest.mark.parametrize(
    ("options", "least", "most"),
    [
        ({}, 100, 100),
        ({"effort": "quick"}, 1, 1),  # the default config alone
        ({"effort": "quick", "starts": "random"}, 29, 30),  # draws may coincide
        ({"effort": "quick", "starts": "uniform"}, 25, 30),
        ({"population": 12}, 12, 12),
        ({"invalid": "reject"}, 40, 80),  # invalid draws are not replaced
    ],
    ids=str,
)
def test_starts(options, least, most):
    searcher = make_searcher("helion_lfbo_pattern", space(), seed=0, **options)
    proposals = searcher.ask(1000)
    assert proposals[0].config == space().default
    assert origins(proposals) == {"start"}
    assert least <= len(proposals) <= most
    searcher.close()


def test_a_prior_is_measured_right_after_the_default():
    config = space().configs(space().enumerate())[77]
    prior = Prior((PriorReading(config, 5.0, "small/one", "h100"),))
    searcher = make_searcher("helion_pattern", space(), seed=0, prior=prior)
    assert [p.config for p in searcher.ask(2)] == [space().default, config]
    searcher.close()


def test_mapping_states_what_helion_makes_of_each_parameter():
    def row(name, kind, role, fragment, meant="", coded=False):
        return {
            "name": name,
            "kind": kind,
            "role": role,
            "fragment": fragment,
            "role_in_helion": meant,
            "coded": coded,
        }

    configs = ParameterSpace(
        [
            PowerOfTwo("a", 16, 128, role="tile"),
            Choice("b", (1, 16), role="tile"),
            Integer("c", 32, 128, step=32, role="tile"),
            PowerOfTwo("d", 1, 8, role="warps"),
            Choice("e", (8, 4), role="warps"),
            PowerOfTwo("f", 1, 8),
            Integer("g", 1, 4, role="stages"),
            Integer("h", 0, 8, step=4),
            Choice("i", ("x", None, True, 2)),
            Flag("j"),
        ],
        default={
            "a": 32, "b": 16, "c": 64, "d": 4, "e": 8, "f": 2, "g": 2, "h": 4, "i": True, "j": True
        },
    )  # fmt: skip
    assert mapping(configs) == [
        row("a", "PowerOfTwo", "tile", "BlockSizeFragment", "block_size"),
        row("b", "Choice", "tile", "IntegerFragment", "block_size", True),
        row("c", "Integer", "tile", "IntegerFragment", "block_size", True),
        row("d", "PowerOfTwo", "warps", "NumWarpsFragment", "num_warps"),
        row("e", "Choice", "warps", "NumWarpsFragment", "num_warps"),
        row("f", "PowerOfTwo", None, "PowerOfTwoFragment"),
        row("g", "Integer", "stages", "IntegerFragment"),
        row("h", "Integer", None, "IntegerFragment", coded=True),
        row("i", "Choice", None, "EnumFragment", coded=True),
        row("j", "Flag", None, "BooleanFragment"),
    ]
    for name in ("helion_lfbo_tree", "helion_de"):
        searcher = make_searcher(name, configs, seed=0, population=8, max_generations=3)
        proposals = drive(searcher, bowl(configs), trials=200)
        searcher.close()
        assert proposals[0].config == configs.default
        values = {n: {repr(p.config[n]) for p in proposals} for n in configs.names}
        for parameter in configs.parameters:
            # what is coded is decoded, and every value can be reached
            if parameter.name in "bcij":
                assert values[parameter.name] == {repr(v) for v in parameter.values}


def test_listed_numbers_are_seen_by_their_positions():
    configs = ParameterSpace(
        [Ordered("k", (1, 2, 48)), PowerOfTwo("num_warps", 1, 4, role="warps")],
        default={"k": 2, "num_warps": 4},
    )
    fragments = [(row["fragment"], row["coded"]) for row in mapping(configs)]
    assert fragments == [("IntegerFragment", True), ("NumWarpsFragment", False)]
    searcher = make_searcher("helion_pattern", configs, seed=0)
    proposals = drive(searcher, bowl(configs), trials=200)
    searcher.close()
    assert {p.config["k"] for p in proposals} == {1, 2, 48}


def test_random_tiles_are_shrunk_by_their_values_not_by_their_positions():
    """At most 2048 elements a thread, with one warp: 65,536 elements, of 2**26 at most."""
    tile = {"low": 1024, "high": 8192, "step": 1024, "role": "tile"}
    configs = ParameterSpace(
        [Integer("m", **tile), Integer("n", **tile), PowerOfTwo("num_warps", 1, 1, role="warps")],
        default={"m": 1024, "n": 1024, "num_warps": 1},
    )
    searcher = make_searcher("helion_pattern", configs, seed=0)
    drawn = [p.config for p in searcher.ask(100)]
    searcher.close()
    assert {(c["m"], c["n"]) for c in drawn} == {(1024, 1024)}  # halved to the least, and no loop


def test_where_nothing_works_the_search_ends():
    for name in ("helion_lfbo_tree", "helion_random", "helion_de"):
        searcher = make_searcher(name, space(), seed=0, population=6, max_generations=3)
        assert drive(searcher, broken, trials=10**4)
        assert searcher.done


def test_tune_drives_helion_within_a_budget():
    landscape = SyntheticLandscape(space(), seed=0)
    runner = SyntheticRunner(landscape, seed=0)
    searcher = make_searcher("helion_lfbo_tree", space(), seed=0, population=20)
    history = tune(searcher, runner, budget=Budget(trials=30))
    assert history.trials_spent == 30
    assert searcher.done  # closed
    assert history.incumbent.latency_us < history[0].latency_us
