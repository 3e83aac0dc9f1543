"""Constraints: named expressions in a small whitelisted language, evaluated on columns.

The language has parameter names and constants, integer, float, string and boolean literals,
`and or not`, comparisons (chained ones too), `in` a literal tuple, `+ - * // %`, unary minus,
`a if c else b`, and the functions min, max, abs, cdiv (ceiling division) and next_power_of_two.
Nothing is ever passed to Python's `eval`. Both branches of `and`, `or` and `if` are evaluated on
the whole column, so `x // 0` and `x % 0` are defined as 0 rather than as an error.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np

from kt_lab.errors import ConstraintError

Columns = Mapping[str, Any]  # name -> array of shape (n,), or a scalar constant
_Evaluator = Callable[[Columns], Any]
_MAX_LENGTH = 2000  # characters; a constraint is one readable sentence, not a program
_MAX_DEPTH = 100  # parts within parts; Python's stack holds some times as many


def _safe(divide: Callable) -> Callable:
    def apply(a, b):
        zero = np.equal(b, 0)
        return np.where(zero, 0, divide(a, np.where(zero, 1, b)))

    return apply


def _next_power_of_two(value):
    if np.asarray(value).dtype == object:
        return np.frompyfunc(lambda v: 1 << max(int(v) - 1, 0).bit_length(), 1, 1)(value)
    least = np.maximum(np.asarray(value, dtype=np.int64), 1)
    return np.left_shift(1, np.frexp((least - 1).astype(float))[1].astype(np.int64))


def _product(a, b):
    if isinstance(a, str) or isinstance(b, str):  # a text times a number would be a long text
        raise TypeError(f"{a!r} * {b!r} is no product of numbers")
    return operator.mul(a, b)


_floordiv = _safe(np.floor_divide)
_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _product,
    ast.FloorDiv: _floordiv,
    ast.Mod: _safe(np.mod),
}
_COMPARE = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
}
_FUNCTIONS: dict[str, tuple[Callable, int, int]] = {  # name -> (function, fewest, most arguments)
    "min": (lambda *a: reduce(np.minimum, a), 2, 8),
    "max": (lambda *a: reduce(np.maximum, a), 2, 8),
    "abs": (np.abs, 1, 1),
    "cdiv": (lambda a, b: -_floordiv(-np.asarray(a), b), 2, 2),
    "next_power_of_two": (_next_power_of_two, 1, 1),
}


@dataclass(frozen=True)
class Constraint:
    """A law that every config of a space obeys.

    Attributes:
        name: Short and unique within a space ("tile_fits").
        expression: In the language of this module; true for valid configs.
        sentence: What the law means, for people ("a tile needs at least one element a thread").

    Raises:
        ConstraintError: The expression is empty, too long, not parseable, or uses anything
            outside the language.
    """

    name: str
    expression: str
    sentence: str = ""
    names: frozenset[str] = field(init=False, compare=False)
    canonical: str = field(init=False, compare=False)
    _evaluate: _Evaluator = field(init=False, compare=False, repr=False)

    def __post_init__(self):
        """Parses the expression once."""
        if not self.expression or len(self.expression) > _MAX_LENGTH:
            raise ConstraintError(
                f"a constraint expression must have 1..{_MAX_LENGTH} characters, "
                f"got {len(self.expression)} in constraint {self.name!r}"
            )
        try:
            tree = ast.parse(self.expression, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ConstraintError(
                f"a constraint must be one expression, got {self.expression!r} in "
                f"{self.name!r}: {error}"
            ) from None
        if _depth(tree) > _MAX_DEPTH:
            raise ConstraintError(
                f"a constraint must have at most {_MAX_DEPTH} parts within each other, got more "
                f"in {self.name!r}: {self.expression[:80]!r}"
            )
        names: set[str] = set()
        object.__setattr__(self, "_evaluate", _build(tree, names, self))
        object.__setattr__(self, "names", frozenset(names))
        object.__setattr__(self, "canonical", ast.unparse(tree))

    def evaluate(self, columns: Columns) -> np.ndarray:
        """Returns which rows obey the law, boolean, shape (n,) or () for scalars only.

        Args:
            columns: Every parameter and constant that the expression names.
        """
        return self.value(columns, kind=bool)

    def value(self, columns: Columns, *, kind: type | None = None) -> np.ndarray:
        """Returns what the expression comes to, as `evaluate` does; `kind`: as this type."""
        try:
            found = np.asarray(self._evaluate(columns))
            return found if kind is None else found.astype(kind)
        except (TypeError, ValueError, OverflowError) as error:
            raise ConstraintError(
                f"constraint {self.name!r} must be computable for every value of its parameters, "
                f"got {error} in {self.expression!r}"
            ) from error

    def __reduce__(self):
        """Pickles the text: the evaluator is rebuilt where it is loaded."""
        return Constraint, (self.name, self.expression, self.sentence)


def _depth(tree: ast.AST) -> int:
    depth, level = 0, [tree]
    while level:
        depth, level = depth + 1, [c for node in level for c in ast.iter_child_nodes(node)]
    return depth


def _refuse(node: ast.AST, owner: Constraint) -> ConstraintError:
    found = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
    return ConstraintError(
        f"a constraint may use names, literals, and/or/not, comparisons, `in (..)`, + - * // %, "
        f"`a if c else b` and {', '.join(_FUNCTIONS)}; got {found!r} in constraint {owner.name!r}"
    )


def _build(node: ast.expr, names: set[str], owner: Constraint) -> _Evaluator:
    """Turns one node into a function of columns; anything not listed is refused."""

    def sub(child: ast.expr) -> _Evaluator:
        return _build(child, names, owner)

    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return lambda _: value
        case ast.Name(id=name):
            names.add(name)
            return lambda columns: columns[name]
        case ast.BoolOp(op=op, values=values):
            parts, join = [sub(v) for v in values], partial(_either, isinstance(op, ast.Or))
            return lambda columns: reduce(join, [p(columns) for p in parts])
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            apply, inner = _UNARY[type(op)], sub(operand)
            return lambda columns: apply(inner(columns))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            apply, a, b = _BINARY[type(op)], sub(left), sub(right)
            return lambda columns: apply(a(columns), b(columns))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            c, a, b = sub(test), sub(body), sub(orelse)
            return lambda columns: np.where(_truth(c(columns)), a(columns), b(columns))
        case ast.Compare():
            return _build_compare(node, names, owner)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            function, fewest, most = _FUNCTIONS[name]
            if not fewest <= len(args) <= most or any(isinstance(a, ast.Starred) for a in args):
                raise _refuse(node, owner)
            parts = [sub(a) for a in args]
            return lambda columns: function(*[p(columns) for p in parts])
    raise _refuse(node, owner)


def _build_compare(node: ast.Compare, names: set[str], owner: Constraint) -> _Evaluator:
    links: list[_Evaluator] = []
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        a = _build(left, names, owner)
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.Tuple | ast.List):
                raise _refuse(node, owner)
            members = [_build(item, names, owner) for item in right.elts]
            links.append(_membership(a, members, negate=isinstance(op, ast.NotIn)))
        elif type(op) in _COMPARE:
            links.append(_comparison(_COMPARE[type(op)], a, _build(right, names, owner)))
        else:
            raise _refuse(node, owner)
        left = right
    return lambda columns: reduce(np.logical_and, [_truth(link(columns)) for link in links])


def _comparison(compare: Callable, a: _Evaluator, b: _Evaluator) -> _Evaluator:
    return lambda columns: compare(np.asarray(a(columns)), np.asarray(b(columns)))


def _membership(a: _Evaluator, members: list[_Evaluator], *, negate: bool) -> _Evaluator:
    def evaluate(columns):
        value = np.asarray(a(columns))
        found = reduce(
            np.logical_or, [value == np.asarray(m(columns)) for m in members], np.False_
        )
        return np.logical_not(found) if negate else found

    return evaluate


def _truth(value: Any) -> np.ndarray:
    return np.asarray(value).astype(bool)


def _either(kept: bool, a: Any, b: Any) -> np.ndarray:
    """Returns what Python's `a or b` (kept: True) or `a and b` is.

    Of text and numbers as objects: an array of both would turn numbers into text.
    """
    texts = [np.asarray(value).dtype.kind in "US" for value in (a, b)]
    values = (a, b) if texts[0] == texts[1] else [np.asarray(v, dtype=object) for v in (a, b)]
    return np.where(_truth(a) == kept, *values)


_UNARY = {ast.Not: lambda value: ~_truth(value), ast.USub: operator.neg}
