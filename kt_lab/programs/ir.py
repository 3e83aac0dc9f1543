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

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kt_lab.errors import ProgramError
from kt_lab.programs.affine import Affine
from kt_lab.programs.facts import PARTS, Same

KINDS = ("in", "out", "tmp")
DTYPES = {"f32": 4, "f64": 8}  # bytes of an element
PLACES = {"in": ("heap", "ahead"), "out": ("heap", "nt"), "tmp": ("heap", "stack", "reg")}
UPDATES = ("=", "+=", "max=", "min=")
OPERATORS = ("+", "-", "*", "/")
# Arity of every function; select(c, a, b) is a where c > 0, b elsewhere. Of max and min where an
# operand is NaN, the interpreter has NaN and compiled code either operand: nothing checks it.
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
        place: heap; stack or reg for a tmp; nt (written by non-temporal stores) for an out; ahead
            (fetched, before it is read, while nt results are written or a tile is used) for an in.
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
        named = bool(_NAME.fullmatch(self.name))
        _require(named, "a kernel's name is an identifier", self.name)
        object.__setattr__(self, "_named", _by_name(self.buffers))
        _require(bool(self.body), "a program has a body", f"none in {self.name}")
        for node in self.body:
            _check_node(Same(node), Same(self._named), ())

    def buffer(self, name: str) -> Buffer:
        """Returns a buffer by name, or raises ProgramError."""
        return _declared(self._named, name)

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


def _declared(named: dict[str, Buffer], name: str) -> Buffer:
    if name not in named:
        raise _broken("a buffer is declared in the header", name)
    return named[name]


@functools.lru_cache(maxsize=PARTS)
def _by_name(buffers: tuple[Buffer, ...]) -> dict[str, Buffer]:
    """Returns the buffers of a header by name, the same object for equal headers."""
    named = {buffer.name: buffer for buffer in buffers}
    unique = len(named) == len(buffers)
    _require(unique, "buffer names are unique", [b.name for b in buffers])
    for b in buffers:
        fit = bool(_NAME.fullmatch(b.name)) and b.name not in (*FUNCTIONS, "inf")
        _require(fit, "a buffer's name is an identifier and no function", b.name)
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
    order = [("in", "tmp", "out").index(b.kind) for b in buffers]
    listed = [f"{b.kind} {b.name}" for b in buffers]
    _require(order == sorted(order), "the header lists in, then tmp, then out", listed)
    return named


@functools.lru_cache(maxsize=PARTS)
def _check_node(same_node: Same, same_named: Same, extents: tuple[int, ...]) -> None:
    """Checks a subtree; one that is part of several programs, with equal headers, once."""
    node, named = same_node.of, same_named.of
    if isinstance(node, Op):
        if node.kind not in UPDATES:
            raise _broken(f"an operation is one of {UPDATES}", node.kind)
        _check_expr(named, node.expr, extents)
        _check_ref(named, node.target, extents)
        if _declared(named, node.target.buffer).kind == "in":
            raise _broken("an input is never written", node.target.buffer)
        return
    if node.extent < 1:
        raise _broken("a scope's extent is >= 1", node.extent)
    if not _MARK.fullmatch(node.mark):
        raise _broken("a mark is p, v, u or uK with K >= 2", node.mark)
    if not node.body:
        raise _broken("a scope has a body", f"{node.extent} at depth {len(extents)}")
    for child in node.body:
        _check_node(Same(child), same_named, (*extents, node.extent))


def _check_ref(named: dict[str, Buffer], ref: Ref, extents: tuple[int, ...]) -> None:
    buffer = _declared(named, ref.buffer)
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


def _check_expr(named: dict[str, Buffer], expr: Expr, extents: tuple[int, ...]) -> None:
    if isinstance(expr, Ref):
        _check_ref(named, expr, extents)
    elif isinstance(expr, Binary):
        if expr.op not in OPERATORS:
            raise _broken(f"an operator is one of {OPERATORS}", expr.op)
        _check_expr(named, expr.left, extents)
        _check_expr(named, expr.right, extents)
    elif isinstance(expr, Call):
        if FUNCTIONS.get(expr.fn) != len(expr.args):
            law = f"a function is one of {FUNCTIONS} (name: arguments)"
            raise _broken(law, f"{expr.fn} of {len(expr.args)}")
        for arg in expr.args:
            _check_expr(named, arg, extents)
