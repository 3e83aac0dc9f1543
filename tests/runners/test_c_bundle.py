"""A library of tuned operators: what is built computes, from C and from Python."""

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest

from kt_lab.cli import main
from kt_lab.errors import ProgramError
from kt_lab.programs.expert import expert_schedule
from kt_lab.programs.operators import error, get_operator, get_workload
from kt_lab.runners.c.bundle import write_library

KEY = "row_sum/512x1024"
FIRST = "reuse s 0"  # illegal at the start: its rows are summed in a later scope


def test_a_built_library_computes(tmp_path, capsys):
    schedules = tmp_path / "schedules.json"
    schedules.write_text(json.dumps({KEY: ""}))
    folder = tmp_path / "library"
    assert main(["programs", "build", str(schedules), "--to", str(folder), "--name", "ops"]) == 0
    assert "row_sum_512x1024: " in capsys.readouterr().out
    assert "void kt_row_sum_512x1024(const float *x, float *s, float *z);" in (
        folder / "ops.h"
    ).read_text(encoding="utf-8")
    spec = importlib.util.spec_from_file_location("ops", folder / "ops.py")
    ops = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ops)
    operator, extents = get_operator("row_sum"), get_workload(KEY).extents
    inputs = operator.inputs(extents, seed=3)
    found = ops.call("row_sum_512x1024", inputs["x"])
    assert error(found, operator.expected(inputs)) < operator.tolerance(extents)
    again = ops.call("row_sum_512x1024", inputs["x"], out={"z": ops.empty((512,))})
    np.testing.assert_array_equal(again["z"], found["z"])
    frozen = ops.empty((512,))
    frozen.setflags(write=False)
    with pytest.raises(ValueError, match="z must be f32, contiguous, writeable and aligned"):
        ops.call("row_sum_512x1024", inputs["x"], out={"z": frozen})
    with pytest.raises(ValueError, match=r"out= must hold z, got \['y'\]"):
        ops.call("row_sum_512x1024", inputs["x"], out={"y": frozen})
    with pytest.raises(ValueError, match="x has the shape"):
        ops.call("row_sum_512x1024", inputs["x"][:4])
    x = ops.empty((512, 1024))
    x[:] = inputs["x"]
    with pytest.raises(ValueError, match=r"share no memory .* got z on that of x; give out="):
        ops.call("row_sum_512x1024", x, out={"z": x.reshape(-1)[:512]})
    np.testing.assert_array_equal(x, inputs["x"])
    one = {"dtype": "f32", "shape": [4]}
    ops.TABLE["two"] = {"buffers": [one | {"name": n, "kind": "out"} for n in ("y", "z")]}
    whole = ops.empty((20,))
    with pytest.raises(ValueError, match=r"share no memory .* got y on that of z"):
        ops.call("two", out={"y": whole[:4], "z": whole[:4]})
    record = json.loads((folder / "ops.json").read_text(encoding="utf-8"))
    assert record["functions"]["row_sum_512x1024"]["schedule"] == ""


_FORKED = """
import os, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import ops
x = np.ones((512, 1024), np.float32)
if sys.argv[2] == "called":
    ops.call("row_sum_512x1024", x)
child = os.fork()
if child == 0:
    try:
        print(ops.call("row_sum_512x1024", x)["z"][0])
    except RuntimeError as error:
        print(error)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_process_does_not_wait_for_threads_that_it_has_not(tmp_path):
    """OpenMP's stay in the parent, if it called; a child of one that did not starts its own."""
    start = get_operator("row_sum").program(get_workload(KEY).extents)
    write_library(tmp_path, {KEY: expert_schedule(start, threads=2)}, name="ops", threads=2)
    for first, said in (("called", "was called before this process was forked"), ("not", "1024")):
        command = [sys.executable, "-c", _FORKED, str(tmp_path), first]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert said in done.stdout, (first, done.stdout, done.stderr)


def test_what_does_not_replay_is_no_library(tmp_path):
    with pytest.raises(ProgramError, match=r"schedule of row_sum/16384x1024 must .* reuse"):
        write_library(tmp_path / "library", {KEY: "", "row_sum/16384x1024": FIRST})
    assert not list(tmp_path.iterdir())
