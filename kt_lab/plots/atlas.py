"""How rare good configs are, and what the parameters do: tails, effects and marginals."""

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from kt_lab.plots.captions import counted, ends, listed
from kt_lab.plots.scales import log_ticks, set_ratio_axis
from kt_lab.plots.slices import ink_on
from kt_lab.plots.style import INK, QUIET, SMALL, is_narrow, legend_above, new_figure
from kt_lab.stats.tables import check_columns

COLORS = ("#0173B2", "#DE8F05", "#029E73", "#D55E00", "#CC78BC", "#CA9161", "#56B4E9", "#949494")
DASHES = ("-", (0, (4, 1.2)), (0, (1, 1)), (0, (4, 1, 1, 1)))  # one a GPU
_ROW = 0.155  # inches of a row of a heat map
_CELL = ("workload", "gpu")


def short(workload: str) -> str:
    """Returns the shape of a workload, as its kernel is named elsewhere."""
    return workload.partition("/")[2]


def row_names(table: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Returns (workload, gpu, label) of every landscape of a table, shapes together.

    The GPU is part of the label where there are several.
    """
    cells = table[list(_CELL)].astype(str).drop_duplicates()
    several = cells["gpu"].nunique() > 1
    order = {name: at for at, name in enumerate(cells["workload"].unique())}
    found = sorted(cells.itertuples(index=False), key=lambda c: (order[c.workload], c.gpu))
    return [(w, g, f"{short(w)}, {g}" if several else short(w)) for w, g in found]


def of_landscape(table: pd.DataFrame, workload: str, gpu: str) -> pd.DataFrame:
    """Returns the rows of one landscape."""
    return table[(table["workload"].astype(str) == workload) & (table["gpu"].astype(str) == gpu)]


def sources(table: pd.DataFrame) -> str:
    """Returns what a table rests on: "8 landscapes (4 workloads of 1 kernel on h100 and h200)"."""
    cells = table[list(_CELL)].astype(str).drop_duplicates()
    kernels = counted(cells["workload"].str.partition("/")[0].nunique(), "kernel")
    workloads = counted(cells["workload"].nunique(), "workload")
    gpus = listed(sorted(cells["gpu"].unique()))
    return f"{counted(len(cells), 'landscape')} ({workloads} of {kernels} on {gpus})"


def plot_tails(tails: pd.DataFrame, *, most: float = 10.0) -> Figure:
    """Draws, a panel per kernel, the share of configs that are at least so good.

    Args:
        tails: From `kt_lab.stats.atlas.tail`, of one or more landscapes.
        most: Right end of the x axes, as a multiple of the optimum.
    """
    check_columns(tails, (*_CELL, "ratio", "share"), what="tails")
    kernels = tails["workload"].astype(str).str.partition("/")[0]
    names, gpus = list(dict.fromkeys(kernels)), sorted(tails["gpu"].astype(str).unique())
    fig = new_figure()
    axes = panels(fig, len(names), across=2 if is_narrow_figure(fig) else 4, height=1.55)
    low = tails["share"].min()
    for ax, kernel in zip(axes, names, strict=True):
        mine = tails[kernels == kernel]
        shapes = list(dict.fromkeys(mine["workload"].astype(str)))
        for workload, gpu, _ in row_names(mine):
            rows = of_landscape(mine, workload, gpu)
            place = shapes.index(workload)
            ax.step(
                rows["ratio"],
                rows["share"],
                where="post",
                color=COLORS[place % len(COLORS)],
                linestyle=DASHES[gpus.index(gpu) % len(DASHES)],
                linewidth=_width(place),
                label=short(workload) if gpu == gpus[0] or len(gpus) == 1 else None,
            )
        set_ratio_axis(ax.xaxis, 1.0, most, log=True, most=5)
        ax.set_yscale("log")
        ax.set_ylim(low, 1.2)
        ax.grid()
        ax.set_title(kernel)
        shown = [
            Line2D([], [], color=COLORS[i % len(COLORS)], linewidth=_width(i))
            for i in range(len(shapes))
        ]
        ax.legend(shown, map(short, shapes), loc="lower right", fontsize=SMALL, handlelength=1)
    fig.supxlabel("latency / optimum")
    fig.supylabel("share of configs at least as fast")
    if len(gpus) > 1:
        lines = [
            Line2D([], [], color=INK, linestyle=DASHES[i % len(DASHES)], label=gpu)
            for i, gpu in enumerate(gpus)
        ]
        legend_above(fig, lines)
    return fig


def _width(place: int) -> float:
    """Returns a line's width: shapes beyond the colours are drawn thick."""
    return 0.9 + 1.2 * (place // len(COLORS))


def caption_tails(tails: pd.DataFrame) -> str:
    """Returns the caption of `plot_tails`, from its data."""
    near = tails[tails["ratio"] <= 1.05].groupby([*_CELL], observed=True)["share"].max()
    each = " and GPU" if tails["gpu"].nunique() > 1 else ""
    return (
        "Share of all configs, failures included, whose latency is within a factor of the best, "
        f"for {sources(tails)}, a line per workload{each}. Within 5 % "
        f"of the optimum are {ends(near, '.2%')} of the configs."
    )


def plot_effects(effects: pd.DataFrame, *, pairs: int = 6) -> Figure:
    """Draws how much of the variance of log latency parameters and pairs explain, as a heat map.

    Args:
        effects: From `kt_lab.stats.atlas.effects`, of the landscapes of one kernel.
        pairs: How many interactions are shown: those that are largest anywhere.
    """
    check_columns(effects, (*_CELL, "parameters", "kind", "share"), what="effects")
    columns, mains = _shown_effects(effects, pairs)
    rows = row_names(effects)
    fig = new_figure(height=0.95 + _ROW * len(rows))
    ax = fig.subplots()
    for y, (workload, gpu, _) in enumerate(rows):
        share = of_landscape(effects, workload, gpu).set_index("parameters")["share"]
        for x, name in enumerate(columns):
            _share_cell(ax, x, y, share.get(name, np.nan))
    ax.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    ax.axvline(mains, color=INK, linewidth=1.0)
    _category_axis(ax.yaxis, [label for *_, label in rows])
    said = [name.replace(" x ", " ×\n") for name in columns]  # noqa: RUF001
    _category_axis(ax.xaxis, said)
    ax.tick_params(axis="x", rotation=90, labelsize=SMALL)
    ax.spines[:].set_visible(False)
    return fig


def caption_effects(effects: pd.DataFrame, *, pairs: int = 6) -> str:
    """Returns the caption of `plot_effects`, from its data."""
    columns, mains = _shown_effects(effects, pairs)
    top = effects.loc[effects["share"].idxmax()]
    every = effects[effects["kind"] == "interaction"]["parameters"].nunique()
    hidden = f"the {len(columns) - mains} of {every} interactions that are largest anywhere"
    return (
        "Share (%) of the variance of log latency that each parameter explains (left of the "
        f"line), and what {hidden} explain beyond their two parameters, for {sources(effects)}; "
        f"the largest is {top['parameters']} with {top['share']:.0%} in "
        f"{short(str(top['workload']))} on {top['gpu']}. Constraints tie parameters together: "
        "shares need not add up to 100 %, and a negative interaction means that its two "
        "parameters tell the same story. A dot: the parameter does not exist there."
    )


def plot_marginals(marginals: pd.DataFrame) -> Figure:
    """Draws the best and the median ratio that each value of each parameter allows.

    Args:
        marginals: From `kt_lab.stats.atlas.marginals`, of one landscape.
    """
    check_columns(marginals, ("parameter", "value", "failed", "best", "median"), what="marginals")
    names = list(dict.fromkeys(marginals["parameter"].astype(str)))
    fig = new_figure()
    axes = panels(fig, len(names), across=2 if is_narrow_figure(fig) else 5, height=1.15)
    high = np.nanmax(marginals[["best", "median"]].to_numpy(float)) * 1.12
    fails = bool((marginals["failed"] >= 0.005).any())
    low, top = 0.93, high * (1.35 if fails else 1.0)
    for ax, name in zip(axes, names, strict=True):
        rows = marginals[marginals["parameter"].astype(str) == name].reset_index(drop=True)
        at = np.arange(len(rows))
        look = {"markersize": 3.5, "linewidth": 0.8, "clip_on": False}
        ax.plot(at, rows["median"], "s--", color=COLORS[7], mfc="white", **look)
        ax.plot(at, rows["best"], "o-", color=COLORS[0], **look)
        for x in at[rows["failed"].to_numpy(float) >= 0.005]:
            said = f"{rows['failed'][x]:.0%}"
            ax.text(x, top, said, ha="center", va="top", fontsize=SMALL, color=COLORS[3])
        set_ratio_axis(ax.yaxis, low, top, log=True, most=5)
        ax.xaxis.set_major_locator(FixedLocator(at))
        values = ["(empty)" if pd.isna(v) or v == "" else _written(v) for v in rows["value"]]
        ax.set_xticklabels(values, fontsize=SMALL)
        if sum(map(len, values)) > 18:
            ax.tick_params(axis="x", rotation=40)
        ax.set_xlim(-0.4, len(rows) - 0.6)
        ax.grid(axis="y")
        ax.set_title(name)
    fig.supylabel("latency / optimum")
    handles = [
        Line2D([], [], marker="o", color=COLORS[0], label="best with this value"),
        Line2D([], [], marker="s", ls="--", color=COLORS[7], mfc="white", label="median"),
    ]
    if fails:
        blank = {"marker": "$\\%$", "color": COLORS[3], "mew": 0, "ms": 6, "linestyle": "none"}
        handles.append(Line2D([], [], label="share that fails", **blank))
    legend_above(fig, handles)
    return fig


def caption_marginals(marginals: pd.DataFrame) -> str:
    """Returns the caption of `plot_marginals`, from its data."""
    first = marginals.iloc[0]
    worst = marginals.groupby("parameter", observed=True, sort=False)["best"].max().dropna()
    said = f"a wrong {worst.idxmax()} alone costs up to {worst.max() - 1:.0%}"
    return (
        f"{first['workload']} on {first['gpu']}: latency over the optimum by the value of each "
        "parameter, at the best of all other parameters and at the median. Where the best stays "
        f"at 1 the value does not matter to a search that tunes the rest; {said}."
    )


def is_narrow_figure(fig: Figure) -> bool:
    """Whether a figure is one column wide."""
    return is_narrow(fig.patch)


def panels(
    fig: Figure, count: int, *, across: int, height: float, sharex: bool = False
) -> Sequence[Axes]:
    """Returns axes in reading order, of one y axis; the figure grows by `height` inches a row.

    Args:
        fig: An empty figure.
        count: How many axes.
        across: At most so many side by side.
        height: Of one, in inches.
        sharex: Whether they have one x axis, too.
    """
    down = math.ceil(count / across)
    across = math.ceil(count / down)  # rows evenly filled
    fig.set_figheight(0.6 + height * down)
    axes = fig.subplots(down, across, sharex=sharex, sharey=True, squeeze=False).ravel()
    for ax in axes[count:]:
        ax.set_visible(False)
    for ax in axes[count - across : count] if sharex else ():
        ax.tick_params(labelbottom=True)
    return axes[:count]


def _shown_effects(effects: pd.DataFrame, pairs: int) -> tuple[list[str], int]:
    """Returns the columns of the heat map, parameters before pairs, and how many of the former."""
    main = effects[effects["kind"] == "main"]
    largest = effects[effects["kind"] == "interaction"].groupby("parameters")["share"].max()
    top = largest.sort_values(ascending=False, kind="stable").index[:pairs]
    names = list(dict.fromkeys(main["parameters"].astype(str)))
    return [*names, *top], len(names)


def _share_cell(ax: Axes, x: int, y: int, share: float) -> None:
    place = {"ha": "center", "va": "center", "fontsize": SMALL}
    if not np.isfinite(share):
        ax.text(x + 0.5, y + 0.5, "·", color=QUIET, **place)
        return
    face = to_hex(mpl.colormaps["Blues"](min(max(share, 0.0), 1.0)))
    ax.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor="white", lw=0.6))
    said = f"{100 * share:.0f}".replace("-", "−")  # noqa: RUF001
    ax.text(x + 0.5, y + 0.5, "0" if said == "−0" else said, color=ink_on(face), **place)  # noqa: RUF001


def _category_axis(axis: mpl.axis.Axis, labels: Sequence[str]) -> None:
    axis.set_major_locator(FixedLocator(np.arange(len(labels)) + 0.5))
    axis.set_ticklabels(labels)
    axis.set_tick_params(length=0)


def _written(value: object) -> str:
    """Returns a value's text; read from the points of a figure it may have become a float."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def set_log_axis(axis: mpl.axis.Axis, low: float, high: float, *, most: int = 6) -> None:
    """Makes an axis logarithmic with plain numbers for ticks (20, 50, 100)."""
    axes, horizontal = axis.axes, axis.axis_name == "x"
    (axes.set_xscale if horizontal else axes.set_yscale)("log")
    (axes.set_xlim if horizontal else axes.set_ylim)(low, high)
    few = len(ticks := log_ticks(low, high, most=most)) < 3
    axis.set_major_locator(MaxNLocator(4) if few else FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
