"""A landscape on two of its parameters as a heat map, with a search's way through it."""

import math
from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kt_lab.plots.captions import counted
from kt_lab.plots.scales import log_ticks
from kt_lab.plots.style import INK, QUIET, SMALL, legend_above, new_figure
from kt_lab.stats.slices import NO_CONFIG, UNRECORDED
from kt_lab.stats.tables import check_columns
from kt_lab.trial import OK

MOST = 8.0  # multiples of the optimum: slower ones share the last colour
SLOTS = (10, 3)  # readings side by side and one below the other in a cell; later ones start again
ABOVE = 0.64  # of a cell: readings are drawn in this upper part, what it says below
ROUTE = "#D55E00"  # the incumbent's way: tells itself from every colour of the map
_MAP = mpl.colormaps["viridis_r"]  # looked up once: each time it is a new copy
_COLUMNS = ("x_index", "y_index", "x", "y", "status", "ratio", "x_name", "y_name")
_LETTERS = {"compile_error": "C", "launch_error": "L", "wrong_result": "W", "timeout": "T"}


def cell_color(ratio: float, *, most: float = MOST) -> str:
    """Returns the colour (#rrggbb) of a latency ratio, 1 to `most` on a logarithmic scale."""
    return to_hex(_MAP(math.log(min(max(ratio, 1.0), most)) / math.log(most)))


def ink_on(color: str) -> str:
    """Returns black or white, whichever is read better on a colour (#rrggbb)."""
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    # relative luminance, WCAG 2.2; above 0.179 black has the higher contrast
    return "#000000" if np.dot(linear, (0.2126, 0.7152, 0.0722)) > 0.179 else "#ffffff"


def cell_text(status: str, ratio: float) -> str:
    """Returns what a cell of the map says: its ratio, or the first letter of what failed."""
    if status == OK:
        return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.0f}"
    return "" if status in (NO_CONFIG, UNRECORDED) else _LETTERS.get(status, status[:1].upper())


def route(path: pd.DataFrame) -> list[int]:
    """Returns the rows of a path at which its incumbents were first measured, in order."""
    known = path["incumbent"].dropna()
    return [int(row) for row in known[known.ne(known.shift())]]


def slot_offsets(path: pd.DataFrame) -> np.ndarray:
    """Returns where each reading is drawn within its cell, shape (n, 2), 0..1 of its extent.

    From the upper left on in reading order, so that no two of a cell's first readings overlap.
    """
    across, down = SLOTS
    slot = path["slot"].to_numpy(np.int64) % (across * down)
    column, row = slot % across, slot // across
    return np.stack([(column + 0.5) / across, (row + 0.5) / down], axis=1)


def plot_landscape_slice(
    cells: pd.DataFrame,
    *,
    path: pd.DataFrame | None = None,
    most: float = MOST,
    ax: Axes | None = None,
) -> Axes:
    """Draws a landscape's slice as a heat map of latency / optimum, and a search's way over it.

    Args:
        cells: From `kt_lab.stats.landscape_slice`.
        path: From `kt_lab.stats.search_path` on the same axes; a dot is a reading (a cross: a
            failed one; readings outside the slice are left out), the line follows the incumbent.
        most: Where the colours end, as a multiple of the optimum.
        ax: Where to draw; None: a new figure.
    """
    check_columns(cells, _COLUMNS, what="cells")
    nx, ny = int(cells["x_index"].max()) + 1, int(cells["y_index"].max()) + 1
    if ax is None:
        ax = new_figure(height=max(1.8, 0.62 + (0.26 if path is None else 0.34) * ny)).subplots()
    for cell in cells.itertuples():
        _draw_cell(ax, cell, most, alone=path is None)
    ax.set(xlim=(0, nx), ylim=(0, ny), xlabel=cells["x_name"].iloc[0])
    ax.set_ylabel(cells["y_name"].iloc[0])
    for axis, name, count in ((ax.xaxis, "x", nx), (ax.yaxis, "y", ny)):
        labels = cells.drop_duplicates(f"{name}_index").sort_values(f"{name}_index")[name]
        axis.set_major_locator(FixedLocator(np.arange(count) + 0.5))
        axis.set_ticklabels([_written(value) for value in labels])
        axis.set_tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(
        ScalarMappable(LogNorm(1.0, most), _MAP),
        ax=ax,
        pad=0.02,
        extend="max" if (cells["ratio"] > most).any() else "neither",
    )
    bar.set_label("latency / optimum")
    bar.ax.yaxis.set_major_locator(FixedLocator(log_ticks(1.0, most)))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.outline.set_visible(False)
    if path is not None:
        _draw_path(ax, path)
    handles = [*_failure_keys(cells), *(_path_keys(path) if path is not None else [])]
    if handles:
        legend_above(ax.figure, handles, handle_length=1.6)
    return ax


def caption_landscape_slice(cells: pd.DataFrame, *, path: pd.DataFrame | None = None) -> str:
    """Returns the caption of `plot_landscape_slice`, from its data."""
    first = cells.iloc[0]
    where = (
        f"with {first['fixed']} and " if isinstance(first["fixed"], str) and first["fixed"] else ""
    )
    failed = int((~cells["status"].isin([OK, NO_CONFIG, UNRECORDED])).sum())
    said = (
        f"{first['workload']} on {first['gpu']}: latency over the optimum of the whole landscape "
        f"by {first['x_name']} and {first['y_name']}, {where}at the best of the other parameters "
        f"({counted(int(cells['n_configs'].sum()), 'config')}). Empty cells have no valid config"
        + (f"; in {counted(failed, 'cell')} every config fails." if failed else ".")
    )
    if path is None:
        return said
    inside = path[_inside(path)]
    bad = int((inside["status"] != OK).sum())
    return (
        f"{said} Dots: {counted(len(inside), 'reading')} of one search, in reading order within "
        f"each cell, {bad} of them failed; the line follows its incumbent."
    )


def _written(value: object) -> str:
    """Returns a value's text; in a figure's points a whole number may have become a float."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _draw_cell(ax: Axes, cell: object, most: float, *, alone: bool) -> None:
    ok, x, y = cell.status == OK, cell.x_index, cell.y_index
    if cell.status == NO_CONFIG:
        ax.text(x + 0.5, y + 0.5, "·", ha="center", va="center", color=QUIET)
        return
    face = cell_color(cell.ratio, most=most) if ok else "white"
    hatch = None if ok else "//////" if cell.status != UNRECORDED else "...."
    edge = "white" if ok else QUIET
    ax.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor=edge, hatch=hatch, lw=0.6))
    box = None if ok else {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    halo = [] if alone else [withStroke(linewidth=2.4, foreground=face)]  # over a search's way
    ax.text(
        x + 0.5,
        y + (0.5 if alone else (1 - ABOVE) / 2),
        cell_text(cell.status, cell.ratio),
        ha="center",
        va="center",
        fontsize=SMALL,
        color=ink_on(face) if ok else INK,
        bbox=box,
        path_effects=halo,
        zorder=6,
    )


def _inside(path: pd.DataFrame) -> np.ndarray:
    return (path["inside"].astype(str) == "True").to_numpy()  # words, in the points of a figure


def _draw_path(ax: Axes, path: pd.DataFrame) -> None:
    across, down = slot_offsets(path).T
    x = path["x_index"].to_numpy() + 0.04 + 0.92 * across
    y = path["y_index"].to_numpy() + 0.97 - ABOVE * down
    inside, ok = _inside(path), (path["status"] == OK).to_numpy()
    look = {"linestyle": "none", "zorder": 3, "markersize": 1.8}
    ax.plot(x[inside & ok], y[inside & ok], "o", mfc="white", mec="black", mew=0.4, **look)
    ax.plot(x[inside & ~ok], y[inside & ~ok], "x", color="black", mew=0.7, **look)
    steps = [row for row in route(path) if inside[row]]
    ax.plot(x[steps], y[steps], "-", color=ROUTE, lw=1.0, zorder=4)
    ax.plot(x[steps[-1:]], y[steps[-1:]], "*", color=ROUTE, mec="white", mew=0.5, ms=8, zorder=5)


def _failure_keys(cells: pd.DataFrame) -> Iterator[Patch]:
    for status in sorted(set(cells["status"]) - {OK, NO_CONFIG}):
        letter = cell_text(status, np.nan)
        said = f"{letter}: {status.replace('_', ' ')}" if letter else status
        hatch = "//////" if letter else "...."
        yield Patch(facecolor="white", edgecolor=QUIET, hatch=hatch, label=said)


def _path_keys(path: pd.DataFrame) -> Iterator[Line2D]:
    dot = {"linestyle": "none", "markersize": 2.6}
    yield Line2D([], [], marker="o", mfc="white", mec="black", mew=0.4, label="reading", **dot)
    if (_inside(path) & (path["status"] != OK)).any():
        yield Line2D([], [], marker="x", color="black", mew=0.7, label="failed reading", **dot)
    yield Line2D([], [], color=ROUTE, marker="*", mec="white", markersize=8, label="incumbent")
