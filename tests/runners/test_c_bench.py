"""The bench: what compiled code does to memory, or to its process, is an outcome."""

import numpy as np
import pytest

from kt_lab.errors import ProgramError, UsageError
from kt_lab.programs.text import parse
from kt_lab.runners.c import Bench, compile_program, find_toolchain, run_program
from kt_lab.runners.c.memory import Block, Memory
from kt_lab.runners.c.tasks import Binary, Measure, Protocol, Race, Run, store_case
from kt_lab.runners.c.toolchain import build

COPY = "kernel copy\nin x f32 [8]\nout z f32 [8]\n---\n8\n| z[{0}] = x[{0}]"
X = np.arange(8, dtype=np.float32)
BLOCKS = (Block("x", "in", "f32", (8,), 8), Block("z", "out", "f32", (8,), 8))
HEAD = "void f(float **b)\n{\n    float *x = b[0], *z = b[1];\n    "
ALL = "for (int i = 0; i < 8; i++) z[i] = x[i]; "


@pytest.fixture(scope="module")
def bench():
    with Bench(timeout_s=30.0) as found:
        yield found


@pytest.fixture
def made(bench, tmp_path):
    """Compiles the body of a function by hand: no legal program does what these do."""

    def make(body):
        path = tmp_path / f"{abs(hash(body))}.so"
        assert not build(bench.toolchain.line(path), HEAD + body + "}\n")
        return Binary(str(path), "f", BLOCKS)

    return make


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("z[8] = 0;", "wrote after the buffer z"),
        ("z[-1] = 1;", "wrote before the buffer z"),
        ("x[9] = 0;", "wrote after the buffer x"),
        ("x[3] = 9;", "changed the input x"),
    ],
)
def test_writing_where_one_must_not_is_found(bench, made, body, wrong):
    outcome = bench.call(Run(made(ALL + body), {"x": X}), timeout_s=30)
    assert outcome.kind == "error"
    assert wrong in outcome.error


def test_what_was_not_written_is_not_a_number(bench, made):
    outcome = bench.call(Run(made("z[0] = x[1];"), {"x": X}), timeout_s=30)
    assert outcome.value["z"][0] == 1
    assert np.isnan(outcome.value["z"][1:]).all()


@pytest.mark.parametrize(
    ("body", "kind"), [("for (;;) x[0] += 1;", "timeout"), ("*(volatile int *)8 = 1;", "crashed")]
)
def test_a_lost_process_is_replaced(bench, made, body, kind):
    assert bench.call(Run(made(body), {"x": X}), timeout_s=1.0).kind == kind
    np.testing.assert_array_equal(run_program(parse(COPY), {"x": X}, bench=bench)["z"], X)


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("z[7] = 7.1f;", "case random: it deviates by 0.014, more than 1e-05"),
        ("z[7] = 0.0f / 0.0f;", "case random: it deviates by inf"),
        ("z[8] = 1;", "case random: it wrote after the buffer z"),
    ],
)
def test_a_wrong_result_is_measured_as_such(bench, made, tmp_path, body, wrong):
    store_case(tmp_path, "random", {"x": X, "z": X.astype(np.float64)})
    task = Measure(made(ALL + body), str(tmp_path), ("random",), 1e-5, Protocol())
    reading = bench.call(task, timeout_s=30).value
    assert reading.status == "wrong_result"
    assert reading.error.startswith(wrong)
    assert not reading.samples_us


def test_samples_are_means_of_batches_and_a_cutoff_censors(bench, made, tmp_path):
    store_case(tmp_path, "random", {"x": X, "z": X.astype(np.float64)})
    binary = made(ALL)
    protocol = Protocol(samples=7, batch_us=50)
    task = Measure(binary, str(tmp_path), ("random",), 1e-5, protocol)
    readings = [bench.call(task, timeout_s=30).value for _ in range(3)]
    assert [(r.status, len(r.samples_us)) for r in readings] == [("ok", 7)] * 3
    # a machine that was busy while calls were counted makes one batch short, not three
    assert max(r.calls * min(r.samples_us) for r in readings) > 10
    cut = Measure(binary, str(tmp_path), ("random",), 1e-5, protocol, cutoff_us=1e-9)
    reading = bench.call(cut, timeout_s=30).value
    assert (reading.status, len(reading.samples_us)) == ("censored", 3)


@pytest.mark.parametrize(("and_then", "status"), [("", "censored"), ("z[7] = 9;", "wrong_result")])
def test_one_call_of_a_hopelessly_slow_program_is_enough(bench, made, tmp_path, and_then, status):
    for case in ("random", "large"):
        store_case(tmp_path, case, {"x": X, "z": X.astype(np.float64)})
    crawls = "for (int k = 0; k < 400000000; k++) { *(volatile float *)z = k; }"
    task = Measure(
        made(crawls + ALL + and_then),
        str(tmp_path),
        ("random", "large"),
        1e-5,
        Protocol(),
        cutoff_us=1e3,
    )
    reading = bench.call(task, timeout_s=30).value
    assert (reading.status, reading.rounds) == (status, 0)
    if status == "censored":
        [bound_us] = reading.samples_us
        assert 1e3 < bound_us < 1e6 * reading.check_s


def test_a_race_times_every_library_in_every_round(bench, made, tmp_path):
    store_case(tmp_path, "random", {"x": X, "z": X.astype(np.float64)})
    slow = made("for (int k = 0; k < 1000; k++) { *(volatile float *)z = k; }" + ALL)
    task = Race(
        (slow, made(ALL)), str(tmp_path), "random", np.array([[0, 1], [1, 0]] * 2), 2, 20.0
    )
    blocks = bench.call(task, timeout_s=30).value
    assert blocks.shape == (4, 2)
    assert (blocks[:, 0] > blocks[:, 1]).all()


def test_a_race_lets_programs_work_on_the_same_outputs(bench, made, tmp_path):
    store_case(tmp_path, "random", {"x": X, "z": X.astype(np.float64)})
    sets = made("z[1] = 1e5f;")
    # In a buffer of its own it would find poison, which nothing is less than.
    spins = made("for (int k = 0; k < z[1]; k++) { *(volatile float *)z = k; }")
    task = Race((sets, spins), str(tmp_path), "random", np.array([[0, 1]] * 3), 2, 20.0)
    blocks = bench.call(task, timeout_s=30).value
    assert (blocks[:, 1] > 100 * blocks[:, 0]).all()


def test_programs_of_a_race_share_the_buffers_that_are_the_same():
    first = Memory((*BLOCKS, Block("t", "tmp", "f32", (4,), 4)))
    second = Memory((*BLOCKS, Block("t", "tmp", "f32", (6,), 6)), beside=[first])
    assert list(second.pointers)[:2] == list(first.pointers)[:2]
    assert second.pointers[2] != first.pointers[2]
    for memory in (first, second):
        memory.fill({"x": X})
    assert not second.damage({"x": X})


def test_programs_are_kept_as_long_as_the_bench(bench):
    binary = compile_program(parse(COPY), bench)
    outcome = bench.call(Run(binary, {"x": X}), timeout_s=30)
    np.testing.assert_array_equal(outcome.value["z"], X)


def test_inputs_must_fit(bench):
    with pytest.raises(ProgramError, match=r"input x is an array of \(8,\); got nothing"):
        run_program(parse(COPY), {}, bench=bench)
    with pytest.raises(ProgramError, match=r"got \(4,\)"):
        run_program(parse(COPY), {"x": X[:4]}, bench=bench)


def test_a_program_that_cannot_be_compiled_says_why(bench, monkeypatch):
    monkeypatch.setattr("kt_lab.runners.c.bench.emit_c", lambda _: "int f(")
    with pytest.raises(
        ProgramError, match=r"copy must compile and run, got compile_error: .*error"
    ):
        run_program(parse(COPY), {"x": X}, bench=bench)


def test_a_closed_bench_takes_nothing():
    with Bench() as one:
        folder = one.folder
    assert not folder.exists()
    with pytest.raises(UsageError, match="must be open"):
        one.submit(None, parse(COPY))


def test_compilers_are_found_or_said_to_be_missing(monkeypatch):
    chain = find_toolchain()
    assert chain.version
    assert "-ffast-math" not in chain.flags()
    assert "-DKT_THREADS=3" in chain.flags(3)
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(UsageError, match="got none of no-such-compiler -m64"):
        find_toolchain()
    with pytest.raises(UsageError, match="threads and lanes must be >= 1, got 0"):
        Bench(threads=0, toolchain=chain)


@pytest.mark.parametrize(
    ("macros", "vectors"),
    [
        ("__AVX512F__ 1;__AVX__ 1;__SSE2__ 1", 32),
        ("__SSE2__ 1;__AVX__ 1;__AVX2__ 1", 8),
        ("__aarch64__ 1", 8),
        ("__SSE2__ 1", 4),
        ("__m68k__ 1", 4),
    ],
)
def test_a_compiler_tells_how_much_the_registers_hold(tmp_path, macros, vectors):
    said = "\n".join(f"#define {macro}" for macro in macros.split(";") if macro)
    (tmp_path / "said").write_text(said + "\n")
    (tmp_path / "cc").write_text(f"#!/bin/sh\ncat {tmp_path / 'said'}\n")
    (tmp_path / "cc").chmod(0o755)
    assert find_toolchain(str(tmp_path / "cc")).vectors() == vectors
