"""Options of every searcher tuned on one kernel, to be judged on the others; equal effort for all.

Each searcher gets the same number of candidate options: its defaults, and random changes of them.
A candidate's score on a kernel is its geomean quality over that kernel's workloads, seeds and
budgets; seeds are none of those that studies use. What is chosen on one kernel is meant for the
other kernels' workloads (`kt_lab.studies.tuned`): options are never judged where they were chosen.
"""

import argparse
import random
import zlib
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.cells import Cell, run_cell
from kt_lab.errors import KtLabError
from kt_lab.experiment import process_pool
from kt_lab.landscape import load_landscape
from kt_lab.provenance import provenance
from kt_lab.search import get_searcher, make_searcher
from kt_lab.stats.budgets import workload_logs
from kt_lab.studies import FIELD, GPU, WORKLOADS, field_row

BUDGETS = (50, 100, 200)
_FIRST_SEED = 10_000
_CHANGED = 0.5  # chance that an option of a candidate is not the default
_FACTORS = (0.25, 0.5, 2.0, 4.0)
_SIZES = (8, 16, 32, 64, 128, 256)  # of an option whose default follows from the space
# How a row reads its space, what it is, or how it is seeded: no matter of tuning.
_KEPT = {
    "random_state",
    "sampler",
    "project",
    "max_burnt",
    "multivariate",
    "effort",
    "evaluations",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the effort, which is the same for every searcher."""
    parser.add_argument("--candidates", type=int, default=8, help="options tried per searcher")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--searchers", nargs="+", default=None, help="rows of the field")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Tries all candidates; returns their scores and, per kernel, the best of each searcher."""
    rows = [name for name in args.searchers or FIELD if not name.endswith("_uniform")]
    space = load_landscape(args.workloads[0], gpu=GPU).space
    tried = {n: candidates((n, *field_row(n)), space, args.candidates) for n in rows}
    tried = {name: found for name, found in tried.items() if len(found) > 1}
    cells = [
        _cell(name, number, options, workload, seed)
        for name, found in tried.items()
        for number, options in enumerate(found)
        for workload in args.workloads
        for seed in range(args.seeds)
    ]
    with process_pool(args.workers) as executor:
        runs = pd.concat(executor.map(run_cell, cells, chunksize=4), ignore_index=True)
    scores = _scores(runs)
    chosen = {
        kernel: {name: _best(name, found, scores[kernel]) for name, found in tried.items()}
        for kernel in scores
    }
    return {
        "candidates": args.candidates,
        "seeds": args.seeds,
        "budgets": list(BUDGETS),
        "scores": scores,
        "tried": tried,
        "chosen": chosen,
        "provenance": provenance(),
    }


def candidates(row: tuple[str, str, dict], space: Any, count: int) -> list[dict[str, Any]]:
    """Returns up to `count` different options of a searcher, its defaults first.

    Args:
        row: Name of the row, which seeds the draws; registered name; options that stay.
        space: Where they must be accepted.
        count: How many; fewer where a searcher has few options.
    """
    name, algorithm, fixed = row
    rng = random.Random(zlib.crc32(name.encode()))
    open_ = [
        f for f in fields(get_searcher(algorithm).Options) if f.name not in _KEPT | fixed.keys()
    ]
    found: list[dict[str, Any]] = [{}]
    for _ in range(50 * count):
        if len(found) == count:
            break
        drawn = {f.name: _changed(f, rng) for f in open_ if rng.random() < _CHANGED}
        drawn = {k: v for k, v in drawn.items() if v is not None}
        if drawn not in found and _accepted(algorithm, space, fixed | drawn):
            found.append(drawn)
    return found


def _changed(field: Any, rng: random.Random) -> Any:
    """Returns another value of an option; None where there is none."""
    default, meta = field.default, field.metadata
    if meta["choices"]:
        return rng.choice([v for v in meta["choices"] if v != default])
    if isinstance(default, bool):
        return not default
    if default is None:
        return rng.choice(_SIZES) if "int" in str(field.type) else None
    value = default * rng.choice(_FACTORS)
    value = round(value) if isinstance(default, int) else value
    low, high = meta["low"], meta["high"]
    value = value if low is None else max(low, value)
    value = value if high is None else min(high, value)
    return None if value == default else value


def _accepted(algorithm: str, space: Any, options: dict[str, Any]) -> bool:
    try:
        make_searcher(algorithm, space, seed=0, **options).close()
    except KtLabError:
        return False
    return True


def _cell(name: str, number: int, options: dict, workload: str, seed: int) -> Cell:
    algorithm, fixed = field_row(name)
    return Cell(
        workload=workload,
        gpu=GPU,
        searcher=f"{name}#{number}",
        algorithm=algorithm,
        options=tuple(sorted((fixed | options).items())),
        lanes=16,
        seed=_FIRST_SEED + seed,
        trials=max(BUDGETS),
        seconds=None,
    )


def _scores(runs: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Returns per kernel and candidate the mean log latency; null where a run found nothing."""
    logs = workload_logs(runs, BUDGETS)
    table = logs.groupby(["kernel", "workload", "searcher"], observed=True)["log"].mean()
    means = table.groupby(["kernel", "searcher"], observed=True).mean()
    return {
        str(kernel): {
            str(k): float(v) if np.isfinite(v) else None
            for k, v in part.droplevel("kernel").items()
        }
        for kernel, part in means.groupby("kernel")
    }


def _best(name: str, found: list[dict], scores: dict[str, float | None]) -> dict[str, Any]:
    """Returns the candidate with the lowest score; the defaults where it is a tie."""
    known = [scores[f"{name}#{number}"] for number in range(len(found))]
    return found[int(np.argmin([np.inf if score is None else score for score in known]))]


def report(result: dict[str, Any]) -> str:
    """Returns what was chosen, for people."""
    lines = []
    for kernel, chosen in result["chosen"].items():
        lines.append(f"best on {kernel}, latency over that of the defaults:")
        for name, options in chosen.items():
            scores = result["scores"][kernel]
            number = result["tried"][name].index(options)
            best, default = scores[f"{name}#{number}"], scores[f"{name}#0"]
            gain = np.exp(best - default) if default is not None else np.nan
            told = ", ".join(f"{k}={v}" for k, v in options.items()) or "defaults"
            lines.append(f"  {name:26s} {gain:.3f}  {told}")
    return "\n".join(lines)
