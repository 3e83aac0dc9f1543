"""The values of a Triton kernel: names, addresses, loads and expressions."""

import functools
import keyword
import operator
import re
from dataclasses import dataclass, field

from kt_lab.programs.affine import Affine
from kt_lab.programs.ir import Binary, Const, Expr, Program, Ref
from kt_lab.programs.triton_registers import Register, Registers
from kt_lab.programs.triton_scopes import refuse, roles

ROW, LANE = 1, 2  # what a value differs along; None: a constant
_TYPES = {"f32": "tl.float32", "f64": "tl.float64"}
_CALLS = {"exp": "tl.exp", "log": "tl.log", "sqrt": "tl.sqrt", "rsqrt": "tl.rsqrt"}
_CALLS |= {"erf": "tl.erf", "abs": "tl.abs", "max": "tl.maximum", "min": "tl.minimum"}
_TAKEN = {*keyword.kwlist, "tl", "triton", "within", "float", "row", "rows", "ROWS", "STAGES"}


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile that is being written: its depth, extent, and the names of index and mask."""

    depth: int
    extent: int
    index: str
    inside: str
    sums: dict[Register, str] = field(default_factory=dict)  # accumulators of a looped tile


class Values:
    """The lines of one kernel, and what is known in them."""

    def __init__(self, program: Program, name: str):
        """Finds what scopes and temporaries become, or raises ProgramError."""
        self.program, self.name = program, name
        self.roles = roles(program)
        self.registers = Registers(program, self.roles)
        self.dtype = _TYPES[program.buffers[0].dtype]
        self.lines: list[str] = []
        self.level, self.tile, self.here = 1, None, ()
        self.tiles: set[int] = set()
        self.looped = False
        self.taken = set(_TAKEN)
        given = [b.name for b in (*program.of_kind("in"), *program.of_kind("out"))]
        self.names: dict[str | Register, str] = {name: self.fresh(name) for name in given}
        for register in self.registers.all:
            stem = f"{register.buffer}_{register.element}" if register.element else register.buffer
            self.names[register] = self.fresh(stem)
        self.loaded: list[dict[tuple[str, str], str]] = [{}]

    def strides(self) -> list[int]:
        """Returns how many rows one iteration of each scope of the grid is."""
        found, step = [], 1
        for extent in reversed(self.roles.grid):
            found.append(step)
            step *= extent
        return found[::-1]

    def fresh(self, stem: str) -> str:
        """Returns a name that nothing else has; those of indices are never given."""
        number, found = 1, stem
        while found in self.taken or re.fullmatch(r"(i|B|lane|inside)\d+", found):
            number += 1
            found = f"{stem}_{number}"
        self.taken.add(found)
        return found

    def line(self, text: str) -> None:
        """Adds a line."""
        self.lines.append("    " * self.level + text)

    # -- values -------------------------------------------------------------------------------

    def expr(self, expr: Expr, rank: int = 0) -> tuple[str, int | None]:
        """Returns the text of a value and what it differs along.

        Args:
            expr: The expression.
            rank: As of `kt_lab.programs.text.expr_text`.
        """
        if isinstance(expr, Const):
            return number(expr.value), None
        if isinstance(expr, Ref):
            return self.read(expr)
        if isinstance(expr, Binary):
            own = 1 if expr.op in "+-" else 2
            left, right = self.expr(expr.left, own), self.expr(expr.right, own + 1)
            text = f"{left[0]} {expr.op} {right[0]}"
            return (f"({text})" if own < rank else text), _joined(left[1], right[1])
        parts = [self.expr(arg, 3 if expr.fn == "neg" else 0) for arg in expr.args]
        along = _joined(*(part[1] for part in parts))
        texts = [part[0] for part in parts]
        if along is None:
            shape = "[1, 1]" if self.roles.has_tiles else "[1]"
            texts, along = [f"tl.full({shape}, {text}, {self.dtype})" for text in texts], 0
        if expr.fn == "select":
            return f"tl.where({texts[0]} > 0, {texts[1]}, {texts[2]})", along
        if expr.fn == "neg":
            return f"(-{texts[0]})", along
        if expr.fn not in _CALLS:
            refuse(f"a function is one of {', '.join(_CALLS)}", expr.fn, "write it with these")
        return f"{_CALLS[expr.fn]}({', '.join(texts)})", along

    def read(self, ref: Ref) -> tuple[str, int]:
        """Returns the name of a value, loaded where it is not yet, and what it differs along."""
        if self.program.buffer(ref.buffer).kind == "tmp":
            register = self.registers.of(ref)
            return self.names[register], ROW | LANE if register.has_lanes else ROW
        offset, along = self.offset(ref)
        key = (ref.buffer, offset)
        for known in self.loaded:
            if key in known:
                return known[key], along
        name = self.fresh(f"{ref.buffer}_read")
        self.line(f"{name} = tl.load({self.names[ref.buffer]} + {offset}{self.mask(along)})")
        self.loaded[-1][key] = name
        return name, along

    def mask(self, along: int) -> str:
        """Returns the argument that leaves out rows and lanes that do not exist."""
        masks = ["rows"] if along & ROW else []
        masks += [self.tile.inside] if along & LANE else []
        return f", mask={' & '.join(masks)}" if masks else ""

    def offset(self, ref: Ref) -> tuple[str, int]:
        """Returns the position of an element of an argument, and what it differs along."""
        form = self.program.buffer(ref.buffer).offset(ref.indices)
        terms, along = self.rows_of(form)
        for d in form.depths:
            if self.tile and d == self.tile.depth:
                terms.append(_term(self.tile.index, form.coefficient(d)))
                along |= LANE
            elif self.roles.of[self.here[: d + 1]] in ("loop", "unroll"):
                terms.append(_term(f"i{d}", form.coefficient(d)))
        if form.constant or not terms:
            terms.append(str(form.constant))
        return " + ".join(terms), along

    def rows_of(self, form: Affine) -> tuple[list[str], int]:
        """Returns the terms of a position that differ from row to row."""
        moving = [d for d, extent in enumerate(self.roles.grid) if extent > 1]
        factors = {d: form.coefficient(d) for d in moving}
        strides = self.strides()
        last = factors[moving[-1]] if moving else 0
        if last and all(factors[d] == last * strides[d] for d in moving):
            return [_term("row", last)], ROW
        terms = [_term(f"i{d}", factor) for d, factor in factors.items() if factor]
        return terms, ROW if terms else 0


def _joined(*along: int | None) -> int | None:
    known = [one for one in along if one is not None]
    return functools.reduce(operator.or_, known) if known else None


def _term(index: str, factor: int) -> str:
    return index if factor == 1 else f"{index} * {factor}"


def number(value: float) -> str:
    """Returns a constant as Triton reads it."""
    return f'float("{value}")' if abs(value) == float("inf") else repr(value)
