"""A comparison as a panel shows it: incumbents along one axis, and ratios to a reference."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from kt_lab.plots.captions import (
    JUDGED,
    ended_words,
    evidence,
    fewer_words,
    interval_words,
    listed,
    reached_by,
)
from kt_lab.plots.convergence import draw_bands
from kt_lab.plots.measures import never_reached, reference_of
from kt_lab.plots.style import INK, QUIET, legend_above, new_figure, searcher_style, style_order
from kt_lab.stats.tables import UNITS

BAND_WORDS = {"iqr": "IQR", "interval": "95% interval", "none": ""}
_TARGET = {"color": "#CC3311", "linewidth": 0.9, "linestyle": (0, (2, 1))}
_ROW = 1.75  # inches
_ENDLESS = "a searcher that never reaches it on some workload is infinite (open triangle). "


def plot_incumbents(
    bands: pd.DataFrame,
    *,
    band: str = "iqr",
    within: float | None = None,
    noise_floor: Mapping[str, float] | None = None,
    height: float | None = None,
) -> Figure:
    """Draws median and band of the incumbent against trials or seconds, one row per workload.

    Args:
        bands: From `kt_lab.stats.convergence_bands`, along one axis.
        band: Which band they were made with.
        within: With optima, the target: this fraction above the optimum.
        noise_floor: Dotted level by workload, relative to the optimum.
        height: In inches; None: by the number of workloads.
    """
    workloads = list(dict.fromkeys(bands["workload"].astype(str)))
    ratio = bands["unit"].iloc[0] == "ratio"
    floors = noise_floor or {}
    fig = new_figure(height=height or 0.5 + _ROW * len(workloads))
    axes = fig.subplots(len(workloads), 1, squeeze=False)[:, 0]
    for ax, workload in zip(axes, workloads, strict=True):
        rows = bands[bands["workload"].astype(str) == workload]
        target = 1 + within if ratio and within is not None else None
        draw_bands(rows, noise_floor=floors.get(workload), target=target, ax=ax)
        ax.set_title(workload, loc="left")
        if target is not None:
            ax.axhline(target, **_TARGET, zorder=2)
    for ax in axes[:-1]:
        ax.set_xlabel("")
    looks = [searcher_style(name) for name in style_order(bands["searcher"])]
    handles: list = [Line2D([], [], color=s.color, linestyle=s.dash, label=s.label) for s in looks]
    if BAND_WORDS[band]:
        few = band == "interval" and not np.isfinite(bands["low"].to_numpy(float)).any()
        said = BAND_WORDS[band] + (" (from 6 seeds)" if few else "")
        handles.append(Patch(facecolor=QUIET, alpha=0.35, label=said))
    if ratio:
        handles.append(Line2D([], [], color=INK, linestyle=(0, (5, 2)), label="optimum"))
    if ratio and within is not None:
        handles.append(Line2D([], [], **_TARGET, label=f"within {100 * within:g}%"))
    if floors:
        handles.append(Line2D([], [], color=INK, linestyle=(0, (1, 1.5)), label="noise floor"))
    legend_above(fig, handles, grow=height is None)
    return fig


def caption_incumbents(bands: pd.DataFrame, *, band: str = "iqr", budget: str = "") -> str:
    """Returns the caption of `plot_incumbents`, from its data.

    Args:
        bands: As drawn.
        band: As drawn.
        budget: Of each run, in words ("200 trials").
    """
    names = listed(searcher_style(name).label for name in style_order(bands["searcher"]))
    axis = "trials" if bands["axis"].iloc[0] == "spent_trials" else "tuning time"
    unit = "divided by the optimum" if bands["unit"].iloc[0] == "ratio" else "in µs"
    spread = {
        "iqr": "band: interquartile range",
        "interval": "band: exact 95% interval of the median (order statistics, from six seeds on)",
        "none": "no band",
    }[band]
    return (
        f"Latency of the incumbent {unit} against {axis} for {names}, {JUDGED}. "
        f"Line: median over seeds, {spread}; runs without an incumbent "
        "count as infinitely slow, and a run that has ended keeps its last value"
        f"{ended_words(bands)}. {evidence(bands, budget=budget)}"
    )


def caption_target_ratios(tables: Mapping[str, pd.DataFrame], *, budget: str = "") -> str:
    """Returns the caption of `plot_ratio_forest` of the tables of a panel, from their data.

    Args:
        tables: "latency", "wall_clock" and "target_time", as drawn.
        budget: Of each run, in words.
    """
    latency, target = tables["latency"], tables["target_time"]
    means = target[target["scope"] == "geomean"]
    unit = "trials" if target["unit"].iloc[0] == UNITS["spent_trials"] else "seconds"
    reached = reached_by(means, *style_order(means["searcher"]))
    never = never_reached(target)
    return (
        f"Latency, wall-clock and time-to-target ratios to {reference_of(latency)}; lower is "
        f"better. {evidence(latency, budget=budget)} Latency: of the final incumbent, {JUDGED}"
        ". Wall-clock: mean seconds (compiling, timing and "
        f"searching) until the run stopped. Time to target: expected {unit} until within "
        f"{float(target['within'].iloc[0]):.1%} of the optimum, unsuccessful runs included; "
        f"reached by {reached}; "
        + (f"{never}, so nothing is divided by it. " if never else _ENDLESS)
        + f"{interval_words(latency)} Small dots: single workloads.{fewer_words(*tables.values())}"
    )
