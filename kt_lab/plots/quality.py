"""Quality against time: latency ratio and wall-clock ratio jointly."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from kt_lab.errors import UsageError
from kt_lab.plots.captions import evidence, fewer_words, interval_words, listed
from kt_lab.plots.scales import ratio_limits, set_ratio_axis
from kt_lab.plots.style import (
    INK,
    QUIET,
    SMALL,
    legend_above,
    new_figure,
    searcher_style,
    style_order,
)

_ROOM = 0.18  # of an axis lies on the better side of 1, for the words in the corners
_DOTS = (0.05, 0.95)  # quantiles of the workloads' ratios that set the limits


def plot_quality_vs_time(
    latency: pd.DataFrame, wall_clock: pd.DataFrame, *, ax: Axes | None = None
) -> Axes:
    """Draws what the runs cost against what they found, geomeans with both intervals.

    A searcher that stops early is cheap and may be slow where it ends up; only the lower left is
    better in both. Small dots are the workloads; the few that lie beyond the axes sit at their
    edge. A geomean that is infinite sits there too, as an open marker.

    Args:
        latency: From `kt_lab.stats.latency_ratios`.
        wall_clock: From `wall_clock_ratios` of the same runs.
        ax: Where to draw; None: a new figure.
    """
    points = _joined(latency, wall_clock)
    ax = new_figure(height=2.6).subplots() if ax is None else ax
    means = points[points["scope"] == "geomean"]
    for axis, name in ((ax.xaxis, "wall"), (ax.yaxis, "latency")):
        ends = means[[f"{name}_low", f"{name}_high", name]].to_numpy(float).ravel()
        dots = points[name].quantile(_DOTS, interpolation="nearest").to_numpy(float)
        low, high, log = ratio_limits(np.concatenate([ends, dots]))
        room = _ROOM / (1 - _ROOM)
        low = min(low, high**-room) if log else min(low, 1 - room * (high - 1))
        set_ratio_axis(axis, low, high, log=log)
    ax.grid()
    ax.axhline(1.0, color=INK, linewidth=0.5, zorder=1)
    ax.axvline(1.0, color=INK, linewidth=0.5, zorder=1)
    for name in style_order(points["searcher"]):
        _searcher(ax, points[points["searcher"] == name], name)
    reference = searcher_style(str(points["reference"].iloc[0])).label
    ax.set_xlabel(f"wall-clock ratio to {reference}")
    ax.set_ylabel(f"latency ratio to {reference}")
    for x, y, text in ((0.02, 0.02, "cheaper\nand faster"), (0.02, 0.98, "cheaper,\nbut slower")):
        ax.annotate(
            text,
            (x, y),
            xycoords="axes fraction",
            va="bottom" if y < 0.5 else "top",
            fontsize=SMALL,
            fontstyle="italic",
            linespacing=1.0,
            color=QUIET,
            zorder=1.5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )
    handles = ax.get_legend_handles_labels()[0]
    legend_above(ax.figure, handles, handle_length=1.0)
    return ax


def _joined(latency: pd.DataFrame, wall_clock: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per point with both ratios; the two tables must be of the same runs."""
    keys = ["scope", "gpu", "workload", "searcher", "reference"]
    parts = []
    for table, name in ((latency, "latency"), (wall_clock, "wall")):
        renamed = {"estimate": name, "low": f"{name}_low", "high": f"{name}_high"}
        part = table.reindex(columns=[*keys, *renamed]).rename(columns=renamed)
        parts.append(part.astype({key: str for key in keys}))
    joined = parts[0].merge(parts[1], on=keys, how="outer", indicator=True)
    if (joined["_merge"] != "both").any():
        row = joined[joined["_merge"] != "both"].iloc[0]
        raise UsageError(
            "quality and time must be ratios of the same runs; only one table has "
            f"{row['searcher']} to {row['reference']} on {row['workload']}"
        )
    return joined


def _searcher(ax: Axes, rows: pd.DataFrame, name: str) -> None:
    """Draws one searcher: its workloads as dots, its geomean with whiskers."""
    look = searcher_style(name)
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    if name != rows["reference"].iloc[0]:
        dots = rows[rows["scope"] == "workload"]
        x = dots["wall"].clip(left, right)
        y = dots["latency"].clip(bottom, top)
        ax.scatter(x, y, s=5, color=look.color, alpha=0.35, linewidths=0, zorder=2, clip_on=False)
    for row in rows[rows["scope"] == "geomean"].itertuples():
        x, y = np.clip(row.wall, left, right), np.clip(row.latency, bottom, top)
        ends_x = np.clip([row.wall_low, row.wall_high], left, right)
        ends_y = np.clip([row.latency_low, row.latency_high], bottom, top)
        ax.plot(ends_x, [y, y], color=look.color, linewidth=0.9, zorder=4)
        ax.plot([x, x], ends_y, color=look.color, linewidth=0.9, zorder=4)
        known = np.isfinite(row.wall) and np.isfinite(row.latency)
        ax.plot(
            x,
            y,
            look.marker,
            color=look.color,
            markersize=5,
            markerfacecolor=look.color if known else "white",
            markeredgecolor="white" if known else look.color,
            markeredgewidth=0.5,
            clip_on=False,
            zorder=5,
            label=look.label,
        )


def caption_quality_vs_time(
    latency: pd.DataFrame, wall_clock: pd.DataFrame, *, budget: str = ""
) -> str:
    """Returns the caption of `plot_quality_vs_time`, from its data.

    Args:
        latency: As drawn.
        wall_clock: As drawn.
        budget: Of each run, in words ("200 trials"); the tables do not hold it.
    """
    reference = searcher_style(str(latency["reference"].iloc[0])).label
    names = listed(searcher_style(name).label for name in style_order(latency["searcher"]))
    return (
        f"What tuning found against what it cost, relative to {reference}: {names}; lower is "
        f"better on both axes. {evidence(latency, budget=budget)} Large markers: geometric mean "
        "over workloads; small dots: single workloads. Wall-clock: mean seconds (compiling, "
        f"timing and searching) until the run stopped. {interval_words(wall_clock)}"
        f"{fewer_words(latency, wall_clock)}"
    )
