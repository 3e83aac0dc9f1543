"""How much faster: against which reference, and against the floor of bytes."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from kt_lab.plots.atlas import is_narrow_figure, set_log_axis
from kt_lab.plots.captions import counted, listed
from kt_lab.plots.moe_look import FAINT, PAIR, label, look, row_axis, scope, shape
from kt_lab.plots.scales import set_ratio_axis
from kt_lab.plots.style import INK, QUIET, SMALL, legend_above, new_figure
from kt_lab.stats.tables import check_columns

_REFERENCES = {
    "over_single": ("#0173B2", "o", "over the original config"),
    "over_compiled": ("#029E73", "D", "over torch.compile"),
    "over_eager": ("#D55E00", "s", "over torch eager"),
}


def plot_references(table: pd.DataFrame) -> Figure:
    """Draws the speedup of the expanded space over each reference, and what was published.

    Args:
        table: From `kt_lab.moe_study.speedups.references`, with low, high and published_speedup
            of `pull_request_table` beside it.
    """
    columns = ("kernel", "workload", "low", "high", "published_speedup", *_REFERENCES)
    check_columns(table, columns, what="references")
    fig = new_figure(height=1.0 + 0.135 * len(table))
    ax = fig.subplots()
    for y, row in enumerate(table.itertuples()):
        ax.plot([row.low, row.high], [y, y], color=_REFERENCES["over_single"][0], lw=1.0)
        for name, (color, marker, _) in _REFERENCES.items():
            value = getattr(row, name)
            if np.isfinite(value):
                ax.plot([value], [y], ls="none", marker=marker, color=color, ms=3.4)
        if np.isfinite(row.published_speedup):
            ax.plot([row.published_speedup], [y], ls="none", marker="x", color=INK, ms=4, mew=0.9)
    row_axis(ax, [f"{label(r.kernel)}, {shape(r.kernel, r.workload)}" for r in table.itertuples()])
    known = table[[*_REFERENCES, "low", "high", "published_speedup"]].to_numpy(dtype=float)
    low, high = np.nanmin(known) / 1.15, np.nanmax(known) * 1.15
    set_ratio_axis(ax.xaxis, min(0.85, low), high, log=True)
    ax.axvline(1.0, color=QUIET, lw=0.8)
    fig.supxlabel("speedup of the pick from the expanded space")
    shown = [(n, look) for n, look in _REFERENCES.items() if table[n].notna().any()]
    handles = [
        Line2D([], [], ls="none", color=c, marker=m, ms=3.4, label=t) for _, (c, m, t) in shown
    ]
    if table["published_speedup"].notna().any():
        handles.append(
            Line2D([], [], ls="none", color=INK, marker="x", ms=4, label="published, MI300X")
        )
    legend_above(fig, handles, handle_length=1)
    return fig


def caption_references(table: pd.DataFrame) -> str:
    """Returns the caption of `plot_references`, from its data."""
    single, eager = table["over_single"], table["over_eager"]
    compiled = table["over_compiled"].dropna()
    alone = table[table["kernel"] != PAIR]
    pairs = counted(len(table) - len(alone), "pair")
    sums = f" and {pairs}, the sum of both launches" if len(alone) < len(table) else ""
    also = (
        f", {compiled.min():.2f} to {compiled.max():.2f} over torch.compile of the same code"
        if len(compiled)
        else "; torch.compile is not recorded yet"
    )
    return (
        f"The same picks beside different references, {scope(alone)}{sums}: "
        f"{single.min():.2f} to {single.max():.2f} times as fast as the original config, "
        f"{eager.min():.1f} to {eager.max():.0f} times as fast as torch's eager code{also}. Picks "
        "read one visit and are judged by the other; bars are 95 % intervals from two visits and "
        "their samples. Crosses: before over after in pull request 3952, on another GPU and timer."
    )


def plot_traffic(floors: pd.DataFrame, reach: pd.DataFrame) -> Figure:
    """Draws how far the jagged kernels stay above their bytes, and what is kept in the cache.

    Args:
        floors: From `kt_lab.moe_study.traffic.floors`.
        reach: From `kt_lab.moe_study.traffic.reach`.
    """
    check_columns(floors, ("kernel", "workload", "share3", "share5", "bound"), what="floors")
    check_columns(reach, ("kernel", "workload", "held", "ratio", "two_readings"), what="reach")
    fig = new_figure()
    narrow = is_narrow_figure(fig)
    rows = 0.2 * len(floors)
    fig.set_figheight(0.9 + rows + 2.0 if narrow else 0.75 + rows)
    ratios = {"height_ratios": [rows, 1.8]} if narrow else {"width_ratios": [1, 1.05]}
    left, right = fig.subplots(*((2, 1) if narrow else (1, 2)), **ratios)
    for y, row in enumerate(floors.itertuples()):
        color = look(row.kernel)["color"]
        left.plot([row.share3, row.share5], [y, y], color=color, lw=0.9)
        left.plot([row.share3], [y], marker="o", color=color, mfc="white", ms=3.8)
        left.plot([row.share5], [y], marker="o", color=color, ms=3.8)
    said = [f"{label(r.kernel)}, {shape(r.kernel, r.workload)}" for r in floors.itertuples()]
    row_axis(left, said)
    left.axvline(1.0, color=QUIET, lw=0.8)
    left.set_xlim(0, max(1.05, floors["share5"].max() * 1.05))
    left.xaxis.set_major_formatter(PercentFormatter(1.0))
    left.set_xlabel("share of the floor of bytes")
    _draw_reach(right, reach)
    handles = [
        Line2D([], [], ls="none", marker="o", color=INK, mfc="white", ms=3.8, label="3 bytes"),
        Line2D([], [], ls="none", marker="o", color=INK, ms=3.8, label="5 bytes an element"),
    ]
    legend_above(fig, handles, handle_length=1)
    return fig


def _draw_reach(ax: Axes, reach: pd.DataFrame) -> None:
    for (kernel, _), rows in reach.groupby(["kernel", "workload"], sort=False):
        rows = rows.sort_values("held")
        dash = "--" if (rows["layout"] == 2).all() else "-"
        ax.plot(rows["held"], rows["ratio"], dash, lw=0.9, ms=2.8, **look(kernel))
    ax.axhline(1.0, color=QUIET, lw=0.8)
    ax.axhline(reach["two_readings"].median(), color=QUIET, lw=0.8, ls=":")
    ax.axvline(1.0, color=FAINT, lw=1.2)
    set_log_axis(ax.xaxis, reach["held"].min() / 1.3, reach["held"].max() * 1.3)
    set_log_axis(ax.yaxis, 0.9, reach["ratio"].max() * 1.15)
    ax.set_xlabel("held / L2 cache")
    ax.set_ylabel("latency / floor of 3 bytes")
    lines = [
        Line2D([], [], color=INK, ls=dash, lw=0.9, label=text)
        for dash, text in (("-", "features first"), ("--", "tokens first"))
    ]
    ax.legend(handles=lines, fontsize=SMALL, handlelength=2, loc="upper right")


def caption_traffic(floors: pd.DataFrame) -> str:
    """Returns the caption of `plot_traffic`, from its data."""
    first = floors[floors["layout"] == 1]
    once = floors[floors["bound"] == "reads once"]
    proof = (
        f"{listed(f'{label(r.kernel)} {r.workload}' for r in once.itertuples())} is faster than "
        "two readings of device memory could be: its second reading comes from the caches. "
        if len(once)
        else ""
    )
    return (
        f"{scope(floors)}. Left: the best config's share of the time of 3 and of 5 bytes an "
        f"element at copy bandwidth; features first {first['share3'].min():.0%} to "
        f"{first['share3'].max():.0%} of 3 bytes, {first['share5'].min():.0%} to "
        f"{first['share5'].max():.0%} of 5. {proof}Right: the fastest config by what all resident "
        "programs hold between both readings (up to), groups taken as equal; dotted: 5 bytes. "
        f"{counted(len(floors), 'landscape')}; no counters were recorded."
    )
