"""Moves that copy the part of a buffer that a nest reads into a temporary, and drop the copy.

The copy lies side by side in memory, may stay in a cache or on the stack, and takes any layout
that `split_dim` and `swap_dims` give it: so a panel of a matrix becomes contiguous.

A pack has no inverse where an iterator of one iteration runs over its source: dropping the copy
writes the number that the iterator is.
"""

import math
from collections.abc import Iterator

from kt_lab.errors import ProgramError
from kt_lab.programs.access import Access, Box, accesses, footprint
from kt_lab.programs.affine import Affine
from kt_lab.programs.ir import Address, Buffer, Dim, Op, Program, Ref, Scope
from kt_lab.programs.moves.base import PROVEN, Kind, Move, Rule, scopes
from kt_lab.programs.moves.storage import LIMITS
from kt_lab.programs.surgery import (
    canonical,
    children,
    fresh_name,
    node_at,
    replaced,
    scopes_above,
    with_buffers,
    with_reads,
)


def _reads(program: Program, at: Address, name: str) -> list[Access]:
    return [a for a in accesses(program, at) if a.ref.buffer == name and not a.is_write]


def _find_packs(program: Program) -> Iterator[Move]:
    for at, _ in scopes(program):
        if all(scope.mark in ("", "p") for scope in scopes_above(program, at)):
            names = dict.fromkeys(a.ref.buffer for a in accesses(program, at) if not a.is_write)
            for name in names:
                if _is_worth_a_copy(program, at, name):
                    yield Move("pack", at, (name,))


def _is_worth_a_copy(program: Program, at: Address, name: str) -> bool:
    """Whether a nest reads a box of a whole buffer, each element of it more than once."""
    buffer = program.buffer(name)
    if buffer.place != "heap" or any(dim.reused for dim in buffer.dims):
        return False
    reads = _reads(program, at, name)
    box = footprint(reads, len(at) - 1)
    elements = math.prod(extent for _, extent in box) if box else 1
    times = sum(math.prod(a.extents[len(at) - 1 :]) for a in reads)
    return 1 < elements < times


def _copy(program: Program, move: Move) -> tuple[Buffer, Box]:
    source = program.buffer(move.arguments[0])
    box = footprint(_reads(program, move.at, source.name), len(move.at) - 1)
    dims = tuple(Dim(extent) for _, extent in box if extent > 1)
    above = {scope.mark for scope in scopes_above(program, move.at)}
    place = "stack" if "p" in above else "heap"  # each parallel iteration needs its own
    return Buffer(fresh_name(program), "tmp", source.dtype, dims, place), box


def _pack(program: Program, move: Move) -> Program:
    copy, box = _copy(program, move)
    depth, name = len(move.at) - 1, move.arguments[0]
    kept = [k for k, (_, extent) in enumerate(box) if extent > 1]
    at = {k: Affine.iterator(depth + n) for n, k in enumerate(kept)}
    source = (low.plus(at[k]) if k in at else low for k, (low, _) in enumerate(box))
    nest = Op(Ref(copy.name, tuple(at.values())), "=", Ref(name, tuple(source)))
    for dim in reversed(copy.dims):
        nest = Scope(dim.extent, "", (nest,))

    def redirect(ref: Ref) -> Ref:
        if ref.buffer != name:
            return ref
        return Ref(copy.name, tuple(ref.indices[k].plus(box[k][0].times(-1)) for k in kept))

    changed = with_buffers(program, {copy.name: copy})
    reader = _with_operands(node_at(program, move.at), redirect)
    return canonical(replaced(changed, move.at, nest, reader))


def _with_operands(node, change):
    """Returns the subtree with every element read as an operand replaced, targets kept."""
    if isinstance(node, Op):
        return Op(node.target, node.kind, with_reads(node.expr, change))
    return Scope(node.extent, node.mark, tuple(_with_operands(n, change) for n in node.body))


def _is_unwritten(program: Program, move: Move) -> bool:
    name = move.arguments[0]
    return not any(a.ref.buffer == name and a.is_write for a in accesses(program, move.at))


def _copy_fits(program: Program, move: Move) -> bool:
    copy, _ = _copy(program, move)
    return copy.bytes <= LIMITS.get(copy.place, copy.bytes)


def _copied(program: Program, at: Address) -> Op | None:
    """Returns the operation of a nest that copies into a temporary for the next node."""
    node, depth, levels = node_at(program, at), len(at) - 1, 0
    while isinstance(node, Scope) and len(node.body) == 1 and node.mark == "":
        node, levels = node.body[0], levels + 1
    copies = isinstance(node, Op) and node.kind == "=" and isinstance(node.expr, Ref) and levels
    if not copies or len(children(program, at[:-1])) == at[-1] + 1:
        return None
    straight = tuple(Affine.iterator(depth + n) for n in range(levels))
    made = program.buffer(node.target.buffer).kind == "tmp" and node.target.indices == straight
    return node if made and _source_box(node, depth, levels) else None


def _source_box(copy: Op, depth: int, levels: int) -> list[tuple[Affine, int | None]] | None:
    """Returns per source dimension the least index and the copy's dimension that runs over it."""
    found, seen = [], []
    for index in copy.expr.indices:
        running = [d for d in index.depths if d >= depth]
        if len(running) > 1 or (running and index.coefficient(running[0]) != 1):
            return None
        low = Affine(index.constant, index.coefficients[:depth])
        found.append((low, running[0] - depth if running else None))
        seen += running
    return found if seen == list(range(depth, depth + levels)) else None


def _find_unpacks(program: Program) -> Iterator[Move]:
    return (Move("unpack", at) for at, _ in scopes(program) if _copied(program, at))


def _unpack(program: Program, move: Move) -> Program:
    copy, depth = _copied(program, move.at), len(move.at) - 1
    box = _source_box(copy, depth, len(copy.target.indices))

    def restore(ref: Ref) -> Ref:
        if ref.buffer != copy.target.buffer:
            return ref
        indices = (low if k is None else low.plus(ref.indices[k]) for low, k in box)
        return Ref(copy.expr.buffer, tuple(indices))

    following = (*move.at[:-1], move.at[-1] + 1)
    reader = _with_operands(node_at(program, following), restore)
    return canonical(replaced(program, move.at, reader, count=2))


def _repacking(program: Program, move: Move) -> Move | None:
    """Returns the move that makes a dropped copy again, None where no move makes just that."""
    try:
        dropped = _unpack(program, move)
    except ProgramError:  # the temporary holds more than this copy
        return None
    for again in _find_packs(dropped):
        if again.at == move.at and PACK.attempt(dropped, again)[0] == program:
            return again
    return None


def _dropping(program: Program, move: Move) -> Move | None:
    """Returns the move that drops the copy again, None where that does not give the same text."""
    back = Move("unpack", move.at)
    return back if _unpack(_pack(program, move), back) == program else None


PACK = Kind(
    "pack",
    "Copies what a nest reads of a buffer into a temporary in front of it.",
    (
        Rule("unwritten", "nothing writes the buffer while the copy stands for it", _is_unwritten),
        Rule(
            "size",
            f"a copy in a parallel scope is on the stack, at most {LIMITS['stack']} bytes",
            _copy_fits,
            limit=True,
        ),
        *PROVEN,
    ),
    _find_packs,
    _pack,
    _dropping,
)
UNPACK = Kind(
    "unpack",
    "Drops a copy, and lets the next node read the buffer itself.",
    (
        Rule(
            "copy",
            "it is a copy as pack makes it",
            lambda program, move: _repacking(program, move) is not None,
        ),
    ),
    _find_unpacks,
    _unpack,
    _repacking,
)
KINDS = (PACK, UNPACK)
