"""The flagship where many configs fail: recorded landscapes with a drawn region that does not run.

Hardly a config of the recorded spaces fails: their laws leave out what the GPU would refuse. Other
tuners' spaces are not like that. Here a config of a recorded landscape fails when it asks for more
than there is of a drawn resource: a weighted sum of how large its tiles, warps, stages and other
ordered parameters are, so that a share of all configs fails and the best of the others often lies
at the border. Latencies, noise and costs are as recorded; the region is a model.
Variants say what a failure counts as where latencies are predicted.
"""

import argparse
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import nullcontext
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np

from kt_lab.budget import Budget
from kt_lab.cells import recorded
from kt_lab.evidence import ablation
from kt_lab.evidence.ablation import WHOLE, Variant, changed
from kt_lab.evidence.cold import BUDGETS, judged
from kt_lab.evidence.resuming import Rows, columns, short
from kt_lab.evidence.sizes import add_effort
from kt_lab.experiment import process_pool
from kt_lab.landscape import Landscape
from kt_lab.provenance import provenance
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import make_searcher
from kt_lab.search.scout import ScoutSearch
from kt_lab.study import levels
from kt_lab.tune import tune_whole

SHARES = (0.3, 0.7)
"""Of all configs, how many fail."""
PEERS = ("random", "tpe", "genetic", "pattern", "kt_adaptive_tabu_greywolf")
_targets = ScoutSearch._targets


def _counted_as(quantile: float) -> Callable:
    """Returns targets in which a failure counts as a quantile of what worked."""

    def targets(self, x: np.ndarray, values: np.ndarray) -> np.ndarray:
        y = _targets(self, x, values)
        y[np.isinf(values)] = np.quantile(y[np.isfinite(values)], quantile)
        self._shift += (moved := float(np.nanmean(y)))
        return y - moved

    return targets


VARIANTS: dict[str, Variant] = {
    WHOLE: Variant("as it is: what failed says nothing of latencies"),
    "failures slow": Variant(
        "a failure counts as slower than nine tenths, as it did before",
        instead=((ScoutSearch, "_targets", _counted_as(0.9)),),
    ),
    "failures typical": Variant(
        "a failure counts as the median", instead=((ScoutSearch, "_targets", _counted_as(0.5)),)
    ),
}
_DRAWS = 1000  # of a resource that the default does not exceed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is searched, by whom, and how often."""
    everyone = [*VARIANTS, *PEERS]
    first = {name.partition("/")[0]: name for name in reversed(ablation.WORKLOADS)}
    parser.add_argument("--workloads", nargs="+", default=sorted(first.values()))
    parser.add_argument("--variants", nargs="+", choices=everyone, default=everyone)
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES))
    add_effort(parser, seeds=5)
    parser.add_argument("--again", action="store_true", help="search what is stored once more")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Searches every landscape with every variant and peer; goes on where it was stopped."""
    facts = {name: getattr(args, name) for name in ("gpu", "seeds", "trials", "lanes", "variants")}
    rows = Rows(args.out, facts, provenance(), again=args.again)
    with process_pool(args.workers) as pool:
        for workload, share in product(args.workloads, args.shares):
            key = {"workload": f"{workload}, {share:.0%} fail"}
            rows.once(key, partial(_row, pool, workload, share, args))
    rows.result["paired"] = paired(rows.result) if WHOLE in args.variants else []
    return rows.result


def paired(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns what `kt_lab.evidence.ablation.paired` does, for variants and peers alike."""
    variants = VARIANTS | {peer: Variant("a peer") for peer in PEERS}
    count = len(result["variants"]) * result["seeds"]
    unasked = {"close_s": [None] * count, "search_ms": [0.0] * count}
    rows = [row | {"runs": row["runs"] | unasked} for row in result["rows"]]
    return ablation.paired(judged({**result, "rows": rows}), variants=variants)


report = ablation.report


def _row(pool: Executor, workload: str, share: float, args: argparse.Namespace) -> dict[str, Any]:
    jobs = [
        (workload, args.gpu, share, name, seed, args.trials, args.lanes)
        for name in args.variants
        for seed in range(args.seeds)
    ]
    found = refused(workload, args.gpu, share)
    runs = list(pool.map(searched, *zip(*jobs, strict=True)))
    own_ms = np.reshape([run_.pop("search_ms") for run_ in runs], (-1, args.seeds))
    return {
        "kernel": found.kernel,
        **{name: short(value, 6) for name, value in levels(found).items()},
        "failed": int((~np.isfinite(found.latency_us)).sum()),
        "configs": found.space.size,
        "search_ms": [short(ms, 3) for ms in np.median(own_ms, axis=1)],  # of each variant
        "runs": columns(runs),
    }


def searched(
    workload: str, gpu: str, share: float, name: str, seed: int, trials: int, lanes: int
) -> dict[str, Any]:
    """Searches once.

    Returns:
        judged_us at BUDGETS (None: nothing worked) and search_ms, its own computing a trial.
    """
    landscape, limit = refused(workload, gpu, share), Budget(trials=trials)
    runner = ReplayRunner(landscape, seed=seed, compile_lanes=lanes)
    variant = VARIANTS.get(name)
    with changed(variant) if variant else nullcontext():
        searcher = make_searcher(
            WHOLE if variant else name, landscape.space, seed=seed, budget=limit
        )
        history = list(tune_whole(searcher, runner, budget=limit))
    best, at = None, []
    for trial in history:
        if trial.latency_us and (best is None or trial.latency_us < best.latency_us):
            best = trial
        at.append(best)
    judged_us = [None if t is None else runner.judge(t.config) for t in at]
    last = [judged_us[min(budget, len(judged_us)) - 1] for budget in BUDGETS]
    spent_s = history[-1].search_s if history else 0.0
    return {
        "judged_us": [None if us is None else short(us, 5) for us in last],
        "search_ms": short(1e3 * spent_s / max(1, len(history)), 3),
    }


@lru_cache(maxsize=8)
def refused(workload: str, gpu: str, share: float) -> Landscape:
    """Returns a recorded landscape of which a share fails: the same in every process."""
    found = recorded(workload, gpu)
    asked = _resource(found, share)
    over = asked > np.quantile(asked, 1.0 - share)
    table = found.table.reset_index(drop=True)
    fails = over[found.table.index.to_numpy()]
    empty = [[] if gone else kept for gone, kept in zip(fails, table["samples_us"], strict=True)]
    visit = [[] if gone else kept for gone, kept in zip(fails, table["visit"], strict=True)]
    table = table.assign(samples_us=empty, visit=visit)
    table.loc[fails, "status"] = "compile_error"
    return Landscape(table, found.manifest)


def _resource(found: Landscape, share: float) -> np.ndarray:
    """Returns what every config asks for of a drawn resource; the default has enough of it."""
    rows, space = found.space.enumerate(), found.space
    counted = [i for i, p in enumerate(space.parameters) if p.ordered and p.cardinality > 1]
    most = [space.parameters[i].cardinality - 1 for i in counted]
    rng = np.random.default_rng([math.floor(100 * share), *found.workload.encode()])
    default = space.index(space.default)
    for _ in range(_DRAWS):
        asked = (rows[:, counted] / most) @ rng.exponential(size=len(counted))
        if asked[default] <= np.quantile(asked, 1.0 - share):
            break
    return asked
