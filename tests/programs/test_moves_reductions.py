"""Partial results of reductions: making them, joining them, and what the rules prevent."""

import pytest

from kt_lab.programs.moves import KINDS, Move
from kt_lab.programs.moves.reductions import PARTIAL_BYTES
from kt_lab.programs.operators import get_operator
from kt_lab.programs.schedule import apply_move, legal_moves, possible_moves, replay
from kt_lab.programs.surgery import canonical
from kt_lab.programs.text import parse, to_text
from tests.programs.refusals import check_inverse, check_limited, check_refused

SPLIT = """kernel sum
in x f32 [6]
tmp s f32 [1] heap
out z f32 [1]
---
s[0] = 0
2
| 3
| | s[0] += x[3*{0}+{1}]
z[0] = s[0]
"""
# s is read while it grows
READ = """kernel sum
in x f32 [6]
tmp s f32 [1] heap
out z f32 [6]
---
s[0] = 0
2
| 3
| | s[0] += x[3*{0}+{1}]
| | z[3*{0}+{1}] = s[0]
"""
GROWING = SPLIT.replace("s[0] = 0", "s[0] = 1").replace("+= x", "+= 0.5 * s[0] * x")
# partial results that parallel iterations may share, and one sum that they may not
PARALLEL = """kernel sum
in x f32 [6]
tmp s f32 [1] heap
tmp t0 f32 [3] stack
out z f32 [1]
---
s[0] = 0
3
| t0[{0}] = 0
2
| 3:p
| | t0[{1}] += x[3*{0}+{1}]
3
| s[0] += t0[{0}]
z[0] = s[0]
"""


@pytest.mark.parametrize("text", [READ, GROWING])
def test_what_is_reduced_into_is_touched_by_nothing_else(text):
    check_refused(text, "split_reduction 1.0.0 1", "alone")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("t0[{0}] = 0", "t0[{0}] = 1"),  # does not start from nothing
        ("s[0] += t0", "s[0] max= t0"),  # ends in another reduction
        ("t0[{1}] +=", "t0[2-{1}] max="),  # and the other way round
        ("z[0] = s[0]", "z[0] = s[0] + t0[1]"),  # is needed afterwards
    ],
)
def test_only_partial_results_are_joined(old, new):
    text = PARALLEL.replace(":p", "").replace(old, new)
    check_refused(text, "join_reduction 1", "partial")


def test_threads_keep_their_partial_results():
    check_refused(PARALLEL, "join_reduction 1", "marks")
    check_inverse(canonical(parse(PARALLEL.replace("3:p", "3:v"))), Move.parse("join_reduction 1"))


def test_partial_results_are_made_and_undone():
    program = canonical(parse(SPLIT))
    changed = check_inverse(program, Move.parse("split_reduction 1.0.0 1"))
    assert to_text(changed) == PARALLEL.replace(":p", "")
    assert not KINDS["split_reduction"].is_exact(program, Move.parse("split_reduction 1.0.0 1"))
    # they are not split again over the same scope
    assert not any(m.at[:1] == (2,) and m.kind == "split_reduction" for m in legal_moves(changed))


@pytest.mark.parametrize("update", ["max=", "min="])
def test_extremes_split_exactly(update):
    start = SPLIT.replace("+=", update).replace("= 0", "= -inf" if update == "max=" else "= inf")
    program, move = canonical(parse(start)), Move.parse("split_reduction 1.0.0 1")
    assert KINDS[move.kind].is_exact(program, move)
    assert KINDS["join_reduction"].is_exact(
        apply_move(program, move), KINDS[move.kind].inverse(program, move)
    )
    check_inverse(program, move)


def test_partial_results_stay_small():
    wide = PARTIAL_BYTES // 4 + 1
    text = (
        SPLIT.replace("[6]", f"[{2 * wide}]").replace("| 3", f"| {wide}").replace("3*", f"{wide}*")
    )
    check_limited(text, "split_reduction 1.0.0 1", "size")


def test_a_tile_of_a_product_gets_its_own_accumulators_within_a_block_of_k():
    matmul = get_operator("matmul")
    start = replay(
        matmul.program(matmul.tiny),
        "split 1.0.0 4; interchange 1.0; interchange 1; split 1.0 2; interchange 1.0.0.0;"
        "interchange 1.0.0",
    )
    # k/4, m/2, 4 of k, n, 2 of m: a block of k adds to all of c, tile by tile
    found = [str(m) for m in possible_moves(start, "split_reduction")]
    assert "split_reduction 1.0.0.0.0.0 2" in found
    changed = check_inverse(start, Move.parse("split_reduction 1.0.0.0.0.0 2"))
    assert len(changed.body[1].body[0].body) == 3
