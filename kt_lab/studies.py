"""The stored studies: which searchers, workloads, seeds and budgets each of them compares."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from kt_lab.budget import Budget
from kt_lab.cells import CATEGORIES
from kt_lab.errors import StoreError
from kt_lab.experiment import Experiment, load_runs
from kt_lab.landscape import data_directory

GPU = "h200"
NAMED = ("int4_gemm/1x1x7168x8192", "softmax/4096x640")  # the convergence plots of Helion #1115
WORKLOADS = (
    "int4_gemm/1x1x7168x8192",
    "int4_gemm/1x16x7168x8192",
    "int4_gemm/1x64x14336x4096",
    "int4_gemm/1x1x4096x28672",
    "int4_gemm/1x2048x2048x2048",
    "softmax/4096x640",
    "softmax/65536x512",
    "softmax/8192x8192",
    "softmax/256x128256",
)
KERNELS = ("int4_gemm", "softmax")
SEARCHERS = ("random", "pattern", "lfbo_pattern", "tpe")
LANES = (4, 16)
REFERENCE = "pattern"


def headline() -> Experiment:
    """Returns the experiment behind the README's figures."""
    return Experiment(
        "headline",
        WORKLOADS,
        SEARCHERS,
        seeds=30,
        budget=Budget(trials=300),
        lanes=LANES,
        gpu=GPU,
    )


def ablations() -> Experiment:
    """Returns the experiment that tells searchers from the sampler of their starts."""
    return Experiment(
        "ablations",
        WORKLOADS,
        {
            "pattern": "pattern",
            "pattern_uniform": ("pattern", {"starts": "uniform"}),
            "lfbo_pattern": "lfbo_pattern",
            "lfbo_uniform": ("lfbo_pattern", {"starts": "uniform"}),
        },
        seeds=30,
        budget=Budget(trials=300),
        lanes=(16,),
        gpu=GPU,
    )


_HELION = (
    "helion_lfbo_tree",
    "helion_lfbo_pattern",
    "helion_pattern",
    "helion_de",
    "helion_de_surrogate",
)
_UNIFORM = {"starts": "uniform"}
FIELD = {
    **{
        name: name
        for name in (
            "random",
            "pattern",
            "lfbo_pattern",
            "lfbo_tree",
            "differential_evolution",
            "de_surrogate",
            "ucb_pattern",
            "coordinate_descent",
            "simulated_annealing",
            "genetic",
            "max_q",
            "tpe",
            *_HELION,
            "kt_adaptive_tabu_greywolf",
            "kt_hybrid_vndx",
            "kt_genetic",
            "kt_dual_annealing",
            "kt_bayes_opt",
            "kt_greedy_ils",
        )
    },
    "optuna_cmaes": ("optuna", {"sampler": "cmaes"}),
    "optuna_qmc": ("optuna", {"sampler": "qmc"}),
    **{f"{name}_uniform": (name, _UNIFORM) for name in _HELION},
}
"""Rows of the field: all searchers at their defaults, and Helion's with uniform starts, which tell
its search from its sampler."""

_OF_A_FIELD = {"budget": Budget(trials=200), "lanes": (16,), "gpu": GPU}


def field(kernel: str) -> Experiment:
    """Returns the experiment that compares every searcher with its real peers on one kernel."""
    return Experiment(f"field_{kernel}", _workloads(kernel), FIELD, seeds=20, **_OF_A_FIELD)


def field_row(name: str) -> tuple[str, dict[str, Any]]:
    """Returns the registered name and the options of a row of the field."""
    row = FIELD[name]
    return (row, {}) if isinstance(row, str) else row


def _workloads(kernel: str) -> list[str]:
    return [w for w in WORKLOADS if w.partition("/")[0] == kernel]


def tuned(kernel: str) -> Experiment:
    """Returns the field on one kernel's workloads, with options tuned on another kernel.

    The options are those that `kt-lab evidence tuning` found best, the same effort for every
    searcher. Rows are named as in the field, with "_tuned" behind.

    Args:
        kernel: Whose workloads are run.

    Raises:
        StoreError: No tuning is stored, or none on exactly one other kernel.
    """
    path = data_directory() / "evidence" / "tuning.json"
    if not path.exists():
        raise StoreError("options must have been tuned, got none; run kt-lab evidence tuning")
    others = {k: v for k, v in json.loads(path.read_text())["chosen"].items() if k != kernel}
    if len(others) != 1:
        raise StoreError(
            f"options for {kernel} must come from one other kernel, got {sorted(others)}"
        )
    (chosen,) = others.values()
    rows = {}
    for name, options in chosen.items():
        algorithm, fixed = field_row(name)
        rows[f"{name}_tuned"] = (algorithm, {**fixed, **options})
    return Experiment(f"tuned_{kernel}", _workloads(kernel), rows, seeds=10, **_OF_A_FIELD)


STUDIES: Mapping[str, Callable[[], Experiment]] = {
    "headline": headline,
    "ablations": ablations,
    **{f"field_{kernel}": partial(field, kernel) for kernel in KERNELS},
    **{f"tuned_{kernel}": partial(tuned, kernel) for kernel in KERNELS},
}


def stored(experiment: Experiment) -> Path:
    """Returns where a study's runs are kept."""
    return data_directory() / "runs" / experiment.name / f"{experiment.name}.parquet"


def load_study(*experiments: Experiment) -> pd.DataFrame:
    """Loads stored studies as one table, if each answers its very request."""
    return pd.concat([_load(experiment) for experiment in experiments], ignore_index=True).astype(
        dict.fromkeys(CATEGORIES, "category")
    )


def load_field() -> pd.DataFrame:
    """Loads the stored field, all kernels together."""
    return load_study(*map(field, KERNELS))


def load_tuned() -> pd.DataFrame:
    """Loads the stored runs with tuned options, all kernels together."""
    return load_study(*map(tuned, KERNELS))


def _load(experiment: Experiment) -> pd.DataFrame:
    path = stored(experiment)
    if not path.exists():
        raise StoreError(
            f"study {experiment.name!r} must have been run, got no {path.name}; "
            f"run kt-lab study {experiment.name}"
        )
    return load_runs(path, expect=experiment.facts())
