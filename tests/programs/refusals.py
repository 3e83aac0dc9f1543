"""What a refusal must show: the rule is named, and without it the move computes something else."""

import numpy as np
import pytest

from kt_lab.errors import ProgramError
from kt_lab.programs.interpret import interpret
from kt_lab.programs.moves import KINDS, Move
from kt_lab.programs.operators import error
from kt_lab.programs.schedule import apply_move
from kt_lab.programs.surgery import canonical, plain
from kt_lab.programs.text import parse

SEEDS = (0, 1, 2)  # of the interpreter: every order that it runs parallel scopes in


def deviation(program, meant):
    """Returns how far a program is from what another one means, on random inputs."""
    rng = np.random.default_rng(0)
    inputs = {b.name: rng.standard_normal(b.shape) for b in program.of_kind("in")}
    expected = interpret(plain(meant), inputs)
    return max(error(interpret(program, inputs, seed=seed), expected) for seed in SEEDS)


def check_refused(text, record, rule):
    """Asserts that one rule alone stands between a legal program and a wrong one."""
    program, move = canonical(parse(text)), Move.parse(record)
    assert deviation(program, program) < 1e-12
    with pytest.raises(ProgramError, match=rf"\(rule {move.kind}\.{rule}\)"):
        apply_move(program, move)
    strayed, broken = KINDS[move.kind].attempt(program, move, without={f"{move.kind}.{rule}"})
    assert broken is None
    assert deviation(strayed, program) > 1e-3


def check_limited(text, record, rule):
    """Asserts that a rule refuses what would still compute the same."""
    program, move = canonical(parse(text)), Move.parse(record)
    with pytest.raises(ProgramError, match=rf"\(rule {move.kind}\.{rule}\)"):
        apply_move(program, move)
    strayed, _ = KINDS[move.kind].attempt(program, move, without={f"{move.kind}.{rule}"})
    assert deviation(strayed, program) < 1e-12


def check_inverse(program, move):
    """Asserts that a move keeps the meaning and is undone to the very same program."""
    changed = apply_move(program, move)
    assert changed != program
    assert deviation(changed, program) < 1e-12
    assert apply_move(changed, KINDS[move.kind].inverse(program, move)) == program
    return changed
