"""The real Kernel Tuner's strategies keep every promise of a searcher, and stay its own."""

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import json
import os
import random
import subprocess
import sys
import warnings

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.constraints import Constraint
from kt_lab.errors import UsageError
from kt_lab.runners.synthetic import SyntheticLandscape, SyntheticRunner
from kt_lab.search import get_searcher, make_searcher
from kt_lab.search.conformance import CHECKS
from kt_lab.search.conformance_cases import (
    bowl,
    broken,
    drive,
    huge_space,
    small_space,
    tiny_space,
)
from kt_lab.search.peers import PEERS
from kt_lab.search.peers.handoff import PeerError
from kt_lab.space import Choice, Flag, Integer, ParameterSpace
from kt_lab.trial import Proposal, Trial
from kt_lab.tune import tune

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("kernel_tuner") is None,
    reason="needs the package kernel-tuner, which the extra peers installs",
)

NAMES = [name for name in PEERS if name.startswith("kt_")]
OWN = {"kt_bayes_opt": {"method": "multi-fast"}}  # where our default is not Kernel Tuner's


def run(name, space, evaluate, *, trials=10**4, seed=0, budget=None, **options):
    searcher = make_searcher(name, space, seed=seed, budget=budget, **options)
    proposals = drive(searcher, evaluate, trials=trials)
    done = searcher.done
    searcher.close()
    return proposals, done


def coded(space):
    """Returns the space with positions for values."""
    parameters = [Integer(p.name, 0, p.cardinality - 1) for p in space.parameters]
    default = dict(zip(space.names, space.row(space.default).tolist(), strict=True))
    return ParameterSpace(parameters, default=default).only(space.enumerate())


# -- the promises ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_kernel_tuner_conforms(name, check):
    check(functools.partial(make_searcher, name))


@pytest.mark.parametrize("name", NAMES)
def test_a_space_too_large_to_list_is_refused(name):
    with pytest.raises(UsageError, match=r"1,000,000 combinations, got 100,000,000"):
        make_searcher(name, huge_space(), seed=0)
    corner = np.indices((2,) * 8).reshape(8, -1).T
    some = huge_space().only(corner)
    assert len(run(name, some, bowl(some), trials=30)[0]) > 5


def test_local_search_breaks_where_a_config_has_no_neighbours():
    space = ParameterSpace([Integer("a", 0, 3), Integer("b", 0, 3)], default={"a": 0, "b": 0})
    diagonal = space.only(np.repeat(np.arange(4)[:, None], 2, axis=1))
    with pytest.raises(PeerError, match="NoneType"):
        run("kt_greedy_ils", diagonal, bowl(diagonal))


@pytest.mark.parametrize("name", NAMES)
def test_spaces_of_few_configs_are_searched_to_their_end(name):
    for n in (2, 3, 6):
        for evaluate in (bowl(tiny_space(n), failing=0.4), broken):
            proposals, done = run(name, tiny_space(n), evaluate)
            assert done
            assert 1 <= len({p.config for p in proposals}) == len(proposals) <= n


@pytest.mark.parametrize("name", NAMES)
def test_interleaved_searches_propose_what_they_propose_alone(name):
    space, others = small_space(), [n for n in NAMES if n != name]
    evaluate = bowl(space, failing=0.1)
    alone = [run(n, space, evaluate, trials=40, seed=1)[0] for n in (name, others[0])]
    pair = [make_searcher(n, space, seed=1) for n in (name, others[0])]
    found = [[], []]
    for _ in range(10):
        for searcher, mine in zip(pair, found, strict=True):
            mine += drive(searcher, evaluate, trials=4)
            random.random()
            np.random.random()  # noqa: NPY002
    for searcher in pair:
        searcher.close()
    assert found == alone


def few(names):
    """Returns what 30 trials of each propose, with failures; one search is left unfinished."""
    seen = []
    for name in names:
        for space in (small_space(), tiny_space(4)):
            searcher = make_searcher(name, space, seed=0)
            proposals = drive(searcher, bowl(space, failing=0.2), trials=30)
            seen += [space.row(p.config).tolist() for p in proposals]
            if name != "kt_genetic":
                searcher.close()
    return seen


def test_another_process_proposes_the_same_and_nothing_is_printed_written_or_changed(tmp_path):
    """Sets of strings have another order there; an abandoned search lets it end."""
    code = (
        "import sys, warnings\n"
        "from kt_lab.search import make_searcher\n"
        "from kt_lab.search.conformance_cases import bowl, drive, small_space, tiny_space\n"
        f"{inspect.getsource(few)}\n"
        f"make_searcher({NAMES[0]!r}, small_space(), seed=0)\n"  # imports
        "filters = list(warnings.filters)\n"
        f"seen = few({NAMES})\n"
        "assert warnings.filters == filters\n"
        "gpu = {'pycuda', 'cupy', 'cuda', 'triton'} & set(sys.modules)\n"
        "assert not gpu, gpu\n"
        "print(seen)"
    )
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, env=os.environ | environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{few(NAMES)}\n"
    assert not list(tmp_path.iterdir())


# -- it stays Kernel Tuner ------------------------------------------------------------------------


def simulated(strategy, space, evaluate, *, seed, trials, path, options):
    """Returns the distinct configs that `kernel_tuner.tune_kernel` simulates, as tuples."""
    import kernel_tuner

    values = {p.name: list(p.values) for p in space.parameters}
    configs = space.configs(space.enumerate())
    members = {tuple(c.values()) for c in configs}
    costs = dict.fromkeys(("compile_time", "verification_time", "benchmark_time"), 1.0)
    cache = {}
    for config in configs:
        us = evaluate(config).latency_us
        time = "RuntimeFailedConfig" if us is None else us / 1e3
        cache[",".join(map(str, config.values()))] = dict(config) | costs | {"time": time}
    header = {"device_name": "none", "kernel_name": "k", "problem_size": [1]}
    header |= {"tune_params_keys": list(values), "tune_params": values, "objective": "time"}
    path.write_text(json.dumps(header | {"cache": cache}))

    def member(first, *rest):
        return (first, *rest) in members

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        results, _ = kernel_tuner.tune_kernel(
            *("k", "void k(){}", 1, [], values),
            restrictions=[member],
            strategy=strategy,
            strategy_options={"max_fevals": trials} | options,
            cache=str(path),
            simulation_mode=True,
            quiet=True,
            lang="C",
        )
    return list(dict.fromkeys(tuple(r[n] for n in values) for r in results))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("failing", [0.0, 0.2])
def test_tune_kernel_simulates_the_same_configs_in_the_same_order(name, failing, tmp_path):
    """Kernel Tuner sees strings, flags and powers of two there, and positions here."""
    # One strategy iterates over sets of values, whose order is that of positions only.
    space = coded(small_space()) if name == "kt_greedy_ils" else small_space()
    evaluate = bowl(space, failing=failing)
    state = random.getstate(), np.random.get_state()  # noqa: NPY002
    theirs = simulated(
        get_searcher(name).strategy.removeprefix("gen_"), space, evaluate,
        seed=3, trials=80, path=tmp_path / "cache.json", options=OWN.get(name, {}),
    )  # fmt: skip
    random.setstate(state[0])
    np.random.set_state(state[1])  # noqa: NPY002
    ours, _ = run(name, space, evaluate, seed=3, budget=Budget(trials=80))
    assert [tuple(p.config.values()) for p in ours] == theirs
    assert len(theirs) > 25


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_kernel_tuners_own(name):
    cls = get_searcher(name)
    theirs = importlib.import_module(f"kernel_tuner.strategies.{cls.strategy}")._options
    ours = dataclasses.asdict(cls.Options())
    if "evaluations" in ours:
        ours["budget"] = ours.pop("evaluations")
    wanted = {option: default for option, (_, default) in theirs.items()} | OWN.get(name, {})
    wanted.pop("max_fevals", None)  # dual annealing notes the last run's there
    assert ours == wanted


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("kt_adaptive_tabu_greywolf", {"evaluations": 10}),
        ("kt_hybrid_vndx", {"evaluations": 10}),
        ("kt_genetic", {"popsize": 5, "maxiter": 2}),
    ],
)
def test_options_reach_the_strategy(name, options):
    proposals, done = run(name, small_space(), bowl(small_space()), **options)
    assert done
    assert 5 < len(proposals) <= 12


@pytest.mark.parametrize("name", NAMES)
def test_the_budget_of_trials_is_the_strategys(name):
    space = small_space()
    proposals, done = run(name, space, bowl(space), budget=Budget(trials=30))
    assert done
    assert len(proposals) <= 30
    if name != "kt_dual_annealing":  # repeats count there, and end it sooner
        assert len(proposals) == 30


def test_a_generation_is_asked_for_at_once():
    searcher = make_searcher("kt_genetic", small_space(), seed=0)
    assert len(searcher.ask(100)) == 26
    assert searcher.ask(1) == []
    searcher.close()


def test_a_strategy_reads_milliseconds_and_error_configs():
    from kt_lab.search.peers import kernel_tuner_driver as driver

    space = tiny_space(8)
    evaluator = driver.Evaluator(
        space, lambda asked: [2500.0 if i else np.inf for i, _ in enumerate(asked)]
    )
    tuning = driver.Options(budget=driver.TuningBudget(max_fevals=3))
    heard = evaluator.run([(5,), (2,), (5,)], tuning)
    assert [r.get("time") for r in heard] == [None, 2.5, None]
    assert [str(r.get("__error__", "")) for r in heard[:2]] == ["RuntimeFailedConfig", ""]
    assert tuning.budget.get_evaluations_spent() == 2  # the repeat is free
    assert evaluator.run([(1,), (3,), (2,)], tuning)[1:] == [None, None]
    evaluator.quiet.close()


def test_what_was_told_beforehand_is_not_proposed_again():
    space = tiny_space(12)
    told = [
        Trial(i, Proposal(10**6 + i, c), bowl(space)(c))
        for i, c in enumerate(space.configs(space.enumerate()[:11]))
    ]
    for name in NAMES:
        searcher = make_searcher(name, space, seed=0)
        searcher.tell(told)
        proposals = drive(searcher, bowl(space))
        searcher.close()
        assert {p.config["step"] for p in proposals} <= {11}


def test_every_kind_of_value_is_proposed_as_it_is():
    space = ParameterSpace(
        [Choice("a", ("x", None, True, 2)), Flag("b"), Integer("c", 0, 8, step=4)],
        default={"a": True, "b": True, "c": 4},
    )
    seen = [p.config for name in NAMES for p in run(name, space, bowl(space))[0]]
    assert {repr(config["a"]) for config in seen} == {"'x'", "None", "True", "2"}
    assert {repr(config["b"]) for config in seen} == {"False", "True"}


def test_tune_drives_kernel_tuner_within_a_budget():
    space = small_space()
    runner = SyntheticRunner(SyntheticLandscape(space, seed=0), seed=0)
    searcher = make_searcher("kt_adaptive_tabu_greywolf", space, seed=0)
    history = tune(searcher, runner, budget=Budget(trials=30))
    assert history.trials_spent == 30
    assert searcher.done  # closed
    assert searcher.thread_s > 0
    assert history.incumbent.latency_us < history[0].latency_us


def test_without_kernel_tuner_the_error_says_how_to_get_it(monkeypatch):
    driver = "kt_lab.search.peers.kernel_tuner_driver"
    monkeypatch.delitem(sys.modules, driver, raising=False)
    for module in [m for m in sys.modules if m.partition(".")[0] == "kernel_tuner"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "kernel_tuner", None)
    peers = importlib.import_module("kt_lab.search.peers")
    monkeypatch.setattr(peers, "kernel_tuner_driver", None, False)
    with pytest.raises(UsageError, match=r"pip install .* -e \"\.\[peers\]\""):
        make_searcher("kt_genetic", small_space(), seed=0)


@pytest.mark.parametrize("method", ["adjacent", "Hamming"])
def test_a_step_outside_the_space_is_never_proposed(method):
    """Kernel Tuner's hill climber tries neighbours that break a constraint; they cost nothing."""
    triangle = ParameterSpace(
        [Integer("a", 0, 15), Integer("b", 0, 15)],
        constraints=[Constraint("triangle", "a + b <= 15")],
        default={"a": 0, "b": 0},
    )
    found, _ = run(
        "kt_greedy_ils",
        triangle,
        bowl(triangle),
        trials=60,
        seed=1,
        neighbor=method,
        restart=False,
    )
    assert len(found) > 20
    assert all(triangle.contains(proposal.config) for proposal in found)
