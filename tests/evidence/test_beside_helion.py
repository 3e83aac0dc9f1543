"""The comparison with Helion: steps that fail, hang or do not fit cost only themselves."""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import textwrap

import pytest

from kt_lab.evidence import beside_helion
from kt_lab.evidence.helion_tables import ratios

# Stands for the jobs: kills itself, hangs with a child of its own, raises, or answers.
JOBS = """
import json, os, subprocess, sys, time

task, path = json.loads(sys.argv[1]), sys.argv[2]
answer = {"config": {"BLOCK": 1}, "configs": 7, "import_s": 1.0, "tuning_s": 2.0, "wall_s": 3.0}
kind = os.environ.get("FAKE_" + task["do"].upper(), "")
if kind == "hangs":
    child = subprocess.Popen(["sleep", "100"])
    open(os.environ["FAKE_CHILD"], "w").write(str(child.pid))
    time.sleep(100)
if kind == "dies":
    print("last words")
    os.kill(os.getpid(), 9)
if kind == "raises":
    answer = {"error": "ValueError: no"}
if task["do"] == "race":
    names = [c["name"] for c in task["contenders"]]
    blocks = [[10.0 * (1 + i) * (1 + number) for i in range(len(names))] for number in range(40)]
    rows = [{"name": name, "side": "", "wrong": ""} for name in names]
    answer = {"names": names, "contenders": rows, "blocks_us": {"events": blocks, "graph": "no"}}
answer |= {"task": task, "env": {k: v for k, v in os.environ.items() if "HELION" in k}}
json.dump(answer, open(path, "w"))
"""


@pytest.fixture
def given(tmp_path, monkeypatch):
    (tmp_path / "fake_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(beside_helion, "_JOBS", "fake_jobs")

    def parse(*words):
        parser = argparse.ArgumentParser()
        beside_helion.add_arguments(parser)
        args = parser.parse_args(["--ops", "softmax", "--seeds", "1", "--skip-full", *words])
        args.out = tmp_path / "out.json"
        return args

    return parse


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"  # dead, not yet reaped
    except FileNotFoundError:
        return False


def keys(result, *, ok=True):
    return [s["key"].removeprefix("softmax/") for s in result["steps"] if s["ok"] == ok]


def test_every_step_is_done_in_turn_and_stored(given):
    args = given("--rounds", "3")
    result = beside_helion.run(args)
    assert keys(result) == [
        "helion/quick/seed0",
        "ours/quick/seed0",
        "helion_on_ours/quick/seed0",
        "ours_on_helion/quick/seed0",
    ]
    asked = {s["do"]: s["answer"]["task"] for s in result["steps"]}
    assert all(asked[do]["trials"] == 7 for do in asked if do != "helion")  # as many as Helion's
    assert asked["ours"]["workload"] == "softmax/4096x640"
    race = result["races"]["softmax"]
    assert race["task"]["rounds"] == 3
    assert [c["side"] for c in race["task"]["contenders"]] == [
        "torch", "helion", "ours", "ours", "helion"
    ]  # fmt: skip
    stored = json.loads(args.out.read_text())
    assert stored["steps"] == result["steps"]
    assert stored["races"] == result["races"]


def test_steps_that_were_not_chosen_are_left_out(given, monkeypatch):
    monkeypatch.setenv("FAKE_HELION", "raises")  # would be told, were it done
    monkeypatch.setenv("FAKE_HELION_ON_OURS", "raises")
    args = given("--steps", "ours_on_helion", "ours")
    args.skip_full = False
    result = beside_helion.run(args)
    assert keys(result, ok=False) == []
    assert keys(result) == ["ours/quick/seed0", "ours_on_helion/quick/seed0", "ours/full/seed0"]
    asked = [s["answer"]["task"].get("trials") for s in result["steps"]]
    assert asked == [100, 100, None]  # there is no run of Helion's to go by
    assert len(result["races"]["softmax"]["names"]) == 4


def test_helion_is_set_by_environment_and_finds_no_cache(given, monkeypatch):
    monkeypatch.setenv("HELION_AUTOTUNE_MAX_GENERATIONS", "1")  # the caller's settings stay out
    args = given("--full-budget-s", "33")
    args.skip_full = False
    result = beside_helion.run(args)
    envs = {s["key"]: s["answer"]["env"] for s in result["steps"] if s["do"] == "helion"}
    quick, full = (envs[f"softmax/helion/{effort}/seed0"] for effort in ("quick", "full"))
    assert quick["HELION_AUTOTUNE_EFFORT"] == "quick"
    assert quick["HELION_SKIP_CACHE"] == "1"
    assert quick["HELION_AUTOTUNE_RANDOM_SEED"] == "0"
    assert "HELION_AUTOTUNE_MAX_GENERATIONS" not in quick
    assert "HELION_AUTOTUNE_BUDGET_SECONDS" not in quick
    assert full["HELION_AUTOTUNE_BUDGET_SECONDS"] == "33"
    assert quick["HELION_CACHE_DIR"] != full["HELION_CACHE_DIR"]


def test_failures_are_part_of_the_result(given, monkeypatch, tmp_path):
    monkeypatch.setenv("FAKE_HELION", "hangs")
    monkeypatch.setenv("FAKE_CHILD", str(tmp_path / "child"))
    monkeypatch.setenv("FAKE_OURS", "dies")
    monkeypatch.setenv("FAKE_HELION_ON_OURS", "raises")
    monkeypatch.setitem(beside_helion._MOST, "helion", 1.0)
    monkeypatch.setitem(beside_helion._LEAST, "helion", 0.5)
    result = beside_helion.run(given())
    errors = [s["answer"].get("error") for s in result["steps"]]
    assert errors[0] == "killed after 1 s"
    assert "exit code -9" in errors[1]
    assert "last words" in result["steps"][1]["answer"]["log"]
    assert errors[2:] == ["ValueError: no", None]
    assert [c["name"] for c in result["races"]["softmax"]["task"]["contenders"]] == [
        "torch",
        "ours_on_helion/quick/seed0",
    ]
    assert not is_running(int((tmp_path / "child").read_text()))
    text = beside_helion.report(result)
    assert "failed: killed after 1 s" in text


def test_what_does_not_fit_the_deadline_is_not_begun(given):
    result = beside_helion.run(given("--deadline-s", "50"))
    assert keys(result, ok=False)
    assert not keys(result)
    assert "not begun" in beside_helion.report(result)
    assert result["races"] == {}


def test_resuming_does_only_what_failed_before_and_races_anew(given, monkeypatch):
    monkeypatch.setenv("FAKE_OURS", "raises")
    args = given()
    first = beside_helion.run(args)
    assert keys(first, ok=False) == ["ours/quick/seed0"]
    monkeypatch.delenv("FAKE_OURS")
    monkeypatch.setenv("FAKE_HELION", "raises")  # would fail, were it done again
    again = given("--resume", str(args.out))
    second = beside_helion.run(again)
    assert keys(second, ok=False) == []
    assert len(keys(second)) == 4
    assert len(second["races"]["softmax"]["names"]) == 5


def test_ratios_are_those_of_paired_rounds():
    names = ["torch", "ours/quick/seed0", "helion/quick/seed0", "helion/quick/seed1"]
    blocks = [[40.0 * t, 5.0 * t, 10.0 * t, 10.0 * t] for t in (1, 3, 2, 5, 4, 7, 6, 9)]
    rows = {row["name"]: row for row in ratios(names, blocks)}
    found = {name: rows[name]["ratio"] for name in names}
    assert found == pytest.approx(dict(zip(names, [4.0, 0.5, 1.0, 1.0], strict=True)))
    for row in rows.values():  # the rounds differ ninefold, the ratios not at all
        assert row["low"] == pytest.approx(row["ratio"])
        assert row["high"] == pytest.approx(row["ratio"])
    assert rows["ours/quick/seed0"]["median_us"] == pytest.approx(5.0 * 20**0.5)


def test_the_report_names_winners_wrong_results_and_what_could_not_be_timed(given):
    result = beside_helion.run(given())
    result["steps"][0]["answer"]["wrong"] = "an element is off"
    text = beside_helion.report(result)
    assert "WRONG RESULT: an element is off" in text
    assert "ratio to helion/quick/seed0" in text
    assert "softmax, graph: no" in text
    assert "3.0 s (imports 1.0, tuning 2.0), 7 configs" in text


# -- the kernels in Helion's language -------------------------------------------------------------

KERNELS = textwrap.dedent(
    """
    import torch

    from kt_lab.evidence.helion_kernels import OPERATIONS, arguments
    from kt_lab.kernels import device_module, subject
    from kt_lab.runners.gpu.checking import difference
    from kt_lab.workload import Workload

    # On the CPU torch has no product whose sums are wider than its factors.
    narrow = torch.mm
    torch.mm = lambda a, b, *, out_dtype: narrow(a.to(out_dtype), b.to(out_dtype))

    for kernel, extents, dtype in (
        ("softmax", {"M": 37, "N": 640}, "float16"),
        ("softmax", {"M": 3, "N": 33}, "float16"),
        ("int4_gemm", {"B": 1, "M": 1, "K": 500, "N": 136}, "bfloat16"),
        ("int4_gemm", {"B": 1, "M": 5, "K": 62, "N": 36}, "bfloat16"),
        ("rms_norm", {"M": 9, "N": 512}, "bfloat16"),
        ("rms_norm", {"M": 5, "N": 77}, "bfloat16"),
        ("layer_norm", {"M": 9, "N": 512}, "float16"),
        ("layer_norm", {"M": 5, "N": 77}, "float16"),
        ("swiglu", {"M": 16, "N": 256}, "bfloat16"),
        ("swiglu", {"M": 5, "N": 77}, "bfloat16"),
        ("matmul", {"M": 64, "K": 128, "N": 32}, "bfloat16"),
        ("matmul", {"M": 35, "K": 77, "N": 19}, "bfloat16"),
        ("row_sum", {"M": 16, "N": 256}, "bfloat16"),
        ("row_sum", {"M": 5, "N": 777}, "bfloat16"),
        ("rope", {"B": 2, "S": 16, "H": 4, "HK": 2, "D": 32}, "bfloat16"),
        ("rope", {"B": 3, "S": 7, "H": 3, "HK": 1, "D": 24}, "bfloat16"),
        ("fp8_gemm", {"M": 64, "K": 128, "N": 32}, "float8_e4m3fn"),
        ("fp8_gemm", {"M": 35, "K": 77, "N": 19}, "float8_e4m3fn"),
    ):
        workload = Workload(kernel, "small", extents, dtype)
        device = device_module(kernel)
        inputs = device.make_inputs(workload, device="cpu", seed=1)
        output = OPERATIONS[kernel][0](*arguments(kernel, inputs))
        wrong = difference(output, device.reference(inputs, workload), law=subject(workload))
        assert not wrong, (workload, wrong)
        ours = device.output(inputs)
        assert (output.dtype, output.shape) == (ours.dtype, ours.shape), workload
    """
)


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("helion", "torch", "triton")),
    reason="needs helion, which the extra peers installs, torch and triton",
)
def test_the_kernels_in_helions_language_agree_with_the_references_of_ours():
    """In Helion's eager mode: the same code, run by torch on the CPU."""
    env = os.environ | {"HELION_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", KERNELS], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
