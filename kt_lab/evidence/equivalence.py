"""Are the searchers here as good as the real classes that they reproduce? By replay, many seeds.

Every searcher runs beside Helion's own class over the same landscapes, noise, failures and clock,
with the options of both at Helion's full effort. Two one-sided tests decide at each budget.
"""

import argparse
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab import stats
from kt_lab.budget import Budget
from kt_lab.experiment import Experiment, process_pool
from kt_lab.provenance import provenance
from kt_lab.stats.budgets import workload_logs
from kt_lab.studies import GPU, WORKLOADS

PAIRS = {
    "pattern": "helion_pattern",
    "lfbo_pattern": "helion_lfbo_pattern",
    "lfbo_tree": "helion_lfbo_tree",
    "differential_evolution": "helion_de",
    "de_surrogate": "helion_de_surrogate",
}
BUDGETS = (50, 100, 200)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds how much to replay."""
    parser.add_argument("--searchers", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--margin", type=float, default=0.01, help="of equivalence, a fraction")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--directory", type=Path, help="where to resume from, and keep all runs")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Runs both arms of every pair; returns the tests, and each workload's means."""
    rows, arms = [], []
    pool = process_pool(args.workers) if args.workers > 1 else nullcontext()
    with tempfile.TemporaryDirectory() as scratch, pool as executor:
        for name in args.searchers:
            pair = (name, PAIRS[name])
            experiment = Experiment(
                f"equivalence_{name}",
                args.workloads,
                pair,
                seeds=args.seeds,
                budget=Budget(trials=max(BUDGETS)),
                gpu=GPU,
            )
            runs = experiment.run(directory=args.directory or Path(scratch), executor=executor)
            found = stats.equivalence(runs, *pair, margin=args.margin, budgets=(*BUDGETS, None))
            rows += found.to_dict("records")
            arms += _arms(runs)
    return {
        "searchers": args.searchers,
        "workloads": list(args.workloads),
        "seeds": args.seeds,
        "margin": args.margin,
        "tests": _plain(rows),
        "arms": _plain(arms),
        "provenance": provenance(),
    }


def _arms(runs) -> list[dict[str, Any]]:
    """Returns per budget, workload and searcher the mean and spread of log latencies."""
    table = workload_logs(runs, (*BUDGETS, None))
    keys = ["budget", "workload", "searcher"]
    found = table.groupby(keys, observed=True)["log"].agg(["mean", "std", "size"])
    found = found.rename(columns={"mean": "mean_log_us", "std": "sd_log", "size": "seeds"})
    return found.reset_index().to_dict("records")


def _plain(rows: list[dict]) -> list[dict]:
    """Returns rows for JSON: the end of a run is null, and so is what is not finite."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        return None if isinstance(value, float) and not np.isfinite(value) else value

    return [{name: plain(value) for name, value in row.items()} for row in rows]


def report(result: dict[str, Any]) -> str:
    """Returns the verdicts for people."""
    lines = [
        f"{len(result['workloads'])} workloads, {result['seeds']} seeds: latency of ours over the "
        f"real class's, 90 % interval, within {result['margin']:.0%} or not"
    ]
    for row in result["tests"]:
        budget = "end" if row["budget"] is None else f"{row['budget']:.0f}"
        lines.append(
            f"  {row['searcher']:24s} at {budget:>4s} trials: {row['estimate']:.4f} "
            f"[{row['low']:.4f}, {row['high']:.4f}] {row['verdict']}"
        )
    return "\n".join(lines)
