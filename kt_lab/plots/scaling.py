"""Scaling: how much faster more workers make an experiment."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from kt_lab.plots.captions import counted, listed
from kt_lab.plots.style import INK, QUIET, legend_above, new_figure
from kt_lab.stats.tables import check_columns

_LOOKS = (("#0072B2", "o"), ("#D55E00", "s"), ("#029E73", "D"), ("#CC78BC", "^"))


def plot_scaling(points: pd.DataFrame) -> Figure:
    """Draws speed-up against workers, a line for each way, beside one that scales perfectly.

    Args:
        points: From `kt_lab.evidence.scaling.table`.
    """
    check_columns(points, ("way", "workers", "speedup"), what="points")
    fig = new_figure()
    ax = fig.subplots()
    most = int(points["workers"].max())
    ax.plot([1, most], [1, most], color=QUIET, ls=":", lw=0.8, zorder=0)
    handles = [Line2D([], [], color=QUIET, ls=":", lw=0.8, label="perfect")]
    for (way, part), (color, marker) in zip(
        points.groupby("way", sort=False), _LOOKS * 9, strict=False
    ):
        line = part.sort_values("workers")
        handles += ax.plot(
            line["workers"], line["speedup"], color=color, marker=marker, label=str(way)
        )
    ax.axhline(1.0, color=INK, lw=0.5, zorder=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("workers")
    ax.set_ylabel("speed-up over one process")
    legend_above(fig, handles)
    return fig


def caption_scaling(points: pd.DataFrame) -> str:
    """Returns the caption of `plot_scaling`, from its data."""
    first = points.iloc[0]
    best = points.loc[points.groupby("way", sort=False)["workers"].idxmax()].iloc[1:]
    told = [
        f"{row.way} with {counted(int(row.workers), 'worker')} {row.speedup:.2f} "
        f"({row.efficiency:.0%} of perfect)"
        for row in best.itertuples()
    ]
    same = "are the same" if points["same"].all() else "DIFFER"
    return (
        f"Speed-up of {counted(int(first.runs), 'replayed run')} ({int(first.trials):,} trials) "
        f"over {first.way}, workers started and warm: {listed(told)}. All results {same} in every "
        "column but the searchers' own CPU time."
    )
