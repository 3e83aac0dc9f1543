"""Training: one network plays several workloads in turn, and what comes of it plays elsewhere."""

import numpy as np
import pytest

from kt_lab.errors import UsageError
from kt_lab.policies import train
from kt_lab.programs.operators import get_operator
from kt_lab.programs.space import ScheduleSpace
from kt_lab.search import make_searcher
from kt_lab.search.conformance_cases import drive
from kt_lab.search.deep_q.policy import Policy
from kt_lab.trial import Measurement
from tests.queued import Queued
from tests.search.words import Words

pytest.importorskip("torch")
pytest.importorskip("safetensors")


def latency_us(config):
    """Falls with every letter b and rises with every other."""
    word = config["word"]
    return 100.0 * 1.2 ** (len(word) - 2 * word.count("b"))


def best(searcher, trials):
    found = []

    def evaluate(config):
        found.append(latency_us(config))
        return Measurement("ok", (found[-1],))

    drive(searcher, evaluate, trials=trials, batch=1)
    return min(found)


def test_one_policy_is_trained_on_all_workloads_and_carries_over(tmp_path):
    arenas = {"short": (Words(5), Queued(latency_us)), "long": (Words(7), Queued(latency_us))}
    small = {"hidden": 32, "layers": 2, "moves": 6, "actors": 1}
    policy, curve = train(arenas, rounds=4, programs=30, seed=0, **small)
    again, same = train(arenas, rounds=4, programs=30, seed=0, **small)
    assert curve == same
    for name, weight in policy.weights.items():
        np.testing.assert_array_equal(weight, again.weights[name])
    assert [(c["round"], c["workload"]) for c in curve[:3]] == [(0, "short"), (0, "long"),
                                                              (1, "short")]  # fmt: skip
    shares = [c["epsilon"] for c in curve[::2]]
    assert shares[0] == 1.0
    assert shares == sorted(shares, reverse=True)
    assert policy.facts["workloads"] == ["short", "long"]
    assert policy.facts["fingerprints"] == [Words(5).fingerprint, Words(7).fingerprint]
    path = tmp_path / "policy.safetensors"
    policy.save(path)
    assert Policy.load(path).facts["provenance"]

    told = {"policy": str(path), "learning": False, "epsilon_end": 0.0, **small}
    frozen = best(make_searcher("max_q_dqn", Words(6), seed=5, **told), trials=8)
    scratch = [best(make_searcher("max_q_dqn", Words(6), seed=s, **small), trials=8)
               for s in range(5)]  # fmt: skip
    assert frozen < np.median(scratch)
    assert frozen == pytest.approx(100 / 1.2**6)  # straight to the best word


def test_training_asks_for_enough():
    with pytest.raises(UsageError, match="programs=1"):
        train({"w": (Words(), Queued(latency_us))}, rounds=1, programs=1, seed=0)


def test_what_would_train_nothing_is_refused_before_anything_is_measured():
    def never(_):
        raise AssertionError("measured")

    how = {"rounds": 1, "programs": 2, "seed": 0}
    with pytest.raises(UsageError, match=r"player that learns .* got 'max_q'"):
        train({"w": (Words(), Queued(never))}, player="max_q", **how)
    with pytest.raises(UsageError, match="got learning=False"):
        train({"w": (Words(), Queued(never))}, learning=False, **how)
    row_sum = get_operator("row_sum")
    program = row_sum.program(row_sum.tiny)
    spaces = [ScheduleSpace(program), ScheduleSpace(program, encoder="structure")]
    with pytest.raises(UsageError, match=r"encoded alike, got .*'structure', 27"):
        train({str(i): (s, Queued(never)) for i, s in enumerate(spaces)}, **how)


def test_a_training_that_is_interrupted_ends():
    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train({"w": (Words(), Queued(interrupted))}, rounds=2, programs=2, seed=0)
