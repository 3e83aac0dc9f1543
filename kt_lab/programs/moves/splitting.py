"""Moves that cut a scope in two nested ones, and join two into one."""

from collections.abc import Iterator
from dataclasses import replace

from kt_lab.programs.ir import Program, Scope
from kt_lab.programs.moves.base import PROVEN_MARKS, Kind, Move, inner_extents, scopes
from kt_lab.programs.surgery import canonical, merged_level, node_at, replaced, split_level

# A parallel scope stays parallel outside; other marks belong to the scope as it is.
_MARKS = ("", "p")


def _find_splits(program: Program) -> Iterator[Move]:
    for at, scope in scopes(program):
        if scope.mark in _MARKS:
            for inner in inner_extents(scope.extent):
                yield Move("split", at, (inner,))


def _split(program: Program, move: Move) -> Program:
    scope, inner = node_at(program, move.at), move.arguments[0]
    body = tuple(split_level(node, len(move.at) - 1, inner) for node in scope.body)
    outer = replace(scope, extent=scope.extent // inner, body=(Scope(inner, "", body),))
    return canonical(replaced(program, move.at, outer))


def _find_merges(program: Program) -> Iterator[Move]:
    for at, scope in scopes(program):
        child = scope.body[0]
        nested = len(scope.body) == 1 and isinstance(child, Scope) and child.mark == ""
        if nested and scope.mark in _MARKS and min(scope.extent, child.extent) > 1:
            depth = len(at) - 1
            if all(merged_level(node, depth, child.extent) for node in child.body):
                yield Move("merge", at)


def _merge(program: Program, move: Move) -> Program:
    scope = node_at(program, move.at)
    child, depth = scope.body[0], len(move.at) - 1
    body = tuple(merged_level(node, depth, child.extent) for node in child.body)
    joined = replace(scope, extent=scope.extent * child.extent, body=body)
    return canonical(replaced(program, move.at, joined))


KINDS = (
    Kind(
        "split",
        "Cuts a scope in two nested ones; the argument is the extent of the inner one.",
        (PROVEN_MARKS,),
        _find_splits,
        _split,
        lambda _, move: Move("merge", move.at),
    ),
    Kind(
        "merge",
        "Joins a scope with its only child where their iterators count on together.",
        (),
        _find_merges,
        _merge,
        lambda program, move: Move("split", move.at, (node_at(program, move.at).body[0].extent,)),
    ),
)
