"""One program under the hands of a person: moves, undo, and what each state takes; no widgets."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kt_lab.errors import UsageError
from kt_lab.programs.emit_c import emit_c
from kt_lab.programs.expert import VECTORS, expert_schedule
from kt_lab.programs.ir import Program
from kt_lab.programs.moves import Move
from kt_lab.programs.operators import get_operator, get_workload
from kt_lab.programs.schedule import apply_move, legal_moves, parse_schedule, schedule_text
from kt_lab.programs.text import to_text
from kt_lab.runners.c import CRunner, Protocol, find_toolchain
from kt_lab.trial import OK, Config, Measurement, Proposal
from kt_lab.workload import Workload

START = "start"
_LIMIT_S = 0.2  # of a reading: a person waits for it

# Measures the program that a schedule leads to.
Measure = Callable[[str], Measurement]


@dataclass(frozen=True, slots=True)
class State:
    """A program that was met.

    Attributes:
        move: The move that led to it, as a record; `start` for the first one.
        program: The program.
        latency_us: Microseconds; None while not measured, or failed.
        error: Why it has no latency; empty where it has one or was not measured.
    """

    move: str
    program: Program
    latency_us: float | None = None
    error: str = ""


class ProgramSession:
    """A schedule that grows and shrinks move by move; every program on the way can be measured.

    Attributes:
        workload: What is computed, at which extents.
        threads: Of every program.
        states: From the start program to the present one, one for each move.
    """

    def __init__(
        self,
        workload: str | Workload,
        *,
        threads: int = 1,
        measure: Measure | None = None,
    ):
        """Begins with the start program; nothing is compiled yet.

        Args:
            workload: A workload of an operator, or its key ("softmax/512x1024").
            threads: Of every program, >= 1.
            measure: From a schedule to its reading; None: compiled by a C runner of its own.

        Raises:
            UnknownName: There is no such workload.
        """
        if threads < 1:
            raise UsageError(f"threads must be >= 1, got {threads}")
        self.workload = get_workload(workload) if isinstance(workload, str) else workload
        self.threads, self._measure, self._runner = threads, measure, None
        program = get_operator(self.workload.kernel).program(self.workload.extents)
        self.states = [State(START, program)]
        self._read: dict[str, Measurement] = {}  # by text
        self._legal: dict[str, tuple[Move, ...]] = {}  # by text

    @property
    def program(self) -> Program:
        """The present program."""
        return self.states[-1].program

    @property
    def text(self) -> str:
        """Its canonical text."""
        return to_text(self.program)

    @property
    def c(self) -> str:
        """Its C."""
        return emit_c(self.program)

    @property
    def schedule(self) -> str:
        """The moves that led to it."""
        return schedule_text(Move.parse(state.move) for state in self.states[1:])

    @property
    def moves(self) -> tuple[Move, ...]:
        """Its legal moves, by kind and then from its start to its end."""
        if self.text not in self._legal:
            self._legal[self.text] = tuple(legal_moves(self.program))
        return self._legal[self.text]

    def apply(self, move: str | Move) -> State:
        """Plays a move; returns the new state, not measured.

        Raises:
            ProgramError: It is not legal here; the message names the law.
        """
        record = str(move)
        program = apply_move(self.program, Move.parse(record))
        self.states.append(self._told(record, program))
        return self.states[-1]

    def undo(self) -> None:
        """Takes the last move back.

        Raises:
            UsageError: There is none.
        """
        if len(self.states) == 1:
            raise UsageError("to undo there must be a move, got the start program")
        self.states.pop()

    def load(self, schedule: str) -> None:
        """Goes to the start and plays a whole schedule from there; nothing changes if it cannot.

        Raises:
            ProgramError: A move is not legal where its turn comes.
        """
        before, self.states = self.states, self.states[:1]
        try:
            for move in parse_schedule(schedule):
                self.apply(move)
        except Exception:
            self.states = before
            raise

    def expert(self) -> None:
        """Goes to what the expert pass makes of the start program."""
        vectors = VECTORS
        if self._measure is None:
            with suppress(UsageError):  # where nothing compiles none is measured
                vectors = find_toolchain().vectors()
        start = self.states[0].program
        self.load(expert_schedule(start, threads=self.threads, vectors=vectors))

    def measure(self) -> State:
        """Compiles, checks and times the present program, once; returns its state."""
        text = self.text
        if text not in self._read:
            self._read[text] = (self._measure or self._by_runner)(self.schedule)
        self.states[-1] = self._told(self.states[-1].move, self.program)
        return self.states[-1]

    def close(self) -> None:
        """Ends the processes that measure; the next measurement starts others."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _told(self, record: str, program: Program) -> State:
        found = self._read.get(to_text(program))
        if found is None:
            return State(record, program)
        if found.status != OK:
            return State(record, program, error=f"{found.status}: {found.error}")
        return State(record, program, found.latency_us)

    def _by_runner(self, schedule: str) -> Measurement:
        if self._runner is None:
            protocol = Protocol(limit_s=_LIMIT_S)
            self._runner = CRunner(self.workload, threads=self.threads, protocol=protocol)
        try:
            self._runner.submit([Proposal(0, Config(schedule=schedule))])
            return self._runner.next()[1]
        except BaseException:  # what is under way must not answer for the next program
            self.close()
            raise
