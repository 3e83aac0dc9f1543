"""Many searchers, one row each: dots with intervals, one panel per budget or measure."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kt_lab.plots.captions import (
    JUDGED,
    counted,
    evidence,
    fewer_words,
    interval_words,
    listed,
    reached_by,
)
from kt_lab.plots.lettering import points_wide, shortened
from kt_lab.plots.measures import (
    MEASURES,
    THE_REFERENCE,
    check_ratios,
    never_reached,
    reference_of,
)
from kt_lab.plots.scales import ratio_limits, set_ratio_axis
from kt_lab.plots.style import (
    INK,
    SMALL,
    is_narrow,
    new_figure,
    row_labels,
    searcher_style,
    style_order,
)
from kt_lab.stats.tables import UNITS, check_columns

_ROW = 0.135  # inches
_STRIPE = "#f4f4f4"
_LEAST = 0.1  # percent: what comes nearer to the optimum than that is drawn at the edge
_ROOM = 0.25  # of the axis
_DOTS = (0.02, 0.98)  # quantiles of the workloads' ratios that the axis holds
_FEW_TICKS = 2  # of narrow panels
_NARROW = {
    "latency": "latency",
    "wall_clock": "wall-clock",
    "convergence_time": "conv. time",
    "target_time": "to target",
}
_ENDS = ("estimate", "low", "high")


def budget_words(axis: str, budget: float) -> str:
    """Returns "50 trials", "12 s", or "end of run" where the budget is null."""
    return "end of run" if pd.isna(budget) else f"{budget:g} {UNITS[axis]}"


def plot_budgets(table: pd.DataFrame, *, height: float | None = None) -> Figure:
    """Draws how far searchers are above the optimum at budgets, best in the last one on top.

    One panel per budget, all on the same logarithmic axis in percent; a dot is the geomean over
    workloads, its line the interval, the tick the geomean of the 90th percentiles over seeds. An
    open triangle at the right edge is infinite (how many runs hold an incumbent beside it); what
    is nearer to the optimum than 0.1% ends in a triangle at the left edge. Draw at full
    width: `with paper("icml", columns=2)`.

    Args:
        table: From `kt_lab.comparison.budget_table`, of one axis.
        height: In inches; None: by the number of searchers.
    """
    check_columns(table, ("axis", "budget", "searcher", *_ENDS, "p90"), what="budgets")
    above = table.assign(**{name: 100 * (table[name] - 1) for name in (*_ENDS, "p90")})
    panels = [rows for _, rows in above.groupby("budget", sort=True, dropna=False)]
    names = _ordered(panels[-1])
    ends = above[["estimate", "high", "p90"]].to_numpy(float)
    known = np.append(ends[np.isfinite(ends) & (ends > 0)], [_LEAST, 10 * _LEAST])
    lows = [low for low in above["low"].tolist() if np.isfinite(low)] or [_LEAST]
    low = max(_LEAST, 0.85 * min(lows))
    fig, axes = _panels(names, len(panels), height=height)
    for ax, rows in zip(axes, panels, strict=True):
        few = _FEW_TICKS if is_narrow(fig) else 5
        set_ratio_axis(ax.xaxis, low, 1.15 * known.max(), log=True, most=few)
        ax.set_title(_title(fig, str(rows["axis"].iloc[0]), rows["budget"].iloc[0]))
        _draw(ax, rows, names)
    after = " after n trials" if table["axis"].iloc[0] == "spent_trials" else ""
    how = f"(%){after}" if is_narrow(fig) else "(%, logarithmic)"
    fig.supxlabel(f"latency above the optimum {how}")
    return fig


def plot_ratio_forest(
    latency: pd.DataFrame,
    wall_clock: pd.DataFrame,
    convergence: pd.DataFrame,
    *,
    height: float | None = None,
) -> Figure:
    """Draws the three tables of ratios for more searchers than bars can tell apart.

    One row per searcher, the lowest latency on top: geomean with its interval, single workloads
    as small dots; what lies beyond an axis is drawn at its edge. An infinite geomean is an open
    triangle at the edge with how many runs succeeded. Where the reference never succeeds nothing
    can be divided by it: the panel says so and tells how many runs succeeded. Draw at full width.

    Args:
        latency: From `kt_lab.stats.latency_ratios`.
        wall_clock: From `wall_clock_ratios`.
        convergence: From `convergence_time_ratios`.
        height: In inches; None: by the number of searchers.
    """
    tables = (latency, wall_clock, convergence)
    names = _ordered(latency[latency["scope"] == "geomean"])
    fig, axes = _panels(names, len(tables), height=height)
    for ax, table in zip(axes, tables, strict=True):
        check_ratios(table)
        means = table[table["scope"] == "geomean"]
        single = table[table["scope"] == "workload"]
        measure = str(table["measure"].iloc[0])
        name = MEASURES[measure]
        ax.set_title(_NARROW.get(measure, name) if is_narrow(fig) else f"{name} ratio")
        if never := never_reached(table):
            _draw_counts(ax, means, names, never)
            continue
        dots = single["estimate"].quantile(_DOTS, interpolation="nearest").to_numpy(float)
        low, high, log = ratio_limits([*means[list(_ENDS)].to_numpy(float).ravel(), *dots])
        if np.isinf(means["estimate"]).any():  # room for how many runs succeeded
            high = high * (high / low) ** _ROOM if log else high + _ROOM * (high - low)
        most = _FEW_TICKS + 2 if is_narrow(fig) else 7
        set_ratio_axis(ax.xaxis, low, high, log=log, most=most)
        ax.axvline(1.0, color=INK, linewidth=0.6, zorder=1)
        for row in single.itertuples():
            if np.isinf(row.estimate):
                continue
            at, color = names.index(str(row.searcher)), searcher_style(str(row.searcher)).color
            x = min(max(row.estimate, low), high)
            ax.plot(x, at, ".", color=color, ms=3, mew=0, alpha=0.5, clip_on=False)
        _draw(ax, means.drop(columns="p90"), names)
    words, size = ("ratio to ", " (lower is better)"), mpl.rcParams["figure.labelsize"]
    room = 0.94 * 72 * fig.get_size_inches()[0] - points_wide("".join(words), size)
    fig.supxlabel(shortened([reference_of(latency)], room, size=size)[0].join(words))
    return fig


def _title(fig: Figure, axis: str, budget: float) -> str:
    """Returns the budget in words; in one column the shortest that say it."""
    if not is_narrow(fig):
        return budget_words(axis, budget)
    unit = "" if axis == "spent_trials" else " s"
    return "end" if pd.isna(budget) else f"{budget:g}{unit}"


def _ordered(rows: pd.DataFrame) -> list[str]:
    """Returns the searchers, the lowest estimate first, equals by name."""
    return list(rows.astype({"searcher": str}).sort_values(["estimate", "searcher"])["searcher"])


def _panels(names: Sequence[str], n: int, *, height: float | None) -> tuple[Figure, Sequence]:
    """Returns a figure of n panels that share their rows."""
    fig = new_figure(height=height or 0.62 + _ROW * len(names))
    axes = fig.subplots(1, n, sharey=True, squeeze=False)[0]
    for ax in axes:
        for at in range(0, len(names), 2):
            ax.axhspan(at - 0.5, at + 0.5, color=_STRIPE, linewidth=0, zorder=0)
        ax.grid(axis="x")
        ax.tick_params(axis="y", length=0)
        ax.tick_params(axis="x", labelsize=SMALL)
        ax.spines["left"].set_visible(False)
    axes[0].set_yticks(range(len(names)), row_labels(fig, names))
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    return fig, axes


def _draw(ax: Axes, rows: pd.DataFrame, names: Sequence[str]) -> None:
    """Draws every searcher's dot, interval and tail."""
    for row in rows.to_dict("records"):
        _row(ax, row, names.index(str(row["searcher"])))


def _draw_counts(ax: Axes, means: pd.DataFrame, names: Sequence[str], never: str) -> None:
    """Writes how many runs of every searcher succeeded, and why there are no ratios."""
    narrow = is_narrow(ax.figure)
    if points_wide(never, SMALL) > ax.figure.get_size_inches()[0] * 72 / (2 if narrow else 3):
        never = never.replace(reference_of(means), THE_REFERENCE, 1)
    for row in means.to_dict("records"):
        reached = f"{row['n_success']}{'/' if narrow else ' of '}{row['n_runs']}"
        place = {"ha": "center", "va": "center_baseline", "transform": ax.get_yaxis_transform()}
        text = reached if narrow else f"{reached} runs reach it"
        ax.text(0.5, names.index(str(row["searcher"])), text, fontsize=SMALL, **place)
    ax.set_xticks([])
    ax.set_xlabel(never.replace(" never", "\nnever") if narrow else never, fontsize=SMALL)


def _row(ax: Axes, row: Mapping, at: float) -> None:
    """Draws one searcher; what lies beyond the axis is drawn at its edge, as a triangle."""
    look = searcher_style(str(row["searcher"]))
    left, right = ax.get_xlim()
    estimate, low, high = (float(row[name]) for name in _ENDS)
    if np.isinf(estimate):
        ax.plot(right, at, ">", color=look.color, mfc="white", ms=4, clip_on=False, zorder=4)
        text = f"{row['n_success']}/{row['n_runs']} " if "n_success" in row else "infinite "
        ax.annotate(text, (right, at), xytext=(-3, 0), textcoords="offset points", ha="right",
                    va="center_baseline", fontsize=SMALL)  # fmt: skip
        return
    ends = np.clip([low, high], left, right)
    ax.plot(ends, [at, at], color=look.color, linewidth=0.9, solid_capstyle="butt", zorder=3)
    for beyond, edge, marker in ((low < left, left, "<"), (high > right, right, ">")):
        if beyond:
            ax.plot(edge, at, marker, color=look.color, ms=2.2, clip_on=False, zorder=3)
    tail = float(row.get("p90", np.nan))
    if left <= tail <= right:
        ax.plot(tail, at, "|", color=look.color, ms=4.5, mew=0.7, zorder=3)
    marker = "<" if estimate < left else look.marker
    ax.plot(max(estimate, left), at, marker, color=look.color, ms=4.0, mew=0.3, mec="white",
            clip_on=False, zorder=4)  # fmt: skip


def _lowest(panel: pd.DataFrame) -> str:
    """Words who is lowest as it is printed; nothing where nobody found anything, or all are."""
    printed = panel["estimate"].round(3)
    names = panel.loc[printed == printed.min(), "searcher"].astype(str)
    if not np.isfinite(printed.min()) or 1 < len(names) == len(panel):
        return ""
    told = listed(searcher_style(name).label for name in style_order(names))
    return f"; {told} {'is' if len(names) == 1 else 'are'} lowest in the last panel"


def caption_budgets(table: pd.DataFrame, *, evidence: str) -> str:
    """Returns the caption of `plot_budgets`, from its data.

    Args:
        table: As drawn.
        evidence: What it rests on, a sentence.
    """
    none = table["budget"].isna()  # the end of a run, drawn last
    last = table[none if none.any() else table["budget"] == table["budget"].max()]
    kind = {"spent_trials": "trials", "machine_s": "machine seconds", "elapsed_s": "seconds"}
    return (
        f"How far the incumbent is above the optimum at budgets of {kind[table['axis'].iloc[0]]}, "
        f"{JUDGED}{_lowest(last)}. "
        f"{evidence} Dot: geomean over workloads of the geomeans over seeds; line: "
        f"{100 * float(table['confidence'].iloc[0]):g}% percentile bootstrap over kernels, their "
        "workloads and their seeds; tick: the same geomean of 90th percentiles over seeds. "
        "Failures count; a run that has ended keeps its incumbent; a searcher with a "
        "run that holds none is infinite (open triangle, runs that hold one). Logarithmic axis; "
        "what lies beyond it ends in a triangle at its edge."
    )


def caption_ratio_forest(
    latency: pd.DataFrame,
    wall_clock: pd.DataFrame,
    convergence: pd.DataFrame,
    *,
    budget: str = "",
) -> str:
    """Returns the caption of `plot_ratio_forest`, from its data; see `caption_ratio_bars`."""
    within, reference = float(convergence["within"].iloc[0]), reference_of(latency)
    means = convergence[convergence["scope"] == "geomean"]
    endless = int(np.isinf(means["estimate"].to_numpy(float)).sum())
    own = reached_by(means, str(latency["reference"].iloc[0]))
    return (
        f"Latency, wall-clock and convergence-time ratios to {reference} of "
        f"{counted(latency['searcher'].nunique() - 1, 'searcher')}; lower is better. "
        f"{evidence(latency, budget=budget)} Latency: of the final incumbent, {JUDGED}. "
        "Wall-clock: mean seconds (compiling, timing and searching) until the run stopped. "
        "Convergence time: expected running time to within "
        f"{100 * within:g}% of {reference}'s median final latency, unsuccessful runs included; "
        f"reached by {own}; {counted(endless, 'searcher')} never reached it on some workload, an "
        f"infinite ratio (open triangle, runs that reached it). {interval_words(wall_clock)} "
        "Small dots: single workloads that are finite, at the edge where they lie beyond it."
        f"{fewer_words(latency, wall_clock, convergence)}"
    )
