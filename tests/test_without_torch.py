"""What replays needs no torch: a laptop's JupyterLab is installed without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

POOLED = """
from kt_lab import Budget
from kt_lab.experiment import Experiment, process_pool

if __name__ == "__main__":
    names = ["random", "lfbo_pattern", "tpe", "scout"]
    experiment = Experiment("x", ["softmax/4096x640"], names, seeds=1, budget=Budget(trials=20))
    with process_pool(1) as pool:
        assert len(experiment.run(executor=pool)) == 80
"""

SOURCES = """
from kt_lab.kernels import REGISTRY, get_kernel
from kt_lab.provenance import kernel_source

found = {name: kernel_source(get_kernel(name)) for name in REGISTRY}
assert len(set(found.values())) == len(found) > 20
"""

PLAYED = """
from kt_lab.evidence import dojo_figures, learners

lesson = learners.lesson(dojo_figures.stored("learners"), "row_sum/512x1024", "multiply/65536")
assert lesson["stored"]
assert len(lesson["walk"]) > 2
assert lesson["walk"]["value"].notna().sum() == len(lesson["walk"]) - 1
"""


@pytest.fixture
def run(tmp_path):
    """Runs a program where torch and triton are missing, also for the processes it starts."""
    for name in ("torch", "triton"):
        missing = f"raise ModuleNotFoundError({name!r}, name={name!r})"
        (tmp_path / f"{name}.py").write_text(missing)
    paths = os.pathsep.join(map(str, (tmp_path, ROOT)))

    def run(program):
        path = tmp_path / "program.py"
        path.write_text(program)
        done = subprocess.run(
            [sys.executable, str(path)],
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]

    return run


@pytest.mark.parametrize("program", [POOLED, SOURCES, PLAYED], ids=["pool", "sources", "policy"])
def test_it_runs_where_torch_is_missing(run, program):
    run(program)
