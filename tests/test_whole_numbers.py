"""Counts that are no whole numbers are refused before anything is opened or measured."""

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.confirm import Rule
from kt_lab.dispatching import tune_guarded
from kt_lab.errors import UsageError
from kt_lab.kernels import get_workload
from kt_lab.landscape import load_landscape
from kt_lab.live import tune_live
from kt_lab.many import portfolio, tune_many
from kt_lab.record import RecordOptions, SessionOptions
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.runners.repetitions import Repetitions
from kt_lab.runners.replay import ReplayRunner
from kt_lab.runners.workers import Workers
from kt_lab.search import get_searcher, make_searcher
from kt_lab.tune import tune

WORKLOADS = [get_workload("softmax/4096x640")]


def never(*_, **__):
    raise AssertionError("nothing may be opened")


def many(**given):
    return tune_many(WORKLOADS, runner_for=never, **{"budget": Budget(trials=20)} | given)


def guarded(**given):
    given = {"budget": Budget(trials=20)} | given
    return tune_guarded(WORKLOADS, arch="sm_90", runner_for=never, **given)


def live(**given):
    return tune_live("softmax/1", budget=Budget(trials=20), **given)  # which is no shape


def replay(**given):
    return ReplayRunner(load_landscape("softmax/4096x640"), seed=0, **given)


def covering(k):
    return portfolio([load_landscape("softmax/4096x640")], k=k)


def workers(count):
    return Workers(count, service="nowhere:nothing")


def on_gpu(**given):
    return GpuRunner(WORKLOADS[0], **given)


@pytest.mark.parametrize("wrong", [2.0, "2", -1, True])
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (many, "k"),
        (many, "seed"),
        (guarded, "processes"),
        (guarded, "seed"),
        (live, "finalists"),
        (covering, "k"),
        (replay, "compile_lanes"),
        (on_gpu, "compile_workers"),
        (on_gpu, "device"),
        *((Rule, name) for name in ("rounds", "race", "first", "repetitions")),
        *((Repetitions, name) for name in ("probes", "usual", "most")),
        *((RecordOptions, n) for n in ("visits", "repetitions", "fewest", "control_every")),
        *((SessionOptions, n) for n in ("most", "others", "repetitions", "control_every")),
    ],
)
def test_a_count_is_a_whole_number_or_refused_at_once(call, name, wrong):
    with pytest.raises(UsageError, match=rf"{name} must be a whole number >= \d+, got {name}="):
        call(**{name: wrong})


def test_numbers_of_numpy_count():
    assert type(Rule(rounds=np.int64(16)).rounds) is int
    assert type(RecordOptions(visits=np.int32(3)).visits) is int


@pytest.mark.parametrize("wrong", [0, 2.0, "2"])
def test_workers_are_counted_in_whole_numbers(wrong):
    with pytest.raises(UsageError, match="workers must be a whole number >= 1"):
        workers(wrong)


@pytest.mark.parametrize("call", [many, guarded])
def test_a_number_is_no_budget(call):
    with pytest.raises(UsageError, match=r"must be a Budget, got 20; pass Budget\(trials=50\)"):
        call(budget=20)


def test_a_searchers_name_or_class_and_a_landscape_are_no_searcher_and_no_runner():
    found = load_landscape("softmax/4096x640")
    searcher = make_searcher("random", found.space, seed=0)
    for wrong in ("random", get_searcher("random")):
        with pytest.raises(UsageError, match="what can ask, as make_searcher"):
            tune(wrong, replay(), budget=Budget(trials=2))
    with pytest.raises(UsageError, match="what can submit, as ReplayRunner"):
        tune(searcher, found, budget=Budget(trials=2))
