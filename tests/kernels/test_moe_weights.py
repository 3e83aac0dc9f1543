import pytest

from kt_lab.kernels import get_kernel
from kt_lab.workload import Workload

NAMES = ("moe_weights_atomic", "moe_weights_cast", "moe_weights_reduction")
# Bytes of a bfloat16 weight that must be moved; torchao counts 5 for both ways.
BYTES = {"moe_weights_atomic": 2, "moe_weights_cast": 3, "moe_weights_reduction": 5}
# Ragged against every tile; odd rows and scales that are no powers of two.
SHAPES = [
    {"E": 2, "N": 53, "K": 40},
    {"E": 1, "N": 131, "K": 33, "ROUND": 1},
]
MORE_SHAPES = [
    {"E": 1, "N": 1, "K": 1},
    {"E": 1, "N": 270, "K": 96, "ROUND": 1},
    {"E": 3, "N": 40, "K": 24},
]


# Of a weight while a workload is recorded: it, the output, its guarded copy and the reference, and
# torch's way with two products in float32. An H200 has 141 GB.
PEAK_BYTES = 2 + 1 + 1 + 1 + 4 + 4 + 2


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


@pytest.mark.parametrize("name", NAMES)
def test_spaces_are_worth_searching_and_recordable(name):
    kernel = get_kernel(name)
    assert kernel.name == name
    assert kernel.rtol == kernel.atol == 0
    for workload in kernel.workloads:
        e, n, k = workload.extents.values()
        space = kernel.space(workload)
        assert 500 <= space.size <= 1300
        assert workload.name == f"{e}x{n}x{k}"
        assert kernel.bytes_moved(workload) == BYTES[name] * e * n * k + 4 * e * k
        assert PEAK_BYTES * e * n * k <= 100 * 2**30


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("e", [1, 130])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 70_000), (70_000, 5), (1000, 1408)])
def test_spaces_exist_for_any_extents(name, e, n, k):
    workload = Workload(name, "test", {"E": e, "N": n, "K": k}, "bfloat16")
    assert get_kernel(name).space(workload).size >= 36


def _cases(name, distinct_cases, pairwise):
    cases = pairwise(distinct_cases(name, **SHAPES[0]))
    cases += [c | {"dtype": "float32"} for c in cases[:4]]
    cases += [c | {"extents": MORE_SHAPES[0]} for c in cases[4:6]]
    cases += pairwise(distinct_cases(name, **SHAPES[1]))[::6]
    loops = {c["config"].get("TRIPS", 2) > 1 for c in cases}
    assert loops == ({True} if name == "moe_weights_reduction" else {True, False})
    return cases


def test_every_path_gives_the_bits_of_the_reference(interpret, distinct_cases, pairwise):
    cases = [c for name in NAMES for c in _cases(name, distinct_cases, pairwise)]
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_distinct_config_gives_the_bits_of_the_reference(name, interpret, distinct_cases):
    cases = [c for shape in SHAPES + MORE_SHAPES for c in distinct_cases(name, **shape)]
    assert not _problems(cases, interpret(cases))


def test_hopper_code_moves_vectors_and_orders_atomics_as_asked(cross_compile):
    at = {"extents": {"E": 16, "N": 8192, "K": 5120}, "sms": 132}
    wide = {"BLOCK_N": 128, "BLOCK_K": 128, "TRIPS": 1, "FIRST": "experts"}
    warps = {"num_warps": 4, "num_stages": 4}
    atomic = at | {"kernel": "moe_weights_atomic"}
    pair = [atomic | {"config": wide | {"SEM": s} | warps} for s in ("relaxed", "acq_rel")]
    looped = at | {
        "kernel": "moe_weights_cast",
        "config": wide
        | {"TRIPS": 4, "BLOCK_K": 64, "EVICTION": "", "num_warps": 8}
        | {"num_stages": 3},
    }
    relaxed, fenced, cast = cross_compile([*pair, looped])
    assert ".min.s32" in relaxed["ptx"]  # of positive numbers, as integers
    assert "acq_rel" not in relaxed["ptx"]
    assert "atom.global.gpu.acq_rel.min.s32" in fenced["ptx"]
    assert "cp.async.cg.shared.global" in cast["ptx"]  # only ever 16 bytes
    stores = [line for line in cast["ptx"].splitlines() if "st.global" in line]
    assert stores
    assert all(".v4.b32" in line for line in stores)
