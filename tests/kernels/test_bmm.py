import itertools
import re

import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.bmm import KERNEL
from kt_lab.workload import Workload

SHAPES = [
    {"B": 2, "M": 70, "K": 40, "N": 72},
    {"B": 2, "M": 4, "K": 136, "N": 40},
    {"B": 2, "M": 90, "K": 44, "N": 20},
]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def _strides():
    """Products of two by two small tiles for two programs, however they are scheduled."""
    tile = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2}
    schedules, loads = ("tiles", "persistent", "flattened"), ("pointers", "descriptors")
    for schedule, load, group, epilogue in itertools.product(
        schedules, loads, (1, 2), ("whole", "halves")
    ):
        config = {"SCHEDULE": schedule, "LOADS": load, "GROUP_M": group, "EPILOGUE": epilogue}
        extents = {"B": 3, "M": 24, "K": 40, "N": 56}
        yield {"kernel": "bmm", "extents": extents, "config": config | tile, "sms": 2}


def _case(extents, **config):
    return {"kernel": "bmm", "extents": extents, "config": config, "sms": 132}


def test_registry_returns_the_kernel():
    assert get_kernel("bmm") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1300
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    b, m, k, n = workload.extents.values()
    assert KERNEL.flops(workload) == 2 * b * m * k * n
    assert KERNEL.bytes_moved(workload) == 2 * b * (m * k + k * n + m * n)


@pytest.mark.parametrize("b", [1, 5, 300])
@pytest.mark.parametrize("m", [1, 64, 65, 1000])
@pytest.mark.parametrize(
    ("k", "n"), [(1, 1), (40, 64), (33, 65), (100_000, 8), (8, 100_000), (520, 72)]
)
def test_space_exists_for_any_extents(b, m, k, n):
    workload = Workload("bmm", "test", {"B": b, "M": m, "K": k, "N": n}, "bfloat16")
    assert KERNEL.space(workload).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = pairwise([c for shape in SHAPES for c in distinct_cases("bmm", **shape)])
    cases += pairwise(list(_strides()))
    assert {c["config"].get("SPLIT_K", 1) for c in cases} >= {1, 2}
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    shapes = [*SHAPES, {"B": 1, "M": 66, "K": 3, "N": 65}, {"B": 2, "M": 18, "K": 90, "N": 70}]
    cases = [c for shape in shapes for c in distinct_cases("bmm", **shape)]
    cases += _strides()
    assert not _problems(cases, interpret(cases))


def test_hopper_code_reads_as_wide_as_rows_allow(cross_compile):
    tile = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4, "num_stages": 3}
    even, odd = cross_compile(
        [
            _case({"B": 64, "M": 512, "K": 2048, "N": 1024}, LOADS="descriptors", **tile),
            _case({"B": 20, "M": 1500, "K": 1500, "N": 64}, SCHEDULE="persistent", **tile),
        ]
    )
    # One tensor of three extents each, so that tiles at the end do not reach into the next.
    assert "cp.async.bulk.tensor.3d" in even["ptx"]
    assert "wgmma.mma_async" in even["ptx"]
    # 1,500 elements are 8 bytes times something: A is read by 8 bytes, B by 16.
    copies = set(re.findall(r"cp\.async\.c[ag]\.shared\.global .*?, (0x\w+)", odd["ptx"]))
    assert copies == {"0x8", "0x10"}
    assert "wgmma.mma_async" in odd["ptx"]
