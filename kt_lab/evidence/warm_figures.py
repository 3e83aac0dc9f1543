"""Warm starts as tables and a figure, one call each."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from kt_lab import plots
from kt_lab.cells import recorded
from kt_lab.errors import UsageError
from kt_lab.evidence.warm import MODES, budgets_of, search
from kt_lab.evidence.warm_tables import beside, summary
from kt_lab.plots.captions import listed
from kt_lab.plots.warm import caption_warm, plot_warm
from kt_lab.study import VENUE, Drawing
from kt_lab.transfer import recorded_prior

READERS = ("scout",)
"""Searchers that read what a prior says of latencies; others try its configs at most."""


def sources(workload: str, gpu: str, *, rule: str) -> pd.DataFrame:
    """Returns what a prior of recorded landscapes holds, a row per source.

    Columns workload, gpu, configs, and in_space, how many of them the target's space has too.
    """
    target = recorded(workload, gpu)
    readings = recorded_prior(target, rule=rule).readings
    facts = [
        {"workload": r.workload, "gpu": r.gpu, "in_space": target.space.contains(r.config)}
        for r in readings
    ]
    table = pd.DataFrame(facts, columns=["workload", "gpu", "in_space"])
    found = table.groupby(["workload", "gpu"])["in_space"].agg(configs="size", in_space="sum")
    return found.reset_index()


def searched(
    workload: str, gpu: str, *, searcher: str = "scout", seeds: int, trials: int, lanes: int = 16
) -> dict[str, Any]:
    """Searches one landscape in every mode, as `kt-lab evidence warm` does with all of them.

    Raises:
        UsageError: A searcher that does not read its prior's latencies: no mode would tell.
    """
    if searcher not in READERS:
        raise UsageError(
            f"a searcher that starts warm must read its prior's latencies, got {searcher!r}; "
            f"choose one that does: {', '.join(READERS)}"
        )
    found = [search(workload, gpu, mode, searcher, seeds, trials, lanes) for mode in MODES]
    rows = [row for row in found if row is not None]
    told = {"seeds": seeds, "budgets": budgets_of(trials)}
    return told | {"rows": rows, "summary": summary(rows)}


def beside_table(result: Mapping[str, Any], mode: str) -> pd.DataFrame:
    """Returns what every mode reaches on the landscapes that one mode searched, a row per mode.

    Columns landscapes, a column per budget with the geometric mean and the worst landscape.
    """
    found = {}
    for told in beside(result["rows"], mode):
        means = zip(result["budgets"], told["geomean"], told["worst"], strict=True)
        cells = {str(budget): f"{mean:.3f} ({worst:.2f})" for budget, mean, worst in means}
        found[told["mode"]] = {"landscapes": told["landscapes"]} | cells
    return pd.DataFrame(found).T.rename_axis("mode")


def live_table(result: Mapping[str, Any]) -> pd.DataFrame:
    """Returns what `kt-lab evidence warm_live` reached, a row per knowledge, a column per budget.

    Geometric means over the shapes of latency over the fastest config of the race, and the worst.
    """
    found: dict[str, dict[str, str]] = {}
    for mean in result["means"]:
        told = f"{mean['to_best']:.3f} ({mean['worst']:.2f})"
        found.setdefault(mean["known"], {})[str(mean["budget"])] = told
    return pd.DataFrame(found).T.rename_axis("known")


def table_of(result: Mapping[str, Any]) -> pd.DataFrame:
    """Returns the summary of a result, a row per mode and budget, as `plot_warm` takes it.

    Landscapes that only cold searches have, for want of anything recorded to start from, are left
    out: one of them would be the worst of its mode and of no other.
    """
    rows = _with_others(result["rows"])
    found = []
    for told in summary(rows):
        own = [row for row in rows if row["mode"] == told["mode"]]
        kernels = len({row["kernel"] for row in own})
        for at, budget in enumerate(result["budgets"]):
            numbers = {name: told[name][at] for name in ("geomean", "low", "high", "worst")}
            counts = {"landscapes": len(own), "kernels": kernels, "seeds": result["seeds"]}
            found.append({"mode": told["mode"], "budget": budget} | numbers | counts)
    return pd.DataFrame(found)


def _with_others(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Returns the rows of landscapes that not only `cold` searched; all if there are none."""
    told = {(row["workload"], row["gpu"]) for row in rows if row["mode"] != "cold"}
    return [row for row in rows if (row["workload"], row["gpu"]) in told] or rows


def warm_figure(result: Mapping[str, Any], *, venue: str = VENUE, width: str = "text") -> Drawing:
    """Draws what is reached after a few evaluations, by what was known before."""
    table = table_of(result)
    with plots.paper(venue, width=width):
        fig = plot_warm(table)
    places = sorted({(row["workload"], row["gpu"]) for row in _with_others(result["rows"])})
    gpus = sorted({gpu.upper() for _, gpu in places})
    where = f"{places[0][0]} on {gpus[0]}" if len(places) == 1 else listed(gpus)
    return Drawing(fig, table, caption_warm(table, where=where), sources=(result,))
