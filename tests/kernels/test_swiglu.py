import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.swiglu import KERNEL
from kt_lab.workload import Workload

# Ragged rows and columns, an odd row length, one element, and tiles that programs share unevenly.
SHAPES = [
    {"M": 5, "N": 136},
    {"M": 3, "N": 67},
    {"M": 1, "N": 1},
    {"M": 4, "N": 256},
]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def test_registry_returns_the_kernel():
    assert get_kernel("swiglu") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1300
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    assert KERNEL.bytes_moved(workload) == 6 * workload.extents["M"] * workload.extents["N"]


@pytest.mark.parametrize("m", [1, 7, 1000, 100_000])
@pytest.mark.parametrize("n", [1, 128, 5001, 200_000])
def test_space_exists_for_any_extents(m, n):
    workload = Workload("swiglu", "test", {"M": m, "N": n}, "bfloat16")
    assert KERNEL.space(workload).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = pairwise([c for shape in SHAPES for c in distinct_cases("swiglu", **shape)])
    paths = {(c["config"]["TRIPS"] > 1, c["config"]["ORDER"]) for c in cases}
    assert paths == {(False, "blocked"), (True, "blocked"), (True, "strided")}
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    shapes = [*SHAPES, {"M": 9, "N": 1100}]
    cases = [c for shape in shapes for c in distinct_cases("swiglu", **shape)]
    assert not _problems(cases, interpret(cases))


def test_hopper_code_moves_sixteen_bytes_at_a_time(cross_compile):
    plain = {"BLOCK_M": 1, "BLOCK_N": 2048, "EVICTION": "", "num_warps": 8}
    once = {"TRIPS": 1, "ORDER": "blocked", "num_stages": 1}
    looped = {"TRIPS": 8, "ORDER": "strided", "num_stages": 3}
    cases = [
        {"kernel": "swiglu", "extents": {"M": 8192, "N": 14336}, "config": plain | c, "sms": 132}
        for c in (once, looped)
    ]
    single, pipelined = cross_compile(cases)
    moves = [line for line in single["ptx"].splitlines() if "ld.global" in line or "st.gl" in line]
    assert len(moves) == 3  # gate, up and output, eight elements a thread each
    assert all(".v4.b32" in line for line in moves)
    assert "cp.async.cg.shared.global" in pipelined["ptx"]  # only ever 16 bytes
    assert pipelined["shared"] >= 2 * 2 * 2048 * 2  # two tiles of gates and ups in flight
