"""Moves that write the iterations of a short scope out side by side, and roll them up again.

Written out, what the iterations do can be moved apart: the nine taps of a filter become nine
operations of one vector scope, and their sum a scalar. Undoing `expand` gives None where the
neighbours happen to go on as the iterations do, for `roll` takes all that belong together.
"""

from collections.abc import Iterator

from kt_lab.programs.affine import Affine
from kt_lab.programs.ir import Address, Node, Program, Ref, Scope
from kt_lab.programs.moves.base import PROVEN, Kind, Move, Rule, scopes
from kt_lab.programs.surgery import (
    canonical,
    children,
    node_at,
    ops,
    replaced,
    shifted,
    substituted,
    with_refs,
)

EXPANDED = 24  # operations that a scope may be written out to


def _find_expands(program: Program) -> Iterator[Move]:
    return (Move("expand", at) for at, s in scopes(program) if s.mark == "" and s.extent > 1)


def _written_out(scope: Scope, depth: int) -> tuple[Node, ...]:
    """Returns the bodies of all iterations, without the iterator of the scope."""
    return tuple(
        shifted(substituted(node, depth, Affine(iteration)), depth + 1, -1)
        for iteration in range(scope.extent)
        for node in scope.body
    )


def _expand(program: Program, move: Move) -> Program:
    nodes = _written_out(node_at(program, move.at), len(move.at) - 1)
    return canonical(replaced(program, move.at, *nodes))


def _is_short(program: Program, move: Move) -> bool:
    within = sum(1 for _ in ops(program, move.at))
    return node_at(program, move.at).extent * within <= EXPANDED


def _shape(node: Node) -> Node:
    """Returns a node with the constants of its indices taken away."""
    return with_refs(
        node, lambda ref: Ref(ref.buffer, tuple(Affine(0, i.coefficients) for i in ref.indices))
    )


def _constants(node: Node) -> list[int]:
    """Returns the constants of a node's indices, in the order in which `with_refs` meets them."""
    found: list[int] = []
    with_refs(node, lambda ref: found.extend(i.constant for i in ref.indices) or ref)
    return found


def _steps(nodes: tuple[Node, ...], group: int) -> list[tuple[int, ...] | None]:
    """Returns how far every node is from its like in the next group, None where it has none."""
    shapes, constants = [_shape(n) for n in nodes], [_constants(n) for n in nodes]
    return [
        tuple(b - a for a, b in zip(constants[k], constants[k + group], strict=True))
        if shapes[k] == shapes[k + group]
        else None
        for k in range(len(nodes) - group)
    ]


def _runs(nodes: tuple[Node, ...], group: int) -> Iterator[tuple[int, int]]:
    """Yields the first node and the number of groups, wherever groups go on in equal steps."""
    steps = _steps(nodes, group)
    pairs = [tuple(steps[k : k + group]) for k in range(len(steps) - group + 1)]
    for start, pair in enumerate(pairs):
        if None in pair or (start >= group and pairs[start - group] == pair):
            continue
        count = 2
        while (
            start + (count - 1) * group < len(pairs) and pairs[start + (count - 1) * group] == pair
        ):
            count += 1
        yield start, count


def _find_rolls(program: Program) -> Iterator[Move]:
    bodies: list[tuple[Address, str]] = [((), ""), *((at, s.mark) for at, s in scopes(program))]
    for above, mark in bodies:
        nodes = children(program, above) if mark != "v" else ()
        for group in range(1, len(nodes) // 2 + 1):
            for start, count in _runs(nodes, group):
                yield Move("roll", (*above, start), (group, count))


def _roll(program: Program, move: Move) -> Program:
    depth, start = len(move.at) - 1, move.at[-1]
    group, count = move.arguments
    nodes = children(program, move.at[:-1])[start : start + 2 * group]
    steps = iter([step for found in _steps(nodes, group) for step in found])

    def moving(ref: Ref) -> Ref:
        return Ref(
            ref.buffer, tuple(i.plus(Affine.iterator(depth, next(steps))) for i in ref.indices)
        )

    body = tuple(with_refs(shifted(node, depth), moving) for node in nodes[:group])
    return canonical(replaced(program, move.at, Scope(count, "", body), count=group * count))


def _rolling(program: Program, move: Move) -> Move | None:
    scope = node_at(program, move.at)
    back = Move("roll", move.at, (len(scope.body), scope.extent))
    return back if back in _find_rolls(_expand(program, move)) else None


KINDS = (
    Kind(
        "expand",
        "Writes the iterations of a scope out, one after the other.",
        (
            Rule(
                "size",
                f"a scope is written out to at most {EXPANDED} operations",
                _is_short,
                limit=True,
            ),
            *PROVEN,
        ),
        _find_expands,
        _expand,
        _rolling,
    ),
    Kind(
        "roll",
        "Makes a scope of neighbours that do its iterations (nodes of one, how many).",
        (
            Rule(
                "size",
                f"a scope is rolled up from at most {EXPANDED} operations",
                lambda program, move: (
                    sum(
                        1
                        for k in range(move.arguments[0] * move.arguments[1])
                        for _ in ops(program, (*move.at[:-1], move.at[-1] + k))
                    )
                    <= EXPANDED
                ),
                limit=True,
            ),
            *PROVEN,
        ),
        _find_rolls,
        _roll,
        lambda _, move: Move("expand", move.at),
    ),
)
