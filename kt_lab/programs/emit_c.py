"""C from programs: one self-contained, readable file, the same bytes for the same text.

The C asks for no header and no reordering of floating point. What the marks become:
    p     `omp parallel for` with KT_THREADS threads (a macro; 1 unless defined); its body is a
          function of its own, in which `restrict` still holds. A p within a p is a plain loop.
    v     `omp simd`; a reduction whose target does not move with the iterator is combined in a
          scalar of its own, then stored. Where the accesses are not of these kinds the scope is a
          plain loop, which is what a legal program means anyway.
    u, uK `GCC unroll`
A v scope along a reg tmp, or one that reduces its lanes, is written in vectors of a compiler's own
type instead (see `c_lanes`) where its accesses and functions allow it: a tile of results, in u
scopes, then stays in registers, and lanes are added by halves rather than one after the other.
The places: an in, an out and a heap tmp is a parameter, to be aligned to 64 bytes; a stack or reg
tmp is a local variable of its home, a scalar when it has one element. An nt out is written past
the caches, a line of 64 bytes at a time, by a v scope that holds operations only, has whole
aligned lines and combines nothing; elsewhere, and without AVX-512 or clang, by plain stores. Such
a scope fetches of an ahead in, a line for a line, what the next iteration round it will read, or
what it reads itself further on; the v scope of a tile, of which each line is used several times,
fetches lines of a later tile.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from kt_lab.errors import ProgramError
from kt_lab.programs.c_lanes import lane_definitions
from kt_lab.programs.c_math import definitions
from kt_lab.programs.c_ops import Place, Statements
from kt_lab.programs.c_scopes import (
    LINE,
    combined,
    fetched_ahead,
    is_in_vectors,
    is_local,
    local_homes,
    parallel_scopes,
    reached,
    streamed,
    tiles_ahead,
)
from kt_lab.programs.c_text import (
    STREAMING,
    THREADS,
    TYPES,
    c_name,
    c_number,
    c_parameter,
)
from kt_lab.programs.ir import IDENTITIES, Address, Buffer, Node, Op, Program, Ref, Scope
from kt_lab.programs.surgery import walk
from kt_lab.programs.text import to_text

ALIGNMENT = 64  # bytes, of every parameter and local array
STACK_BYTES = 1 << 20  # of all local variables: a thread's stack has a few MiB at most
_COMBINED = {"+=": "+", "max=": "max", "min=": "min"}
_COUNTED, _UNROLLED = 2**31 - 1, 65_534
_CHUNKS = 128  # vectors that a vector scope may be unrolled to


def emit_c(program: Program, *, name: str | None = None) -> str:
    """Returns the C of a program.

    It defines `void kt_NAME(..)` with one restrict pointer for each buffer of `parameters`, in
    that order, and `void kt_NAME_call(void *const *buffers)`, which takes them as an array.

    Args:
        program: A legal program.
        name: For NAME; None: the program's own.

    Raises:
        ProgramError: Its stack and reg temporaries are larger than STACK_BYTES together, or a
            scope has more iterations than an int counts.
    """
    longest = max((n.extent for _, n in walk(program) if isinstance(n, Scope)), default=0)
    if longest > _COUNTED:
        raise ProgramError(f"a scope has at most {_COUNTED} iterations in C, got {longest}")
    return _Emitter(program, f"kt_{name or program.name}").text()


def parameters(program: Program) -> tuple[Buffer, ...]:
    """Returns the buffers that the C function takes: inputs, heap temporaries, outputs."""
    return tuple(b for b in program.buffers if not is_local(b))


def signature(program: Program, name: str | None = None) -> str:
    """Returns the declaration of the C function, without restrict and semicolon."""
    taken = ", ".join(map(c_parameter, parameters(program)))
    return f"void kt_{name or program.name}({taken})"


class _Emitter:
    """The parts of one file while they are collected."""

    def __init__(self, program: Program, symbol: str):
        self.program, self.symbol = program, symbol
        self.functions: list[str] = []
        self.streams = self.in_vectors = False
        self.homes = local_homes(program)
        size = sum(b.bytes for found in self.homes.values() for b in found)
        if size > STACK_BYTES:
            raise ProgramError(
                f"stack and reg temporaries take <= {STACK_BYTES} bytes together; got {size} in "
                f"{program.name}; place the largest on the heap"
            )
        # a local that a parallel body reaches from outside is passed by its address
        self.parallel = parallel_scopes(program)
        arrays = {
            b.name for at in self.parallel for b in reached(program, at, self.homes) if is_local(b)
        }
        self.ops = Statements(program, arrays)

    def text(self) -> str:
        body = [*self._declarations((), Place()), *self._nodes(self.program.body, (), Place())]
        taken = parameters(self.program)
        given = ", ".join(f"buffers[{k}]" for k in range(len(taken)))
        parts = [f"/*\n{to_text(self.program)}*/\n"]
        parts += [THREADS] if self.parallel else []
        parts += [STREAMING] if self.streams else []
        parts += [definitions(self.ops.used)] if self.ops.used else []
        parts += [lane_definitions(self.ops.vectors)] if self.in_vectors else []
        parts += self.functions
        fence = ["    KT_STREAMED();"] if self.streams else []
        head = f"void {self.symbol}({', '.join(c_parameter(b, 'restrict ') for b in taken)})"
        parts.append("\n".join([head, "{", *body, *fence, "}", ""]))
        call = f"{self.symbol}({given});"
        parts.append(f"void {self.symbol}_call(void *const *buffers)\n{{\n    {call}\n}}\n")
        return "\n".join(parts)

    # -- nodes ------------------------------------------------------------------------------

    def _nodes(self, nodes: Iterable[Node], address: Address, place: Place) -> Iterator[str]:
        for k, node in enumerate(nodes):
            here = (*address, k)
            if isinstance(node, Op):
                yield self.ops.operation(node, place)
            elif node.mark == "p" and not place.parallel and node.extent > 1:
                yield from self._parallel_scope(node, here, place)
            elif node.mark == "v" and node.extent > 1:
                yield from self._vector_scope(node, here, place)
            else:
                if node.mark.startswith("u") and node.extent > 1:
                    yield f"{place.tab}#pragma GCC unroll {_unrolled(node)}"
                yield from self._loop(node, here, place)

    def _loop(self, scope: Scope, address: Address, place: Place) -> Iterator[str]:
        depth = len(address) - 1
        step = "++" if place.lane is None else " += KT_LANES"
        yield f"{place.tab}for (int i{depth} = 0; i{depth} < {scope.extent}; i{depth}{step})"
        yield from self._body(scope, address, place)

    def _body(self, scope: Scope, address: Address, place: Place) -> Iterator[str]:
        inner = replace(place, indent=place.indent + 1)
        yield f"{place.tab}{{"
        yield from self._declarations(address, inner)
        yield from self._nodes(scope.body, address, inner)
        yield f"{place.tab}}}"

    def _declarations(self, address: Address, place: Place) -> Iterator[str]:
        for b in self.homes.get(address, ()):
            kind = TYPES[b.dtype] if place.lane is None else "f32_lanes"
            if self.ops.is_scalar(b.name):
                yield f"{place.tab}{kind} {c_name(b.name)};"
            else:
                aligned = f"__attribute__((aligned({ALIGNMENT})))"
                yield f"{place.tab}{kind} {c_name(b.name)}[{b.elements}] {aligned};"

    def _parallel_scope(self, scope: Scope, address: Address, place: Place) -> Iterator[str]:
        depth, number = len(address) - 1, len(self.functions)
        symbol = f"{self.symbol}_{number}"
        self.functions.append("")  # its place among the others
        passed = reached(self.program, address, self.homes)
        taken = [f"int i{d}" for d in range(depth + 1)]
        taken += [c_parameter(b, "restrict ") for b in passed]
        body = self._body(scope, address, Place(0, True))
        head = f"static void {symbol}({', '.join(taken)})"
        self.functions[number] = "\n".join([head, *body, ""])
        given = [*(f"i{d}" for d in range(depth + 1)), *(c_name(b.name) for b in passed)]
        tab = place.tab
        yield f"{tab}#pragma omp parallel for num_threads(KT_THREADS) schedule(static)"
        yield f"{tab}for (int i{depth} = 0; i{depth} < {scope.extent}; i{depth}++)"
        yield f"{tab}    {symbol}({', '.join(given)});"

    def _vector_scope(self, scope: Scope, address: Address, place: Place) -> Iterator[str]:
        shared = combined(self.program, address, self.homes)
        if shared is None:
            yield from self._loop(scope, address, place)
            return
        if is_in_vectors(self.program, address, self.homes, shared):
            own = frozenset(b.name for b in self.homes.get(address, ()))
            place = replace(place, lane=len(address) - 1, own=own)
            self.in_vectors = True
        lines = () if shared else streamed(self.program, address)
        if lines:
            yield from self._streaming_scope(scope, address, place, lines)
            return
        yield from self._fetches(address, place)
        if shared:
            yield from self._combining_scope(scope, address, place, shared)
        else:
            yield f"{place.tab}{_pragma(scope.extent, place)}"
            yield from self._loop(scope, address, place)

    def _fetches(self, address: Address, place: Place) -> Iterator[str]:
        for fetch in tiles_ahead(self.program, address):
            if self.program.buffer(fetch.buffer).place != "ahead":
                continue
            at = self.ops.position(fetch.buffer, fetch.start)
            yield f"{place.tab}if ({' && '.join(fetch.when)})"
            yield f"{place.tab}    __builtin_prefetch(&{c_name(fetch.buffer)}[{at}], 0, 2);"

    def _combining_scope(
        self, scope: Scope, address: Address, place: Place, shared: Mapping[Ref, str]
    ) -> Iterator[str]:
        names = {target: f"kt_{k}" for k, target in enumerate(shared)}
        inner = replace(place, indent=place.indent + 1, combined=names)
        clause = ""
        yield f"{place.tab}{{"
        for target, kind in shared.items():
            dtype = self.ops.dtype(target)
            start, held = c_number(IDENTITIES[kind], dtype), TYPES[dtype]
            if place.lane is not None:
                start, held = f"KT_ALL({start})", "f32_lanes"
            yield f"{inner.tab}{held} {names[target]} = {start};"
            clause += f" reduction({_COMBINED[kind]}:{names[target]})"
        yield f"{inner.tab}{_pragma(scope.extent, place, clause)}"
        yield from self._loop(scope, address, inner)
        for target, kind in shared.items():
            yield f"{inner.tab}{self.ops.join(target, kind, names[target], place)}"
        yield f"{place.tab}}}"

    def _streaming_scope(
        self, scope: Scope, address: Address, place: Place, targets: tuple[Ref, ...]
    ) -> Iterator[str]:
        self.streams = True
        depth = len(address) - 1
        tab, lane = place.tab, f"kt_{depth}"
        if place.lane is not None:
            yield f"{tab}#pragma GCC unroll {min(_CHUNKS, scope.extent // LINE)}"
        yield f"{tab}for (int {lane} = 0; {lane} < {scope.extent}; {lane} += {LINE})"
        yield f"{tab}{{"
        lines = {t.buffer: f"kt_line_{t.buffer}[i{depth} - {lane}]" for t in targets}
        inner = replace(place, indent=place.indent + 1, lines=lines)
        for name in lines:
            yield f"{inner.tab}float kt_line_{name}[{LINE}] __attribute__((aligned({ALIGNMENT})));"
        for name, start in fetched_ahead(self.program, address).items():
            at = self.ops.position(name, start)
            yield f"{inner.tab}__builtin_prefetch(&{c_name(name)}[{at} + {lane}]);"
        step = "++" if place.lane is None else " += KT_LANES"
        yield f"{inner.tab}{_pragma(LINE, place)}"
        run = f"int i{depth} = {lane}; i{depth} < {lane} + {LINE}; i{depth}{step}"
        yield f"{inner.tab}for ({run})"
        yield from self._body(scope, address, inner)
        for target in targets:
            at = self.ops.offset(target).replace(f"i{depth}", lane)
            line = f"kt_line_{target.buffer}"
            yield f"{inner.tab}KT_STREAM(&{c_name(target.buffer)}[{at}], {line});"
        yield f"{tab}}}"


def _unrolled(scope: Scope) -> int:
    """Returns how often a scope is unrolled: gcc takes no more."""
    return min(int(scope.mark[1:] or scope.extent), _UNROLLED)


def _pragma(extent: int, place: Place, clause: str = "") -> str:
    """Returns what stands before the loop of a vector scope: over lanes, or over vectors."""
    if place.lane is None:
        return f"#pragma omp simd{clause}"
    # four lanes are the fewest that a vector has
    return f"#pragma GCC unroll {min(_CHUNKS, extent // 4)}"
