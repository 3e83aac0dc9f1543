"""RESULTS.md's tables of cold searches, made from what is stored."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.evidence import captured, foreign, hurried
from kt_lab.evidence import exhausted as noise
from kt_lab.evidence.cold import (
    BUDGETS,
    FLAGSHIP,
    NEAR,
    SPREAD,
    against_best,
    by_kernel,
    judged,
    ratios,
    targets,
)
from kt_lab.evidence.markdown import bullets, folded
from kt_lab.plots.style import searcher_style

_SEEDS = {"p90": "90th percentile", "worst": "worst"}
_CAPTURED = (
    "{count} kernels were captured as users capture theirs and recorded at one shape each, after "
    "all of this was set (`kt-lab evidence captured`; their code is in `kt_lab/evidence`, "
    "their landscapes are not shipped). Nothing was changed with them in view; searched by "
    "`KT_LAB_DATA=DIR kt-lab evidence --out data/evidence/cold-captured.json cold --kernels "
    "...`."
)


def block(
    held_out: Mapping[str, Any],
    unseen: Mapping[str, Any],
    brought: Mapping[str, Any],
    told: Mapping[str, Any],
    older: Mapping[str, Any],
    other_gpu: Mapping[str, Any],
    other_tuners: Mapping[str, Any],
    exhausted: Mapping[str, Any],
) -> str:
    """Returns the tables of RESULTS.md as Markdown.

    Args:
        held_out: What the command stores.
        unseen: The same of kernels that were recorded when all of the flagship was set.
        brought: The same of kernels that were captured as a user's own would be.
        told: What `kt-lab evidence captured` stores of these.
        older: The same of the kernels that the flagship was designed or first judged on.
        other_gpu: The same of these kernels on another GPU.
        other_tuners: What `kt-lab evidence foreign` stores.
        exhausted: What `kt-lab evidence exhausted` stores of the same as held_out.
    """
    since = (
        "Attention, cross entropy and the grouped products of a mixture of experts were recorded "
        "when all of `scout` was set (commit 2dc510a); since then one thing was changed, what a "
        "config that fails tells the model, which matters to attention alone; its rows are anew "
        "(`kt-lab evidence --out data/evidence/cold-unseen.json cold --kernels ...`)."
    )
    said = (
        "The other kernels, on half of which it was designed and on half of which it was first "
        "judged (<code>kt-lab evidence --out data/evidence/cold-older.json cold --kernels "
        "...</code>)"
    )
    there = (
        "These kernels on another GPU (<code>kt-lab evidence --out data/evidence/cold-h100.json "
        "cold --gpu h100 --kernels ...</code>)"
    )
    others = (
        "A landscape that another tuner recorded (<code>kt-lab evidence foreign FILES</code>), "
        "not shipped: it lies in the tests of autotuning_methodology 1.1.0 (MIT, on PyPI). Up to "
        "how many members `scout` looks at all of a space was raised with it in view"
    )
    parts = [
        _markdown(held_out, noise.by_kernel(exhausted["rows"])),
        since,
        _markdown(unseen),
        _CAPTURED.format(count=len(told["rows"])),
        _markdown(brought),
        folded("What they are, and what was recorded", captured.report(told)),
        folded(said, _markdown(older)),
        folded(there, _markdown(other_gpu)),
    ]
    return "\n\n".join([*parts, folded(others, foreign.report(other_tuners))])


def _markdown(result: Mapping[str, Any], everything: pd.DataFrame | None = None) -> str:
    table = judged(result)
    means = ratios(table)
    means = means[means["scope"] == "geomean"].set_index(["searcher", "budget"])
    counts, last = means.iloc[0], max(b for b in BUDGETS if b <= result["trials"])
    end = means.xs(last, level="budget").sort_values("estimate")
    once = table[table["budget"] == last]
    lines = [
        f"| latency / optimum after | {' | '.join(f'{b} trials' for b in BUDGETS[:-1])} | "
        f"{last} trials [95 %] | worst seeds | close | s until then |",
        "| --- " * (len(BUDGETS) + 4) + "|",
    ]
    for name, row in end.iterrows():
        told = [f"{means.loc[(name, b), 'estimate']:.3f}" for b in BUDGETS[:-1]]
        told.append(f"{row.estimate:.3f} [{row.low:.3f}, {row.high:.3f}]")
        seconds = once.loc[once["searcher"] == name, "close_s"]
        told += [f"{row.worst:.3f}", f"{np.isfinite(seconds).mean():.0%}"]
        told.append(f"{seconds.median():.1f}" if np.isfinite(seconds.median()) else "")
        lines.append(f"| {searcher_style(str(name)).label} | {' | '.join(told)} |")
    lines += [
        "",
        f"{counts.n_workloads} workloads of {counts.n_kernels} kernels on the "
        f"{result['gpu'].upper()}, {result['seeds']} seeds, {result['lanes']} compile lanes. "
        "Worst seeds: geomean over workloads. Close: a run stood within 1 % of the optimum, or "
        "0.2 % above the landscape's noise floor where that is more, at any time; then the median "
        "seconds.",
        "",
        bullets(
            [
                *_asked(table, everything),
                *hurried.words(once, hurried.hurried_s(result), searcher=FLAGSHIP),
                *_tests(table, result["paired"]),
            ]
        ),
    ]
    return "\n".join(lines)


def _tests(table: pd.DataFrame, tests: Sequence[Mapping[str, Any]]) -> list[str]:
    label = searcher_style(FLAGSHIP).label
    parts = []
    for budget in dict.fromkeys(row["budget"] for row in tests):
        rows = [row for row in tests if row["budget"] == budget]
        told = [
            f"{searcher_style(row['peer']).label} {row['ratio']:.3f} ({row['p_holm']:.3f})"
            for row in sorted(rows, key=lambda row: -row["ratio"])
        ]
        parts.append(
            f"{label} over each peer after {budget} trials, kernels as pairs (p of "
            f"{tests[0]['n_pairs']} signed ranks, Holm-corrected): {', '.join(told)}."
        )
    best = [
        f"after {row['budget']} trials {searcher_style(row['peer']).label} {row['ratio']:.3f} "
        f"({row['p_holm']:.3f})"
        for row in against_best(table, tests)
    ]
    alone = f"Over the best peer of each budget alone (corrected for {len(best)} tests): "
    return [f"{alone}{'; '.join(best)}.", *parts]


def _asked(table: pd.DataFrame, everything: pd.DataFrame | None) -> list[str]:
    told = [
        f"{row.ratio:.4f} after {row.budget} (asked {row.target:.3f}, with noise floors "
        f"{row.allowed:.4f}; met on {row.met:.0%} of workloads, on {row.reached:.0%} with them)"
        for row in targets(table).itertuples()
    ]
    label = searcher_style(FLAGSHIP).label
    last = targets(table).iloc[-1]
    return [
        f"Medians over seeds: {label} {', '.join(told)}.",
        f"Seeds of the worst workload after {last.budget:.0f}: 90th percentile {last.p90:.3f} "
        f"(asked {SPREAD['p90']:.3f}), worst {last.worst:.3f} (asked {SPREAD['worst']:.3f}). Over "
        f"the workloads of a kernel: {_scatter(table, last.budget, 'p90', everything)}, "
        f"{_scatter(table, last.budget, 'worst', everything)}.",
    ]


def _scatter(
    table: pd.DataFrame, budget: float, column: str, everything: pd.DataFrame | None
) -> str:
    kernels = by_kernel(table, budget)
    reached = kernels[column] <= np.maximum(SPREAD[column], NEAR * kernels["floor"])
    where = kernels[column].idxmax()
    if everything is not None:
        where += f", where reading every config ends at {everything.loc[where, column]:.3f}"
    return (
        f"{_SEEDS[column]} {kernels[column].max():.3f} at most ({where}), as asked on "
        f"{reached.sum()} of {len(kernels)}"
    )
