"""What every part of the flagship is worth: it searches with one of them changed, by replay.

The same seeds search the same landscapes with all variants, so that differences are paired. The
kernels are the older ones, on which it was designed or first judged; those of `kt-lab evidence
cold` take no part, so that nothing is chosen on what it is judged by.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

from kt_lab.cells import Cell, recorded
from kt_lab.evidence.cold import BUDGETS, judged, searched, who
from kt_lab.evidence.resuming import Rows, columns, short
from kt_lab.evidence.sizes import add_effort
from kt_lab.experiment import process_pool
from kt_lab.provenance import provenance
from kt_lab.search import features, posterior, scout
from kt_lab.stats.budgets import judged_ratios
from kt_lab.stats.intervals import log_ratio
from kt_lab.stats.significance import holm, signed_ranks
from kt_lab.study import levels

WHOLE = "scout"
WORKLOADS = (
    "bmm/20x1500x1500x64",
    "bmm/64x512x2048x1024",
    "depthwise_conv/128x56x56x144x3",
    "depthwise_conv/8x14x14x384x7",
    "embedding_backward/30522x512x768",
    "fp8_blockwise_gemm/4096x7168x2112",
    "fp8_blockwise_gemm/64x2048x7168",
    "fp8_gemm/16x14336x4096",
    "fp8_gemm/4096x4096x4096",
    "gather_gemv/128x8x1536x2048",
    "gather_gemv/8x2x14336x4096",
    "group_norm/8x32x4x256x256",
    "int4_gemm/1x1x7168x8192",
    "int4_gemm/1x2048x2048x2048",
    "layer_norm/16384x1600",
    "layer_norm/8192x5120",
    "matmul/16x8192x28672",
    "matmul/4096x4096x4096",
    "rms_norm/4096x7168",
    "rms_norm_backward/4096x7168",
    "rope/4x4096x32x8x128",
    "row_sum/16384x4096",
    "softmax/4096x640",
    "swiglu/4096x11008",
)
_CLOSE = 1.01
_BETWEEN = 30.0  # a budget that stands beside another one: stored, not drawn


@dataclass(frozen=True)
class Variant:
    """The flagship with one part changed.

    Attributes:
        says: What is changed.
        options: Of the searcher.
        instead: (module or class, attribute, what stands there while it searches).
    """

    says: str
    options: Mapping[str, Any] = field(default_factory=dict)
    instead: Sequence[tuple[Any, str, Any]] = ()


def _uniform_start(self) -> tuple[Any, None, str] | None:
    """Returns the default, then uniform draws; see `ScoutSearch._start`."""
    if self._queue:  # without a prior it holds the default alone
        return self._queue.popleft(), None, "start"
    if not self._free.any():
        return None
    chosen = self._rng.choice(np.flatnonzero(self._free))
    return tuple(self._pool[chosen].tolist()), None, "start"


class _OneScale(posterior.Scales):
    """Hyper-parameters with a single length scale for all columns."""

    __slots__ = ()

    @classmethod
    def of(cls, groups: np.ndarray, weights: np.ndarray) -> posterior.Scales:
        """Returns the priors' medians, as if all columns were of one parameter."""
        return posterior.Scales.of(np.zeros_like(groups), weights)


# what a space that is not listed has besides
_PLAIN = {"listed": 16, "starts": 4, "ahead": 0.25, "effects": 0.5, "near": 0.0}
VARIANTS: dict[str, Variant] = {
    WHOLE: Variant("as it is"),
    "1 start": Variant("the default alone precedes the model", {"starts": 1}),
    "2 starts": Variant("the default and one other", {"starts": 2}),
    "8 starts": Variant("twice as many starts", {"starts": 8}),
    "16 starts": Variant("four times as many starts", {"starts": 16}),
    "uniform starts": Variant(
        "starts are drawn uniformly", instead=((scout.ScoutSearch, "_start", _uniform_start),)
    ),
    "least ahead": Variant("no more configs under way than there are starts", {"ahead": 0.0}),
    "half ahead": Variant("half as many configs under way as were told", {"ahead": 0.5}),
    "as many ahead": Variant("as many configs under way as were told", {"ahead": 1.0}),
    "lanes filled": Variant(
        "more starts, and all compile lanes are filled",
        {"starts": 16, "ahead": 8.0},
    ),
    "no main effects": Variant("the model has no curve per parameter", {"effects": 0.0}),
    "main effects 2": Variant("four times their variance", {"effects": 2.0}),
    "no main effects, as many ahead": Variant(
        "the defaults until these were measured", {"effects": 0.0, "ahead": 1.0}
    ),
    "pool of 1024": Variant(
        "candidates are drawn, the space is never listed", {"pool": 1024} | _PLAIN
    ),
    "pool of 256": Variant("few candidates are drawn", {"pool": 256} | _PLAIN),
    "pool of 64": Variant("very few candidates are drawn", {"pool": 64} | _PLAIN),
    "no quantities": Variant(
        "the model sees the parameters alone, no products of tiles, no sides of laws",
        instead=(
            (features, "_role_sums", lambda _: iter(())),
            (features, "_law_sides", lambda _: iter(())),
        ),
    ),
    "values not bent": Variant(
        "logarithms of latencies as they are", instead=((scout, "_FLAT", 1e9),)
    ),
    "failures unforeseen": Variant(
        "the chance that a config works is not predicted", instead=((scout, "_UNLIKELY", 1.0),)
    ),
    "one length scale": Variant(
        "all parameters matter alike", instead=((scout, "Scales", _OneScale),)
    ),
    "never fitted": Variant(
        "the model keeps its priors' medians", instead=((posterior, "_FEW", 10**9),)
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is left out, where, and how often."""
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    add_effort(parser)
    parser.add_argument("--again", action="store_true", help="search what is stored once more")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Searches every landscape with every variant; goes on where it was stopped."""
    facts = {name: getattr(args, name) for name in ("gpu", "seeds", "trials", "lanes", "variants")}
    rows = Rows(args.out, facts, provenance(), again=args.again)
    with process_pool(args.workers) as pool:
        for workload in args.workloads:
            rows.once({"workload": workload}, partial(_row, pool, workload, args))
    rows.result["paired"] = paired(judged(rows.result)) if WHOLE in args.variants else []
    return rows.result


def _row(pool: Executor, workload: str, args: argparse.Namespace) -> dict[str, Any]:
    level = levels(workload, gpu=args.gpu)
    cells = [
        Cell(
            workload,
            args.gpu,
            name,
            WHOLE,
            tuple(VARIANTS[name].options.items()),
            args.lanes,
            seed,
            args.trials,
            None,
        )
        for name, seed in who(vars(args))
    ]
    close_us = level["optimum_us"] * max(_CLOSE, level["noise_floor"])
    found = list(pool.map(varied, cells, [close_us] * len(cells)))
    return {"kernel": recorded(workload, args.gpu).kernel, **level, "runs": columns(found)}


def varied(cell: Cell, close_us: float) -> dict[str, Any]:
    """Searches once as the variant that the cell names; see `kt_lab.evidence.cold.searched`."""
    with changed(VARIANTS[cell.searcher]):
        return searched(cell, close_us)


@contextmanager
def changed(variant: Variant) -> Iterator[None]:
    """Puts in place what a variant changes, in this process, and takes it back."""
    with ExitStack() as stack:
        for owner, name, value in variant.instead:
            stack.enter_context(patch.object(owner, name, value))
        yield


def paired(
    table: pd.DataFrame,
    *,
    variants: Mapping[str, Variant] = VARIANTS,
    budgets: Sequence[int] = BUDGETS,
) -> list[dict[str, Any]]:
    """Returns signed-rank tests of every variant against the whole at budgets, with intervals.

    A pair is a kernel: the mean over its workloads and seeds of both log latencies. Holm's
    correction is over the variants at a budget.

    Args:
        table: From `kt_lab.evidence.cold.judged`.
        variants: By the names that stand as searchers there.
        budgets: That the runs are compared at.

    Returns:
        budget, variant, says, ratio (> 1: the change costs), low, high (95 %, over kernels,
        workloads and seeds), kernels, worse (of them), p and p_holm.
    """
    rows = []
    for budget, at in table[table["budget"].isin(budgets)].groupby("budget"):
        intervals = judged_ratios(at, optima=None, reference=WHOLE)
        intervals = intervals[intervals["scope"] == "geomean"].set_index("searcher")
        logs = np.log(at["judged_us"]).groupby([at["kernel"], at["workload"], at["searcher"]])
        wide = logs.mean().unstack("searcher").groupby(level="kernel").mean()
        here = []
        for name in (n for n in variants if n in wide.columns and n != WHOLE):
            apart = log_ratio(wide[name].to_numpy(), wide[WHOLE].to_numpy())
            test = signed_ranks(apart)
            facts = {"budget": float(budget), "variant": name, "says": variants[name].says}
            ends = {"ratio": "estimate", "low": "low", "high": "high"}
            means = {ours: short(intervals.loc[name, theirs], 7) for ours, theirs in ends.items()}
            counts = {"kernels": len(apart), "worse": int((apart > 0).sum())}
            here.append(facts | means | counts | {"p": short(test["p"], 7)})
        corrected = holm([row["p"] for row in here])
        rows += [row | {"p_holm": short(p, 7)} for row, p in zip(here, corrected, strict=True)]
    return rows


def reached(result: Mapping[str, Any]) -> pd.DataFrame:
    """Returns how often and how soon each variant came close to the optimum.

    Close is within 1 %, or within the noise floor of the landscape where that is wider.

    Returns:
        variant, close (share of all runs), close_s (median over all runs of compile, timing and
        search seconds until then, inf where fewer than half came close).
    """
    runs = judged(result).drop_duplicates(["workload", "searcher", "seed"])
    apart = runs.groupby("searcher", sort=False)["close_s"]
    found = pd.DataFrame(
        {
            "close": apart.agg(lambda seconds: np.isfinite(seconds).mean()),
            "close_s": apart.median(),
        }
    )
    return found.rename_axis("variant").reset_index()


def report(result: Mapping[str, Any]) -> str:
    """Returns the table for people, the costliest change first."""
    table = pd.DataFrame(result["paired"])
    if table.empty:
        return f"a variant is compared with {WHOLE} as it is: name both"
    last = table["budget"].max()
    order = table[table["budget"] == last].sort_values("ratio", ascending=False)["variant"]
    lines = [
        f"latency over that of {WHOLE} as it is, {len(result['rows'])} workloads of "
        f"{table['kernels'].iloc[0]} kernels, {result['seeds']} seeds; * Holm's p < 0.05"
    ]
    wide = table.set_index(["variant", "budget"])
    for name in order:
        parts = []
        for budget in sorted(table["budget"].unique()):
            row = wide.loc[(name, budget)]
            star = "*" if row["p_holm"] < 0.05 else " "
            parts.append(f"{budget:3.0f}: {row['ratio']:.4f}{star}")
        lines.append(f"  {name:22s} {'  '.join(parts)}   {row['says']}")
    return "\n".join(lines)


def figure(result: Mapping[str, Any], *, venue: str | None = None) -> Any:
    """Draws every variant over the whole, at 25, 50, 100 and 200 trials."""
    from kt_lab import plots
    from kt_lab.plots.variants import caption_variants, plot_variants
    from kt_lab.study import VENUE, Drawing

    table = pd.DataFrame(result["paired"])
    table = table[table["budget"] != _BETWEEN].reset_index(drop=True)
    facts = {"workloads": len(result["rows"]), "seeds": result["seeds"], "gpu": result["gpu"]}
    with plots.paper(venue or VENUE, width="text"):
        return Drawing(
            plot_variants(table),
            table,
            caption_variants(table, whole=WHOLE, **facts),
            sources=(result,),
        )
