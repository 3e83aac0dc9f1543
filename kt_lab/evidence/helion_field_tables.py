"""Helion's searches against each other in its own spaces, as ratios to its pattern search."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.plots.style import searcher_style
from kt_lab.stats.pairs import Bootstrap, ratio_table
from kt_lab.stats.ratios import CONVERGENCE, LATENCY, WALL_CLOCK

REFERENCE = "helion_pattern"
WITHIN = 0.01
_OF_ROW = ("lanes", "seed", "trials", "elapsed_s", "cut", "most_s")
EFFORTS = ("quick", "full")
# LFBO over pattern search as helion #1280 publishes it, of several kernels on a B200, 15 runs
# each: latency, wall-clock, convergence time; it divides the other way round.
PUBLISHED = {"quick": (1 / 1.01, 1 / 1.15, 1 / 1.17), "full": (1 / 1.03, 1 / 1.49, 1 / 1.27)}


def field_runs(result: Mapping[str, Any], *, effort: str, timer: str = "events") -> pd.DataFrame:
    """Returns a row per run of a raced operation.

    Args:
        result: Of `kt-lab evidence helion_field`, stored.
        effort: Helion's profile, of EFFORTS.
        timer: Of the race: "events" or "graph".

    Returns:
        gpu, kernel, workload, searcher, lanes, seed; trials; elapsed_s, until its end was chosen;
        cut, whether its most_s were over before; end_us, what it ended with as the race timed it
        (inf: nothing that was right); target_us: 1 % above the median of what the reference last
        read as best; reached, whether a first reading of the run was as fast, and cost_s: when,
        or else all of its seconds.
    """
    rows = []
    own = [r for r in result["rows"] if r["effort"] == effort]
    races = {r["op"]: r for r in own if r["search"] == "race" and timer in r["medians_us"]}
    for row in own:
        race = races.get(row["op"])
        if row["search"] == "race" or race is None:
            continue
        us = dict(zip(race["names"], race["medians_us"][timer], strict=True))
        ends = [
            r["bests"][-1][2] if r["bests"] else np.inf
            for r in own
            if (r["op"], r["search"]) == (row["op"], REFERENCE)
        ]
        target_us = float(np.median(ends)) * (1 + WITHIN) if ends else np.nan
        reached_s = [s for _, s, read_us in row["bests"] if read_us <= target_us]
        rows.append(
            {
                "gpu": result["gpu"],
                "kernel": row["op"],
                "workload": row["op"],
                "searcher": row["search"],
            }
            | {name: row[name] for name in _OF_ROW}
            | {"end_us": us.get(f"{row['search']}/{row['seed']}", np.inf)}
            | {"target_us": target_us, "reached": bool(reached_s)}
            | {"cost_s": reached_s[0] if reached_s else row["elapsed_s"]}
        )
    return pd.DataFrame(rows)


def field_ratios(
    result: Mapping[str, Any], *, effort: str, timer: str = "events"
) -> dict[str, pd.DataFrame]:
    """Returns the three comparisons of helion #1115, as `kt_lab.stats.latency_ratios` and so on.

    Args:
        result: Of `kt-lab evidence helion_field`, stored.
        effort: Helion's profile.
        timer: Of the race.

    Returns:
        By LATENCY, WALL_CLOCK and CONVERGENCE: a row per (kernel, searcher), and a geomean row
        per searcher, over the kernels that the reference and it were both run on.
    """
    runs = field_runs(result, effort=effort, timer=timer)
    if runs.empty:
        return {}
    known = runs[runs["kernel"].isin(runs.loc[runs["searcher"] == REFERENCE, "kernel"])]
    measures = {
        LATENCY: ("us", True, np.log(known["end_us"]), 1.0, np.isfinite(known["end_us"])),
        WALL_CLOCK: ("s", False, known["elapsed_s"], 1.0, True),
        CONVERGENCE: ("s", False, known["cost_s"], known["reached"] * 1.0, known["reached"]),
    }
    tables = {}
    for name, (unit, logged, amount, weight, success) in measures.items():
        samples = known.assign(amount=amount, weight=weight, success=success)
        facts = {"measure": name, "unit": unit}
        facts |= {"within": WITHIN} if name == CONVERGENCE else {}
        tables[name] = ratio_table(
            samples, facts, reference=REFERENCE, logged=logged, bootstrap=Bootstrap()
        )
    return tables


def field_lines(result: Mapping[str, Any]) -> list[str]:
    """Returns the README's lines."""
    efforts = [effort for effort in EFFORTS if field_ratios(result, effort=effort)]
    lines = [_about(result)]
    for effort in efforts:
        runs = field_runs(result, effort=effort)
        lines += ["", _what(runs, effort), "", *_table(result, effort), "", _claim(result, effort)]
    return lines


def _about(result: Mapping[str, Any]) -> str:
    rows = [row for row in result["rows"] if "lanes" in row]
    lanes = " or ".join(map(str, sorted({row["lanes"] for row in rows})))
    return (
        f"Helion {result['helion']}'s searches against each other in its own spaces, live, as "
        "[pytorch/helion #1115](https://github.com/pytorch/helion/pull/1115) compares them "
        "(`kt-lab evidence helion_field`). Each is Helion's class with its effort profile, from a "
        f"random first population; the same workers ({lanes} compile lanes) generate, compile, "
        "check and time all configs. UCB, which Helion did not keep, is ours, and `scout` has as "
        "many configs as LFBO pattern search of that seed. Latencies are of one final race on one "
        f"{result['gpu']}; "
        "seconds last until a run has chosen its end; convergence: first readings within 1 % of "
        "what pattern search ends with, runs that never read so count with all their seconds. "
        "Ratios to pattern search (low to high)."
    )


def _what(runs: pd.DataFrame, effort: str) -> str:
    seeds = sorted(runs.groupby("kernel")["seed"].nunique().unique())
    kernels = ", ".join(dict.fromkeys(runs["kernel"]))
    told = " or ".join(map(str, seeds))
    return f'Effort "{effort}", {told} seeds: {kernels}.'


def _table(result: Mapping[str, Any], effort: str) -> list[str]:
    runs = field_runs(result, effort=effort)
    tables = field_ratios(result, effort=effort)
    means = {
        name: table[table["scope"] == "geomean"].set_index("searcher")
        for name, table in tables.items()
    }
    order = means[LATENCY]["estimate"].sort_values(kind="stable").index
    lines = [
        "| search | kernels | configs | seconds | cut | latency | wall-clock | convergence time "
        "| within 1 % |",
        "| --- " * 9 + "|",
    ]
    for name in order:
        own = runs[runs["searcher"] == name]
        cells = [_cell(means[m].loc[name], name) for m in (LATENCY, WALL_CLOCK, CONVERGENCE)]
        lines.append(
            f"| {searcher_style(name).label} | {own['kernel'].nunique()} "
            f"| {own['trials'].median():.0f} | {own['elapsed_s'].median():.0f} "
            f"| {own['cut'].sum()} of {len(own)} | {' | '.join(cells)} "
            f"| {own['reached'].mean():.0%} |"
        )
    return lines


def _cell(row: pd.Series, name: str) -> str:
    if name == REFERENCE:
        return "1"
    return f"{row['estimate']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


def _claim(result: Mapping[str, Any], effort: str) -> str:
    """Returns what the pull request's authors found beside what these runs say."""
    tables = field_ratios(result, effort=effort)
    names = ("latency", "wall-clock", "convergence time")
    told = []
    for name, measure, theirs in zip(
        names, (LATENCY, WALL_CLOCK, CONVERGENCE), PUBLISHED[effort], strict=True
    ):
        table = tables[measure]
        row = table[(table["scope"] == "geomean") & (table["searcher"] == "helion_lfbo_pattern")]
        if row.empty:
            return ""
        found = row.iloc[0]
        inside = found["low"] <= theirs <= found["high"]
        told.append(
            f"{name} {theirs:.2f}, here {found['estimate']:.2f}"
            f" ({'inside' if inside else 'outside'} of the interval)"
        )
    return f"LFBO over pattern search, published (B200, 15 runs each): {'; '.join(told)}."


def report(result: Mapping[str, Any]) -> str:
    """Returns the tables for people."""
    parts: list[Sequence[str]] = []
    for effort in EFFORTS:
        runs = field_runs(result, effort=effort)
        if not runs.empty:
            parts.append([effort, runs.drop(columns=["gpu", "workload"]).to_string(index=False)])
    if not parts:
        return "no operation was raced yet"
    return "\n\n".join("\n".join(part) for part in parts) + "\n\n" + "\n".join(field_lines(result))
