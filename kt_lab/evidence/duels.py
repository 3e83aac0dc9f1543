"""Confirmation's level on a real GPU: the same launch under two names, dueling again and again."""

import argparse
import time
from typing import Any

import scipy

from kt_lab.budget import Budget
from kt_lab.confirm import Rule, confirm
from kt_lab.provenance import provenance
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.search import make_searcher
from kt_lab.trial import Config, History
from kt_lab.tune import tune_whole

WORKLOADS = ("softmax/4096x640", "int4_gemm/1x1x7168x8192")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds how many duels, of how many pairs."""
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--duels", type=int, default=300, help="per workload")
    parser.add_argument("--trials", type=int, default=150, help="random configs to find twins in")
    parser.add_argument("--seconds", type=float, default=120.0, help="per workload, at most")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Finds configs with identical launches by a short random search and lets them duel."""
    rows, facts = [], {}
    for workload in args.workloads:
        with GpuRunner(workload) as runner:
            searcher = make_searcher("random", runner.space, seed=1)
            history = tune_whole(searcher, runner, budget=Budget(trials=args.trials))
            pairs = twins(history)
            rows.append({"workload": workload, "pairs": len(pairs)} | _duels(runner, pairs, args))
            facts = runner.facts
    duels = sum(row["duels"] for row in rows)
    replaced = sum(row["replaced"] for row in rows)
    return {
        "gpu": facts["gpu"],
        "rows": rows,
        "duels": duels,
        "replaced": replaced,
        "upper_95": upper_limit(replaced, duels),
        "provenance": provenance(),
    }


def twins(history: History) -> list[tuple[Config, Config]]:
    """Returns pairs of configs with the same binary on the same grid, the fastest first."""
    known: dict[tuple[str, str], tuple[float, Config]] = {}
    found = []
    for trial in (t for t in history if t.status == "ok"):
        launch = trial.measurement.info["code_hash"], trial.measurement.info["grid"]
        if launch in known and known[launch][1] != trial.config:
            found.append((trial.latency_us, known[launch][1], trial.config))
        known.setdefault(launch, (trial.latency_us, trial.config))
    return [(a, b) for _, a, b in sorted(found, key=lambda pair: pair[0])]


def upper_limit(count: int, of: int) -> float:
    """Returns the exact upper 95 % limit of a rate (Clopper and Pearson 1934, one-sided)."""
    return 1.0 if count == of else float(scipy.stats.beta.ppf(0.95, count + 1, of - count))


def _duels(runner: GpuRunner, pairs: list[tuple[Config, Config]], args) -> dict[str, Any]:
    began = time.perf_counter()
    rule, ratios, replaced, rounds = Rule(), [], 0, 0
    for number in range(args.duels if pairs else 0):
        if time.perf_counter() - began > args.seconds:
            break
        incumbent, challenger = pairs[number % len(pairs)]
        if number // len(pairs) % 2:
            incumbent, challenger = challenger, incumbent
        found = confirm(
            runner, incumbent=incumbent, finalists=[challenger], apparent_us={}, rule=rule
        )
        replaced += found.replaced
        rounds += found.duel_rounds
        ratios.append(found.ratio)
    return {
        "duels": len(ratios),
        "replaced": replaced,
        "rounds": rounds,
        "seconds": time.perf_counter() - began,
        "ratios": ratios,
    }


def report(result: dict[str, Any]) -> str:
    """Returns the rates for people."""
    lines = [
        f"{row['workload']}: {row['replaced']} of {row['duels']} duels between {row['pairs']} "
        f"pairs of identical launches replaced the incumbent, {row['rounds']} rounds in "
        f"{row['seconds']:.0f} s"
        for row in result["rows"]
    ]
    lines.append(
        f"{result['gpu']}: {result['replaced']} of {result['duels']}, upper 95 % limit "
        f"{result['upper_95']:.1%}"
    )
    return "\n".join(lines)
