"""The size of a space: what searches reach in spaces of a chain, each within the next."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kt_lab.plots.captions import counted, listed
from kt_lab.plots.scales import ratio_limits, set_ratio_axis
from kt_lab.plots.style import INK, SMALL, legend_above, new_figure, searcher_style, style_order
from kt_lab.stats.tables import check_columns

_COLUMNS = ("workload", "configs", "best", "searcher", "budget", "ratio", "low", "high", "seeds")
_HEIGHT = 1.9  # inches of a row of panels
_BEST = {"color": INK, "ls": "-", "lw": 0.6}
_APART = 2.3  # times a size, from which on two labels do not meet


def plot_sizes(table: pd.DataFrame) -> Figure:
    """Draws latency over the whole space's optimum against the configs of the space searched.

    A row of panels for each workload, a column for each budget, a line for each searcher with its
    quartiles over seeds; thin, what the best config of each space comes to.

    Args:
        table: From `kt_lab.evidence.sizes.table_of`.
    """
    check_columns(table, _COLUMNS, what="sizes of spaces")
    workloads, budgets = table["workload"].unique(), sorted(table["budget"].unique())
    fig = new_figure(height=_HEIGHT * len(workloads) + 0.4)
    grid = fig.subplots(len(workloads), len(budgets), squeeze=False, sharey="row", sharex="row")
    names = style_order(table["searcher"].unique())
    for row, workload in zip(grid, workloads, strict=True):
        here = table[table["workload"] == workload]
        low, high, log = ratio_limits([*here["low"], *here["high"], *here["best"]])
        for ax, budget in zip(row, budgets, strict=True):
            own = here[here["budget"] == budget].sort_values("configs")
            for name in names:
                rows, look = own[own["searcher"] == name], searcher_style(name)
                ax.fill_between(
                    rows["configs"], rows["low"], rows["high"], color=look.color, alpha=0.08, lw=0
                )
                drawn = {"color": look.color, "ls": look.dash, "marker": look.marker}
                ax.plot(rows["configs"], rows["ratio"], ms=3, lw=1.0, **drawn)
            bests = own.drop_duplicates("configs")
            ax.plot(bests["configs"], bests["best"], **_BEST)
            ax.set_xscale("log")
            set_ratio_axis(ax.yaxis, low, high, log=log)
            sizes = sorted(own["configs"].unique())
            ax.set_xticks(_apart(sizes), [f"{size:,}" for size in _apart(sizes)])
            ax.minorticks_off()
            ax.grid(axis="y")
            ax.tick_params(axis="both", labelsize=SMALL)
            ax.set_title(f"{budget} trials", loc="left")
        row[0].set_ylabel(workload.partition("/")[0])
    fig.supxlabel("configs of the space searched")
    fig.supylabel("latency / optimum of the largest space")
    legend_above(fig, [*map(_handle, names), _best_handle()])
    return fig


def _apart(sizes: list[int]) -> list[int]:
    """Returns sizes whose labels do not meet on a logarithmic axis, the last among them."""
    kept = [sizes[-1]]
    for size in reversed(sizes[:-1]):
        if size * _APART < kept[-1]:
            kept.append(size)
    return kept[::-1]


def _handle(name: str) -> Line2D:
    look = searcher_style(name)
    drawn = {"color": look.color, "ls": look.dash, "marker": look.marker}
    return Line2D([], [], ms=3, lw=1.0, label=look.label, **drawn)


def _best_handle() -> Line2D:
    return Line2D([], [], label="best config of the space", **_BEST)


def caption_sizes(table: pd.DataFrame) -> str:
    """Returns the caption of `plot_sizes`, from its data."""
    told = []
    for workload, here in table.groupby("workload", sort=False):
        chain = here.drop_duplicates("configs").sort_values("configs")
        freed = [f"{row.freed} ({row.configs:,})" for row in chain.itertuples() if row.freed]
        told.append(f"{workload}: {chain['configs'].iloc[0]:,} configs, then with {listed(freed)}")
    seeds = counted(int(table["seeds"].max()), "seed")
    gpus = listed(sorted({gpu.upper() for gpu in table["gpu"]}))
    return (
        f"Searches of spaces that each hold the one before, by replay of one landscape a workload "
        f"({gpus}): medians and quartiles of {seeds}. An axis is freed at each step. "
        f"{'; '.join(told)}. What is found is judged by a visit that the search did not read."
    )
