"""Triton made from programs: right in the interpreter, refused where it cannot be, compiled."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kt_lab.errors import ProgramError, UnknownName
from kt_lab.inspect import inspect_space
from kt_lab.kernels import subject
from kt_lab.programs import triton_device
from kt_lab.programs.emit_triton import emit_triton
from kt_lab.programs.operators import get_operator, operators
from kt_lab.programs.schedule import parse_schedule, replay, schedule_text
from kt_lab.programs.text import parse
from kt_lab.programs.triton_kernel import triton_kernel
from kt_lab.programs.triton_schedules import triton_schedules
from kt_lab.programs.walks import walk
from kt_lab.workload import Workload

HERE = Path(__file__).parent
# One row, one column, blocks that do not divide a row, and no power of two anywhere.
ROWS = [{"rows": 1, "cols": 37}, {"rows": 5, "cols": 1}, {"rows": 3, "cols": 300}]
IMAGES = [{"n": 1, "c": 3, "h": 5, "w": 29}, {"n": 3, "c": 1, "h": 1, "w": 1}]
FLAT = [{"elements": 1}, {"elements": 300}]
SHAPES = {
    "multiply": FLAT,
    "add_relu": FLAT,
    "bias_gelu": ROWS[1:],
    "row_sum": ROWS,
    "softmax": ROWS,
    "layer_norm": ROWS,
    "rms_norm": ROWS,
    "batch_norm": IMAGES,
    "batch_norm_training": IMAGES,
    "attention_scores": [{"heads": 2, "queries": 3, "keys": 130}],
}
WALKED = {"softmax": {"rows": 4, "cols": 12}, "layer_norm": {"rows": 4, "cols": 12}}
WALKED |= {"batch_norm": {"n": 2, "c": 4, "h": 2, "w": 6}, "multiply": {"elements": 24}}


def interpreted(cases):
    done = subprocess.run(
        [sys.executable, str(HERE / "interpret_triton.py")],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(HERE.parents[1])},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def case(operator, extents, schedules):
    return {"operator": operator, "extents": extents, "schedules": schedules}


def walked(operator, extents, *, seeds):
    """Returns random legal schedules that lower, behind the shipped ones, and the refusals."""
    start = get_operator(operator).program(extents)
    lowered, refusals = {}, []
    for base in ["", *triton_schedules(start).values()]:
        for seed in range(seeds):
            moves = list(parse_schedule(base))
            program = replay(start, moves)
            for step in walk(program, seed=seed, length=8):
                moves.append(step.move)
                program = step.program
            try:
                text = emit_triton(program).text
            except ProgramError as refusal:
                refusals.append(str(refusal))
            else:
                lowered.setdefault(text, schedule_text(moves))
    return list(lowered.values()), refusals


def shipped(operator, extents):
    schedules = triton_schedules(get_operator(operator).program(extents))
    assert schedules, f"no schedule of {operator} lowers at {extents}"
    return case(operator, extents, schedules)


@pytest.fixture(scope="module")
def runs():
    """Cases with random schedules, then those that ship, all refusals, and what came out."""
    found, refusals = [], []
    for operator, extents in WALKED.items():
        lowered, refused = walked(operator, extents, seeds=12)
        found.append(case(operator, extents, {f"s{k}": s for k, s in enumerate(lowered)}))
        refusals += refused
    found += [shipped(operator, extents) for operator, many in SHAPES.items() for extents in many]
    return found, refusals, interpreted(found)


def test_shipped_schedules_are_right_at_awkward_shapes(runs):
    cases, _, answers = (some[len(WALKED) :] for some in runs)
    assert len(cases) == len(answers) == sum(map(len, SHAPES.values()))
    assert not [(c, a["wrong"]) for c, a in zip(cases, answers, strict=True) if a["wrong"]]
    assert sum(a["configs"] for a in answers) >= 50


def test_random_schedules_that_lower_are_right_and_others_are_refused_by_a_law(runs):
    cases, refusals, answers = runs
    assert sum(len(c["schedules"]) for c in cases[: len(WALKED)]) >= 30
    assert len(refusals) >= 30
    assert all(len(text.split("; ")) == 3 for text in refusals)  # law; found; next step
    assert not [a["wrong"] for a in answers[: len(WALKED)] if a["wrong"]]


@pytest.mark.slow
def test_many_random_schedules_of_all_operators_are_right():
    cases = []
    for operator in SHAPES:
        extents = WALKED.get(operator, get_operator(operator).tiny)
        lowered, _ = walked(operator, extents, seeds=100)
        cases.append(case(operator, extents, {f"s{k}": s for k, s in enumerate(lowered)}))
    assert sum(len(c["schedules"]) for c in cases) >= 500
    assert not [a["wrong"] for a in interpreted(cases) if a["wrong"]]


def test_the_schedule_decides_between_one_pass_and_several():
    start = get_operator("softmax").program({"rows": 8, "cols": 100})
    kernels = {k: emit_triton(replay(start, s)) for k, s in triton_schedules(start).items()}
    kept, recomputed = kernels["kept"], kernels["recomputed"]
    assert (kept.kept, kept.looped, kept.text.count("tl.load")) == ((100,), False, 1)
    assert (recomputed.kept, recomputed.looped) == ((), True)
    assert recomputed.text.count("tl.load") == 3
    assert emit_triton(replay(start, triton_schedules(start)["kept"])) == kept


def test_marks_decide_what_a_program_of_the_launch_takes():
    start = replay(
        get_operator("batch_norm").program({"n": 4, "c": 6, "h": 1, "w": 8}), "inline 0.0"
    )
    assert emit_triton(start).rows == 24
    threaded = emit_triton(replay(start, "parallelise 0"))
    assert threaded.rows == 4
    assert "for i1 in tl.range(0, 6):" in threaded.text
    unrolled = emit_triton(replay(start, "unroll 0.0.0; parallelise 0.0"))
    assert "for i2 in tl.static_range(0, 8):" in unrolled.text


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ("", "fuse the nests"),
        ("fuse 0; fuse 0", "reuse_dim s along the rows, then place s reg or stack"),
        ("place s stack", "fuse the nests"),
    ],
)
def test_what_needs_memory_is_refused_with_the_move_that_helps(schedule, told):
    program = replay(get_operator("row_sum").program({"rows": 4, "cols": 6}), schedule)
    with pytest.raises(ProgramError, match=told):
        emit_triton(program)


def written(*lines, tmp="t f32 [4] stack", out="z f32 [4]"):
    return parse(
        "\n".join(["kernel k", "in x f32 [4,5]", f"tmp {tmp}", f"out {out}", "---", *lines])
    )


@pytest.mark.parametrize(
    ("program", "law"),
    [
        (written("4", "| t[{0}] += x[{0},0]", "| z[{0}] = t[{0}]"), "keeps what is read"),
        (written("4", "| z[{0}] = x[{0},0]", "| z[{0}] += x[{0},1]"), "a result is never read"),
        (written("4", "| 5", "| | z[{0}] = x[{0},{1}]"), "written once"),
        (written("4", "| z[{0}] = x[{0},0]", "| z[3-{0}] = x[{0},1]"), "written once"),
        (
            written("4", "| t[0] = x[{0},0]", "| z[{0}] = t[0]", tmp="t f32 [1] heap"),
            "outermost scope do not depend",
        ),
        (  # in row 3 both are one element
            written("4", "| t[{0}] = x[{0},0]", "| t[3] = x[{0},1]", "| z[{0}] = t[{0}] + t[3]"),
            "lanes hand on their own element",
        ),
        (  # a row asks for what one of its lanes has
            written(
                "4", "| 5", "| | t[{1}] = x[{0},{1}]", "| z[{0}] = t[2]", tmp="t f32 [5] stack"
            ),
            "lanes hand on their own element",
        ),
        (  # a loop that must stay one fills an array
            written(
                "4",
                "| 5",
                "| | t[{1}] = x[{0},{1}]",
                "| | t[4] = t[{1}]",
                "| z[{0}] = t[4]",
                tmp="t f32 [5] stack",
            ),
            "fixed, or chosen by the lane",
        ),
        (written("4", "| z[{0}] = tanh(x[{0},0])"), "a function is one of"),
    ],
)
def test_what_cannot_be_proven_is_refused(program, law):
    with pytest.raises(ProgramError, match=law):
        emit_triton(program)


def test_a_loop_whose_iterations_depend_on_each_other_stays_a_loop():
    sum_ = [
        "4",
        "| t[{0}] = 0",
        "| 5",
        "| | t[{0}] = t[{0}] * 2 + x[{0},{1}]",
        "| z[{0}] = t[{0}]",
    ]
    found = emit_triton(written(*sum_))
    assert (found.tiles, found.looped) == ((), False)
    assert "    for i1 in tl.range(0, 5):\n" in found.text
    last = emit_triton(written("4", "| 5", "| | t[{0}] = x[{0},{1}]", "| z[{0}] = t[{0}]")).text
    assert last.index("t = tl.zeros([ROWS], tl.float32)") < last.index("for i1")


def test_a_result_that_passes_the_caches_says_so():
    program = get_operator("multiply").program({"elements": 8})
    assert ".cs" not in emit_triton(program).text
    assert 'cache_modifier=".cs"' in emit_triton(replay(program, "place z nt")).text


def test_names_of_buffers_never_hide_what_the_kernel_needs():
    text = "kernel k\nin tl f32 [4]\nin row f32 [4]\nout for f32 [4]\n---\n4\n"
    text += "| for[{0}] = tl[{0}] * row[{0}]\n"
    compile(emit_triton(parse(text)).text, "k", "exec")


def test_the_source_is_named_by_the_programs(tmp_path):
    workload = Workload("softmax", "4x6", {"rows": 4, "cols": 6}, "float32")
    first, again = (triton_kernel("softmax", workload, folder=tmp_path) for _ in range(2))
    assert first.device == again.device
    recomputed = triton_schedules(get_operator("softmax").program(workload.extents))["recomputed"]
    other = triton_kernel("softmax", workload, folder=tmp_path, schedules={"kept": recomputed})
    assert other.device != first.device
    with pytest.raises(ProgramError, match="outermost scope"):
        triton_kernel("softmax", workload, folder=tmp_path, schedules={"start": ""})
    with pytest.raises(ProgramError, match="must be an identifier, got my-best"):
        triton_kernel("softmax", workload, folder=tmp_path, schedules={"my-best": recomputed})
    with pytest.raises(ProgramError, match="must be the registered one"):
        triton_kernel(replace(get_operator("softmax")), workload, folder=tmp_path)
    own = replace(get_operator("softmax"), name="my_softmax")
    with pytest.raises(UnknownName, match="'my_softmax'"):
        triton_kernel(own, workload, folder=tmp_path)


def test_every_operator_that_lowers_has_a_baseline():
    lowering = [o.name for o in operators() if triton_schedules(o.program(o.tiny))]
    assert "matmul" in lowering
    assert set(lowering) <= set(triton_device._TORCH)


@pytest.mark.parametrize("operator", SHAPES)
def test_spaces_exist_at_the_shapes_of_models(operator, tmp_path):
    for workload in get_operator(operator).workloads:
        kernel = triton_kernel(operator, workload, folder=tmp_path)
        space = kernel.space(kernel.workloads[0])
        assert space.contains(space.default)
        assert 20 <= space.size <= 2000
        assert kernel.bytes_moved(kernel.workloads[0]) > 0


def compiled(operators, cache):
    told = {}
    for operator in operators:
        kernel = triton_kernel(operator, get_operator(operator).workloads[1], folder=cache)
        (shape,) = kernel.workloads
        space = kernel.space(shape)
        first = {c["SCHEDULE"]: c for c in reversed(space.configs(space.enumerate()))}
        first[space.default["SCHEDULE"]] = space.default
        if space.default.get("num_stages"):
            deep = (c for c in space.configs(space.enumerate()) if c["num_stages"] == 3)
            first["pipelined"] = next(deep, space.default)
        rows = [space.row(config) for config in first.values()]
        asked = {"rows": rows, "workers": 1, "cache": cache}
        found = inspect_space(subject(shape, kernel), space, **asked).table
        told |= {(operator, r["SCHEDULE"]): (r["error"], r["spills"]) for _, r in found.iterrows()}
    return told


def test_both_kinds_of_softmax_compile_for_a_hopper(tmp_path):
    told = compiled(["softmax"], tmp_path)
    assert told == dict.fromkeys([("softmax", "kept"), ("softmax", "recomputed")], ("", 0))


@pytest.mark.slow
def test_all_kernels_compile_for_a_hopper(tmp_path):
    told = compiled(SHAPES, tmp_path)
    assert len(told) >= 16
    assert set(told.values()) == {("", 0)}, told


def test_a_softmax_that_loses_a_tail_is_told_from_one_that_rounds(tmp_path):
    operator = get_operator("softmax")
    workload = operator.workloads[0]
    kernel = triton_kernel(operator, workload, folder=tmp_path)
    inputs = operator.inputs(workload.extents)
    (right,) = operator.expected(inputs).values()
    lost = right / right[:, :-16].sum(axis=1, keepdims=True)  # the last 16 are not summed up

    def passes(found):
        return (np.abs(found - right) <= kernel.atol + kernel.rtol * np.abs(right)).all()

    assert passes(right.astype(np.float32) * np.float32(1 + 1e-6))
    assert not passes(lost)
