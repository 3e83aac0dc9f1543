import pytest

from kt_lab.errors import UnknownName, UsageError
from kt_lab.kernels import get_kernel, get_workload, workload_of_shape, workloads
from kt_lab.kernels.int4_gemm import KERNEL, max_split
from kt_lab.workload import Workload

SHAPES = [
    {"B": 1, "M": 1, "K": 256, "N": 40},
    {"B": 1, "M": 3, "K": 72, "N": 40},
    {"B": 1, "M": 16, "K": 144, "N": 136},
    {"B": 1, "M": 17, "K": 136, "N": 72},
    {"B": 1, "M": 257, "K": 72, "N": 136},
]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def test_registry_knows_its_workloads():
    assert get_kernel("int4_gemm") is KERNEL
    assert get_workload("int4_gemm/1x1x7168x8192") is KERNEL.workloads[0]
    assert set(workloads("int4_gemm")) < set(workloads())
    with pytest.raises(UnknownName, match="1x16x7168x8192"):
        get_workload("int4_gemm/1x15x7168x8192")


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 1000 <= space.size <= 3000
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    assert max(space.parameters[space.names.index("SPLIT_K")].values) == max_split(workload)


@pytest.mark.parametrize("m", [1, 15, 16, 17, 256, 257, 4096])
@pytest.mark.parametrize(("k", "n"), [(2, 4), (64, 40), (65536, 32), (32, 65536)])
def test_space_exists_for_any_extents(m, k, n):
    workload = Workload("int4_gemm", "test", {"B": 1, "M": m, "K": k, "N": n}, "bfloat16")
    assert KERNEL.space(workload).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = pairwise(
        [c for shape in SHAPES for c in distinct_cases("int4_gemm", **shape)], in_each_shape=True
    )
    paths = {
        (c["config"].get("BLOCK_M", 16) == 1, c["config"]["UNPACK"], c["config"]["SPLIT_K"] > 1)
        for c in cases
    }
    assert len(paths) == 8  # tensor cores or not, both ways to unpack, split or not
    assert {c["config"].get("GROUP_M") for c in cases} == {None, 1, 8}
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    cases = [c for shape in SHAPES for c in distinct_cases("int4_gemm", **shape)]
    assert not _problems(cases, interpret(cases))


def test_hopper_code_reads_sixteen_bytes_at_a_time(cross_compile):
    fma = {
        "kernel": "int4_gemm",
        "extents": {"B": 1, "M": 1, "K": 7168, "N": 8192},
        "config": {"BLOCK_M": 1, "BLOCK_N": 256, "BLOCK_K": 32, "SPLIT_K": 8, "UNPACK": "magic"}
        | {"EVICTION": "", "num_warps": 4, "num_stages": 1},
        "sms": 132,
    }
    dot = {
        "kernel": "int4_gemm",
        "extents": {"B": 1, "M": 2048, "K": 2048, "N": 2048},
        "config": {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "SPLIT_K": 1, "GROUP_M": 8}
        | {"UNPACK": "shift", "num_warps": 8, "num_stages": 3},
        "sms": 132,
    }
    plain, tensor = cross_compile([fma, dot])
    assert "ld.global.v4.b32" in plain["ptx"]
    assert "mma" not in plain["ptx"]
    assert "atom.global.gpu.acq_rel.add" in plain["ptx"]  # the last split sees the others' stores
    assert "cp.async.cg.shared.global" in tensor["ptx"]  # only ever 16 bytes
    assert "wgmma.mma_async" in tensor["ptx"]


@pytest.mark.parametrize(
    "shape", ["4x16x4096x4096", "1x16x4095x4096", "1x16x4096x4098", "1x40960x4096x32768"]
)
def test_shapes_that_it_does_not_compute_are_refused(shape):
    with pytest.raises(UsageError, match=f"must have B = 1, an even K.* got int4_gemm/{shape}"):
        KERNEL.space(workload_of_shape(f"int4_gemm/{shape}"))
