"""Short runs next to the recorded workloads: what somebody knows who has tuned a kernel before.

For every recorded workload of a GPU a few others are searched whose shape differs in one extent,
half or twice as long; never a recorded one. The runs know nothing of the recordings. What they
read becomes a table, `data/histories/<gpu>.parquet`, from which `kt-lab evidence warm` starts
searches of the recorded workloads; the JSON file is there so that a stopped command goes on.
"""

import argparse
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.budget import Budget
from kt_lab.errors import UsageError
from kt_lab.evidence.resuming import Rows
from kt_lab.kernels import get_kernel
from kt_lab.landscape import landscapes
from kt_lab.provenance import provenance
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.runners.lent import LentRunner
from kt_lab.search import make_searcher
from kt_lab.store.tables import write_table
from kt_lab.transfer import earlier_path
from kt_lab.tune import tune_whole
from kt_lab.workload import Kernel, Workload

AXIS = 16  # a shorter extent is a count of heads or a filter's width, not a size
_BYTES, _FLOPS = 4e9, 1.2e12  # a larger workload takes longer than it teaches


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is searched, and how long."""
    parser.add_argument("--kernels", nargs="+", metavar="KERNEL", help="default: all recorded")
    parser.add_argument("--gpu", default="h200", help="whose recorded workloads")
    parser.add_argument("--device", type=int, default=0, help="index of the GPU")
    parser.add_argument("--each", type=int, default=3, help="neighbours of a workload")
    parser.add_argument("--trials", type=int, default=80)
    parser.add_argument("--searcher", default="scout")
    parser.add_argument("--deadline-s", type=float, default=None, help="begin nothing after it")
    parser.add_argument("--table", type=Path, help="default: data/histories/<gpu>.parquet")
    parser.add_argument("--again", action="store_true", help="measure what is stored once more")


def neighbours(workload: Workload, *, each: int) -> tuple[Workload, ...]:
    """Returns workloads that differ in one extent, half or twice as long, always the same ones.

    Args:
        workload: Of any kernel.
        each: How many at most; a seed that follows from the workload's name draws them.

    Returns:
        None of the kernel's own; every extent is as divisible (up to 16) as it was, because that
        decides how a kernel loads.
    """
    kernel = get_kernel(workload.kernel)
    own = {w.extents for w in kernel.workloads}
    found = []
    for name, extent in workload.extents.items():
        for length in (extent // 2, extent * 2) if extent > AXIS else ():
            extents = dict(workload.extents) | {name: length}
            title = "x".join(map(str, extents.values()))
            other = Workload(kernel.name, title, extents, workload.dtype)
            alike = math.gcd(length, 16) == math.gcd(extent, 16)
            if alike and other.extents not in own and _is_affordable(kernel, other):
                found.append(other)
    rng = np.random.default_rng(list(workload.key.encode()))
    return tuple(found[at] for at in sorted(rng.permutation(len(found))[:each]))


def _is_affordable(kernel: Kernel, workload: Workload) -> bool:
    return kernel.bytes_moved(workload) <= _BYTES and kernel.flops(workload) <= _FLOPS


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Searches the neighbours that are not stored yet; returns all of them."""
    names = [e.workload for e in landscapes() if e.gpu == args.gpu]
    kernels = args.kernels or sorted({name.split("/")[0] for name in names})
    facts = {"searcher": args.searcher, "trials": args.trials, "gpu": args.gpu}
    rows = Rows(args.out, facts, provenance(), again=args.again)
    until = math.inf if args.deadline_s is None else time.monotonic() + args.deadline_s
    for name in kernels:
        kernel = get_kernel(name)
        found = [
            n for w in kernel.workloads if w.key in names for n in neighbours(w, each=args.each)
        ]
        with _Bench(args) as bench:
            for workload in dict.fromkeys(found):
                if time.monotonic() < until:
                    rows.once({"workload": workload.key}, lambda w=workload: bench.searched(w))
    if rows.result["rows"]:
        tabled(rows.result, args.table or earlier_path(args.gpu))
    return rows.result


def tabled(result: Mapping[str, Any], path: Path) -> None:
    """Writes the runs as a table: workload, space, config (row of the space), latency_us."""
    parts = [
        pd.DataFrame(
            {
                "workload": row["workload"],
                "space": row["space"],
                "config": np.array(row["configs"], np.int32),
                "latency_us": np.array(row["latency_us"], np.float32),  # None becomes NaN
            }
        )
        for row in result["rows"]
    ]
    facts = {name: value for name, value in result.items() if name != "rows"}
    told = [row["machine"] for row in result["rows"]]
    facts["machines"] = [m for n, m in enumerate(told) if m not in told[:n]]
    write_table(pd.concat(parts), path, facts=facts)


class _Bench:
    """One runner for the workloads of a kernel, opened when the first is searched."""

    def __init__(self, args: argparse.Namespace):
        self._args = args
        self._runner: GpuRunner | None = None

    def __enter__(self) -> "_Bench":
        return self

    def __exit__(self, *error: object) -> None:
        if self._runner is not None:
            self._runner.close()

    def searched(self, workload: Workload) -> dict[str, Any]:
        """Returns what a search read: rows of the space, and microseconds or None."""
        args = self._args
        if self._runner is None:
            self._runner = GpuRunner(workload, device=args.device)
        else:
            self._runner.turn_to(workload)
        if self._runner.facts["slug"] != args.gpu:
            raise UsageError(
                f"runs next to what {args.gpu} recorded must be made on one, got "
                f"{self._runner.facts['slug']}; name it with --gpu"
            )
        space, budget = self._runner.space, Budget(trials=args.trials)
        searcher = make_searcher(args.searcher, space, seed=0, budget=budget)
        history = tune_whole(searcher, LentRunner(self._runner), budget=budget)
        at = {config: place for place, config in enumerate(space.configs(space.enumerate()))}
        facts = self._runner.facts | {"driver": self._runner.sensors[-1]["driver"]}
        return {
            "machine": {name: facts.get(name) for name in ("gpu", "driver", "triton")},
            "space": space.fingerprint,
            "configs": [at[trial.proposal.config] for trial in history],
            "latency_us": [_rounded(trial.latency_us) for trial in history],
        }


def _rounded(us: float | None) -> float | None:
    return None if us is None else float(f"{us:.4g}")  # noise is larger than the fifth digit


def report(result: Mapping[str, Any]) -> str:
    """Returns a line per kernel for people."""
    if not result["rows"]:
        return "no runs"
    rows = pd.DataFrame(result["rows"])
    rows["kernel"] = rows["workload"].str.split("/").str[0]
    rows["failed"] = [sum(us is None for us in row) for row in rows["latency_us"]]
    rows["trials"] = rows["configs"].map(len)
    told = rows.groupby("kernel")[["trials", "failed", "seconds"]].sum()
    return told.assign(runs=rows.groupby("kernel").size()).to_string()
