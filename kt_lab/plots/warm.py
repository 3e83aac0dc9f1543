"""Warm starts: what is reached after a few evaluations, by what was known before."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kt_lab.plots.captions import counted, listed
from kt_lab.plots.scales import set_ratio_axis
from kt_lab.plots.style import SMALL, legend_above, new_figure
from kt_lab.stats.tables import check_columns

_LOOKS = {
    "cold": ("#000000", "-", "o", "cold"),
    "listed": ("#949494", (0, (1, 1)), "|", "listed (their favourites in order)"),
    "shapes": ("#0173B2", "-", "s", "shapes (other shapes, same GPU)"),
    "near": ("#CC78BC", (0, (3, 1, 1, 1, 1, 1)), "v", "near (other shapes, runs nearby)"),
    "kernel": ("#56B4E9", (0, (4, 1)), "D", "kernel (other shapes, both GPUs)"),
    "twin": ("#029E73", (0, (5, 1, 1, 1)), "^", "twin (same shape, other GPU)"),
    "misled": ("#D55E00", (0, (2, 1)), "x", "misled (other shapes, upside down)"),
}
_COLUMNS = ("mode", "budget", "geomean", "low", "high", "worst", "landscapes", "kernels", "seeds")
_LEAST, _MOST = 0.3, 1000.0  # percent that are drawn


def plot_warm(table: pd.DataFrame) -> Figure:
    """Draws how far latency is above the optimum, in percent, against evaluations.

    A line per kind of knowledge. On the left geometric means over landscapes with their
    intervals, on the right, where there are several, the worst of them; all axes logarithmic.
    What lies above the axis is left out, what lies below it is drawn on its edge.

    Args:
        table: Columns mode, budget, geomean, low, high, worst, landscapes, kernels and seeds.
    """
    check_columns(table, _COLUMNS, what="warm starts")
    fig = new_figure(height=2.3)
    parts = ["geomean", "worst"] if table["landscapes"].max() > 1 else ["geomean"]
    titles = {"geomean": "geometric mean", "worst": "worst landscape"}
    axes = fig.subplots(1, len(parts), squeeze=False)[0]
    present = [mode for mode in _LOOKS if (table["mode"] == mode).any()]
    for ax, column in zip(axes, parts, strict=True):
        for mode in present:
            color, dash, marker, _ = _LOOKS[mode]
            rows = table[table["mode"] == mode].sort_values("budget")
            look = {"color": color, "ls": dash, "marker": marker, "ms": 3, "lw": 1.0}
            ax.plot(rows["budget"], _percent(rows[column]), **look)
            if column == "geomean":
                low, high = _percent(rows["low"]), _percent(rows["high"])
                ax.fill_between(rows["budget"], low, high, color=color, alpha=0.08, lw=0)
        ax.set_xscale("log")
        budgets = sorted(table["budget"].unique())
        ax.set_xticks(budgets, [str(budget) for budget in budgets])
        ax.minorticks_off()
        top = min(_MOST, 1.3 * float(_percent(table[column]).max()))
        set_ratio_axis(ax.yaxis, _LEAST, top, log=True, most=7)
        ax.grid(axis="y")
        ax.tick_params(axis="both", labelsize=SMALL)
        ax.set_title(titles[column] if len(parts) > 1 else "", loc="left")
    fig.supxlabel("evaluations")
    fig.supylabel("latency above the optimum (%)")
    legend_above(fig, [_handle(mode) for mode in present])
    return fig


def _percent(ratios: pd.Series) -> pd.Series:
    return (100 * (ratios - 1)).clip(lower=_LEAST)


def caption_warm(table: pd.DataFrame, *, where: str) -> str:
    """Returns the caption of `plot_warm`, from its data.

    Args:
        table: As drawn.
        where: The landscape if it is one ("softmax/4096x640 on H200"), else the GPUs.
    """
    few, most = table["budget"].min(), table["budget"].max()
    ends = table[table["budget"] == most].set_index("mode")["geomean"]
    begun = table[table["budget"] == few].set_index("mode")["geomean"]
    told = [f"{_LOOKS[m][3]} {begun[m]:.2f} to {ends[m]:.3f}" for m in ends.index if m in _LOOKS]
    counts = table.drop_duplicates("mode")
    fewest, many = counts["landscapes"].min(), counts["landscapes"].max()
    among, means, bands = f"on {where}", "", ""
    if many > 1:
        among = f"on {fewest} to {many} landscapes" if fewest < many else f"on {many} landscapes"
        among += f" of {counted(int(counts['kernels'].max()), 'kernel')} ({where})"
        means = "geometric means "
        bands = " Bands: 95 % intervals, kernels resampled, then their landscapes."
    if fewest < many:
        bands += " A mode has fewer landscapes where nothing is recorded that it could start from."
    return (
        f"Incumbents over the optimum, medians of {counted(int(counts['seeds'].max()), 'seed')}, "
        f"{among}, searched with what is recorded of other workloads; {means}after {few} and "
        f"{most} evaluations: {listed(told)}.{bands} What is less than {_LEAST:g} % above is "
        f"drawn on the lower edge, what is more than {_MOST:,.0f} % above is left out."
    )


def _handle(mode: str) -> Line2D:
    color, dash, marker, words = _LOOKS[mode]
    return Line2D([], [], color=color, ls=dash, marker=marker, ms=3, lw=1.0, label=words)
