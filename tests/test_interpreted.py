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
CASTS = """
import torch
import triton
import triton.language as tl

from kt_lab.inspect.interpreted import mend_interpreter


@triton.jit
def cast(x, out, N: tl.constexpr, TYPE: tl.constexpr):
    tl.store(out + tl.arange(0, N), tl.load(x + tl.arange(0, N)).to(TYPE))


@triton.jit
def tiles(x, y, product, rest, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(product + at, tl.dot(a, b))
    tl.store(rest + at, tl.where(a > b, a * 2.0 + b, (at - 777).to(tl.bfloat16)))


def bits(values):
    return values.view({1: torch.int8, 2: torch.int16, 4: torch.int32}[values.dtype.itemsize])


mend_interpreter()
halves = torch.arange(-(2**15), 2**15)  # of all, the top half of a float32's bits; ties beside
beside = [(halves << 16) + low for low in (0, 1, 2**15 - 1, 2**15, 2**15 + 1, 2**16 - 1, 0, 0)]
single = torch.cat(beside).to(torch.int32).view(torch.float32)
short = halves.to(torch.int16)
named = {"bfloat16": tl.bfloat16, "float16": tl.float16, "float32": tl.float32}
named |= {"float8_e4m3fn": tl.float8e4nv, "float8_e5m2": tl.float8e5}
bytes_of = torch.arange(-128, 128).to(torch.int8)
given = [single, short.view(torch.float16), short.view(torch.bfloat16)]
given += [bytes_of.view(torch.float8_e4m3fn), bytes_of.view(torch.float8_e5m2)]
wrong = []
for x in given:
    for name in named:
        there = getattr(torch, name)
        if there == x.dtype:
            continue
        out = torch.zeros(len(x), dtype=there)
        cast[(1,)](x, out, len(x), named[name])
        most = torch.finfo(there).max
        wanted = (x.float().clamp(-most, most) if "float8" in name else x).to(there)
        same = (bits(out) == bits(wanted)) | (out.float().isnan() & wanted.float().isnan())
        wrong += [] if same.all() else [(x.dtype, name, x[~same][:3])]
# just beyond a tie of bfloat16, but not of float32
fine = torch.tensor([1 + 2**-8 + 2**-40, 1 + 2**-8, 1 + 3 * 2**-8 - 2**-40], dtype=torch.float64)
fine = torch.cat([fine, torch.tensor([float("inf")])])
out = torch.zeros(4, dtype=torch.bfloat16)
cast[(1,)](fine, out, 4, tl.bfloat16)
torch.manual_seed(0)
x, y = (torch.randn(16, 16).to(torch.bfloat16) for _ in range(2))
product, rest = torch.zeros(16, 16), torch.zeros(16, 16, dtype=torch.bfloat16)
tiles[(1,)](x, y, product, rest, 16)
near = torch.allclose(product, x.float() @ y.float(), atol=1e-4)
count = (torch.arange(256) - 777).view(16, 16)
right = (rest == torch.where(x > y, x * 2.0 + y, count.to(torch.bfloat16))).all().item()
print(wrong, [(v - 1) * 128 for v in out.tolist()], near, right)
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
    assert "more timeout_s, or small_workload() fewer points" in found["error"][5]
    assert found["error"][0] == ""


@pytest.mark.skipif(not find_spec("triton"), reason="the interpreter needs triton")
def test_parameters_named_like_columns_stand_beside_them(subject):
    told = {"status": 5, "seconds": -1.0}
    found = check_configs(subject, [RIGHT | told])
    assert found[["status", "p_status", "p_seconds"]].to_dict("records") == [
        {"status": "ok", "p_status": 5, "p_seconds": -1.0}
    ]
    assert found["seconds"].iloc[0] >= 0


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
    with pytest.raises(UsageError, match=r"torch and triton; pip install -c .*\.\[gpu\]"):
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


@pytest.mark.skipif(not find_spec("triton"), reason="the interpreter needs triton")
def test_numbers_are_cast_as_a_gpu_casts_them_and_bfloat16_is_computed_with(tmp_path):
    told = _printed(CASTS, tmp_path / "casts.py")
    assert told == "[] [1.0, 0.0, 1.0, inf] True True"
