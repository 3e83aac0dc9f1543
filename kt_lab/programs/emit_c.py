"""C from programs: one self-contained, readable file, the same bytes for the same text.

The C asks for no header and no reordering of floating point. What the marks become:
    p     `omp parallel for` with KT_THREADS threads (a macro; 1 unless defined); its body is a
          function of its own, in which `restrict` still holds. A p within a p is a plain loop.
    v     `omp simd`; a reduction whose target does not move with the iterator is combined in a
          scalar of its own, then stored. Where the accesses are not of these kinds the scope is a
          plain loop, which is what a legal program means anyway.
    u, uK `GCC unroll`
The places: an in, an out and a heap tmp is a parameter, to be aligned to 64 bytes; a stack or reg
tmp is a local variable of its home, a scalar when it has one element. An nt out is written past
the caches, a line of 64 bytes at a time, by a v scope that holds operations only, has whole
aligned lines and combines nothing; elsewhere, and without AVX-512 or clang, by plain stores.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kt_lab.errors import ProgramError
from kt_lab.programs.c_math import definitions, function_name
from kt_lab.programs.c_scopes import (
    LINE,
    combined,
    is_local,
    local_homes,
    parallel_scopes,
    reached,
    streamed,
)
from kt_lab.programs.c_text import (
    STREAMING,
    THREADS,
    TYPES,
    c_index,
    c_name,
    c_number,
    c_parameter,
)
from kt_lab.programs.ir import (
    IDENTITIES,
    Address,
    Binary,
    Buffer,
    Call,
    Const,
    Expr,
    Node,
    Op,
    Program,
    Ref,
    Scope,
    refs_of,
)
from kt_lab.programs.text import to_text

ALIGNMENT = 64  # bytes, of every parameter and local array
STACK_BYTES = 1 << 20  # of all local variables: a thread's stack has a few MiB at most
_COMBINED = {"+=": "+", "max=": "max", "min=": "min"}
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2}


def emit_c(program: Program, *, name: str | None = None) -> str:
    """Returns the C of a program.

    It defines `void kt_NAME(..)` with one restrict pointer for each buffer of `parameters`, in
    that order, and `void kt_NAME_call(void *const *buffers)`, which takes them as an array.

    Args:
        program: A legal program.
        name: For NAME; None: the program's own.

    Raises:
        ProgramError: Its stack and reg temporaries are larger than STACK_BYTES together.
    """
    return _Emitter(program, f"kt_{name or program.name}").text()


def parameters(program: Program) -> tuple[Buffer, ...]:
    """Returns the buffers that the C function takes: inputs, heap temporaries, outputs."""
    return tuple(b for b in program.buffers if not is_local(b))


def signature(program: Program, name: str | None = None) -> str:
    """Returns the declaration of the C function, without restrict and semicolon."""
    taken = ", ".join(map(c_parameter, parameters(program)))
    return f"void kt_{name or program.name}({taken})"


@dataclass(slots=True)
class _Place:
    """Where code is being written.

    Attributes:
        indent: How deep.
        parallel: Whether within a parallel scope.
        combined: The scalars that reductions go to in a vector scope, by target.
        lines: The line buffers that a vector scope collects, by output, with the lane's name.
    """

    indent: int = 1
    parallel: bool = False
    combined: dict[Ref, str] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)


class _Emitter:
    """The parts of one file while they are collected."""

    def __init__(self, program: Program, symbol: str):
        self.program, self.symbol = program, symbol
        self.functions: list[str] = []
        self.used: set[tuple[str, str]] = set()
        self.streams = False
        self.homes = local_homes(program)
        size = sum(b.bytes for found in self.homes.values() for b in found)
        if size > STACK_BYTES:
            raise ProgramError(
                f"stack and reg temporaries take <= {STACK_BYTES} bytes together; got {size} in "
                f"{program.name}; place the largest on the heap"
            )
        # a local that a parallel body reaches from outside is passed by its address
        self.parallel = parallel_scopes(program)
        self.arrays = {
            b.name for at in self.parallel for b in reached(program, at, self.homes) if is_local(b)
        }

    def text(self) -> str:
        body = [*self._declarations(()), *self._nodes(self.program.body, (), _Place())]
        taken = parameters(self.program)
        given = ", ".join(f"buffers[{k}]" for k in range(len(taken)))
        parts = [f"/*\n{to_text(self.program)}*/\n"]
        parts += [THREADS] if self.parallel else []
        parts += [STREAMING] if self.streams else []
        parts += [definitions(self.used)] if self.used else []
        parts += self.functions
        fence = ["    KT_STREAMED();"] if self.streams else []
        head = f"void {self.symbol}({', '.join(c_parameter(b, 'restrict ') for b in taken)})"
        parts.append("\n".join([head, "{", *body, *fence, "}", ""]))
        call = f"{self.symbol}({given});"
        parts.append(f"void {self.symbol}_call(void *const *buffers)\n{{\n    {call}\n}}\n")
        return "\n".join(parts)

    # -- nodes ------------------------------------------------------------------------------

    def _nodes(self, nodes: Iterable[Node], address: Address, place: _Place) -> Iterator[str]:
        for k, node in enumerate(nodes):
            here = (*address, k)
            if isinstance(node, Op):
                yield self._op(node, place)
            elif node.mark == "p" and not place.parallel and node.extent > 1:
                yield from self._parallel_scope(node, here, place)
            elif node.mark == "v" and node.extent > 1:
                yield from self._vector_scope(node, here, place)
            else:
                if node.mark.startswith("u") and node.extent > 1:
                    yield f"{_tab(place)}#pragma GCC unroll {node.mark[1:] or node.extent}"
                yield from self._loop(node, here, place)

    def _loop(self, scope: Scope, address: Address, place: _Place) -> Iterator[str]:
        yield f"{_tab(place)}{_for(len(address) - 1, scope.extent)}"
        yield from self._body(scope, address, place)

    def _body(self, scope: Scope, address: Address, place: _Place) -> Iterator[str]:
        inner = _Place(place.indent + 1, place.parallel, place.combined, place.lines)
        yield f"{_tab(place)}{{"
        yield from self._declarations(address, inner.indent)
        yield from self._nodes(scope.body, address, inner)
        yield f"{_tab(place)}}}"

    def _declarations(self, address: Address, indent: int = 1) -> Iterator[str]:
        for b in self.homes.get(address, ()):
            kind = f"{'    ' * indent}{TYPES[b.dtype]} {c_name(b.name)}"
            if self._is_scalar(b):
                yield f"{kind};"
            else:
                yield f"{kind}[{b.elements}] __attribute__((aligned({ALIGNMENT})));"

    def _parallel_scope(self, scope: Scope, address: Address, place: _Place) -> Iterator[str]:
        depth, number = len(address) - 1, len(self.functions)
        symbol = f"{self.symbol}_{number}"
        self.functions.append("")  # its place among the others
        passed = reached(self.program, address, self.homes)
        taken = [f"int i{d}" for d in range(depth + 1)]
        taken += [c_parameter(b, "restrict ") for b in passed]
        body = self._body(scope, address, _Place(0, True))
        head = f"static void {symbol}({', '.join(taken)})"
        self.functions[number] = "\n".join([head, *body, ""])
        given = [*(f"i{d}" for d in range(depth + 1)), *(c_name(b.name) for b in passed)]
        tab = _tab(place)
        yield f"{tab}#pragma omp parallel for num_threads(KT_THREADS) schedule(static)"
        yield f"{tab}{_for(depth, scope.extent)}"
        yield f"{tab}    {symbol}({', '.join(given)});"

    def _vector_scope(self, scope: Scope, address: Address, place: _Place) -> Iterator[str]:
        shared = combined(self.program, address, self.homes)
        if shared is None:
            yield from self._loop(scope, address, place)
            return
        lines = () if shared else streamed(self.program, address)
        if lines:
            yield from self._streaming_scope(scope, address, place, lines)
            return
        tab = _tab(place)
        inner = _Place(place.indent + bool(shared), place.parallel)
        if shared:
            yield f"{tab}{{"
        clause = ""
        for k, (target, kind) in enumerate(shared.items()):
            name = inner.combined[target] = f"kt_{k}"
            start = c_number(IDENTITIES[kind], self._dtype(target))
            yield f"{tab}    {TYPES[self._dtype(target)]} {name} = {start};"
            clause += f" reduction({_COMBINED[kind]}:{name})"
        yield f"{_tab(inner)}#pragma omp simd{clause}"
        yield from self._loop(scope, address, inner)
        for target, kind in shared.items():
            yield f"{tab}    {self._update(target, kind, inner.combined[target], place)}"
        if shared:
            yield f"{tab}}}"

    def _streaming_scope(
        self, scope: Scope, address: Address, place: _Place, targets: tuple[Ref, ...]
    ) -> Iterator[str]:
        self.streams = True
        depth = len(address) - 1
        tab, lane = _tab(place), f"kt_{depth}"
        yield f"{tab}for (int {lane} = 0; {lane} < {scope.extent}; {lane} += {LINE})"
        yield f"{tab}{{"
        inner = _Place(place.indent + 1, place.parallel)
        for target in targets:
            line = f"kt_line_{target.buffer}"
            inner.lines[target.buffer] = f"{line}[i{depth} - {lane}]"
            yield f"{tab}    float {line}[{LINE}] __attribute__((aligned({ALIGNMENT})));"
        yield f"{tab}    #pragma omp simd"
        run = f"int i{depth} = {lane}; i{depth} < {lane} + {LINE}; i{depth}++"
        yield f"{tab}    for ({run})"
        yield from self._body(scope, address, inner)
        for target in targets:
            at = self._offset(target).replace(f"i{depth}", lane)
            yield f"{tab}    KT_STREAM(&{c_name(target.buffer)}[{at}], kt_line_{target.buffer});"
        yield f"{tab}}}"

    # -- operations -------------------------------------------------------------------------

    def _op(self, op: Op, place: _Place) -> str:
        dtypes = {self._dtype(ref) for ref in (op.target, *refs_of(op.expr))}
        value = self._expr(op.expr, "f64" if "f64" in dtypes else "f32")
        return _tab(place) + self._update(op.target, op.kind, value, place)

    def _update(self, target: Ref, kind: str, value: str, place: _Place) -> str:
        name = place.combined.get(target) or place.lines.get(target.buffer) or self._ref(target)
        if kind in ("=", "+="):
            return f"{name} {kind} {value};"
        dtype = self._dtype(target)
        fn = kind.removesuffix("=")
        self.used.add((fn, dtype))
        # x > y ? x : y gives y when either is NaN: what is stored is second, so that it stays NaN
        return f"{name} = {function_name(fn, dtype)}({value}, {name});"

    def _expr(self, expr: Expr, dtype: str, rank: int = 0) -> str:
        if isinstance(expr, Ref):
            return self._ref(expr)
        if isinstance(expr, Const):
            return c_number(expr.value, dtype)
        if isinstance(expr, Call):
            self.used.add((expr.fn, dtype))
            given = ", ".join(self._expr(arg, dtype) for arg in expr.args)
            return f"{function_name(expr.fn, dtype)}({given})"
        return self._binary(expr, dtype, rank)

    def _binary(self, expr: Binary, dtype: str, rank: int) -> str:
        own = _RANK[expr.op]
        left, right = self._expr(expr.left, dtype, own), self._expr(expr.right, dtype, own + 1)
        text = f"{left} {expr.op} {right}"
        return f"({text})" if own < rank else text

    def _ref(self, ref: Ref) -> str:
        buffer = self.program.buffer(ref.buffer)
        name = c_name(buffer.name)
        return name if self._is_scalar(buffer) else f"{name}[{self._offset(ref)}]"

    def _offset(self, ref: Ref) -> str:
        buffer = self.program.buffer(ref.buffer)
        return c_index(buffer.offset(ref.indices), wide=buffer.elements > 2**31 - 1)

    def _is_scalar(self, buffer: Buffer) -> bool:
        return is_local(buffer) and buffer.elements == 1 and buffer.name not in self.arrays

    def _dtype(self, ref: Ref) -> str:
        return self.program.buffer(ref.buffer).dtype


def _tab(place: _Place) -> str:
    return "    " * place.indent


def _for(depth: int, extent: int) -> str:
    return f"for (int i{depth} = 0; i{depth} < {extent}; i{depth}++)"
