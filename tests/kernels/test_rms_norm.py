import pytest

from kt_lab.kernels import device_module, get_kernel
from kt_lab.kernels.rms_norm import KERNEL
from kt_lab.kernels.rms_norm_dense import KERNEL as DENSE
from kt_lab.workload import Workload

# Short rows, one column, more row blocks than a wave, several masked blocks, and even ones.
SHAPES = [
    {"M": 5, "N": 37},
    {"M": 3, "N": 1},
    {"M": 140, "N": 600},
    {"M": 3, "N": 1100},
    {"M": 4, "N": 2048},
]
DENSE_SHAPES = [{"M": 133, "N": 300}, {"M": 3, "N": 512}]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def _cases(distinct_cases, kernel, shapes):
    """Many rows are slow to interpret: only where a program takes several."""
    found = [c for shape in shapes for c in distinct_cases(kernel, **shape)]
    return [c for c in found if c["extents"]["M"] < 100 or c["config"]["WAVES"] > 0]


def test_registry_returns_the_kernels():
    assert get_kernel("rms_norm") is KERNEL
    assert get_kernel("rms_norm_dense") is DENSE


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1300
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    m, n = workload.extents["M"], workload.extents["N"]
    assert KERNEL.bytes_moved(workload) == 4 * m * n + 2 * n


def test_dense_space_is_dense():
    (workload,) = DENSE.workloads
    space = DENSE.space(workload)
    assert 20_000 <= space.size <= 24_000
    assert space.enumerable
    assert set(KERNEL.space(workload).names) < set(space.names)


@pytest.mark.parametrize("kernel", ["rms_norm", "rms_norm_dense"])
@pytest.mark.parametrize("m", [1, 7, 64, 1000])
@pytest.mark.parametrize("n", [1, 128, 5000, 200_000])
def test_space_exists_for_any_extents(kernel, m, n):
    workload = Workload(kernel, "test", {"M": m, "N": n}, "bfloat16")
    assert get_kernel(kernel).space(workload).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = pairwise(_cases(distinct_cases, "rms_norm", SHAPES), in_each_shape=True)
    configs = [c["config"] for c in cases]
    assert {(c["WAVES"] > 0, c["WEIGHT"]) for c in configs} == {
        (False, "early"),
        (False, "late"),
        (True, "early"),
        (True, "late"),
        (True, "kept"),
    }
    whole = {(c["config"]["BLOCK_N"] >= c["extents"]["N"], c["config"]["PARTIAL"]) for c in cases}
    assert whole == {(True, "tile"), (False, "tile"), (False, "row")}
    assert not _problems(cases, interpret(cases))


def test_dense_paths_agree_with_the_reference(interpret, distinct_cases, pairwise):
    cases = pairwise(_cases(distinct_cases, "rms_norm_dense", DENSE_SHAPES), in_each_shape=True)[
        ::2
    ]
    assert any(c["config"]["WAVES"] and c["config"]["BLOCK_N"] < c["extents"]["N"] for c in cases)
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["rms_norm", "rms_norm_dense"])
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases, kernel):
    shapes = [*SHAPES, *DENSE_SHAPES, {"M": 1100, "N": 3}]
    cases = [c for shape in shapes for c in distinct_cases(kernel, **shape)]
    assert not _problems(cases, interpret(cases))


def test_dense_kernel_is_the_same_device_code():
    workload = DENSE.workloads[0]
    config = DENSE.space(workload).default
    plain, dense = (device_module(name) for name in ("rms_norm", "rms_norm_dense"))
    a, b = (m.plan(m.fake_inputs(workload), workload, config, sms=132) for m in (plain, dense))
    assert (a.fn, a.grid, a.constexprs) == (b.fn, b.grid, b.constexprs)


def test_hopper_code_reads_sixteen_bytes_at_a_time(cross_compile):
    plain = {"BLOCK_M": 1, "WAVES": 0, "WEIGHT": "early", "PARTIAL": "tile", "EVICTION": ""}
    once = {
        "kernel": "rms_norm",
        "extents": {"M": 8192, "N": 4096},
        "config": plain | {"BLOCK_N": 4096, "num_warps": 8, "num_stages": 1},
        "sms": 132,
    }
    ahead = {
        "kernel": "rms_norm",
        "extents": {"M": 4096, "N": 7168},
        "config": plain
        | {"WAVES": 2, "WEIGHT": "kept", "BLOCK_N": 8192, "num_warps": 8, "num_stages": 3},
        "sms": 132,
    }
    direct, prefetched = cross_compile([once, ahead])
    loads = [line for line in direct["ptx"].splitlines() if "ld.global" in line]
    assert loads
    assert all(".v4.b32" in line for line in loads)
    assert "cp.async.cg.shared.global" in prefetched["ptx"]  # only ever 16 bytes
    assert prefetched["shared"] >= 2 * 8192 * 2  # two rows of bfloat16 in flight
