import re

import pytest

from kt_lab.errors import UsageError
from kt_lab.kernels import get_kernel
from kt_lab.kernels.grouped_gemm import KERNEL
from kt_lab.kernels.moe_groups import EQUAL, HEAVY, ONE_HOT, RAGGED, SKEWS, SPARSE
from kt_lab.workload import Workload


def _extents(*values):
    return dict(zip(("T", "K", "N", "E", "SKEW"), values, strict=True))


# Groups of no multiples, few tokens each and many; every other one empty, nothing for descriptors.
SHAPES = [
    _extents(90, 72, 136, 4, RAGGED),
    _extents(200, 72, 136, 3, RAGGED),
    _extents(90, 44, 50, 5, SPARSE),
]
MORE_SHAPES = [
    _extents(300, 136, 200, 3, RAGGED),
    _extents(1, 1, 1, 1, EQUAL),
    _extents(300, 37, 33, 3, ONE_HOT),
    _extents(150, 264, 72, 9, HEAVY),
    _extents(520, 72, 330, 2, RAGGED),
]
MANY_EXPERTS = _extents(40, 16, 16, 2500, RAGGED)  # more than are counted at once


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def _walked(cases):
    """Returns persistent variants on two multiprocessors: no small shape has that many tiles."""
    return [
        case | {"config": case["config"] | {"SCHEDULE": schedule}}
        for case in cases
        for schedule in ("persistent", "flattened")
        if schedule == "persistent" or case["config"].get("LOADS") == "descriptors"
    ]


def _case(extents, **config):
    return {"kernel": "grouped_gemm", "extents": extents, "config": config, "sms": 132}


def test_registry_returns_the_kernel():
    assert get_kernel("grouped_gemm") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 700 <= space.size <= 1500
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    t, k, n, experts, _ = workload.extents.values()
    assert KERNEL.flops(workload) == 2 * t * k * n
    assert KERNEL.bytes_moved(workload) <= 8e9
    # All experts of these have tokens.
    traffic = 2 * (t * k + experts * n * k + t * n)
    assert KERNEL.bytes_moved(workload) == traffic + 4 * (experts + 1)


def test_weights_of_experts_without_tokens_are_not_read():
    workload = Workload("grouped_gemm", "test", _extents(64, 16, 24, 9, ONE_HOT), "bfloat16")
    assert KERNEL.bytes_moved(workload) == 2 * (64 * 16 + 16 * 24 + 64 * 24) + 40


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize(("t", "experts"), [(1, 1), (5, 300), (1000, 8), (5000, 70), (65, 1)])
@pytest.mark.parametrize(
    ("k", "n"), [(1, 1), (40, 64), (33, 65), (65536, 8), (8, 300_000), (520, 72)]
)
def test_space_exists_for_any_extents(t, k, n, experts, skew):
    workload = Workload("grouped_gemm", "test", _extents(t, k, n, experts, skew), "bfloat16")
    assert KERNEL.space(workload).size >= 1


def test_unknown_skew_is_told():
    workload = Workload("grouped_gemm", "test", _extents(16, 8, 8, 2, 99), "bfloat16")
    with pytest.raises(UsageError, match="SKEW must be one of 1, 2"):
        KERNEL.space(workload)


def test_weights_of_too_many_rows_are_read_through_pointers():
    workload = Workload("grouped_gemm", "test", _extents(16, 8, 2**28, 8, EQUAL), "bfloat16")
    assert "LOADS" not in KERNEL.space(workload).names


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = [c for shape in SHAPES for c in distinct_cases("grouped_gemm", **shape)]
    cases = pairwise(cases)
    cases += pairwise(_walked(cases))
    configs = [c["config"] for c in cases]
    assert {(c.get("SCHEDULE", "tiles"), c.get("LOADS", "pointers")) for c in configs} == {
        (schedule, loads)
        for schedule in ("tiles", "persistent", "flattened")
        for loads in ("pointers", "descriptors")
        if (schedule, loads) != ("flattened", "pointers")
    }
    assert {c.get("ORDER") for c in configs} == {None, "ab", "ba"}
    assert {c.get("GROUP_M") for c in configs} >= {None, 1, 4}
    assert not _problems(cases, interpret(cases))


def test_experts_are_counted_in_parts_where_they_are_many(interpret, distinct_cases):
    cases = distinct_cases("grouped_gemm", **MANY_EXPERTS)[:1]
    cases += _walked(cases)
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    shapes = [*SHAPES, *MORE_SHAPES]
    cases = [c for shape in shapes for c in distinct_cases("grouped_gemm", **shape)]
    cases += _walked(cases)
    assert not _problems(cases, interpret(cases))


def test_reference_and_baseline_multiply_by_the_expert_of_each_row(without_gpu):
    program = (
        "import torch\n"
        "from kt_lab.kernels import device_module\n"
        "from kt_lab.workload import Workload\n"
        "module = device_module('grouped_gemm')\n"
        "extents = {'T': 40, 'K': 24, 'N': 16, 'E': 5, 'SKEW': 6}\n"
        "workload = Workload('grouped_gemm', 'test', extents, 'bfloat16')\n"
        "inputs = module.make_inputs(workload, device='cpu', seed=0)\n"
        "a, b, offsets = (inputs[name] for name in ('a', 'b', 'offsets'))\n"
        "experts = (torch.arange(40)[:, None] >= offsets[1:]).sum(1)\n"
        "assert (offsets[0], offsets[-1]) == (0, 40) and len(set(experts.tolist())) > 2\n"
        "expected = torch.einsum('tk,tnk->tn', a.double(), b.double()[experts])\n"
        "assert torch.allclose(module.reference(inputs, workload), expected)\n"
        "for hidden in (False, True):\n"
        "    if hidden:\n"
        "        torch._grouped_mm = None\n"
        "    run, name = module.baseline(inputs, workload)\n"
        "    assert not hidden or name == 'torch.mm bf16 of each expert', name\n"
        "    assert torch.allclose(run().double(), expected, rtol=1e-2, atol=5e-2), name\n"
    )
    without_gpu(program)


def test_hopper_code_uses_its_matrix_and_copy_instructions(cross_compile):
    tile = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 4}
    many = _extents(8192, 4096, 14336, 8, RAGGED)
    through = tile | {"LOADS": "descriptors", "num_warps": 8, "num_stages": 3}
    walks = [_case(many, SCHEDULE=s, **through) for s in ("tiles", "persistent", "flattened")]
    few = {"BLOCK_M": 16, "BLOCK_N": 128, "BLOCK_K": 64, "ORDER": "ba", "SCHEDULE": "tiles"}
    few |= {"LOADS": "pointers", "num_warps": 4, "num_stages": 4}
    decoding = _case(_extents(512, 7168, 2048, 64, RAGGED), **few)
    odd = _case(_extents(512, 7164, 2044, 64, RAGGED), **few)
    *walked, turned, ragged = cross_compile([*walks, decoding, odd])
    for answer in walked:
        assert "cp.async.bulk.tensor.2d" in answer["ptx"]
        assert re.search(r"wgmma\.mma_async\S*\.m64n(128|256)k16\.f32\.bf16", answer["ptx"])
        assert answer["shared"] <= 232_448
        stores = [line for line in answer["ptx"].splitlines() if "st.global" in line]
        assert stores
        assert all(".v4.b32" in line for line in stores)
    # The transposed product: 16 tokens are the columns of an instruction whose rows are 64 of N.
    assert "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16" in turned["ptx"]
    assert "cp.async.cg.shared.global" in turned["ptx"]  # only ever 16 bytes
    # 7,164 elements are 8 bytes times something.
    copies = set(re.findall(r"cp\.async\.c[ag]\.shared\.global .*?, (0x\w+)", ragged["ptx"]))
    assert copies == {"0x8"}
