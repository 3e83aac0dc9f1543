"""What the searchers' own thinking costs beside the real classes: CPU seconds, one thread each."""

import argparse
import os
from typing import Any

import numpy as np

from kt_lab.budget import Budget
from kt_lab.evidence.equivalence import PAIRS
from kt_lab.landscape import load_landscape
from kt_lab.provenance import provenance
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import make_searcher
from kt_lab.studies import GPU, WORKLOADS
from kt_lab.tune import tune_whole

_WHOLE = Budget(trials=100_000)  # no limit: every run goes on until its searcher is done
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to run."""
    parser.add_argument("--searchers", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--seeds", type=int, default=3)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Runs both of every pair to their own end, in alternation, in this process."""
    os.environ.update(dict.fromkeys(THREADS, "1"))
    rows = []
    for name in args.searchers:
        pair = (name, PAIRS[name])
        for one in pair:  # imports and first calls are nobody's cost
            _once(one, args.workloads[0], seed=10_000)
        for workload in args.workloads:
            for seed in range(args.seeds):
                order = pair if seed % 2 == 0 else pair[::-1]
                found = {one: _once(one, workload, seed=seed) for one in order}
                (ours, trials), (theirs, others) = (found[one] for one in pair)
                rows.append(
                    {
                        "searcher": name,
                        "reference": pair[1],
                        "workload": workload,
                        "seed": seed,
                        "search_s": ours,
                        "reference_s": theirs,
                        "trials": trials,
                        "reference_trials": others,
                    }
                )
    return {"rows": rows, "provenance": provenance()}


def _once(name: str, workload: str, *, seed: int) -> tuple[float, int]:
    """Returns a whole run's CPU seconds of the searcher, and its trials."""
    landscape = load_landscape(workload, gpu=GPU)
    searcher = make_searcher(name, landscape.space, seed=seed)
    history = tune_whole(searcher, ReplayRunner(landscape, seed=seed), budget=_WHOLE)
    return history[-1].search_s, history.trials_spent


def ratios(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Returns per searcher the geomean ratio of CPU seconds, and its range over workloads."""
    found = {}
    for name in dict.fromkeys(row["searcher"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["searcher"] == name]
        whole = {w: [r for r in rows if r["workload"] == w] for w in {r["workload"] for r in rows}}
        seconds = {w: _ratio(part, "search_s", "reference_s") for w, part in whole.items()}
        trials = {w: _ratio(part, "trials", "reference_trials") for w, part in whole.items()}
        logs = np.log(list(seconds.values()))
        found[name] = {
            "seconds": float(np.exp(logs.mean())),
            "low": float(np.exp(logs.min())),
            "high": float(np.exp(logs.max())),
            "trials": float(np.exp(np.log(list(trials.values())).mean())),
        }
    return found


def _ratio(rows: list[dict], own: str, other: str) -> float:
    return sum(row[own] for row in rows) / sum(row[other] for row in rows)


def report(result: dict[str, Any]) -> str:
    """Returns the ratios for people."""
    lines = ["CPU seconds of whole runs, ours over the real class's (range over workloads):"]
    for name, row in ratios(result).items():
        lines.append(
            f"  {name:24s} {row['seconds']:.3f} ({row['low']:.3f} to {row['high']:.3f}), "
            f"with {row['trials']:.2f} of its trials"
        )
    return "\n".join(lines)
