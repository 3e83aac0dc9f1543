"""Why the best config is fast: the measured way to it from the default, parameter by parameter."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kt_lab.plots.atlas import (
    COLORS,
    is_narrow_figure,
    of_landscape,
    row_names,
    set_log_axis,
    sources,
)
from kt_lab.plots.captions import ends
from kt_lab.plots.style import INK, QUIET, SMALL, new_figure
from kt_lab.stats.tables import check_columns

_COLUMNS = ("workload", "gpu", "step", "changed", "latency_us", "gain")
_STEP = 0.17  # inches


def plot_ablation(paths: pd.DataFrame) -> Figure:
    """Draws waterfalls in log latency: which change of a parameter bought what.

    Args:
        paths: From `kt_lab.stats.atlas.ablation_path`, of one or more landscapes.
    """
    check_columns(paths, _COLUMNS, what="paths")
    rows = row_names(paths)
    fig = new_figure()
    across = min(1 if is_narrow_figure(fig) else 2, len(rows))
    down = math.ceil(len(rows) / across)
    bars = [len(of_landscape(paths, w, g)) for w, g, _ in rows]
    most = [max(bars[at * across : (at + 1) * across]) for at in range(down)]
    fig.set_figheight(0.3 + sum(0.42 + _STEP * count for count in most))
    axes = fig.subplots(
        down, across, squeeze=False, height_ratios=[0.42 / _STEP + count for count in most]
    )
    for ax, (workload, gpu, label) in zip(axes.ravel(), rows, strict=False):
        steps = of_landscape(paths, workload, gpu).reset_index(drop=True)
        tallest = most[list(axes.ravel()).index(ax) // across]
        _waterfall(ax, steps, rows=tallest)
        ax.set_title(label, loc="left")
    for ax in axes.ravel()[len(rows) :]:
        ax.set_visible(False)
    fig.supxlabel("latency (µs)")
    return fig


def caption_ablation(paths: pd.DataFrame) -> str:
    """Returns the caption of `plot_ablation`, from its data."""
    told = paths.dropna(subset="gain")
    whole = told.groupby(["workload", "gpu"], observed=True)["gain"].prod()
    said = (
        "From the default config to the best one, a parameter at a time, each time the one that "
        f"gains most, on measured latencies (ablation after Fawcett and Hoos), for "
        f"{sources(paths)}. Beside each bar: how many times faster it made the kernel."
    )
    if told.empty:
        return said + " No step between two measured configs is known."
    first = told.loc[told["gain"].idxmax()]
    return (
        f"{said} In all {ends(whole, '.2f')} times; the largest single step is "
        f"{first['changed']} with {first['gain']:.2f} times. The order matters where parameters "
        "interact: another order would share the gain out otherwise."
    )


def _waterfall(ax: Axes, steps: pd.DataFrame, *, rows: int) -> None:
    latency = steps["latency_us"].to_numpy(float)
    known = latency[np.isfinite(latency)]
    low, high = known.min(), known.max()
    span = max(high / low, 1.05)
    for y, step in enumerate(steps.itertuples()):
        before = latency[y - 1] if y else np.nan
        if y == 0 or not np.isfinite(before):
            if np.isfinite(step.latency_us):
                ax.plot([step.latency_us], [y], "o", color=INK, ms=4)
                _said(ax, step.latency_us, y, f"{step.latency_us:.4g} µs")
            else:
                ax.text(low, y, "failed", fontsize=SMALL, color=INK, va="center")
        else:
            better = step.latency_us <= before
            color = COLORS[2] if better else COLORS[3]
            ax.barh(y, step.latency_us - before, left=before, height=0.62, color=color, lw=0)
            ax.plot([before, before], [y - 1, y], color=QUIET, lw=0.5, zorder=0)
            last = f"×{step.gain:.2f}" if step.gain < 99.5 else f"×{step.gain:.0f}"  # noqa: RUF001
            if y == len(steps) - 1:
                last += f"  ({step.latency_us:.4g} µs)"
            _said(ax, max(before, step.latency_us), y, last)
    ax.set_yticks(range(len(steps)), ["default", *steps["changed"].iloc[1:].map(_wrapped)])
    ax.tick_params(axis="y", length=0, labelsize=SMALL)
    ax.set_ylim(rows - 0.4, -0.6)
    set_log_axis(ax.xaxis, low / span**0.06, high * span**0.42, most=5)
    ax.grid(axis="x")


def _said(ax: Axes, x: float, y: int, words: str) -> None:
    ax.annotate(
        words,
        (x, y),
        (4, 0),
        textcoords="offset points",
        va="center",
        fontsize=SMALL,
        color=INK,
        annotation_clip=False,
    )


def _wrapped(changed: str) -> str:
    return str(changed).replace("->", "→").replace(", ", ",\n")
