"""Training of a learner of programs: what its turns came to."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from kt_lab.plots.captions import counted
from kt_lab.plots.scales import ratio_limits, set_ratio_axis
from kt_lab.plots.style import INK, QUIET, SMALL, legend_above, new_figure
from kt_lab.stats.tables import check_columns

_LOOKS = {
    "best_speedup": (INK, "o", "best of the turn"),
    "median_speedup": (QUIET, "s", "median of the turn"),
}
_COLUMNS = ("round", "workload", "epsilon", "programs", *_LOOKS)


def plot_training(table: pd.DataFrame) -> Figure:
    """Draws the speed-up of every turn's best and median program over the start, a panel each.

    Args:
        table: One row per turn: round, workload, epsilon, programs, best_speedup, median_speedup
            (null where nothing was right).
    """
    check_columns(table, _COLUMNS, what="training")
    workloads = list(dict.fromkeys(table["workload"]))
    fig = new_figure(height=2.0)
    axes = fig.subplots(1, len(workloads), sharex=True, squeeze=False)[0]
    for ax, workload in zip(axes, workloads, strict=True):
        here = table[table["workload"] == workload]
        for column, (color, marker, _) in _LOOKS.items():
            ax.plot(here["round"] + 1, here[column].astype(float), color=color, marker=marker,
                    ms=2.8, lw=1.0)  # fmt: skip
        known = here[list(_LOOKS)].to_numpy(float)
        low, high, log = ratio_limits(pd.Series(known[np.isfinite(known)]))
        set_ratio_axis(ax.yaxis, low, high, log=log, most=5)
        ax.axhline(1.0, color=QUIET, lw=0.7)
        ax.tick_params(axis="both", labelsize=SMALL)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_title(workload, loc="left")
    fig.supxlabel("turn")
    fig.supylabel("speed-up over the start program")
    legend_above(fig, [Line2D([], [], color=c, marker=m, ms=2.8, label=label)
                       for c, m, label in _LOOKS.values()])  # fmt: skip
    return fig


def caption_training(table: pd.DataFrame) -> str:
    """Returns the caption of `plot_training`, from its data."""
    turns = counted(int(table["round"].nunique()), "turn")
    first, last = table["epsilon"].iloc[0], table["epsilon"].iloc[-1]
    return (
        f"One network trained on {counted(table['workload'].nunique(), 'workload')} in {turns} "
        f"of up to {int(table['programs'].max())} programs each; the share of random moves falls "
        f"from {first:.2f} to {last:.2f}. Best latency of a turn's programs, and the median of "
        "those that ran to their end (the rest were too slow or failed), against the start "
        "program; programs met before are read again, not measured again."
    )
