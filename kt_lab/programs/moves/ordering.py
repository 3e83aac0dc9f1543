"""Moves that change the order in which operations run: interchange, swap, fuse, fission.

What runs before what is judged on the plain program: there every logical element has a place of
its own, so that only values that are passed on bind an order. Updates by the same reduction may
change places; for sums that re-associates them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from kt_lab.programs.access import Access, accesses, is_local
from kt_lab.programs.dependence import (
    conflicts,
    distance,
    may_coincide,
    may_cross,
    may_precede,
)
from kt_lab.programs.ir import Program, Scope
from kt_lab.programs.moves.base import (
    FORM,
    MARKS,
    PROVEN_STORAGE,
    STORAGE,
    Kind,
    Move,
    Rule,
    scopes,
)
from kt_lab.programs.surgery import (
    canonical,
    children,
    exchanged_levels,
    node_at,
    plain,
    replaced,
)

Pair = tuple[Access, Access]


def _following(move: Move) -> tuple[int, ...]:
    return (*move.at[:-1], move.at[-1] + 1)


def _pairs(program: Program, firsts: Iterable[Access], seconds: Iterable[Access]):
    """Yields the pairs that may bind an order: of one buffer, and one of the two writes."""
    later: dict[str, list[Access]] = {}
    for access in seconds:
        later.setdefault(access.ref.buffer, []).append(access)
    for a in firsts:
        for b in later.get(a.ref.buffer, ()):
            if a.is_write or b.is_write:
                yield a, b, program.buffer(a.ref.buffer)


def _turned_by_interchange(program: Program, move: Move) -> Iterator[Pair]:
    depth, inner = len(move.at) - 1, (*move.at, 0)
    local = {b.name for b in program.of_kind("tmp") if is_local(program, b.name, inner)}
    for found in conflicts(program, move.at, ignore=local):
        if may_cross(found.distance, depth):
            yield found.first, found.second


def _turned_by_swap(program: Program, move: Move) -> Iterator[Pair]:
    parts = accesses(program, move.at), accesses(program, _following(move))
    for a, b, buffer in _pairs(program, *parts):
        found = distance(a, b, len(move.at) - 1, buffer)
        if found is not None and may_coincide(found):
            yield a, b


def _turned_by_fuse(program: Program, move: Move) -> Iterator[Pair]:
    parts = accesses(program, move.at), accesses(program, _following(move))
    return _preceding(program, move, *parts)


def _turned_by_fission(program: Program, move: Move) -> Iterator[Pair]:
    depth, cut = len(move.at), move.arguments[0]
    touched = accesses(program, move.at)
    parts = ([a for a in touched if (a.address[depth] >= cut) == side] for side in (False, True))
    return _preceding(program, move, *parts)


def _preceding(program: Program, move: Move, firsts, seconds) -> Iterator[Pair]:
    """Yields pairs of which the second may run at an earlier iteration than the first."""
    for a, b, buffer in _pairs(program, firsts, seconds):
        found = distance(a, b, len(move.at), buffer)
        if found is not None and may_precede(found, len(move.at) - 1):
            yield a, b


def _dependence(law: str, turned: Callable[[Program, Move], Iterator[Pair]]) -> Rule:
    def holds(program: Program, move: Move) -> bool:
        pairs = turned(plain(program), move)
        return all(a.is_reduction and a.kind == b.kind for a, b in pairs)

    return Rule("dependence", law, holds)


def _exact(turned: Callable[[Program, Move], Iterator[Pair]]) -> Callable[[Program, Move], bool]:
    return lambda program, move: all(a.kind != "+=" for a, _ in turned(plain(program), move))


def _find_interchanges(program: Program) -> Iterator[Move]:
    for at, scope in scopes(program):
        if len(scope.body) == 1 and isinstance(scope.body[0], Scope):
            yield Move("interchange", at)


def _interchange(program: Program, move: Move) -> Program:
    outer, depth = node_at(program, move.at), len(move.at) - 1
    inner = outer.body[0]
    body = tuple(exchanged_levels(node, depth, depth + 1) for node in inner.body)
    exchanged = replace(inner, body=(replace(outer, body=body),))
    return canonical(replaced(program, move.at, exchanged))


def _siblings(program: Program):
    """Yields every two neighbours with the address of the first."""
    for at in ((), *(at for at, _ in scopes(program))):
        for position, (first, second) in enumerate(pairwise(children(program, at))):
            yield (*at, position), first, second


def _find_swaps(program: Program) -> Iterator[Move]:
    return (Move("swap", at) for at, _, _ in _siblings(program))


def _swap(program: Program, move: Move) -> Program:
    first, second = node_at(program, move.at), node_at(program, _following(move))
    return canonical(replaced(program, move.at, second, first, count=2))


def _find_fuses(program: Program) -> Iterator[Move]:
    for at, first, second in _siblings(program):
        alike = isinstance(first, Scope) and isinstance(second, Scope)
        if alike and (first.extent, first.mark) == (second.extent, second.mark):
            yield Move("fuse", at)


def _fuse(program: Program, move: Move) -> Program:
    first, second = node_at(program, move.at), node_at(program, _following(move))
    joined = replace(first, body=first.body + second.body)
    return canonical(replaced(program, move.at, joined, count=2))


def _find_fissions(program: Program) -> Iterator[Move]:
    for at, scope in scopes(program):
        for cut in range(1, len(scope.body)):
            yield Move("fission", at, (cut,))


def _fission(program: Program, move: Move) -> Program:
    scope, cut = node_at(program, move.at), move.arguments[0]
    parts = (replace(scope, body=body) for body in (scope.body[:cut], scope.body[cut:]))
    return canonical(replaced(program, move.at, *parts))


KINDS = (
    Kind(
        "interchange",
        "Exchanges a scope with its only child; each keeps its mark.",
        (
            _dependence(
                "no value passes to a later iteration of one scope and an earlier of the other",
                _turned_by_interchange,
            ),
            MARKS,
            FORM,
        ),
        _find_interchanges,
        _interchange,
        lambda _, move: move,
        exact=_exact(_turned_by_interchange),
    ),
    Kind(
        "swap",
        "Exchanges a node with the next one.",
        (
            _dependence(
                "neither of the two needs or overwrites what is the other's", _turned_by_swap
            ),
        ),
        _find_swaps,
        _swap,
        lambda _, move: move,
        exact=_exact(_turned_by_swap),
    ),
    Kind(
        "fuse",
        "Joins a scope with the next one of the same extent and mark.",
        (
            _dependence(
                "no iteration of the second needs, or changes, what a later one of the first does",
                _turned_by_fuse,
            ),
            PROVEN_STORAGE,
            MARKS,
        ),
        _find_fuses,
        _fuse,
        lambda program, move: Move("fission", move.at, (len(node_at(program, move.at).body),)),
        exact=_exact(_turned_by_fuse),
    ),
    Kind(
        "fission",
        "Cuts the body of a scope in two scopes; the argument is the size of the first body.",
        (
            _dependence(
                "no iteration needs, or changes, what the second part of an earlier one does",
                _turned_by_fission,
            ),
            STORAGE,
            MARKS,
        ),
        _find_fissions,
        _fission,
        lambda _, move: Move("fuse", move.at),
        exact=_exact(_turned_by_fission),
    ),
)
