"""Facts about accesses: ranges, distinct elements, coverage, homes, reuse and dependence."""

import itertools

import numpy as np
import pytest

from kt_lab.programs.access import (
    Access,
    accesses,
    apart,
    footprint,
    home,
    is_covered,
    is_distinct,
    is_local,
    is_private,
    is_reusable,
    ranges,
    touching,
    unsound,
    written_names,
)
from kt_lab.programs.affine import Affine
from kt_lab.programs.dependence import (
    conflicts,
    distance,
    may_carry,
    may_cross,
    may_precede,
)
from kt_lab.programs.ir import Buffer, Dim, Ref
from kt_lab.programs.operators import get_operator
from kt_lab.programs.text import parse, parse_expr

TILED = parse("""kernel tiled
in x f32 [8,6]
tmp e f32 [8:r,6] stack
tmp s f32 [8:r] reg
out z f32 [8,6]
---
2:p
| 4
| | s[4*{0}+{1}] = 0
| | 6
| | | e[4*{0}+{1},{2}] = exp(x[4*{0}+{1},{2}])
| | | s[4*{0}+{1}] += e[4*{0}+{1},{2}]
| | 3
| | | 2
| | | | z[4*{0}+{1},2*{2}+{3}] = e[4*{0}+{1},2*{2}+{3}] / s[4*{0}+{1}]
""")
EXTENTS = (2, 4, 6)


def ref(text):
    return parse_expr(text)


def access(text, extents, kind="=", address=(0, 0)):
    return Access(address, ref(text), kind, extents)


def buffer(*extents, reused=()):
    dims = tuple(Dim(e, k in reused) for k, e in enumerate(extents))
    return Buffer("a", "tmp", "f32", dims)


def test_accesses_come_in_order_of_execution():
    listed = [(a.ref.buffer, a.kind) for a in accesses(TILED)]
    assert listed == [
        ("s", "="),
        *[("x", ""), ("e", "=")],
        *[("e", ""), ("s", "+=")],
        *[("e", ""), ("s", ""), ("z", "=")],
    ]
    assert accesses(TILED, (0, 0, 1))[0].address == (0, 0, 1, 0)
    assert accesses(TILED)[-1].extents == (2, 4, 3, 2)
    assert written_names(TILED, (0, 0, 1)) == {"e", "s"}


def test_ranges_are_exact_at_both_ends():
    assert ranges(ref("a[4*{0}+{1}+1,7-{2}]"), EXTENTS) == ((1, 8), (2, 7))
    assert ranges(ref("a[3]"), EXTENTS) == ((3, 3),)


def test_apart_by_range_in_any_dimension():
    low, high = access("a[{0},{1}]", (2, 4)), access("a[{0}+2,{1}]", (2, 4))
    assert apart(low, high)
    assert not apart(low, access("a[{0}+1,{1}]", (2, 4)))
    assert apart(low, access("b[{0},{1}]", (2, 4)))


@pytest.mark.parametrize(
    ("text", "depths", "distinct"),
    [
        ("a[4*{0}+{1},{2}]", (0, 1, 2), True),
        ("a[{0}+2*{1}]", (0, 1), True),
        ("a[3*{0}+{1}]", (0, 1), False),
        ("a[3*{0}+{1}]", (1,), True),
        ("a[{0}]", (0, 1), False),
        ("a[{0}+{1},{1}]", (0, 1), True),  # the second index fixes {1}, then the first {0}
        ("a[{0}+{1},{0}-{1}+9]", (0, 1), False),  # distinct, but not by mixed radix
        ("a[0]", (), True),
    ],
)
def test_distinct_elements(text, depths, distinct):
    assert is_distinct(ref(text), depths, EXTENTS) is distinct


def test_reused_dimensions_tell_no_places_apart():
    assert is_distinct(ref("a[{0},{1}]"), (0, 1), EXTENTS, buffer(2, 4))
    assert not is_distinct(ref("a[{0},{1}]"), (0, 1), EXTENTS, buffer(2, 4, reused=[0]))
    assert is_distinct(ref("a[{0},{1}]"), (1,), EXTENTS, buffer(2, 4, reused=[0]))


def test_homes_and_privacy():
    assert home(TILED, "e") == (0, 0)
    assert home(TILED, "x") == (0, 0, 1)
    assert home(TILED, "absent") == ()
    assert is_private(TILED, "e", (0,))
    assert is_private(TILED, "e", (0, 0))
    assert not is_private(TILED, "e", (0, 0, 1))
    assert touching(TILED, "s") == ((0, 0, 0), (0, 0, 1, 1), (0, 0, 2, 0, 0))


def test_coverage_needs_the_whole_box_before_the_read():
    assert is_covered(TILED, "e", (0, 0))
    assert is_covered(TILED, "s", (0, 0))
    assert not is_covered(TILED, "s", (0, 0, 1))  # what is added to comes from outside
    assert is_local(TILED, "e", (0,))
    assert not is_local(TILED, "x", (0,))
    body = "4\n| a[2*{0}] = x[{0}]\n7\n| z[{0}] = a[{0}]"
    text = "kernel k\nin x f32 [8]\ntmp a f32 [8] heap\nout z f32 [8]\n---\n"
    assert not is_covered(parse(text + body), "a")  # gaps
    assert not is_covered(parse(text + body.replace("2*{0}", "{0}+1")), "a")  # too late a start
    assert is_covered(parse(text + body.replace("2*{0}", "{0}").replace("7", "4")), "a")
    assert is_covered(parse(text + "4\n| 2\n| | a[4*{1}+{0}] = x[{0}]\n8\n| z[{0}] = a[{0}]"), "a")
    assert not is_covered(parse(text + "8\n| z[{0}] = a[{0}]\n8\n| a[{0}] = x[{0}]"), "a")


def test_a_diagonal_does_not_cover_a_box():
    text = "kernel k\nin x f32 [4]\ntmp a f32 [4,4] heap\nout z f32 [4]\n---\n"
    diagonal = parse(text + "4\n| a[{0},{0}] = x[{0}]\n4\n| z[{0}] = a[{0},0]")
    assert not is_covered(diagonal, "a")


def test_reusable_dimensions():
    assert is_reusable(TILED, "e", 0)  # 4*{0}+{1} everywhere, fixed by the inner scope
    assert not is_reusable(TILED, "e", 1)  # one access walks by 6, the other by 3 times 2
    assert is_reusable(TILED, "s", 0)
    assert not is_reusable(TILED, "x", 0)
    assert unsound(TILED) == ()
    start = get_operator("softmax").program({"rows": 4, "cols": 6})
    assert not any(is_reusable(start, name, 0) for name in "mes")


def box(program, name, address):
    touched = [a for a in accesses(program, address) if a.ref.buffer == name]
    return footprint(touched, len(address))


def test_footprints():
    conv = get_operator("conv2d").program({"n": 2, "k": 3, "c": 2, "h": 4, "w": 5})
    nest = (3, 0, 0, 0)  # one row and column of outputs
    assert box(conv, "p", nest) == (
        (Affine.iterator(0), 1),
        (Affine(), 2),
        (Affine.iterator(2), 3),
        (Affine.iterator(3), 3),
    )
    assert box(conv, "p", (3,)) == (
        (Affine.iterator(0), 1),
        *(((Affine(), e)) for e in (2, 6, 7)),
    )
    assert box(TILED, "e", (0, 0))[1] == (Affine(), 6)
    assert box(TILED, "e", (0, 0, 2))[1] == (Affine(0, (0, 0, 2)), 2)
    assert box(TILED, "e", ()) == ((Affine(), 8), (Affine(), 6))
    assert box(TILED, "absent", ()) is None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("a[{0},{1}]", "a[{0},{1}]", (0, 0)),
        ("a[{0},{1}]", "a[{0}-1,{1}+1]", (1, -1)),
        ("a[2*{0}+{1}]", "a[2*{0}+{1}]", (None, None)),  # no mixed radix
        ("a[4*{0}+{1}]", "a[4*{0}+{1}]", (0, 0)),
        ("a[4*{0}+{1}]", "a[4*{0}+{1}+1]", (None, None)),
        ("a[{0}]", "a[{0}]", (0, None)),
        ("a[0]", "a[0]", (None, None)),
        ("a[0]", "a[1]", None),
        ("a[2*{1}]", "a[2*{1}+1]", None),
        ("a[{0}]", "a[{0}+2]", None),  # further than the extent
        ("a[{0}]", "a[{1}]", (None, None)),
        ("a[{0}]", "a[{1}+2]", None),
    ],
)
def test_distances(first, second, expected):
    one, two = access(first, (2, 4)), access(second, (2, 4))
    assert distance(one, two, 2, buffer(*[9] * len(one.ref.indices))) == expected


def test_reused_dimensions_force_no_distance():
    one = access("a[{0},{1}]", (2, 4))
    assert distance(one, one, 2, buffer(2, 4, reused=[0])) == (None, 0)


def test_scopes_below_the_shared_ones_leave_a_distance_open_as_far_as_they_reach():
    one, two = access("a[4*{0}+{1}]", (2, 4)), access("a[4*{0}+{1}]", (2, 4))
    assert distance(one, two, 1, buffer(8)) == (0,)
    far = access("a[4*{0}+{1}]", (2, 5))
    assert distance(far, far, 1, buffer(9)) == (None,)
    assert distance(one, access("a[{0}]", (2,)), 0, buffer(8)) == ()
    assert distance(one, access("a[{0}+8]", (2,)), 0, buffer(10)) is None


def test_distances_agree_with_enumeration():
    """No pair of iterations that meet is missed, over many random pairs of accesses."""
    rng = np.random.default_rng(0)
    forced = impossible = 0
    for _ in range(400):
        extents = tuple(int(e) for e in rng.integers(1, 5, 3))
        dims = int(rng.integers(1, 3))

        def form():
            coefficients = rng.choice([0, 0, 1, 2, 4, -1], 3)
            return Affine(int(rng.integers(0, 4)), tuple(map(int, coefficients)))

        shared = [form() for _ in range(dims)]
        other = [i.plus(int(rng.integers(-2, 3))) for i in shared]
        if rng.random() < 0.3:
            other = [form() for _ in range(dims)]
        one = Access((0,), Ref("a", tuple(shared)), "=", extents)
        two = Access((0,), Ref("a", tuple(other)), "", extents)
        common = int(rng.integers(1, 4))
        found = distance(one, two, common, buffer(*[99] * dims))
        points = list(itertools.product(*map(range, extents)))
        met = {
            tuple(j - i for i, j in zip(p[:common], q[:common], strict=True))
            for p, q in itertools.product(points, points)
            if all(a.value(p) == b.value(q) for a, b in zip(shared, other, strict=True))
        }
        forced += found is not None and None not in found
        impossible += found is None
        assert not met if found is None else True
        for step in met:
            assert all(f in (None, s) for f, s in zip(found, step, strict=True))
    assert forced > 20
    assert impossible > 20


def test_directions():
    assert not may_carry((0, 0), 0)
    assert may_carry((None, 0), 0)
    assert may_carry((1, 0), 0)
    assert not may_carry((1, None), 1)  # the outer scope carries it
    assert may_carry((0, None), 1)
    assert may_cross((1, -1), 0)
    assert may_cross((None, 1), 0)
    assert not may_cross((1, 1), 0)
    assert not may_cross((0, None), 0)
    assert not may_cross((2, 1, -1), 1)
    assert may_precede((-1,), 0)
    assert may_precede((None,), 0)
    assert not may_precede((1,), 0)
    assert not may_precede((1, -1), 1)


def test_conflicts_of_a_matrix_product_allow_every_order():
    start = get_operator("matmul").program({"m": 4, "n": 6, "k": 8})
    found = list(conflicts(start, (1,)))
    assert [(c.first.ref.buffer, c.distance, c.is_reduction) for c in found] == [
        ("c", (0, 0, None), True)
    ]
    assert not may_carry(found[0].distance, 0)
    assert not may_cross(found[0].distance, 0)
    assert not may_cross(found[0].distance, 1)
    assert list(conflicts(start, (1,), ignore={"c"})) == []


def test_conflicts_between_siblings_have_no_distance_below_the_root():
    start = get_operator("row_sum").program({"rows": 4, "cols": 6})
    between = [c for c in conflicts(start, ()) if c.first.address[0] != c.second.address[0]]
    assert {c.distance for c in between} == {()}
    assert {(c.first.address[0], c.second.address[0]) for c in between} == {(0, 1), (0, 2), (1, 2)}
