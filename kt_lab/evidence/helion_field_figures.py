"""Helion's searches in its own spaces as figures: the plots of helion #1115, live."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from kt_lab import plots, stats
from kt_lab.errors import UsageError
from kt_lab.evidence.helion_field_tables import (
    REFERENCE,
    WITHIN,
    field_curves,
    field_ratios,
    field_runs,
)
from kt_lab.plots.captions import counted, interval_words, listed, reached_by
from kt_lab.plots.convergence import plot_convergence
from kt_lab.plots.style import searcher_style, style_order
from kt_lab.stats.ratios import CONVERGENCE, LATENCY, WALL_CLOCK
from kt_lab.study import VENUE, Drawing


def convergence_figure(
    result: Mapping[str, Any],
    *,
    kernels: Sequence[str] | None = None,
    effort: str = "full",
    venue: str = VENUE,
    width: str = "text",
) -> Drawing:
    """Draws the incumbents of live searches against configs and seconds.

    Args:
        result: Of `kt-lab evidence helion_field`, stored.
        kernels: These only; None: all, a row of two panels each.
        effort: Helion's profile.
        venue: Whose page.
        width: "text" or "column".
    """
    if kernels is not None:
        result = dict(result) | {"rows": [row for row in result["rows"] if row["op"] in kernels]}
    curves = field_curves(result, effort=effort)
    trials, seconds = (stats.convergence_bands(curves, x=x) for x in ("spent_trials", "elapsed_s"))
    with plots.paper(venue, width=width):
        fig = plot_convergence(trials, seconds)
    points = {"against_trials": trials, "against_seconds": seconds}
    return Drawing(fig, points, _caption(result, effort), sources=(result,))


def ratios_figure(
    result: Mapping[str, Any], *, effort: str = "full", timer: str = "events", venue: str = VENUE
) -> Drawing:
    """Draws the three charts of helion #1115 for every kernel and their geomean.

    Args:
        result: Of `kt-lab evidence helion_field`, stored.
        effort: Helion's profile.
        timer: Of the race that latencies are of.
        venue: Whose page.

    Raises:
        UsageError: No run of that effort was raced.
    """
    tables = field_ratios(result, effort=effort, timer=timer)
    if not tables:
        raise UsageError(f"nothing was raced at effort {effort}: `kt-lab evidence helion_field`")
    compared = set(tables[LATENCY]["kernel"])
    result = dict(result) | {"rows": [row for row in result["rows"] if row["op"] in compared]}
    means = tables[CONVERGENCE].query("scope == 'geomean'")
    reached = reached_by(means, *style_order(means["searcher"]))
    name = searcher_style(REFERENCE).label
    runs = field_runs(result, effort=effort)
    cut = int(runs["cut"].sum())
    alone = "" if runs["seed"].nunique() > 1 else " (one seed has none)"
    with plots.paper(venue, width="text"):
        fig = plots.plot_ratio_bars(tables[LATENCY], tables[WALL_CLOCK], tables[CONVERGENCE])
    caption = (
        f"Latency, wall-clock and convergence-time ratios to {name}; lower is better. Latency: "
        f"what a run ended with, all in one race by the timer {timer}. Wall-clock: seconds until "
        f"a run had chosen its end, or was cut: {counted(cut, 'run')}. Convergence time: until a "
        f"first reading within {WITHIN:.0%} of the last incumbent's of {name}; reached by "
        f"{reached}. {_setting(result, effort)} {interval_words(tables[WALL_CLOCK])[:-1]}{alone}. "
        f"Pale bars with an arrow: infinite.{_fewer(means)}"
    )
    return Drawing(fig, pd.concat(tables.values()), caption, sources=(result,))


def _fewer(means: pd.DataFrame) -> str:
    """Words whose geomeans are over fewer kernels than others'; nothing where none are."""
    most = means["n_kernels"].max()
    told = [
        f"{searcher_style(row.searcher).label} over {row.n_kernels} of {most} kernels"
        for row in means[means["n_kernels"] < most].itertuples()
    ]
    return f" Geomean of {listed(told)}." if told else ""


def _caption(result: Mapping[str, Any], effort: str) -> str:
    runs = field_runs(result, effort=effort)
    seeds = runs.groupby(["kernel", "searcher"])["seed"].nunique()
    band = ", median and interquartile range over seeds" if seeds.max() > 1 else ""
    return (
        f"First reading of the incumbent against trials and seconds{band}. "
        f"{_setting(result, effort)} A thin line is a run that has ended."
    )


def _setting(result: Mapping[str, Any], effort: str) -> str:
    runs = field_runs(result, effort=effort)
    seeds = runs.groupby(["kernel", "searcher"])["seed"].nunique()
    count = f"{seeds.max()} seed" + "s" * int(seeds.max() > 1)
    if seeds.min() < seeds.max():
        count = f"{seeds.min()} to {count}"
    timed = "each code timed once" if result["shared_code"] else "each config timed"
    kernels = listed(list(dict.fromkeys(runs["kernel"])))
    lanes = listed(sorted(map(str, runs["lanes"].unique())))
    return (
        f"Live, in the spaces of Helion {result['helion']} for {kernels}, at effort {effort} from "
        f"a random first population, {count}, {lanes} compile lanes, {timed}, "
        f"{result['gpu']}."
    )
