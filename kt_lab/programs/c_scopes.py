"""What the accesses of a scope allow the C to do: which buffers go in, which lanes combine."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from kt_lab.programs.access import Access, accesses, home
from kt_lab.programs.affine import Affine
from kt_lab.programs.c_lanes import LANED
from kt_lab.programs.ir import Address, Binary, Buffer, Call, Expr, Op, Program, Ref, Scope
from kt_lab.programs.surgery import children, node_at, walk

LINE = 16  # f32 elements of one non-temporal store, 64 bytes
_FURTHER = 64 * LINE  # elements that are computed while one comes from memory, and more
_AHEAD = 2048 * LINE  # elements of a tile that are fetched while others are computed with
_USES = 4  # of a line in its tile, from which on memory would wait for the computing

Locals = Mapping[Address, list[Buffer]]


@dataclass(frozen=True, slots=True)
class Fetch:
    """A line of an input that is fetched before a scope.

    Attributes:
        buffer: The input.
        start: Where the line is.
        when: Conditions, which each line of a tile meets once.
    """

    buffer: str
    start: Affine
    when: tuple[str, ...]


def is_local(buffer: Buffer) -> bool:
    """Tells whether a buffer is a local variable."""
    return buffer.place in ("stack", "reg")


def local_homes(program: Program) -> dict[Address, list[Buffer]]:
    """Returns the local variables by the scope at whose top they are declared."""
    found: dict[Address, list[Buffer]] = {}
    for buffer in filter(is_local, program.buffers):
        found.setdefault(home(program, buffer.name), []).append(buffer)
    return found


def parallel_scopes(program: Program) -> list[Address]:
    """Returns the scopes marked p that are not within another one."""
    found: list[Address] = []
    for address, node in walk(program):
        inside = any(address[: len(at)] == at for at in found)
        if isinstance(node, Scope) and node.mark == "p" and node.extent > 1 and not inside:
            found.append(address)
    return found


def reached(program: Program, address: Address, homes: Locals) -> list[Buffer]:
    """Returns the buffers from outside a scope that it touches, in the header's order."""
    names = {a.ref.buffer for a in accesses(program, address)} - _inside(address, homes)
    return [buffer for buffer in program.buffers if buffer.name in names]


def combined(program: Program, address: Address, homes: Locals) -> dict[Ref, str] | None:
    """Returns the reductions whose target the lanes of a vector scope share.

    Returns:
        The updates by target; None when some access is of another kind, so that the scope must
        stay a loop: a scope within is marked p or v, a plain write does not move with the lanes,
        a shared target is also read or moves with an inner scope.
    """
    below = [node for _, node in walk(program, address)]
    if any(isinstance(node, Scope) and node.mark in ("p", "v") for node in below):
        return None
    depth, found = len(address) - 1, {}
    private = _inside(address, homes)
    touched = [a for a in accesses(program, address) if a.ref.buffer not in private]
    for write in (a for a in touched if a.is_write):
        form = program.buffer(write.ref.buffer).offset(write.ref.indices)
        if form.coefficient(depth):
            continue
        same = [a for a in touched if a.ref.buffer == write.ref.buffer]
        if not write.is_reduction or any(a.kind != write.kind for a in same):
            return None
        if form.depths and form.depths[-1] > depth:
            return None
        found[write.ref] = write.kind
    return found


def streamed(program: Program, address: Address) -> tuple[Ref, ...]:
    """Returns the nt outputs of which a vector scope writes whole aligned lines, once."""
    depth, body = len(address) - 1, children(program, address)
    extent = node_at(program, address).extent
    if extent % LINE or not all(isinstance(node, Op) for node in body):
        return ()
    touched = [a.ref.buffer for a in accesses(program, address)]
    found = []
    for op in body:
        buffer = program.buffer(op.target.buffer)
        form = buffer.offset(op.target.indices)
        others = [form.constant, *form.coefficients[:depth]]
        whole = form.coefficient(depth) == 1 and not any(c % LINE for c in others)
        once = touched.count(buffer.name) == 1 and op.kind == "="
        if buffer.place == "nt" and buffer.dtype == "f32" and whole and once:
            found.append(op.target)
    return tuple(found)


def fetched_ahead(program: Program, address: Address) -> dict[str, Affine]:
    """Returns what a streaming scope fetches of inputs that are ahead, a line for each it writes.

    Args:
        program: That holds it.
        address: The scope's.

    Returns:
        By input, where its line is that goes with the first that is written.
    """
    return further_on(program, address) | next_rows(program, address)


def next_rows(program: Program, address: Address) -> dict[str, Affine]:
    """Returns where the rows begin that the next iteration round a streaming scope will read.

    Rows as long as the scope, which a node before it reads: while results leave, nothing else
    comes from memory.
    """
    outer, length = len(address) - 2, node_at(program, address).extent
    found = {}
    for access in accesses(program, address[:-1]) if outer >= 0 else ():
        buffer = program.buffer(access.ref.buffer)
        form = buffer.offset(access.ref.indices)
        step, deeper = form.coefficient(outer), range(outer + 1, len(access.extents))
        last = sum(abs(form.coefficient(d)) * (access.extents[d] - 1) for d in deeper)
        before = access.address[: len(address)] < address
        if buffer.place == "ahead" and step and before and last + 1 == length:
            found[buffer.name] = Affine(form.constant + step, form.coefficients[: outer + 1])
    return found


def further_on(program: Program, address: Address) -> dict[str, Affine]:
    """Returns what a streaming scope reads itself, some lines further on."""
    depth, found = len(address) - 1, {}
    for access in accesses(program, address):
        buffer = program.buffer(access.ref.buffer)
        form = buffer.offset(access.ref.indices)
        if buffer.place == "ahead" and form.coefficient(depth) == 1:
            found[buffer.name] = form.plus(Affine.iterator(depth, -1)).plus(_FURTHER)
    return found


def tiles_ahead(program: Program, address: Address) -> list[Fetch]:
    """Returns what a vector scope can fetch of inputs for later tiles while it computes with one.

    Of large inputs whose lines a tile uses several times: meanwhile nothing else comes from
    memory. A tile that is gone through again and again fetches a part of the later one each time.
    """
    scope = node_at(program, address)
    large = {b.name for b in program.of_kind("in") if b.elements >= 2 * _AHEAD}
    if scope.mark != "v" or scope.extent != LINE or not large:
        return []
    read = (a for a in accesses(program, address) if a.ref.buffer in large)
    found = (_tile_ahead(program, address, a) for a in read)
    return list({fetch.buffer: fetch for fetch in found if fetch}.values())


def _tile_ahead(program: Program, address: Address, access: Access) -> Fetch | None:
    depth, extents = len(address) - 1, access.extents
    buffer = program.buffer(access.ref.buffer)
    form = buffer.offset(access.ref.indices)
    moving = [d for d in range(depth) if form.coefficient(d)]
    reach = {d: LINE * prod(extents[k] for k in moving if k >= d) for d in moving}
    far = [d for d in moving if reach[d] >= 2 * _AHEAD]
    if form.coefficient(depth) != 1 or not far:
        return None
    tiles = far[-1]
    still = [d for d in range(tiles + 1, depth) if d not in moving]
    if prod(extents[d] for d in still) < _USES:
        return None
    unrolled = [d for d in range(depth) if node_at(program, address[: d + 1]).mark.startswith("u")]
    when = [f"i{d} == 0" for d in still if d in unrolled]
    for d in (d for d in still if d not in unrolled):
        parts = [k for k in moving if k in unrolled and extents[k] % extents[d] == 0]
        if len(when) + 1 != len(still) or not parts:
            return None
        when.append(f"i{parts[-1]} % {extents[d]} == i{d}")
    steps = -(-_AHEAD * extents[tiles] // reach[tiles])
    start = form.plus(Affine.iterator(depth, -1)).plus(steps * form.coefficient(tiles))
    return Fetch(buffer.name, start, tuple(when))


def is_in_vectors(
    program: Program, address: Address, homes: Locals, shared: Mapping[Ref, str]
) -> bool:
    """Tells whether a vector scope goes along an array in reg, or reduces its lanes, by vectors.

    All its accesses are then f32 and go from element to element, or stay where they are; what its
    lanes declare for themselves is one element each; its functions are those of `c_lanes.LANED`.

    Args:
        program: That holds it.
        address: The scope's.
        homes: Of `local_homes`.
        shared: Its reductions, of `combined`.
    """
    depth, scope = len(address) - 1, node_at(program, address)
    own, along = _inside(address, homes), bool(shared)
    if scope.extent % LINE or not all(isinstance(node, Op) for node in scope.body):
        return False
    if any(not functions_of(node.expr) <= LANED for node in scope.body):
        return False
    for access in accesses(program, address):
        buffer = program.buffer(access.ref.buffer)
        step = buffer.offset(access.ref.indices).coefficient(depth)
        simple = buffer.elements == 1 or buffer.name not in own
        if buffer.dtype != "f32" or step not in (0, 1) or not simple:
            return False
        along = along or (step == 1 and buffer.place == "reg")
    return along


def functions_of(expr: Expr) -> set[str]:
    """Returns the functions that an expression calls."""
    parts: tuple[Expr, ...] = ()
    if isinstance(expr, Call):
        parts = expr.args
    elif isinstance(expr, Binary):
        parts = (expr.left, expr.right)
    own = {expr.fn} if isinstance(expr, Call) else set()
    return own.union(*map(functions_of, parts))


def _inside(address: Address, homes: Locals) -> set[str]:
    """The local variables that each iteration of a scope declares for itself."""
    return {b.name for at, bs in homes.items() if at[: len(address)] == address for b in bs}
