"""Random walks over legal moves, and what their programs compute: the ground of every claim.

Walks start from the operators at tiny extents and from the traps. What they lead to is executed by
the interpreter, or by whatever else runs programs, and held against what the start computes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kt_lab.errors import ProgramError
from kt_lab.programs.access import unsound
from kt_lab.programs.interpret import interpret
from kt_lab.programs.ir import Program
from kt_lab.programs.moves import KINDS, Kind, Move
from kt_lab.programs.moves.base import carries, scopes
from kt_lab.programs.operators import Operator, error, operators
from kt_lab.programs.surgery import canonical, plain
from kt_lab.programs.text import parse
from kt_lab.programs.traps import TRAPS

Arrays = Mapping[str, np.ndarray]
# Runs (program, inputs, seed) and returns the outputs.
Execute = Callable[[Program, Arrays, int], Arrays]

LENGTH = 30  # moves of a walk at most
SEEDS = (0, 1)  # of the interpreter: lock step, and backwards
_TRIES = 20  # how often a walk looks for one more legal move


@dataclass(frozen=True, slots=True)
class Start:
    """Where walks start from.

    Attributes:
        name: Of the operator or the trap.
        program: The program.
        inputs: Random arrays by name.
        expected: The outputs of its plain form.
    """

    name: str
    program: Program
    inputs: Arrays
    expected: Arrays


@dataclass(frozen=True, slots=True)
class Step:
    """One move of a walk.

    Attributes:
        move: The move.
        program: What it led to; None: to no program, for want of a rule.
        legal: Whether it is legal by all rules, also those switched off.
    """

    move: Move
    program: Program | None
    legal: bool


def start_of(operator: Operator) -> Start:
    """Returns an operator's start program at its tiny extents."""
    inputs = operator.inputs(operator.tiny, seed=1)
    return _start(operator.name, operator.program(operator.tiny), inputs)


def starts() -> tuple[Start, ...]:
    """Returns the start programs of all operators."""
    return tuple(map(start_of, operators()))


def traps() -> tuple[Start, ...]:
    """Returns the small programs in which a wrong move shows."""
    rng = np.random.default_rng(1)
    found = []
    for name, text in TRAPS.items():
        program = canonical(parse(text))
        inputs = {b.name: rng.standard_normal(b.shape) for b in program.of_kind("in")}
        found.append(_start(name, program, inputs))
    return tuple(found)


def _start(name: str, program: Program, inputs: Arrays) -> Start:
    return Start(name, program, inputs, interpret(plain(program), inputs))


def run_interpreter(program: Program, inputs: Arrays, seed: int) -> Arrays:
    """Executes a program by the reference interpreter, in float64."""
    return interpret(program, inputs, seed=seed)


def deviation(
    start: Start, program: Program, *, execute: Execute = run_interpreter, seeds=SEEDS
) -> float:
    """Returns the worst deviation of a program's outputs from what its start computes.

    Args:
        start: Where it came from.
        program: The program.
        execute: Runs it; the interpreter, or compiled code.
        seeds: Passed to `execute`, one after the other.

    Returns:
        Relative to the largest value of an output; inf where something is not a number.
    """
    return max(error(execute(program, start.inputs, seed), start.expected) for seed in seeds)


def is_proven(program: Program) -> bool:
    """Tells whether a program's storage and its marks are proven to be sound.

    Every move takes proven programs to proven programs; a rule of a kind that asks for less would
    leave programs from which most moves are refused.
    """
    marked = ((at, s.mark) for at, s in scopes(program) if s.mark)
    return not unsound(program) and not any(carries(program, *mark) for mark in marked)


def walk(
    program: Program,
    *,
    seed: int,
    length: int = LENGTH,
    prefer: str | None = None,
    without: Iterable[str] = (),
    exact_only: bool = False,
) -> Iterator[Step]:
    """Yields the steps of a random walk: a kind at random, and then one of its moves.

    Args:
        program: Where it starts.
        seed: Of the walk.
        length: Most steps.
        prefer: A kind that is tried first at every other step.
        without: Full names of rules that are not asked.
        exact_only: Whether to leave out moves that re-associate floating-point sums.
    """
    rng = np.random.default_rng(seed)
    for _ in range(length):
        for _ in range(_TRIES):
            preferred = prefer is not None and rng.random() < 0.5
            kind = KINDS[prefer] if preferred else list(KINDS.values())[rng.integers(len(KINDS))]
            step = _step(program, kind, rng, without, exact_only)
            if step:
                break
        else:
            return
        program = step.program
        yield step


def _step(
    program: Program, kind: Kind, rng: np.random.Generator, without, exact_only
) -> Step | None:
    found = list(kind.find(program))
    if not found:
        return None
    move = found[rng.integers(len(found))]
    if exact_only and not kind.is_exact(program, move):
        return None
    try:
        result, _ = kind.attempt(program, move, without=without)
    except ProgramError:
        if not any(name.startswith(f"{kind.name}.") for name in without):
            raise
        return Step(move, None, False)
    if result is None:
        return None
    legal = not without or kind.attempt(program, move)[0] is not None
    return Step(move, result, legal)
