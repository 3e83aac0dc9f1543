"""The flagship beside its peers on landscapes of other tuners, kernels and GPUs, by replay.

Nothing of kt_lab was designed on them, and they are not shipped: a row says of which file it is.
For example the tests of autotuning_methodology 1.1.0 (MIT, sdist on PyPI) hold a CUDA convolution
on an RTX 2080 Ti as Kernel Tuner recorded it:

    kt-lab evidence foreign mock_gpu.json

Every searcher has its own defaults and the same compile lanes, as in `kt-lab evidence cold`.
"""

import argparse
import hashlib
import tempfile
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.evidence.cold import BUDGETS, SEARCHERS, all_searched, close_to, judged
from kt_lab.evidence.resuming import Rows
from kt_lab.evidence.sizes import add_effort
from kt_lab.experiment import process_pool
from kt_lab.formats import read_cache, read_t4
from kt_lab.landscape import Landscape
from kt_lab.plots.style import searcher_style
from kt_lab.provenance import provenance
from kt_lab.stats.intervals import quantiles
from kt_lab.study import levels
from kt_lab.trial import OK

_READ = {"cache": read_cache, "t4": read_t4}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the files, and how often they are searched."""
    parser.add_argument("files", nargs="+", type=Path, help="caches or T4 results, .json(.gz)")
    parser.add_argument("--format", choices=_READ, default="cache", help="of the files")
    add_effort(parser, SEARCHERS, seeds=30, gpu=None)
    parser.add_argument("--again", action="store_true", help="search what is stored once more")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Searches every landscape with every searcher; goes on where it was stopped."""
    facts = {name: getattr(args, name) for name in ("searchers", "seeds", "trials", "lanes")}
    rows = Rows(args.out, facts, provenance(), again=args.again)
    with tempfile.TemporaryDirectory() as folder, process_pool(args.workers) as pool:
        for number, path in enumerate(args.files):
            landscape = _READ[args.format](path)
            saved = landscape.save(Path(folder) / f"{number}.parquet")
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            told = {"file": path.name, "sha256": digest[:12]}
            key = {"workload": landscape.workload, "gpu": landscape.gpu, **told}
            rows.once(key, lambda at=str(saved), has=landscape: _row(pool, at, has, args))
    return rows.result


def _row(pool: Executor, at: str, landscape: Landscape, args) -> dict[str, Any]:
    level = levels(landscape)
    return {
        "kernel": landscape.kernel,
        "configs": len(landscape.table),
        "failed": int((landscape.status != OK).sum()),
        **level,
        "runs": all_searched(pool, at, None, close_to(level), args),
    }


def table(result: Mapping[str, Any]) -> pd.DataFrame:
    """Returns what runs come to over the optimum, a row per landscape, searcher and budget.

    Returns:
        Columns workload, gpu, searcher, budget, median, low and high (quartiles over seeds), p90,
        worst, close (share of runs that were within 1 %, or the noise
        floor, at any time), close_s (median seconds until then, inf: half of the runs never), the
        best on average in the end first.
    """
    found = judged(result)
    found["ratio"] = found["judged_us"] / found["optimum_us"]
    groups = found.groupby(["workload", "gpu", "searcher", "budget"], sort=False)
    asked = {"low": 0.25, "median": 0.5, "high": 0.75, "p90": 0.9, "worst": 1.0}
    rows = groups["ratio"].apply(lambda r: pd.Series(quantiles(r, [*asked.values()]), [*asked]))
    rows = rows.unstack()
    rows["close"] = groups["close_s"].apply(lambda s: float(np.isfinite(s).mean()))
    rows["close_s"] = groups["close_s"].median()
    last = found[found["budget"] == found["budget"].max()]
    order = np.log(last["ratio"]).groupby(last["searcher"]).mean()
    rows = rows.reset_index().astype({"budget": int}).sort_values(["workload", "gpu", "budget"])
    return rows.sort_values("searcher", key=lambda names: names.map(order), kind="stable")


def report(result: Mapping[str, Any]) -> str:
    """Returns the tables for people, and for RESULTS.md: Markdown, one per landscape."""
    points, parts = table(result), []
    budgets = [b for b in BUDGETS if b <= result["trials"]]
    for row in result["rows"]:
        here = points[(points["workload"] == row["workload"]) & (points["gpu"] == row["gpu"])]
        lines = [
            f"`{row['workload']}` on {row['gpu']}: {row['configs']:,} configs, {row['failed']:,} "
            f"of which fail, of another tuner (`{row['file']}`, sha256 {row['sha256']}..); "
            f"{result['seeds']} seeds, {result['lanes']} compile lanes; median (quartiles).",
            "",
            f"| latency / optimum after | {' | '.join(f'{b} trials' for b in budgets)} | "
            "p90 | worst seed | close | s until then |",
            "| --- " * (len(budgets) + 5) + "|",
        ]
        for name in dict.fromkeys(here["searcher"]):
            own = here[here["searcher"] == name].set_index("budget")
            told = [
                f"{own.loc[b, 'median']:.3f} ({own.loc[b, 'low']:.3f} to {own.loc[b, 'high']:.3f})"
                for b in budgets
            ]
            end = own.loc[budgets[-1]]
            told += [f"{end.p90:.3f}", f"{end.worst:.3f}", f"{end.close:.0%}"]
            told.append(f"{end.close_s:.1f}" if np.isfinite(end.close_s) else "")
            lines.append(f"| {searcher_style(name).label} | {' | '.join(told)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
