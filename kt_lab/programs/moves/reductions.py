"""Moves that let a reduction work on partial results of its own, and that join them again.

    8                               4
    | 4                             | t0[{0}] = 0
    | | s[0] += x[4*{0}+{1}]        8
                                    | 4
                                    | | t0[{1}] += x[4*{0}+{1}]
                                    4
                                    | s[0] += t0[{0}]

On the left each addition waits for the one before; on the right four of them do not wait for each
other, and can be the lanes of a vector. The same move gives a tile of a result its own
accumulators inside an outer loop over the reduced dimension.
"""

from collections.abc import Iterator

from kt_lab.programs.access import accesses, home
from kt_lab.programs.affine import Affine
from kt_lab.programs.ir import (
    IDENTITIES,
    Address,
    Buffer,
    Const,
    Dim,
    Node,
    Op,
    Program,
    Ref,
    Scope,
)
from kt_lab.programs.moves.base import MARKS, Kind, Move, Rule, scopes
from kt_lab.programs.surgery import (
    canonical,
    children,
    extents_above,
    fresh_name,
    is_made,
    node_at,
    ops,
    replaced,
    shifted,
    with_buffers,
)

PARTIAL_BYTES = 1 << 14  # partial results beyond a third of a first-level cache gain nothing


def _reducing_scope(move: Move) -> Address:
    """Returns the address of the scope whose iterations share the partial results."""
    return move.at[: -1 - move.arguments[0]]


def _find_splits(program: Program) -> Iterator[Move]:
    for at, op in ops(program):
        if op.kind == "=":
            continue
        for kept in range(1, len(at) - 1):
            move = Move("split_reduction", at, (kept,))
            depth = len(at) - 2 - kept
            reduced = not any(index.coefficient(depth) for index in op.target.indices)
            if reduced and not _is_partial(program, op.target.buffer, _reducing_scope(move)):
                yield move


def _is_partial(program: Program, name: str, address: Address) -> bool:
    """Whether a buffer already holds the partial results of just this scope."""
    return is_made(name) and home(program, name) == address[:-1]


def _partial(program: Program, move: Move) -> Buffer:
    target = node_at(program, move.at).target.buffer
    extents = extents_above(program, move.at)[-move.arguments[0] :]
    dims = tuple(map(Dim, extents))
    return Buffer(fresh_name(program), "tmp", program.buffer(target).dtype, dims, "stack")


def _split(program: Program, move: Move) -> Program:
    outer, op, partial = _reducing_scope(move), node_at(program, move.at), _partial(program, move)
    depth = len(outer) - 1

    def element(first: int) -> Ref:
        indices = (Affine.iterator(first + k) for k in range(len(partial.dims)))
        return Ref(partial.name, tuple(indices))

    start = Op(element(depth), "=", Const(IDENTITIES[op.kind]))
    finish = Op(shifted(op, depth + 1, -1).target, op.kind, element(depth))
    changed = with_buffers(program, {partial.name: partial})
    changed = replaced(changed, move.at, Op(element(depth + 1), op.kind, op.expr))
    nests = (_nest(partial, start), node_at(changed, outer), _nest(partial, finish))
    return canonical(replaced(changed, outer, *nests))


def _nest(partial: Buffer, node: Node) -> Node:
    for extent in reversed(partial.shape):
        node = Scope(extent, "", (node,))
    return node


def _is_alone(program: Program, move: Move) -> bool:
    name, outer = node_at(program, move.at).target.buffer, _reducing_scope(move)
    return sum(a.ref.buffer == name for a in accesses(program, outer)) == 1


def _partial_fits(program: Program, move: Move) -> bool:
    return _partial(program, move).bytes <= PARTIAL_BYTES


def _splits_sums(program: Program, move: Move) -> bool:
    return node_at(program, move.at).kind != "+="


def _only_op(node: Node) -> tuple[tuple[int, ...], Op | None]:
    """Returns the extents of a nest of one operation, and the operation, if it is one."""
    extents = ()
    while isinstance(node, Scope) and len(node.body) == 1:
        extents, node = (*extents, node.extent), node.body[0]
    return extents, node if isinstance(node, Op) else None


def _step(program: Program, at: Address) -> Address | None:
    """Returns the operation that fills partial results which the node at an address starts."""
    nodes = children(program, at[:-1])[at[-1] : at[-1] + 3]
    if len(nodes) < 3:
        return None
    (kept, start), (final, finish) = _only_op(nodes[0]), _only_op(nodes[2])
    if start is None or finish is None or not isinstance(start.expr, Const):
        return None
    partial = start.target.buffer
    found = [
        where for where, op in ops(program, (*at[:-1], at[-1] + 1)) if op.target.buffer == partial
    ]
    fits = (
        isinstance(finish.expr, Ref)
        and finish.expr.buffer == partial
        and len(found) == 1
        and len(found[0]) == len(at) + 1 + len(kept)
        and kept == final == extents_above(program, found[0])[len(at) :]
    )
    return found[0] if fits else None


def _find_joins(program: Program) -> Iterator[Move]:
    for at, _ in scopes(program):
        if _step(program, at):
            yield Move("join_reduction", at)


def _join(program: Program, move: Move) -> Program:
    where = _step(program, move.at)
    second, third = ((*move.at[:-1], move.at[-1] + k) for k in (1, 2))
    finish = shifted(_only_op(node_at(program, third))[1], len(move.at) - 1)
    whole = Op(finish.target, finish.kind, node_at(program, where).expr)
    joined = replaced(program, where, whole)
    return canonical(replaced(joined, move.at, node_at(joined, second), count=3))


def _resplitting(program: Program, move: Move) -> Move:
    where, size = _step(program, move.at), len(move.at)
    return Move("split_reduction", (*move.at, *where[size:]), (len(where) - size - 1,))


def _is_as_split(program: Program, move: Move) -> bool:
    joined, again = _join(program, move), _resplitting(program, move)
    return again in _find_splits(joined) and SPLIT.attempt(joined, again)[0] == program


SPLIT = Kind(
    "split_reduction",
    "Reduces into partial results, one for each iteration of the inner scopes (how many).",
    (
        Rule("alone", "nothing else in the scope touches what is reduced into", _is_alone),
        Rule(
            "size",
            f"partial results take at most {PARTIAL_BYTES} bytes",
            _partial_fits,
            limit=True,
        ),
    ),
    _find_splits,
    _split,
    lambda _, move: Move("join_reduction", _reducing_scope(move)),
    exact=_splits_sums,
)
JOIN = Kind(
    "join_reduction",
    "Drops the partial results that the node starts and the next but one adds up.",
    (Rule("partial", "they are as split_reduction makes them", _is_as_split), MARKS),
    _find_joins,
    _join,
    _resplitting,
    exact=lambda program, move: node_at(program, _step(program, move.at)).kind != "+=",
)
KINDS = (SPLIT, JOIN)
