"""Quality against time: latency ratio and wall-clock ratio jointly."""

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from kt_lab.errors import UsageError
from kt_lab.plots.captions import evidence, fewer_words, interval_words, listed
from kt_lab.plots.lettering import points_wide
from kt_lab.plots.measures import THE_REFERENCE, reference_along
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
_EDGE = 0.02  # of an axis is between the words in the corners and its ends
_MARKER = 2.5  # points around the centre of what words must not cover
_WORDS = {
    "xycoords": "axes fraction",
    "fontsize": SMALL,
    "fontstyle": "italic",
    "linespacing": 1.0,
    "color": QUIET,
    "zorder": 1.5,
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.6},
}


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
    own, ax = ax is None, new_figure(height=2.6).subplots() if ax is None else ax
    for axis, name in ((ax.xaxis, "wall"), (ax.yaxis, "latency")):
        low, high, log = _limits(points, name)
        set_ratio_axis(axis, low, high, log=log)
    ax.grid()
    ax.axhline(1.0, color=INK, linewidth=0.5, zorder=1)
    ax.axvline(1.0, color=INK, linewidth=0.5, zorder=1)
    told = reference_along(ax, points, words="latency ratio to ")
    for name in style_order(points["searcher"]):
        _searcher(ax, points[points["searcher"] == name], name, told=told)
    ax.set_xlabel(f"wall-clock ratio to {told}")
    ax.set_ylabel(f"latency ratio to {told}")
    _corner(ax, "cheaper\nand faster", above=False)
    _corner(ax, "cheaper,\nbut slower", above=True)
    handles = ax.get_legend_handles_labels()[0]
    legend_above(ax.figure, handles, handle_length=1.0, grow=own)
    return ax


def _limits(points: pd.DataFrame, name: str) -> tuple[float, float, bool]:
    """Returns the ends of the axis of a ratio, and whether it is logarithmic."""
    means = points[points["scope"] == "geomean"]
    ends = means[[f"{name}_low", f"{name}_high", name]].to_numpy(float).ravel()
    dots = points[name].quantile(_DOTS, interpolation="nearest").to_numpy(float)
    low, high, log = ratio_limits(np.concatenate([ends, dots]))
    room = _ROOM / (1 - _ROOM)
    return min(low, high**-room) if log else min(low, 1 - room * (high - 1)), high, log


def _corner(ax: Axes, text: str, *, above: bool) -> None:
    """Writes what the cheaper side means, in a corner of it where no point lies, or nowhere."""
    one_x, one_y = (ax.transScale + ax.transLimits).transform((1.0, 1.0))
    xs = [(_EDGE, "left"), (one_x - _EDGE, "right")]
    ys = [(1 - _EDGE, "top"), (one_y + _EDGE, "bottom")]
    if not above:
        ys = [(_EDGE, "bottom"), (one_y - _EDGE, "top")]
    drawn, lines = _drawn(ax), text.split("\n")
    points = np.array([max(points_wide(line, SMALL) for line in lines), 1.15 * SMALL * len(lines)])
    wide, high = points / _axes_points(ax)
    for (y, va), (x, ha) in product(ys, xs):
        left, bottom = x - wide * (ha == "right"), y - high * (va == "top")
        right, top = left + wide, bottom + high
        if not any(
            x0 < right and x1 > left and y0 < top and y1 > bottom for x0, y0, x1, y1 in drawn
        ):
            ax.annotate(text, (x, y), ha=ha, va=va, **_WORDS)
            return


def _axes_points(ax: Axes) -> np.ndarray:
    """Returns the width and height of an axes in points, before it is laid out."""
    return np.array(ax.get_position().size) * ax.get_figure(root=True).get_size_inches() * 72


def _drawn(ax: Axes) -> list[np.ndarray]:
    """Returns the boxes of all dots, markers and whiskers, in shares of the axes."""
    places = [at for dots in ax.collections for at in np.ma.filled(dots.get_offsets(), np.nan)]
    parts = [np.array([at, at], float) for at in places]
    parts += [line.get_xydata() for line in ax.lines if line.get_zorder() > 1]
    parts = [(ax.transScale + ax.transLimits).transform(part) for part in parts]
    pad = _MARKER / _axes_points(ax)
    return [np.concatenate([part.min(axis=0) - pad, part.max(axis=0) + pad]) for part in parts]


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


def _searcher(ax: Axes, rows: pd.DataFrame, name: str, *, told: str) -> None:
    """Draws one searcher: its workloads as dots, its geomean with whiskers."""
    look = searcher_style(name)
    unnamed = told == THE_REFERENCE and name == rows["reference"].iloc[0]
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
        known = not _endless(row.wall) and not _endless(row.latency)
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
            label=look.label + " (reference)" * unnamed,
        )


def _endless(ratio: float) -> bool:
    """Whether a ratio has no place on an axis: it is infinite, or 0."""
    return bool(np.isinf(ratio) or ratio == 0)


def _edge_words(points: pd.DataFrame) -> tuple[str, str]:
    """Words which dots, and which markers, are drawn at the edge; nothing where none is."""
    others = points[points["searcher"] != points["reference"]]
    dots, means = (others[others["scope"] == scope] for scope in ("workload", "geomean"))
    beyond = endless = False
    for name in ("wall", "latency"):
        low, high, _ = _limits(points, name)
        beyond |= bool(((dots[name] < low) | (dots[name] > high)).any())
        endless |= any(map(_endless, means[name]))
    return (
        ", at the edge where they lie beyond it" * beyond,
        " Open marker at the edge: infinite, or 0." * endless,
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
    dots, markers = _edge_words(_joined(latency, wall_clock))
    return (
        f"What tuning found against what it cost, relative to {reference}: {names}; lower is "
        f"better on both axes. {evidence(latency, budget=budget)} Large markers: geometric mean "
        f"over workloads; small dots: single workloads{dots}.{markers} Wall-clock: mean seconds "
        "(compiling, timing and searching) until the run stopped. "
        f"{interval_words(wall_clock)}{fewer_words(latency, wall_clock)}"
    )
