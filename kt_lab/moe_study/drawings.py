"""The figures of the study, one call each: tables from here, drawn by `kt_lab.plots`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from kt_lab import plots
from kt_lab.landscape import Landscape
from kt_lab.moe_study import fences, held_out, layouts, same_launch, sharing, speedups, traffic
from kt_lab.moe_study.recorded import JAGGED, WEIGHTS, by_kernel, joined, widened
from kt_lab.moe_study.tunings import cold_by_list, totals
from kt_lab.plots import moe_kernels, moe_references, moe_sharing, moe_tunings
from kt_lab.study import VENUE, Drawing


def name_spread_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "column"
) -> Drawing:
    """Draws E1: how far names of one launch read apart."""
    floor = same_launch.noise_floor(same_launch.name_spread(found))
    return _drawn(
        [floor], moe_tunings.plot_name_spread, moe_tunings.caption_name_spread, venue, width, found
    )


def experts_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws E2: tuned on some experts and widths, run on others; weights only."""
    return _regrets(found, WEIGHTS, (), "experts or widths", venue, width)


def groups_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws E3: tuned on some groups, skew or layout, run on others; jagged kernels only."""
    extents = ("GROUPS", "SKEW", "LAYOUT")
    return _regrets(found, JAGGED, extents, "groups, their skew or the layout", venue, width)


def _regrets(
    found: Sequence[Landscape],
    kernels: Sequence[str],
    extents: Sequence[str],
    differ: str,
    venue: str,
    width: str,
) -> Drawing:
    parts = []
    for kernel, group in by_kernel(found).items():
        if kernel in kernels and len(group) > 1:
            for name in widened(kernel):
                parts.append(sharing.regrets(group, name, extents=extents))
    table = joined(parts, of="two shapes of one kernel")
    if extents:  # shapes that have nobody to share with tell nothing
        company = table.groupby(["kernel", "tuned"])["workload"].transform("nunique")
        table = table[company > 1].reset_index(drop=True)

    def caption(regrets: pd.DataFrame) -> str:
        return moe_sharing.caption_regrets(regrets, differ=differ)

    return _drawn([table], moe_sharing.plot_regrets, caption, venue, width, found)


def repeated_figure(
    result: Mapping[str, Any],
    *,
    judged_by: str = "same visits",
    venue: str = VENUE,
    width: str = "text",
) -> Drawing:
    """Draws E4 and E5: what the default and the guarded tuner come to.

    Args:
        result: From `kt_lab.moe_study.tunings.tunings`.
        judged_by: "same visits", or "another visit", which has no gains.
        venue: A name of `plots.VENUES`.
        width: "text" or "column".
    """
    table = totals(result)
    table = table[table["judged_by"] == judged_by].reset_index(drop=True)
    return _drawn(
        [table], moe_tunings.plot_repeated, moe_tunings.caption_repeated, venue, width, result
    )


def fences_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws E6: what fences cost, and what a wide tile gains with and without them."""
    costs = fences.fence_costs(found)
    tables = {"costs": costs, "tiles": fences.tile_costs(costs), "gains": fences.tile_gains(found)}
    return _drawn(tables, moe_kernels.plot_fences, moe_kernels.caption_fences, venue, width, found)


def held_out_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws E7: one family's config on the shapes of the others."""
    table = held_out.losses(found)
    return _drawn(
        [table], moe_sharing.plot_held_out, moe_sharing.caption_held_out, venue, width, found
    )


def layouts_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws E8: lists by layout, and both routes to the same scales."""
    tables = {"layouts": layouts.layout_table(found), "routes": layouts.routes(found)}
    return _drawn(
        tables, moe_kernels.plot_layouts, moe_kernels.caption_layouts, venue, width, found
    )


def cold_figure(
    result: Mapping[str, Any], *, venue: str = VENUE, width: str = "column"
) -> Drawing:
    """Draws E9: seconds of a cold start, per list."""
    table = cold_by_list(result)
    return _drawn([table], moe_tunings.plot_cold, moe_tunings.caption_cold, venue, width, result)


def references_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws the expanded space over three references, and what was published."""
    table = speedups.pull_request_table(found)
    more = table[["low", "high", "published_speedup"]]
    table = pd.concat([speedups.references(found, table), more], axis=1)
    draw, tell = moe_references.plot_references, moe_references.caption_references
    return _drawn([table], draw, tell, venue, width, found)


def traffic_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws what limits the jagged kernels: bytes once or twice, and the cache."""
    tables = {"floors": traffic.floors(found), "reach": traffic.reach(found)}

    def caption(floors: pd.DataFrame, _: pd.DataFrame) -> str:
        return moe_references.caption_traffic(floors)

    return _drawn(tables, moe_references.plot_traffic, caption, venue, width, found)


def _drawn(
    tables: Sequence[pd.DataFrame] | Mapping[str, pd.DataFrame],
    plot: Callable,
    caption: Callable,
    venue: str,
    width: str,
    source: Any,
) -> Drawing:
    named = isinstance(tables, Mapping)
    drawn = list(tables.values()) if named else list(tables)
    with plots.paper(venue, width=width):
        fig = plot(*drawn)
    points = tables if named else drawn[0]
    return Drawing(fig, points, caption(*drawn), sources=(source,))
