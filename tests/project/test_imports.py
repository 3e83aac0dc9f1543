"""Importing kt_lab and replaying cost no torch, no triton, no widgets and no figures."""

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "triton", "ipywidgets", "IPython", "matplotlib", "seaborn", "pynvml"}
FOREIGN = {"numpy", "pandas", "pyarrow", "scipy", "sklearn", "optuna"}
REPLAY_PATH = (
    "kt_lab",
    "kt_lab.kernels",
    "kt_lab.landscape",
    "kt_lab.runners.replay",
    "kt_lab.search",
    "kt_lab.tune",
    "kt_lab.experiment",
    "kt_lab.stats",
    "kt_lab.baseline",
    "kt_lab.cli",
    "kt_lab.doctor",
)


def loaded_by(*statements):
    """The top-level modules that a fresh interpreter has after some statements."""
    program = "\n".join(
        [*statements, "import json, sys", "print(json.dumps([m for m in sys.modules]))"]
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_the_package_itself_imports_nothing_foreign():
    assert not loaded_by("import kt_lab") & (HEAVY | FOREIGN)


def test_the_whole_replay_path_imports_nothing_heavy():
    assert not loaded_by(*(f"import {module}" for module in REPLAY_PATH)) & HEAVY


@pytest.mark.parametrize("module", REPLAY_PATH)
def test_each_module_of_the_replay_path_can_be_imported_first(module):
    """An import cycle shows only in the module that happens to be first."""
    assert "kt_lab" in loaded_by(f"import {module}")


def test_spaces_and_searchers_are_built_without_torch():
    statements = (
        "from kt_lab.kernels import workloads, get_kernel",
        "from kt_lab.search import make_searcher, searchers",
        "workload = workloads()[0]",
        "space = get_kernel(workload.kernel).space(workload)",
        "[make_searcher(name, space, seed=0).close() for name in ('random', 'lfbo_pattern')]",
    )
    assert not loaded_by(*statements) & HEAVY


def test_the_first_proposal_of_scout_waits_for_no_library():
    """Whoever searches pays for what the first `ask` loads: scikit-learn would cost 0.6 s."""
    statements = (
        "from kt_lab.kernels import workloads, get_kernel",
        "from kt_lab.search import make_searcher",
        "workload = workloads()[0]",
        "space = get_kernel(workload.kernel).space(workload)",
        "make_searcher('scout', space, seed=0).ask(4)",
    )
    assert not loaded_by(*statements) & (HEAVY | {"sklearn", "optuna"})


def test_figures_and_panels_open_without_the_library_of_statistics():
    """Whoever opens a notebook would wait for scipy.stats, which few results need."""
    panels = ("tuner", "compare", "landscape", "inspector", "program")
    loaded_by(
        *(f"import kt_lab.ui.{name}" for name in panels),
        "import sys, kt_lab.plots",
        "assert not {'scipy.stats', 'sklearn'} & set(sys.modules)",
    )
