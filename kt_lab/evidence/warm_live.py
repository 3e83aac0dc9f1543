"""Warm starts live: shapes that nobody recorded or searched, with what is known and without.

Every kernel is searched at a shape whose sizes lie between those that are known, a factor of 1.5
from its first workload, from nothing and from what `kt_lab.transfer.known_prior` holds. What each
search would have kept after a few evaluations is raced in alternation, with the kernel's default
and the best of a longer search, so that no reading of a search judges it. The searches of a shape
share one runner: what one has timed another need not wait for, so no seconds are compared.
"""

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.budget import Budget
from kt_lab.errors import UsageError
from kt_lab.evidence.geomeans import geomean_interval
from kt_lab.evidence.histories import AXIS
from kt_lab.evidence.resuming import Rows, short
from kt_lab.kernels import get_kernel
from kt_lab.landscape import landscapes
from kt_lab.provenance import provenance
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.runners.lent import LentRunner
from kt_lab.search import make_searcher
from kt_lab.transfer import prior_named
from kt_lab.trial import Config, History
from kt_lab.tune import tune_whole
from kt_lab.workload import Workload

COLD = "nothing"
MODES = (COLD, "shapes", "nearby")
BUDGETS = (1, 3, 5, 10, 25, 50)
_REPETITIONS = 5  # launches of a block of the race
_LONG_SEED = 1_000  # of the longer search, so that it is none of the others


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is searched, and how long."""
    parser.add_argument("--kernels", nargs="+", metavar="KERNEL", help="default: all recorded")
    parser.add_argument("--gpu", default="h200", help="whose recordings are known")
    parser.add_argument("--device", type=int, default=0, help="index of the GPU")
    parser.add_argument("--searcher", default="scout")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--long", type=int, default=200, help="trials of the longer cold search")
    parser.add_argument("--rounds", type=int, default=20, help="of the race")
    parser.add_argument("--deadline-s", type=float, default=None, help="begin nothing after it")
    parser.add_argument("--again", action="store_true", help="measure what is stored once more")


def between(workload: Workload) -> Workload:
    """Returns the shape whose sizes are 1.5 times as long: as divisible by 16, or nearly."""
    extents = {
        name: extent if extent <= AXIS else max(1, round(extent * 1.5 / 16)) * 16
        for name, extent in workload.extents.items()
    }
    title = "x".join(map(str, extents.values()))
    return Workload(workload.kernel, title, extents, workload.dtype)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Searches and races what is not stored yet; returns all of it, with `means`."""
    names = sorted({e.kernel for e in landscapes() if e.gpu == args.gpu})
    told = ("gpu", "searcher", "seeds", "long", "rounds")
    facts = {name: getattr(args, name) for name in told} | {"budgets": list(BUDGETS)}
    rows = Rows(args.out, facts, provenance(), again=args.again)
    until = math.inf if args.deadline_s is None else time.monotonic() + args.deadline_s
    for name in args.kernels or names:
        workload = between(get_kernel(name).workloads[0])
        if time.monotonic() < until:
            rows.once({"workload": workload.key}, lambda w=workload: _row(w, args))
    rows.result["means"] = means(rows.result["rows"])
    return rows.result


def _row(workload: Workload, args: argparse.Namespace) -> dict[str, Any]:
    """Returns who kept what after how many evaluations, and how fast that is."""
    with GpuRunner(workload, device=args.device) as runner:
        if runner.facts["slug"] != args.gpu:
            raise UsageError(
                f"what {args.gpu} recorded is known of it alone, got {runner.facts['slug']}; name "
                "it with --gpu"
            )
        kept: dict[tuple[str, int, int], Config] = {}
        for mode in MODES:
            for seed in range(args.seeds):
                history = _searched(runner, args, mode, seed, max(BUDGETS))
                kept |= {(mode, seed, n): _kept(history, n, runner) for n in BUDGETS}
        longer = _searched(runner, args, COLD, _LONG_SEED, args.long)
        best = longer.incumbent
        field = [runner.space.default, *([best.config] if best else []), *kept.values()]
        field = list(dict.fromkeys(field))
        blocks = runner.race(field, rounds=args.rounds, repetitions=_REPETITIONS)
        us = {config: _finite(np.median(blocks[:, at])) for at, config in enumerate(field)}
        runner.sense()
        return {
            "kernel": workload.kernel,
            "gpu": runner.facts["gpu"],
            "driver": runner.sensors[-1]["driver"],
            "triton": runner.facts["triton"],
            "configs": runner.space.size,
            "default_us": us[runner.space.default],
            "long_us": us[best.config] if best else None,
            "kept": [
                {"known": mode, "seed": seed, "us": [us[kept[mode, seed, n]] for n in BUDGETS]}
                for mode in MODES
                for seed in range(args.seeds)
            ],
        }


def _searched(runner: GpuRunner, args, mode: str, seed: int, trials: int) -> History:
    budget = Budget(trials=trials)
    prior = prior_named(mode, runner.workload, gpu=args.gpu)
    searcher = make_searcher(args.searcher, runner.space, seed=seed, budget=budget, prior=prior)
    return tune_whole(searcher, LentRunner(runner), budget=budget)


def _kept(history: History, evaluations: int, runner: GpuRunner) -> Config:
    """Returns what a user would have after so many evaluations: the default if all failed."""
    spent = np.cumsum([trial.first for trial in history])
    at = int(np.searchsorted(spent, evaluations)) + 1
    best = history[:at].incumbent
    return best.config if best else runner.space.default


def _finite(us: float) -> float | None:
    return short(float(us), 5) if np.isfinite(us) else None


def table_of(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Returns medians over seeds, a row per workload, knowledge and budget.

    Columns workload, kernel, known, budget, us (inf where the race failed), and ratio, to the
    cold search's; `to_best` is to the fastest of the workload's race.
    """
    found = []
    for row in rows:
        runs = pd.DataFrame(row["kept"])
        known = [us for run in row["kept"] for us in run["us"] if us is not None]
        best = min([*known, row["default_us"] or math.inf, row["long_us"] or math.inf])
        if not math.isfinite(best):  # nothing runs at that shape: it tells of no search
            continue
        for at, budget in enumerate(BUDGETS):
            each = runs.assign(us=[math.inf if u[at] is None else u[at] for u in runs["us"]])
            us = each.groupby("known")["us"].median()
            for mode in MODES:
                told = {"workload": row["workload"], "kernel": row["kernel"], "known": mode}
                both = math.isinf(us[mode]) and math.isinf(us[COLD])
                told |= {"budget": budget, "us": us[mode]}
                told |= {"ratio": 1.0 if both else us[mode] / us[COLD]}
                found.append(told | {"to_best": us[mode] / best})
    return pd.DataFrame(found)


def means(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns geometric means over kernels, with 95 % intervals, per knowledge and budget.

    Each has `ratio`, `low` and `high`, to the cold search's latency, and `to_best` with `worst`,
    to the fastest config of the race.
    """
    table, found = table_of(rows), []
    if table.empty:
        return []
    for (mode, budget), part in table.groupby(["known", "budget"], sort=False):
        over, best = geomean_interval(part), geomean_interval(part, column="to_best")
        found.append(
            {
                "known": mode,
                "budget": int(budget),
                "workloads": len(part),
                "ratio": short(over.estimate, 5),
                "low": short(over.low, 5),
                "high": short(over.high, 5),
                "to_best": short(best.estimate, 5),
                "worst": short(part["to_best"].max(), 5),
            }
        )
    return found


def report(result: Mapping[str, Any]) -> str:
    """Returns the means for people."""
    if not result["rows"]:
        return "nothing searched"
    lines = [f"{len(result['rows'])} unrecorded shapes, {result['seeds']} seeds, {result['gpu']}"]
    for mean in result["means"]:
        lines.append(
            f"{mean['known']:8s} after {mean['budget']:3d}: {mean['to_best']:.3f} of the best "
            f"(worst {mean['worst']:.2f}), {mean['ratio']:.3f} [{mean['low']:.3f}, "
            f"{mean['high']:.3f}] of a cold search"
        )
    return "\n".join(lines)
