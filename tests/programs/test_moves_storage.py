"""Moves of storage and copies: reuse, layout, places, packing; and what each rule prevents."""

import pytest

from kt_lab.errors import ProgramError
from kt_lab.programs.expert import expert_schedule
from kt_lab.programs.moves import KINDS, Move
from kt_lab.programs.moves.storage import LIMITS
from kt_lab.programs.operators import get_operator
from kt_lab.programs.schedule import apply_move, inverse, legal_moves, possible_moves, replay
from kt_lab.programs.surgery import canonical
from kt_lab.programs.text import op_text, parse, to_text
from kt_lab.programs.traps import TRAPS
from kt_lab.programs.walks import is_proven
from tests.programs.refusals import check_inverse, check_limited, check_refused, deviation

FUSED = """kernel fused
in x f32 [6]
tmp a f32 [6] heap
out z f32 [6]
---
6{mark}
| a[{{0}}] = 2 * x[{{0}}]
| z[{{0}}] = a[{{0}}] + 1
"""
# What the first iteration leaves is needed by the others: legal, though not provably.
FIRST = """kernel first
in x f32 [3,2,2]
tmp a f32 [2,4] heap
out z f32 [3,2]
---
3
| 2
| | 2
| | | a[{1},{0}+{2}] = x[{0},{1},{2}]
| | z[{0},{1}] = a[{1},0]
"""

REFUSED = {
    "two elements in use at once": (
        """kernel pair
in x f32 [6]
tmp a f32 [6,2] heap
out z f32 [6]
---
6
| a[{0},0] = x[{0}]
| a[{0},1] = 2 * x[{0}]
| z[{0}] = a[{0},0] - a[{0},1]
""",
        "reuse_dim a 1",
        "index",
    ),
    "read after the scope is over": (
        """kernel later
in x f32 [6]
tmp a f32 [6] heap
out z f32 [6]
---
6
| a[{0}] = x[{0}]
6
| z[{0}] = a[{0}]
""",
        "reuse_dim a 0",
        "inside",
    ),
    "kept from an earlier iteration": (FIRST, "reuse_dim a 0", "written"),
    "one place for parallel iterations": (FUSED.format(mark=":p"), "reuse_dim a 0", "marks"),
    "one place for lanes": (FUSED.format(mark=":v"), "reuse_dim a 0", "marks"),
    "lost between iterations": (FIRST, "place a stack", "covered"),
    "a private copy becomes common": (
        FUSED.format(mark=":p").replace("[6] heap", "[6:r] stack"),
        "place a heap",
        "shared",
    ),
    "copied too early": (
        """kernel early
in x f32 [4]
tmp b f32 [4] heap
out z f32 [4]
---
4
| b[{0}] = x[{0}]
2
| 4
| | b[{1}] = 3 - b[{1}] * x[3-{1}]
4
| z[{0}] = b[{0}]
""",
        "pack 1 b",
        "unwritten",
    ),
    "overwritten while the copy is read": (
        """kernel reverse
in x f32 [4]
tmp b f32 [4] heap
tmp a f32 [4] heap
out z f32 [4]
---
4
| b[{0}] = x[{0}]
4
| a[{0}] = b[{0}]
4
| b[3-{0}] = a[{0}] + 1
4
| z[{0}] = b[{0}]
""",
        "unpack 1",
        "copy",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_rule_refuses_what_would_compute_something_else(case):
    check_refused(*REFUSED[case])


def test_a_dimension_that_tells_parallel_iterations_apart_with_another_is_kept():
    program, move = canonical(parse(TRAPS["skewed"])), Move.parse("reuse_dim t 1")
    assert is_proven(program)
    with pytest.raises(ProgramError, match=r"\(rule reuse_dim\.marks\)"):
        apply_move(program, move)
    # what would come of it: two threads at one element, in no order of the interpreter
    raced, _ = KINDS["reuse_dim"].attempt(program, move, without={"reuse_dim.marks"})
    assert not is_proven(raced)
    alone = apply_move(program, Move.parse("unmark 0"))
    assert is_proven(check_inverse(alone, move))
    # without the other one, iterations of the inner scope still have places of their own
    column = check_inverse(alone, Move.parse("reuse_dim t 0"))
    with pytest.raises(ProgramError, match=r"\(rule parallelise\.dependence\)"):
        apply_move(column, Move.parse("parallelise 0"))
    assert is_proven(check_inverse(column, Move.parse("parallelise 0.0")))


def test_sizes_are_limited():
    wide = FUSED.replace("[6]", f"[{LIMITS['reg'] // 4 + 1}]").replace(
        "6{mark}", f"{LIMITS['reg'] // 4 + 1}"
    )
    check_limited(wide.format(), "place a reg", "size")
    reused = wide.replace("] heap", ":r] reg").format()
    check_limited(reused, "materialise_dim a 0", "size")
    assert str(apply_move(canonical(parse(wide.format())), Move.parse("place a stack")))


def test_reuse_keeps_indices_and_is_undone():
    program = canonical(parse(FUSED.format(mark="")))
    changed = check_inverse(program, Move.parse("reuse_dim a 0"))
    assert "tmp a f32 [6:r] heap" in to_text(changed)
    assert changed.body == program.body
    private = check_inverse(changed, Move.parse("place a reg"))
    parallel = check_inverse(private, Move.parse("parallelise 0"))
    with pytest.raises(ProgramError, match=r"place\.shared"):
        apply_move(parallel, Move.parse("place a heap"))


def test_a_dimension_splits_where_a_scope_was_split():
    start = replay(canonical(parse(FUSED.format(mark=""))), "split 0 2")
    assert [str(m) for m in possible_moves(start, "split_dim")] == ["split_dim a 0 2"]
    cut = check_inverse(start, Move.parse("split_dim a 0 2"))
    assert op_text(cut.body[0].body[0].body[0]) == "a[{0},{1}] = 2 * x[2*{0}+{1}]"
    turned = check_inverse(cut, Move.parse("swap_dims a 0"))
    assert turned.buffer("a").shape == (2, 3)
    half = replay(cut, "fission 0.0 1; reuse_dim a 0")
    assert half.buffer("a").elements == 2
    assert deviation(half, start) == 0


def test_layouts_pass_over_dimensions_without_storage():
    text = """kernel tile
in x f32 [2,3,4]
tmp a f32 [2,3:r,4] heap
out z f32 [2,3,4]
---
3
| 2
| | 4
| | | a[{1},{0},{2}] = x[{1},{0},{2}]
| 2
| | 4
| | | z[{1},{0},{2}] = a[{1},{0},{2}]
"""
    program = canonical(parse(text))
    assert [str(m) for m in possible_moves(program, "swap_dims")] == ["swap_dims a 0"]
    changed = check_inverse(program, Move.parse("swap_dims a 0"))
    assert [d.extent for d in changed.buffer("a").dims] == [4, 3, 2]
    assert changed.buffer("a").strides == (2, 0, 1)


def test_only_results_are_stored_past_the_caches():
    program = canonical(parse(FUSED.format(mark="")))
    assert check_inverse(program, Move.parse("place z nt")).buffer("z").place == "nt"
    assert not any(m.arguments == ("x", "nt") for m in possible_moves(program, "place"))
    ahead = Move.parse("place x ahead")
    assert ahead not in possible_moves(program, "place")  # nothing is stored past the caches
    streamed = apply_move(program, Move.parse("place z nt"))
    assert check_inverse(streamed, ahead).buffer("x").place == "ahead"
    kept = apply_move(apply_move(streamed, ahead), Move.parse("place z heap"))
    assert inverse(kept, Move.parse("place x heap")) is None
    summed = FUSED.replace("| z[{{0}}] = a[{{0}}] + 1", "| z[{{0}}] += a[{{0}}]").format(mark="")
    assert not any("nt" in m.arguments for m in possible_moves(parse(summed), "place"))


def test_what_a_tile_uses_several_times_can_be_fetched_ahead():
    def product(rows, columns):
        start = get_operator("linear_relu").program({"m": rows, "n": columns, "k": 1024})
        plan = expert_schedule(start, threads=1)
        return replay(start, plan)

    ahead = Move.parse("place w ahead")
    assert "nt" not in {b.place for b in product(8, 64).buffers}
    assert check_inverse(product(8, 64), ahead).buffer("w").place == "ahead"
    assert ahead not in possible_moves(product(8, 32), "place")  # too small to reach so far
    assert not any("x" in m.arguments for m in possible_moves(product(8, 64), "place"))


def test_a_panel_is_packed_contiguously():
    matmul = get_operator("matmul")
    start = replay(matmul.program(matmul.tiny), "split 1.0 3; interchange 1")  # n in panels of 3
    whole = check_inverse(start, Move.parse("pack 1 b"))
    assert whole.buffer("t0").shape == (8, 6)
    panel = check_inverse(start, Move.parse("pack 1.0 b"))
    assert panel.buffer("t0").shape == (8, 3)
    copy, reader = panel.body[1].body
    assert op_text(copy.body[0].body[0]) == "t0[{1},{2}] = b[{1},3*{0}+{2}]"
    assert (
        op_text(reader.body[0].body[0].body[0]) == "c[{1},3*{0}+{2}] += a[{1},{3}] * t0[{3},{2}]"
    )
    # every panel of a whole copy side by side: [panel, k, column]
    tiled = replay(whole, "split 1.0 3; split_dim t0 1 3; swap_dims t0 0")
    assert tiled.buffer("t0").shape == (2, 8, 3)
    assert deviation(tiled, start) < 1e-12


def test_a_pack_over_a_single_iteration_has_no_inverse():
    body = "8\n| z[{0}] = 0\n1\n| 4\n| | 8\n| | | z[{2}] += x[{0},{2}]\n"
    start = parse(f"kernel k\nin x f32 [1,8]\nout z f32 [8]\n---\n{body}")
    move = Move.parse("pack 1 x")
    packed = apply_move(start, move)
    assert inverse(start, move) is None
    assert to_text(apply_move(packed, Move.parse("unpack 1"))) != to_text(start)


def test_nothing_is_packed_that_is_read_once():
    softmax = get_operator("softmax").program({"rows": 4, "cols": 6})
    packed = {m.arguments[0] for m in possible_moves(softmax, "pack")}
    assert packed == {"m", "s"}


def test_a_copy_in_a_parallel_scope_is_private():
    matmul = get_operator("matmul")
    start = replay(matmul.program(matmul.tiny), "split 1.0 3; interchange 1; parallelise 1")
    packed = apply_move(start, Move.parse("pack 1.0 b"))
    assert packed.buffer("t0").place == "stack"
    assert deviation(packed, start) < 1e-12


def test_every_offered_move_of_storage_keeps_the_meaning_and_is_undone():
    matmul = get_operator("matmul")
    schedule = "fuse 0; fuse 0; fuse 0.0; fuse 0.0; split 0 2; split 0.0.0 3"
    start = replay(matmul.program(matmul.tiny), schedule)
    kinds = ("reuse_dim", "split_dim", "swap_dims", "place", "pack")
    offered = [move for move in legal_moves(start) if move.kind in kinds]
    assert {move.kind for move in offered} == set(kinds)
    for move in offered:
        check_inverse(start, move)
