"""Vector scopes along registers, or of reductions: which are vectors, and that they stay right."""

import numpy as np
import pytest

from kt_lab.programs.emit_c import emit_c
from kt_lab.runners.c import Bench, run_program
from tests.programs.written import same_as_interpreted, written

# What is written in whole vectors, in all its scopes of lanes: the same header and body.
VECTORS = {
    "a tile": (
        "tmp a f32 [3,32] reg",
        "3:u\n| 32:v\n| | a[{0},{1}] = 0.5\n5\n| 3:u\n| | 32:v\n"
        "| | | a[{1},{2}] += x[7*{0}+{1}] * x[32*{1}+{2}]\n3:u\n| 32:v\n"
        "| | z[32*{0}+{1}] = max(a[{0},{1}], 0)",
    ),
    "vectors at any offset": (
        "tmp a f32 [96] reg",
        "1\n| a[0] = 1\n48:v\n| a[{0}+1] = x[{0}+3]\n32:v\n| a[{0}+49] = a[{0}+17] - x[5]\n"
        "16:v\n| a[{0}+80] = a[{0}] * x[{0}+1]\n"
        "96:v\n| z[{0}] = a[{0}] * 0.5 + (1 - a[2])",
    ),
    "every function": (
        "tmp a f32 [96] reg\ntmp b f32 [96:r] reg",
        "96:v\n| a[{0}] = max(x[{0}], 0.25) - min(2, x[{0}])\n96:v\n"
        "| b[{0}] = select(a[{0}] - 1, neg(x[{0}]), abs(x[{0}]))\n"
        "| z[{0}] = (b[{0}] + max(x[3], 0.5)) / 3 - select(x[4], a[{0}], x[{0}])",
    ),
    "updates of vectors": (
        "tmp a f32 [2,48] reg",
        "2:u\n| 48:v\n| | a[{0},{1}] = -inf\n2\n| 2:u\n| | 48:v\n"
        "| | | a[{1},{2}] max= x[48*{0}+{2}]\n| | | a[{1},{2}] min= x[{1}] + 1\n"
        "2:u\n| 48:v\n| | z[48*{0}+{1}] = a[{0},{1}]",
    ),
    "reductions of vectors": (
        "tmp a f32 [96] reg\ntmp s f32 [1] reg\ntmp m f32 [1] heap\ntmp n f32 [3] stack",
        "1\n| s[0] = 2\n| m[0] = -inf\n| n[1] = inf\n"
        "96:v\n| a[{0}] = x[{0}] * 2\n| s[0] += a[{0}] * a[{0}]\n| m[0] max= a[{0}]\n"
        "32:v\n| n[1] min= a[{0}+30] - x[{0}]\n| s[0] += 0.5\n"
        "96:v\n| z[{0}] = a[{0}] / s[0] + m[0] - n[1]",
    ),
    "reductions along no register": (
        "tmp e f32 [96] stack\ntmp s f32 [1] reg\ntmp m f32 [1] reg\ntmp n f32 [1] reg",
        "1\n| s[0] = 0\n| m[0] = -inf\n| n[0] = inf\n96:v\n| m[0] max= x[{0}]\n"
        "| n[0] min= x[{0}]\n96:v\n| e[{0}] = exp(x[{0}] - m[0])\n| s[0] += e[{0}]\n"
        "96\n| z[{0}] = e[{0}] / s[0] + n[0]",
    ),
}
# What is not, in none of them: why, and what the scope is.
LANES = {
    "an extent that vectors do not divide": "24:v\n| a[{0}] = x[{0}]",
    "a stride": "32:v\n| a[2*{0}] = x[{0}]",
    "a reversal": "32:v\n| a[{0}] = x[-{0}+31]",
    "a long function": "32:v\n| a[{0}] = tanh(x[{0}])",
    "an inner scope": "32:v\n| 2\n| | a[{0}] += x[{0}+{1}]",
    "double precision": "32:v\n| a[{0}] = x[{0}] * d[0]",
    "an array of its own for each lane": "32:v\n| o[{0},0] = x[{0}]\n| a[{0}] = o[{0},0]",
    "no array in reg": "32:v\n| z[{0}] = x[{0}]",
}


@pytest.fixture(scope="module")
def single():
    with Bench() as found:
        yield found


@pytest.mark.parametrize("name", VECTORS)
def test_scopes_along_registers_are_written_in_vectors_and_right(name, single):
    program = written(*VECTORS[name])
    source = emit_c(program)
    assert same_as_interpreted(program, single) < 1e-5
    assert "+= KT_LANES" in source
    assert "omp simd" not in source


@pytest.mark.parametrize("name", LANES)
def test_scopes_that_are_not_of_whole_vectors_stay_lanes(name, single):
    header = "tmp a f32 [96] reg\ntmp d f64 [1] reg\ntmp o f32 [32:r,2] reg"
    start = "1\n| d[0] = 3\n| a[0] = 1\n96\n| a[{0}] = x[{0}] + 1\n| z[{0}] = 0\n"
    end = "\n96\n| z[{0}] += a[{0}]"
    program = written(header, start + LANES[name] + end)
    assert "KT_LANES" not in emit_c(program)
    assert same_as_interpreted(program, single) < 1e-6


def test_vectors_keep_not_a_number_and_the_signs_of_zero(single):
    body = "96:v\n| a[{0}] = x[{0}]\n96:v\n| a[{0}] max= -inf\n96:v\n| z[{0}] = a[{0}]"
    program = written("tmp a f32 [96] reg", body)
    x = np.full(96, -0.0, np.float32)
    x[7:9] = np.nan, -np.inf
    z = run_program(program, {"x": x}, bench=single)["z"]
    assert np.array_equal(z, x, equal_nan=True)
    assert np.array_equal(np.signbit(z[:7]), np.signbit(x[:7]))
