"""The program dojo: tuned programs beside their references, and players against programs."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kt_lab.plots.captions import counted, listed, spread
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
from kt_lab.stats.tables import check_columns

_LOOKS = {
    "eager": ("#D55E00", "s", "PyTorch eager"),
    "compiled": ("#029E73", "D", "torch.compile"),
    "tvm_tuned": ("#0173B2", "^", "TVM, tuned"),
    "floor": ("#949494", "|", "floor of bytes or arithmetic"),
}
_MORE = {  # what the caption says of a reference
    "floor": "The floor is bytes at the measured bandwidth for as many bytes, or arithmetic at "
    "the measured rate of multiply-adds.",
    "tvm_tuned": "MetaSchedule measured as many programs as each of our players, where it knew "
    "as many.",
}
_FAINT = "#e6e6e6"
_ROW = 0.135  # inches
_MOST = 30.0  # times the best that a player's curve is drawn up to
_COLUMNS = ("workload", "threads", "chain", "reference", "ratio")


def plot_dojo(table: pd.DataFrame) -> Figure:
    """Draws latency ratios of programs to their references, a row per workload.

    Fusable chains stand below single operators. A panel per number of threads, on one logarithmic
    axis; left of 1 the program is faster than the reference.

    Args:
        table: From `kt_lab.evidence.dojo_tables.ratios`, of one path.
    """
    check_columns(table, _COLUMNS, what="ratios")
    shown = table[table["reference"].isin(_LOOKS)]
    order = shown.sort_values("chain", kind="stable")["workload"].drop_duplicates().tolist()
    threads = sorted(shown["threads"].unique())
    fig = new_figure(height=1.0 + _ROW * len(order))
    axes = fig.subplots(1, len(threads), sharey=True, squeeze=False)[0]
    low, high, _ = ratio_limits(shown["ratio"])
    for ax, count in zip(axes, threads, strict=True):
        for y in range(len(order)):
            ax.axhline(y, color=_FAINT, lw=0.5, zorder=0)
        for row in shown[shown["threads"] == count].itertuples():
            color, marker, _ = _LOOKS[row.reference]
            ax.plot([row.ratio], [order.index(row.workload)], ls="none", marker=marker,
                    color=color, ms=3.6, mew=1.0)  # fmt: skip
        set_ratio_axis(ax.xaxis, low, high, log=True, most=5)
        ax.axvline(1.0, color=INK, lw=0.7, zorder=1)
        singles = shown[~shown["chain"].astype(bool)]["workload"].nunique()
        ax.axhline(singles - 0.5, color=QUIET, lw=0.7)
        ax.tick_params(axis="both", labelsize=SMALL)
        ax.tick_params(axis="y", length=0)
        ax.set_title(counted(int(count), "thread"))
    axes[0].set_yticks(range(len(order)), order)
    axes[0].set_ylim(len(order) - 0.4, -0.6)
    fig.supxlabel("latency ratio of the best program found (left of 1: faster)")
    present = [name for name in _LOOKS if (shown["reference"] == name).any()]
    legend_above(fig, [_handle(*_LOOKS[name]) for name in present], handle_length=1)
    return fig


def caption_dojo(table: pd.DataFrame, means: pd.DataFrame) -> str:
    """Returns the caption of `plot_dojo`, from its data; losses are counted.

    Args:
        table: As for `plot_dojo`.
        means: From `kt_lab.evidence.dojo_tables.means`, of all operators.
    """
    told = []
    for threads, part in means.groupby("threads", sort=True):
        known = {mean.reference: mean for mean in part.itertuples()}
        words = [
            f"{words} {mean.ratio:.2f} [{mean.low:.2f}, {mean.high:.2f}] "
            f"({mean.losses} of {mean.workloads} lost)"
            for name, (_, _, words) in _LOOKS.items()
            if (mean := known.get(name))
        ]
        told.append(f"on {counted(int(threads), 'thread')} {listed(words)}")
    disturbed = int(table.drop_duplicates(["workload", "threads"])["disturbed"].sum())
    present = set(table["reference"])
    more = [words for name, words in _MORE.items() if name in present]
    return (
        f"The best program found for {counted(table['workload'].nunique(), 'workload')} of "
        f"{counted(table['kernel'].nunique(), 'operator')}, its latency over that of each "
        f"reference; geometric means with 95 % intervals, operators resampled, then their "
        f"workloads: {'; '.join(told) or 'none'}. Below the line: chains that an "
        "eager framework runs as several kernels. Each is the median over visits, each in fresh "
        "processes, of the least of some batches in alternation; PyTorch writes into preallocated "
        f"outputs where it can, and the faster of its ways counts. {' '.join(more)} Disturbed in "
        f"spite of repetition: {disturbed}."
    )


def plot_players(table: pd.DataFrame) -> Figure:
    """Draws how far players are above the best program anybody found, against programs compiled.

    A panel per operator, both axes logarithmic; lines are medians over seeds, bands quartiles. A
    player that measured one program only is a level line. What lies above the axis is left out.

    Args:
        table: From `kt_lab.evidence.dojo_tables.players_table`.
    """
    check_columns(
        table, ("workload", "player", "programs", "median", "low", "high"), what="players"
    )
    workloads = list(dict.fromkeys(table["workload"]))
    fig = new_figure(height=0.7 + 1.45 * -(-len(workloads) // 2))
    columns = min(2, len(workloads))
    grid = fig.subplots(-(-len(workloads) // columns), columns, sharex=True, squeeze=False)
    names = style_order(table["player"])
    for ax, workload in zip(grid.flat, workloads, strict=False):
        here = table[table["workload"] == workload]
        for name in names:
            look, rows = searcher_style(name), here[here["player"] == name]
            x, y = rows["programs"], rows["median"].replace(np.inf, np.nan)
            ax.plot(x, y, color=look.color, ls=look.dash, marker=look.marker, ms=2.6, lw=1.0)
            band = rows[["low", "high"]].clip(upper=10 * _MOST)
            ax.fill_between(x, band["low"], band["high"], color=look.color, alpha=0.12, lw=0)
        known = here["median"].to_numpy(float)
        top = min(_MOST, 1.1 * float(known[np.isfinite(known)].max(initial=1.05)))
        set_ratio_axis(ax.yaxis, 0.97, top, log=True, most=5)
        ax.set_xscale("log", base=2)
        ticks = [4**k for k in range(1 + int(table["programs"].max()).bit_length() // 2)]
        ax.set_xticks(ticks, [str(n) for n in ticks])
        ax.set_xlim(0.9, 1.15 * table["programs"].max())
        ax.tick_params(axis="both", labelsize=SMALL)
        ax.set_title(workload, loc="left")
    for at in range(len(workloads), grid.size):
        grid.flat[at].set_visible(False)
        grid.flat[at - columns].tick_params(axis="x", labelbottom=True)  # now the lowest there
    fig.supxlabel("different programs compiled")
    fig.supylabel("latency / best that anybody here found")
    handles = [_line(name) for name in names]
    legend_above(fig, handles)
    return fig


def caption_players(table: pd.DataFrame, *, apart: float = 1.0) -> str:
    """Returns the caption of `plot_players`, from its data.

    Args:
        table: As for `plot_players`.
        apart: From `kt_lab.evidence.dojo_tables.readings_apart`.
    """
    most, count = int(table["programs"].max()), table["workload"].nunique()
    ends = table[table["programs"] == most].groupby("player")["median"]
    means = ends.agg(_geometric_mean).sort_values()
    told = [
        f"{searcher_style(name).label} {mean:.2f}"
        + (f" (on {ends.size()[name]} of {count})" if ends.size()[name] < count else "")
        for name, mean in means.items()
        if np.isfinite(mean)
    ]
    seeds = spread(table["seeds"].min(), table["seeds"].max(), "seed")
    median = "One seed" if table["seeds"].max() == 1 else f"Median and quartiles of {seeds}"
    medians = table["median"].to_numpy(float)
    above = np.isfinite(medians) & (medians > _MOST)
    hidden = f" What lies above {_MOST:g} is left out." if above.any() else ""
    shared = (
        "All players of an operator share one reading of each program, which favours nobody but "
        "makes the lowest readings too low."
        if apart == 1.0
        else f"The start program of an operator was read up to {apart:.2f} times as slow by one "
        "player as by another: smaller differences say nothing."
    )
    return (
        "Latency of the best program so far over the best that anybody drawn here found, on "
        f"{counted(count, 'operator')}, against different programs compiled; failures count."
        f"{hidden} {median}; after {most} programs the geometric means over operators are "
        f"{listed(told)}. {shared}"
    )


def _geometric_mean(ratios: pd.Series) -> float:
    return math.exp(np.log(ratios).mean())


def _handle(color: str, marker: str, label: str) -> Line2D:
    return Line2D([], [], ls="none", color=color, marker=marker, ms=3.6, label=label)


def _line(name: str) -> Line2D:
    look = searcher_style(name)
    return Line2D([], [], color=look.color, ls=look.dash, marker=look.marker, ms=2.6,
                  label=look.label)  # fmt: skip
