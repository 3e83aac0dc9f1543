"""Scopes written out and rolled up again."""

import pytest

from kt_lab.programs.moves import Move
from kt_lab.programs.schedule import apply_move, inverse, possible_moves, replay
from kt_lab.programs.surgery import canonical
from kt_lab.programs.text import op_text, parse
from tests.programs.refusals import check_inverse, check_limited

TAPS = """kernel taps
in x f32 [10]
in f f32 [3]
tmp y f32 [8] heap
out z f32 [8]
---
8
| y[{0}] = 0
3
| 8
| | y[{1}] += x[{1}+{0}] * f[{0}]
8
| z[{0}] = y[{0}]
"""
LONG = """kernel long
in x f32 [25]
out z f32 [25]
---
25
| z[{0}] = x[{0}]
"""


def test_iterations_are_written_out_and_rolled_up():
    program = canonical(parse(TAPS))
    changed = check_inverse(program, Move.parse("expand 1"))
    taps = [node.body[0] for node in changed.body[1:4]]
    assert [op_text(op) for op in taps] == [
        "y[{0}] += x[{0}] * f[0]",
        "y[{0}] += x[{0}+1] * f[1]",
        "y[{0}] += x[{0}+2] * f[2]",
    ]
    assert inverse(program, Move.parse("expand 1")) == Move.parse("roll 1 1 3")
    scalar = replay(changed, "fuse 0; fuse 0; fuse 0; fuse 0; reuse_dim y 0; place y reg")
    assert scalar.buffer("y").elements == 1
    assert check_inverse(scalar, Move.parse("vectorise 0")).body[0].mark == "v"


@pytest.mark.parametrize("steps", [(0, 1, 2), (2, 1, 0), (1, 1, 1)])
def test_equal_steps_roll_up(steps):
    lines = "".join(f"y[{k}] = x[{step}]\n" for k, step in enumerate(steps))
    text = TAPS.split("8\n| y")[0] + lines + "8\n| z[{0}] = y[0] * f[1] + y[1] - y[2]\n"
    program = canonical(parse(text))
    assert [str(m) for m in possible_moves(program, "roll")] == ["roll 0 1 3"]
    check_inverse(program, Move.parse("roll 0 1 3"))


def test_unequal_steps_do_not():
    lines = "y[0] = x[0]\ny[1] = x[1]\ny[3] = x[2]\n"
    text = TAPS.split("8\n| y")[0] + lines + "8\n| z[{0}] = y[0] * f[1] + y[1] - y[3]\n"
    assert [str(m) for m in possible_moves(parse(text), "roll")] == ["roll 0 1 2", "roll 1 1 2"]


def test_groups_of_several_nodes_roll_up():
    text = TAPS.replace(
        "| y[{0}] = 0", "| y[{0}] = 0\n2\n| 4\n| | y[{1}] = 0\n| 4\n| | y[4+{1}] = 1"
    )
    program = canonical(parse(text))
    written = apply_move(program, Move.parse("expand 1"))
    assert Move.parse("roll 1 2 2") in possible_moves(written, "roll")
    check_inverse(program, Move.parse("expand 1"))


def test_what_is_written_out_stays_short():
    check_limited(LONG, "expand 0", "size")
