"""Warm starts by replay: what recordings of other workloads save a search, or cost it if wrong.

Every landscape is searched cold, with the recordings of the kernel's other workloads (`shapes`: of
the same GPU, so that the twin's recording stays hidden; `kernel`: of every GPU), with those of
`shapes` and short runs at the shapes that lie nearest (`near`, see `kt-lab evidence histories`),
and with the twin's (`twin`). What `shapes` and `near` know is turned upside down, too (`misled`,
`near_misled`), so that slow configs look fast, and tried in its order by something that thinks of
nothing else (`listed`, `near_listed`): what transfer without a search gives.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kt_lab.cells import Cell, recorded, run_cell
from kt_lab.errors import require_known
from kt_lab.evidence.warm_tables import compared, summary
from kt_lab.experiment import process_pool
from kt_lab.kernels import get_workload
from kt_lab.landscape import Landscape, landscapes
from kt_lab.prior import Prior
from kt_lab.provenance import provenance
from kt_lab.runners.replay import judged_us
from kt_lab.search.known import Known
from kt_lab.stats.curves import incumbent_curves, step_values
from kt_lab.study import levels
from kt_lab.transfer import joined, nearby_prior, recorded_prior

MODES = (
    *("cold", "shapes", "near", "kernel", "twin"),
    *("misled", "near_misled", "listed", "near_listed"),
)
BUDGETS = (1, 2, 3, 5, 10, 25, 50, 100)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is searched, and how often."""
    parser.add_argument("--kernels", nargs="+", metavar="KERNEL", help="default: all recorded")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--searcher", default="scout", help="that takes a prior's readings")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2, help="processes")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Searches every landscape in every mode; returns the rows and their summaries."""
    known = landscapes()
    require_known("recorded kernel", args.kernels or (), {e.kernel for e in known})
    entries = [e for e in known if args.kernels is None or e.kernel in args.kernels]
    effort = (args.searcher, args.seeds, args.trials, args.lanes)
    jobs = [(e.workload, e.gpu, mode, *effort) for e in entries for mode in args.modes]
    with process_pool(args.workers) as pool:
        found = list(pool.map(search, *zip(*jobs, strict=True)))
    rows = [row for row in found if row is not None]
    budgets = budgets_of(args.trials)
    return {
        "searcher": args.searcher,
        "seeds": args.seeds,
        "trials": args.trials,
        "lanes": args.lanes,
        "provenance": provenance(),
        "budgets": budgets,
        "summary": summary(rows),
        "compared": compared(rows, budgets),
        "rows": rows,
    }


def search(
    workload: str, gpu: str, mode: str, searcher: str, seeds: int, trials: int, lanes: int
) -> dict[str, Any] | None:
    """Searches one landscape in one mode with some seeds.

    Returns:
        `ratios`: per budget, as `budgets_of` has them, the median over seeds of the
        incumbent's judged latency over the optimum's; None where nothing was recorded to start
        from.
    """
    target = recorded(workload, gpu)
    prior = None
    if mode != "cold":
        prior = _known(target, mode)
        if prior is None:
            return None
    budgets = budgets_of(trials)
    optimum_us = levels(target, gpu=gpu)["optimum_us"]
    curves = []
    for seed in range(seeds):
        cell = Cell(workload, gpu, mode, searcher, (), lanes, seed, trials, None)
        if mode.endswith("listed"):
            judged = _listed(target, prior, seed, budgets)
        else:
            run = incumbent_curves(run_cell(cell, prior=prior))
            judged = step_values(run, np.array(budgets), x="spent_trials", value="judged_us")
        curves.append(judged / optimum_us)
    return {
        "workload": workload,
        "kernel": target.kernel,
        "gpu": gpu,
        "mode": mode,
        "sources": len({(r.workload, r.gpu) for r in prior.readings}) if prior else 0,
        "ratios": np.round(np.median(curves, axis=0), 5).tolist(),
    }


def budgets_of(trials: int) -> list[int]:
    """Returns those of BUDGETS that a search of so many trials reaches."""
    return [budget for budget in BUDGETS if budget <= trials]


def _known(target: Landscape, mode: str) -> Prior | None:
    """Returns what a search of some mode is told; None where nothing was recorded."""
    near, turned = mode.startswith("near"), mode.endswith("misled")
    rule = "shapes" if near or mode in ("misled", "listed") else mode
    prior = recorded_prior(target, rule=rule)
    if near:
        earlier = nearby_prior(get_workload(target.workload), gpu=target.gpu)
        prior = joined(prior, earlier) if earlier.readings else earlier
    if not prior.readings:
        return None
    return _upside_down(prior) if turned else prior


def _listed(target: Landscape, prior: Prior, seed: int, budgets: Sequence[int]) -> np.ndarray:
    """Returns the latencies, microseconds, that the sources' favourites in their order come to."""
    rows = target.space.enumerate()
    order = np.argsort(Known(target.space, prior)(rows).mean(axis=1), kind="stable")
    visit = seed % target.visits
    read = np.nan_to_num(target.medians_us(visit)[order], nan=np.inf)
    best = [int(order[np.argmin(read[:budget])]) for budget in budgets]
    return np.nan_to_num(judged_us(target, visit=visit)[best], nan=np.inf)


def _upside_down(prior: Prior) -> Prior:
    """Returns a prior in which each source's fastest config is its slowest, and so on."""
    sources: dict[tuple[str, str], list[float]] = {}
    for r in prior.readings:
        if r.latency_us is not None:
            sources.setdefault((r.workload, r.gpu), []).append(r.latency_us)
    spans = {source: min(us) * max(us) for source, us in sources.items()}
    turned = (
        replace(r, latency_us=r.latency_us and spans[r.workload, r.gpu] / r.latency_us)
        for r in prior.readings
    )
    return Prior(tuple(turned), f"upside down: {prior.provenance}")


def report(result: Mapping[str, Any]) -> str:
    """Returns the tables for people."""
    lines = [
        f"{result['searcher']}, {result['seeds']} seeds: latency / optimum after evaluations",
        f"{'mode':12s}{'landscapes':>11s}" + "".join(f"{b:>9d}" for b in result["budgets"]),
    ]
    for row in result["summary"]:
        lines.append(
            f"{row['mode']:12s}{row['landscapes']:11d}"
            + "".join(f"{ratio:9.3f}" for ratio in row["geomean"])
        )
        lines.append(f"{'':12s}{'worst':>11s}" + "".join(f"{r:9.2f}" for r in row["worst"]))
    lines += [
        f"{row['mode']} / cold at {row['budget']}: {row['ratio']:.4f} "
        f"[{row['low']:.4f}, {row['high']:.4f}]"
        for row in result["compared"]
    ]
    return "\n".join(lines)
