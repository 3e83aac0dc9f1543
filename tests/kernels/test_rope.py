import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.rope import KERNEL
from kt_lab.workload import Workload

# Ragged tokens, heads and head elements; a head of two elements; one of everything.
SHAPES = [
    {"B": 1, "S": 3, "H": 6, "HK": 3, "D": 24},
    {"B": 3, "S": 1, "H": 3, "HK": 1, "D": 64},
    {"B": 1, "S": 1, "H": 1, "HK": 1, "D": 2},
]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def test_registry_returns_the_kernel():
    assert get_kernel("rope") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1350
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))


def test_bytes_are_the_turned_heads_and_what_says_how():
    workload = Workload("rope", "test", {"B": 1, "S": 1, "H": 3, "HK": 1, "D": 8}, "bfloat16")
    assert KERNEL.bytes_moved(workload) == 2 * (4 * 8 * 2) + 2 * (4 * 2) + 8


@pytest.mark.parametrize(("b", "s"), [(1, 1), (3, 5), (1, 100_000), (4096, 1)])
@pytest.mark.parametrize(("h", "hk", "d"), [(1, 1, 2), (71, 1, 64), (128, 8, 576), (8, 8, 48)])
def test_space_exists_for_any_extents(b, s, h, hk, d):
    extents = {"B": b, "S": s, "H": h, "HK": hk, "D": d}
    assert KERNEL.space(Workload("rope", "test", extents, "bfloat16")).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = pairwise([c for shape in SHAPES for c in distinct_cases("rope", **shape)])
    paths = {tuple(c["config"][p] for p in ("ROTATE", "FIRST")) for c in cases}
    assert len(paths) == 4
    assert {c["config"]["TRIPS"] for c in cases} == {1, 2, 4, 8}
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    cases = [c for shape in SHAPES for c in distinct_cases("rope", **shape)]
    assert not _problems(cases, interpret(cases))


def test_hopper_code_moves_sixteen_bytes_at_a_time(cross_compile):
    plain = {"BLOCK_T": 2, "BLOCK_H": 8, "FIRST": "heads", "num_warps": 4}
    cases = [
        {"kernel": "rope", "extents": dict(zip(("B", "S", "H", "HK", "D"), e, strict=True))}
        | {"config": plain | c, "sms": 132}
        for e, c in (
            ((1, 4096, 32, 8, 128), {"ROTATE": "halves", "TRIPS": 1, "num_stages": 1}),
            ((1, 4096, 32, 32, 96), {"ROTATE": "partner", "TRIPS": 1, "num_stages": 1}),
            ((1, 4096, 32, 8, 128), {"ROTATE": "halves", "TRIPS": 4, "num_stages": 2}),
        )
    ]
    halves, partner, pipelined = cross_compile(cases)
    for compiled in (halves, partner):  # masked heads of 96 elements keep vectors
        lines = compiled["ptx"].splitlines()
        assert all(".v4.b32" in line for line in lines if "st.global" in line)
        assert sum("ld.global" in line and ".v4.b32" in line for line in lines) >= 2
    assert "cp.async.cg.shared.global" in pipelined["ptx"]
