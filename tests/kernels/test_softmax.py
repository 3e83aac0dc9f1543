import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.softmax import KERNEL
from kt_lab.workload import Workload

# Ragged rows and columns, one column, and a persistent grid (more than 132 row blocks).
SHAPES = [
    {"M": 5, "N": 37},
    {"M": 3, "N": 1},
    {"M": 33, "N": 640},
    {"M": 140, "N": 130},
    {"M": 1, "N": 4100},
]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def test_registry_returns_the_kernel():
    assert get_kernel("softmax") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 1000 <= space.size <= 3000
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    assert KERNEL.bytes_moved(workload) == 4 * workload.extents["M"] * workload.extents["N"]


@pytest.mark.parametrize("m", [1, 7, 64, 1000])
@pytest.mark.parametrize("n", [1, 128, 5000, 200_000])
def test_space_exists_for_any_extents(m, n):
    workload = Workload("softmax", "test", {"M": m, "N": n}, "float16")
    assert KERNEL.space(workload).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = [c for shape in SHAPES for c in distinct_cases("softmax", **shape)]
    cases = pairwise(cases)
    paths = {
        (c["config"]["WAVES"] > 0, c["config"]["BLOCK_N"] >= c["extents"]["N"]) for c in cases
    }
    assert len(paths) == 4  # persistent or not, one pass or two
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    shapes = [*SHAPES, {"M": 1100, "N": 3}, {"M": 9, "N": 256}]
    cases = [c for shape in shapes for c in distinct_cases("softmax", **shape)]
    assert not _problems(cases, interpret(cases))


def test_hopper_code_reads_sixteen_bytes_at_a_time(cross_compile):
    plain = {"BLOCK_M": 1, "WAVES": 0, "EVICTION": "", "num_warps": 4, "num_stages": 1}
    one_pass = {
        "kernel": "softmax",
        "extents": {"M": 8192, "N": 8192},
        "config": plain | {"BLOCK_N": 8192, "num_warps": 8},
        "sms": 132,
    }
    two_pass = {
        "kernel": "softmax",
        "extents": {"M": 256, "N": 128256},
        "config": plain | {"BLOCK_N": 4096, "num_stages": 3},
        "sms": 132,
    }
    once, twice = cross_compile([one_pass, two_pass])
    loads = [line for line in once["ptx"].splitlines() if "ld.global" in line]
    assert loads
    assert all(".v4.b32" in line for line in loads)
    assert "cp.async.cg.shared.global" in twice["ptx"]  # only ever 16 bytes
    assert twice["shared"] >= 2 * 4096 * 2  # two tiles of float16 in flight
