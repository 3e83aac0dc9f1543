"""Schedules: lists of moves that replay, one record after the other (`fuse 0; split 0.1 8`)."""

from collections.abc import Iterable, Iterator

from kt_lab.errors import ProgramError
from kt_lab.programs.ir import Program
from kt_lab.programs.moves import KINDS, Move

SEPARATOR = "; "


def schedule_text(moves: Iterable[Move]) -> str:
    """Returns the text of a schedule; empty for no moves."""
    return SEPARATOR.join(map(str, moves))


def parse_schedule(text: str) -> tuple[Move, ...]:
    """Reads a schedule from its text, or raises ProgramError."""
    return tuple(Move.parse(record) for record in text.split(";") if record.strip())


def possible_moves(program: Program, kind: str) -> tuple[Move, ...]:
    """Returns the moves of one kind that fit a program's shape, legal or not."""
    return tuple(KINDS[kind].find(program))


def legal_moves(
    program: Program, *, without: Iterable[str] = frozenset(), exact_only: bool = False
) -> Iterator[Move]:
    """Yields every legal move of a program, by kind and then from its start to its end.

    Args:
        program: A legal program in canonical form, such as a move returns.
        without: Full names of rules that are not asked (`fuse.dependence`), for tests.
        exact_only: Whether to leave out moves that re-associate floating-point sums.
    """
    for kind in KINDS.values():
        for move in kind.find(program):
            if exact_only and not kind.is_exact(program, move):
                continue
            if kind.attempt(program, move, without=without)[0] is not None:
                yield move


def apply_move(program: Program, move: Move) -> Program:
    """Returns the program after a move.

    Raises:
        ProgramError: The kind is unknown, the move does not fit the program's shape, or a rule
            does not hold; the message names it.
    """
    if move.kind not in KINDS:
        raise ProgramError(f"a move is one of {', '.join(KINDS)}; got {move}")
    kind = KINDS[move.kind]
    if move not in kind.find(program):
        raise ProgramError(f"a move fits the program: {kind.doc} Nothing fits {move}")
    result, broken = kind.attempt(program, move)
    if broken:
        raise ProgramError(f"{broken.law}; got {move} (rule {kind.name}.{broken.name})")
    return result


def inverse(program: Program, move: Move) -> Move | None:
    """Returns the move that takes the result of a legal move back to the same text.

    Returns:
        None where a kind has no such move: see its module.
    """
    return KINDS[move.kind].inverse(program, move)


def replay(program: Program, schedule: str | Iterable[Move]) -> Program:
    """Returns the program after every move of a schedule, in order.

    Raises:
        ProgramError: A move is not legal where its turn comes.
    """
    for move in _moves(schedule):
        program = apply_move(program, move)
    return program


def _moves(schedule: str | Iterable[Move]) -> Iterable[Move]:
    return parse_schedule(schedule) if isinstance(schedule, str) else schedule
