"""What a search that reads every config ends at, seed by seed, by replay.

It reads each config once, in random order, by the same adaptive rule of repetitions as every
search, and keeps what read fastest. It misses nothing, so what lies between it and the optimum is
the noise of single readings. The published noise floor of a landscape says the same of readings
that count every launch of a visit, in the mean; here are quantiles over seeds.
"""

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.cells import Cell, recorded, run_cell
from kt_lab.evidence.cold import KERNELS
from kt_lab.evidence.resuming import Rows, short
from kt_lab.evidence.sizes import add_effort, recordings
from kt_lab.experiment import process_pool
from kt_lab.plots.captions import counted
from kt_lab.provenance import provenance
from kt_lab.stats.curves import incumbent_curves
from kt_lab.study import levels

_SEARCHER = "random"  # without replacement: it ends when the space does


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is read, and how often."""
    parser.add_argument("--kernels", nargs="+", default=list(KERNELS))
    parser.add_argument("--again", action="store_true", help="read what is stored once more")
    add_effort(parser, seeds=30)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Reads every landscape through; goes on where it was stopped."""
    entries = recordings(args.gpu, args.kernels)
    facts = {name: getattr(args, name) for name in ("gpu", "seeds", "lanes")}
    rows = Rows(args.out, facts, provenance(), again=args.again)
    with process_pool(args.workers) as pool:
        for entry in entries:
            rows.once({"workload": entry.workload}, partial(_row, pool, entry.workload, args))
    return rows.result


def _row(pool: Executor, workload: str, args: argparse.Namespace) -> dict[str, Any]:
    landscape = recorded(workload, args.gpu)
    size = landscape.space.size
    cells = [
        Cell(workload, args.gpu, _SEARCHER, _SEARCHER, (), args.lanes, seed, size, None)
        for seed in range(args.seeds)
    ]
    optimum_us = levels(workload, gpu=args.gpu)["optimum_us"]
    ratios = np.array(list(pool.map(_ended_us, cells))) / optimum_us
    found = {"median": np.median(ratios), "p90": np.quantile(ratios, 0.9), "worst": ratios.max()}
    told = {name: short(float(value), 6) for name, value in found.items()}
    return {"kernel": landscape.kernel, "configs": size, **told}


def _ended_us(cell: Cell) -> float:
    return float(incumbent_curves(run_cell(cell))["judged_us"].iloc[-1])


def by_kernel(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Returns median, p90 and worst by kernel, geomeans over its workloads, over the optimum."""
    table = pd.DataFrame(rows).set_index("kernel")[["median", "p90", "worst"]]
    return np.exp(np.log(table).groupby(level="kernel").mean())


def report(result: Mapping[str, Any]) -> str:
    """Returns the table for people."""
    table = by_kernel(result["rows"]).round(4)
    return (
        f"Every config read once, {counted(len(result['rows']), 'workload')} on {result['gpu']}, "
        f"{result['seeds']} seeds: judged latency over the optimum\n{table.to_string()}"
    )
