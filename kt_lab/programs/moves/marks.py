"""Moves that say how the iterations of a scope run: vector, parallel, unrolled; and that undo it.

Marks change no tree and no storage. What they demand is stated once, in `base.carries`.
"""

from collections.abc import Iterator

from kt_lab.programs.ir import Node, Op, Program, Scope
from kt_lab.programs.moves.base import Kind, Move, Rule, carries, scopes
from kt_lab.programs.surgery import canonical, node_at, replaced, walk

UNROLLED = 64  # operations that an unrolled scope may hold, inner unrolled scopes included
FACTORS = (2, 4, 8)  # of partial unrolling
_REMARKED = {"p": "parallelise", "v": "vectorise"}


def _marked(program: Program, move: Move, mark: str) -> Program:
    scope = node_at(program, move.at)
    return canonical(replaced(program, move.at, Scope(scope.extent, mark, scope.body)))


def _plain_scopes(program: Program):
    """Yields the scopes that a mark would change something of."""
    return ((at, s) for at, s in scopes(program) if s.mark == "" and s.extent > 1)


def _find_vectors(program: Program) -> Iterator[Move]:
    for at, scope in _plain_scopes(program):
        if all(isinstance(node, Op) for node in scope.body):
            yield Move("vectorise", at)


def _find_parallels(program: Program) -> Iterator[Move]:
    for at, _ in _plain_scopes(program):
        above = {node_at(program, at[:n]).mark for n in range(1, len(at))}
        below = {node.mark for _, node in walk(program, at) if isinstance(node, Scope)}
        if above <= {""} and "p" not in below:
            yield Move("parallelise", at)


def _find_unrolls(program: Program) -> Iterator[Move]:
    for at, scope in _plain_scopes(program):
        inner = [node for _, node in walk(program, at) if isinstance(node, Scope)]
        # copies of a loop that stays a loop gain nothing
        if all(node.mark == "v" or node.mark.startswith("u") for node in inner):
            yield Move("unroll", at)
            for factor in FACTORS:
                if factor < scope.extent and scope.extent % factor == 0:
                    yield Move("unroll", at, (factor,))


def _unroll_mark(move: Move) -> str:
    return "u" + "".join(map(str, move.arguments))


def _copies(node: Node) -> int:
    """Returns how many operations a node becomes when what is marked u is unrolled."""
    if isinstance(node, Op):
        return 1
    times = {"u": node.extent}.get(node.mark, int(node.mark[1:] or 1))
    return times * sum(map(_copies, node.body))


def _is_short(program: Program, move: Move) -> bool:
    return _copies(node_at(_marked(program, move, _unroll_mark(move)), move.at)) <= UNROLLED


def _stores_neighbours(program: Program, move: Move) -> bool:
    depth = len(move.at) - 1
    targets = [op.target for op in node_at(program, move.at).body]
    steps = {program.buffer(t.buffer).offset(t.indices).coefficient(depth) for t in targets}
    return steps <= {0, 1}


def _sums_in_order(program: Program, move: Move) -> bool:
    """Whether marking a scope v, or unmarking it, leaves the order of every sum as it is."""
    depth = len(move.at) - 1
    return node_at(program, move.at).mark not in ("", "v") or all(
        node.kind != "+=" or any(i.coefficient(depth) for i in node.target.indices)
        for node in node_at(program, move.at).body
        if isinstance(node, Op)
    )


def _remarking(program: Program, move: Move) -> Move | None:
    """Returns the move that marks a scope again; None where its body has outgrown the limits."""
    mark, result = node_at(program, move.at).mark, _marked(program, move, "")
    back = Move("unroll", move.at, (int(mark[1:]),) if mark[1:] else ())
    if mark in _REMARKED:
        back = Move(_REMARKED[mark], move.at)
    kind = next(kind for kind in KINDS if kind.name == back.kind)
    fits = back in kind.find(result) and kind.attempt(result, back)[0] is not None
    return back if fits else None


def _unmark(_: Program, move: Move) -> Move:
    return Move("unmark", move.at)


KINDS = (
    Kind(
        "vectorise",
        "Runs the iterations of an innermost scope as the lanes of vectors (v).",
        (
            Rule(
                "dependence",
                "lanes depend on each other at most by reducing into one place",
                lambda program, move: not carries(program, move.at, "v"),
            ),
            Rule(
                "stride",
                "neighbouring lanes store to neighbouring elements, or all to one",
                _stores_neighbours,
                limit=True,
            ),
        ),
        _find_vectors,
        lambda program, move: _marked(program, move, "v"),
        _unmark,
        exact=_sums_in_order,
    ),
    Kind(
        "parallelise",
        "Runs the iterations of a scope on several threads (p).",
        (
            Rule(
                "dependence",
                "parallel iterations do not depend on each other",
                lambda program, move: not carries(program, move.at, "p"),
            ),
        ),
        _find_parallels,
        lambda program, move: _marked(program, move, "p"),
        _unmark,
    ),
    Kind(
        "unroll",
        "Repeats the body of a scope instead of looping: fully, or as often as the argument says.",
        (
            Rule(
                "size",
                f"an unrolled scope holds at most {UNROLLED} operations",
                _is_short,
                limit=True,
            ),
        ),
        _find_unrolls,
        lambda program, move: _marked(program, move, _unroll_mark(move)),
        _unmark,
    ),
    Kind(
        "unmark",
        "Runs the iterations of a scope one after the other again.",
        (),
        lambda program: (Move("unmark", at) for at, scope in scopes(program) if scope.mark),
        lambda program, move: _marked(program, move, ""),
        _remarking,
        exact=_sums_in_order,
    ),
)
