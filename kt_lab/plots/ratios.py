"""Searchers against the reference: bars per workload, with their geomean."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from kt_lab.plots.captions import (
    JUDGED,
    evidence,
    fewer_words,
    interval_words,
    listed,
    reached_by,
)
from kt_lab.plots.lettering import points_wide, shortened
from kt_lab.plots.measures import (
    MEASURES,
    check_ratios,
    reference_along,
    reference_name,
    reference_of,
)
from kt_lab.plots.scales import ratio_limits, set_ratio_axis
from kt_lab.plots.style import INK, SMALL, legend_above, new_figure, searcher_style, style_order

_GROUP = 0.8  # of a group's slot is bars
_GEOMEAN = 2.0  # slots: the bars that matter most are drawn twice as wide
_GAP = 0.5
_AXES = 0.88  # of a figure's width are its axes, about
_HANDLE = 0.5  # inches in a legend, with its margins
_MOST_BARS = 8  # of a group


def plot_ratio_bars(
    latency: pd.DataFrame,
    wall_clock: pd.DataFrame,
    convergence: pd.DataFrame,
    *,
    limits: Mapping[str, tuple[float, float]] | None = None,
    height: float | None = None,
) -> Figure:
    """Draws the three bar charts: latency, wall-clock and convergence-time ratios.

    One group of bars per workload and the geomean, one bar per searcher other than the
    reference, from 1 (the reference) up or down; whiskers are the intervals. An infinite bar is
    pale, reaches the edge and says how many runs reached the target; a whisker that ends in an
    arrow goes on. Draw at full width: `with paper("icml", columns=2)`.

    Args:
        latency: From `kt_lab.stats.latency_ratios`.
        wall_clock: From `wall_clock_ratios`.
        convergence: From `convergence_time_ratios`.
        limits: Ends of the y axis by measure ("latency", "wall_clock", "convergence_time"), where
            one workload would flatten all others; a bar that is cut tells its value.
        height: In inches.

    Source:
        The three charts of pytorch/helion pull request 1115.
    """
    tables = (latency, wall_clock, convergence)
    fig = new_figure(height=height or 4.3)
    axes = fig.subplots(3, 1, sharex=True)
    for ax, table in zip(axes, tables, strict=True):
        measure = str(table["measure"].iloc[0])
        draw_ratio_bars(table, limits=(limits or {}).get(measure), ax=ax)
    names = style_order(name for table in tables for name in _others(table))
    fig.align_ylabels(axes)
    _legend(fig, names, reference=reference_name(latency), grow=height is None)
    return fig


def bars_hold(table: pd.DataFrame) -> bool:
    """Whether bars, at the current width, tell the searchers of a table of ratios apart.

    Bars are known by their colour, which several searchers may share, and those of a geomean must
    be as wide as the letters of the values above them are high.
    """
    names, (slots, _) = _others(table), _slots(table)
    colors = {searcher_style(name).color for name in names}
    span = sum(width for _, width in slots.values()) + _GAP
    inches = _GROUP * _GEOMEAN / span / len(names) * mpl.rcParams["figure.figsize"][0]
    return len(colors) == len(names) <= _MOST_BARS and inches * _AXES * 72 >= SMALL


def draw_ratio_bars(
    table: pd.DataFrame,
    *,
    limits: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws one measure as grouped bars.

    Args:
        table: One of the ratio tables of `kt_lab.stats`.
        limits: Ends of the y axis; None: what holds every finite bar and whisker.
        ax: Where to draw; None: a new figure.
    """
    check_ratios(table)
    ax = new_figure().subplots() if ax is None else ax
    names = _others(table)
    slots, labels = _slots(table)
    bars = table[table["searcher"].astype(str).isin(names)]
    ends = bars[["estimate", "low", "high"]].to_numpy(float).ravel()
    lower, upper, log = ratio_limits(ends if limits is None else np.array(limits))
    endless = np.isinf(bars["estimate"].to_numpy(float)).any()
    room = 0.4 if endless else 0.16  # of the height: for endless bars, or for values
    upper = upper * (upper / lower) ** room if log else upper + room * (upper - lower)
    if limits is not None:
        lower, upper = limits
    set_ratio_axis(ax.yaxis, lower, upper, log=log)
    _frame(ax, slots, labels, table)
    for row in bars.to_dict("records"):
        center, span = slots[_key(row)]
        width = _GROUP * span / len(names)
        number = names.index(str(row["searcher"]))
        at = center + (number - (len(names) - 1) / 2) * width
        _bar(ax, row, at, width)
    measure = MEASURES[str(table["measure"].iloc[0])]
    ax.set_ylabel(f"{measure} ratio\nto {reference_along(ax, table, words='to ')}")
    return ax


def _others(table: pd.DataFrame) -> list[str]:
    """Returns the searchers other than the reference, in the fixed order."""
    reference = reference_name(table)
    return style_order(n for n in table["searcher"].astype(str) if n != reference) or [reference]


def _key(row: Mapping) -> tuple[str, str]:
    """Returns what names the group of a row: gpu and workload, or nothing for the geomean."""
    if row["scope"] == "geomean":
        return ("", "")
    return str(row.get("gpu", "")), str(row["workload"])


def _slots(table: pd.DataFrame):
    """Returns group -> (centre, width in slots), and the label of each group."""
    rows = table[table["scope"] == "workload"].to_dict("records")
    several = len({str(row.get("gpu")) for row in rows}) > 1
    slots, labels, right = {}, {}, -0.5
    for row in rows:
        key = _key(row)
        if key not in slots:
            slots[key] = (right + 0.5, 1.0)
            labels[key] = f"{key[1]} ({key[0]})" if several else key[1]
            right += 1.0
    if (table["scope"] == "geomean").any():
        slots[("", "")] = (right + _GAP * bool(rows) + _GEOMEAN / 2, _GEOMEAN)
        labels[("", "")] = "geomean"
    return slots, labels


def _frame(ax: Axes, slots: dict, labels: dict, table: pd.DataFrame) -> None:
    """Draws what lies behind the bars: kernels apart, the geomean shaded, the line at 1."""
    left = min(center - span / 2 for center, span in slots.values())
    right = max(center + span / 2 for center, span in slots.values())
    ax.set_xlim(left - 0.1, right + 0.1)
    if ("", "") in slots and len(slots) > 1:
        center, span = slots[("", "")]
        ax.axvspan(center - span / 2, right + 0.1, color="#f1f1f1", linewidth=0, zorder=0)
    kernels = table[table["scope"] == "workload"].drop_duplicates(["kernel", "workload"])
    before = None
    for row in kernels.to_dict("records"):
        if before is not None and row["kernel"] != before:
            ax.axvline(slots[_key(row)][0] - 0.5, color="#d5d5d5", linewidth=0.5, zorder=0)
        before = row["kernel"]
    ax.axhline(1.0, color=INK, linewidth=0.7, zorder=3)
    ax.grid(axis="y")
    widest = max(len(labels[key]) for key in slots) * SMALL / 2 + SMALL  # points, and a gap
    many = len(slots) > 6 or widest > _points_wide(ax, 1.0)
    ax.set_xticks(
        [center for center, _ in slots.values()],
        [labels[key] for key in slots],
        rotation=28 if many else 0,
        ha="right" if many else "center",
        rotation_mode="anchor",
        fontsize=SMALL,
    )
    ax.tick_params(axis="x", length=0, pad=2)


def _bar(ax: Axes, row: Mapping, at: float, width: float) -> None:
    """Draws one bar from 1 with its whisker; what lies beyond the axis is cut there."""
    lower, upper = ax.get_ylim()
    estimate, low, high = (float(row[name]) for name in ("estimate", "low", "high"))
    color = searcher_style(str(row["searcher"])).color
    inside = min(max(estimate, lower), upper)
    endless = not np.isfinite(estimate) or estimate <= 0
    ax.bar(
        at,
        inside - 1.0,
        width * 0.92,
        bottom=1.0,
        facecolor=to_rgba(color, 0.22 if endless else 1.0),
        edgecolor=color if endless else "none",
        zorder=2,
    )
    if inside != estimate:
        ax.plot(at, inside, "^" if estimate > 1 else "v", color=color, ms=3.5, clip_on=False)
    points = _points_wide(ax, width)
    if np.isinf(estimate):
        _successes(ax, row, at, points)
    if endless:
        return
    ends = [min(max(low, lower), upper), min(max(high, lower), upper)]
    ax.plot([at, at], ends, color=INK, linewidth=0.6, zorder=4, solid_capstyle="butt")
    for edge, arrow, goes_on in ((upper, "^", high > upper), (lower, "v", low < lower)):
        if goes_on and inside == estimate:
            ax.plot(at, edge, arrow, color=INK, ms=2.5, clip_on=False, zorder=4)
    if row["scope"] == "geomean" or inside != estimate:
        top = max(1.0, *(end for end in (ends[1], inside) if not np.isnan(end)))
        _value(ax, row, at, top, points, gap=4 if max(high, estimate) > upper else 2)


def _value(ax: Axes, row: Mapping, at: float, top: float, points: float, *, gap: float) -> None:
    """Writes the estimate above a bar and its whisker, upright where the bar is narrow."""
    text = f"{float(row['estimate']):.{3 if row['measure'] == 'latency' else 2}f}"
    ax.annotate(
        text,
        (at, top),
        xytext=(0, gap),
        textcoords="offset points",
        ha="center",
        va="bottom",
        rotation=90 if points < 2.6 * len(text) else 0,
        fontsize=SMALL,
        annotation_clip=False,
        zorder=5,
    )


def _points_wide(ax: Axes, width: float) -> float:
    """Returns about how many points wide a bar is when printed."""
    low, high = ax.get_xlim()
    return width / (high - low) * ax.figure.get_size_inches()[0] * _AXES * 72


def _successes(ax: Axes, row: Mapping, at: float, points: float) -> None:
    """Writes into an endless bar how many runs succeeded."""
    if pd.isna(row.get("n_success")):
        return
    upright = points < 24
    verb = "reached" if row["measure"] == "convergence_time" else "ok"
    text = f"{int(row['n_success'])}/{int(row['n_runs'])}{' ' if upright else chr(10)}{verb}"
    room = 60 / len(text) if upright else SMALL  # 60: fits 0.4 of a panel's height
    ax.annotate(
        text,
        (at, 1.0),
        xytext=(0, 3),
        textcoords="offset points",
        rotation=90 if upright else 0,
        ha="center",
        va="bottom",
        fontsize=min(SMALL, max(points, 4.5), room),
        zorder=5,
    )


def _legend(fig: Figure, names: Sequence[str], *, reference: str, grow: bool) -> None:
    """Adds the legend of bars above the panels."""
    handles: list = [
        Patch(facecolor=searcher_style(name).color, label=searcher_style(name).label)
        for name in names
    ]
    words = " = 1 (lower is better)"
    room = (fig.get_size_inches()[0] - _HANDLE) * 72 - points_wide(words, "medium")
    label = shortened([searcher_style(reference).label], room, size="medium")[0] + words
    handles.append(Line2D([], [], color=INK, linewidth=0.7, label=label))
    legend_above(fig, handles, grow=grow)


def caption_ratio_bars(
    latency: pd.DataFrame,
    wall_clock: pd.DataFrame,
    convergence: pd.DataFrame,
    *,
    budget: str = "",
) -> str:
    """Returns the caption of `plot_ratio_bars`, from its data.

    Args:
        latency: As drawn.
        wall_clock: As drawn.
        convergence: As drawn; its success counts are told.
        budget: Of each run, in words ("200 trials"); the tables do not hold it.
    """
    reference = reference_of(latency)
    names = listed(searcher_style(name).label for name in _others(latency))
    means = convergence[convergence["scope"] == "geomean"]
    within = float(convergence["within"].iloc[0])
    reached = reached_by(means, *_others(convergence), reference_name(convergence))
    return (
        f"Latency, wall-clock and convergence-time ratios of {names} to {reference}; lower is "
        f"better. {evidence(latency, budget=budget)} Latency: geometric mean over seeds of the "
        f"final incumbent, {JUDGED}. Wall-clock: mean "
        "seconds (compiling, timing and searching) until the run stopped. Convergence time: "
        f"expected running time to within {100 * within:g}% of {reference}'s median final "
        f"latency, unsuccessful runs included; reached by {reached}. {interval_words(wall_clock)} "
        f"Pale bars with an arrow: infinite, or 0.{fewer_words(latency, wall_clock, convergence)}"
    )
