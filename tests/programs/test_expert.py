"""The expert pass: legal, right and what an engineer would write, for every operator."""

import pytest

from kt_lab.programs import register_tiles
from kt_lab.programs.emit_c import emit_c
from kt_lab.programs.expert import expert_schedule, work_us
from kt_lab.programs.interpret import interpret
from kt_lab.programs.ir import Op, Scope, refs_of
from kt_lab.programs.operators import error, get_operator, operators
from kt_lab.programs.schedule import replay
from kt_lab.programs.surgery import walk
from kt_lab.programs.text import parse, to_text

# Extents at which tiles, panels, partial sums and chunks come into being.
LARGER = {
    "multiply": {"elements": 256},
    "row_sum": {"rows": 4, "cols": 256},
    "layer_norm": {"rows": 4, "cols": 256},
    "batch_norm_training": {"n": 2, "c": 4, "h": 16, "w": 16},
    "matmul": {"m": 64, "n": 64, "k": 6},
    "linear_relu": {"m": 8, "n": 12, "k": 64},
    "conv2d": {"n": 2, "k": 64, "c": 2, "h": 4, "w": 28},
    "depthwise_conv2d": {"n": 2, "c": 3, "h": 4, "w": 8},
}
CASES = [(o.name, o.tiny) for o in operators()] + list(LARGER.items())
PLAIN_PRODUCT = """kernel product
in a f32 [16,$k]
in b f32 [$k,$n]
out z f32 [16,$n]
---
16
| $n
| | z[{0},{1}] = 0
16
| $n
| | $k
| | | z[{0},{1}] += a[{0},{2}] * b[{2},{1}]
"""


def made(name, extents, *, threads=1, region_us=0.0, **machine):
    start = get_operator(name).program(extents)
    return replay(start, expert_schedule(start, threads=threads, region_us=region_us, **machine))


def marks(program):
    return {node.mark for _, node in walk(program) if isinstance(node, Scope)}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "extents"), CASES)
def test_the_pass_is_legal_and_right_for_every_operator(name, extents, threads):
    operator = get_operator(name)
    program = made(name, extents, threads=threads)
    emit_c(program)
    for case in ("random", "negative"):
        inputs = operator.inputs(extents, case=case)
        expected = operator.expected(inputs)
        for seed in (0, 1):
            assert error(interpret(program, inputs, seed=seed), expected) < 1e-12


@pytest.mark.parametrize("name", [o.name for o in operators()])
def test_every_operator_gets_vectors_and_threads_at_its_real_extents(name):
    for workload in get_operator(name).workloads:
        one = made(name, workload.extents)
        two = made(name, workload.extents, threads=2)
        assert "v" in marks(one)
        assert "p" not in marks(one)
        assert "p" in marks(two)
        for at, node in walk(two):
            if isinstance(node, Scope) and node.mark == "p":
                assert node.extent > 1, at
        emit_c(two)


def test_small_work_stays_on_one_thread():
    start = get_operator("multiply").program({"elements": 4096})
    assert "parallelise" in expert_schedule(start, threads=2, region_us=0.0)
    assert "parallelise" not in expert_schedule(start, threads=2)
    assert work_us(start) < 50


def test_softmax_becomes_three_passes_over_a_row_that_stays_close():
    program = made("softmax", {"rows": 4, "cols": 64})
    assert len(program.body) == 1
    assert [b.place for b in program.of_kind("tmp")].count("heap") == 0
    inner = [n for _, n in walk(program) if isinstance(n, Scope) and n.mark == "v"]
    assert [len(n.body) for n in inner] == [1, 2, 1]
    # nothing in the last pass divides: 1 / s is the same for the whole row
    assert "| z[{0},{1}] = e[{0},{1}] * (1 / s[{0}])" in to_text(program)


def test_a_divisor_that_moves_with_the_row_still_divides():
    text = "kernel k\nin x f32 [2,64]\nin y f32 [2]\nin w f32 [64]\nout z f32 [2,64]\n---\n"
    text += "2\n| 64\n| | z[{0},{1}] = x[{0},{1}] / y[{0}] + x[{0},{1}] / w[{1}] / 3\n"
    played = replay(parse(text), expert_schedule(parse(text), threads=1))
    assert "x[{0},{1}] * (1 / y[{0}]) + x[{0},{1}] / w[{1}] / 3" in to_text(played)


def test_a_long_sum_gets_four_vectors_of_partial_results():
    program = made("row_sum", {"rows": 2, "cols": 1024})
    partial = next(b for b in program.buffers if b.name == "t0")
    assert (partial.shape, partial.place) == ((4, 16), "reg")
    # they are added to one vector, and its lanes last
    assert "| | | t1[{2}] += t0[{1},{2}]\n| 16:v\n| | s[{0}] += t1[{1}]" in to_text(program)
    # so does a long maximum; but exponentials take longer than an addition waits
    softmax = made("softmax", {"rows": 2, "cols": 1024})
    assert "t0[{2},{3}] max= x" in to_text(softmax)
    assert "t2" not in to_text(softmax)


def test_every_long_sum_of_a_program_gets_partial_results():
    program = made("layer_norm", {"rows": 2, "cols": 1024})
    partial = [b for b in program.of_kind("tmp") if b.shape == (4, 16)]
    assert [b.place for b in partial] == ["reg", "reg"]


def test_matmul_holds_a_tile_in_registers_and_reads_a_packed_panel():
    program = made("matmul", {"m": 512, "n": 512, "k": 512})
    tile, panel = program.buffer("c"), program.buffer("t0")
    assert (tile.place, tile.elements, tile.strides[-1]) == ("reg", 8 * 32, 1)
    assert (panel.place, panel.shape) == ("stack", (512, 32))


def test_rows_that_are_read_a_few_times_are_summed_along_the_lanes():
    program = made("linear_relu", {"m": 8, "n": 64, "k": 4096})
    assert program.buffer("t0").shape[-1] == 16
    assert not any(b.place == "heap" for b in program.of_kind("tmp"))
    # read often, they are packed by columns
    packed = made("linear_relu", {"m": 128, "n": 512, "k": 512})
    assert packed.buffer("t0").shape == (512, 32)


@pytest.mark.parametrize("vectors", [4, 8, 32])
def test_a_tile_fits_the_registers_that_there_are(vectors):
    square, odd = {"m": 512, "n": 512, "k": 512}, {"m": 30, "n": 48, "k": 5}
    for name, extents in (("matmul", square), ("matmul", odd), ("conv2d", LARGER["conv2d"])):
        tile = made(name, extents, vectors=vectors).buffer("y" if name == "conv2d" else "c")
        assert tile.place == "reg"
        assert tile.elements <= 16 * (vectors - 2)
        assert tile.elements >= 16 * vectors / 4
    few = made("linear_relu", {"m": 8, "n": 64, "k": 4096}, vectors=vectors).buffer("t0")
    assert (few.place, few.elements) == ("reg", 16 * min(vectors, 16))


@pytest.mark.parametrize("vectors", [4, 8])
@pytest.mark.parametrize("name", ["matmul", "linear_relu", "conv2d"])
def test_the_pass_is_legal_and_right_with_fewer_registers(name, vectors):
    operator, extents = get_operator(name), LARGER[name]
    program = made(name, extents, vectors=vectors)
    emit_c(program)
    inputs = operator.inputs(extents)
    assert error(interpret(program, inputs, seed=0), operator.expected(inputs)) < 1e-12


def test_a_large_operand_is_walked_along_its_rows_and_the_sum_is_cut_into_parts():
    extents = {"m": 8, "n": 4096, "k": 4096}
    program = made("matmul", extents)
    stripes = program.body[0]
    parts = stripes.body[1]  # between what starts the result and what writes it out
    tiles = parts.body[0]
    assert [s.extent for s in (stripes, parts, tiles, tiles.body[1])] == [4, 256, 32, 16]
    assert (program.buffer("t0").shape, program.buffer("t0").place) == ((8, 2, 16), "reg")
    assert program.buffer("c").place == "stack"
    # with half as many registers of half the length the parts are half as long
    few = made("matmul", extents, vectors=8)
    parts = few.body[0].body[1]
    assert (parts.extent, parts.body[0].body[0].body[1].extent) == (512, 8)
    assert few.buffer("t0").shape == (2, 2, 16)
    # each thread gets a stripe
    many = made("matmul", extents, threads=16).body[0]
    assert (many.extent, many.mark) == (16, "p")
    narrow = made("matmul", extents | {"n": 1024}).body[0]
    assert (narrow.extent, narrow.body[1].body[0].extent) == (2, 16)
    # what many rows share keeps its panel, what lies in a cache its column of tiles
    for other in ({"m": 512, "n": 4096, "k": 4096}, {"m": 8, "n": 1024, "k": 512}):
        assert made("matmul", other).buffer("c").place == "reg"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [2, 16])
def test_stripes_are_legal_and_right(monkeypatch, rows, threads):
    monkeypatch.setattr(register_tiles, "_FAR_BYTES", 1 << 10)
    monkeypatch.setattr(register_tiles, "_PAGE_BYTES", 256)
    operator, extents = get_operator("matmul"), {"m": rows, "n": 128, "k": 32}
    program = made("matmul", extents, threads=threads)
    assert (program.body[0].extent, program.body[0].body[1].extent) == (2, 2)
    inputs = operator.inputs(extents)
    assert error(interpret(program, inputs, seed=0), operator.expected(inputs)) < 1e-12
    emit_c(program)


def test_stripes_need_no_accumulators_of_their_own(monkeypatch):
    monkeypatch.setattr(register_tiles, "_FAR_BYTES", 1 << 10)
    monkeypatch.setattr(register_tiles, "_PAGE_BYTES", 256)
    start = parse(PLAIN_PRODUCT.replace("$k", "32").replace("$n", "128"))
    program = replay(start, expert_schedule(start, threads=1))
    assert program.buffer("t0").place == "reg"


def test_taps_are_written_out_and_padding_stays_on_the_stack():
    program = made("depthwise_conv2d", {"n": 1, "c": 4, "h": 56, "w": 56})
    rows = [n for _, n in walk(program) if isinstance(n, Scope) and len(n.body) > 9]
    assert [op.kind for op in rows[0].body] == ["=", *["+="] * 9, "="] * 2
    assert all(isinstance(op, Op) for op in rows[0].body)
    assert program.buffer("p").place == "stack"


def test_two_rows_of_a_filter_share_what_they_read():
    program = made("depthwise_conv2d", {"n": 1, "c": 4, "h": 56, "w": 56})
    assert program.buffer("y").place == "reg"
    assert program.buffer("y").elements == 2  # one for each row
    rows = next(n for _, n in walk(program) if isinstance(n, Scope) and len(n.body) > 9)
    read = {ref for op in rows.body for ref in refs_of(op.expr) if ref.buffer == "p"}
    assert len(read) == 4 * 3  # of four rows, where one after the other reads 2 * 9


@pytest.mark.parametrize(
    ("old", "new"),
    [("6", "7"), ("x[{0}+1,{1}]", "x[{0},{1}+1]"), ("x[{0}+1,{1}]", "x[{0}+1,0]")],
    ids=["an odd number of rows", "along rows only", "what lanes share"],
)
def test_rows_that_share_nothing_or_leave_a_rest_stay_apart(old, new):
    text = """kernel sums
in x f32 [8,50]
out z f32 [6,48]
---
6
| 48
| | z[{0},{1}] = x[{0},{1}] + x[{0}+1,{1}]
"""
    assert "expand" in expert_schedule(parse(text), threads=1)
    assert "expand" not in expert_schedule(parse(text.replace(old, new)), threads=1)


def test_large_results_are_streamed_and_small_ones_are_not():
    large, small = get_operator("multiply").workloads[::-1]
    assert made("multiply", large.extents).buffer("z").place == "nt"
    assert made("multiply", small.extents).buffer("z").place == "heap"


@pytest.mark.parametrize("name", ["softmax", "attention_scores", "layer_norm", "rms_norm"])
def test_the_next_row_of_a_large_input_is_fetched_while_one_is_streamed(name):
    small, large = get_operator(name).workloads[:2]
    program = made(name, large.extents)
    assert program.buffer("x").place == "ahead"
    assert emit_c(program).count("__builtin_prefetch(&x[") == 1
    assert made(name, small.extents).buffer("x").place == "heap"


@pytest.mark.parametrize(
    ("name", "place"), [("bias_gelu", "ahead"), ("multiply", "heap"), ("batch_norm", "heap")]
)
def test_a_stream_is_fetched_further_on_where_much_is_computed_of_it(name, place):
    program = made(name, get_operator(name).workloads[1].extents)
    assert program.buffer("z").place == "nt"
    assert program.buffer("x").place == place


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "weights"), [("matmul", "b"), ("linear_relu", "w")])
def test_large_weights_are_fetched_tiles_ahead(name, weights, threads):
    small, large = get_operator(name).workloads[:2]
    program = made(name, large.extents, threads=threads)
    assert program.buffer(weights).place == "ahead"
    assert emit_c(program).count(f"__builtin_prefetch(&{weights}[") == 1
    assert "ahead" not in {b.place for b in made(name, small.extents, threads=threads).buffers}


def test_a_row_that_the_first_cache_does_not_hold_is_not_fetched():
    rows = {"rows": 64, "cols": 1 << 17}
    assert "nt" in expert_schedule(get_operator("softmax").program(rows), threads=1)
    assert "ahead" not in expert_schedule(get_operator("softmax").program(rows), threads=1)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_too_large_to_stay_close_is_computed_again_for_each_reader(threads):
    small, large = get_operator("batch_norm_training").workloads[:2]
    again = made("batch_norm_training", large.extents, threads=threads)
    assert "d" not in {b.name for b in again.buffers}
    kept = made("batch_norm_training", small.extents, threads=threads)
    assert kept.buffer("d").place == "stack"


@pytest.mark.parametrize(("keys", "outermost"), [(1024, 1024), (64, 12)])
def test_heads_share_a_row_of_a_mask_that_no_cache_keeps(keys, outermost):
    program = made("attention_scores", {"heads": 12, "queries": 1024, "keys": keys})
    assert program.body[0].extent == outermost


def test_what_it_cannot_tile_is_left_as_it_is():
    # the accumulators are a result, which no register can stand for
    start = parse(PLAIN_PRODUCT.replace("$k", "8").replace("$n", "32"))
    program = replay(start, expert_schedule(start, threads=1))
    assert "v" in marks(program)
    done = parse("kernel one\nin x f32 [1]\nout z f32 [1]\n---\nz[0] = x[0]\n")
    assert expert_schedule(done, threads=2, region_us=0.0) == ""


@pytest.mark.parametrize(("name", "extents", "threads"), [("multiply", {"elements": 1}, 2)])
def test_fewer_iterations_than_threads_are_left_to_one(name, extents, threads):
    start = get_operator(name).program(extents)
    assert "parallelise" not in expert_schedule(start, threads=threads, region_us=0.0)
