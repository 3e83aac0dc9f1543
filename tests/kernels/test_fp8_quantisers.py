import os
import subprocess
import sys
from pathlib import Path

import pytest

from kt_lab.kernels import get_kernel
from kt_lab.workload import Workload

SHAPES = {  # ragged against every tile, odd rows
    "blockwise_quantise": [{"M": 9, "K": 300}, {"M": 5, "K": 1153, "ROUND": 1}],
    "moe_weights_colwise": [{"E": 2, "N": 11, "K": 140}, {"E": 1, "N": 33, "K": 77, "ROUND": 1}],
    "tokens_transpose": [{"TOKENS": 70, "WIDTH": 39}],
}
BYTES = {
    "blockwise_quantise": {"M": 3, "K": 130}, "moe_weights_colwise": {"E": 2, "N": 3, "K": 5},
    "tokens_transpose": {"TOKENS": 3, "WIDTH": 5},
}  # fmt: skip
EXPECTED_BYTES = {
    "blockwise_quantise": 3 * 3 * 130 + 4 * 3 * 2,
    "moe_weights_colwise": 3 * 2 * 3 * 5 + 4 * 2 * 3,
    "tokens_transpose": 4 * 3 * 5,
}


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


@pytest.mark.parametrize("name", SHAPES)
def test_spaces_are_worth_searching_and_recordable(name):
    kernel = get_kernel(name)
    assert kernel.name == name
    assert kernel.rtol == kernel.atol == 0
    for workload in kernel.workloads:
        assert 500 <= kernel.space(workload).size <= 1300
        assert workload.name == "x".join(map(str, workload.extents.values()))
    few = Workload(name, "test", BYTES[name], "bfloat16")
    assert kernel.bytes_moved(few) == EXPECTED_BYTES[name]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("extent", [1, 5, 1000, 70_000])
def test_spaces_exist_for_any_extents(name, extent):
    for at in SHAPES[name][0]:
        workload = Workload(name, "test", SHAPES[name][0] | {at: extent}, "bfloat16")
        assert get_kernel(name).space(workload).size >= 36


def _cases(name, distinct_cases, pairwise):
    cases = []
    for at, shape in enumerate(SHAPES[name]):
        cases += pairwise(distinct_cases(name, **shape))[:: 1 + 7 * at]
    cases += [c | {"dtype": "float32"} for c in cases[:2]]
    one = dict.fromkeys(cases[0]["extents"], 1)
    return cases + [c | {"extents": one} for c in cases[4:6]]


def test_every_path_gives_the_bits_of_the_reference(interpret, distinct_cases, pairwise):
    cases = [c for name in SHAPES for c in _cases(name, distinct_cases, pairwise)]
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_every_distinct_config_gives_the_bits_of_the_reference(name, interpret, distinct_cases):
    cases = [c for shape in SHAPES[name] for c in distinct_cases(name, **shape)]
    assert not _problems(cases, interpret(cases))


_ROUTE = """
import torch
from kt_lab.kernels.device import jagged_groups, tokens_transpose
from kt_lab.workload import Workload
extents = {"TOKENS": 90, "WIDTH": 24, "GROUPS": 3, "SKEW": 6, "LAYOUT": 1}
rowwise = Workload("jagged_rowwise", "test", extents, "bfloat16")
colwise = Workload("jagged_colwise", "test", extents | {"LAYOUT": 2}, "bfloat16")
inputs = jagged_groups.make_inputs(rowwise, device="cpu", seed=1)
copied = inputs | {"x": tokens_transpose.reference(inputs, rowwise)}
pairs = zip(jagged_groups.reference(inputs, rowwise), jagged_groups.reference(copied, colwise))
assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs)
"""


def test_the_route_by_a_copy_ends_where_rowwise_scaling_does():
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", _ROUTE], env=os.environ | path, check=True, timeout=60)


def test_hopper_code_moves_sixteen_bytes_at_a_time(cross_compile):
    blocks = {
        "kernel": "blockwise_quantise",
        "extents": {"M": 32768, "K": 7168},
        "config": {"BLOCK_M": 32, "TRIPS": 4, "FIRST": "rows", "EVICTION": ""}
        | {"num_warps": 4, "num_stages": 2},
        "sms": 132,
    }
    copy = {
        "kernel": "tokens_transpose",
        "extents": {"TOKENS": 16640, "WIDTH": 8192},
        "config": {"BLOCK_T": 64, "BLOCK_W": 64, "TRIPS": 1, "FIRST": "features"}
        | {"EVICTION": "", "num_warps": 4, "num_stages": 1},
        "sms": 132,
    }
    quantised, turned = cross_compile([blocks, copy])
    assert "cp.async.cg.shared.global" in quantised["ptx"]  # only ever 16 bytes
    for word in ("ld.global", "st.global"):
        moves = [line for line in turned["ptx"].splitlines() if word in line]
        assert moves
        assert all(".v4.b32" in line for line in moves)
