"""Helion's searches in its own spaces as a figure: the convergence plots of helion #1115, live."""

from collections.abc import Mapping
from typing import Any

from kt_lab import plots, stats
from kt_lab.evidence.helion_field_tables import field_curves, field_runs
from kt_lab.plots.captions import listed
from kt_lab.plots.convergence import plot_convergence
from kt_lab.study import VENUE, Drawing


def convergence_figure(
    result: Mapping[str, Any], *, effort: str = "full", venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws the incumbents of live searches against configs and seconds.

    Args:
        result: Of `kt-lab evidence helion_field`, stored.
        effort: Helion's profile.
        venue: Whose page.
        width: "text" or "column".
    """
    curves = field_curves(result, effort=effort)
    trials, seconds = (stats.convergence_bands(curves, x=x) for x in ("spent_trials", "elapsed_s"))
    with plots.paper(venue, width=width):
        fig = plot_convergence(trials, seconds)
    points = {"against_trials": trials, "against_seconds": seconds}
    return Drawing(fig, points, _caption(result, effort), sources=(result,))


def _caption(result: Mapping[str, Any], effort: str) -> str:
    runs = field_runs(result, effort=effort)
    seeds = runs.groupby(["kernel", "searcher"])["seed"].nunique()
    count = f"{seeds.max()} seed" + "s" * int(seeds.max() > 1)
    if seeds.min() < seeds.max():
        count = f"{seeds.min()} to {count}"
    band = ", median and interquartile range over seeds" if seeds.max() > 1 else ""
    shared = "once for each code" if result["shared_code"] else "for each config"
    kernels = listed(list(dict.fromkeys(runs["kernel"])))
    lanes = listed(sorted(map(str, runs["lanes"].unique())))
    return (
        f"First reading of the incumbent against configs and seconds{band}; live, in the spaces "
        f"of Helion {result['helion']} for {kernels}, at effort {effort} from a random first "
        f"population, {count}, {lanes} compile lanes, timed {shared}, {result['gpu']}. A thin "
        "line is a run that has ended."
    )
