"""Optuna's samplers: which one is made, what it is told, and what it needs."""

import functools
import importlib.util
import math
import warnings

import optuna
import pytest
from optuna.trial import TrialState

from kt_lab.errors import UsageError
from kt_lab.search import make_searcher
from kt_lab.search.conformance import CHECKS, check_determinism, check_huge
from kt_lab.search.conformance_cases import bowl, broken, drive, small_space
from kt_lab.space import Constraint, Integer, ParameterSpace
from kt_lab.trial import Measurement

FREE = ("tpe", "qmc", "random", "nsgaii", "nsgaiii")  # of further packages
CHEAP = ("qmc", "random", "nsgaii", "nsgaiii")


def searcher(name, space, *, seed=0, **options):
    return make_searcher("optuna", space, seed=seed, sampler=name, **options)


def strict_space():
    return ParameterSpace(
        [Integer("a", 0, 19), Integer("b", 0, 19)],
        constraints=[Constraint("band", "abs(a - b) <= 1")],
        default={"a": 0, "b": 0},
    )


def slope(config):
    return Measurement("ok", (100.0 + config["a"] + config["b"],))


def trials(made, state):
    return made._study.get_trials(deepcopy=False, states=(state,))


@pytest.mark.parametrize("options", [{}, {"n_startup_trials": 4}, {"project": False}], ids=str)
def test_tpe_proposes_exactly_what_the_searcher_tpe_does(options):
    space = small_space()
    evaluate = bowl(space, failing=0.3)
    ours = drive(searcher("tpe", space, seed=5, **options), evaluate)
    theirs = drive(make_searcher("tpe", space, seed=5, **options), evaluate)
    assert ours == theirs


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("qmc", optuna.samplers.QMCSampler),
        ("random", optuna.samplers.RandomSampler),
        ("nsgaii", optuna.samplers.NSGAIISampler),
        ("nsgaiii", optuna.samplers.NSGAIIISampler),
        ("gp", optuna.samplers.GPSampler),
        ("cmaes", optuna.samplers.CmaEsSampler),
    ],
)
def test_the_named_sampler_is_made(monkeypatch, name, kind):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    assert type(searcher(name, small_space())._sampler()) is kind


def test_options_reach_the_samplers_that_have_them(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    space = small_space()
    assert searcher("nsgaii", space, population_size=7)._sampler().population_size == 7
    assert searcher("nsgaii", space)._sampler().population_size == 50
    assert searcher("cmaes", space, population_size=7)._sampler()._popsize == 7
    assert searcher("cmaes", space)._sampler()._n_startup_trials == 1
    assert searcher("gp", space)._sampler()._n_startup_trials == 10
    assert searcher("gp", space, n_startup_trials=3)._sampler()._n_startup_trials == 3
    assert not searcher("qmc", space, scramble=False)._sampler()._scramble


@pytest.mark.parametrize(("name", "package"), [("gp", "torch"), ("cmaes", "cmaes")])
def test_a_missing_package_is_named(monkeypatch, name, package):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=f"'{name}' needs the package {package}, .*install"):
        searcher(name, small_space())
    searcher("nsgaii", small_space())


@pytest.mark.parametrize("name", FREE)
def test_infeasible_and_repeated_asks_are_projected_and_counted(name):
    made = searcher(name, strict_space())
    proposals = drive(made, slope, trials=1000)
    assert len(proposals) == len({p.config for p in proposals}) == 58
    assert made.done
    assert made.projected_invalid > 0
    assert made.projected_duplicate > 0
    assert len(trials(made, TrialState.FAIL)) == made.projected_invalid + made.projected_duplicate
    assert {p.origin for p in proposals} == {name, "projected"}


def test_projected_members_count_in_their_generation():
    made = searcher("nsgaii", strict_space(), population_size=5)
    proposals = drive(made, slope, trials=25, batch=5)
    assert sum(p.origin == "projected" for p in proposals) > 10
    key = made._study.sampler._get_generation_key()
    generations = [t.system_attrs.get(key) for t in trials(made, TrialState.COMPLETE)]
    assert generations == [i // 5 for i in range(25)]


@pytest.mark.parametrize("name", CHEAP)
def test_failures_are_told_as_infinitely_slow(name):
    made = searcher(name, small_space())
    drive(made, broken, trials=20)
    assert {t.value for t in trials(made, TrialState.COMPLETE)} == {math.inf}


@pytest.mark.parametrize("name", CHEAP)
def test_cheap_samplers_conform(name):
    for check in CHECKS:
        if check not in (check_huge,):  # projection there takes a second, whatever the sampler
            check(functools.partial(searcher, name))


def test_unscrambled_points_are_told_apart_by_their_random_start_only():
    runs = [
        {p.config for p in drive(searcher("qmc", small_space(), seed=s, scramble=False), broken)}
        for s in (0, 1)
    ]
    assert len(runs[0] & runs[1]) > 50
    check_determinism(functools.partial(searcher, "qmc"))


def test_samplers_are_silent(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in FREE:
            drive(searcher(name, strict_space()), slope, trials=20)
    assert capfd.readouterr() == ("", "")


def test_a_gaussian_process_is_asked_where_torch_is_installed():
    pytest.importorskip("torch")
    space = strict_space()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = searcher("gp", space, n_startup_trials=4)
        proposals = drive(made, lambda c: broken(c) if c["a"] == 3 else slope(c), trials=6)
    assert len({p.config for p in proposals}) == 6


def test_cma_is_asked_where_it_is_installed():
    made = searcher("cmaes", small_space(), population_size=4)
    assert len(drive(made, bowl(small_space()), trials=40)) == 40
    states = [a for t in trials(made, TrialState.COMPLETE) for a in t.system_attrs]
    assert sum("optimizer:0" in a for a in states) >= 5  # generations that the model learned from


def test_it_learns():
    space = ParameterSpace([Integer(n, 0, 31) for n in "ab"], default={"a": 31, "b": 31})
    proposals = drive(searcher("nsgaii", space, population_size=10), slope, trials=150)
    late = [slope(p.config).latency_us for p in proposals[-30:]]
    early = [slope(p.config).latency_us for p in proposals[:10]]
    assert sum(late) / 30 < sum(early) / 10 - 10
