"""Tree surgery: addresses, insertion and removal, and rewritten iterators keep the meaning."""

from dataclasses import replace

import numpy as np
import pytest

from kt_lab.errors import ProgramError
from kt_lab.programs.affine import Affine
from kt_lab.programs.interpret import interpret
from kt_lab.programs.ir import Buffer, Dim, Op, Scope
from kt_lab.programs.operators import error, get_operator
from kt_lab.programs.surgery import (
    buffers_with,
    exchanged_levels,
    extents_above,
    fresh_name,
    merged_level,
    node_at,
    ops,
    plain,
    replaced,
    scopes_above,
    shifted,
    split_dim,
    split_level,
    substituted,
    walk,
    with_buffers,
)
from kt_lab.programs.text import op_text, parse, to_text

MATMUL = get_operator("matmul")
START = MATMUL.program(MATMUL.tiny)  # 4 x 6 x 8


def split(program, address, inner):
    scope = node_at(program, address)
    depth = len(address) - 1
    body = tuple(split_level(node, depth, inner) for node in scope.body)
    return replaced(program, address, Scope(scope.extent // inner, "", (Scope(inner, "", body),)))


def same_results(program):
    inputs = MATMUL.inputs(MATMUL.tiny)
    return error(interpret(program, inputs), MATMUL.expected(inputs)) < 1e-14


def test_addresses_lead_to_nodes_and_back():
    listed = dict(walk(START))
    assert len(listed) == 10
    assert all(node_at(START, address) is node for address, node in listed.items())
    assert [address for address, _ in ops(START)] == [(0, 0, 0), (1, 0, 0, 0), (2, 0, 0)]
    assert dict(ops(START, (1, 0, 0, 0))) == {(1, 0, 0, 0): listed[1, 0, 0, 0]}
    assert extents_above(START, (1, 0, 0, 0)) == (4, 6, 8)
    assert scopes_above(START, (1,)) == ()
    for wrong in ((), (3,), (0, 1), (0, 0, 0, 0), (-1,)):
        with pytest.raises(ProgramError, match="an address leads to a node"):
            node_at(START, wrong)


def test_nodes_are_inserted_replaced_and_removed():
    copy = node_at(START, (2,))
    longer = replaced(START, (3,), copy, count=0)
    assert len(longer.body) == 4
    assert replaced(longer, (3,)) == START
    assert replaced(START, (0,), node_at(START, (1,)), node_at(START, (0,)), count=2).body == (
        START.body[1],
        START.body[0],
        START.body[2],
    )
    assert replaced(longer, (3, 0, 0)) == START  # scopes that become empty go too
    with pytest.raises(ProgramError, match="a program has a body"):
        replaced(START, (0,), count=3)
    with pytest.raises(ProgramError, match="an address leads to a node"):
        replaced(START, (3,), count=1)


@pytest.mark.parametrize(("address", "inner"), [((1,), 2), ((1, 0), 3), ((1, 0, 0), 4)])
def test_a_split_keeps_the_results_and_a_merge_undoes_it(address, inner):
    program = split(START, address, inner)
    assert same_results(program)
    outer = node_at(program, address)
    merged = [merged_level(n, len(address) - 1, inner) for n in outer.body[0].body]
    scope = Scope(outer.extent * inner, "", tuple(merged))
    assert replaced(program, address, scope) == START


def test_a_merge_of_independent_iterators_is_refused():
    body = node_at(START, (1, 0)).body[0]
    assert merged_level(body, 0, 6) is None


def test_exchanged_levels_keep_the_results():
    outer = node_at(START, (1,))
    inner = outer.body[0]
    body = tuple(exchanged_levels(node, 0, 1) for node in inner.body)
    exchanged = replaced(START, (1,), Scope(6, "", (Scope(4, "", body),)))
    assert same_results(exchanged)
    assert op_text(dict(ops(exchanged))[1, 0, 0, 0]) == "c[{1},{0}] += a[{1},{2}] * b[{2},{0}]"


def test_shifts_and_substitutions():
    op = node_at(START, (1, 0, 0, 0))
    assert op_text(shifted(op, 1)) == "c[{0},{2}] += a[{0},{3}] * b[{3},{2}]"
    assert shifted(shifted(op, 1), 1, -1) == op
    fixed = substituted(op, 2, Affine(1, (0, 2)))
    assert op_text(fixed) == "c[{0},{1}] += a[{0},2*{1}+1] * b[2*{1}+1,{1}]"


def test_buffers_are_added_before_the_outputs():
    made = Buffer(fresh_name(START), "tmp", "f32", (Dim(4),))
    assert made.name == "t0"
    longer = with_buffers(START, {"t0": made})
    assert [b.name for b in longer.buffers] == ["a", "b", "c", "t0", "z"]
    assert fresh_name(longer) == "t1"
    assert with_buffers(longer, {"t0": None}) == START
    assert buffers_with(START, {}) == START.buffers
    placed = with_buffers(START, {"c": replace(START.buffer("c"), place="stack")})
    assert "tmp c f32 [4,6] stack" in to_text(placed)
    assert plain(placed) == START


def test_a_dimension_is_split_where_its_indices_are():
    assert split_dim(START, "c", 1, 3) is None  # {1} has no parts yet
    assert split_dim(START, "c", 1, 4) is None
    program = START
    for k in range(3):
        program = split(program, (k, 0), 3)
    tiled = split_dim(program, "c", 1, 3)
    assert tiled.buffer("c").shape == (4, 2, 3)
    assert tiled.buffer("c").elements == program.buffer("c").elements
    assert op_text(dict(ops(tiled))[1, 0, 0, 0, 0]).startswith("c[{0},{1},{2}] +=")
    inputs = MATMUL.inputs(MATMUL.tiny)
    assert np.array_equal(interpret(tiled, inputs)["z"], interpret(program, inputs)["z"])
    assert split_dim(program, "z", 1, 3) is None


def test_strides_leave_out_reused_dimensions():
    text = "kernel k\nin x f32 [2,3,4]\ntmp a f64 [2,3:r,4] heap\nout z f32 [2,3,4]\n---\n"
    text += "2\n| 3\n| | 4\n| | | a[{0},{1},{2}] = x[{0},{1},{2}]\n| | | z[{0},{1},{2}] = 0"
    a = parse(text).buffer("a")
    assert (a.strides, a.elements, a.bytes) == ((4, 0, 1), 8, 64)
    target = next(op.target for _, op in ops(parse(text)) if isinstance(op, Op))
    assert a.offset(target.indices) == Affine(0, (4, 0, 1))
