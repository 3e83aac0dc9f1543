"""Helion's searches against each other in its own spaces, as ratios to its pattern search."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.evidence.beside_helion import OPERATIONS
from kt_lab.stats.pairs import Bootstrap, ratio_table
from kt_lab.stats.ratios import CONVERGENCE, LATENCY, WALL_CLOCK

REFERENCE = "helion_pattern"
WITHIN = 0.01
LFBO = "helion_lfbo_pattern"
DEFAULT = "helion_lfbo_tree"  # since helion #1521
AS_LONG = "scout_as_long"
_OF_ROW = ("lanes", "seed", "trials", "elapsed_s", "cut", "most_s")
EFFORTS = ("quick", "full")


def field_runs(result: Mapping[str, Any], *, effort: str, timer: str = "events") -> pd.DataFrame:
    """Returns a row per run of a raced operation.

    Args:
        result: Of `kt-lab evidence helion_field`, stored.
        effort: Helion's profile, of EFFORTS.
        timer: Of the race: "events" or "graph".

    Returns:
        gpu, kernel, workload, searcher, lanes, seed; trials; elapsed_s, until its end was chosen;
        waited_s, of it, for measurements (nan: not noted); cut, whether its most_s were over
        before; end_us, what it ended with as the race timed it
        (inf: nothing that was right); target_us: 1 % above the median of what the reference last
        read as best; reached, whether a first reading of the run was as fast, and cost_s: when,
        or else all of its seconds.
    """
    rows = []
    own = [r for r in result["rows"] if r["effort"] == effort]
    races = {r["op"]: r for r in own if r["search"] == "race" and timer in r.get("medians_us", ())}
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
                "workload": OPERATIONS[row["op"]],
                "searcher": row["search"],
            }
            | {name: row[name] for name in _OF_ROW}
            | {"waited_s": row.get("waited_s", np.nan)}
            | {"end_us": us.get(f"{row['search']}/{row['seed']}", np.inf)}
            | {"target_us": target_us, "reached": bool(reached_s)}
            | {"cost_s": reached_s[0] if reached_s else row["elapsed_s"]}
        )
    return pd.DataFrame(rows)


def field_curves(result: Mapping[str, Any], *, effort: str) -> pd.DataFrame:
    """Returns what `kt_lab.stats.convergence_bands` draws: a row per incumbent of every run.

    Args:
        result: Of `kt-lab evidence helion_field`, stored.
        effort: Helion's profile.

    Returns:
        gpu, kernel, workload, searcher, lanes, seed; spent_trials, elapsed_s; judged_us, the
        incumbent's first reading, which is what the search went by. The last row is a run's end.
    """
    rows = []
    for row in result["rows"]:
        if row["effort"] != effort or row["search"] == "race" or not row["bests"]:
            continue
        about = {"gpu": result["gpu"], "kernel": row["op"], "workload": OPERATIONS[row["op"]]}
        about |= {"searcher": row["search"], "lanes": row["lanes"], "seed": row["seed"]}
        ends = [row["trials"], row["elapsed_s"], row["bests"][-1][2]]
        rows += [
            about | {"spent_trials": trials, "elapsed_s": seconds, "judged_us": us}
            for trials, seconds, us in [*row["bests"], ends]
        ]
    return pd.DataFrame(rows)


def field_ratios(
    result: Mapping[str, Any], *, effort: str, timer: str = "events", reference: str = REFERENCE
) -> dict[str, pd.DataFrame]:
    """Returns the three comparisons of helion #1115, as `kt_lab.stats.latency_ratios` and so on.

    Args:
        result: Of `kt-lab evidence helion_field`, stored.
        effort: Helion's profile.
        timer: Of the race.
        reference: The search that ratios are to. What counts as converged is what REFERENCE
            ended with, whichever it is.

    Returns:
        By LATENCY, WALL_CLOCK and CONVERGENCE: a row per (kernel, searcher), and a geomean row
        per searcher, over the kernels that the reference and it were both run on. Kernels with
        one search only are left out.
    """
    runs = field_runs(result, effort=effort, timer=timer)
    if runs.empty:
        return {}  # no columns to go by
    known = runs[runs["kernel"].isin(runs.loc[runs["searcher"] == reference, "kernel"])]
    known = known[known.groupby("kernel")["searcher"].transform("nunique") > 1]
    if known.empty:
        return {}
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
            samples, facts, reference=reference, logged=logged, bootstrap=Bootstrap()
        )
    return tables


def on_one_machine(result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a result with those runs only that share machine and GPU with the reference.

    Hosts of one kind differ in speed, so that seconds of runs on several are not of the searches
    alone. A run's row tells its machine since 28 November 2026.

    Args:
        result: Of `kt-lab evidence helion_field`, stored.
    """

    def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row["op"], row["effort"], row["seed"], row["machine"]

    runs = [row for row in result["rows"] if row.get("machine")]
    known = {place(row) for row in runs if row["search"] == REFERENCE}
    kept = [row for row in runs if place(row) in known]
    races = [row for row in result["rows"] if row["search"] == "race"]
    return dict(result) | {"rows": kept + races}
