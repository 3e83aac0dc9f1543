"""Moves between dividing and multiplying by a reciprocal.

A division takes as long as ten products and more. What divides a whole row by one number can
multiply it by that number's reciprocal, which a compiler then computes once. It is rounded once
more, and the reciprocal of a number below 3e-39 is infinite in f32.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from kt_lab.programs.ir import Address, Binary, Call, Const, Expr, Program
from kt_lab.programs.moves.base import Kind, Move
from kt_lab.programs.moves.inlining import SIZE, parts_of
from kt_lab.programs.surgery import canonical, node_at, ops, replaced

_ONE = Const(1.0)


def is_division(part: Expr) -> bool:
    """Whether something other than 1 is divided."""
    return isinstance(part, Binary) and part.op == "/" and part.left != _ONE


def _is_product(part: Expr) -> bool:
    """Whether something is multiplied by a reciprocal."""
    if not isinstance(part, Binary) or part.op != "*" or part.left == _ONE:
        return False
    by = part.right
    return isinstance(by, Binary) and by.op == "/" and by.left == _ONE


def _find(kind: str, wanted: Callable[[Expr], bool]) -> Callable[[Program], Iterator[Move]]:
    """Returns the search for the parts of operations that a kind of move rewrites."""

    def find(program: Program) -> Iterator[Move]:
        for at, op in ops(program):
            for path, part in parts_of(op.expr):
                if wanted(part):
                    yield Move(kind, at, path)

    return find


def _with_part(expr: Expr, path: Address, part: Expr) -> Expr:
    """Returns an expression with the part that child positions lead to replaced."""
    if not path:
        return part
    inner = [expr.left, expr.right] if isinstance(expr, Binary) else list(expr.args)
    inner[path[0]] = _with_part(inner[path[0]], path[1:], part)
    return Binary(expr.op, *inner) if isinstance(expr, Binary) else Call(expr.fn, tuple(inner))


def _rewritten(program: Program, move: Move, part: Expr) -> Program:
    op = node_at(program, move.at)
    longer = replace(op, expr=_with_part(op.expr, move.arguments, part))
    return canonical(replaced(program, move.at, longer))


def _part(program: Program, move: Move) -> Binary:
    return dict(parts_of(node_at(program, move.at).expr))[move.arguments]


def _reciprocal(program: Program, move: Move) -> Program:
    part = _part(program, move)
    return _rewritten(program, move, Binary("*", part.left, Binary("/", _ONE, part.right)))


def _divide(program: Program, move: Move) -> Program:
    part = _part(program, move)
    return _rewritten(program, move, Binary("/", part.left, part.right.right))


KINDS = (
    Kind(
        "reciprocal",
        "Multiplies by a reciprocal in place of dividing; the arguments lead to the division.",
        (SIZE,),
        _find("reciprocal", is_division),
        _reciprocal,
        lambda _, move: Move("divide", move.at, move.arguments),
        exact=False,
    ),
    Kind(
        "divide",
        "Divides in place of multiplying by a reciprocal; the arguments lead to the product.",
        (),
        _find("divide", _is_product),
        _divide,
        lambda _, move: Move("reciprocal", move.at, move.arguments),
        exact=False,
    ),
)
