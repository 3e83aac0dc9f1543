import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.layer_norm import KERNEL
from kt_lab.workload import Workload

# Short rows, one column, more row blocks than a wave, several masked blocks, and even ones.
SHAPES = [
    {"M": 5, "N": 37},
    {"M": 3, "N": 1},
    {"M": 270, "N": 5},
    {"M": 3, "N": 1100},
    {"M": 4, "N": 2048},
]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def test_registry_returns_the_kernel():
    assert get_kernel("layer_norm") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1300
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    m, n = workload.extents["M"], workload.extents["N"]
    assert KERNEL.bytes_moved(workload) == 4 * m * n + 4 * n


@pytest.mark.parametrize("m", [1, 7, 64, 1000])
@pytest.mark.parametrize("n", [1, 128, 5000, 200_000])
def test_space_exists_for_any_extents(m, n):
    workload = Workload("layer_norm", "test", {"M": m, "N": n}, "float16")
    assert KERNEL.space(workload).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = [c for shape in SHAPES for c in distinct_cases("layer_norm", **shape)]
    # Many rows are slow to interpret: only where a program takes several.
    slow = pairwise([c for c in cases if c["extents"]["M"] > 100 and c["config"]["WAVES"] > 0])
    cases = pairwise([c for c in cases if c["extents"]["M"] < 100]) + slow
    paths = {
        (c["config"]["VARIANCE"], c["config"]["WAVES"] > 0, c["config"]["BLOCK_N"] >= n)
        for c in cases
        if (n := c["extents"]["N"])
    }
    assert len(paths) == 6  # either variance; in one pass, persistent or not, or in two
    assert {c["config"]["WEIGHT"] for c in cases} == {"early", "late", "kept"}
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    shapes = [*SHAPES, {"M": 1100, "N": 3}, {"M": 9, "N": 256}]
    cases = [c for shape in shapes for c in distinct_cases("layer_norm", **shape)]
    assert not _problems(cases, interpret(cases))


def test_hopper_code_reads_sixteen_bytes_at_a_time(cross_compile):
    plain = {"WEIGHT": "early", "VARIANCE": "centred", "EVICTION": "", "num_warps": 8}
    ragged = {
        "kernel": "layer_norm",
        "extents": {"M": 8192, "N": 5120},
        "config": plain | {"BLOCK_M": 1, "BLOCK_N": 8192, "WAVES": 0, "num_stages": 1},
        "sms": 132,
    }
    looped = {
        "kernel": "layer_norm",
        "extents": {"M": 16, "N": 12288},
        "config": plain | {"BLOCK_M": 1, "BLOCK_N": 4096, "WAVES": 0, "num_stages": 3},
        "sms": 132,
    }
    once, twice = cross_compile([ragged, looped])
    loads = [line for line in once["ptx"].splitlines() if "ld.global" in line]
    assert loads
    assert all(".v4.b32" in line for line in loads)
    assert "cp.async.cg.shared.global" in twice["ptx"]  # only ever 16 bytes
    assert twice["shared"] >= 2 * 4096 * 2  # two tiles of float16 in flight
