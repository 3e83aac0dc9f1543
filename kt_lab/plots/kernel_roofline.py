"""A kernel under the roof: every workload's best, default and vendor, on every GPU."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from kt_lab.errors import UsageError
from kt_lab.plots.atlas import (
    COLORS,
    DASHES,
    is_narrow_figure,
    of_landscape,
    row_names,
    set_log_axis,
    short,
    sources,
)
from kt_lab.plots.captions import listed
from kt_lab.plots.style import INK, legend_above, new_figure
from kt_lab.stats.tables import check_columns

MARKERS = {"best": "o", "default": "s", "vendor": "x"}
_COLUMNS = ("workload", "gpu", "label", "share", "intensity", "flops_per_s", "peak_bytes_per_s")


def plot_kernel_roofline(points: pd.DataFrame) -> Figure:
    """Draws the roof of each GPU with the configs under it, and their shares of it beside.

    Args:
        points: From `kt_lab.stats.atlas.under_the_roof`, of the landscapes of one kernel.
    """
    check_columns(points, (*_COLUMNS, "peak_flops_per_s"), what="points")
    if not points["share"].notna().any():
        raise UsageError(
            "a roofline needs the bytes or the arithmetic of a kernel, and what its GPU can do; "
            f"got landscapes that tell neither: {listed(points['workload'].astype(str).unique())}"
        )
    gpus, rows = sorted(points["gpu"].astype(str).unique()), row_names(points)
    fig = new_figure()
    narrow = is_narrow_figure(fig)
    bare = not (points["intensity"] > 0).any()  # no arithmetic: there are shares, and no roof
    fig.set_figheight((3.4 if narrow and not bare else 1.2) + 0.17 * max(len(rows), 4))
    if bare:
        shares = fig.subplots()
    elif narrow:
        roof, shares = fig.subplots(2, 1, height_ratios=[1.4, 0.35 + 0.17 * len(rows)])
    else:
        roof, shares = fig.subplots(1, 2, width_ratios=[1, 1])
    if not bare:
        _draw_roofs(roof, points, gpus)
    for y, (workload, gpu, _) in enumerate(rows):
        shares.axhline(y, color="#e3e3e3", lw=0.5, zorder=0)
        for point in of_landscape(points, workload, gpu).itertuples():
            shares.plot([point.share], [y], **_look(point.label, gpus.index(gpu)))
    shares.set_yticks(range(len(rows)), [label for *_, label in rows])
    shares.set_ylim(len(rows) - 0.4, -0.6)
    shares.set_xlim(0, max(1.0, points["share"].max() * 1.05))
    shares.axvline(1.0, color=INK, lw=0.8, clip_on=False)
    shares.xaxis.set_major_formatter(PercentFormatter(1.0))
    shares.tick_params(axis="y", length=0)
    shares.spines["left"].set_visible(False)
    shares.set_xlabel("share of the roofline")
    one = 0 if len(gpus) == 1 else None
    present = [label for label in MARKERS if (points["label"].astype(str) == label).any()]
    handles = [Line2D([], [], label=label, **_look(label, one)) for label in present]
    if len(gpus) > 1:
        handles += [
            Line2D([], [], color=COLORS[i], linestyle=DASHES[i % len(DASHES)], label=gpu)
            for i, gpu in enumerate(gpus)
        ]
    legend_above(fig, handles)
    return fig


def caption_kernel_roofline(points: pd.DataFrame) -> str:
    """Returns the caption of `plot_kernel_roofline`, from its data."""
    best = points[points["label"].astype(str) == "best"]
    rows = [best.loc[at] for at in (best["share"].idxmin(), best["share"].idxmax())]
    told = [f"{r['share']:.0%} ({short(str(r['workload']))} on {r['gpu']})" for r in rows]
    peak = (
        "the tensor throughput of its data sheet"
        if points["peak_flops_per_s"].notna().any()
        else "no arithmetic bound, as its peak is not known"
    )
    return (
        f"{sources(points)} under the roof of each GPU: the copy bandwidth measured in the same "
        f"recording and {peak}. The best configs reach {' to '.join(dict.fromkeys(told))} of it. "
        "Each byte is counted once, at a copy's speed: what mostly reads or stays in the cache "
        "may pass the roof, and short workloads pay for the launch."
    )


def _draw_roofs(ax: Axes, points: pd.DataFrame, gpus: list[str]) -> None:
    low, high = points["intensity"].min() / 6, points["intensity"].max() * 6
    x = np.geomspace(low, high, 200)
    top, floor = 0.0, points["flops_per_s"].min()
    for number, gpu in enumerate(gpus):
        mine = points[points["gpu"].astype(str) == gpu]
        speed, peak = mine["peak_bytes_per_s"].max(), mine["peak_flops_per_s"].max()
        roof = x * speed if np.isnan(peak) else np.minimum(x * speed, peak)
        dash = DASHES[number % len(DASHES)]
        color = INK if len(gpus) == 1 else COLORS[number]
        ax.plot(x, roof / 1e12, color=color, linestyle=dash, lw=1.0)
        top = max(top, roof.max(), mine["flops_per_s"].max())
        for point in mine.itertuples():
            at = [point.intensity], [point.flops_per_s / 1e12]
            ax.plot(*at, **_look(point.label, number))
    set_log_axis(ax.xaxis, low, high, most=6)
    set_log_axis(ax.yaxis, min(floor, points["flops_per_s"].min()) / 1.6e12, top * 1.6 / 1e12)
    ax.set_xlabel("operations per byte")
    ax.set_ylabel("10$^{12}$ operations / s")


def _look(label: str, gpu: int | None) -> dict:
    """Returns how a point looks: the marker says what it is, the colour where it ran."""
    color = INK if gpu is None else COLORS[gpu % len(COLORS)]
    marker = MARKERS.get(str(label), "D")
    face = "white" if marker == "s" else color
    edge = color if marker in ("s", "x") else "white"
    return {
        "marker": marker,
        "color": color,
        "mfc": face,
        "mec": edge,
        "mew": 0.9 if marker != "o" else 0.4,
        "ms": {"o": 5, "s": 4, "x": 4.2}.get(marker, 4),
        "linestyle": "none",
        "zorder": {"o": 4, "x": 3}.get(marker, 2),
    }
