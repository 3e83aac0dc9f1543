"""Where descents end, and whether the way down leads to the optimum."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from kt_lab.plots.atlas import (
    COLORS,
    is_narrow_figure,
    of_landscape,
    panels,
    row_names,
    short,
    sources,
)
from kt_lab.plots.captions import ends
from kt_lab.plots.scales import ratio_limits, set_ratio_axis
from kt_lab.plots.style import INK, SMALL, legend_above, new_figure
from kt_lab.stats.atlas import NEAR
from kt_lab.stats.tables import check_columns

_CELL = ("workload", "gpu")


def plot_local_optima(optima: pd.DataFrame, counts: pd.DataFrame) -> Figure:
    """Draws the local optima of landscapes, a row each, with how many there are.

    Args:
        optima: From `kt_lab.stats.atlas.local_optima`, of one or more landscapes.
        counts: From `kt_lab.atlas.optima_counts`, of these.
    """
    check_columns(optima, (*_CELL, "ratio"), what="local optima")
    check_columns(counts, (*_CELL, "count", "median", "bad"), what="counts")
    rows = row_names(optima)
    fig = new_figure(height=0.55 + 0.16 * len(rows))
    ax = fig.subplots()
    _, high, _ = ratio_limits(optima["ratio"])
    ax.axvspan(1.0, NEAR, color="#e6efe9", lw=0)
    for y, (workload, gpu, _) in enumerate(rows):
        ratio = of_landscape(optima, workload, gpu)["ratio"].to_numpy()
        ax.axhline(y, color="#e3e3e3", lw=0.5, zorder=0)
        ax.plot(ratio, np.full(len(ratio), y), "|", color=COLORS[0], ms=6, mew=0.9, alpha=0.8)
        [told] = of_landscape(counts, workload, gpu).to_dict("records")
        ax.plot([told["median"]], [y], "o", color=COLORS[3], ms=3, mec="white", mew=0.4)
        beside = {"transform": ax.get_yaxis_transform(), "va": "center"}
        said = f"{told['count']:.0f}, {told['bad']:.0%} bad"
        ax.text(1.01, y, said, fontsize=SMALL, color=INK, **beside)
    ax.set_yticks(range(len(rows)), [label for *_, label in rows])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    set_ratio_axis(ax.xaxis, 0.98, high, log=True)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("latency / optimum")
    return fig


def caption_local_optima(optima: pd.DataFrame, counts: pd.DataFrame) -> str:
    """Returns the caption of `plot_local_optima`, from its data."""
    return (
        "Configs that no change of one parameter by one step improves, as latency over the "
        f"optimum, for {sources(optima)}: {ends(counts['count'], ',.0f')} a landscape; the dot is "
        "their median. To the right, how many there are and the share that lies more than "
        f"{NEAR - 1:.0%} above the best (outside the band), {ends(counts['bad'], '.0%')}: a "
        "descent that ends there has failed."
    )


def plot_fitness_distance(distances: pd.DataFrame, summary: pd.DataFrame) -> Figure:
    """Draws, a panel per workload, each config's ratio against its distance from the best.

    Args:
        distances: From `kt_lab.stats.atlas.fitness_distance`, of one or more landscapes.
        summary: Rows of `kt_lab.stats.atlas.summary` for the same: the rank correlations.
    """
    check_columns(distances, (*_CELL, "steps", "ratio"), what="distances")
    check_columns(summary, (*_CELL, "rank_distance"), what="summary")
    rows = row_names(distances)
    gpus = sorted({gpu for _, gpu, _ in rows})
    workloads = list(dict.fromkeys(workload for workload, *_ in rows))
    fig = new_figure()
    across = 2 if is_narrow_figure(fig) else 4
    axes = panels(fig, len(workloads), across=across, height=1.35, sharex=True)
    high = distances["ratio"].max() * 1.1
    for ax, workload in zip(axes, workloads, strict=True):
        for number, gpu in enumerate(gpus):
            one = of_landscape(distances, workload, gpu)
            if one.empty:
                continue
            look = {"ms": 1.6, "mew": 0, "alpha": 0.35, "rasterized": True}
            ax.plot(one["steps"], one["ratio"], "os"[number % 2], color=COLORS[number], **look)
            rank = of_landscape(summary, workload, gpu)["rank_distance"].iloc[0]
            told = f"{gpu}: {rank:.2f}" if len(gpus) > 1 else f"{rank:.2f}"
            place = {"transform": ax.transAxes, "va": "top", "fontsize": SMALL}
            ax.text(0.03, 0.97 - 0.1 * number, told, color=COLORS[number], **place)
        ax.set_title(short(workload))
        set_ratio_axis(ax.yaxis, 0.95, high, log=True, most=5)
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.grid(axis="y")
    fig.supxlabel("distance from the best config (steps over the length of each axis)")
    fig.supylabel("latency / optimum")
    if len(gpus) > 1:
        handles = [
            Line2D([], [], marker="os"[i % 2], color=COLORS[i], linestyle="none", label=gpu)
            for i, gpu in enumerate(gpus)
        ]
        legend_above(fig, handles)
    return fig


def caption_fitness_distance(distances: pd.DataFrame, summary: pd.DataFrame) -> str:
    """Returns the caption of `plot_fitness_distance`, from its data."""
    ranks = summary["rank_distance"].dropna()
    return (
        f"Every measured config of {sources(distances)}: its latency over the optimum against "
        "its distance from the best config; in numbers the rank correlation of the two, "
        f"{ends(ranks, '.2f')}. Near 1, going downhill leads to the optimum; "
        "near 0, distance tells nothing."
    )
