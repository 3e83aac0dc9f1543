import re

import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.cross_entropy import KERNEL, can_align, max_split
from kt_lab.workload import Workload

# One tile, several with a ragged end, shares of unequal length, rows that start off 16-byte
# boundaries, rows of a length that 4 divides, even tiles.
SHAPES = [
    {"M": 3, "V": 37},
    {"M": 1, "V": 1},
    {"M": 8, "V": 2051},
    {"M": 5, "V": 2500},
    {"M": 4, "V": 2048},
]
# The kernel's own device code, but of logits that no running sum survives by luck.
EXTREME = """
from kt_lab.kernels.device.cross_entropy import *
from kt_lab.kernels.device import cross_entropy as own


def make_inputs(workload, *, device, seed):
    inputs = own.make_inputs(workload, device=device, seed=seed)
    x, v = inputs["x"], workload.extents["V"]
    x[0] += 1000
    x[1], x[1, 0], x[1, -1] = x[1] - 1000, -3e38, 3e38
    x[2] = -3e38
    x[3] = torch.linspace(-400, 400, v)
    x[4] = torch.linspace(400, -400, v)
    inputs["targets"] = torch.randint(v // 4, v // 2, (len(x),))
    inputs["targets"][5::7] = own.IGNORED
    return inputs
"""


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def _of_many_rows(cases, *heights):
    """Returns tall tiles and waves of two programs: spaces with them are slow to interpret."""
    more = {"num_warps": 4}
    taller = [c | {"config": c["config"] | more | {"BLOCK_M": h}} for c in cases for h in heights]
    walked = [
        c | {"config": c["config"] | {"WAVES": 1}}
        for c in [*cases, *taller]
        if c["config"]["BLOCK_V"] >= c["extents"]["V"] and c["config"].get("SPLIT", 1) == 1
    ]
    return taller + walked


def test_registry_returns_the_kernel():
    assert get_kernel("cross_entropy") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 1000 <= space.size <= 1500
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))
    m, v = workload.extents.values()
    assert KERNEL.bytes_moved(workload) == 2 * m * v + 12 * m
    assert ("READ" in space.names) == can_align(workload) == (v == 50257)
    assert ("SPLIT" in space.names) == (max_split(workload) > 1) == (m == 512)


@pytest.mark.parametrize("m", [1, 8, 1000, 1057, 100_000])
@pytest.mark.parametrize("v", [1, 2, 63, 1025, 2047, 5004, 32000, 50257, 1_000_003])
def test_space_exists_for_any_extents(m, v):
    workload = Workload("cross_entropy", "test", {"M": m, "V": v}, "bfloat16")
    space = KERNEL.space(workload)
    assert space.size >= 1
    assert space.contains(space.default)


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = [c for shape in SHAPES for c in pairwise(distinct_cases("cross_entropy", **shape))]
    cases += pairwise(_of_many_rows(cases, 2, 8))
    configs = [c["config"] for c in cases]
    assert {(c["METHOD"], c["TARGET"]) for c in configs} == {
        *((method, "gather") for method in ("online", "lanes", "anchored", "twice")),
        *((method, "pick") for method in ("online", "lanes")),
    }
    assert {(c.get("READ"), c.get("SPLIT", 1) > 1) for c in configs} == {
        (read, shared) for read in (None, "plain", "aligned") for shared in (False, True)
    }
    assert {c.get("WAVES") for c in configs} == {None, 1}
    assert not _problems(cases, interpret(cases))


def test_any_finite_logits_have_right_losses(interpret, distinct_cases, pairwise, tmp_path):
    code = tmp_path / "extreme.py"
    code.write_text(EXTREME)
    shapes = [{"M": 8, "V": 2051}, {"M": 9, "V": 2500}, {"M": 9, "V": 40}]
    cases = [c for shape in shapes for c in pairwise(distinct_cases("cross_entropy", **shape))]
    cases = [c | {"code": str(code)} for c in cases + pairwise(_of_many_rows(cases, 4))]
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(
    interpret, distinct_cases, pairwise, tmp_path
):
    shapes = [*SHAPES, {"M": 8, "V": 8193}, {"M": 2, "V": 8200}]
    cases = [c for shape in shapes for c in distinct_cases("cross_entropy", **shape)]
    cases += pairwise(_of_many_rows(cases, 2, 4, 8))
    walked = pairwise(distinct_cases("cross_entropy", M=1060, V=5))
    cases += [c for c in walked if c["config"]["WAVES"] > 0]
    code = tmp_path / "extreme.py"
    code.write_text(EXTREME)
    cases += [c | {"code": str(code)} for c in cases if 5 <= c["extents"]["M"] < 100]
    assert not _problems(cases, interpret(cases))


def test_hopper_code_reads_odd_rows_wide_and_keeps_lanes_apart(cross_compile):
    plain = {"BLOCK_V": 4096, "TARGET": "gather", "EVICTION": "", "num_warps": 4}
    odd = {"kernel": "cross_entropy", "extents": {"M": 2048, "V": 50257}, "sms": 132}
    few = {"kernel": "cross_entropy", "extents": {"M": 512, "V": 151936}, "sms": 132}
    cases = [
        odd | {"config": plain | {"METHOD": "lanes", "READ": "aligned", "num_stages": 1}},
        odd | {"config": plain | {"METHOD": "anchored", "READ": "aligned", "num_stages": 3}},
        few | {"config": plain | {"METHOD": "lanes", "SPLIT": 4, "num_stages": 1}},
    ]
    lanes, copies, shares = cross_compile(cases)
    loads = re.findall(r"ld\.global\S*", lanes["ptx"])
    # Every tile in vectors of 16 bytes; besides, a target and its logit.
    assert sorted(set(loads)) == ["ld.global.b16", "ld.global.b64", "ld.global.v4.b32"]
    # Maximum and sum of 32 lanes and 4 warps, once: five and two shuffles each.
    assert lanes["ptx"].count("shfl.sync") <= 14
    assert "cp.async.cg.shared.global" in copies["ptx"]  # only ever 16 bytes
    assert copies["shared"] >= 2 * 4096 * 2  # two tiles in flight
    assert "atom.global.gpu.acq_rel.add" in shares["ptx"]  # the last one sees the others' stores
    assert all("ex2.approx.ftz.f32" in answer["ptx"] for answer in (lanes, copies, shares))
