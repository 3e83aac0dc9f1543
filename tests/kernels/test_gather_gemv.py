import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.gather_gemv import KERNEL, max_split
from kt_lab.workload import Workload

# Shares of unequal length, ragged rows and columns, more choices than experts, one element.
SHAPES = [
    {"E": 3, "T": 2, "N": 3, "K": 1040},
    {"E": 2, "T": 3, "N": 5, "K": 519},
    {"E": 1, "T": 1, "N": 1, "K": 1},
]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def test_registry_returns_the_kernel():
    assert get_kernel("gather_gemv") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1300
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    assert max(space.parameters[space.names.index("SPLIT_K")].values) == max_split(workload)


def test_bytes_are_those_of_the_chosen_experts():
    workload = Workload("gather_gemv", "test", {"E": 9, "T": 2, "N": 3, "K": 5}, "bfloat16")
    assert KERNEL.bytes_moved(workload) == 2 * 3 * 5 + 2 * 5 + 2 * (2 * 3) + 8 * 2


@pytest.mark.parametrize(("e", "t"), [(1, 1), (8, 2), (4, 9)])
@pytest.mark.parametrize("n", [1, 33, 20_000])
@pytest.mark.parametrize("k", [1, 512, 5001, 100_000])
def test_space_exists_for_any_extents(e, t, n, k):
    extents = {"E": e, "T": t, "N": n, "K": k}
    assert KERNEL.space(Workload("gather_gemv", "test", extents, "bfloat16")).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = pairwise([c for shape in SHAPES for c in distinct_cases("gather_gemv", **shape)])
    paths = {(c["config"]["SPLIT_K"] > 1, c["config"]["SUM"]) for c in cases}
    assert len(paths) == 4
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    cases = [c for shape in SHAPES for c in distinct_cases("gather_gemv", **shape)]
    assert not _problems(cases, interpret(cases))


def test_hopper_code_reads_sixteen_weights_at_a_time(cross_compile):
    plain = {"BLOCK_N": 8, "BLOCK_K": 512, "SPLIT_K": 2, "SUM": "late", "num_warps": 4}
    cases = [
        {"kernel": "gather_gemv", "extents": {"E": 8, "T": 2, "N": 14336, "K": 4096}}
        | {"config": plain | {"num_stages": stages}, "sms": 132}
        for stages in (1, 3)
    ]
    direct, pipelined = cross_compile(cases)
    assert "ld.global.L1::evict_first.L2::cache_hint.v4.b32" in direct["ptx"]
    assert "atom.global.gpu.acq_rel.add" in direct["ptx"]  # the last one sees the others' stores
    assert "cp.async.cg.shared.global" in pipelined["ptx"]  # only ever 16 bytes
    assert pipelined["shared"] >= 2 * 8 * 512  # two tiles of weights in flight
