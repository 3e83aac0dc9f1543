"""How much faster more workers make an experiment, and whether its results stay the same."""

import argparse
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pandas as pd

from kt_lab import recipes
from kt_lab.budget import Budget
from kt_lab.cells import NOT_REPEATABLE
from kt_lab.evidence.cost import THREADS
from kt_lab.experiment import Experiment, process_pool
from kt_lab.provenance import provenance
from kt_lab.studies import GPU, WORKLOADS

WAYS = ("in process", "process pool", "Dask")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to run; by the defaults each way takes about a minute of one core."""
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--searchers", nargs="+", default=["random", "pattern", "lfbo_pattern"])
    parser.add_argument("--seeds", type=int, default=45)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Runs one experiment in this process, and by so many processes and Dask workers each."""
    os.environ.update(dict.fromkeys(THREADS, "1"))
    experiment = Experiment(
        "scaling",
        args.workloads,
        args.searchers,
        seeds=args.seeds,
        budget=Budget(trials=args.trials),
        gpu=GPU,
    )
    asked = [(way, workers) for workers in args.workers for way in WAYS[1:]]
    rows, _ = measure(experiment, [(WAYS[0], 1), *asked])
    told = {"searchers": args.searchers, "workloads": args.workloads, "runs": rows[0]["runs"]}
    return told | {"rows": rows, "provenance": provenance()}


def measure(
    experiment: Experiment, ways: Iterable[tuple[str, int]]
) -> tuple[list[dict[str, Any]], pd.DataFrame]:
    """Runs an experiment in several ways, the first of which the others are compared with.

    Args:
        experiment: What is run; nothing is stored.
        ways: (one of WAYS, number of workers).

    Returns:
        A row for each way: way, workers, start_s (until its workers had imported what they need
        and had loaded the landscapes), seconds (of the experiment), runs, trials, processes (that
        computed it), same (whether every column but the searchers' own CPU time is that of the
        first way, bit by bit); and the first way's table.
    """
    rows, first = [], None
    for way, workers in ways:
        began = time.perf_counter()
        with _opened(way, workers) as executor:
            warm = replace(experiment, seeds=2 * workers, budget=Budget(trials=1))
            warm.run(executor=executor)
            ready = time.perf_counter()
            runs = experiment.run(executor=executor)
            seconds = time.perf_counter() - ready
        first = runs if first is None else first
        drop = [name for name in NOT_REPEATABLE if name in runs]
        rows.append(
            {
                "way": way,
                "workers": workers,
                "start_s": ready - began,
                "seconds": seconds,
                "runs": len(experiment.cells()),
                "trials": len(runs),
                "processes": len(runs.attrs["computed_by"]),
                "same": runs.drop(columns=drop).equals(first.drop(columns=drop)),
            }
        )
    return rows, first


def _opened(way: str, workers: int) -> Any:
    if way == WAYS[1]:
        return process_pool(workers)
    return recipes.local(workers, dashboard=False) if way == WAYS[2] else nullcontext()


def table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Returns the rows of `measure` with `speedup` and `efficiency`.

    Speed-up is the first way's seconds over a row's, efficiency is speed-up per worker.
    """
    found = pd.DataFrame(rows)
    found["speedup"] = found["seconds"].iloc[0] / found["seconds"]
    return found.assign(efficiency=found["speedup"] / found["workers"])


def figure(points: pd.DataFrame, *, venue: str | None = None) -> Any:
    """Draws speed-up against workers; `points` from `table`."""
    from kt_lab import plots
    from kt_lab.plots.scaling import caption_scaling, plot_scaling
    from kt_lab.study import VENUE, Drawing

    with plots.paper(venue or VENUE):
        return Drawing(plot_scaling(points), points, caption_scaling(points))


def report(result: Mapping[str, Any]) -> str:
    """Returns the table for people."""
    found = table(result["rows"])
    lines = [f"{result['runs']} runs, {int(found['trials'].iloc[0]):,} trials by replay:"]
    for row in found.itertuples():
        same = "same results" if row.same else "OTHER RESULTS"
        lines.append(
            f"  {row.way:13s} {row.workers:2d}: {row.seconds:6.1f} s after {row.start_s:.1f} s of "
            f"starting, speed-up {row.speedup:.2f}, efficiency {row.efficiency:.0%}, {same}"
        )
    return "\n".join(lines)
