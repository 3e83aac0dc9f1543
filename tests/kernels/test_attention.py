import itertools

import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.attention import ALL_KEYS, CAUSAL, KERNEL
from kt_lab.workload import Workload


def _shape(b, h, hk, s, d, causal):
    return {"B": b, "H": h, "HK": hk, "S": s, "D": d, "CAUSAL": causal}


SHAPES = [
    _shape(2, 3, 2, 70, 24, CAUSAL),  # groups of unequal size, ragged tokens and columns
    _shape(1, 2, 1, 75, 40, ALL_KEYS),
    _shape(1, 1, 2, 37, 7, CAUSAL),  # fewer query heads than of keys; nothing for descriptors
    _shape(1, 2, 2, 20, 264, ALL_KEYS),  # heads wider than a tile
    _shape(1, 2, 1, 128, 16, CAUSAL),  # even
    _shape(2, 1, 1, 1, 1, CAUSAL),
]
MORE_SHAPES = [
    _shape(1, 5, 3, 130, 8, CAUSAL),
    _shape(1, 2, 1, 64, 32, ALL_KEYS),
    _shape(1, 1, 1, 33, 265, CAUSAL),
    _shape(3, 2, 2, 17, 72, ALL_KEYS),
]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def _seen(cases):
    """Keeps one of the cases that the interpreter cannot tell apart."""
    return list({str((c["extents"], c["config"])): c for c in cases}.values())


def _walked(cases):
    """Returns persistent variants for two programs: no small shape has that many tiles."""
    changes = {"SCHEDULE": "persistent", "num_warps": 8}
    return _seen([case | {"config": case["config"] | changes} for case in cases])


def _case(extents, **config):
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8, "num_stages": 2}
    return {"kernel": "attention", "extents": extents, "config": tile | config, "sms": 132}


def test_registry_returns_the_kernel():
    assert get_kernel("attention") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 700 <= space.size <= 1500
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))


def test_work_of_a_causal_shape_is_what_its_queries_see():
    every, causal = (
        Workload("attention", "test", _shape(2, 6, 3, 100, 64, which), "bfloat16")
        for which in (ALL_KEYS, CAUSAL)
    )
    assert KERNEL.flops(every) == 2 * 6 * 100 * 100 * 64 * 4
    assert KERNEL.flops(causal) == 2 * 6 * sum(range(1, 101)) * 64 * 4
    assert KERNEL.bytes_moved(every) == 2 * 2 * 100 * 64 * (6 + 3 + 3 + 6)


@pytest.mark.parametrize(("b", "h", "hk"), [(1, 1, 1), (3, 5, 2), (64, 7, 100)])
@pytest.mark.parametrize("s", [1, 16, 17, 64, 65, 96, 300, 100_000])
@pytest.mark.parametrize("d", [1, 8, 64, 72, 128, 136, 256, 257, 5000])
def test_space_exists_for_any_extents(b, h, hk, s, d):
    for causal in (ALL_KEYS, CAUSAL):
        workload = Workload("attention", "test", _shape(b, h, hk, s, d, causal), "bfloat16")
        assert KERNEL.space(workload).size >= 1


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = [c for shape in SHAPES for c in distinct_cases("attention", **shape)]
    cases = pairwise(cases)
    cases += pairwise(_walked(cases))
    cases += [c | {"dtype": "float16"} for c in cases[::8]]
    axes = {
        "LOADS": ("pointers", "mixed", "descriptors"),
        "MASK": ("split", "throughout"),
        "SCHEDULE": ("natural", "reversed", "heaviest", "persistent"),
    }
    met = [c["config"] for c in cases]
    for one, other in itertools.combinations(axes, 2):
        pairs = {(c.get(one), c.get(other)) for c in met}
        assert pairs >= set(itertools.product(axes[one], axes[other]))
    assert {c.get("POLYNOMIAL") for c in met} == {None, 0, 1, 2}
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    shapes = SHAPES + MORE_SHAPES
    cases = _seen([c for shape in shapes for c in distinct_cases("attention", **shape)])
    cases += _walked(cases)
    assert not _problems(cases, interpret(cases))


def test_reference_and_baseline_are_attention(without_gpu):
    program = (
        "import math, torch\n"
        "from kt_lab.kernels import device_module\n"
        "from kt_lab.workload import Workload\n"
        "module = device_module('attention')\n"
        "module._MOST_SCORES = 50  # a few rows at a time\n"
        "for h, hk, causal in ((4, 2, 1), (4, 2, 2), (3, 2, 2)):\n"
        "    extents = {'B': 2, 'H': h, 'HK': hk, 'S': 9, 'D': 8, 'CAUSAL': causal}\n"
        "    workload = Workload('attention', 'test', extents, 'bfloat16')\n"
        "    inputs = module.make_inputs(workload, device='cpu', seed=0)\n"
        "    found = module.reference(inputs, workload)\n"
        "    q, k, v = (inputs[name].double() for name in 'qkv')\n"
        "    head, token = h - 1, 5\n"
        "    seen = token + 1 if causal == 2 else 9\n"
        "    kv = head * hk // h\n"
        "    scores = torch.stack([q[1, token, head] @ k[1, i, kv] for i in range(seen)])\n"
        "    weights = (scores / math.sqrt(8)).exp()\n"
        "    expected = (weights / weights.sum()) @ v[1, :seen, kv]\n"
        "    assert torch.allclose(found[1, token, head], expected, rtol=1e-12)\n"
        "    run, name = module.baseline(inputs, workload)\n"
        "    assert torch.allclose(run().transpose(1, 2).double(), found, atol=0.02), name\n"
    )
    without_gpu(program)


def test_hopper_code_copies_and_multiplies_asynchronously(cross_compile):
    every, causal = _shape(4, 32, 32, 2048, 64, ALL_KEYS), _shape(1, 32, 8, 8192, 128, CAUSAL)
    plain, cubic, mixed = cross_compile(
        [
            _case(every, POLYNOMIAL=0),
            _case(every, POLYNOMIAL=2, LOADS="descriptors"),
            _case(causal, SCHEDULE="heaviest", MASK="split", LOADS="mixed"),
        ]
    )
    assert "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16" in plain["ptx"]
    assert "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16" in plain["ptx"]
    assert "cp.async.cg.shared.global" in plain["ptx"]  # only ever 16 bytes
    # A thread has 64 scores and two rows: half of the exponentials are polynomials.
    exponentials = [answer["ptx"].count("ex2.approx") for answer in (plain, cubic)]
    assert exponentials == [64 + 2, 32 + 2]
    # A tensor of four extents each, so that tiles at the end reach into no other head.
    assert "cp.async.bulk.tensor.4d.shared" in cubic["ptx"]
    assert "cp.async.bulk.tensor.4d.shared" in mixed["ptx"]
    assert "st.global.v4.b32" in mixed["ptx"]
    # Scores become weights in the registers that they are in: nothing passes shared memory.
    loop = cubic["ptx"].split("wgmma.mma_async")[1:-1]
    assert len(loop) == 11  # 4 times 16 columns of heads, 8 times 16 keys
    assert not any("st.shared" in between for between in loop)
