"""Configs in the interpreter: right ones pass, each kind of wrong one is told, nothing hangs."""

import math
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from kt_lab import kernels
from kt_lab.errors import UsageError
from kt_lab.inspect import interpreted
from kt_lab.inspect.interpreted import check_configs, small_workload
from kt_lab.workload import Subject, Workload

DEVICE = """
import time

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch


@triton.jit
def twice(x, out, N, BLOCK: tl.constexpr, SKIP: tl.constexpr, BEYOND: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N - SKIP
    tl.store(out + at, 2 * tl.load(x + at, mask=inside), mask=inside)
    if BEYOND:
        tl.store(out + N + 1, 7.0)


def make_inputs(workload, *, device, seed):
    x = torch.arange(workload.extents["N"], device=device, dtype=torch.float32) + seed
    return {"x": x, "out": torch.empty_like(x)}


def reference(inputs, workload):
    return 2 * inputs["x"]


def output(inputs):
    return inputs["out"]


def plan(inputs, workload, config, *, sms):
    if config["HANG"]:
        time.sleep(60)
    n = workload.extents["N"]
    if config["RAISE"]:
        raise RuntimeError(f"no launch on {sms} multiprocessors")
    constexprs = {name: config[name] for name in ("BLOCK", "SKIP", "BEYOND")}
    grid = (triton.cdiv(n, config["BLOCK"]),)
    return Launch(twice, grid, (inputs["x"], inputs["out"], n), constexprs)
"""
HELPED = """
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from kt_lab.inspect.interpreted import mend_interpreter


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def many(out, N: tl.constexpr):
    total = 0
    for i in tl.range(0, N):
        total = plus(total, i)
    tl.store(out + tl.program_id(0), total)


patched, patch, before = [], interpreter._patch_lang_core, tl.range
interpreter._patch_lang_core = lambda lang, scope: (patched.append(lang), patch(lang, scope))
mend_interpreter()
out = torch.zeros(2, dtype=torch.int32)
for _ in range(2):
    many[(2,)](out, 5)
print(out.tolist(), len(patched), tl.range is before)
"""
MIXED = """
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from kt_lab.inspect.interpreted import mend_interpreter


@triton.jit
def mixed(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    wrapped = (at + 2147483647) * 3 - (at << 30)
    whole = wrapped.to(tl.int64) + (value.to(tl.float32) * 3).to(tl.int8)
    tl.store(out + at, whole + (value > 0).to(tl.uint8))


x, found, casts = torch.linspace(-4, 4, 8).to(torch.bfloat16), [], []
cast = interpreter.interpreter_semantic.cast
interpreter.interpreter_semantic.cast = lambda *args: (casts.append(args), cast(*args))[1]
for _ in range(2):
    out = torch.zeros(8, dtype=torch.int64)
    casts.clear()
    mixed[(1,)](x, out, 8)
    found.append((len(casts), out.tolist()))
    mend_interpreter()
(before, sums), (after, same) = found
print(sums == same, len(set(sums)), after < before)
"""
RIGHT = {"BLOCK": 16, "SKIP": 0, "BEYOND": False, "RAISE": False, "HANG": False}


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    path = tmp_path_factory.mktemp("device") / "twice.py"
    path.write_text(DEVICE)
    return Subject(Workload("twice", "37", {"N": 37}, "float32"), str(path), 0.0, 0.0)


@pytest.mark.skipif(not find_spec("triton"), reason="the interpreter needs triton")
def test_right_and_wrong_configs_are_told_apart(subject):
    configs = [
        RIGHT,
        RIGHT | {"BLOCK": 64},
        RIGHT | {"SKIP": 1},
        RIGHT | {"BEYOND": True},
        RIGHT | {"RAISE": True},
        RIGHT | {"HANG": True},
        RIGHT | {"BLOCK": 32},
    ]
    found = check_configs(subject, configs, sms=3, timeout_s=4.0)
    assert found["BLOCK"].tolist() == [c["BLOCK"] for c in configs]
    assert found["status"].tolist() == [
        *("ok", "ok", "wrong_result", "wrong_result", "launch_error", "timeout", "ok")
    ]
    assert "not written" in found["error"][2]
    assert "after its output" in found["error"][3]
    assert "no launch on 3 multiprocessors" in found["error"][4]
    assert found["error"][0] == ""


@pytest.mark.skipif(not find_spec("triton"), reason="the interpreter needs triton")
def test_a_shipped_kernel_is_right_on_its_small_workload():
    kernel = kernels.get_kernel("int4_gemm")
    small = small_workload(kernel)
    found = check_configs(kernels.subject(small, kernel), [kernel.space(small).default])
    assert found["status"].tolist() == ["ok"]
    strict = replace(kernels.subject(small, kernel), rtol=0.0, atol=-1.0)
    found = check_configs(strict, [kernel.space(small).default])
    assert found["status"].tolist() == ["wrong_result"], "no result can be nearer than that"


def test_a_workload_without_extents_or_with_tiny_ones_is_small_as_it_is():
    for extents in ({}, {"n": 3}):
        first = Workload("mine", "one", extents, "float32")
        assert small_workload(SimpleNamespace(name="mine", workloads=[first])).extents == extents


@pytest.mark.parametrize("points", [2**14, 2**16])
def test_small_workloads_are_small_and_within_the_original(points):
    for kernel in kernels.kernels():
        small, first = small_workload(kernel, points=points), kernel.workloads[0]
        assert math.prod(small.extents.values()) <= points
        cut = [v for n, v in small.extents.items() if v < first.extents[n]]
        assert not any(v % 4 for v in cut), "operands are packed by four"
        assert small.extents.keys() == first.extents.keys()
        assert all(1 <= v <= first.extents[n] for n, v in small.extents.items())
        assert kernel.space(small).size >= 1


def test_without_triton_it_says_what_to_install(subject, monkeypatch):
    monkeypatch.setattr(interpreted, "can_interpret", lambda: False)
    with pytest.raises(UsageError, match="torch and triton"):
        check_configs(subject, [RIGHT])


def _printed(program, path):
    path.write_text(program)
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    told = subprocess.run(
        [sys.executable, str(path)], env=environment, capture_output=True, text=True, check=True
    )
    return told.stdout.split("\n")[0]


@pytest.mark.skipif(not find_spec("triton"), reason="the interpreter needs triton")
def test_helpers_are_right_and_a_launch_patches_the_language_once_and_restores_it(tmp_path):
    assert _printed(HELPED, tmp_path / "helped.py") == "[10, 10] 2 True"


@pytest.mark.skipif(not find_spec("triton"), reason="the interpreter needs triton")
def test_integers_wrap_as_before_and_are_not_computed_twice(tmp_path):
    assert _printed(MIXED, tmp_path / "mixed.py") == "True 8 True"
