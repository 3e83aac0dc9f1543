"""A schedule in the making: play moves, and take back what led nowhere."""

from collections.abc import Callable

from kt_lab.errors import ProgramError
from kt_lab.programs.ir import Address, Op, Program, Scope
from kt_lab.programs.moves import Move
from kt_lab.programs.schedule import apply_move, schedule_text
from kt_lab.programs.surgery import children


class Draft:
    """A program and the legal moves that led to it.

    Attributes:
        program: As it is now.
        moves: Since the start, in order.
    """

    def __init__(self, program: Program):
        """Takes a start program."""
        self.program, self.moves = program, []

    @property
    def schedule(self) -> str:
        """The moves as text."""
        return schedule_text(self.moves)

    def play(self, kind: str, at: Address, *arguments: int | str) -> bool:
        """Plays one move if it is legal; tells whether it was."""
        try:
            move = Move(kind, at, arguments)
            self.program = apply_move(self.program, move)
        except ProgramError:
            return False
        self.moves.append(move)
        return True

    def attempt(self, steps: Callable[[], bool]) -> bool:
        """Plays some moves; takes all of them back unless the function returns true."""
        program, count = self.program, len(self.moves)
        if steps():
            return True
        self.program = program
        del self.moves[count:]
        return False

    def would(self, steps: Callable[[], bool]) -> bool:
        """Tells whether some moves would return true; changes nothing."""
        met = []
        self.attempt(lambda: met.append(steps()))
        return met[0]

    def body(self, at: Address) -> tuple[Scope | Op, ...]:
        """Returns the nodes of a scope, or of the program for ()."""
        return children(self.program, at)

    def permute(self, at: Address, labels: list[str], wanted: list[str]) -> bool:
        """Brings scopes that hold nothing but each other into another order.

        Args:
            at: Address of the outermost.
            labels: Their names, outermost first; names that are not wanted go out of `wanted`.
            wanted: The same names in the order asked for.
        """
        order = list(labels)
        for position, label in enumerate(wanted):
            for k in range(order.index(label) - 1, position - 1, -1):
                if not self.play("interchange", (*at, *(0,) * k)):
                    return False
                order[k], order[k + 1] = order[k + 1], order[k]
        return True
