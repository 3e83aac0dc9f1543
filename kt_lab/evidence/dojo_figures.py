"""The stored evidence of the dojo as tables and figures, one call each."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from kt_lab import plots
from kt_lab.evidence.dojo_tables import (
    PATHS,
    cpus_of,
    means,
    players_table,
    ratios,
    readings_apart,
)
from kt_lab.landscape import data_directory
from kt_lab.plots.captions import counted, listed
from kt_lab.plots.dojo import caption_dojo, caption_players, plot_dojo, plot_players
from kt_lab.plots.training import caption_training, plot_training
from kt_lab.study import VENUE, Drawing

_MEAN = ("reference", "threads", "ratio", "low", "high", "workloads", "losses")


def stored(piece: str) -> dict[str, Any] | None:
    """Returns the stored result of `kt-lab evidence PIECE`; None: it was not run yet."""
    path = data_directory() / "evidence" / f"{piece}.json"
    return json.loads(path.read_text()) if path.exists() else None


def comparison_table(result: Mapping[str, Any]) -> pd.DataFrame:
    """Returns microseconds of every path, one row per workload and threads.

    Columns workload, threads, one for each path that was timed, floor, floor_by, best_over_eager,
    best_over_compiled (< 1: the program is faster) and share_of_floor (floor over best).
    """
    rows = []
    for row in result["rows"]:
        times = {p: row["paths"].get(p, {}).get("min_us") for p in PATHS}
        told = {"workload": row["workload"], "threads": row["threads"], **times}
        told |= {"floor": row["floor_us"], "floor_by": row["floor_by"]}
        for other in ("eager", "compiled"):
            told[f"best_over_{other}"] = times["best"] / times[other] if times[other] else None
        rows.append(told | {"share_of_floor": row["floor_us"] / times["best"]})
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def comparison_figure(
    result: Mapping[str, Any],
    *,
    references: Sequence[str] = ("eager", "compiled", "floor"),
    venue: str = VENUE,
    width: str = "text",
) -> Drawing:
    """Draws the best programs beside references, by default PyTorch and the floors."""
    table = ratios(result["rows"], references=references, paths=("best",))
    compared = [name for name in references if name != "floor"]
    found = means(result["rows"], references=compared)
    whole = pd.DataFrame([mean for mean in found if mean["group"] == "all"], columns=_MEAN)
    with plots.paper(venue, width=width):
        fig = plot_dojo(table)
    points = {"ratios": table, "means": whole}
    caption = f"{caption_dojo(table, whole)}{_machine(result)}"
    return Drawing(fig, points, caption, sources=(result,))


def players_figure(
    result: Mapping[str, Any], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws players against different programs compiled."""
    table = players_table(result["rows"])
    with plots.paper(venue, width=width):
        fig = plot_players(table)
    caption = caption_players(table, apart=readings_apart(result["rows"])) + _machine(result)
    return Drawing(fig, table, caption, sources=(result,))


def _machine(result: Mapping[str, Any]) -> str:
    """Words the CPU that all rows are of; nothing where that is not stored."""
    if "provenance" not in result:
        return ""
    machine = result["provenance"]
    names = sorted(cpus_of(result["rows"]))
    told = f" ({listed(names)} to LLVM)" if names else ""
    return f" {machine['cpu']}{told}, {counted(machine['cores'], 'core')}."


def learners_figure(
    result: Mapping[str, Any], part: str, *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws one part of `kt-lab evidence learners` as players against programs compiled.

    Args:
        result: The stored result, or anything with such `rows`.
        part: curves, transfer or encoders.
        venue: Of `kt_lab.plots`.
        width: Of the venue.
    """
    return players_figure(
        {**result, "rows": [row for row in result["rows"] if row["part"] == part]},
        venue=venue,
        width=width,
    )


def training_figure(
    lesson: Mapping[str, Any], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws what training came to, turn by turn.

    Args:
        lesson: With `curve`, as `kt_lab.policies.train` returns it, and `provenance`, where known.
        venue: Of `kt_lab.plots`.
        width: Of the venue.
    """
    table = pd.DataFrame(lesson["curve"])
    for name in ("best", "median"):
        table[f"{name}_speedup"] = table["start_us"] / table[f"{name}_us"]
    with plots.paper(venue, width=width):
        fig = plot_training(table)
    return Drawing(fig, table, caption_training(table), sources=(lesson,))
