"""Convergence: the incumbent against trials and against seconds."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from kt_lab.errors import UsageError
from kt_lab.plots.captions import JUDGED, ended_words, evidence, listed
from kt_lab.plots.scales import set_ratio_axis
from kt_lab.plots.style import INK, QUIET, legend_above, new_figure, searcher_style, style_order

Levels = Mapping[str, float] | pd.Series | float | None
"""A level per workload, or one for all, in the unit of the bands."""

_X_LABELS = {
    "spent_trials": "trials",
    "machine_s": "compile and timing time (s)",
    "elapsed_s": "tuning time (s)",
}
_NEEDED = ("workload", "searcher", "axis", "x", "median", "low", "high", "unit", "n_running")
_OPTIMUM = {"color": INK, "linewidth": 0.7, "linestyle": (0, (5, 2))}
_FLOOR = {"color": INK, "linewidth": 0.7, "linestyle": (0, (1, 1.5))}
_EXACT = {"color": "#555555", "linewidth": 0.7}
_EARLY = 0.1  # of the x range: what lies before it may be cut off at the top
_ROW = 1.35  # inches


def plot_convergence(
    bands_trials: pd.DataFrame,
    bands_seconds: pd.DataFrame,
    *,
    optimum: Levels = None,
    noise_floor: Levels = None,
    expected_random: pd.DataFrame | None = None,
    top: float | None = None,
    height: float | None = None,
) -> Figure:
    """Draws median and interquartile range of the incumbent, against trials and seconds.

    One row per workload. A line turns thin, behind a marker, from where fewer than half of its
    runs still go on. The early part of the curves may leave the top of a panel.

    Args:
        bands_trials: From `kt_lab.stats.convergence_bands` with x="spent_trials".
        bands_seconds: The same with x="elapsed_s" or "machine_s".
        optimum: Dashed level, in the unit of the bands; None: 1 for ratios, else no line.
        noise_floor: Dotted level: the best of one noisy reading of every config
            (`kt_lab.baseline.NoiseFloor.level`).
        expected_random: Exact random search (`kt_lab.baseline.expected_best`) in the unit of the
            bands, with a column `workload`; drawn against trials.
        top: Upper end of every y axis, in the unit of the bands; None: what holds the upper
            quartiles after a tenth of the trials.
        height: In inches; None: by the number of workloads.
    """
    workloads = _workloads(bands_trials, bands_seconds)
    if optimum is None and bands_trials["unit"].iloc[0] == "ratio":
        optimum = 1.0
    fig = new_figure(height=height or 0.45 + _ROW * len(workloads))
    axes = fig.subplots(len(workloads), 2, sharey="row", squeeze=False)
    for row, workload in zip(axes, workloads, strict=True):
        pair = [b[b["workload"].astype(str) == workload] for b in (bands_trials, bands_seconds)]
        levels = _level(optimum, workload), _level(noise_floor, workload)
        for ax, bands in zip(row, pair, strict=True):
            draw_bands(bands, optimum=levels[0], noise_floor=levels[1], ax=ax)
        _set_y(row[0], pair[0], levels, top=top)
        if expected_random is not None:
            exact = expected_random[expected_random["workload"] == workload]
            row[0].plot(exact["draws"], exact["expected"], **_EXACT, zorder=2.5)
        row[0].set_title(workload, loc="left")
        row[1].set_ylabel("")
    for ax in axes[:-1].flat:
        ax.set_xlabel("")
    extras = {"Random (exact mean)": _EXACT} if expected_random is not None else {}
    extras |= {"optimum": _OPTIMUM} if optimum is not None else {}
    extras |= {"noise floor": _FLOOR} if noise_floor is not None else {}
    names = style_order(bands_trials["searcher"])
    _legend(fig, names, extras, band=_banded(bands_trials), grow=height is None)
    return fig


def _workloads(trials: pd.DataFrame, seconds: pd.DataFrame) -> list[str]:
    """Returns the workloads that both tables hold, in order."""
    workloads = list(dict.fromkeys(trials["workload"].astype(str)))
    other = set(seconds["workload"].astype(str))
    if set(workloads) != other:
        raise UsageError(
            "both tables of bands must hold the same workloads; only one holds "
            f"{', '.join(sorted(set(workloads) ^ other))}"
        )
    return workloads


def draw_bands(
    bands: pd.DataFrame,
    *,
    optimum: float | None = None,
    noise_floor: float | None = None,
    target: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws the searchers' medians and quartiles on one workload.

    Args:
        bands: From `kt_lab.stats.convergence_bands`, of one workload and one axis.
        optimum: Dashed level, in the unit of the bands; None: 1 for ratios, else no line.
        noise_floor: Dotted level, in the unit of the bands.
        target: A level that the axis holds too; it is not drawn.
        ax: Where to draw; None: a new figure.
    """
    _check(bands)
    ratio = bands["unit"].iloc[0] == "ratio"
    optimum = 1.0 if optimum is None and ratio else optimum
    ax = new_figure().subplots() if ax is None else ax
    for name in style_order(bands["searcher"]):
        _band(ax, bands[bands["searcher"].astype(str) == name].sort_values("x"), name)
    if optimum is not None:
        ax.axhline(optimum, **_OPTIMUM, zorder=1)
    if noise_floor is not None:
        ax.axhline(noise_floor, **_FLOOR, zorder=1)
    ax.set_xlim(0, float(bands["x"].max()) or 1.0)
    _set_y(ax, bands, (optimum, noise_floor, target))
    ax.grid()
    ax.set_xlabel(_X_LABELS[str(bands["axis"].iloc[0])])
    ax.set_ylabel("latency / optimum" if ratio else "latency (µs)")
    return ax


def _check(bands: pd.DataFrame) -> None:
    """Refuses a table that is not the bands of one workload."""
    missing = [name for name in _NEEDED if name not in bands.columns]
    kinds = (
        []
        if missing
        else [
            name
            for name in ("workload", "axis", "gpu", "lanes")
            if name in bands and bands[name].astype(str).nunique() > 1
        ]
    )
    if missing or kinds or bands.empty:
        raise UsageError(
            "a panel draws the bands (kt_lab.stats.convergence_bands) of one workload, GPU and "
            f"lane count along one axis; these {len(bands)} rows lack {missing or 'nothing'} and "
            f"mix {kinds or 'nothing'}"
        )


def _band(ax: Axes, band: pd.DataFrame, name: str) -> None:
    """Draws one searcher: full strength while at least half of its runs go on."""
    look = searcher_style(name)
    x, median = band["x"].to_numpy(float), band["median"].to_numpy(float)
    going = band["n_running"].to_numpy() * 2 >= band["n_seeds"].to_numpy()
    last = int(np.flatnonzero(going)[-1]) if going.any() else 0
    low, high = band["low"].to_numpy(float), band["high"].to_numpy(float)
    top = np.where(np.isnan(high), 1e9, high)  # no upper quartile yet: the band is open above
    ax.fill_between(x, low, top, step="post", color=look.color, alpha=0.16, linewidth=0, zorder=2)
    style = {"color": look.color, "drawstyle": "steps-post", "zorder": 3}
    ax.plot(x[: last + 1], median[: last + 1], linestyle=look.dash, **style)
    if last < max(len(x) - 1, 1):  # a run of one trial is a marker at the edge
        ax.plot(x[last:], median[last:], linewidth=0.6, alpha=0.7, **style)
        mark = {"color": look.color, "markersize": 4, "zorder": 4, "clip_on": len(x) > 1}
        ax.plot(x[last], median[last], look.marker, **mark)


def _level(given: Levels, workload: str) -> float | None:
    """Returns the level of one workload; None where there is none."""
    if isinstance(given, (Mapping, pd.Series)):
        return given.get(workload)
    return given


def _set_y(
    ax: Axes, bands: pd.DataFrame, levels: Iterable[float | None], *, top: float | None = None
) -> None:
    """Fits the y axis to what happens after the first trials; logarithmic for ratios."""
    late = bands[bands["x"] >= _EARLY * bands["x"].max()]
    known = [level for level in levels if level is not None]
    high = pd.Series([*late["high"], *late["median"], *known], dtype=float).max()
    low = pd.Series([*bands["low"], *known], dtype=float).min()
    if np.isnan(low):  # nothing was ok yet
        return
    high = max(low, high) if np.isfinite(high) else 2 * low
    pad = max((high / low) ** 0.05, 1.002)
    set_ratio_axis(
        ax.yaxis, low / pad, top or high * pad, log=bool(bands["unit"].iloc[0] == "ratio")
    )


def _banded(bands: pd.DataFrame) -> bool:
    return bool((bands["n_seeds"] > 1).any())


def _legend(
    fig: Figure, names: Iterable[str], extras: Mapping[str, Mapping], *, band: bool, grow: bool
) -> None:
    """Adds the legend above the panels: searchers, the band if any, other lines by label."""
    handles: list = [
        Line2D([], [], c=look.color, ls=look.dash, marker=look.marker, ms=4, label=look.label)
        for look in map(searcher_style, names)
    ]
    handles += [Patch(facecolor=QUIET, alpha=0.35, label="IQR")] * band
    handles += [Line2D([], [], **look, label=name) for name, look in extras.items()]
    legend_above(fig, handles, grow=grow)


def caption_convergence(
    bands_trials: pd.DataFrame,
    bands_seconds: pd.DataFrame,
    *,
    budget: str = "",
    exact: bool = False,
) -> str:
    """Returns the caption of `plot_convergence`, from its data.

    Args:
        bands_trials: As drawn.
        bands_seconds: As drawn; its axis is named.
        budget: Of each run, in words ("200 trials"); the tables do not hold it.
        exact: Whether exact random search is drawn.
    """
    names = listed(searcher_style(name).label for name in style_order(bands_trials["searcher"]))
    seconds = _X_LABELS[str(bands_seconds["axis"].iloc[0])].removesuffix(" (s)")
    unit = "divided by the optimum" if bands_trials["unit"].iloc[0] == "ratio" else "in µs"
    band = "Line: median over seeds, band: interquartile range. " * _banded(bands_trials)
    ended = ended_words(bands_trials, bands_seconds)
    grey = " Grey: random search, its exact mean over the orders with an incumbent." * exact
    return (
        f"Latency of the incumbent {unit} against trials (left) and {seconds} (right) for "
        f"{names}, {JUDGED}. {band}Runs without "
        f"an incumbent count as infinitely slow, and a run that has ended keeps its last value"
        f"{ended}. {evidence(bands_trials, budget=budget)} Dashed: optimum; dotted: noise floor, "
        f"the best of one reading of every config.{grey}"
    )
