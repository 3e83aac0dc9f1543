import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.depthwise_conv import KERNEL
from kt_lab.workload import Workload

# Ragged rows, pixels and channels, filters larger than the image, two images.
SHAPES = [
    {"B": 1, "H": 5, "W": 2, "C": 3, "R": 3},
    {"B": 1, "H": 4, "W": 1, "C": 3, "R": 5},
    {"B": 2, "H": 1, "W": 1, "C": 17, "R": 1},
]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def test_registry_returns_the_kernel():
    assert get_kernel("depthwise_conv") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1300
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))


def test_bytes_and_operations_are_counted_once():
    extents = {"B": 2, "H": 3, "W": 4, "C": 5, "R": 3}
    workload = Workload("depthwise_conv", "test", extents, "float16")
    assert KERNEL.bytes_moved(workload) == 2 * (2 * (2 * 3 * 4 * 5) + 9 * 5)
    assert KERNEL.flops(workload) == 2 * (2 * 3 * 4 * 5) * 9


@pytest.mark.parametrize(("b", "h", "w"), [(1, 1, 1), (3, 17, 5), (1, 2000, 1), (256, 224, 224)])
@pytest.mark.parametrize("c", [1, 24, 1000])
@pytest.mark.parametrize("r", [1, 3, 5, 7, 31])
def test_space_exists_for_any_extents(b, h, w, c, r):
    extents = {"B": b, "H": h, "W": w, "C": c, "R": r}
    assert KERNEL.space(Workload("depthwise_conv", "test", extents, "float16")).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = pairwise([c for shape in SHAPES for c in distinct_cases("depthwise_conv", **shape)])
    paths = {(c["config"]["READ"], c["config"].get("FILTER")) for c in cases}
    assert len(paths) == 6  # two ways to read, two places of a small filter and one of a large
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    shapes = [*SHAPES, {"B": 2, "H": 5, "W": 4, "C": 20, "R": 3}]  # images that border
    cases = [c for shape in shapes for c in distinct_cases("depthwise_conv", **shape)]
    assert not _problems(cases, interpret(cases))


def test_hopper_code_reads_wide_and_marching_reads_each_row_once(cross_compile):
    plain = {"BLOCK_W": 16, "BLOCK_C": 64, "ROWS": 8, "FILTER": "registers", "num_warps": 4}
    cases = [
        {"kernel": "depthwise_conv", "extents": {"B": 128, "H": 56, "W": 56, "C": 144, "R": 3}}
        | {"config": plain | c, "sms": 132}
        for c in (
            {"READ": "gather", "num_stages": 1},
            {"READ": "march", "num_stages": 1},
            {"READ": "march", "num_stages": 3},
        )
    ]
    answers = cross_compile(cases)
    gather, march, ahead = (answer["ptx"].splitlines() for answer in answers)
    reads = [sum("ld.global.v4.b32" in line for line in lines) for lines in (gather, march)]
    assert reads == [9 + 9, 9 + 3]  # the filter once, and nine reads of a tile or three
    assert any("cp.async.cg.shared.global" in line for line in ahead)  # only ever 16 bytes
