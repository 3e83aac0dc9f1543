"""Small programs by their bodies, and how far their C is from what they mean."""

import numpy as np

from kt_lab.programs.interpret import interpret
from kt_lab.programs.operators import error
from kt_lab.programs.surgery import plain
from kt_lab.programs.text import parse
from kt_lab.runners.c import run_program


def written(header, body, place=""):
    """A program from `in x f32 [96]` to `out z f32 [96]`: further buffers, and the body."""
    lines = ["kernel exp", "in x f32 [96]", *header.split("\n"), f"out z f32 [96] {place}"]
    return parse("\n".join([*filter(None, lines), "---", body]))


def same_as_interpreted(program, bench, seed=0):
    """The error of a program's C against its plain form, interpreted."""
    rng = np.random.default_rng(seed)
    inputs = {b.name: rng.standard_normal(b.shape, np.float32) for b in program.of_kind("in")}
    return error(run_program(program, inputs, bench=bench), interpret(plain(program), inputs))
