"""The flagship beside its peers without knowing anything beforehand, by replay.

The kernels are those of the MoE study: `scout` was not designed on them. FRESH were recorded after
its constants were set, but for two that an ablation on older kernels changed later (`ahead` and
`effects`), when they were known to help here too. Every searcher has its own defaults and lanes.
"""

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.cells import Cell, recorded, run_cell
from kt_lab.evidence import hurried
from kt_lab.evidence.resuming import Rows, columns, rows_of, short
from kt_lab.evidence.sizes import add_effort, recordings
from kt_lab.experiment import process_pool
from kt_lab.plots.forest import plot_budgets
from kt_lab.plots.style import searcher_style
from kt_lab.provenance import provenance
from kt_lab.stats.budgets import judged_ratios
from kt_lab.stats.curves import incumbent_curves, step_values
from kt_lab.stats.intervals import log_ratio
from kt_lab.stats.significance import holm, signed_ranks
from kt_lab.study import levels

FRESH = ("moe_weights_cast", "moe_weights_colwise")
KERNELS = (
    *FRESH,
    "moe_weights_atomic",
    "moe_weights_reduction",
    "jagged_rowwise",
    "jagged_colwise",
    "blockwise_quantise",
    "tokens_transpose",
)
SEARCHERS = (
    "scout",
    "random",
    "pattern",
    "lfbo_tree",
    "helion_lfbo_tree",
    "tpe",
    "genetic",
    "kt_adaptive_tabu_greywolf",
)
FLAGSHIP = SEARCHERS[0]
BUDGETS = (25, 30, 50, 100, 200)
TARGETS = {30: 1.030, 50: 1.015, 100: 1.005, 200: 1.002}
"""What the flagship was asked to reach: trials -> latency over the optimum."""
SPREAD = {"p90": 1.010, "worst": 1.030}  # the same of its seeds after 200 trials, everywhere
BEGIN, END = "<!-- cold -->", "<!-- /cold -->"
NEAR = 1.002  # of a landscape's noise floor, where that is above a target
_CLOSE = 1.01  # of the optimum: what the seconds are counted to


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is searched, and how often."""
    parser.add_argument("--kernels", nargs="+", default=list(KERNELS))
    parser.add_argument("--workloads", nargs="+", help="keys; default: all of the kernels")
    add_effort(parser, SEARCHERS)
    parser.add_argument("--again", action="store_true", help="search what is stored once more")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Searches every landscape with every searcher; goes on where it was stopped."""
    entries = recordings(args.gpu, args.kernels, args.workloads)
    facts = {
        name: getattr(args, name) for name in ("gpu", "searchers", "seeds", "trials", "lanes")
    }
    rows = Rows(args.out, facts, provenance(), again=args.again)
    with process_pool(args.workers) as pool:
        for entry in entries:
            rows.once({"workload": entry.workload}, partial(_row, pool, entry.workload, args))
    table = judged(rows.result)
    means = ratios(table)
    means = means[means["scope"] == "geomean"].dropna(axis="columns", how="all")
    rows.result["means"] = means.to_dict("records")
    told = [b for b in BUDGETS[2:] if b <= args.trials and FLAGSHIP in args.searchers]
    rows.result["paired"] = [row for budget in told for row in paired(table, budget)]
    return rows.result


def _row(pool: Executor, workload: str, args: argparse.Namespace) -> dict[str, Any]:
    level = levels(workload, gpu=args.gpu)
    row, close_us = {"kernel": recorded(workload, args.gpu).kernel, **level}, close_to(level)
    row["runs"] = all_searched(pool, workload, args.gpu, close_us, args)
    if FLAGSHIP in args.searchers:
        cells = hurried.cells(FLAGSHIP, workload, vars(args))
        found = pool.map(searched, cells, [close_us] * len(cells))
        row["hurried_close_s"] = [run_["close_s"] for run_ in found]
    return row


def all_searched(
    pool: Executor, workload: str, gpu: str | None, close_us: float, args: argparse.Namespace
) -> dict[str, list[Any]]:
    """Returns what `searched` does of every searcher and seed, as columns in `who`'s order."""
    pairs = who(vars(args))
    cells = [
        Cell(workload, gpu, name, name, (), args.lanes, seed, args.trials, None)
        for name, seed in pairs
    ]
    return columns(list(pool.map(searched, cells, [close_us] * len(cells))))


def who(facts: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Returns the searcher, or variant, and the seed of every run of a row, in their order."""
    names = facts.get("searchers") or facts["variants"]
    return [(name, seed) for name in names for seed in range(facts["seeds"])]


def close_to(level: Mapping[str, float]) -> float:
    """Returns the latency that counts as found, in microseconds, from `kt_lab.study.levels`."""
    return level["optimum_us"] * max(_CLOSE, NEAR * level["noise_floor"])


def searched(cell: Cell, close_us: float) -> dict[str, Any]:
    """Searches once.

    Returns:
        judged_us, the incumbent's judged latency at each budget, None before the first; close_s,
        compile, timing and search seconds until it is at most `close_us`, None if never;
        search_ms, the searcher's own milliseconds a trial, of a CPU.
    """
    run_ = run_cell(cell)
    curve = incumbent_curves(run_)
    at = step_values(curve, np.array(BUDGETS), x="spent_trials", value="judged_us")
    close = curve.loc[curve["judged_us"] <= close_us, "elapsed_s"]
    return {
        "judged_us": [short(us, 5) for us in at],
        "close_s": short(close.min(), 4) if len(close) else None,
        "search_ms": short(1e3 * run_["search_s"].max() / max(1, len(run_)), 3),
    }


def judged(
    result: Mapping[str, Any],
    *,
    kernels: Sequence[str] | None = None,
    budgets: Sequence[int] = BUDGETS,
) -> pd.DataFrame:
    """Returns a row per run and budget, as `kt_lab.stats.budgets.judged_at` does, and more.

    Args:
        result: As the command stores it.
        kernels: Only these; None: all.
        budgets: That each run was judged at.

    Returns:
        Further columns optimum_us, noise_floor, close_s (inf: never) and search_ms.
    """
    told = [
        {
            **_facts(result, row),
            **_run(pair, run_),
            "budget": float(budget),
            "judged_us": _or_inf(us),
        }
        for row in result["rows"]
        if kernels is None or row["kernel"] in kernels
        for pair, run_ in zip(who(result), rows_of(row["runs"]), strict=True)
        for budget, us in zip(budgets, run_["judged_us"], strict=True)
        if budget <= result["trials"]
    ]
    return pd.DataFrame(told).assign(axis="spent_trials")


def _facts(result: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    here = {name: row[name] for name in ("workload", "kernel", "optimum_us", "noise_floor")}
    return here | {"gpu": row.get("gpu") or result["gpu"], "lanes": result["lanes"]}


def _run(pair: tuple[str, int], run_: Mapping[str, Any]) -> dict[str, Any]:
    searcher, seed = pair
    said = {"close_s": _or_inf(run_["close_s"]), "search_ms": run_["search_ms"]}
    return {"searcher": searcher, "seed": seed, **said}


def _or_inf(value: float | None) -> float:
    return np.inf if value is None else value


def ratios(table: pd.DataFrame) -> pd.DataFrame:
    """Returns latencies over the optimum, as `kt_lab.stats.latency_at` does, from `judged`."""
    optima = table.drop_duplicates(["gpu", "workload"])[["gpu", "workload", "optimum_us"]]
    return judged_ratios(table, optima=optima, reference=None)


def paired(table: pd.DataFrame, budget: float) -> list[dict[str, Any]]:
    """Returns signed-rank tests of the flagship against each peer at a budget, Holm-corrected.

    A pair is a kernel: the mean over its workloads and their seeds of both log latencies.
    """
    at = table[table["budget"] == budget]
    logs = np.log(at["judged_us"]).groupby([at["kernel"], at["workload"], at["searcher"]]).mean()
    wide = logs.unstack("searcher").groupby(level="kernel").mean()
    rows = [
        {"budget": budget, "peer": name} | signed_ranks(log_ratio(wide[FLAGSHIP], wide[name]))
        for name in wide.columns
        if name != FLAGSHIP
    ]
    corrected = holm([row["p"] for row in rows])
    return [row | {"p_holm": float(p)} for row, p in zip(rows, corrected, strict=True)]


def against_best(table: pd.DataFrame, tests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the tests of `paired` against the best peer of each budget, corrected for these.

    The best is that with the lowest geomean over workloads of medians over seeds: the hardest to
    beat, as it was chosen by the same runs. There are as many tests as budgets, not as peers.

    Args:
        table: From `judged`.
        tests: From `paired`, of any budgets.
    """
    ratio = np.log(table["judged_us"] / table["optimum_us"])
    medians = ratio.groupby([table["budget"], table["searcher"], table["workload"]]).median()
    means = medians.groupby(["budget", "searcher"]).mean()
    rows = []
    for budget in dict.fromkeys(row["budget"] for row in tests):
        best = means[budget].drop(FLAGSHIP).idxmin()
        rows += [row for row in tests if (row["budget"], row["peer"]) == (budget, best)]
    corrected = holm([row["p"] for row in rows])
    return [row | {"p_holm": float(p)} for row, p in zip(rows, corrected, strict=True)]


def targets(table: pd.DataFrame, *, searcher: str = FLAGSHIP) -> pd.DataFrame:
    """Returns how a searcher stands to what was asked of the flagship.

    Returns:
        A row per budget with a target: budget, target, allowed (the same, or near their noise
        floor), ratio (of medians over seeds; both are geomeans over workloads), p90 and worst (of
        any seed, on the worst workload), met and reached (share of workloads at either of them).
    """
    own = table[table["searcher"] == searcher]
    own = own.assign(ratio=own["judged_us"] / own["optimum_us"])
    rows = []
    for budget, target in TARGETS.items():
        at = own[own["budget"] == budget]
        if at.empty:
            continue
        groups = at.groupby("workload")
        medians = groups["ratio"].median()
        allowed = np.maximum(target, NEAR * groups["noise_floor"].first())
        rows.append(
            {
                "budget": budget,
                "target": target,
                "allowed": float(np.exp(np.log(allowed).mean())),
                "ratio": float(np.exp(np.log(medians).mean())),
                "p90": float(groups["ratio"].quantile(0.9).fillna(np.inf).max()),
                "worst": float(at["ratio"].max()),
                "met": float((medians <= target).mean()),
                "reached": float((medians <= allowed).mean()),
            }
        )
    return pd.DataFrame(rows)


def by_kernel(table: pd.DataFrame, budget: float, *, searcher: str = FLAGSHIP) -> pd.DataFrame:
    """Returns how the seeds of a searcher scatter on every kernel.

    Returns:
        By kernel, geomeans over workloads: p90 and worst of seeds over the optimum, noise floor.
    """
    own = table[(table["searcher"] == searcher) & (table["budget"] == budget)]
    own = own.assign(log=np.log(own["judged_us"] / own["optimum_us"]))
    groups = own.groupby(["kernel", "workload"])
    p90 = groups["log"].quantile(0.9).fillna(np.inf)  # pandas has no quantile between infinities
    each = pd.DataFrame({"p90": p90, "worst": groups["log"].max()})
    each["floor"] = np.log(groups["noise_floor"].first())
    return np.exp(each.groupby(level="kernel").mean())


def figure(result: Mapping[str, Any], *, venue: str | None = None) -> Any:
    """Draws latencies over the optimum at budgets, all searchers."""
    from kt_lab import plots
    from kt_lab.study import VENUE, Drawing

    found = ratios(judged(result))
    means = found[(found["scope"] == "geomean") & (found["budget"] >= BUDGETS[2])]
    counts = means.iloc[0]
    said = (
        f"Latency above the optimum after 50, 100 and 200 trials, geomeans over "
        f"{counts.n_workloads} workloads of {counts.n_kernels} kernels on "
        f"{result['gpu'].upper()}, {result['seeds']} seeds, {result['lanes']} compile lanes, by "
        f"replay; 95 % intervals over kernels, workloads and seeds; ticks: 90th percentile of "
        "the seeds. No searcher knows anything beforehand."
    )
    with plots.paper(venue or VENUE, width="text"):
        return Drawing(plot_budgets(means.reset_index(drop=True)), means, said, sources=(result,))


def report(result: Mapping[str, Any]) -> str:
    """Returns the tables for people."""
    lines = []
    sets = {"all": None, "recorded since": FRESH}
    for name, kernels in sets.items():
        table = judged(result, kernels=kernels)
        if table.empty:
            continue
        told = table.assign(ratio=table["judged_us"] / table["optimum_us"])
        medians = told.groupby(["searcher", "budget", "workload"])["ratio"].median()
        means = np.exp(np.log(medians).groupby(["searcher", "budget"]).mean()).unstack("budget")
        lines.append(f"{name}: {told['workload'].nunique()} workloads, latency / optimum")
        for searcher, row in means.sort_values(means.columns[-1]).iterrows():
            text = "  ".join(f"{ratio:.4f}" for ratio in row)
            lines.append(f"  {searcher_style(str(searcher)).label:28s} {text}")
        lines.append(targets(table).round(4).to_string(index=False))
    for row in result["paired"]:
        lines.append(
            f"after {row['budget']:3.0f}: {FLAGSHIP} / {row['peer']:26s} {row['ratio']:.4f}, "
            f"p {row['p']:.3f}, Holm {row['p_holm']:.3f}, {row['n_pairs']} kernels"
        )
    return "\n".join(lines)
