import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.embedding_backward import KERNEL, distinct_tokens, frequencies
from kt_lab.workload import Workload

# Few tokens, so that tiles are full of equal ones; ragged rows and columns; one element.
SHAPES = [
    {"V": 5, "T": 37, "D": 200},
    {"V": 100, "T": 16, "D": 64},
    {"V": 1, "T": 1, "D": 1},
]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def test_registry_returns_the_kernel():
    assert get_kernel("embedding_backward") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1300
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    v, t, _ = workload.extents.values()
    assert 1 < distinct_tokens(workload) < min(v, t)


def test_tokens_follow_the_law_and_bytes_count_each_once():
    likely = frequencies(3)
    assert likely.sum() == pytest.approx(1.0)
    assert likely[0] / likely[2] == pytest.approx(5.7 / 3.7)
    one = Workload("embedding_backward", "test", {"V": 1, "T": 7, "D": 4}, "bfloat16")
    assert distinct_tokens(one) == 1.0
    assert KERNEL.bytes_moved(one) == 2 * 7 * 4 + 8 * 7 + 4 * 4
    many = Workload("embedding_backward", "test", {"V": 2, "T": 10_000, "D": 4}, "bfloat16")
    assert distinct_tokens(many) == pytest.approx(2.0)


@pytest.mark.parametrize("v", [1, 50257])
@pytest.mark.parametrize("t", [1, 7, 1000, 1_000_000])
@pytest.mark.parametrize("d", [1, 128, 5001])
def test_space_exists_for_any_extents(v, t, d):
    workload = Workload("embedding_backward", "test", {"V": v, "T": t, "D": d}, "bfloat16")
    assert KERNEL.space(workload).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = pairwise(
        [c for shape in SHAPES for c in distinct_cases("embedding_backward", **shape)]
    )
    paths = {(c["config"]["COMBINE"], c["config"]["TRIPS"] > 1) for c in cases}
    assert len(paths) == 4
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    cases = [c for shape in SHAPES for c in distinct_cases("embedding_backward", **shape)]
    assert not _problems(cases, interpret(cases))


def test_hopper_code_adds_four_at_a_time_and_combines_on_tensor_cores(cross_compile):
    plain = {"FIRST": "columns", "num_warps": 4}
    cases = [
        {"kernel": "embedding_backward", "extents": {"V": 50257, "T": 16384, "D": 768}}
        | {"config": plain | c, "sms": 132}
        for c in (
            {"COMBINE": "none", "BLOCK_T": 4, "BLOCK_D": 256, "TRIPS": 1, "num_stages": 1},
            {"COMBINE": "tile", "BLOCK_T": 64, "BLOCK_D": 128, "TRIPS": 4, "num_stages": 2},
        )
    ]
    alone, combined = cross_compile(cases)
    for compiled in (alone, combined):
        adds = [line for line in compiled["ptx"].splitlines() if "relaxed.add" in line]
        assert adds
        assert all("global.gpu.relaxed.add.v4.f32" in line for line in adds)
    assert "mma" not in alone["ptx"]
    assert "wgmma.mma_async" in combined["ptx"]
    assert "cp.async.cg.shared.global" in combined["ptx"]  # only ever 16 bytes
