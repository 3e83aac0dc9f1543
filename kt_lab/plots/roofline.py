"""Where configs stand under the roof of their GPU."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from kt_lab.plots.captions import listed
from kt_lab.plots.scales import set_ratio_axis
from kt_lab.plots.style import INK, QUIET, SMALL, legend_above, new_figure
from kt_lab.stats.tables import check_columns

_LOOKS = (("o", "#0173B2"), ("s", "#DE8F05"), ("v", "#949494"), ("*", "#029E73"))
_AROUND = 5.0  # times the intensity, to both sides: what matters is the distance to the roof
_PEAKS = ("peak_bytes_per_s", "peak_flops_per_s")
_COLUMNS = ("label", "intensity", "flops_per_s", "bytes_share", *_PEAKS)


def plot_roofline(points: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws configs of one workload under the roof that memory and arithmetic build.

    Of a workload without arithmetic, shares of the copy speed.

    Args:
        points: From `kt_lab.stats.roofline_points`; of more than four configs looks repeat.
        ax: Where to draw; None: a new figure.
    """
    check_columns(points, _COLUMNS, what="points")
    ax = new_figure(height=1.9).subplots() if ax is None else ax
    intensity, speed = points["intensity"].iloc[0], points["peak_bytes_per_s"].iloc[0]
    if not intensity > 0:
        return _draw_shares(ax, points)
    peak = points["peak_flops_per_s"].iloc[0]
    ridge = peak / speed if np.isfinite(peak) else np.inf
    x = np.geomspace(intensity / _AROUND, intensity * _AROUND, 200)
    roof = x * speed if np.isnan(peak) else np.minimum(x * speed, peak)
    ax.plot(x, roof / 1e12, color=INK, linewidth=1.0)
    ax.axvline(intensity, color=QUIET, linewidth=0.6, linestyle=(0, (1, 1.5)))
    handles = []
    for number, point in enumerate(points.itertuples()):
        marker, color = _LOOKS[number % len(_LOOKS)]
        handles += ax.plot(
            [point.intensity],
            [point.flops_per_s / 1e12],
            marker,
            color=color,
            markersize=8 if marker == "*" else 5,
            markeredgecolor="white",
            markeredgewidth=0.5,
            zorder=6 - number,
            label=point.label,
            linestyle="none",
        )
    low, high = min(points["flops_per_s"].min() / 1.5, roof[0]), roof[-1] * 1.9
    set_ratio_axis(ax.xaxis, x[0], x[-1], log=True, most=6)
    set_ratio_axis(ax.yaxis, low / 1e12, high / 1e12, log=True, most=6)
    ax.set_xlabel("operations per byte")
    ax.set_ylabel("10$^{12}$ operations / s")
    text = {"fontsize": SMALL, "color": INK}
    if ridge > x[40]:
        said = f"{speed / 1e12:.2f} TB/s, copying  "
        ax.text(x[60], roof[60] * 1.1 / 1e12, said, ha="right", va="bottom", **text)
    if ridge < x[-40]:
        said = f"{peak / 1e12:,.0f} TFLOP/s, data sheet"
        ax.text(x[-3], peak * 1.1 / 1e12, said, ha="right", va="bottom", **text)
    legend_above(ax.figure, handles, handle_length=1.2)
    return ax


def _draw_shares(ax: Axes, points: pd.DataFrame) -> Axes:
    """Draws the share of the copy speed that each config reaches, where there is no arithmetic.

    Of another tuner's landscape, which tells no bytes, it says that the shares are not known.
    """
    for number, point in enumerate(points.itertuples()):
        marker, color = _LOOKS[number % len(_LOOKS)]
        ax.plot([point.bytes_share], [number], marker, color=color, linestyle="none")
        if np.isnan(point.bytes_share):
            ax.text(0.02, number, "not known", va="center", color=INK, fontsize=SMALL)
    ax.axvline(1.0, color=INK, linewidth=1.0)
    ax.set_yticks(range(len(points)), points["label"])
    ax.set_ylim(len(points) - 0.5, -0.5)
    ax.set_xlim(0, max(1.05, points["bytes_share"].max() * 1.05))
    ax.set_xlabel("share of the copy speed")
    return ax


def caption_roofline(points: pd.DataFrame) -> str:
    """Returns the caption of `plot_roofline`, from its data."""
    first = points.iloc[0]
    known = points[points["bytes_share"].notna()]  # another tuner's landscape tells no bytes
    shares = [f"{p.label} {p.bytes_share:.0%}" for p in known.itertuples()] or ["not known"]
    flops = [f"{p.label} {p.flops_share:.1%}" for p in points.itertuples()]
    roof = f"{first['workload']} on {first['gpu']} under the roof of the measured copy speed"
    if np.isnan(first["peak_flops_per_s"]) or not first["intensity"] > 0:
        return f"Configs of {roof}. Share of the bytes floor: {listed(shares)}."
    return (
        f"Configs of {roof} and the dense peak of its data sheet. Share of the bytes floor: "
        f"{listed(shares)}; of the arithmetic floor: {listed(flops)}."
    )
