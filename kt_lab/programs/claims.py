"""What is claimed of moves, put to the test: they keep what programs compute, and can be undone.

A mutant tests the test: with one rule switched off, walks must run into a program that computes
something else, or show that a proof is lost.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kt_lab.errors import ProgramError
from kt_lab.programs.ir import Program
from kt_lab.programs.moves import KINDS, Move
from kt_lab.programs.moves.base import PROVEN
from kt_lab.programs.schedule import schedule_text
from kt_lab.programs.surgery import canonical
from kt_lab.programs.text import parse, to_text
from kt_lab.programs.walks import (
    LENGTH,
    Execute,
    Start,
    Step,
    deviation,
    is_proven,
    run_interpreter,
    walk,
)

TOLERANCE = 1e-9  # of float64 sums in another order
UNPROVEN = "the storage or a mark is not proven sound"


def failures(
    start: Start,
    *,
    seed: int,
    length: int = LENGTH,
    execute: Execute = run_interpreter,
    tolerance: float = TOLERANCE,
    kinds: Counter | None = None,
) -> Iterator[dict]:
    """Takes one legal walk and yields what is wrong with it, at best nothing.

    The end and one program midway are executed; every step is undone, its record read back, its
    program proven sound.

    Args:
        start: Where it starts.
        seed: Of the walk.
        length: Most moves.
        execute: Runs programs.
        tolerance: What results may deviate by, relative to the largest.
        kinds: Where given, the moves taken are counted in it, by kind.

    Yields:
        Of every failure: start, seed, schedule, what (in words).
    """
    midway = np.random.default_rng((seed, 1)).integers(1, max(2, length))
    before, taken, step = start.program, [], None
    for step in walk(start.program, seed=seed, length=length):
        taken.append(step.move)
        if kinds is not None:
            kinds[step.move.kind] += 1
        what = _wrong_step(before, step)
        if not what and len(taken) == midway:
            what = _wrong_result(start, step.program, execute, tolerance)
        if what:
            yield _failure(start, seed, taken, what)
        before = step.program
    what = step and _wrong_result(start, step.program, execute, tolerance)
    if what:
        yield _failure(start, seed, taken, what)


def _failure(start: Start, seed: int, taken: list[Move], what: str) -> dict:
    return {"start": start.name, "seed": seed, "schedule": schedule_text(taken), "what": what}


def _wrong_result(
    start: Start, program: Program, execute: Execute, tolerance: float = TOLERANCE
) -> str:
    worst = deviation(start, program, execute=execute)
    return "" if worst <= tolerance else f"results deviate by {worst:.2g}"


def _wrong_step(before: Program, step: Step) -> str:
    kind = KINDS[step.move.kind]
    if Move.parse(str(step.move)) != step.move:
        return "the record reads back as another move"
    if to_text(parse(to_text(step.program))) != to_text(step.program):
        return "the text reads back as another program"
    if canonical(step.program) != step.program:
        return "the result is not in canonical form"
    if not is_proven(step.program):
        return UNPROVEN
    back = kind.inverse(before, step.move)
    if back is None:
        return ""
    if back not in KINDS[back.kind].find(step.program):
        return f"the inverse {back} does not fit"
    undone, broken = KINDS[back.kind].attempt(step.program, back)
    if broken:
        return f"the inverse {back} is illegal: {broken.name}"
    return "" if to_text(undone) == to_text(before) else f"the inverse {back} gives another text"


@dataclass(frozen=True, slots=True)
class Caught:
    """How a mutant was found out.

    Attributes:
        rule: Full name of the rule that was switched off.
        walks: How many walks it took, the last included.
        start: Name of the program that the last walk started from.
        schedule: The moves that led to a wrong program.
        what: What is wrong, in words.
    """

    rule: str
    walks: int
    start: str
    schedule: str
    what: str


def mutants(*, proofs: bool = False) -> tuple[str, ...]:
    """Returns the full names of all rules whose absence must show.

    Args:
        proofs: Those without which only the proof of what is true is lost; else those without
            which results change. Other limits show in neither.
    """
    kept = [rule.holds for rule in PROVEN]
    return tuple(
        f"{kind.name}.{rule.name}"
        for kind in KINDS.values()
        for rule in kind.rules
        if (rule.limit and rule.holds in kept if proofs else not rule.limit)
    )


def catch(
    rule: str,
    grounds: tuple[Start, ...],
    *,
    most: int,
    seed: int = 0,
    proof: bool = False,
    execute: Execute = run_interpreter,
) -> Caught | None:
    """Switches a rule off and walks until a program computes something wrong.

    Args:
        rule: Full name, such as `fuse.dependence`.
        grounds: Programs to start from, in turn.
        most: Walks after which it gives up.
        seed: Of the first walk; the next ones count on.
        proof: Whether a program that is no longer proven sound is enough.
        execute: Runs programs.

    Returns:
        How it was found out, or None when all walks computed what they should.
    """
    for count in range(most):
        start = grounds[count % len(grounds)]
        schedule, what = _strayed(start, rule, seed + count, proof, execute)
        if what:
            return Caught(rule, count + 1, start.name, schedule, what)
    return None


def _strayed(start: Start, rule: str, seed: int, proof: bool, execute: Execute) -> tuple[str, str]:
    """Takes a walk without a rule; returns its schedule and what came out wrong, if anything."""
    taken, what, strayed = [], "", False
    steps = walk(start.program, seed=seed, prefer=rule.split(".")[0], without={rule})
    try:
        for step in steps:
            taken.append(step.move)
            strayed = strayed or not step.legal
            if step.program is None:
                what = "no program"
            elif strayed:
                what = _wrong_result(start, step.program, execute)
                if proof and not is_proven(step.program):
                    what = UNPROVEN
            if what:
                break
    except ProgramError as problem:
        if not strayed:
            raise
        what = f"no program: {problem}"
    return schedule_text(taken), what
