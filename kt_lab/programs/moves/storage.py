"""Moves of temporaries: how many elements they keep, in which layout, and where.

They change what is stored and nothing of what it means, so they answer for the storage only: the
indices of every access stay what they are, or change with the dimensions they belong to.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from kt_lab.programs.access import accesses, home, is_covered
from kt_lab.programs.affine import Affine
from kt_lab.programs.c_scopes import tiles_ahead
from kt_lab.programs.ir import PLACES, Buffer, Program, Ref
from kt_lab.programs.moves.base import (
    MARKS,
    PROVEN,
    Kind,
    Move,
    Rule,
    carries,
    inner_extents,
    scopes,
)
from kt_lab.programs.surgery import (
    buffers_with,
    canonical,
    node_at,
    split_dim,
    with_buffers,
    with_refs,
)

# Bytes of one temporary: the 32 vector registers of a core with 512 bits each, and a quarter of a
# second-level cache of 1 MiB.
LIMITS = {"reg": 32 * 64, "stack": 1 << 18}


def _buffer(program: Program, move: Move) -> Buffer:
    return program.buffer(move.arguments[0])


def _indices(program: Program, name: str, position: int) -> list[Affine]:
    """Returns the different indices in one dimension, in the order of their first use."""
    found = (a.ref.indices[position] for a in accesses(program) if a.ref.buffer == name)
    return list(dict.fromkeys(found))


def _depth(program: Program, move: Move) -> int:
    """Returns the depth of the deepest iterator in a dimension's indices, -1 for none."""
    name, position = move.arguments
    return max((d for i in _indices(program, name, position) for d in i.depths), default=-1)


def _has_one_index(program: Program, move: Move) -> bool:
    return len(_indices(program, *move.arguments)) == 1


def _is_inside(program: Program, move: Move) -> bool:
    return len(home(program, move.arguments[0])) > _depth(program, move)


def _is_written_anew(program: Program, move: Move) -> bool:
    name = move.arguments[0]
    here = home(program, name)
    return is_covered(program, name, here[: _depth(program, move) + 1])


def _fits_place(program: Program, move: Move) -> bool:
    buffer = _buffer(program, move)
    return buffer.bytes <= LIMITS.get(buffer.place, buffer.bytes)


def _find_dims(reused: bool) -> Callable[[Program], Iterator[Move]]:
    kind = "materialise_dim" if reused else "reuse_dim"

    def find(program: Program) -> Iterator[Move]:
        for buffer in program.of_kind("tmp"):
            for position, dim in enumerate(buffer.dims):
                if dim.extent > 1 and dim.reused == reused:
                    yield Move(kind, (), (buffer.name, position))

    return find


def _set_reused(reused: bool) -> Callable[[Program, Move], Program]:
    def apply(program: Program, move: Move) -> Program:
        name, position = move.arguments
        dims = list(program.buffer(name).dims)
        dims[position] = replace(dims[position], reused=reused)
        changed = replace(program.buffer(name), dims=tuple(dims))
        return canonical(with_buffers(program, {name: changed}))

    return apply


def _find_dim_splits(program: Program) -> Iterator[Move]:
    for buffer in program.of_kind("tmp"):
        touched = [a for a in accesses(program) if a.ref.buffer == buffer.name]
        for position, dim in enumerate(buffer.dims):
            for inner in inner_extents(dim.extent):
                # only where a scope was split has every index a quotient and a remainder
                if all(a.ref.indices[position].divided(inner, a.extents) for a in touched):
                    yield Move("split_dim", (), (buffer.name, position, inner))


def _split_dim(program: Program, move: Move) -> Program:
    return canonical(split_dim(program, *move.arguments))


def _find_dim_merges(program: Program) -> Iterator[Move]:
    for buffer in program.of_kind("tmp"):
        for position in range(len(buffer.dims) - 1):
            outer, inner = buffer.dims[position : position + 2]
            if outer.reused == inner.reused and min(outer.extent, inner.extent) > 1:
                move = Move("merge_dim", (), (buffer.name, position))
                merged = _merge_dim(program, move)
                if split_dim(merged, buffer.name, position, inner.extent) == program:
                    yield move


def _merge_dim(program: Program, move: Move) -> Program:
    name, k = move.arguments
    buffer = program.buffer(name)
    outer, inner = buffer.dims[k : k + 2]

    def join(ref: Ref) -> Ref:
        if ref.buffer != name:
            return ref
        index = ref.indices[k].times(inner.extent).plus(ref.indices[k + 1])
        return Ref(name, (*ref.indices[:k], index, *ref.indices[k + 2 :]))

    whole = replace(outer, extent=outer.extent * inner.extent)
    dims = (*buffer.dims[:k], whole, *buffer.dims[k + 2 :])
    header = buffers_with(program, {name: replace(buffer, dims=dims)})
    body = tuple(with_refs(node, join) for node in program.body)
    return canonical(Program(program.name, header, body))


def _next_stored(buffer: Buffer, position: int) -> int | None:
    """Returns the next dimension that takes storage; to pass one that does not changes nothing."""
    stored = [k for k, dim in enumerate(buffer.dims) if dim.extent > 1 and not dim.reused]
    following = [k for k in stored if k > position]
    return following[0] if position in stored and following else None


def _find_dim_swaps(program: Program) -> Iterator[Move]:
    for buffer in program.of_kind("tmp"):
        for position in range(len(buffer.dims)):
            if _next_stored(buffer, position) is not None:
                yield Move("swap_dims", (), (buffer.name, position))


def _swap_dims(program: Program, move: Move) -> Program:
    name, first = move.arguments
    buffer = program.buffer(name)
    second = _next_stored(buffer, first)

    def turned(items: tuple) -> tuple:
        order = list(items)
        order[first], order[second] = items[second], items[first]
        return tuple(order)

    def swap(ref: Ref) -> Ref:
        return Ref(name, turned(ref.indices)) if ref.buffer == name else ref

    header = buffers_with(program, {name: replace(buffer, dims=turned(buffer.dims))})
    body = tuple(with_refs(node, swap) for node in program.body)
    return canonical(Program(program.name, header, body))


def _find_places(program: Program) -> Iterator[Move]:
    for buffer in program.buffers:
        for place in PLACES[buffer.kind]:
            if place != buffer.place and _has_use(program, buffer.name, place):
                yield Move("place", (), (buffer.name, place))


def _has_use(program: Program, name: str, place: str) -> bool:
    if place == "ahead":  # it is fetched while results are streamed, or a tile is computed with
        tiles = (fetch for at, _ in scopes(program) for fetch in tiles_ahead(program, at))
        streams = any(b.place == "nt" for b in program.buffers)
        return streams or any(fetch.buffer == name for fetch in tiles)
    return place != "nt" or all(a.kind == "=" for a in accesses(program) if a.ref.buffer == name)


def _placed_back(program: Program, move: Move) -> Move | None:
    back = Move("place", (), (move.arguments[0], _buffer(program, move).place))
    return back if back in _find_places(_place(program, move)) else None


def _place(program: Program, move: Move) -> Program:
    name, place = move.arguments
    return canonical(with_buffers(program, {name: replace(program.buffer(name), place=place)}))


def _needs_no_memory(program: Program, move: Move) -> bool:
    name, place = move.arguments
    return place not in ("stack", "reg") or is_covered(program, name, home(program, name))


def _is_raced_for(program: Program, move: Move) -> bool:
    name, place = move.arguments
    if place != "heap" or _buffer(program, move).kind != "tmp":
        return False
    shared, here = _place(program, move), home(program, name)
    above = (here[: n + 1] for n in range(len(here)))
    return any(carries(shared, at, node_at(program, at).mark) for at in above)


def _of_itself(name: str, law: str, holds: Callable[[Program, Move], bool]) -> Rule:
    """A rule that can only fail in a program which is right although its storage is unproven.

    Where every read is proven to follow a write, and all accesses lie in one scope, both are in
    the same iteration of it. No walk meets other programs; a person may write one.
    """
    return Rule(name, law, holds, limit=True)


_SIZE = Rule(
    "size",
    f"a temporary in reg takes at most {LIMITS['reg']} bytes, in stack {LIMITS['stack']}",
    _fits_place,
    after=True,
    limit=True,
)

KINDS = (
    Kind(
        "reuse_dim",
        "Gives all elements along a dimension of a temporary one place (temporary, dimension).",
        (
            Rule("index", "every access has the same index in a reused dimension", _has_one_index),
            Rule(
                "inside", "every access lies in the scopes that a reused index names", _is_inside
            ),
            _of_itself("written", "each iteration writes what it then reads", _is_written_anew),
            MARKS,
        ),
        _find_dims(reused=False),
        _set_reused(True),
        lambda _, move: Move("materialise_dim", (), move.arguments),
    ),
    Kind(
        "materialise_dim",
        "Gives every element along a reused dimension a place of its own again.",
        (_SIZE,),
        _find_dims(reused=True),
        _set_reused(False),
        lambda _, move: Move("reuse_dim", (), move.arguments),
    ),
    Kind(
        "split_dim",
        "Cuts a dimension in two where a scope was split (temporary, dimension, inner extent).",
        (),
        _find_dim_splits,
        _split_dim,
        lambda _, move: Move("merge_dim", (), move.arguments[:2]),
    ),
    Kind(
        "merge_dim",
        "Joins a dimension of a temporary with the next one.",
        PROVEN,
        _find_dim_merges,
        _merge_dim,
        lambda program, move: Move(
            "split_dim",
            (),
            (*move.arguments, _buffer(program, move).dims[move.arguments[1] + 1].extent),
        ),
    ),
    Kind(
        "swap_dims",
        "Exchanges a dimension of a temporary with the next one that takes storage.",
        (),
        _find_dim_swaps,
        _swap_dims,
        lambda _, move: move,
    ),
    Kind(
        "place",
        "Moves a temporary to heap, stack or reg, stores a result past the caches (nt), or "
        "meanwhile fetches what will be read of an input (ahead).",
        (
            _of_itself(
                "covered",
                "what is on the stack or in registers needs nothing of another iteration",
                _needs_no_memory,
            ),
            Rule(
                "shared",
                "iterations that run at once do not depend on each other through the heap",
                lambda program, move: not _is_raced_for(program, move),
            ),
            _SIZE,
        ),
        _find_places,
        _place,
        _placed_back,
    ),
)
