"""Who is faster than whom: a matrix of ratios, marked where tests tell them from 1."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kt_lab.errors import UsageError
from kt_lab.plots.captions import counted, limits
from kt_lab.plots.forest import budget_words
from kt_lab.plots.style import (
    INK,
    SMALL,
    is_narrow,
    legend_above,
    new_figure,
    row_labels,
    style_order,
)
from kt_lab.stats.tables import check_columns

LEVEL = 0.05
_EXACT, _UNTIED = 13, 50  # pairs up to which p is exact, with ties and without
_WORDS, _NARROW_WORDS = 8, 4  # searchers up to which cells hold numbers, also in one column
_EVERY = 5  # columns have a number in a narrow figure
_LEGEND = 0.3  # inches that marks of a narrow figure leave for their two lines of legend
_LINEAR, _NARROWEST = 1.0, 3.0  # percent: where colours stop being linear; their least range
_LIGHT = (0.2126, 0.7152, 0.0722)  # of red, green and blue
_TICK = 6  # points, the least between two of these
_TICKS = (0, 1, 3, 10, 30, 100)  # percent; the last is the furthest that colours tell apart
_COLORS = LinearSegmentedColormap.from_list(  # Okabe and Ito's blue and orange
    "faster_slower", ["#01466e", "#0173B2", "#a9d0e6", "#ffffff", "#f4cf93", "#DE8F05", "#8a5700"]
).with_extremes(bad="#e8e8e8")


def plot_significance(
    tests: pd.DataFrame, *, order: Sequence[str] | None = None, height: float | None = None
) -> Figure:
    """Draws, for every pair of searchers, by how much the row is faster or slower.

    Colour: geomean ratio of the row to the column, in percent. A dot marks a Holm-corrected p
    below 0.05, a ring one that is below only before correction. Up to eight searchers, in one
    column up to four, cells hold the percent and the corrected p instead.

    Args:
        tests: From `kt_lab.stats.paired_tests` with reference=None, of one unit and budget.
        order: Of the searchers, from the top; None: the fixed one.
        height: In inches; None: by the number of searchers.
    """
    needed = ("unit", "searcher", "reference", "ratio", "p", "p_holm")
    check_columns(tests, needed, what="tests")
    names = list(order or style_order([*tests["searcher"], *tests["reference"]]))
    percent, holm, raw = _matrices(tests, names)
    fig = new_figure()
    narrow = is_narrow(fig)
    words = len(names) <= (_NARROW_WORDS if narrow else _WORDS)
    side = 0.3 if words else 0.15
    fig.set_figheight(height or side * len(names) + 0.55 + _LEGEND * (narrow and not words))
    ax = fig.subplots()
    rows = len(names) * side * 72 / _TICK  # of the colours' labels beside the cells
    furthest = np.nanmax(np.abs(percent), initial=0.0)
    most = next((tick for tick in _TICKS if tick >= max(furthest, _NARROWEST)), _TICKS[-1])
    norm = SymLogNorm(_LINEAR, vmin=-most, vmax=most)
    clipped = np.clip(percent, -most, most)
    image = ax.imshow(clipped, cmap=_COLORS, norm=norm, aspect="auto")
    extend = "both" if furthest > most else "neither"
    bar = fig.colorbar(image, ax=ax, extend=extend, pad=0.02, aspect=30, extendfrac=0.03)
    bar.ax.yaxis.set(major_locator=FixedLocator(_ticks(most, rows)), minor_locator=NullLocator())
    bar.ax.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:+g}" if value else "0")
    )
    bar.set_label("row over column (%)")
    labels = [f"{label}  {i}" for i, label in enumerate(row_labels(fig, names), start=1)]
    ax.set_yticks(range(len(names)), labels)
    every = _EVERY if narrow and len(names) > _WORDS else 1
    at = [i for i in range(len(names)) if i == 0 or (i + 1) % every == 0]
    ax.set_xticks(at, [i + 1 for i in at])
    ax.tick_params(length=0, labelsize=7 if words else SMALL)
    ax.tick_params(axis="x", top=True, labeltop=True, labelbottom=False, length=0)
    ax.spines[:].set_visible(False)
    light = image.to_rgba(clipped)[..., :3] @ _LIGHT > 0.45
    _cells(ax, percent, holm, raw, light=light, words=words)
    if not words:
        low, few = (int((tests[name] < LEVEL).sum()) for name in ("p_holm", "p"))
        handles = [
            _mark(INK, f"Holm-corrected p < {LEVEL} ({low} of {counted(len(tests), 'pair')})"),
            _mark("none", f"p < {LEVEL} before correction only ({few - low})"),
        ]
        legend_above(fig, handles, below=True)
    return fig


def _ticks(most: float, rows: float) -> list[float]:
    """Returns the ticks of the colours up to a percentage, both ways, as far as rows hold them."""
    ticks = [tick for tick in reversed(_TICKS) if 0 < tick <= most]
    every = math.ceil(2 * len(ticks) / max(rows - 1, 2))
    return sorted({sign * tick for tick in (0, *ticks[::every]) for sign in (-1, 1)})


def _matrices(tests: pd.DataFrame, names: Sequence[str]) -> tuple[np.ndarray, ...]:
    """Returns percent, corrected and raw p of (row, column); NaN where there is no test."""
    if tests["unit"].nunique() != 1 or tests.duplicated(["searcher", "reference"]).any():
        raise UsageError("a matrix of tests shows one unit and budget, got several; select one")
    percent, holm, raw = (np.full((len(names), len(names)), np.nan) for _ in range(3))
    # Tables of earlier versions do not tell the inverse.
    for row in tests.assign(inverse=tests.get("inverse", 1 / tests["ratio"])).itertuples():
        at = names.index(str(row.searcher)), names.index(str(row.reference))
        percent[at] = 100 * (row.ratio - 1)
        percent[at[::-1]] = 100 * (row.inverse - 1)
        holm[at] = holm[at[::-1]] = row.p_holm
        raw[at] = raw[at[::-1]] = row.p
    return percent, holm, raw


def _cells(
    ax: Axes,
    percent: np.ndarray,
    holm: np.ndarray,
    raw: np.ndarray,
    *,
    light: np.ndarray,
    words: bool,
) -> None:
    """Writes what the tests say, or marks it; the diagonal stays empty."""
    for at in zip(*np.nonzero(~np.isnan(holm)), strict=True):
        y, x = at
        color = INK if light[at] else "white"
        if words:
            p = "p < 0.001" if holm[at] < 1e-3 else f"p {holm[at]:.2g}"
            text = f"{percent[at]:+.1f}\n{p}"
            ax.text(x, y, text, ha="center", va="center", fontsize=SMALL, color=color)
        elif raw[at] < LEVEL:
            fill = color if holm[at] < LEVEL else "none"
            ax.plot(x, y, "o", ms=2.6, mfc=fill, mec=color, mew=0.6)


def _mark(fill: str, label: str) -> Line2D:
    return Line2D([], [], ls="", marker="o", ms=2.6, mfc=fill, mec=INK, mew=0.6, label=label)


def caption_significance(tests: pd.DataFrame, *, kernels: int, evidence: str) -> str:
    """Returns the caption of `plot_significance`, from its data.

    Args:
        tests: As drawn.
        kernels: How many there are.
        evidence: What it rests on, a sentence.
    """
    low, raw = int((tests["p_holm"] < LEVEL).sum()), int((tests["p"] < LEVEL).sum())
    unit, pairs = tests["unit"].iloc[0], int(tests["n_pairs"].iloc[0])
    said = limits(kernels=kernels, workloads=pairs, comparisons=len(tests))
    sides = "two-sided, exact" if pairs <= _EXACT else "two-sided, exact unless there are ties"
    sides = sides if pairs <= _UNTIED else "two-sided, by the normal distribution"
    budget = tests["budget"].iloc[0]
    told = budget_words(str(tests["axis"].iloc[0]), budget)
    when = "at the end of the runs" if pd.isna(budget) else f"at a budget of {told}"
    have = "has" if len(tests) == 1 else "have"
    return (
        f"Latency of the row's incumbent over the column's {when}, in percent: geomean over "
        f"{unit}s of the geomeans over seeds; blue: the row is faster. {evidence} Wilcoxon "
        f"signed-rank tests over {counted(pairs, unit)} ({sides}): {low} of "
        f"{counted(len(tests), 'pair')} {have} a Holm-corrected p below {LEVEL}, {raw} a p below "
        f"it before correction. {said}"
    )
