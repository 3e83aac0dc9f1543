"""Moves of marks: vector, parallel, unrolled; what they refuse, and what they leave in order."""

import pytest

from kt_lab.programs.moves import KINDS, Move
from kt_lab.programs.operators import get_operator
from kt_lab.programs.schedule import apply_move, inverse, legal_moves, possible_moves, replay
from kt_lab.programs.surgery import canonical, node_at
from kt_lab.programs.text import parse
from tests.programs.refusals import check_inverse, check_limited, check_refused, deviation

SCAN = """kernel scan
in x f32 [6]
tmp a f32 [7] heap
out z f32 [6]
---
a[0] = 0
6
| a[{0}+1] = a[{0}] + x[{0}]
6
| z[{0}] = a[{0}+1]
"""
SUM = """kernel sum
in x f32 [4,6]
tmp s f32 [4] heap
out z f32 [4]
---
4
| s[{0}] = 0
| 6
| | s[{0}] += x[{0},{1}]
| z[{0}] = s[{0}]
"""
RUNNING = SUM.replace("[4]\n", "[4,6]\n").replace("| z[{0}] = s[{0}]", "| | z[{0},{1}] = s[{0}]")
TRANSPOSE = """kernel transpose
in x f32 [4,6]
out z f32 [6,4]
---
4
| 6
| | z[{1},{0}] = x[{0},{1}]
"""
SCRATCH = """kernel scratch
in x f32 [6]
tmp a f32 [1] heap
out z f32 [6]
---
6
| a[0] = 2 * x[{0}]
| z[{0}] = a[0] + 1
"""


@pytest.mark.parametrize(
    ("text", "record"),
    [
        (SCAN, "vectorise 1"),
        (SCAN, "parallelise 1"),
        (SUM, "parallelise 0.1"),
        (RUNNING, "vectorise 0.1"),
        (SCRATCH, "vectorise 0"),
        (SCRATCH, "parallelise 0"),
    ],
)
def test_iterations_that_depend_on_each_other_are_not_marked(text, record):
    check_refused(text, record, "dependence")


def test_scratch_of_its_own_makes_iterations_independent():
    private = replay(canonical(parse(SCRATCH)), "place a reg")
    for record in ("vectorise 0", "parallelise 0"):
        check_inverse(private, Move.parse(record))


def test_lanes_may_reduce_into_one_place_and_threads_may_not():
    program = canonical(parse(SUM))
    marked = check_inverse(program, Move.parse("vectorise 0.1"))
    assert not any(m.at == (0, 1) and m.kind == "parallelise" for m in legal_moves(program))
    assert check_inverse(marked, Move.parse("parallelise 0")).body[0].mark == "p"


def test_only_sums_over_lanes_are_inexact():
    def exact(text, record):
        program, move = canonical(parse(text)), Move.parse(record)
        marked = apply_move(program, move)
        back = inverse(program, move)
        assert KINDS["unmark"].is_exact(marked, back) == KINDS[move.kind].is_exact(program, move)
        return KINDS[move.kind].is_exact(program, move)

    assert not exact(SUM, "vectorise 0.1")
    assert exact(SUM.replace("+=", "max="), "vectorise 0.1")
    assert exact(SUM, "parallelise 0")
    assert exact(SUM, "unroll 0.1")
    assert "vectorise 0.1" not in map(str, legal_moves(parse(SUM), exact_only=True))


def test_vectors_store_to_neighbours():
    check_limited(TRANSPOSE, "vectorise 0.0", "stride")
    turned = replay(parse(TRANSPOSE), "interchange 0; vectorise 0.0")
    assert node_at(turned, (0, 0)).mark == "v"


def test_only_innermost_scopes_are_vectors_and_no_parallel_scope_is_in_another():
    program = canonical(parse(SUM))
    assert [str(m) for m in possible_moves(program, "vectorise")] == ["vectorise 0.1"]
    assert [str(m) for m in possible_moves(program, "parallelise")] == [
        "parallelise 0",
        "parallelise 0.1",
    ]
    parallel = replay(program, "parallelise 0")
    assert not possible_moves(parallel, "parallelise")
    inner = replay(parse(TRANSPOSE), "parallelise 0.0")
    assert not possible_moves(inner, "parallelise")


def test_unrolling_goes_from_the_inside_out_within_its_limit():
    matmul = get_operator("matmul")
    start = matmul.program({"m": 8, "n": 16, "k": 8})
    assert {m.at for m in possible_moves(start, "unroll")} == {(0, 0), (1, 0, 0), (2, 0)}
    inner = check_inverse(start, Move.parse("unroll 1.0.0"))
    outer = Move.parse("unroll 1.0 4")
    assert check_inverse(inner, outer).body[1].body[0].mark == "u4"
    check_limited(
        TRANSPOSE.replace("4,6", "4,20").replace("6,4", "20,4").replace("| 6", "| 20:u"),
        "unroll 0",
        "size",
    )


def test_every_mark_comes_off_again():
    softmax = get_operator("softmax")
    start = softmax.program(softmax.tiny)
    marked = replay(start, "vectorise 1.0; parallelise 0; unroll 2.0 2; unroll 4.0; parallelise 5")
    for move in possible_moves(marked, "unmark"):
        check_inverse(marked, move)
    assert len(possible_moves(marked, "unmark")) == 5
    assert replay(marked, "; ".join(map(str, possible_moves(marked, "unmark")))) == start
    assert deviation(marked, start) < 1e-12
