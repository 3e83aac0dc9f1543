"""Noise between names of one launch, repeated tunings, and the seconds of a cold start."""

import re

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from kt_lab.plots.atlas import is_narrow_figure, set_log_axis
from kt_lab.plots.captions import counted
from kt_lab.plots.moe_look import (
    GUARDED,
    NAIVE,
    kernel_handles,
    look,
    percent_axis,
    row_axis,
    scope,
)
from kt_lab.plots.style import INK, QUIET, legend_above, new_figure
from kt_lab.stats.tables import check_columns

_LEAST = 1e-4  # where the axis of spreads begins
_TUNERS = {"naive": (NAIVE, "s"), "guarded": (GUARDED, "o")}


def plot_name_spread(floor: pd.DataFrame) -> Figure:
    """Draws how far two names of one launch read apart, against how long the launch takes.

    Args:
        floor: From `kt_lab.moe_study.same_launch.noise_floor`.
    """
    check_columns(floor, ("kernel", "latency_us", "median_off", "p95_off"), what="spreads")
    fig = new_figure()
    ax = fig.subplots()
    for row in floor.itertuples():
        seen = look(row.kernel)
        ends = [max(row.median_off, _LEAST), max(row.p95_off, _LEAST)]
        ax.plot([row.latency_us] * 2, ends, color=seen["color"], lw=0.8, zorder=1)
        for end, face in zip(ends, (seen["color"], "white"), strict=True):
            ax.plot([row.latency_us], [end], ls="none", mfc=face, mew=0.8, ms=4, **seen)
    low, high = floor["latency_us"].min(), floor["latency_us"].max()
    set_log_axis(ax.xaxis, low / 1.3, high * 1.3)
    set_log_axis(ax.yaxis, _LEAST, max(floor["p95_off"].max() * 1.5, 0.02))
    percent_axis(ax.yaxis, signed=False)
    ax.grid(axis="y")
    ax.set_xlabel("latency of the launch (µs)")
    ax.set_ylabel("two names of it differ by")
    ends = [
        Line2D([], [], ls="none", marker="o", color=INK, mfc=face, ms=4, label=text)
        for face, text in ((INK, "median"), ("white", "95 % of pairs"))
    ]
    legend_above(fig, [*kernel_handles(floor["kernel"]), *ends], handle_length=1)
    return fig


def caption_name_spread(floor: pd.DataFrame) -> str:
    """Returns the caption of `plot_name_spread`, from its data."""
    worst = floor.loc[floor["p95_off"].idxmax()]
    return (
        "An A/A test: two configs that compile to the same binary and grid, timed in the same "
        f"visit. {scope(floor)}, {counted(int(floor['pairs'].sum()), 'pair')} of names. In the "
        f"median over workloads half of the pairs differ by less than "
        f"{floor['median_off'].median():.2%} and 95 % by less than "
        f"{floor['p95_off'].median():.2%}; at worst ({worst['kernel']}/{worst['workload']}) 5 % "
        f"differ by more than {worst['p95_off']:.1%}. A gain that is no larger is none."
    )


def plot_repeated(sizes: pd.DataFrame) -> Figure:
    """Draws, per size of list, what tuners read, what is true, how they agree and regress.

    Args:
        sizes: Rows of `kt_lab.moe_study.tunings.totals`, of one way to judge.
    """
    columns = ("lists", "tuner", "agreement", "true_gain", "apparent_gain")
    columns += ("regressing", "regressing_high")
    check_columns(sizes, columns, what="totals")
    lists = list(dict.fromkeys(sizes["lists"]))
    fig = new_figure()
    narrow = is_narrow_figure(fig)
    fig.set_figheight((3.2 if narrow else 0.95) + (3 if narrow else 1) * 0.16 * len(lists))
    shape = (3, 1) if narrow else (1, 3)
    gains, agreement, rate = fig.subplots(*shape, sharey=True)
    for row in sizes.itertuples():
        color, marker = _TUNERS[row.tuner]
        y = lists.index(row.lists) + (0.16 if row.tuner == "guarded" else -0.16)
        gains.plot([row.true_gain, row.apparent_gain], [y, y], color=color, lw=0.9)
        gains.plot([row.true_gain], [y], marker=marker, color=color, ms=3.5, ls="none")
        gains.plot([row.apparent_gain], [y], marker="|", color=color, ms=6, mew=1, ls="none")
        agreement.plot([row.agreement], [y], marker=marker, color=color, ms=3.5, ls="none")
        rate.plot([row.regressing, row.regressing_high], [y, y], color=color, lw=0.9)
        rate.plot(
            [row.regressing], [y], marker=marker, color=color, ms=3.5, ls="none", clip_on=False
        )
    names = [re.sub(r"^(\d+)", r"\1 configs", name) for name in lists]
    for ax, title in ((gains, "gain"), (agreement, "same pick"), (rate, "lists that regress")):
        row_axis(ax, names)
        ax.set_title(title)
    percent_axis(gains.xaxis)
    agreement.set_xlim(min(0.65, sizes["agreement"].min() - 0.02), 1.03)
    agreement.axvline(0.95, color=QUIET, lw=0.7, ls=":")
    rate.set_xlim(0, max(0.05, sizes["regressing_high"].max() * 1.05))
    for ax in (agreement, rate):
        ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    legend_above(fig, _tuner_handles(), handle_length=1.2)
    return fig


def _tuner_handles() -> list[Line2D]:
    known = (("naive", "default tuner"), ("guarded", "guarded tuner"))
    handles = [
        Line2D([], [], color=_TUNERS[t][0], marker=_TUNERS[t][1], ms=3.5, label=text)
        for t, text in known
    ]
    tick = Line2D(
        [], [], color=INK, marker="|", ls="none", ms=6, label="gain as the tuner read it"
    )
    return [*handles, tick]


def caption_repeated(sizes: pd.DataFrame) -> str:
    """Returns the caption of `plot_repeated`, from its data."""
    told = []
    for row in sizes[sizes["lists"].isin(_TOLD)].itertuples():
        told.append(
            f"{_TOLD[row.lists]} the {'default' if row.tuner == 'naive' else 'guarded'} tuner in "
            f"{row.regressions:,} of {row.tunings:,} tunings, on {row.regressing:.0%} of "
            f"{row.tuned:,} lists (95 % limit {row.regressing_high:.1%}; worst {row.worst:.1%})"
        )
    return (
        "Each list of configs is tuned again and again by replay, on every shape. Dot: true gain "
        "over the original config; tick: what the tuner read of its own pick; right: the share of "
        "lists with a regression, up to its 95 % limit over lists, as repeats share one "
        "recording. A pick truly more than 1 % slower than the config in "
        f"use comes from: {'; '.join(told) or 'no list'}. Distinct: without the names that are "
        "one program; fenced: atomics as before pull request 3945."
    )


_TOLD = {
    "with the incumbent": "lists that hold the original config,",
    "3": "pull request 3972's, which does not hold it,",
    "wide": "everything recorded,",
}


def plot_cold(cold: pd.DataFrame) -> Figure:
    """Draws what tuning costs in a fresh process: one config, the default tuner, the guarded one.

    Args:
        cold: Columns list, configs, single_s, compile_s, naive_s, guarded_compile_s, guarded_s,
            one row per list (means over shapes).
    """
    columns = ("list", "configs", "single_s", "compile_s", "naive_s", "guarded_s")
    check_columns(cold, (*columns, "guarded_compile_s"), what="cold seconds")
    fig = new_figure(height=1.0 + 0.19 * len(cold))
    ax = fig.subplots()
    for y, row in enumerate(cold.itertuples()):
        _seconds(ax, y - 0.17, row.compile_s, row.naive_s, NAIVE, "s")
        _seconds(ax, y + 0.17, row.guarded_compile_s, row.guarded_s, GUARDED, "o")
        ax.plot([row.single_s], [y], marker="|", color=INK, ms=8, mew=1.2)
    row_axis(ax, [f"{row.list} ({row.configs:.0f})" for row in cold.itertuples()])
    totals = cold["compile_s"] + cold["naive_s"]
    least = min(cold["single_s"].min(), (cold["guarded_compile_s"]).min())
    set_log_axis(ax.xaxis, least / 1.6, totals.max() * 1.6)
    ax.set_xlabel("seconds of a cold start")
    handles = [
        Line2D([], [], color=INK, marker="|", ls="none", ms=8, mew=1.2, label="one config"),
        Line2D([], [], color=NAIVE, marker="s", ms=3.5, label="default tuner, one compiler"),
        Line2D([], [], color=GUARDED, marker="o", ms=3.5, label="guarded tuner, 16 compilers"),
    ]
    legend_above(fig, handles, handle_length=1.2)
    return fig


def _seconds(ax: Axes, y: float, compile_s: float, timing_s: float, color: str, mark: str) -> None:
    total = compile_s + timing_s
    ax.plot([compile_s, total], [y, y], color=color, lw=1.0)
    ax.plot([compile_s], [y], marker=mark, color=color, mfc="white", ms=3.5, ls="none")
    ax.plot([total], [y], marker=mark, color=color, ms=3.5, ls="none")


def caption_cold(cold: pd.DataFrame) -> str:
    """Returns the caption of `plot_cold`, from its data."""
    published = cold[cold["list"] != "wide"]
    naive = (published["compile_s"] + published["naive_s"]) / published["single_s"]
    guarded = published["guarded_compile_s"] + published["guarded_s"]
    guarded = guarded / published["single_s"]
    return (
        "Seconds before the first launch in a fresh process, mean over the shapes of each list "
        "(number of configs). Open: compiled; filled: compiled and timed. Compiling is the "
        "recorded time of each config alone, duplicates included for the default tuner, which "
        f"takes {naive.min():.0f} to {naive.max():.0f} times as long as the one original config "
        f"on published lists; the guarded tuner, which compiles the same list on 16 processes "
        f"and times each program under one name, {guarded.min():.1f} to {guarded.max():.1f} times."
    )
