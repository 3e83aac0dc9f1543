"""Moves of the tree: what each does to the text, what undoes it, what its rules prevent."""

import numpy as np
import pytest

from kt_lab.errors import ProgramError
from kt_lab.programs.moves import KINDS, Move
from kt_lab.programs.operators import get_operator
from kt_lab.programs.schedule import (
    apply_move,
    inverse,
    legal_moves,
    parse_schedule,
    possible_moves,
    replay,
    schedule_text,
)
from kt_lab.programs.text import parse, to_text
from kt_lab.programs.traps import TRAPS
from kt_lab.runners.c import run_program
from tests.programs.refusals import check_inverse, check_limited, check_refused


def kernel(body, a="f32 [4,6] heap", z="[4,6]"):
    """A program over x and y of 4 x 6, with a temporary a and an output z."""
    header = f"kernel k\nin x f32 [4,6]\nin y f32 [4,6]\ntmp a {a}\nout z f32 {z}\n---\n"
    return header.replace("tmp a None\n", "") + body


CHAIN = kernel(
    "4\n| 6\n| | a[{0},{1}] = x[{0},{1}] * y[0,0]\n"
    "4\n| 6\n| | z[{0},{1}] = exp(a[{0},{1}]) + y[{0},{1}]\n"
)


def body(program):
    return to_text(program).split("---\n")[1]


# program, record, body afterwards (or its start); the inverse leads back
EFFECTS = {
    "split": (CHAIN, "split 0.0 2", "4\n| 3\n| | 2\n| | | a[{0},2*{1}+{2}] = x[{0},2*{1}+{2}]"),
    "split of a parallel scope": (
        kernel("4:p\n| 6\n| | z[{0},{1}] = x[{0},{1}]\n", None),
        "split 0 2",
        "2:p\n| 2\n| | 6\n| | | z[2*{0}+{1},{2}] = x[2*{0}+{1},{2}]\n",
    ),
    "merge": (
        kernel("4\n| 3:p\n| | 2\n| | | z[{0},2*{1}+{2}] = x[{0},2*{1}+{2}]\n", None),
        "merge 0.0",
        "4\n| 6:p\n| | z[{0},{1}] = x[{0},{1}]\n",
    ),
    "interchange": (
        kernel("4\n| 6:p\n| | z[{0},{1}] = x[{0},{1}]\n", None),
        "interchange 0",
        "6:p\n| 4\n| | z[{1},{0}] = x[{1},{0}]\n",
    ),
    "swap": (
        kernel("2\n| z[{0}] = x[{0},1]\n2\n| z[{0}+2] = 2\n", None, "[4]"),
        "swap 0",
        "2\n| z[{0}+2] = 2\n2\n| z[{0}] = x[{0},1]\n",
    ),
    "fuse": (CHAIN, "fuse 0", "4\n| 6\n| | a[{0},{1}] = x[{0},{1}] * y[0,0]\n| 6\n| | z[{0},{1}]"),
    "fission": (
        kernel("4\n| 6\n| | a[{0},{1}] = x[{0},{1}]\n| | z[{0},{1}] = a[{0},{1}]\n"),
        "fission 0.0 1",
        "4\n| 6\n| | a[{0},{1}] = x[{0},{1}]\n| 6\n| | z[{0},{1}] = a[{0},{1}]\n",
    ),
    "hoist of the first": (
        kernel("4\n| 6\n| | a[{0}] = y[{0},1]\n| | z[{0},{1}] = a[{0}]\n", "f32 [4] heap"),
        "hoist 0.0.0",
        "4\n| a[{0}] = y[{0},1]\n| 6\n| | z[{0},{1}] = a[{0}]\n",
    ),
    "hoist of the last": (
        kernel("4\n| z[0,{0}] = y[{0},1]\n| 4\n| | z[1,{1}] = y[1,{1}]\n", None, "[2,4]"),
        "hoist 0.1",
        "4\n| z[0,{0}] = y[{0},1]\n4\n| z[1,{0}] = y[1,{0}]\n",
    ),
    "sink": (
        kernel("6\n| a[1,{0}] = x[1,{0}]\n4\n| z[{0}] = y[{0},1] + a[1,2]\n", z="[4]"),
        "sink 0 next",
        "4\n| 6\n| | a[1,{1}] = x[1,{1}]\n| z[{0}] = y[{0},1] + a[1,2]\n",
    ),
    "sink behind": (
        kernel("3\n| z[{0}] = y[{0},1]\nz[3] = 3\n", None, "[4]"),
        "sink 1 previous",
        "3\n| z[{0}] = y[{0},1]\n| z[3] = 3\n",
    ),
    "extract": (
        kernel("4\n| z[{0}] = 2 * exp(x[{0},1] * y[0,1]) + x[{0},1] * y[0,1]\n", None, "[4]"),
        "extract 0.0 0 1 0",
        "4\n| t0[{0}] = x[{0},1] * y[0,1]\n| z[{0}] = 2 * exp(t0[{0}]) + t0[{0}]\n",
    ),
    "inline": (
        kernel(
            "4\n| t0[{0}] = x[{0},1] * y[0,1]\n| z[{0}] = t0[{0}] + 1 / t0[{0}]\n",
            "f32 [4:r] reg",
            "[4]",
        ).replace("tmp a", "tmp t0"),
        "inline 0.0",
        "4\n| z[{0}] = x[{0},1] * y[0,1] + 1 / (x[{0},1] * y[0,1])\n",
    ),
    "reciprocal": (
        kernel("4\n| z[{0}] = exp(x[{0},1] / y[0,1]) - x[{0},2] / y[0,1]\n", None, "[4]"),
        "reciprocal 0.0 0 0",
        "4\n| z[{0}] = exp(x[{0},1] * (1 / y[0,1])) - x[{0},2] / y[0,1]\n",
    ),
    "divide": (
        kernel("4\n| z[{0}] = exp(x[{0},1]) * (1 / exp(y[0,1]))\n", None, "[4]"),
        "divide 0.0",
        "4\n| z[{0}] = exp(x[{0},1]) / exp(y[0,1])\n",
    ),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_a_move_does_what_it_says_and_is_undone(name):
    text, record, expected = EFFECTS[name]
    assert body(check_inverse(parse(text), Move.parse(record))).startswith(expected)


def test_a_value_is_computed_in_another_nest_where_it_is_read():
    fused = apply_move(parse(CHAIN), Move("inline", (0, 0, 0)))
    assert body(fused) == "4\n| 6\n| | z[{0},{1}] = exp(x[{0},{1}] * y[0,0]) + y[{0},{1}]\n"
    assert fused.of_kind("tmp") == ()
    assert inverse(parse(CHAIN), Move("inline", (0, 0, 0))) is None  # the nest is gone


def test_a_value_that_is_read_elsewhere_in_another_order_is_computed_there():
    write, read = "4\n| 6\n| | a[{0},{1}] = x[{0},{1}] * 2\n", "z[{1},{0}] = a[2*{1}+1,{0}]\n"
    text = kernel(f"{write}6\n| 2\n| | {read}", z="[2,6]")
    inlined = apply_move(parse(text), Move("inline", (0, 0, 0)))
    assert body(inlined) == "6\n| 2\n| | z[{1},{0}] = x[2*{1}+1,{0}] * 2\n"


REFUSED = {
    "a wave front": ("wavefront", "interchange 1", "dependence"),
    "the last of several writes": ("last_wins", "interchange 0", "dependence"),
    "a parallel scope that would be outside": ("diagonal", "interchange 1", "marks"),
    "a write before a read": ("recurrence", "swap 1.0", "dependence"),
    "a recurrence cut": ("recurrence", "fission 1 1", "dependence"),
    "a parallel neighbour's value": ("shifted", "fuse 1", "marks"),
    "scratch of each iteration, shared": ("scratch", "fission 0 2", "marks"),
    "a register that must last": ("delay", "hoist 1.1", "kept"),
    "a sum that starts anew": ("restart", "hoist 0.0", "kept"),
    "a count": ("counter", "hoist 1.0", "repeatable"),
    "a slot beside private ones": ("slots", "hoist 0.0", "marks"),
    "an operand that changes": ("snapshot", "inline 1.0", "operands"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_rule_stands_between_a_program_and_a_wrong_one(name):
    trap, record, rule = REFUSED[name]
    check_refused(TRAPS[trap], record, rule)


def test_a_start_value_is_not_the_sum_and_reads_come_before_later_writes():
    start = get_operator("row_sum")
    text = to_text(start.program(start.tiny))
    check_refused(text, "inline 0.0", "single")
    check_refused(text, "sink 1 next", "repeatable")
    ahead = kernel(
        "4\n| a[{0}] = x[0,{0}]\n3\n| z[{0}] = a[{0}]\n3\n| a[{0}+1] = 9\n", "f32 [4] heap", "[3]"
    )
    check_refused(ahead, "fuse 1", "dependence")


def test_storage_that_is_used_again_keeps_its_scope():
    fused = kernel("4\n| a[{0}] = x[{0},0]\n| z[{0}] = a[{0}]\n", "f32 [4:r] heap", "[4]")
    check_refused(fused, "fission 0 1", "storage")
    check_limited(TRAPS["trace"], "fuse 0", "storage")
    check_limited(TRAPS["diagonal"], "split 1 2", "marks")


def test_vector_scopes_hold_operations_only_and_parallel_ones_do_not_nest():
    lanes = kernel("2:p\n| z[{0}] = x[1,{0}]\n2:v\n| z[{0}+2] = y[{0},1]\n", None, "[4]")
    check_formed(lanes, "sink 0 next")
    check_formed(lanes.replace(":v", ":p"), "sink 0 next")
    nest = kernel("4\n| 6:v\n| | z[{0},{1}] = x[{0},{1}]\n", None)
    check_limited(nest, "interchange 0", "form")


def check_formed(text, record):
    """Asserts that form alone would refuse a move; a race of equal values is in its way too."""
    program, move = parse(text), Move.parse(record)
    attempt = KINDS[move.kind].attempt
    assert attempt(program, move)[1].name == "marks"
    assert attempt(program, move, without={f"{move.kind}.marks"})[1].name == "form"


def test_expressions_do_not_grow_without_end():
    text = "kernel k\nin x f32 [2]\ntmp a f32 [2] reg\nout z f32 [2]\n---\n2\n"
    long = " + ".join(["x[{0}]"] * 13)
    text += f"| a[{{0}}] = {long}\n| z[{{0}}] = a[{{0}}] * a[{{0}}]\n"
    check_limited(text, "inline 0.0", "size")


WIDE = """kernel wide
in x {x} [1]
tmp t {t} [1] reg
out z {z} [1]
---
t[0] = x[0] + 100000000
z[0] = t[0] - 100000000
"""


def run(program):
    """The one result of a program's C for 0.5, which float32 loses beside 1e8."""
    return float(run_program(program, {"x": np.full(1, 0.5)})["z"][0])


@pytest.mark.parametrize(
    ("x", "t", "z", "kept", "lost"),
    [("f32", "f64", "f32", 0.5, 0.0), ("f64", "f32", "f64", 0.0, 0.5)],
)
def test_what_is_inlined_stays_in_the_dtype_that_it_was_computed_in(x, t, z, kept, lost):
    program, move = parse(WIDE.format(x=x, t=t, z=z)), Move.parse("inline 0")
    with pytest.raises(ProgramError, match=r"\(rule inline\.dtype\)"):
        apply_move(program, move)
    assert run(program) == kept
    strayed, broken = KINDS["inline"].attempt(program, move, without={"inline.dtype"})
    assert broken is None
    assert run(strayed) == lost


@pytest.mark.parametrize(("x", "z"), [("f64", "f32"), ("f32", "f64"), ("f64", "f64")])
def test_what_is_kept_of_double_precision_is_double(x, z):
    whole = parse(f"kernel wide\nin x {x} [1]\nout z {z} [1]\n---\nz[0] = (x[0] + 1e8) - 1e8\n")
    changed = check_inverse(whole, Move.parse("extract 0 0"))
    assert changed.buffer("t0").dtype == "f64"
    assert run(changed) == run(whole) == 0.5


def test_a_reciprocal_is_not_taken_of_itself_and_rounds_once_more():
    text = kernel("4\n| z[{0}] = 1 / x[{0},1] + x[{0},2] / y[0,1]\n", None, "[4]")
    (move,) = possible_moves(parse(text), "reciprocal")
    assert str(move) == "reciprocal 0.0 1"
    assert possible_moves(parse(text), "divide") == ()
    assert not KINDS["reciprocal"].is_exact(parse(text), move)
    assert not KINDS["divide"].is_exact(parse(text), move)


def test_moves_that_reassociate_sums_are_told():
    text = kernel(
        "6\n| a[{0}] = 0\n4\n| 6\n| | a[{1}] += x[{0},{1}]\n6\n| z[{0}] = a[{0}]\n",
        "f32 [6] heap",
        "[6]",
    )
    columns = parse(text)
    whole = parse(text.replace("[{1}]", "[0]"))
    move = Move("interchange", (1,))
    kind = KINDS["interchange"]
    assert kind.is_exact(columns, move)  # each column is summed as before
    assert not kind.is_exact(whole, move)
    assert kind.is_exact(parse(to_text(whole).replace("+=", "max=")), move)
    assert move in legal_moves(whole)
    assert move not in legal_moves(whole, exact_only=True)
    assert set(legal_moves(whole, exact_only=True)) < set(legal_moves(whole))


def test_records_read_back_and_wrong_ones_are_refused():
    for record in ("fuse 0.2", "split 1.0 8", "place t0 reg", "extract 0.0", "sink 3 next"):
        assert str(Move.parse(record)) == record
    assert Move.parse(" split  1.0   8 ") == Move("split", (1, 0), (8,))
    for record in ("", "0.1", "split 1.x 8", "place t0 reg!", "split"):
        with pytest.raises(ProgramError, match="a move "):
            Move.parse(record)
    with pytest.raises(ProgramError, match="a move has an address, or arguments"):
        Move("split", (), (8,))


def test_schedules_replay_strictly():
    start = parse(CHAIN)
    text = "fuse 0; fuse 0.0; interchange 0"
    assert schedule_text(parse_schedule(text)) == text
    assert parse_schedule(" ; ") == ()
    assert replay(start, "") == start
    end = replay(start, text)
    assert body(end).startswith("6\n| 4\n| | a[{1},{0}]")
    assert replay(start, parse_schedule(text)) == end
    broken = f"swap 0; {text}; split 0 4; inline 0.0.9"
    with pytest.raises(ProgramError, match=r"got swap 0 \(rule swap\.dependence\)"):
        replay(start, broken)
    with pytest.raises(ProgramError, match="Nothing fits split 0 5"):
        replay(start, "split 0 5")
    with pytest.raises(ProgramError, match=r"a move is one of split, merge, .*; got rotate 0"):
        replay(start, "rotate 0")
    apply_move(start, Move("fuse", (0,)))
    with pytest.raises(ProgramError, match="neither of the two needs"):
        apply_move(start, Move("swap", (0,)))


def test_legal_moves_are_the_possible_ones_that_apply():
    start = parse(CHAIN)
    legal = list(legal_moves(start))
    assert len(set(legal)) == len(legal)
    for kind in KINDS:
        possible = possible_moves(start, kind)
        assert len(set(possible)) == len(possible)
        for move in possible:
            if move in legal:
                assert apply_move(start, move) != start
            else:
                with pytest.raises(ProgramError, match=rf"\(rule {kind}\."):
                    apply_move(start, move)
    without = set(legal_moves(start, without={"swap.dependence"}))
    assert without - set(legal) == {Move("swap", (0,))}
