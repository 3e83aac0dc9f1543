"""Helion's searches against each other in its own spaces, as a page tells of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.evidence.cold import FLAGSHIP
from kt_lab.evidence.helion_field_tables import (
    AS_LONG,
    DEFAULT,
    EFFORTS,
    LFBO,
    REFERENCE,
    field_ratios,
    field_runs,
    on_one_machine,
)
from kt_lab.evidence.markdown import folded, grid
from kt_lab.plots.captions import counted
from kt_lab.plots.style import searcher_style
from kt_lab.stats.ratios import CONVERGENCE, LATENCY, WALL_CLOCK

_NONE = pd.DataFrame({"searcher": [], "scope": []})
_FEWEST = 2  # kernels of a table of means
# LFBO over pattern search as helion #1280 publishes it, of several kernels on a B200, 15 runs
# each: latency, wall-clock, convergence time; it divides the other way round.
PUBLISHED = {"quick": (1 / 1.01, 1 / 1.15, 1 / 1.17), "full": (1 / 1.03, 1 / 1.49, 1 / 1.27)}


def field_lines(result: Mapping[str, Any], *, about: bool = True) -> list[str]:
    """Returns the lines of RESULTS.md, with or without how it was measured."""
    efforts = [e for e in EFFORTS if len(field_runs(result, effort=e))]
    lines = [_about(result)] if about else []
    for effort in efforts:
        runs = field_runs(result, effort=effort)
        if runs["kernel"].nunique() < _FEWEST:
            continue
        lines += [
            "",
            _what(result, runs, effort),
            "",
            *_table(result, effort),
            "",
            _claim(result, effort) + _over_default(result, effort),
            *_on_one_machine(on_one_machine(result), effort),
        ]
    return [*lines, "", _details(result, efforts)]


def _about(result: Mapping[str, Any]) -> str:
    rows = [row for row in result["rows"] if "lanes" in row]
    lanes = " or ".join(map(str, sorted({row["lanes"] for row in rows})))
    again = (
        "not timed again, which spares pattern search most: its neighbours are often one kernel"
        if result["shared_code"]
        else "timed again, as by Helion"
    )
    long = any(row["search"] == AS_LONG for row in rows)
    seconds = f"; `{AS_LONG}` searches for as many seconds as pattern search" if long else ""
    return (
        f"Helion {result['helion']}'s searches against each other in its own spaces, live on one "
        f"{result['gpu']}, as [pytorch/helion #1115](https://github.com/pytorch/helion/pull/1115) "
        f"compares them (`kt-lab evidence helion_field{_asked(rows)}`). Each is Helion's class "
        "with its effort profile, from a random first population; the same workers "
        f"({lanes} compile lanes) generate, compile, check and time all configs; a config whose "
        f"code was timed before is {again}. UCB, which Helion did not keep, is ours, and `scout` "
        f"has as many configs as LFBO pattern search of that seed{seconds}. Latencies are of one "
        "final race by both timers, seconds last until a run has chosen its end, and convergence "
        "is the first reading within 1 % of the last incumbent's of pattern search; runs that "
        "never read so count with all their seconds. A run that tries more configs reads a "
        "luckier least one, so that reaching it says less of a search than the race does. Ratios "
        "to pattern search (low to high)."
    )


def _asked(rows: Sequence[Mapping[str, Any]]) -> str:
    efforts = " and --effort ".join(sorted({row["effort"] for row in rows}))
    return f" --effort {efforts} --seeds {1 + max(row['seed'] for row in rows)}"


def _what(result: Mapping[str, Any], runs: pd.DataFrame, effort: str) -> str:
    seeds = sorted(runs.groupby("kernel")["seed"].nunique().unique())
    kernels = ", ".join(dict.fromkeys(runs["kernel"]))
    told = " or ".join(map(str, seeds))
    limits = sorted(runs["most_s"].unique())
    most_s = f"{limits[0]:g}" + (f" to {limits[-1]:g}" if len(limits) > 1 else "")
    return (
        f'{result["gpu"]}, effort "{effort}", seeds: {told}, runs cut after {most_s} s: {kernels}.'
    )


def _means(result: Mapping[str, Any], effort: str, timer: str) -> dict[str, pd.DataFrame]:
    tables = field_ratios(result, effort=effort, timer=timer)
    return {
        name: table[table["scope"] == "geomean"].set_index("searcher")
        for name, table in tables.items()
    }


def _table(result: Mapping[str, Any], effort: str) -> list[str]:
    runs = field_runs(result, effort=effort)
    means, graph = (_means(result, effort, timer) for timer in ("events", "graph"))
    columns = [means[LATENCY], graph.get(LATENCY), means[WALL_CLOCK], means[CONVERGENCE]]
    lines = [
        "| search | kernels | configs | seconds | cut | latency, events | latency, graph "
        "| wall-clock | convergence time | within 1 % |",
        "| --- " * 10 + "|",
    ]
    for name in means[LATENCY]["estimate"].sort_values(kind="stable").index:
        own = runs[runs["searcher"] == name]
        cells = " | ".join(_cell(column, name) for column in columns)
        lines.append(
            f"| {searcher_style(name).label} | {own['kernel'].nunique()} "
            f"| {own['trials'].median():.0f} | {own['elapsed_s'].median():.0f} "
            f"| {own['cut'].sum()} of {len(own)} | {cells} | {own['reached'].mean():.0%} |"
        )
    return lines


def _cell(column: pd.DataFrame | None, name: str) -> str:
    if column is None or name not in column.index:
        return "-"
    row = column.loc[name]
    if name == REFERENCE:
        return "1"
    if np.isinf(row["estimate"]):
        return "not on every kernel"
    if np.isnan(row["low"]):
        return f"{row['estimate']:.3f}"
    return f"{row['estimate']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


def _claim(result: Mapping[str, Any], effort: str) -> str:
    """Returns what the pull request's authors found beside what these runs say."""
    means = _means(result, effort, "events")
    names = ("latency", "wall-clock", "convergence time")
    told = []
    for name, measure, theirs in zip(
        names, (LATENCY, WALL_CLOCK, CONVERGENCE), PUBLISHED[effort], strict=True
    ):
        if LFBO not in means[measure].index:
            return ""
        row = means[measure].loc[LFBO]
        if np.isinf(row["estimate"]):
            here = f"reached by {row['n_success']:.0f} of {row['n_runs']:.0f} runs"
        else:
            inside = "in" if row["low"] <= theirs <= row["high"] else "out"
            here = f"{row['estimate']:.2f} ({inside}side)"
        told.append(f"{name} {theirs:.2f}, here {here}")
    return (
        "LFBO pattern search over pattern search, published when it became the default ([#1280]"
        "(https://github.com/pytorch/helion/pull/1280); B200, 15 runs each) and here, inside "
        f"or outside of our interval: {'; '.join(told)}."
    )


def _over_default(result: Mapping[str, Any], effort: str) -> str:
    """Words the flagship over what Helion runs unless told otherwise, if both ran."""
    tables = {
        timer: field_ratios(result, effort=effort, timer=timer, reference=DEFAULT)
        for timer in ("events", "graph")
    }
    told = []
    read = (("events", LATENCY), ("graph", LATENCY), ("events", WALL_CLOCK))
    for name in (AS_LONG, FLAGSHIP):
        found = [tables[timer].get(measure, _NONE) for timer, measure in read]
        latency, graph, seconds = (
            table[table["searcher"] == name].set_index("scope") for table in found
        )
        if latency.empty:
            continue
        kernels = latency.loc[["workload"], "estimate"]
        graphs = f" by events, {_cell(graph, 'geomean')} by graphs" if len(graph) else ""
        told.append(
            f"{searcher_style(name).label} {_cell(latency, 'geomean')}{graphs}, after "
            f"{_cell(seconds, 'geomean')} of the seconds ({counted(len(kernels), 'kernel')}, "
            f"{kernels.min():.3f} to {kernels.max():.3f} by events)"
        )
    if not told:
        return ""
    label = searcher_style(DEFAULT).label
    return f" Over {label}, Helion's default of today, latency: {'; '.join(told)}."


def _on_one_machine(result: Mapping[str, Any], effort: str) -> list[str]:
    """Returns the table once more for runs whose seconds were spent on the same cores and GPU."""
    runs = field_runs(result, effort=effort)
    if runs.empty or runs["kernel"].nunique() < _FEWEST:
        return []
    seeds = runs.groupby(["kernel", "searcher"])["seed"].nunique().max()
    told = (
        "Of these, runs that share machine and GPU with pattern search's of that seed, so that "
        f"no host was faster than another ({counted(seeds, 'seed')} each)."
    )
    return ["", told + _over_default(result, effort), "", *_table(result, effort)]


def _details(result: Mapping[str, Any], efforts: Sequence[str]) -> str:
    noted = any("waited_s" in row for row in result["rows"])  # not in the oldest results
    heads = ["effort", "kernel", "search", "seed", "configs", "seconds"]
    heads += ["of it waiting"] * noted + ["µs, events", "µs, graph"]
    rows = []
    for effort in efforts:
        graph = field_runs(result, effort=effort, timer="graph")
        keys = ["kernel", "searcher", "seed"]
        us = graph.set_index(keys)["end_us"] if len(graph) else {}
        for r in field_runs(result, effort=effort).itertuples():
            about = [effort, r.kernel, searcher_style(r.searcher).label, str(r.seed)]
            seconds = [f"{r.elapsed_s:.0f}"]
            seconds += ["-" if np.isnan(r.waited_s) else f"{r.waited_s:.0f}"] * noted
            graph_us = us.get((r.kernel, r.searcher, r.seed), np.nan)
            rows.append([*about, str(r.trials), *seconds, f"{r.end_us:.2f}", f"{graph_us:.2f}"])
    return folded("Every run", grid(heads, rows))


def report(result: Mapping[str, Any]) -> str:
    """Returns the tables for people."""
    if not any(len(field_runs(result, effort=effort)) for effort in EFFORTS):
        return "no operation was raced yet"
    return "\n".join(field_lines(result))
