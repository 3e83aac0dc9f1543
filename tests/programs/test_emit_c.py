"""The C of programs: right for every mark and place, vectorised, the same bytes for equal text."""

import math
import platform
import re
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from kt_lab.errors import ProgramError, UsageError
from kt_lab.programs.emit_c import emit_c, parameters, signature
from kt_lab.programs.operators import CASES, error, operators
from kt_lab.programs.schedule import replay
from kt_lab.programs.text import parse, to_text
from kt_lab.runners.c import Bench, find_toolchain, run_program
from tests.programs.written import same_as_interpreted, written

FUSED = """kernel softmax
in x f32 [6,48]
tmp m f32 [6:r] reg
tmp s f32 [6:r] reg
tmp e f32 [6:r,48] stack
out z f32 [6,48]
---
6:p
| m[{0}] = -inf
| 48:v
| | m[{0}] max= x[{0},{1}]
| s[{0}] = 0
| 48:v
| | e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
| | s[{0}] += e[{0},{1}]
| 48:v
| | z[{0},{1}] = e[{0},{1}] / s[{0}]
"""
TILED = """kernel matmul
in a f32 [16,24]
in b f32 [24,64]
tmp t0 f32 [2,24,32] heap
tmp c f32 [4:r,4,2:r,32] reg
out z f32 [16,64]
---
2:p
| 24
| | 32:v
| | | t0[{0},{1},{2}] = b[{1},32*{0}+{2}]
4:p
| 2
| | 4:u
| | | 32:v
| | | | c[{0},{2},{1},{3}] = 0
| | 24:u4
| | | 4:u
| | | | 32:v
| | | | | c[{0},{3},{1},{4}] += a[4*{0}+{3},{2}] * t0[{1},{2},{4}]
| | 4:u
| | | 32:v
| | | | z[4*{0}+{2},32*{1}+{3}] = c[{0},{2},{1},{3}]
"""
AHEAD = """kernel scaled
in x f32 [6,48] ahead
tmp m f32 [6:r] reg
out z f32 [6,48] nt
---
6:p
| m[{0}] = 1
| 48:v
| | m[{0}] max= x[{0},{1}]
| 48:v
| | z[{0},{1}] = x[{0},{1}] / m[{0}]
"""
WEIGHTED = """kernel product
in x f32 [8,1024]
in w f32 [64,1024] ahead
tmp c f32 [8,64,16]
out z f32 [8,64]
---
8
| 64
| | 16:v
| | | c[{0},{1},{2}] = 0
16
| 2
| | 64
| | | 4:u
| | | | 4:u
| | | | | 16:v
| | | | | | c[4*{1}+{3},4*{0}+{4},{5}] += x[4*{1}+{3},16*{2}+{5}] * w[4*{0}+{4},16*{2}+{5}]
8
| 64
| | z[{0},{1}] = 0
| | 16
| | | z[{0},{1}] += c[{0},{1},{2}]
"""
# What becomes of `in x f32 [96]` and the temporaries in the header, to `out z f32 [96]`.
RIGHT = {
    "a scalar for each lane": (
        "tmp a f32 [96:r] reg",
        "96:v\n| a[{0}] = x[{0}]\n| z[{0}] = a[{0}] * a[{0}]",
    ),
    "an array for each lane": (
        "tmp a f32 [96:r,2] stack",
        "96:v\n| a[{0},0] = x[{0}]\n| a[{0},1] = 2\n| z[{0}] = a[{0},0] * a[{0},1]",
    ),
    "an array of a parallel iteration that its lanes share": (
        "tmp a f32 [2:r,48] stack",
        "2:p\n| 48:v\n| | a[{0},{1}] = x[48*{0}+{1}]\n| 48:v\n| | z[48*{0}+{1}] = a[{0},-{1}+47]",
    ),
    "a local array that parallel iterations reach": (
        "tmp a f32 [96] stack",
        "96\n| a[{0}] = x[{0}]\n96:p\n| a[{0}] += 1\n96\n| z[{0}] = a[{0}]",
    ),
    "a local scalar that parallel iterations read": (
        "tmp a f32 [1] reg",
        "1\n| a[0] = -inf\n96:v\n| a[0] max= x[{0}]\n96:p\n| z[{0}] = a[0] - x[{0}]",
    ),
    "two reductions to one target": (
        "tmp a f32 [1] heap",
        "1\n| a[0] = 1\n96:v\n| a[0] += x[{0}]\n| a[0] += x[-{0}+95] * x[{0}]\n"
        "96:v\n| z[{0}] = a[0]",
    ),
    "reductions by three kinds at once": (
        "tmp a f32 [3] stack",
        "1\n| a[0] = 0\n| a[1] = inf\n| a[2] = -inf\n"
        "96:v\n| z[{0}] = x[{0}]\n96:v\n| a[0] += x[{0}]\n"
        "96:v\n| a[1] min= x[{0}]\n96:v\n| a[2] max= x[{0}]\n"
        "96\n| z[{0}] = a[0] + a[1] * a[2]",
    ),
    "a reduction over lanes that an inner scope moves": (
        "tmp a f32 [3] heap",
        "3\n| a[{0}] = 0\n32:v\n| 3\n| | a[{1}] += x[3*{0}+{1}]\n"
        "96\n| z[{0}] = a[0] * a[1] + a[2]",
    ),
    "a vector scope round a parallel one": (
        "tmp a f32 [1] heap",
        "1\n| a[0] = 3\n32:v\n| 3:p\n| | z[3*{0}+{1}] = x[3*{0}+{1}] * a[0]",
    ),
    "a parallel scope within another": (
        "tmp a f32 [8:r] reg",
        "8:p\n| a[{0}] = x[12*{0}]\n| 12:p\n| | z[12*{0}+{1}] = a[{0}] * x[12*{0}+{1}]",
    ),
    "parallel scopes in a loop": (
        "tmp a f32 [96] heap",
        "96\n| a[{0}] = 0\n4\n| 96:p\n| | a[{1}] += x[{1}]\n96:p\n| z[{0}] = a[{0}]",
    ),
    "strides, constants and unrolling": (
        "tmp a f32 [48,2] heap",
        "48:u\n| a[{0},1] = x[2*{0}]\n48:u3\n| a[-{0}+47,0] = x[2*{0}+1] / 3\n"
        "2:u\n| 48:v\n| | z[48*{0}+{1}] = 0.5 - (a[{1},{0}] - -2.5e-3)",
    ),
    "names that C has taken": (
        "tmp int f32 [96] heap\ntmp i0 f32 [96] stack\ntmp i0_ f32 [1] reg\ntmp kt_0 f32 [1] reg",
        "1\n| kt_0[0] = 0\n1\n| i0_[0] = 2\n96:v\n| int[{0}] = x[{0}] * i0_[0]\n"
        "96:v\n| i0[{0}] = int[{0}]\n96:v\n| kt_0[0] += i0[{0}]\n96:v\n| z[{0}] = kt_0[0]",
    ),
    "a recurrence that gcc 12.2 vectorises wrongly": (
        "tmp a f32 [96] reg",
        "96\n| a[{0}] = 1\n4\n| 5\n| | a[6*{0}+{1}+7] = a[6*{0}+{1}] * 0.5 + x[5*{0}+{1}]\n"
        "96\n| z[{0}] = a[{0}]",
    ),
    "double precision": (
        "tmp a f64 [1] reg",
        "1\n| a[0] = 0\n96:v\n| a[0] += exp(x[{0}])\n96:v\n| z[{0}] = erf(x[{0}]) / a[0]",
    ),
    "a stream past the caches": ("", "6:p\n| 16:v\n| | z[16*{0}+{1}] = x[16*{0}+{1}] * 2"),
    "a stream of a tile past the caches": (
        "tmp a f32 [3,32] reg",
        "3:u\n| 32:v\n| | a[{0},{1}] = 0.5\n5\n| 3:u\n| | 32:v\n"
        "| | | a[{1},{2}] += x[7*{0}+{1}] * x[32*{1}+{2}]\n3:u\n| 32:v\n"
        "| | z[32*{0}+{1}] = max(a[{0},{1}], 0)",
    ),
    "no stream, for want of whole lines": ("", "8:p\n| 12:v\n| | z[12*{0}+{1}] = x[{1}]"),
    "no stream, for it is updated": (
        "",
        "96:v\n| z[{0}] = x[{0}]\n| z[{0}] += x[-{0}+95]",
    ),
}


@pytest.fixture(scope="module", params=[1, 2], ids=["1 thread", "2 threads"])
def bench(request):
    try:
        found = Bench(threads=request.param)
    except UsageError as error:  # a compiler without OpenMP
        pytest.skip(str(error))
    with found:
        yield found


@pytest.fixture(scope="module")
def single():
    with Bench() as found:
        yield found


@pytest.mark.parametrize("name", RIGHT)
def test_every_mark_and_place_computes_what_the_plain_program_does(name, bench):
    place = "nt" if "stream" in name else ""
    program = written(*RIGHT[name], place)
    assert to_text(parse(to_text(program))) == to_text(program)
    assert same_as_interpreted(program, bench) < 1e-5  # a sum that nearly cancels
    assert ("KT_STREAMED();" in emit_c(program)) == name.startswith("a stream")


@pytest.mark.parametrize("text", [FUSED, TILED], ids=["softmax", "matmul"])
def test_hand_written_schedules_are_right(text, bench):
    assert same_as_interpreted(parse(text), bench) < 1e-6


@pytest.mark.parametrize("operator", operators(), ids=lambda operator: operator.name)
def test_every_operator_starts_right_in_every_case(operator, single):
    program, tolerance = operator.program(operator.tiny), operator.tolerance(operator.tiny)
    for case in CASES if operator.chain else ("random", "large"):
        inputs = operator.inputs(operator.tiny, case=case)
        found = run_program(program, inputs, bench=single)
        assert error(found, operator.expected(inputs)) < tolerance, case


def test_the_next_row_is_fetched_where_one_is_streamed(bench):
    program = parse(AHEAD)
    assert to_text(program) == AHEAD
    assert same_as_interpreted(program, bench) < 1e-6
    source = emit_c(program)
    line = source.index("float kt_line_z")
    assert line < source.index("__builtin_prefetch(&x[48 * i0 + 48 + kt_1]);")
    assert source.count("__builtin_prefetch") == 1


@pytest.mark.parametrize("lane", ["{5}", "0"], ids=["lanes apart", "lanes combined"])
def test_a_tile_that_is_used_again_fetches_each_line_of_a_later_one_once(lane, bench):
    program = parse(WEIGHTED.replace("{5}] +=", f"{lane}] +="))
    source = emit_c(program)
    found = re.search(r"if \((.*)\)\n *__builtin_prefetch\(&w\[(.*)\], 0, 2\);", source)
    when, at = found[1].replace("&&", "and"), found[2]
    loops = [{f"i{d}": n for d, n in enumerate(at)} for at in np.ndindex(16, 2, 64, 4, 4)]
    fetched = [eval(at, {}, i) for i in loops if eval(when, {}, i)]
    assert sorted(fetched) == list(range(32 * 1024, 96 * 1024, 16))
    weights = np.arange(64, dtype="f4").repeat(1024).reshape(64, 1024)
    inputs = {"x": np.ones((8, 1024), "f4"), "w": weights}
    sums = run_program(program, inputs, bench=bench)["z"]
    assert (sums == 1024 * np.arange(64)).all()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("w f32 [64,1024] ahead", "w f32 [64,1024]"),
        ("16:v\n| | | | | | c", "16\n| | | | | | c"),
        ("| | | | 4:u\n| | | | | 16:v", "| | | | 3:u\n| | | | | 16:v"),
        ("16\n| 2\n| | 64\n| | | 4:u", "16\n| 1\n| | 64\n| | | 2:u"),
    ],
    ids=["not ahead", "no vectors", "passes that share no lines", "used but twice"],
)
def test_no_other_tile_fetches(old, new):
    assert old in WEIGHTED
    assert "__builtin_prefetch" in emit_c(parse(WEIGHTED))
    assert "__builtin_prefetch" not in emit_c(parse(WEIGHTED.replace(old, new)))


def test_a_small_input_is_not_fetched():
    small = WEIGHTED.replace("1024]", "512]").replace("| | 64\n| | | 4", "| | 32\n| | | 4")
    assert "__builtin_prefetch" not in emit_c(parse(small))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("z f32 [6,48] nt", "z f32 [6,48]"),
        ("x f32 [6,48] ahead", "x f32 [6,48]"),
    ],
    ids=["not streamed", "not ahead"],
)
def test_only_what_is_ahead_of_a_stream_is_fetched(old, new):
    assert old in AHEAD
    assert "__builtin_prefetch" not in emit_c(parse(AHEAD.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max= x[{0},{1}]", "max= x[0,{1}]"),
        ("| 48:v\n| | m[{0}] max= x[{0},{1}]", "| 16:v\n| | m[{0}] max= x[{0},{1}]"),
        ("| 48:v\n| | m[{0}] max= x[{0},{1}]\n", ""),
    ],
    ids=["the same row", "a part of the row", "read but once"],
)
def test_where_no_row_comes_next_a_stream_fetches_what_it_reads_itself(old, new, bench):
    assert old in AHEAD
    program = parse(AHEAD.replace(old, new))
    source = emit_c(program)
    assert source.count("__builtin_prefetch") == 1
    assert "__builtin_prefetch(&x[48 * i0 + 1024 + kt_1]);" in source
    assert same_as_interpreted(program, bench) < 1e-6


def test_equal_text_gives_the_same_bytes_without_headers():
    source = emit_c(parse(FUSED))
    assert source == emit_c(parse(to_text(parse(FUSED))))
    assert "#include" not in source
    assert to_text(parse(FUSED)) in source
    assert "f32_lanes_most(kt_0)" in source
    assert "f32_lanes_sum(kt_0)" in source


def test_lanes_that_vectors_do_not_divide_combine_in_a_scalar():
    source = emit_c(parse(FUSED.replace("48", "40")))
    assert "reduction(max:" in source
    assert "reduction(+:" in source


def test_the_function_takes_the_buffers_that_are_not_local():
    assert [b.name for b in parameters(parse(TILED))] == ["a", "b", "t0", "z"]
    assert signature(parse(FUSED), "rows") == "void kt_rows(const float *x, float *z)"
    assert "void kt_rows(const float *restrict x, float *restrict z)" in emit_c(
        parse(FUSED), name="rows"
    )


def test_what_an_operation_in_double_reads_in_single_is_widened_first(bench):
    text = (
        "kernel k\nin x f32 [4]\ntmp t f64 [4] heap\nout z f64 [4]\n---\n"
        "4\n| t[{0}] = x[{0}]\n4\n| z[{0}] = t[{0}] * t[{0}]\n"
    )
    x = {"x": np.array([1e30, 1 / 3, 3e-30, 2], np.float32)}
    wide = x["x"].astype(np.float64) ** 2
    start = parse(text)
    for program in (start, replay(start, "inline 0.0")):  # a legal move, which changed the result
        np.testing.assert_allclose(run_program(program, x, bench=bench)["z"], wide, rtol=1e-12)
    body = "s[0] = 0\n4\n| s[0] += x[{0}] * x[{0}]\n"
    dot = parse(f"kernel k\nin x f32 [4]\nout s f64 [1]\n---\n{body}")
    np.testing.assert_allclose(run_program(dot, x, bench=bench)["s"], [wide.sum()], rtol=1e-12)


def test_scopes_are_as_long_as_an_int_counts_and_unrolled_as_gcc_takes():
    long = "kernel k\nin x f32 [1]\nout z f32 [1]\n---\nz[0] = 0\n{0}\n| z[0] += x[0]\n"
    with pytest.raises(ProgramError, match="at most 2147483647 iterations in C, got 3000000000"):
        emit_c(parse(long.replace("{0}", "3000000000")))
    assert "i0 < 2147483647" in emit_c(parse(long.replace("{0}", "2147483647")))
    for mark in ("70000:u", "8:u70000"):
        assert "#pragma GCC unroll 65534" in emit_c(parse(long.replace("{0}", mark)))


def test_locals_that_no_stack_holds_are_refused():
    with pytest.raises(ProgramError, match="take <= 1048576 bytes together; got 4000000"):
        emit_c(parse("kernel k\ntmp a f32 [1000000] stack\nout z f32 [1]\n---\n1\n| z[0] = a[0]"))


def test_the_compiler_vectorises_what_is_marked():
    chain = find_toolchain()
    if "clang" in chain.version or "gcc" not in chain.version.lower():
        pytest.skip("gcc reports vectorised loops in a form of its own")
    source = emit_c(marked())
    line = [*chain.line("/dev/null"), "-fopt-info-vec-optimized"]
    done = subprocess.run(line, input=source, capture_output=True, text=True, check=True)
    numbers = [k for k, text in enumerate(source.split("\n"), 1) if "omp simd" in text]
    found = {int(text.split(":")[1]) for text in done.stderr.splitlines() if "vectorized" in text}
    assert len(numbers) == 8
    assert all(found & set(range(number, number + 4)) for number in numbers)


def marked():
    """One vector scope for each function, and a reduction."""
    calls = ["exp(x[{0}])", "log(x[{0}])", "tanh(x[{0}])", "erf(x[{0}])", "rsqrt(x[{0}])"]
    calls += ["select(x[{0}], 1, x[{0}])", "max(x[{0}], 0) + abs(neg(x[{0}]))"]
    scopes = [f"4096:v\n| z[{k},{{0}}] = {call}" for k, call in enumerate(calls)]
    body = "\n".join([*scopes, "1\n| s[0] = 0", "4096:v\n| s[0] += log(x[{0}])"])
    return parse(f"kernel k\nin x f32 [4096]\nout z f32 [7,4096]\nout s f32 [1]\n---\n{body}")


def function_program(call, count):
    return parse(
        f"kernel k\nin x f32 [{count}]\nout z f32 [{count}]\n---\n{count}:v\n| z[{{0}}] = {call}"
    )


RANGES = {
    "exp": (np.linspace(-86.8, 88.7, 40_000), np.exp, 1.5e-7),
    "log": (np.geomspace(1e-44, 3e38, 40_000), np.log, 1.5e-7),
    "tanh": (np.linspace(-12, 12, 40_000), np.tanh, 1.5e-7),
    "erf": (np.linspace(-6, 6, 40_000), np.vectorize(math.erf), 2e-7),
    "rsqrt": (np.geomspace(1e-37, 3e38, 40_000), lambda x: 1 / np.sqrt(x), 2e-7),
}


@pytest.mark.parametrize("name", RANGES)
def test_functions_are_accurate_in_their_whole_range(name, single):
    points, reference, bound = RANGES[name]
    x = points.astype(np.float32)
    z = run_program(function_program(f"{name}(x[{{0}}])", x.size), {"x": x}, bench=single)["z"]
    expected = reference(x.astype(np.float64))
    scale = np.maximum(np.abs(expected), 1e-37)
    assert np.max(np.abs(z - expected) / scale) < bound


def in_vectors(call, count):
    """The same of whole vectors, along an array in registers."""
    body = f"{count}:v\n| a[{{0}}] = {call}\n{count}:v\n| z[{{0}}] = a[{{0}}]"
    header = f"in x f32 [{count}]\ntmp a f32 [{count}] reg\nout z f32 [{count}]"
    return parse(f"kernel k\n{header}\n---\n{body}")


@pytest.fixture(scope="module", params=["as it is", "no AVX-512"])
def processor(request):
    """A bench for vectors of this processor, and for the shorter ones of others."""
    found = find_toolchain()
    if request.param != "as it is":
        if platform.machine() not in ("x86_64", "AMD64"):
            pytest.skip("AVX-512 is of x86-64 only")
        found = replace(found, command=(*found.command, "-mno-avx512f"))
    with Bench(toolchain=found) as bench:
        yield bench


def test_exp_of_whole_vectors_is_as_accurate_and_keeps_its_limits(processor):
    x = RANGES["exp"][0].astype(np.float32)
    program = in_vectors("exp(x[{0}])", x.size)
    assert "f32_lanes_exp(KT_V(x" in emit_c(program)
    z = run_program(program, {"x": x}, bench=processor)["z"]
    expected = np.exp(x.astype(np.float64))
    assert np.max(np.abs(z - expected) / expected) < 1.5e-7
    x = np.array([-np.inf, -1e30, -104, -87.1, 0, 1e-45, 89, 1e30, np.inf, np.nan], np.float32)
    x = np.pad(x, (0, 6))
    z = run_program(in_vectors("exp(x[{0}])", 16), {"x": x}, bench=processor)["z"]
    inf = np.inf
    assert np.array_equal(z[:10], [0, 0, 0, 0, 1, 1, inf, inf, inf, np.nan], equal_nan=True)


def test_one_plus_erf_is_computed_as_one_function(single):
    x = np.append(np.linspace(-30, 30, 60_000), [-np.inf, np.inf, np.nan]).astype(np.float32)
    program = function_program("1 + erf(x[{0}])", x.size)
    assert "f32_plus_erf(x[i0])" in emit_c(program)
    z = run_program(program, {"x": x}, bench=single)["z"]
    expected = 1 + np.vectorize(math.erf)(x[:-3].astype(np.float64))
    assert np.max(np.abs(z[:-3] - expected)) < 3e-7
    # nothing is left of it far out, however large what it is multiplied by
    assert np.max(z[x < -7]) < 1e-15
    assert np.array_equal(z[-3:], [0, 2, np.nan], equal_nan=True)
    for call in ("erf(x[{0}]) + 2", "1 - erf(x[{0}])", "2 + erf(x[{0}])"):
        assert "plus_erf" not in emit_c(function_program(call, 16))


GELU = "0.5 * x[{0}] * (1 + erf(x[{0}] * 0.7071067811865476))"


def test_gelu_is_computed_as_one_function(single):
    x = np.append(np.linspace(-30, 30, 60_000), [-1e30, 1e30, -np.inf, np.inf, np.nan])
    x = x.astype(np.float32)
    program = function_program(GELU, x.size)
    assert "f32_gelu(x[i0])" in emit_c(program)
    assert "f32_plus_erf" not in emit_c(program)
    z = run_program(program, {"x": x}, bench=single)["z"]
    given = x[:-5].astype(np.float64)
    expected = 0.5 * given * np.vectorize(math.erfc)(-given * math.sqrt(0.5))
    assert np.max(np.abs(z[:-5] - expected) / np.maximum(1, np.abs(expected))) < 3e-7
    assert np.array_equal(z[x < -6], np.zeros((x < -6).sum()))
    assert np.array_equal(z[-5:], [0, np.float32(1e30), 0, np.inf, np.nan], equal_nan=True)


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        ("0.5", "0.25"),
        ("0.7071067811865476", "0.7072"),
        ("0.5 * x[{0}]", "0.5 * (x[{0}] + 1)"),
        ("(1 + erf", "(1 - erf"),
        ("erf", "tanh"),
    ],
)
def test_what_only_looks_like_gelu_is_computed_as_written(there, instead, single):
    program = function_program(GELU.replace(there, instead, 1), 64)
    assert "f32_gelu" not in emit_c(program)
    assert same_as_interpreted(program, single) < 1e-6


def test_functions_keep_their_limits(single):
    inf, nan = math.inf, math.nan
    x = np.array([-inf, -1e30, -104, -3, 0, 1e-45, 89, 1e30, inf, nan], np.float32)
    wanted = {
        "exp": [0, 0, 0, np.exp(np.float32(-3)), 1, 1, inf, inf, inf, nan],
        "log": [nan, nan, nan, nan, -inf, np.log(1.401298464e-45), np.log(89), np.log(1e30)],
        "tanh": [-1, -1, -1, np.tanh(-3), 0, 1e-45, 1, 1, 1, nan],
        "erf": [-1, -1, -1, math.erf(-3), 0, 0, 1, 1, 1, nan],
        "select": [1, 1, 1, 1, 1, 2, 2, 2, 2, 1],
    }
    wanted["log"] += [inf, nan]
    for name, expected in wanted.items():
        call = "select(x[{0}], 2, 1)" if name == "select" else f"{name}(x[{{0}}])"
        z = run_program(function_program(call, x.size), {"x": x}, bench=single)["z"]
        np.testing.assert_allclose(z, expected, rtol=2e-7, atol=2e-45, err_msg=name)
