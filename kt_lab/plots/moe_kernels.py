"""What the kernels want: fences and tiles, layouts and routes."""

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from kt_lab.plots.atlas import COLORS, is_narrow_figure
from kt_lab.plots.captions import counted, listed
from kt_lab.plots.moe_look import percent_axis, row_axis, shape
from kt_lab.plots.scales import ratio_limits, set_ratio_axis
from kt_lab.plots.style import QUIET, SMALL, new_figure
from kt_lab.stats.tables import check_columns

_MARKERS = ("o", "s", "D", "^", "v", "P", "X")
_SEMANTICS = {
    "acq_rel": ("#D55E00", "s", "acquire-release"),
    "relaxed": ("#0173B2", "o", "relaxed"),
}
_LAYOUTS = {"features first": ("#0173B2", "o"), "tokens first": ("#DE8F05", "s")}
_COPY, _SCALE = "#CA9161", "#0173B2"


def plot_fences(costs: pd.DataFrame, tiles: pd.DataFrame, gains: pd.DataFrame) -> Figure:
    """Draws what fences cost by tile, and what the 256-wide tile gains with and without them.

    Args:
        costs: From `kt_lab.moe_study.fences.fence_costs`.
        tiles: From `kt_lab.moe_study.fences.tile_costs`, of these.
        gains: From `kt_lab.moe_study.fences.tile_gains`.
    """
    check_columns(tiles, ("workload", "BLOCK_N", "cost"), what="costs of tiles")
    check_columns(gains, ("workload", "semantics", "gain", "low", "high"), what="tile gains")
    fig = new_figure()
    narrow = is_narrow_figure(fig)
    fig.set_figheight(3.6 if narrow else 1.95)
    left, right = fig.subplots(*((2, 1) if narrow else (1, 2)))
    names = list(dict.fromkeys([*costs["workload"], *gains["workload"]]))
    widths = sorted(tiles["BLOCK_N"].unique())
    for i, name in enumerate(names):
        told = tiles[tiles["workload"] == name].sort_values("BLOCK_N")
        at = [widths.index(n) for n in told["BLOCK_N"]]
        color, marker = COLORS[i % len(COLORS)], _MARKERS[i % len(_MARKERS)]
        left.plot(at, told["cost"], color=color, marker=marker, ms=3.2, lw=0.9,
                  label=shape("moe_weights_atomic", name))  # fmt: skip
    left.axhline(0, color=QUIET, lw=0.8)
    left.set_xticks(range(len(widths)), [f"{n:.0f}" for n in widths])
    percent_axis(left.yaxis)
    left.set(xlabel="BLOCK_N", ylabel="fences cost (median)")
    above = {"fontsize": SMALL, "handlelength": 1.6, "borderaxespad": 0}
    left.legend(ncols=2 if narrow else 3, loc="lower left", bbox_to_anchor=(0, 1.02), **above)
    for row in gains.itertuples():
        color, marker, _ = _SEMANTICS[row.semantics]
        y = names.index(row.workload) + (0.15 if row.semantics == "relaxed" else -0.15)
        right.plot([row.low, row.high], [y, y], color=color, lw=0.9)
        right.plot([row.gain], [y], marker=marker, color=color, ms=3.8, ls="none")
    row_axis(right, [shape("moe_weights_atomic", name) for name in names])
    right.axvline(0, color=QUIET, lw=0.8)
    percent_axis(right.xaxis)
    right.set_xlabel("gain of BLOCK_N = 256 over narrower tiles")
    handles = [
        Line2D([], [], color=c, marker=m, ms=3.8, label=t) for c, m, t in _SEMANTICS.values()
    ]
    right.legend(handles=handles, ncols=2, loc="lower right", bbox_to_anchor=(1, 1.02), **above)
    return fig


def caption_fences(costs: pd.DataFrame, tiles: pd.DataFrame, gains: pd.DataFrame) -> str:
    """Returns the caption of `plot_fences`, from its data."""
    told = []
    for semantics, (_, _, text) in _SEMANTICS.items():
        rows = gains[gains["semantics"] == semantics]
        if len(rows):
            ends = f"{rows['gain'].min():+.1%} to {rows['gain'].max():+.1%}"
            told.append(f"{ends} with {text} atomics")
    few = costs["BLOCK_N"] == costs["BLOCK_N"].min()
    return (
        "The scales of expert weights by atomic minimum. Left: latency with acquire-release over "
        f"relaxed semantics, {counted(len(costs), 'pair')} of launches that differ in nothing "
        f"else ({counted(costs['workload'].nunique(), 'workload')} of 1 kernel on "
        f"{listed(sorted(costs['gpu'].unique()))}): median {costs.loc[few, 'cost'].median():+.1%} "
        f"for the narrowest tile, {costs.loc[~few, 'cost'].median():+.1%} for the others; "
        f"drawn per workload and each of {tiles['BLOCK_N'].nunique()} tiles. Right: "
        "in the space of pull request 3952 the best 256-wide tile is faster than the best "
        f"narrower one by {listed(told)}; 95 % intervals from two visits and their samples."
    )


def plot_layouts(layouts: pd.DataFrame, routes: pd.DataFrame) -> Figure:
    """Draws what lists are worth by layout, and both routes to the same result.

    Args:
        layouts: From `kt_lab.moe_study.layouts.layout_table`.
        routes: From `kt_lab.moe_study.layouts.routes`.
    """
    check_columns(layouts, ("layout", "list", "ratio", "low", "high"), what="layouts")
    check_columns(routes, ("route", "list", "copy_us", "scale_us"), what="routes")
    fig = new_figure()
    narrow = is_narrow_figure(fig)
    fig.set_figheight(3.6 if narrow else 1.9)
    left, right = fig.subplots(*((2, 1) if narrow else (1, 2)))
    names = [n for n in dict.fromkeys(layouts["list"]) if n != "original"]
    offset = {name: 0.3 * i - 0.15 for i, name in enumerate(_LAYOUTS)}
    for row in layouts[layouts["list"] != "original"].itertuples():
        color, marker = _LAYOUTS[row.layout]
        y = names.index(row.list) + offset[row.layout]
        left.plot([row.low, row.high], [y, y], color=color, lw=0.9)
        left.plot([row.ratio], [y], marker=marker, color=color, ms=3.8, ls="none")
    row_axis(left, names)
    left.axvline(1.0, color=QUIET, lw=0.8)
    low, high, log = ratio_limits([*layouts["low"], *layouts["high"]])
    set_ratio_axis(left.xaxis, low, high, log=log)
    left.set_xlabel("latency over the original config's")
    handles = [
        Line2D([], [], color=c, marker=m, ms=3.8, label=n) for n, (c, m) in _LAYOUTS.items()
    ]
    _legend_on_top(left, handles)
    _draw_routes(right, routes)
    return fig


def _draw_routes(ax: Axes, routes: pd.DataFrame) -> None:
    said = []
    for y, row in enumerate(routes.itertuples()):
        ax.barh(y, row.copy_us, height=0.6, color=_COPY, lw=0)
        ax.barh(y, row.scale_us, left=row.copy_us, height=0.6, color=_SCALE, lw=0)
        ax.text(row.copy_us + row.scale_us, y, f" {row.copy_us + row.scale_us:.0f}",
                va="center", fontsize=SMALL)  # fmt: skip
        said.append(f"{row.route}, {'tuned' if row.list == 'wide' else row.list}")
    row_axis(ax, said)
    ax.set_xlim(0, (routes["copy_us"] + routes["scale_us"]).max() * 1.15)
    ax.set_xlabel("latency (µs)")
    handles = [Patch(fc=_COPY, label="copy"), Patch(fc=_SCALE, label="scales and cast")]
    _legend_on_top(ax, handles)


def _legend_on_top(ax: Axes, handles: list[Artist]) -> None:
    """Places a legend above the axes, where no data are."""
    place = {"loc": "lower right", "bbox_to_anchor": (1, 1.02), "borderaxespad": 0, "ncols": 2}
    ax.legend(handles=handles, fontsize=SMALL, handlelength=1.6, **place)


def caption_layouts(layouts: pd.DataFrame, routes: pd.DataFrame) -> str:
    """Returns the caption of `plot_layouts`, from its data."""
    large = layouts[layouts["list"] == "pr3972"].set_index("layout")["ratio"]
    told = listed(f"{ratio:.2f} times with {name}" for name, ratio in large.items())
    tuned = routes[(routes["list"] == "wide") & (routes["route"] == "copy, then scale")]
    way = "; ".join(f"{row.ratio:.2f} times as long" for row in tuned.itertuples())
    return (
        f"Scales per column and group, {counted(layouts['shape'].nunique(), 'shape')} of 1 kernel "
        f"on {listed(sorted(layouts['gpu'].unique()))}, features or tokens neighbours in memory. "
        f"Left: best of each list; the large tiles of pull request 3972 take {told} the original "
        f"config's time. Right: at once, or by way of a copy to tokens first; tuned, the copy "
        f"takes {way or 'no recorded time'}. 95 % intervals from two visits and their samples."
    )
