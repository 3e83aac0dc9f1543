"""The reference interpreter: what a program computes, wrong marks and wrong storage included.

It runs the storage as declared (a reused dimension really overwrites itself, a stack or reg
temporary really loses its contents between iterations of its home) and runs marked scopes in
the least convenient of the orders that the marks allow, so that an illegal program computes
garbage. Memory that nothing wrote holds NaN.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kt_lab.errors import ProgramError
from kt_lab.programs.access import home, is_distinct
from kt_lab.programs.affine import Affine
from kt_lab.programs.error_function import erf
from kt_lab.programs.ir import (
    Address,
    Binary,
    Buffer,
    Const,
    Expr,
    Node,
    Op,
    Program,
    Ref,
    Scope,
    refs_of,
)
from kt_lab.programs.surgery import scopes_above, walk

BATCH = 1 << 20  # elements that one vectorised operation handles at most
_REDUCE = {"+=": np.add, "max=": np.maximum, "min=": np.minimum}
_BINARY = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
_CALLS = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "erf": erf,
    "abs": np.abs,
    "neg": np.negative,
    "max": np.maximum,
    "min": np.minimum,
    "select": lambda c, a, b: np.where(c > 0, a, b),
}

# A compiled part: runs it at the current values of the iterators.
_Step = Callable[[], None]


def interpret(
    program: Program,
    inputs: Mapping[str, np.ndarray],
    *,
    seed: int = 0,
    dtype: type | None = np.float64,
) -> dict[str, np.ndarray]:
    """Runs a program and returns its outputs.

    Args:
        program: The program; its marks need not be legal.
        inputs: One array per `in` buffer, of its logical shape.
        seed: Chooses how parallel scopes run: 0, 3, 6, .. all iterations in lock step, in a
            random order; 1, 4, .. one after another from the last to the first; 2, 5, .. one
            after another in a random order. A race that one order hides shows in another.
        dtype: In which everything is stored and computed; None: in the dtype of each buffer.

    Returns:
        The `out` buffers by name, in their logical shape.

    Raises:
        ProgramError: An input is missing or has the wrong shape.
    """
    run = _Run(program, inputs, seed, dtype)
    step = _in_order([run.compile(node, (k,)) for k, node in enumerate(program.body)])
    with np.errstate(all="ignore"):  # garbage is what a wrong program is meant to give
        step()
    return {b.name: run.stores[b.name].reshape(b.shape) for b in program.of_kind("out")}


def input_of(buffer: Buffer, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the array of an `in` buffer, or raises ProgramError: it is missing or misshapen."""
    given = np.asarray(inputs[buffer.name]) if buffer.name in inputs else None
    if given is None or given.shape != buffer.shape:
        found = "nothing" if given is None else given.shape
        raise ProgramError(f"input {buffer.name} is an array of {buffer.shape}; got {found}")
    return given


@dataclass(frozen=True, slots=True)
class _Axis:
    """A scope whose iterations run at once.

    Attributes:
        depth: Of the scope.
        extent: Of the scope.
        values: Its iterator along an array axis of its own; axes of inner scopes lead.
        combines: Whether a reduction over it is combined; otherwise it is a race.
    """

    depth: int
    extent: int
    values: np.ndarray
    combines: bool


class _Run:
    """The storage of one run, and the compilation of nodes into steps over it."""

    def __init__(self, program: Program, inputs: Mapping, seed: int, dtype: type | None):
        self.program = program
        self.rng = np.random.default_rng(seed)
        self.parallel = ("together", "backwards", "scrambled")[seed % 3]
        height = max(len(address) for address, _ in walk(program))
        self.iterators = [0] * height  # of the loops that are running
        self.extents = [1] * height  # of the scopes above the node that is being compiled
        self.stores: dict[str, np.ndarray] = {}
        self.copies: dict[str, Affine] = {}  # offset of the copy that an iteration owns
        self.fresh: dict[Address, list[np.ndarray]] = {}  # what loses its contents in a scope
        for buffer in program.buffers:
            kept = dtype or {"f32": np.float32, "f64": np.float64}[buffer.dtype]
            self._allocate(buffer, inputs, kept)

    def _allocate(self, buffer: Buffer, inputs: Mapping, dtype: type) -> None:
        name, size = buffer.name, buffer.elements
        self.copies[name] = Affine()
        if buffer.kind == "in":
            self.stores[name] = input_of(buffer, inputs).astype(dtype).ravel()
            return
        here = home(self.program, name) if buffer.place in ("stack", "reg") else ()
        for depth, scope in enumerate(scopes_above(self.program, (*here, 0))):
            if self._at_once(scope):
                self.copies[name] = self.copies[name].plus(Affine.iterator(depth, size))
                size *= scope.extent
        self.stores[name] = np.full(size, np.nan, dtype)
        if here:
            self.fresh.setdefault(here, []).append(self.stores[name])

    def _at_once(self, scope: Scope) -> bool:
        return scope.mark == "v" or (scope.mark == "p" and self.parallel == "together")

    def compile(self, node: Node, address: Address, axes: tuple[_Axis, ...] = ()) -> _Step:
        """Returns the step that runs a node, for all iterations of some scopes at once."""
        if isinstance(node, Op):
            return self._compile_op(node, axes)
        depth = len(address) - 1
        self.extents[depth] = node.extent
        nest = self._nest(node, depth, axes)
        if nest:
            return nest
        scrambled = self.rng.permutation(node.extent) if node.mark == "p" else None
        if self._at_once(node):
            order = np.arange(node.extent) if scrambled is None else scrambled
            return self._body(node, address, _with_axis(axes, depth, order, node.mark == "v"))
        order = range(node.extent)
        if node.mark == "p":
            order = order[::-1] if self.parallel == "backwards" else scrambled.tolist()
        body, iterators = self._body(node, address, axes), self.iterators

        def loop() -> None:
            for iteration in order:
                iterators[depth] = iteration
                body()

        return loop

    def _body(self, scope: Scope, address: Address, axes: tuple[_Axis, ...]) -> _Step:
        steps = [self.compile(node, (*address, k), axes) for k, node in enumerate(scope.body)]
        anew = [functools.partial(store.fill, np.nan) for store in self.fresh.get(address, ())]
        return _in_order([*anew, *steps])

    def _nest(self, node: Scope, depth: int, axes: tuple[_Axis, ...]) -> _Step | None:
        """Compiles a sequential nest of one operation into one array operation, where equal."""
        if node.mark in ("v", "p"):
            return None
        size, inner, below = math.prod(axis.extent for axis in axes), node, depth
        while isinstance(inner, Scope) and inner.mark != "p" and len(inner.body) == 1:
            axes = _with_axis(axes, below, np.arange(inner.extent), True)
            self.extents[below] = inner.extent
            size *= inner.extent
            inner, below = inner.body[0], below + 1
        nested = isinstance(inner, Op) and size <= BATCH
        if not nested or not self._is_independent(inner, range(depth, below)):
            return None
        return self._compile_op(inner, axes)

    def _is_independent(self, op: Op, depths: range) -> bool:
        """Whether the order of the iterations of some scopes does not matter to an operation."""
        target = op.target
        used = {d for d in depths if any(i.coefficient(d) for i in target.indices)}
        others = [ref for ref in refs_of(op.expr) if ref.buffer == target.buffer]
        if op.kind == "=":
            alone = len(used) == len(depths) and all(ref == target for ref in others)
        else:
            alone = not others
        buffer = self.program.buffer(target.buffer)
        return alone and is_distinct(target, used, self.extents, buffer)

    def _compile_op(self, op: Op, axes: tuple[_Axis, ...]) -> _Step:
        value, place = self._compile_expr(op.expr, axes), self._offset(op.target, axes)
        store = self.stores[op.target.buffer]
        indices = (*op.target.indices, self.copies[op.target.buffer])
        whole = tuple(axis.extent for axis in reversed(axes))
        combined = tuple(
            len(axes) - 1 - k
            for k, axis in enumerate(axes)
            if axis.combines and not any(index.coefficient(axis.depth) for index in indices)
        )
        kept = tuple(1 if k in combined else extent for k, extent in enumerate(whole))
        update = _REDUCE.get(op.kind)

        def assign() -> None:
            # flat, because only along one dimension the last of several writes is known to win
            where = np.broadcast_to(place(), whole).ravel()
            store[where] = np.broadcast_to(value(), whole).ravel()

        def reduce() -> None:
            where = np.broadcast_to(place(), kept).ravel()
            steps = update.reduce(np.broadcast_to(value(), whole), axis=combined, keepdims=True)
            store[where] = update(store[where], np.broadcast_to(steps, kept).ravel())

        def assign_one() -> None:
            store[place()] = value()

        def reduce_one() -> None:
            where = place()
            store[where] = update(store[where], value())

        if axes:
            return reduce if update else assign
        return reduce_one if update else assign_one

    def _compile_expr(self, expr: Expr, axes: tuple[_Axis, ...]) -> Callable:
        if isinstance(expr, Const):
            return lambda: expr.value
        if isinstance(expr, Ref):
            store, place = self.stores[expr.buffer], self._offset(expr, axes)
            return lambda: store[place()]
        if isinstance(expr, Binary):
            fn, parts = _BINARY[expr.op], (expr.left, expr.right)
        else:
            fn, parts = _CALLS[expr.fn], expr.args
        compiled = [self._compile_expr(part, axes) for part in parts]
        return lambda: fn(*[part() for part in compiled])

    def _offset(self, ref: Ref, axes: tuple[_Axis, ...]) -> Callable:
        """Returns what gives the storage positions of an element at the current iterators."""
        form = self.program.buffer(ref.buffer).offset(ref.indices).plus(self.copies[ref.buffer])
        fixed, iterators = form.constant, self.iterators
        for axis in axes:
            if form.coefficient(axis.depth):
                fixed = fixed + form.coefficient(axis.depth) * axis.values
        at_once = {axis.depth for axis in axes}
        looped = [(d, form.coefficient(d)) for d in form.depths if d not in at_once]
        if not looped:
            return lambda: fixed
        if len(looped) == 1:
            ((depth, factor),) = looped
            return lambda: fixed + factor * iterators[depth]
        return lambda: fixed + sum([factor * iterators[d] for d, factor in looped])


def _with_axis(
    axes: tuple[_Axis, ...], depth: int, order: np.ndarray, combines: bool
) -> tuple[_Axis, ...]:
    values = order.reshape(-1, *[1] * len(axes))
    return (*axes, _Axis(depth, len(order), values, combines))


def _in_order(steps: list[_Step]) -> _Step:
    if len(steps) == 1:
        return steps[0]

    def run() -> None:
        for step in steps:
            step()

    return run
