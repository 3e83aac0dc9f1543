"""Distributions: which share of runs got how far at what cost, and how often who is near best."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kt_lab.plots.captions import JUDGED, counted, listed
from kt_lab.plots.scales import LOG_SPAN, set_ratio_axis
from kt_lab.plots.style import is_narrow, legend_above, new_figure, searcher_style, style_order
from kt_lab.stats.tables import check_columns

_COSTS = {
    "spent_trials": "trials",
    "machine_s": "compile and timing time (s)",
    "elapsed_s": "tuning time (s)",
}
_OTHERS = {"color": "#c4c4c4", "linewidth": 0.5, "linestyle": "-"}
_MARKS = 5  # per line


def plot_profiles(
    ecdf: pd.DataFrame,
    profile: pd.DataFrame,
    *,
    chosen: Sequence[str] | None = None,
    height: float | None = None,
) -> Figure:
    """Draws the share of targets reached at a cost, and the share of workloads near the best.

    Costs are on a logarithmic axis, factors where they span more than three. Draw at full width:
    `with paper("icml", columns=2)`.

    Args:
        ecdf: From `kt_lab.stats.runtime_ecdf`.
        profile: From `kt_lab.stats.performance_profile`.
        chosen: Searchers that are drawn in their own looks; all others are thin and grey.
            None: all.
        height: In inches.
    """
    check_columns(ecdf, ("searcher", "time", "share", "axis"), what="running times")
    check_columns(profile, ("searcher", "tau", "share"), what="profiles")
    names = style_order(ecdf["searcher"] if chosen is None else chosen)
    fig = new_figure(height=height or 2.7)
    left, right = fig.subplots(1, 2, sharey=True)
    longest = float(ecdf["time"].max())
    set_ratio_axis(left.xaxis, float(ecdf["time"].min()), longest, log=True)
    widest = 1 + 1.05 * max(0.02, *(_last_step(profile, name) - 1 for name in names))
    set_ratio_axis(right.xaxis, 1.0, widest, log=widest > LOG_SPAN)
    for ax, table, x in ((left, ecdf, "time"), (right, profile, "tau")):
        _lines(ax, table.astype({"searcher": str}), x, names, end=ax.get_xlim()[1])
        ax.set_ylim(-0.01, 1.02)
        ax.grid()
    left.set_xlabel(_COSTS[str(ecdf["axis"].iloc[0])])
    left.set_ylabel("share of runs and targets reached")
    whose = "" if is_narrow(fig) else " searcher of the workload"
    right.set_xlabel(f"factor over the best{whose}")
    right.set_ylabel("share of landscapes within")
    others = len(set(ecdf["searcher"].astype(str)) - set(names))
    handles = [_handle(name) for name in names]
    if others:
        handles.append(Line2D([], [], **_OTHERS, label=counted(others, "other")))
    legend_above(fig, handles, handle_length=2.6, grow=height is None)
    return fig


def _last_step(profile: pd.DataFrame, name: str) -> float:
    """Returns the factor from which a searcher's share stays what it is; 1 if it has none."""
    own = profile[profile["searcher"].astype(str) == name]
    return float(own.loc[own["share"] == own["share"].max(), "tau"].min()) if len(own) else 1.0


def _lines(ax: Axes, table: pd.DataFrame, x: str, names: Sequence[str], *, end: float) -> None:
    """Draws every searcher as steps up to the end of the axis; the chosen ones above the rest."""
    for name, rows in table.groupby("searcher"):
        at = np.append(rows[x].to_numpy(float), end)
        share = np.append(rows["share"].to_numpy(float), rows["share"].iloc[-1])
        if name not in names:
            ax.step(at, share, where="post", **_OTHERS, zorder=2)
            continue
        look, first = searcher_style(name), names.index(name) / len(names) / _MARKS
        ax.step(
            *(at, share),
            where="post",
            color=look.color,
            linestyle=look.dash,
            marker=look.marker,
            markevery=(first, 1 / _MARKS),
            markersize=3,
            zorder=3,
        )


def _handle(name: str) -> Line2D:
    look = searcher_style(name)
    return Line2D([], [], color=look.color, linestyle=look.dash, marker=look.marker, markersize=3,
                  label=look.label)  # fmt: skip


def caption_profiles(
    ecdf: pd.DataFrame,
    profile: pd.DataFrame,
    *,
    evidence: str,
    chosen: Sequence[str] | None = None,
) -> str:
    """Returns the caption of `plot_profiles`, from its data.

    Args:
        ecdf: As drawn.
        profile: As drawn.
        evidence: What it rests on, a sentence.
        chosen: As drawn.
    """
    names = style_order(ecdf["searcher"] if chosen is None else chosen)
    others = ecdf["searcher"].nunique() - len(names)
    grey = f"; grey: {counted(others, 'other')}" if others else ""
    # each workload counts on each of its GPUs, as in no other caption
    landscapes = counted(int(profile["n_workloads"].iloc[0]), "landscape")
    targets = counted(int(ecdf["n_targets"].iloc[0]), "target")
    return (
        f"{listed(searcher_style(name).label for name in names)}{grey}. {evidence} Left: share of "
        f"pairs of a run and a target ({targets}, from 100% to 1% "
        "above the optimum, evenly spaced in ratio) reached by then; a curve ends at what its "
        "runs reach, nothing is restarted. Right: performance profile, the share of "
        f"{landscapes} on which a searcher's final latency is "
        "within a factor of the best searcher's. Every landscape weighs the same; "
        f"{JUDGED}. Costs are on a logarithmic axis; no intervals are "
        "drawn."
    )
