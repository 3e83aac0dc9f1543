"""The text of programs: canonical, parsed back exactly, and precise about what is wrong."""

from dataclasses import replace

import pytest

from kt_lab.errors import ProgramError
from kt_lab.programs.affine import Affine
from kt_lab.programs.ir import Binary, Const, Dim
from kt_lab.programs.operators import operators
from kt_lab.programs.surgery import canonical, with_buffers
from kt_lab.programs.text import affine_text, expr_text, parse, parse_expr, to_text

TEXT = """kernel row_sum
in x f32 [8,16]
tmp s f32 [8:r] reg
out z f32 [8] nt
---
8:p
| s[{0}] = 0
| 2
| | 8:v
| | | s[{0}] += x[{0},8*{1}+{2}]
| 1:u4
| | z[{0}] = -1.5e-07 * s[{0}]
"""


@pytest.mark.parametrize("operator", operators(), ids=lambda operator: operator.name)
def test_every_operator_round_trips_and_starts_canonical(operator):
    for extents in (operator.tiny, *(w.extents for w in operator.workloads)):
        program = operator.program(extents)
        text = to_text(program)
        assert parse(text) == program
        assert to_text(parse(text)) == text
        assert canonical(program) is program


def test_marks_places_reuse_and_signs_round_trip():
    program = parse(TEXT)
    assert to_text(program) == TEXT
    assert program.buffer("s").dims == (Dim(8, reused=True),)
    assert program.buffer("s").elements == 1
    assert program.buffer("z").place == "nt"
    assert [scope.mark for scope in (program.body[0], program.body[0].body[2])] == ["p", "u4"]


def test_spaces_and_blank_lines_do_not_matter():
    loose = TEXT.replace(" f32 ", "   f32  ").replace("| | | ", "|||").replace(" += ", "+=")
    assert parse("\n" + loose.replace("---", "\n---\n")) == parse(TEXT)


@pytest.mark.parametrize(
    "text",
    [
        "a[{0}] - (b[{0}] - c[{0}])",
        "a[{0}] - b[{0}] - c[{0}]",
        "(a[{0}] + b[{0}]) * c[{0}] / (d[{0}] * 2)",
        "a[{0}] / (b[{0}] / c[{0}])",
        "select(a[{0}], -inf, max(b[3*{0}-1], -2.5e-08))",
        "1e+16 * a[-{0}+2*{1}+7] - -1",
    ],
)
def test_expressions_keep_their_tree(text):
    expr = parse_expr(text)
    assert expr_text(expr) == text
    assert parse_expr(expr_text(expr)) == expr


def test_redundant_parentheses_go_and_needed_ones_stay():
    assert expr_text(parse_expr("((1 * 2) + (3))")) == "1 * 2 + 3"
    tree = Binary("*", Const(1), Binary("+", Const(2), Const(3)))
    assert expr_text(tree) == "1 * (2 + 3)"


def test_equal_values_have_equal_text():
    assert Affine(1, (0, 2, 0, 0)) == Affine(1, (0, 2))
    assert affine_text(Affine(0, (0, 0))) == "0"
    assert expr_text(Const(-0.0)) == expr_text(Const(0)) == "0"


def test_temporaries_that_moves_made_are_renumbered_by_first_use():
    text = TEXT.replace("s[", "t7[").replace("tmp s", "tmp t7").replace("z[{0}] =", "z[{0}] =")
    spare = replace(parse(text).buffer("t7"), name="t0")
    program = canonical(with_buffers(parse(text), {"t0": spare}))
    assert [b.name for b in program.buffers] == ["x", "t0", "z"]
    assert to_text(program) == TEXT.replace("s[", "t0[").replace("tmp s", "tmp t0")


@pytest.mark.parametrize(
    ("old", "new", "line", "law"),
    [
        ("---\n", "", "", "---"),
        ("kernel row_sum", "kernel", "line 1", "kernel NAME"),
        ("in x f32 [8,16]", "in x f32 [8,]", "line 2", "a buffer is"),
        ("| s[{0}] = 0", "| | s[{0}] = 0", "line 7", "at most 1 bars"),
        ("| s[{0}] = 0", "| s[{0}] := 0", "line 7", "a line is"),
        ("| s[{0}] = 0", "| s[{0}] = 0 0", "line 7", "nothing follows"),
        ("| s[{0}] = 0", "| s[{0}] = (0", "line 7", "')' is expected"),
        ("| s[{0}] = 0", "| s[{0}] = cosh(0)", "line 7", "'cosh' is no function"),
        ("| s[{0}] = 0", "| s[0.5] = 0", "line 7", "integers and iterators"),
        ("| s[{0}] = 0", "| s[{0}] = 0 ! 1", "line 7", "an expression holds"),
        ("| 1:u4\n| | z", "| 1:u4\n| z", "line 11", "a scope has a body"),
    ],
)
def test_errors_of_the_grammar_name_the_line(old, new, line, law):
    assert old in TEXT
    with pytest.raises(ProgramError) as raised:
        parse(TEXT.replace(old, new))
    assert line in str(raised.value)
    assert law in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "law"),
    [
        ("8*{1}+{2}]", "8*{1}+{2}+1]", "stays within its buffer; got 1..16"),
        ("x[{0},8*", "x[{0}-1,8*", "stays within its buffer; got -1..6"),
        ("x[{0},8*{1}+{2}]", "x[{0}]", "one index per dimension"),
        ("| s[{0}] = 0", "| s[{1}] = 0", "enclosing scopes only"),
        ("| s[{0}] = 0", "| x[{0},0] = 0", "an input is never written"),
        ("| s[{0}] = 0", "| q[{0}] = 0", "declared in the header"),
        ("| s[{0}] = 0", "| s[{0}] = exp(1, 2)", "a function is one of"),
        ("8:p", "8:w", "a mark is"),
        ("1:u4", "1:u1", "a mark is"),
        ("out z f32 [8] nt", "out z f32 [8:r]", "only a tmp has reused dimensions"),
        ("out z f32 [8] nt", "out z f32 [8] reg", "an out buffer is placed in"),
        ("out z f32 [8] nt", "out z f16 [8]", "a dtype is one of"),
        ("out z f32 [8] nt", "out s f32 [8]", "buffer names are unique"),
        ("in x f32 [8,16]", "in x f32 [8,0]", "extent >= 1"),
        ("tmp s f32 [8:r] reg", "tmp exp f32 [8:r] reg", "no function"),
        ("8:p", "0:p", "a scope's extent is >= 1"),
    ],
)
def test_errors_of_structure_name_the_law(old, new, law):
    assert old in TEXT
    with pytest.raises(ProgramError, match="; got ") as raised:
        parse(TEXT.replace(old, new))
    assert law in str(raised.value)


def test_the_header_lists_inputs_temporaries_outputs():
    program = parse(TEXT)
    with pytest.raises(ProgramError, match="in, then tmp, then out"):
        replace(program, buffers=program.buffers[::-1])
