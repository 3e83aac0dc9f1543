"""The representation: an ordered tree of one-dimensional scopes over named buffers.

What a program means: scopes iterate 0..extent-1 in order, children run in order, an operation
reads its operands and then writes its target. Two things only are left open, and a program is
right when its results do not depend on them:
    marks      the iterations of a `p` scope run in any order, also interleaved; in a `v` scope
               each operation runs for all iterations at once, reads before writes, and a
               reduction whose target does not depend on the iterator is combined in any order.
    places     a `stack` or `reg` temporary lives in its home, the innermost scope that holds
               all its accesses: between two iterations of its home its contents are lost, and
               iterations of a `p` or `v` scope at or above its home own separate copies. A `heap`
               temporary exists once and keeps its contents.
A reused dimension keeps its logical extent in every access and takes no storage (stride 0).
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kt_lab.errors import ProgramError
from kt_lab.programs.affine import Affine

KINDS = ("in", "out", "tmp")
DTYPES = {"f32": 4, "f64": 8}  # bytes of an element
PLACES = {"in": ("heap",), "out": ("heap", "nt"), "tmp": ("heap", "stack", "reg")}
UPDATES = ("=", "+=", "max=", "min=")
OPERATORS = ("+", "-", "*", "/")
# Arity of every function; select(c, a, b) is a where c > 0, b elsewhere.
FUNCTIONS = dict.fromkeys(("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "abs", "neg"), 1)
FUNCTIONS |= {"max": 2, "min": 2, "select": 3}
# What a reduction starts from.
IDENTITIES = {"+=": 0.0, "max=": -math.inf, "min=": math.inf}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MARK = re.compile(r"p|v|u|u(?:[2-9]|[1-9][0-9]+)|")

# Child positions from the root: () is the program, a scope at depth d has d+1 positions.
Address = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of a buffer.

    Attributes:
        extent: Number of logical elements, at least 1.
        reused: Whether all of them share one place in storage.
    """

    extent: int
    reused: bool = False


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named array, row-major.

    Attributes:
        name: A C identifier, unique in the program.
        kind: in (read only), out (a result) or tmp.
        dtype: f32 or f64.
        dims: At least one dimension; only those of a tmp may be reused.
        place: heap; stack or reg for a tmp; nt (written by non-temporal stores) for an out.
    """

    name: str
    kind: str
    dtype: str
    dims: tuple[Dim, ...]
    place: str = "heap"

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical extents."""
        return tuple(dim.extent for dim in self.dims)

    @property
    def strides(self) -> tuple[int, ...]:
        """Storage strides in elements, 0 for a reused dimension."""
        strides, step = [], 1
        for dim in reversed(self.dims):
            strides.append(0 if dim.reused else step)
            step *= 1 if dim.reused else dim.extent
        return tuple(reversed(strides))

    @property
    def elements(self) -> int:
        """Number of elements in storage, at least 1."""
        return math.prod(dim.extent for dim in self.dims if not dim.reused)

    @property
    def bytes(self) -> int:
        """Size of the storage in bytes."""
        return self.elements * DTYPES[self.dtype]

    def offset(self, indices: tuple[Affine, ...]) -> Affine:
        """Returns the position of an element in storage, counted in elements."""
        result = Affine()
        for index, stride in zip(indices, self.strides, strict=True):
            result = result.plus(index.times(stride))
        return result


@dataclass(frozen=True, slots=True)
class Ref:
    """One element of a buffer: its name and one index per dimension."""

    buffer: str
    indices: tuple[Affine, ...]


@dataclass(frozen=True, slots=True)
class Const:
    """A number; infinities are allowed, NaN is not, and minus zero is zero."""

    value: float

    def __post_init__(self):
        """Keeps one representation of every number."""
        if math.isnan(self.value):
            raise _broken("a constant is a number", self.value)
        object.__setattr__(self, "value", float(self.value) + 0.0)


@dataclass(frozen=True, slots=True)
class Call:
    """A function of FUNCTIONS applied to its arguments."""

    fn: str
    args: tuple["Expr", ...]


@dataclass(frozen=True, slots=True)
class Binary:
    """Two operands under + - * or /."""

    op: str
    left: "Expr"
    right: "Expr"


Expr = Ref | Const | Call | Binary


@dataclass(frozen=True, slots=True)
class Op:
    """One operation: `target kind expr`, where any kind but = is a reduction into the target."""

    target: Ref
    kind: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Scope:
    """A loop over 0..extent-1.

    Attributes:
        extent: Number of iterations, at least 1.
        mark: Nothing, p (parallel), v (vector), u (unroll fully) or uK (unroll by K >= 2).
        body: At least one scope or operation, in order.
    """

    extent: int
    mark: str
    body: tuple["Scope | Op", ...]


Node = Scope | Op


@dataclass(frozen=True, slots=True)
class Program:
    """A program; building one checks the laws of its structure, not that its marks are legal.

    Attributes:
        name: A C identifier.
        buffers: Inputs, then temporaries, then outputs.
        body: At least one scope or operation, in order.

    Raises:
        ProgramError: A law is broken; the message names it.
    """

    name: str
    buffers: tuple[Buffer, ...]
    body: tuple[Node, ...]
    _named: dict[str, Buffer] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        """Checks every law of the structure."""
        object.__setattr__(self, "_named", {buffer.name: buffer for buffer in self.buffers})
        _check_buffers(self)
        _require(bool(self.body), "a program has a body", f"none in {self.name}")
        for node in self.body:
            _check_node(self, node, [])

    def buffer(self, name: str) -> Buffer:
        """Returns a buffer by name, or raises ProgramError."""
        _require(name in self._named, "a buffer is declared in the header", name)
        return self._named[name]

    def of_kind(self, kind: str) -> tuple[Buffer, ...]:
        """Returns the buffers of one kind (in, tmp, out), in the header's order."""
        return tuple(buffer for buffer in self.buffers if buffer.kind == kind)


def refs_of(expr: Expr) -> Iterator[Ref]:
    """Yields the elements that an expression reads, left to right, repeats included."""
    if isinstance(expr, Ref):
        yield expr
    elif isinstance(expr, Binary):
        yield from refs_of(expr.left)
        yield from refs_of(expr.right)
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from refs_of(arg)


def _broken(law: str, found: object) -> ProgramError:
    return ProgramError(f"{law}; got {found}")


def _require(holds: bool, law: str, found: object) -> None:
    if not holds:
        raise _broken(law, found)


def _check_buffers(program: Program) -> None:
    _require(bool(_NAME.fullmatch(program.name)), "a kernel's name is an identifier", program.name)
    unique = len(program._named) == len(program.buffers)
    _require(unique, "buffer names are unique", [b.name for b in program.buffers])
    for b in program.buffers:
        named = bool(_NAME.fullmatch(b.name)) and b.name not in (*FUNCTIONS, "inf")
        _require(named, "a buffer's name is an identifier and no function", b.name)
        _require(b.kind in KINDS, f"a buffer is one of {KINDS}", f"{b.kind} {b.name}")
        _require(b.dtype in DTYPES, f"a dtype is one of {tuple(DTYPES)}", f"{b.name} {b.dtype}")
        placed = b.place in PLACES[b.kind]
        _require(
            placed, f"an {b.kind} buffer is placed in {PLACES[b.kind]}", f"{b.name} {b.place}"
        )
        sized = bool(b.dims) and min(b.shape) >= 1
        _require(sized, "a buffer has dimensions, of extent >= 1", f"{b.name} {b.shape}")
        kept = b.kind == "tmp" or not any(dim.reused for dim in b.dims)
        _require(kept, "only a tmp has reused dimensions", b.name)
    order = [("in", "tmp", "out").index(b.kind) for b in program.buffers]
    listed = [f"{b.kind} {b.name}" for b in program.buffers]
    _require(order == sorted(order), "the header lists in, then tmp, then out", listed)


def _check_node(program: Program, node: Node, extents: list[int]) -> None:
    if isinstance(node, Op):
        if node.kind not in UPDATES:
            raise _broken(f"an operation is one of {UPDATES}", node.kind)
        _check_expr(program, node.expr, extents)
        _check_ref(program, node.target, extents)
        if program.buffer(node.target.buffer).kind == "in":
            raise _broken("an input is never written", node.target.buffer)
        return
    if node.extent < 1:
        raise _broken("a scope's extent is >= 1", node.extent)
    if not _MARK.fullmatch(node.mark):
        raise _broken("a mark is p, v, u or uK with K >= 2", node.mark)
    if not node.body:
        raise _broken("a scope has a body", f"{node.extent} at depth {len(extents)}")
    extents.append(node.extent)
    for child in node.body:
        _check_node(program, child, extents)
    extents.pop()


def _check_ref(program: Program, ref: Ref, extents: list[int]) -> None:
    buffer = program.buffer(ref.buffer)
    if len(ref.indices) != len(buffer.dims):
        ranks = f"{len(ref.indices)} for {len(buffer.dims)} of {ref.buffer}"
        raise _broken("an access has one index per dimension", ranks)
    for index, dim in zip(ref.indices, buffer.dims, strict=True):
        if len(index.coefficients) > len(extents):
            used = f"{{{len(index.coefficients) - 1}}} in {ref.buffer} under {len(extents)} scopes"
            raise _broken("an index uses iterators of enclosing scopes only", used)
        low, high = index.bounds(extents)
        if low < 0 or high >= dim.extent:
            found = f"{low}..{high} in a dimension of {dim.extent} of {ref.buffer}"
            raise _broken("every access stays within its buffer", found)


def _check_expr(program: Program, expr: Expr, extents: list[int]) -> None:
    if isinstance(expr, Ref):
        _check_ref(program, expr, extents)
    elif isinstance(expr, Binary):
        if expr.op not in OPERATORS:
            raise _broken(f"an operator is one of {OPERATORS}", expr.op)
        _check_expr(program, expr.left, extents)
        _check_expr(program, expr.right, extents)
    elif isinstance(expr, Call):
        if FUNCTIONS.get(expr.fn) != len(expr.args):
            law = f"a function is one of {FUNCTIONS} (name: arguments)"
            raise _broken(law, f"{expr.fn} of {len(expr.args)}")
        for arg in expr.args:
            _check_expr(program, arg, extents)
