"""Whether a larger space helps or hurts a search: axes of a recorded space are freed one by one.

All spaces of a chain hold the one before, and are searched by the same searchers with the same
budgets, by replay of one landscape. A larger space has the better optimum and is harder to search;
which of the two counts more is what the numbers say. What is found is judged by a visit that the
search did not read.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.cells import Cell, recorded, run_cell
from kt_lab.errors import require_known
from kt_lab.experiment import process_pool
from kt_lab.landscape import Landscape, LandscapeEntry, landscapes
from kt_lab.provenance import provenance
from kt_lab.runners.replay import judged_us
from kt_lab.space import ParameterSpace
from kt_lab.stats.curves import incumbent_curves, step_values
from kt_lab.stats.intervals import quantiles

CHAINS: dict[str, dict[str, Any]] = {
    "matmul_nested/2048x2048x2048": {
        "GROUP_M": 1,
        "SCHEDULE": "tiles",
        "LOADS": "pointers",
        "EPILOGUE": "whole",
    },
    "rms_norm_dense/4096x1536": {
        "STORE": "",
        "EVICTION": "",
        "PARTIAL": "tile",
        "WEIGHT": "early",
        "WAVES": 0,
    },
}
"""Per workload the axes that are fixed at first, in the order in which they are freed."""
SEARCHERS = ("random", "tpe", "pattern", "lfbo_tree", "scout")
BUDGETS = (25, 50, 100, 200)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is searched, and how often."""
    parser.add_argument("--workloads", nargs="+", choices=CHAINS, default=list(CHAINS))
    add_effort(parser, SEARCHERS)


def add_effort(
    parser: argparse.ArgumentParser,
    searchers: Sequence[str] | None = None,
    *,
    seeds: int = 10,
    trials: int = 200,
    lanes: int = 16,
    gpu: str | None = "h200",
) -> None:
    """Adds who searches on which GPU's recordings (None: not asked), how long and how often."""
    if gpu is not None:
        parser.add_argument("--gpu", default=gpu)
    if searchers is not None:
        parser.add_argument("--searchers", nargs="+", default=list(searchers))
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--trials", type=int, default=trials)
    parser.add_argument("--lanes", type=int, default=lanes)
    parser.add_argument("--workers", type=int, default=2, help="processes")


def recordings(
    gpu: str, kernels: Sequence[str], workloads: Sequence[str] | None = None
) -> list[LandscapeEntry]:
    """Returns the shipped landscapes of kernels on a GPU, or some of them.

    Raises:
        UnknownName: One of the kernels, or of the workloads, is not recorded there.
    """
    here = [entry for entry in landscapes() if entry.gpu == gpu]
    require_known(f"kernel recorded on {gpu}", kernels, {e.kernel for e in here})
    found = [e for e in here if e.kernel in kernels]
    wanted = set(workloads or (e.workload for e in found))
    require_known(f"workload recorded on {gpu}", wanted, {e.workload for e in found})
    return [e for e in found if e.workload in wanted]


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Searches every space of every chain."""
    jobs = [
        (workload, args.gpu, level, searcher, args.seeds, args.trials, args.lanes)
        for workload in args.workloads
        for level in range(len(CHAINS[workload]) + 1)
        for searcher in args.searchers
    ]
    with process_pool(args.workers) as pool:
        rows = list(pool.map(search, *zip(*jobs, strict=True)))
    spaces = [
        described(workload, args.gpu, level)
        for workload in args.workloads
        for level in range(len(CHAINS[workload]) + 1)
    ]
    told = {name: getattr(args, name) for name in ("gpu", "seeds", "trials", "lanes")}
    return told | {"provenance": provenance(), "spaces": spaces, "rows": rows}


@cache
def part(workload: str, gpu: str, level: int) -> ParameterSpace:
    """Returns the recorded space with all but the first `level` axes of its chain fixed."""
    space = recorded(workload, gpu).space
    rows = space.enumerate()
    kept = np.ones(len(rows), dtype=bool)
    for name, value in list(CHAINS[workload].items())[level:]:
        slot = space.names.index(name)
        kept &= rows[:, slot] == space.parameters[slot].index(value)
    return space.only(rows[kept])


def described(workload: str, gpu: str, level: int) -> dict[str, Any]:
    """Returns what a space of a chain holds.

    Returns:
        configs; freed, the axis that it adds; best, its optimum over that of the whole space;
        floor, what the best of one reading of each of its configs comes to, likewise, judged by
        another visit and averaged over visits; within_1_percent, the share of its configs that
        close to its optimum.
    """
    whole, space = recorded(workload, gpu), part(workload, gpu, level)
    own = _latency_us(whole, space, whole.latency_us)
    picks = []
    for visit in range(whole.visits):
        read = _latency_us(whole, space, whole.medians_us(visit))
        judged = _latency_us(whole, space, judged_us(whole, visit=visit))
        picks.append(judged[np.argmin(read)] / whole.optimum_us)
    return {
        "workload": workload,
        "level": level,
        "freed": list(CHAINS[workload])[level - 1] if level else "",
        "configs": space.size,
        "best": float(own.min() / whole.optimum_us),
        "floor": float(np.mean(picks)),
        "within_1_percent": float(np.mean(own[np.isfinite(own)] <= 1.01 * own.min())),
    }


def _latency_us(whole: Landscape, space: ParameterSpace, of_all: np.ndarray) -> np.ndarray:
    return np.nan_to_num(of_all[whole.space.indices(space.enumerate())], nan=np.inf)


def search(
    workload: str, gpu: str, level: int, searcher: str, seeds: int, trials: int, lanes: int
) -> dict[str, Any]:
    """Searches one space of a chain with some seeds.

    Returns:
        ratios: per budget, per seed, the incumbent's judged latency over the optimum of the whole
        space; budgets; search_s, the searcher's own seconds a trial.
    """
    optimum_us = recorded(workload, gpu).optimum_us
    budgets = [*(budget for budget in BUDGETS if budget < trials), trials]
    found, seconds = [], []
    for seed in range(seeds):
        cell = Cell(workload, gpu, searcher, searcher, (), lanes, seed, trials, None)
        run = run_cell(cell, space=part(workload, gpu, level))
        curve = incumbent_curves(run)
        judged = step_values(curve, np.array(budgets), x="spent_trials", value="judged_us")
        found.append(np.round(judged / optimum_us, 5))
        seconds.append(float(run["search_s"].max()) / max(1, len(run)))
    return {
        "workload": workload,
        "level": level,
        "searcher": searcher,
        "budgets": budgets,
        "ratios": np.transpose(found).tolist(),
        "search_s": float(np.median(seconds)),
    }


def table_of(result: Mapping[str, Any]) -> pd.DataFrame:
    """Returns a row per space, searcher and budget.

    Returns:
        workload, level, freed, configs, best, floor, searcher, budget, ratio (median over seeds),
        low and high (quartiles), seeds and gpu.
    """
    spaces = {(told["workload"], told["level"]): told for told in result["spaces"]}
    found = []
    for row in result["rows"]:
        told = spaces[row["workload"], row["level"]]
        for budget, ratios in zip(row["budgets"], row["ratios"], strict=True):
            low, middle, high = quantiles(ratios, (0.25, 0.5, 0.75))
            numbers = {"budget": budget, "ratio": middle, "low": low, "high": high}
            facts = {"searcher": row["searcher"], "seeds": len(ratios), "gpu": result["gpu"]}
            found.append(told | facts | numbers)
    return pd.DataFrame(found)


def figure(result: Mapping[str, Any], *, venue: str | None = None) -> Any:
    """Draws quality against size; `result` as `kt-lab evidence sizes` stores it."""
    from kt_lab import plots
    from kt_lab.plots.sizes import caption_sizes, plot_sizes
    from kt_lab.study import VENUE, Drawing

    table = table_of(result)
    with plots.paper(venue or VENUE, width="text"):
        return Drawing(plot_sizes(table), table, caption_sizes(table), sources=(result,))


def report(result: Mapping[str, Any]) -> str:
    """Returns the table for people: latency over the whole space's optimum."""
    table = table_of(result)
    lines = []
    for (workload, level), part_ in table.groupby(["workload", "level"], sort=False):
        told = part_.iloc[0]
        if level == 0:
            lines.append(f"{workload}, {told.seeds} seeds, after {sorted(set(part_['budget']))}")
        lines.append(
            f"  {told.configs:6,} configs{', + ' + told.freed if told.freed else '':12s} best "
            f"{told.best:.3f}, of one reading each {told.floor:.3f}"
        )
        for name, own in part_.groupby("searcher", sort=False):
            ratios = "  ".join(f"{r:.3f}" for r in own.sort_values("budget")["ratio"])
            lines.append(f"      {name:14s} {ratios}")
    return "\n".join(lines)
