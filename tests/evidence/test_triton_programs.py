"""Programs on a GPU beside PyTorch: tuned before raced, resumed, judged by fresh readings."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kt_lab.evidence import triton_programs as evidence
from kt_lab.programs.operators import get_operator
from kt_lab.runners.synthetic import SyntheticLandscape, SyntheticRunner

ROOT = Path(__file__).parents[2]
RACED = {
    "step": "raced",
    "errors": {},
    "bytes_moved": 30_000_000,
    "copy_bytes_per_s": 3e12,
    "timer_floor_us": 2.0,
    "gpu": "h100",
}


class Simulated(SyntheticRunner):
    """What is opened in place of a GPU."""

    opened = ()

    def __init__(self, shape, *, kernel, device, protocol):  # noqa: ARG002
        self.space = kernel.space(shape)
        super().__init__(SyntheticLandscape(self.space, seed=0))
        Simulated.opened += (shape.key,)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class FakeGpu:
    """The GPU of a race that is not there."""

    def __init__(self, index, protocol):  # noqa: ARG002
        self.entered = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def asked(out, *given):
    parser = argparse.ArgumentParser()
    evidence.add_arguments(parser)
    args = parser.parse_args(["--trials", "12", "--operators", "softmax", "multiply", *given])
    args.out = out
    return args


def test_all_is_tuned_before_the_race_and_what_is_stored_is_not_measured_again(
    tmp_path, monkeypatch
):
    steps, fails = [], [True]

    def race(workload, best, gpu, args):  # noqa: ARG001
        assert (
            len(Simulated.opened) % 4 == 0
        )  # no runner is opened once this process holds the GPU
        if len(steps) == 2 and fails and fails.pop():
            raise KeyboardInterrupt
        steps.append((workload.key, best["SCHEDULE"]))
        return {"samples_us": {"best": [1.0], "default": [2.0]}}

    monkeypatch.setenv("KT_LAB_CACHE", str(tmp_path))
    monkeypatch.setattr(evidence, "GpuRunner", Simulated)
    monkeypatch.setattr(Simulated, "opened", ())
    monkeypatch.setattr(evidence, "Gpu", FakeGpu)
    monkeypatch.setattr(evidence, "raced", race)
    args = asked(tmp_path / "found.json")
    with pytest.raises(KeyboardInterrupt):
        evidence.run(args)
    rows = evidence.run(args)["rows"]
    assert [row["step"] for row in rows] == ["tuned"] * 4 + ["raced"] * 4
    assert [key for key, _ in steps] == [row["workload"] for row in rows[:4]]
    assert len(Simulated.opened) == 4
    assert all(row["trials"] == 12 and row["best"]["SCHEDULE"] for row in rows[:4])
    assert json.loads(args.out.read_text())["rows"] == rows
    monkeypatch.setattr(evidence, "gpu_name", lambda _: "another")
    assert len(evidence.run(args)["rows"]) == 8
    assert len(Simulated.opened) == 8  # what another GPU measured does not count


def test_each_operator_has_a_shape_that_memory_holds():
    for name in evidence.OPERATORS:
        small, large = evidence.workloads_of(name)
        bytes_of = get_operator(name).bytes_moved
        assert bytes_of(large.extents) >= 64 * 2**20 > bytes_of(small.extents)


def test_ratios_are_paired_by_round_and_losses_are_told():
    won = {"best": [10.0] * 8, "default": [20.0] * 8, "eager/new": [11.0] * 8}
    won["eager/out"] = [12.5] * 8
    lost = {"best": [10.0, 20.0] * 4, "default": [10.0, 20.0] * 4, "eager/new": [8.0, 16.0] * 4}
    lost["compiled/new"] = [5.0, 10.0] * 4
    rows = [RACED | {"workload": "softmax/a", "samples_us": won}]
    rows += [RACED | {"workload": "multiply/b", "samples_us": lost}]
    failed = {"best": "an element was not written"}
    left = {"compiled/new": [5.0] * 8}
    rows += [RACED | {"workload": "multiply/c", "samples_us": left, "errors": failed}]
    result = {"rows": rows, "calls": "captured"}
    table = evidence.ratios(result).set_index(["workload", "reference"])
    assert table.loc[("softmax/a", "eager"), "ratio"] == pytest.approx(10 / 11)  # the faster way
    assert table.loc[("multiply/b", "eager"), "ratio"] == pytest.approx(1.25)
    assert table.loc[("multiply/b", "default"), ["low", "high"]].tolist() == [1.0, 1.0]
    near = evidence.shares(result).set_index("workload")
    assert near.loc["softmax/a", "share"] == pytest.approx(1.0)
    assert near.loc["softmax/a", "over_eager"] == pytest.approx(10 / 11)
    assert near.loc["multiply/c", "share"] == 0, "no right config"
    told = evidence.report(result)
    assert "best     10.0 us, 100% of copying" in told
    assert "multiply/c" in told
    assert "an element was not written" in told
    assert "best over eager: geomean 1.066" in told
    assert "slower: multiply/b" in told
    assert "best over compiled: geomean inf" in told  # a failure is no reason to leave one out
    assert "best over default: geomean 0.707" in told
    told = evidence.report({"rows": rows})
    assert "best over compiled" not in told, "what the host took is no latency of the GPU"


_RACE = """
import json, types, torch
from kt_lab.evidence import triton_programs as evidence
from kt_lab.inspect.interpreted import mend_interpreter
from kt_lab.programs.triton_kernel import triton_kernel
from kt_lab.workload import Workload
mend_interpreter()
timed = []
def take(call, *, repetitions):
    timed.append(call)
    return [2.0, 1.0, 3.0][:repetitions]
gpu = types.SimpleNamespace(device="cpu", sms=2, take=take, facts={"gpu": "none"}, sense=dict)
gpu.capture = lambda call: call
args = types.SimpleNamespace(torch=["eager"], rounds=2, repetitions=3)
shapes = {"softmax": {"rows": 3, "cols": 5}, "batch_norm": {"n": 2, "c": 3, "h": 2, "w": 5}}
for name, extents in shapes.items():
    workload = Workload(name, "tiny", extents, "float32")
    space = triton_kernel(name, workload).space(workload)
    best = space.config(space.enumerate()[-1])
    row = evidence.raced(workload, best, gpu, args)
    print(json.dumps({k: row[k] for k in ("samples_us", "errors")} | {"timed": len(timed)}))
"""


def test_a_race_checks_everything_before_it_is_timed(tmp_path):
    environment = {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "KT_LAB_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _RACE],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    softmax, norm = map(json.loads, done.stdout.splitlines())
    paths = {"best", "default", "eager/new", "eager/out"}
    assert set(softmax["samples_us"]) == set(norm["samples_us"]) == paths
    assert softmax["errors"] == norm["errors"] == {}
    assert softmax["samples_us"]["best"] == [2.0, 2.0]
    assert (softmax["timed"], norm["timed"]) == (8, 16)
