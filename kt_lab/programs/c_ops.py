"""Operations of programs as C statements, one lane at a time or a whole vector of lanes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kt_lab.programs.affine import Affine
from kt_lab.programs.c_lanes import across, laned
from kt_lab.programs.c_math import GELU, PLUS_ERF, function_name
from kt_lab.programs.c_scopes import is_local
from kt_lab.programs.c_text import c_index, c_name, c_number
from kt_lab.programs.ir import Binary, Call, Const, Expr, Op, Program, Ref, refs_of

_RANK = {"+": 1, "-": 1, "*": 2, "/": 2}


def computing_dtype(program: Program, op: Op) -> str:
    """Returns the dtype that an operation computes in: f64 where any of its buffers is."""
    dtypes = {program.buffer(ref.buffer).dtype for ref in (op.target, *refs_of(op.expr))}
    return "f64" if "f64" in dtypes else "f32"


@dataclass(frozen=True, slots=True)
class Place:
    """Where code is being written.

    Attributes:
        indent: How deep.
        parallel: Whether within a parallel scope.
        combined: The scalars that reductions go to in a vector scope, by target.
        lines: The line buffers that a vector scope collects, by output, with the lane's name.
        lane: Depth of the vector scope whose lanes are written as vectors; None: there is none.
        own: The local variables that each of its lanes declares for itself.
    """

    indent: int = 1
    parallel: bool = False
    combined: Mapping[Ref, str] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)
    lane: int | None = None
    own: frozenset[str] = frozenset()

    @property
    def tab(self) -> str:
        """The white space in front of a line."""
        return "    " * self.indent


class Statements:
    """Writes operations, and keeps account of the functions that they call.

    Attributes:
        used: Pairs of a function (ir.FUNCTIONS) and a dtype.
        vectors: What is called on whole vectors: functions, and updates that join lanes.
    """

    def __init__(self, program: Program, arrays: set[str]):
        """Keeps the program, and the names of locals that are arrays whatever their size."""
        self._program, self._arrays = program, arrays
        self.used: set[tuple[str, str]] = set()
        self.vectors: set[str] = set()

    def operation(self, op: Op, place: Place) -> str:
        """Returns the statement of an operation."""
        value = self._value(op.expr, computing_dtype(self._program, op), place)
        return place.tab + self._update(op.target, op.kind, value, place)

    def join(self, target: Ref, kind: str, name: str, place: Place) -> str:
        """Returns the statement that reduces the scalar, or vector, of a vector scope's lanes."""
        if place.lane is None:
            return self._update(target, kind, name, place)
        self.vectors.add(kind)
        outside = Place(place.indent, place.parallel)
        return self._update(target, kind, f"{across(kind)}({name})", outside)

    def offset(self, ref: Ref) -> str:
        """Returns the position of an element in its storage."""
        return self.position(ref.buffer, self._form(ref))

    def position(self, name: str, form: Affine) -> str:
        """Returns a position in the storage of a buffer."""
        return c_index(form, wide=self._program.buffer(name).elements > 2**31 - 1)

    def is_scalar(self, name: str) -> bool:
        """Tells whether a buffer is a variable of one element."""
        buffer = self._program.buffer(name)
        return is_local(buffer) and buffer.elements == 1 and name not in self._arrays

    def dtype(self, ref: Ref) -> str:
        """Returns the dtype of an element."""
        return self._program.buffer(ref.buffer).dtype

    def _update(self, target: Ref, kind: str, value: str, place: Place) -> str:
        name = place.combined.get(target) or self._target(target, place)
        if kind in ("=", "+="):
            return f"{name} {kind} {value};"
        # x > y ? x : y gives y when either is NaN: what is stored is second, so that it stays NaN
        called = self._function(kind.removesuffix("="), self.dtype(target), place.lane is not None)
        return f"{name} = {called}({value}, {name});"

    def _target(self, target: Ref, place: Place) -> str:
        line = place.lines.get(target.buffer)
        if line and place.lane is not None:
            return f"KT_V({line})"
        return line or self._ref(target, place)

    def _function(self, fn: str, dtype: str, vectors: bool) -> str:
        if vectors:
            self.vectors.add(fn)
            return laned(fn)
        self.used.add((fn, dtype))
        return function_name(fn, dtype)

    def _value(self, expr: Expr, dtype: str, place: Place) -> str:
        text = self._expr(expr, dtype, place)
        return text if place.lane is None or self._moves(expr, place) else f"KT_ALL({text})"

    def _moves(self, expr: Expr, place: Place) -> bool:
        """Whether lanes that are written as vectors may see different values."""
        return place.lane is not None and any(
            ref.buffer in place.own or self._form(ref).coefficient(place.lane)
            for ref in refs_of(expr)
        )

    def _form(self, ref: Ref) -> Affine:
        return self._program.buffer(ref.buffer).offset(ref.indices)

    def _expr(self, expr: Expr, dtype: str, place: Place, rank: int = 0) -> str:
        if isinstance(expr, Ref):
            text = self._ref(expr, place)  # whose product with another f32 would be one
            return f"(double){text}" if (dtype, self.dtype(expr)) == ("f64", "f32") else text
        if isinstance(expr, Const):
            return c_number(expr.value, dtype)
        if isinstance(expr, Call):
            vectors = self._moves(expr, place)
            write = self._value if vectors else self._expr
            given = ", ".join(write(arg, dtype, place) for arg in expr.args)
            return f"{self._function(expr.fn, dtype, vectors)}({given})"
        return self._binary(expr, dtype, place, rank)

    def _binary(self, expr: Binary, dtype: str, place: Place, rank: int) -> str:
        own = _RANK[expr.op]
        if dtype == "f32" and (whole := _known(expr)):
            return self._expr(whole, dtype, place)
        left = self._expr(expr.left, dtype, place, own)
        right = self._expr(expr.right, dtype, place, own + 1)
        text = f"{left} {expr.op} {right}"
        return f"({text})" if own < rank else text

    def _ref(self, ref: Ref, place: Place) -> str:
        name = c_name(ref.buffer)
        if self.is_scalar(ref.buffer):
            return name
        element = f"{name}[{self.offset(ref)}]"
        return f"KT_V({element})" if self._moves(ref, place) else element


def _known(expr: Binary) -> Call | None:
    """Returns the function of C that an expression is: GELU whole, or its 1 + erf; None: neither.

    Written apart, they cost two polynomials and products by constants that one polynomial has in
    its coefficients.
    """
    match expr:
        case Binary("+", Const(1.0), Call("erf", given)):
            return Call(PLUS_ERF, given)
        case Binary(
            "*",
            Binary("*", Const(0.5), x),
            Binary("+", Const(1.0), Call("erf", (Binary("*", y, Const(factor)),))),
        ) if x == y and math.isclose(factor, math.sqrt(0.5), rel_tol=1e-7):
            return Call(GELU, (x,))
    return None
