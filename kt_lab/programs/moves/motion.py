"""Moves that take work out of a scope and put it back: hoist and sink."""

from collections.abc import Callable, Iterator

from kt_lab.programs.access import Access, accesses, is_covered, written_names
from kt_lab.programs.dependence import distance, may_coincide
from kt_lab.programs.ir import Address, Program, Scope
from kt_lab.programs.moves.base import FORM, MARKS, PROVEN_MARKS, STORAGE, Kind, Move, Rule, scopes
from kt_lab.programs.surgery import canonical, children, node_at, plain, replaced, shifted, walk

# Where a node sinks to: the start of the next scope, or the end of the previous one.
NEXT, PREVIOUS = "next", "previous"


def _find_hoists(program: Program) -> Iterator[Move]:
    for at, scope in scopes(program):
        for position in {0, len(scope.body) - 1} if len(scope.body) > 1 else ():
            here, depth = (*at, position), len(at) - 1
            touched = accesses(program, here)
            if not any(i.coefficient(depth) for a in touched for i in a.ref.indices):
                yield Move("hoist", here)


def _hoist(program: Program, move: Move) -> Program:
    node, above = node_at(program, move.at), move.at[:-1]
    less = replaced(program, move.at)
    lifted = shifted(node, len(above), -1)
    where = above if move.at[-1] == 0 else (*above[:-1], above[-1] + 1)
    return canonical(replaced(less, where, lifted, count=0))


def _sink_of(_: Program, move: Move) -> Move:
    above, position = move.at[:-1], move.at[-1]
    if position == 0:
        return Move("sink", above, (NEXT,))
    return Move("sink", (*above[:-1], above[-1] + 1), (PREVIOUS,))


def _find_sinks(program: Program) -> Iterator[Move]:
    for at, _ in walk(program):
        siblings = children(program, at[:-1])
        for side, position in ((NEXT, at[-1] + 1), (PREVIOUS, at[-1] - 1)):
            inside = 0 <= position < len(siblings)
            if inside and isinstance(siblings[position], Scope):
                yield Move("sink", at, (side,))


def _receiver(move: Move) -> Address:
    """Returns the address of the scope that a node sinks into, before it does."""
    step = 1 if move.arguments[0] == NEXT else -1
    return (*move.at[:-1], move.at[-1] + step)


def _sink(program: Program, move: Move) -> Program:
    node, scope = node_at(program, move.at), node_at(program, _receiver(move))
    lowered = shifted(node, len(move.at) - 1)
    if move.arguments[0] == NEXT:
        body, first = (lowered, *scope.body), move.at
    else:
        body, first = (*scope.body, lowered), _receiver(move)
    joined = Scope(scope.extent, scope.mark, body)
    return canonical(replaced(program, first, joined, count=2))


def _hoist_of(program: Program, move: Move) -> Move:
    if move.arguments[0] == NEXT:
        return Move("hoist", (*move.at, 0))
    receiver = _receiver(move)
    return Move("hoist", (*receiver, len(node_at(program, receiver).body)))


def _is_repeatable(program: Program, move: Move) -> bool:
    names = written_names(program, move.at)
    return all(is_covered(program, name, move.at) for name in names)


def _is_kept_by_hoist(program: Program, move: Move) -> bool:
    above, position = move.at[:-1], move.at[-1]
    rest = [a for a in accesses(program, above) if a.address[len(above)] != position]
    return _is_kept(program, move, rest, len(above) - 1, position == 0)


def _is_kept_by_sink(program: Program, move: Move) -> bool:
    rest = accesses(program, _receiver(move))
    return _is_kept(program, move, rest, len(move.at) - 1, move.arguments[0] == NEXT)


def _is_kept(program: Program, move: Move, rest, common: int, first: bool) -> bool:
    """Whether a node can run once or in every iteration of a scope with some other work.

    Args:
        program: The program.
        move: Whose address is the node's.
        rest: Accesses of the other work.
        common: How many scopes stand above the one in question.
        first: Whether the node comes before the other work, else after.
    """
    meaning = plain(program)

    def meet(a: Access, b: Access) -> bool:
        found = distance(a, b, common, meaning.buffer(a.ref.buffer))
        return found is not None and may_coincide(found)

    return not any(
        a.ref.buffer == b.ref.buffer and (b.is_write if first else a.is_write) and meet(a, b)
        for a in accesses(program, move.at)
        for b in rest
    )


def _rules(kept: Callable[[Program, Move], bool]) -> tuple[Rule, ...]:
    return (
        Rule(
            "repeatable",
            "the node writes by = what it then reads of its targets, so that it can run again",
            _is_repeatable,
        ),
        Rule(
            "kept",
            "the rest of the scope leaves alone what a node before it reads or writes, "
            "and does not touch what a node after it writes",
            kept,
        ),
    )


KINDS = (
    Kind(
        "hoist",
        "Takes the first node of a scope out before it, or the last one out behind it.",
        (*_rules(_is_kept_by_hoist), MARKS),
        _find_hoists,
        _hoist,
        _sink_of,
    ),
    Kind(
        "sink",
        "Puts a node to the start of the next scope, or to the end of the previous one.",
        (*_rules(_is_kept_by_sink), STORAGE, PROVEN_MARKS, FORM),
        _find_sinks,
        _sink,
        _hoist_of,
    ),
)
