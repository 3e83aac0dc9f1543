"""The live convergence picture: the incumbent against trials and seconds."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kt_lab.plots.convergence import draw_bands
from kt_lab.plots.save import png_bytes
from kt_lab.plots.style import INK, legend_above, new_figure, paper, searcher_style
from kt_lab.ui.choices import Known
from kt_lab.ui.progress import Snapshot

_HEIGHT = 2.1  # inches
_DPI = 130
_GRID = 101  # points beside the steps: the y axis fits what the curve is after its start


def progress_png(snapshot: Snapshot, *, searcher: str, known: Known) -> bytes:
    """Returns `progress_figure` as PNG in the style of the studies' figures."""
    with paper("icml", columns=2):
        return png_bytes(progress_figure(snapshot, searcher=searcher, known=known), dpi=_DPI)


def progress_figure(snapshot: Snapshot, *, searcher: str, known: Known) -> Figure:
    """Draws one run's incumbent so far, against trials and against seconds.

    Args:
        snapshot: With at least one measurement.
        searcher: Its name gives the look of the line.
        known: With an optimum, the latencies are the judged ones, divided by it, and the noise
            floor is drawn; without, they are the readings, in microseconds.
    """
    ratio = known.optimum_us is not None
    look = searcher_style(searcher)
    fig = new_figure(height=_HEIGHT)
    panels = fig.subplots(1, 2, sharey=True)
    for ax, axis in zip(panels, ("spent_trials", "elapsed_s"), strict=True):
        bands = _bands(snapshot, searcher, axis, known.optimum_us)
        draw_bands(bands, noise_floor=known.noise_floor if ratio else None, ax=ax)
        x, y = bands[["x", "median"]].iloc[-1]
        if not math.isnan(y):
            ax.plot(x, y, look.marker, color=look.color, markersize=5, zorder=4, clip_on=False)
    if snapshot.incumbent is None:
        panels[0].text(0.5, 0.5, "nothing ok yet", transform=panels[0].transAxes, ha="center")
        panels[0].set_yticks([1.0] if ratio else [])
    panels[1].set_ylabel("")
    lines = [(look.label, look.color, look.dash)]
    lines += [("optimum", INK, (0, (5, 2))), ("noise floor", INK, (0, (1, 1.5)))] if ratio else []
    legend_above(fig, [Line2D([], [], color=c, linestyle=d, label=name) for name, c, d in lines])
    return fig


def _bands(snapshot: Snapshot, searcher: str, axis: str, optimum_us: float | None) -> pd.DataFrame:
    """Returns the curve as the table that `draw_bands` takes: one seed, so no band."""
    value = "reading_us" if optimum_us is None else "judged_us"
    steps = np.asarray([(getattr(p, axis), getattr(p, value)) for p in snapshot.curve])
    at, latency = steps[:, 0], np.append(steps[:, 1], np.nan) / (optimum_us or 1.0)
    x = np.unique([*at, *np.linspace(0, at[-1], _GRID)])
    y = latency[np.searchsorted(at, x, side="right") - 1]  # [-1]: no incumbent yet
    facts = {"workload": "", "searcher": searcher, "axis": axis, "n_running": 1, "n_seeds": 1}
    unit = "us" if optimum_us is None else "ratio"
    return pd.DataFrame({"x": x, "median": y, "low": y, "high": y, "unit": unit}).assign(**facts)
