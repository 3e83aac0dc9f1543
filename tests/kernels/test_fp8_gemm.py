import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.fp8_gemm import KERNEL, max_split
from kt_lab.workload import Workload

SHAPES = [
    {"M": 3, "K": 387, "N": 44},  # nothing for descriptors
    {"M": 17, "K": 272, "N": 72},
    {"M": 257, "K": 144, "N": 136},  # ends just inside the second tile, scale and half
]
MORE_SHAPES = [
    {"M": 16, "K": 1040, "N": 136},
    {"M": 33, "K": 784, "N": 72},
    {"M": 257, "K": 208, "N": 264},
    {"M": 300, "K": 100, "N": 130},
]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def _walked(cases):
    """Returns persistent variants on two multiprocessors: no small shape has that many tiles."""
    found = []
    for case in cases:
        config, changes = case["config"], []
        if config.get("SCHEDULE") == "tiles":
            changes.append({"SCHEDULE": "persistent"})
            if config["LOADS"] == "descriptors":
                changes.append({"SCHEDULE": "flattened"})
            if config["LOADS"] == "descriptors" and config["BLOCK_N"] == 256:
                changes += [c | {"EPILOGUE": "halves"} for c in list(changes)]
        found += [case | {"config": config | change} for change in changes]
    return found


def test_registry_returns_the_kernel():
    assert get_kernel("fp8_gemm") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1300
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    if "SPLIT_K" in space.names:
        split = space.parameters[space.names.index("SPLIT_K")]
        assert max(split.values) == max_split(workload)


@pytest.mark.parametrize("m", [1, 15, 16, 17, 256, 257, 5000])
@pytest.mark.parametrize(("k", "n"), [(1, 1), (64, 40), (200, 65), (65536, 32), (32, 300_000)])
def test_space_exists_for_any_extents(m, k, n):
    workload = Workload("fp8_gemm", "test", {"M": m, "K": k, "N": n}, "float8_e4m3fn")
    assert KERNEL.space(workload).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = [c for shape in SHAPES for c in distinct_cases("fp8_gemm", **shape)]
    # One height of tiles where there are many rows; the exhaustive test has them all.
    cases = [c for c in cases + _walked(cases) if c["config"].get("BLOCK_M") not in (64, 256)]
    cases = pairwise(cases)
    configs = [c["config"] for c in cases]
    assert {c["LOADS"] for c in configs} == {"pointers", "descriptors"}
    assert {(c.get("SCHEDULE"), c.get("EPILOGUE")) for c in configs} >= {
        ("tiles", "whole"),
        ("persistent", "halves"),
        ("flattened", "whole"),
        ("flattened", "halves"),
    }
    assert {(c.get("ORDER"), c.get("SPLIT_K", 1) > 1) for c in configs} >= {
        ("ab", False),
        ("ab", True),
        ("ba", True),
    }
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    cases = [c for shape in SHAPES + MORE_SHAPES for c in distinct_cases("fp8_gemm", **shape)]
    cases += _walked(cases)
    assert not _problems(cases, interpret(cases))


def test_hopper_code_multiplies_fp8_in_its_tensor_cores(cross_compile):
    many = {
        "kernel": "fp8_gemm",
        "extents": {"M": 4096, "K": 4096, "N": 4096},
        "config": {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 128, "GROUP_M": 8}
        | {"SCHEDULE": "flattened", "EPILOGUE": "halves", "LOADS": "descriptors"}
        | {"num_warps": 8, "num_stages": 4},
        "sms": 132,
    }
    few = {
        "kernel": "fp8_gemm",
        "extents": {"M": 16, "K": 14336, "N": 4096},
        "config": {"BLOCK_N": 64, "BLOCK_K": 128, "SPLIT_K": 4, "LOADS": "pointers"}
        | {"num_warps": 4, "num_stages": 4},
        "sms": 132,
    }
    orders = [few | {"config": few["config"] | {"ORDER": order}} for order in ("ab", "ba")]
    wide, halves, whole = cross_compile([many, *orders])
    assert "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3" in wide["ptx"]
    assert "cp.async.bulk.tensor.2d.shared" in wide["ptx"]  # read ...
    assert "cp.async.bulk.tensor.2d.global.shared" in wide["ptx"]  # ... and written by TMA
    assert 4 * 384 * 128 + 128 * 128 * 2 <= wide["shared"] <= 227 * 1024
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in halves["ptx"]
    assert "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3" in whole["ptx"]
    for code in (halves, whole):
        assert "cp.async.cg.shared.global" in code["ptx"]  # only ever 16 bytes
