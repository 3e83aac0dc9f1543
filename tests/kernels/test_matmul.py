import itertools
import re

import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.matmul import KERNEL
from kt_lab.kernels.matmul_nested import INNER, inner
from kt_lab.kernels.matmul_nested import KERNEL as NESTED
from kt_lab.workload import Workload

# Bound by arithmetic, by reading B (split), by reading A; rows that descriptors may not describe.
SHAPES = [
    {"M": 100, "K": 40, "N": 136},
    {"M": 7, "K": 136, "N": 72},
    {"M": 20, "K": 75, "N": 70},
    {"M": 130, "K": 45, "N": 37},
]
PERSISTENT = {
    "GROUP_M": (1, 2),
    "SCHEDULE": ("tiles", "persistent", "flattened"),
    "LOADS": ("pointers", "descriptors"),
    "EPILOGUE": ("whole", "halves"),
}
SQUARE = {"M": 4096, "K": 4096, "N": 4096}


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def _strides():
    """Three rows and two columns of small tiles for two programs, however they are scheduled."""
    tile = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2}
    for values in itertools.product(*PERSISTENT.values()):
        config = dict(zip(PERSISTENT, values, strict=True)) | tile
        extents = {"M": 40, "K": 40, "N": 56}
        yield {"kernel": "matmul", "extents": extents, "config": config, "sms": 2}


def _case(extents, **config):
    return {"kernel": "matmul", "extents": extents, "config": config, "sms": 132}


def test_registry_returns_the_kernels():
    assert get_kernel("matmul") is KERNEL
    assert get_kernel("matmul_nested") is NESTED


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1300
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    rows = space.enumerate()
    for parameter, column in zip(space.parameters, rows.T, strict=True):
        assert len(set(column)) == parameter.cardinality, parameter.name  # no value for show


def test_descriptors_are_proposed_only_where_rows_are_multiples_of_sixteen_bytes():
    spaces = {w.name: KERNEL.space(w) for w in KERNEL.workloads}
    assert "LOADS" in spaces["4096x4096x4096"].names
    assert "LOADS" not in spaces["2048x768x30522"].names


@pytest.mark.parametrize("m", [1, 17, 64, 65, 1000])
@pytest.mark.parametrize(
    ("k", "n"), [(1, 1), (40, 64), (33, 65), (100_000, 8), (8, 100_000), (520, 72)]
)
def test_spaces_exist_for_any_extents(m, k, n):
    for kernel in (KERNEL, NESTED):
        workload = Workload(kernel.name, "test", {"M": m, "K": k, "N": n}, "bfloat16")
        assert kernel.space(workload).size >= 1


def test_the_nested_space_holds_one_of_a_tenth_in_which_fewer_axes_vary():
    outer = NESTED.space(NESTED.workloads[0])
    within = inner(outer)
    assert 8000 <= outer.size <= 12000
    assert 900 <= within.size <= 1100
    for config in within.configs(within.enumerate()):
        assert outer.contains(config)
        assert INNER.items() <= config.items()
    # Values are fixed, not removed: axes are the same ones, and INNER takes their first values.
    firsts = {p.name: p.values[0] for p in outer.parameters if p.name in INNER}
    assert firsts == INNER
    free = [i for i, p in enumerate(outer.parameters) if p.name not in INNER]
    for i in free:
        assert set(within.enumerate()[:, i]) == set(outer.enumerate()[:, i])
    assert within.contains(outer.default)


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = pairwise([c for shape in SHAPES for c in distinct_cases("matmul", **shape)])
    cases += pairwise(list(_strides()))
    cases += [c | {"kernel": "matmul_nested"} for c in cases[-1:]]
    assert {c["config"].get("ORDER") for c in cases} == {None, "ab", "ba"}
    assert {c["config"].get("SPLIT_K", 1) for c in cases} >= {1, 2}
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    shapes = [*SHAPES, {"M": 66, "K": 1, "N": 65}, {"M": 200, "K": 30, "N": 90}]
    cases = [c for shape in shapes for c in distinct_cases("matmul", **shape)]
    cases += _strides()
    assert not _problems(cases, interpret(cases))


def test_hopper_code_multiplies_with_wgmma_whatever_the_loads(cross_compile):
    tile = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}
    tile |= {"EPILOGUE": "halves", "num_warps": 8, "num_stages": 4}
    few = {"BLOCK_N": 128, "BLOCK_K": 64, "SPLIT_K": 4, "LOADS": "pointers"}
    few |= {"num_warps": 4, "num_stages": 3}
    skinny = {"M": 16, "K": 8192, "N": 28672}
    plain, described, straight, swapped = cross_compile(
        [
            _case(SQUARE, SCHEDULE="tiles", LOADS="pointers", **tile),
            _case(SQUARE, SCHEDULE="flattened", LOADS="descriptors", **tile),
            _case(skinny, ORDER="ab", **few),
            _case(skinny, ORDER="ba", **few),
        ]
    )
    loop = 4 * 2 * 64 * (128 + 256)
    assert "wgmma.mma_async" in plain["ptx"]
    assert "cp.async.cg.shared.global" in plain["ptx"]  # only ever 16 bytes
    assert plain["shared"] == loop  # what the constraint shared_fits says
    assert "wgmma.mma_async" in described["ptx"]
    assert "cp.async.bulk.tensor" in described["ptx"]
    assert "cp.async.c" not in described["ptx"].replace("cp.async.commit_group", "")
    assert loop < described["shared"] <= loop + 128 * 128 * 2 + 256  # half a tile is stored
    # Sixteen rows do not fill wgmma; columns in their place do.
    assert "wgmma" not in straight["ptx"]
    assert re.search(r"wgmma\.mma_async\S*m64n16k16", swapped["ptx"])
    assert "atom.global.gpu.acq_rel.add" in swapped["ptx"]  # the last sees the others' stores
