from pathlib import Path

import pytest

import kt_lab.kernels
from kt_lab.errors import UsageError
from kt_lab.kernels import get_kernel, workload_of_shape
from kt_lab.kernels.moe_groups import (
    EQUAL,
    HEAVY,
    ONE_HOT,
    RAGGED,
    RANDOM,
    SKEWS,
    SPARSE,
    aligned,
    group_ends,
)
from kt_lab.workload import Workload

NAMES = ("jagged_rowwise", "jagged_colwise")
CODE = Path(kt_lab.kernels.__file__).parent / "device" / "jagged_groups.py"
PLAIN = {"ASSUME": 1, "PIPELINED": False, "ONCE": False, "BACKWARD": False, "FIRST": "lines"}
PLAIN |= {"num_warps": 4, "num_stages": 3}


def extents(tokens, width, groups, skew, layout=1, **more):
    named = {"TOKENS": tokens, "WIDTH": width, "GROUPS": groups, "SKEW": skew, "LAYOUT": layout}
    return named | more


# Groups of no multiples, some empty; groups of multiples of 16, every other one empty.
SHAPES = [extents(80, 34, 3, RAGGED), extents(96, 24, 3, SPARSE, ROUND=1)]
MORE_SHAPES = [
    extents(100, 33, 9, RAGGED),
    extents(320, 300, 3, RANDOM),
    extents(7, 5, 12, HEAVY),
    extents(128, 24, 4, ONE_HOT),
    extents(1, 1, 1, EQUAL),
]
LAYOUTS = {"jagged_rowwise": 1, "jagged_colwise": 2}


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def _ends(*facts):
    return group_ends(Workload("jagged_rowwise", "test", extents(*facts), "bfloat16"))


def test_groups_are_data_and_keep_their_promises():
    assert _ends(16640, 1, 4, EQUAL) == (4160, 8320, 12480, 16640)
    assert _ends(64, 1, 5, ONE_HOT) == (0, 0, 64, 64, 64)
    assert _ends(160, 1, 3, SPARSE) == (80, 80, 160)
    assert _ends(16640, 1, 4, RANDOM) == (5280, 8912, 11376, 16640)
    assert _ends(16640, 1, 4, HEAVY) == (2656, 6656, 8640, 16640)
    assert _ends(150, 1, 4, RAGGED) == (30, 94, 129, 150)
    with pytest.raises(UsageError, match="SKEW must be one of 1, 2"):
        _ends(16, 1, 2, 99)
    with pytest.raises(UsageError, match="LAYOUT must be 1 or 2, got LAYOUT=7"):
        get_kernel("jagged_colwise").space(workload_of_shape("jagged_colwise/96x40x4x1x7"))
    odd = Workload("moe_weights_cast", "x", {"E": 1, "N": 64, "K": 64, "ROUND": 3}, "bfloat16")
    with pytest.raises(UsageError, match="ROUND must be 1 or 2, or absent, got ROUND=3"):
        get_kernel("moe_weights_cast").space(odd)


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize(("tokens", "groups"), [(1, 1), (1, 7), (16, 64), (1000, 5), (4096, 3)])
def test_groups_take_every_token_once(skew, tokens, groups):
    ends = _ends(tokens, 1, groups, skew)
    assert len(ends) == groups
    assert ends[-1] == tokens
    assert list(ends) == sorted(ends)
    assert min(ends) >= 0


@pytest.mark.parametrize("name", NAMES)
def test_spaces_are_worth_searching_and_recordable(name):
    kernel = get_kernel(name)
    assert kernel.rtol == kernel.atol == 0
    for workload in kernel.workloads:
        space = kernel.space(workload)
        assert 800 <= space.size <= 1300
        assert workload.name == "x".join(map(str, workload.extents.values()))
        assert aligned(workload)


def test_only_aligned_groups_may_be_taken_for_aligned():
    kernel = get_kernel("jagged_rowwise")
    spaces = [
        kernel.space(Workload("jagged_rowwise", "test", extents(16640, 64, 16, s), "bfloat16"))
        for s in (RANDOM, RAGGED)
    ]
    for space, allowed in zip(spaces, (True, False), strict=True):
        assert space.contains(dict(space.default) | {"ASSUME": 16}) is allowed
        assert space.size >= 500


def _cases(name, distinct_cases, pairwise):
    first, second = ({**s, "LAYOUT": LAYOUTS[name]} for s in SHAPES)
    cases = pairwise(distinct_cases(name, **first))
    cases = cases if name == "jagged_rowwise" else cases[::7]
    cases += pairwise(distinct_cases(name, **second))[::4]
    cases += [c | {"dtype": "float32"} for c in cases[:2]]
    config = {"BLOCK": 32, "BLOCK_ITER": 64} | PLAIN
    return cases + [
        {"kernel": name, "extents": s, "config": config, "sms": 2} for s in MORE_SHAPES
    ]


def test_every_path_gives_the_bits_of_the_reference(interpret, distinct_cases, pairwise):
    cases = [c for name in NAMES for c in _cases(name, distinct_cases, pairwise)]
    assert {c["config"]["ASSUME"] for c in cases} == {1, 16}
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_distinct_config_gives_the_bits_of_the_reference(name, interpret, distinct_cases):
    shapes = [{**s, "LAYOUT": LAYOUTS[name]} for s in SHAPES + MORE_SHAPES]
    cases = [c for shape in shapes for c in distinct_cases(name, **shape)]
    assert not _problems(cases, interpret(cases))


FAULTS = [
    # Scales stored by the lane of the tile, not by the line: width % BLOCK != 0 overwrites the
    # next group's scales and, in the last group, what lies behind them.
    (
        "scale, mask=lines < WIDTH)",
        "scale, mask=tl.arange(0, BLOCK) < WIDTH)",
        extents(64, 88, 4, EQUAL),
        {"BLOCK": 64, "BLOCK_ITER": 64},
    ),
    # A group cut at the mean group's size: right where groups are equal, not where skewed.
    (
        "end = tl.load(ends + group)\n",
        "end = tl.minimum(tl.load(ends + group), start + TOKENS // GROUPS)\n",
        extents(256, 32, 4, ONE_HOT),
        {"BLOCK": 32, "BLOCK_ITER": 64},
    ),
]


def test_published_faults_are_absent_and_would_be_noticed(interpret, tmp_path):
    code, cases = CODE.read_text(), []
    for at, (right, wrong, shape, tile) in enumerate(FAULTS):
        assert code.count(right) == 1
        faulty = tmp_path / f"faulty_{at}.py"
        faulty.write_text(code.replace(right, wrong))
        case = {"kernel": "jagged_rowwise", "extents": shape, "config": tile | PLAIN, "sms": 2}
        cases += [case, case | {"code": str(faulty)}]
    found = [bool(answer["problem"]) for answer in interpret(cases)]
    assert found == [False, True] * len(FAULTS)


def test_hopper_code_stores_vectors_only_where_ends_are_known_multiples(cross_compile):
    shape = extents(16640, 8192, 16, RANDOM)
    tile = {"BLOCK": 32, "BLOCK_ITER": 128} | PLAIN
    configs = [tile, tile | {"ASSUME": 16}]
    plain, assumed = cross_compile(
        [{"kernel": "jagged_rowwise", "extents": shape, "config": c, "sms": 132} for c in configs]
    )
    stores = [
        [line for line in code["ptx"].splitlines() if "st.global" in line and ".b32" not in line]
        for code in (plain, assumed)
    ]
    assert any(".b8" in line for line in stores[0])  # one byte at a time
    assert not stores[1]
    assert "ld.global.v4.b32" in assumed["ptx"]
