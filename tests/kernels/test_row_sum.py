import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.row_sum import KERNEL, max_split
from kt_lab.workload import Workload

# Shares of unequal length, many programs for one row, an odd row length, one element.
SHAPES = [
    {"M": 3, "N": 2120},
    {"M": 5, "N": 777},
    {"M": 1, "N": 1},
]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def test_registry_returns_the_kernel():
    assert get_kernel("row_sum") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1300
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    m, n = workload.extents.values()
    assert KERNEL.bytes_moved(workload) == 2 * m * n + 4 * m
    assert max(space.parameters[space.names.index("SPLIT")].values) == max_split(workload)


@pytest.mark.parametrize("m", [1, 7, 64, 100_000])
@pytest.mark.parametrize("n", [1, 128, 5001, 200_000, 1_000_001])
def test_space_exists_for_any_extents(m, n):
    workload = Workload("row_sum", "test", {"M": m, "N": n}, "bfloat16")
    assert KERNEL.space(workload).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = pairwise([c for shape in SHAPES for c in distinct_cases("row_sum", **shape)])
    paths = {(c["config"]["SPLIT"] > 1, *(c["config"][p] for p in ("JOIN", "SUM"))) for c in cases}
    assert len(paths) == 6  # in one piece, or shared and joined in two ways; added up in two
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    cases = [c for shape in SHAPES for c in distinct_cases("row_sum", **shape)]
    assert not _problems(cases, interpret(cases))


def test_hopper_code_reads_wide_and_joins_shares(cross_compile):
    plain = {"BLOCK_M": 1, "BLOCK_N": 2048, "SPLIT": 16, "SUM": "late", "num_warps": 8}
    cases = [
        {"kernel": "row_sum", "extents": {"M": 32, "N": 4_194_304}, "config": plain | c}
        | {"sms": 132}
        for c in (
            {"JOIN": "last", "UNROLL": 4, "num_stages": 1},
            {"JOIN": "atomic", "UNROLL": 1, "num_stages": 3},
        )
    ]
    last, atomic = cross_compile(cases)
    reads = [line for line in last["ptx"].splitlines() if "ld.global.v4.b32" in line]
    assert len(reads) >= 4  # four steps of 16 bytes a thread at a time
    assert "atom.global.gpu.acq_rel.add" in last["ptx"]  # the last one sees the others' stores
    assert "red.global.gpu.relaxed.add.f32" in atomic["ptx"] or (
        "atom.global.gpu.relaxed.add.f32" in atomic["ptx"]
    )
    assert "cp.async.cg.shared.global" in atomic["ptx"]  # only ever 16 bytes
    assert atomic["shared"] >= 2 * 2048 * 2  # two steps in flight
