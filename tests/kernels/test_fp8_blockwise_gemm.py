import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.fp8_blockwise_gemm import KERNEL
from kt_lab.workload import Workload

SHAPES = [
    {"M": 3, "K": 259, "N": 44},  # nothing for descriptors
    {"M": 17, "K": 144, "N": 72},
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
    return [
        case | {"config": case["config"] | {"SCHEDULE": schedule}}
        for case in cases
        for schedule in ("persistent", "flattened")
        if "SCHEDULE" in case["config"]
        and (schedule == "persistent" or case["config"]["LOADS"] == "descriptors")
    ]


def test_registry_returns_the_kernel():
    assert get_kernel("fp8_blockwise_gemm") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1300
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))


@pytest.mark.parametrize("m", [1, 15, 16, 17, 256, 257, 5000])
@pytest.mark.parametrize(("k", "n"), [(1, 1), (64, 40), (200, 65), (65536, 32), (32, 300_000)])
def test_space_exists_for_any_extents(m, k, n):
    workload = Workload("fp8_blockwise_gemm", "test", {"M": m, "K": k, "N": n}, "float8_e4m3fn")
    assert KERNEL.space(workload).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = [c for shape in SHAPES for c in distinct_cases("fp8_blockwise_gemm", **shape)]
    # One height of tiles where there are many rows; the exhaustive test has them all.
    cases = [c for c in cases + _walked(cases) if c["config"].get("BLOCK_M") not in (64, 256)]
    cases = pairwise(cases)
    configs = [c["config"] for c in cases]
    assert {(c["SCALES"], c["LOADS"]) for c in configs} == {
        (scales, loads) for scales in ("now", "ahead") for loads in ("pointers", "descriptors")
    }
    assert {c.get("SCHEDULE") for c in configs} == {None, "tiles", "persistent", "flattened"}
    assert {("ab", True), ("ba", True)} <= {
        (c.get("ORDER"), c.get("SPLIT_K", 1) > 1) for c in configs
    }
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    cases = [
        c for shape in SHAPES + MORE_SHAPES for c in distinct_cases("fp8_blockwise_gemm", **shape)
    ]
    cases += _walked(cases)
    assert not _problems(cases, interpret(cases))


def test_reference_is_what_was_quantised(without_gpu):
    program = (
        "import torch\n"
        "from kt_lab.kernels import device_module\n"
        "from kt_lab.workload import Workload\n"
        "module = device_module('fp8_blockwise_gemm')\n"
        "extents = {'M': 5, 'K': 300, 'N': 140}\n"
        "workload = Workload('fp8_blockwise_gemm', 'test', extents, 'float8_e4m3fn')\n"
        "inputs = module.make_inputs(workload, device='cpu', seed=0)\n"
        "a, b = inputs['a'].double(), inputs['b'].double()\n"
        "assert inputs['scales_a'].shape == (3, 5) and inputs['scales_b'].shape == (2, 3)\n"
        "i, j = 4, 130\n"
        "terms = [a[i, k] * inputs['scales_a'][k // 128, i].double()\n"
        "         * b[j, k] * inputs['scales_b'][j // 128, k // 128].double()\n"
        "         for k in range(300)]\n"
        "expected = module.reference(inputs, workload)[i, j]\n"
        "assert torch.isclose(sum(terms), expected, rtol=1e-12), (sum(terms), expected)\n"
        "for name in ('a', 'b'):\n"
        "    assert inputs[name].double().abs().max() == 448\n"
        "run, name = module.baseline(inputs, workload)\n"
        "assert name.endswith('(dequantised operands)'), name\n"
        "assert torch.allclose(run().double(), module.reference(inputs, workload), atol=0.05)\n"
    )
    without_gpu(program)


def test_hopper_code_promotes_every_block_of_128(cross_compile):
    config = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "GROUP_M": 8, "SCHEDULE": "tiles"}
    config |= {"SCALES": "ahead", "num_warps": 8, "num_stages": 4}
    cases = [
        {
            "kernel": "fp8_blockwise_gemm",
            "extents": {"M": 4096, "K": 7168, "N": 4096},
            "config": config | {"LOADS": loads},
            "sms": 132,
        }
        for loads in ("pointers", "descriptors")
    ]
    for answer, copy in zip(
        cross_compile(cases),
        ("cp.async.cg.shared.global", "cp.async.bulk.tensor.2d.shared"),
        strict=True,
    ):
        ptx = answer["ptx"]
        # Four instructions of 32 make one block of 128, which is then added in float32.
        assert ptx.count("wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3") == 4
        assert ptx.count("fma.rn.f32") >= 64
        assert copy in ptx
