"""Visits: what was disturbed or failed is measured again, and never counts as quiet or fast."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from kt_lab.evidence import visits

ARGS = SimpleNamespace(rounds=2, batch_us=20)
FAILED, NOISY, QUIET = (math.nan, math.nan), (1.0, 9.0), (4.0, 4.1)


@pytest.fixture
def races(monkeypatch):
    """What races come to, by whether waiting threads stay awake; each is taken out in turn."""
    left = {False: [], True: []}

    class Runner:
        def __init__(self, _workload, *, awake, **_more):
            self._awake = awake

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def race(self, configs, **_more):
            taken = left[self._awake].pop(0)
            return np.array(taken if isinstance(taken, list) else [taken] * len(configs)).T

    monkeypatch.setattr(visits, "CRunner", Runner)
    return left


def test_a_race_that_failed_is_not_the_quietest_visit(races):
    races[False] += [FAILED, NOISY, FAILED]
    assert visits.visit("softmax/4x6", 1, ["a", "b"], ARGS).tolist() == [[1.0, 1.0], [9.0, 9.0]]
    races[False] += [FAILED, QUIET, NOISY]
    assert visits.visit("softmax/4x6", 1, ["a"], ARGS)[:, 0].tolist() == list(QUIET)
    assert races[False] == [NOISY], "a quiet one is not repeated"


@pytest.mark.parametrize("awake", [False, True])
def test_a_race_that_failed_is_not_the_faster_way_to_wait(races, awake):
    races[awake] += [FAILED] * 3
    races[not awake] += [QUIET]
    assert visits.visit("softmax/4x6", 2, ["a"], ARGS)[:, 0].tolist() == list(QUIET)


def test_what_fails_in_every_try_hides_no_disturbance_of_the_others(races):
    races[False] += [[FAILED, NOISY], [FAILED, QUIET], [FAILED, NOISY]]
    found = visits.visit("softmax/4x6", 1, ["a", "b"], ARGS)
    assert np.isnan(found[:, 0]).all()
    assert found[:, 1].tolist() == list(QUIET)


def test_another_system_is_asked_in_both_ways_to_wait_and_again_while_disturbed():
    told = {False: [NOISY, QUIET], True: [QUIET]}

    def ask(awake):
        return {
            "awake": awake,
            "paths": {"tvm/0": {"samples_us": told[awake].pop(0), "error": ""}},
        }

    found = visits.answers(2, ask)
    assert [each["awake"] for each in found] == [False, True]
    assert all(each["paths"]["tvm/0"]["samples_us"] == QUIET for each in found)
    assert told == {False: [], True: []}
    nothing = {"paths": {"tvm": {"samples_us": [], "error": "deviates"}}}
    assert visits.answers(1, lambda _: nothing) == [nothing], "an error is an answer"
