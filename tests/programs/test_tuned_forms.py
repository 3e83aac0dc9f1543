"""Moves reach the forms that a performance engineer would write, and all of it can be undone."""

import pytest

from kt_lab.errors import ProgramError
from kt_lab.programs.interpret import interpret
from kt_lab.programs.operators import error, get_operator
from kt_lab.programs.schedule import (
    apply_move,
    inverse,
    parse_schedule,
    replay,
)
from kt_lab.programs.text import to_text
from tests.programs.tuned import EXTENTS, SCHEDULES, operator_name

FUSED_SOFTMAX = """tmp m f32 [4:r] reg
tmp s f32 [4:r] reg
tmp e f32 [4:r,8] stack
out z f32 [4,8]
---
4:p
| m[{0}] = -inf
| 8:v
| | m[{0}] max= x[{0},{1}]
| s[{0}] = 0
| 8:v
| | e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
| | s[{0}] += e[{0},{1}]
| 8:v
| | z[{0},{1}] = e[{0},{1}] / s[{0}]
"""
MATMUL_TILE = """| 2
| | 8:u
| | | 32:v
| | | | c[{1},{2},{0},{3}] = 0
| | 6
| | | 8:u
| | | | 32:v
| | | | | c[{1},{3},{0},{4}] += a[8*{1}+{3},{2}] * t0[{2},{4}]
"""


def tuned(name):
    start = get_operator(operator_name(name)).program(EXTENTS[name])
    return replay(start, SCHEDULES[name])


@pytest.mark.parametrize("name", SCHEDULES)
def test_tuned_forms_compute_what_the_operator_means(name):
    operator = get_operator(operator_name(name))
    for case in ("random", "negative"):
        inputs = operator.inputs(EXTENTS[name], case=case)
        expected = operator.expected(inputs)
        for seed in (0, 1, 2):
            assert error(interpret(tuned(name), inputs, seed=seed), expected) < 1e-12


@pytest.mark.parametrize("name", SCHEDULES)
def test_tuned_forms_go_back_to_the_start_move_by_move(name):
    start = program = get_operator(operator_name(name)).program(EXTENTS[name])
    back = []
    for move in parse_schedule(SCHEDULES[name]):
        back.append(inverse(program, move))
        program = apply_move(program, move)
        if back[-1] is None:  # from here on
            assert move.kind == "inline"
            start, back = program, []
    assert replay(program, reversed(back)) == start


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_carry_over_to_the_real_extents(name):
    operator = get_operator(operator_name(name))
    start = operator.program(operator.workloads[0].extents)
    program, left = start, set()
    for move in parse_schedule(SCHEDULES[name]):
        try:
            program = apply_move(program, move)
        except ProgramError:
            left.add(move)
    # the storage of a single image has nothing to reuse along the images
    assert {(m.kind, m.arguments[1]) for m in left} <= {("reuse_dim", 0)}
    assert not left or start.buffers[0].shape[0] == 1
    stored, before = (sum(b.elements for b in p.of_kind("tmp")) for p in (program, start))
    assert stored < before or not before


def test_softmax_ends_in_three_passes_over_a_row():
    assert to_text(tuned("softmax")).endswith(FUSED_SOFTMAX)


def test_matmul_ends_in_a_register_tile_over_a_packed_panel():
    program = tuned("matmul")
    assert MATMUL_TILE in to_text(program)
    tile, panel = program.buffer("c"), program.buffer("t0")
    assert (tile.place, tile.elements, tile.strides) == ("reg", 8 * 32, (0, 32, 0, 1))
    assert (panel.place, panel.shape) == ("stack", (6, 32))


def test_convolution_keeps_a_tile_of_pixels_by_filters_in_registers():
    program = tuned("conv2d")
    tile, filters = program.buffer("y"), program.buffer("t0")
    assert (tile.place, tile.elements) == ("reg", 14 * 32)
    assert filters.shape == (2, 3, 3, 64)  # channel, tap, tap, filter: filters are neighbours


def test_depthwise_taps_add_up_in_scalars_of_each_lane():
    program = tuned("depthwise_conv2d")
    assert program.buffer("y").elements == 4
    rows = program.body[0].body[0].body[2]
    assert [node.mark for node in rows.body] == ["v"]
    assert [op.kind for op in rows.body[0].body] == ["=", *["+="] * 9, "="] * 4
