import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.rms_norm_backward import KERNEL, MOST_PROGRAMS
from kt_lab.workload import Workload

# One row and one column, rows past the end, several blocks per program, and masked blocks.
SHAPES = [
    {"M": 1, "N": 1},
    {"M": 5, "N": 37},
    {"M": 41, "N": 20},
    {"M": 9, "N": 2100},
    {"M": 8, "N": 4096},
]
_MANY = 20  # programs of a wave: more than one group of 16


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def _cases(distinct_cases):
    found = [c for shape in SHAPES for c in distinct_cases("rms_norm_backward", **shape)]
    return found + distinct_cases("rms_norm_backward", sms=_MANY, M=41, N=20)


def test_registry_returns_the_kernel():
    assert get_kernel("rms_norm_backward") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1300
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    m, n = workload.extents["M"], workload.extents["N"]
    assert KERNEL.bytes_moved(workload) == 6 * m * n + 4 * n + 4 * m


@pytest.mark.parametrize("m", [1, 7, 64, 1000])
@pytest.mark.parametrize("n", [1, 128, 5000, 200_000])
def test_space_exists_for_any_extents(m, n):
    workload = Workload("rms_norm_backward", "test", {"M": m, "N": n}, "bfloat16")
    space = KERNEL.space(workload)
    assert space.size >= 1
    assert max(space.parameters[space.names.index("GROUP")].values) == MOST_PROGRAMS


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = pairwise(_cases(distinct_cases), in_each_shape=True)
    paths = {
        (c["config"]["COMBINE"], c["config"]["GROUP"], c["config"]["BLOCK_N"] >= c["extents"]["N"])
        for c in cases
    }
    assert len(paths) == 8  # four ways to combine sums, in registers or in memory
    assert {c["config"]["PARTIAL"] for c in cases} == {"tile", "row"}
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    cases = _cases(distinct_cases)
    assert not _problems(cases, interpret(cases))


def test_hopper_code_adds_up_across_programs(cross_compile):
    plain = {"BLOCK_M": 1, "BLOCK_N": 4096, "WAVES": 1, "WEIGHT": "kept", "PARTIAL": "row"}
    case = {"kernel": "rms_norm_backward", "extents": {"M": 8192, "N": 4096}, "sms": 132}
    cases = [
        case | {"config": plain | {"COMBINE": c, "GROUP": g, "num_warps": 8, "num_stages": s}}
        for c, g, s in (("atomic", MOST_PROGRAMS, 3), ("tree", 16, 1))
    ]
    atomic, tree = cross_compile(cases)
    # Announced with release, read with acquire: the last program sees what all have stored.
    assert "atom.global.gpu.acq_rel.add" in atomic["ptx"]
    assert "atom.global.gpu.acq_rel.add" in tree["ptx"]
    assert ".relaxed.add.v4.f32" in atomic["ptx"]  # 16 bytes at a time
    assert ".f32" not in "".join(line for line in tree["ptx"].splitlines() if "atom." in line)
    assert "cp.async.cg.shared.global" in atomic["ptx"]  # only ever 16 bytes
    assert atomic["shared"] >= 2 * 2 * 4096 * 2  # two rows of x and grad in flight
