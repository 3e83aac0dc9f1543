"""The anatomy of searches: what a budget went to, what it brought, and what the models knew."""

import zlib
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, MultipleLocator, PercentFormatter

from kt_lab.errors import UsageError
from kt_lab.plots.captions import listed
from kt_lab.plots.style import (
    INK,
    QUIET,
    SMALL,
    is_narrow,
    legend_above,
    new_figure,
    row_labels,
    searcher_style,
    style_order,
)
from kt_lab.stats.tables import check_columns

# Fill, hatch and the hatch's colour: neutral tones, which no searcher has, apart in lightness.
_PALE, _LIGHT, _MIDDLE, _DARK = "#e6e2d8", "#bcc6cd", "#8294a3", "#35424e"
_MOVES = dict(neighbour="", trial="/////", generation="-----", move="xxxxx", walk="|||||")
_MOVES |= dict(field="+++++", directions="OO")
ORIGINS = {
    "start": (_PALE, "", _PALE),
    "random": (_PALE, "....", "#a39c8a"),
    "projected": (_LIGHT, "....", _MIDDLE),
    **{name: (_MIDDLE, hatch, "#ffffff") for name, hatch in _MOVES.items()},
    "polish": (_DARK, "", _DARK),
    "retime": (_LIGHT, "\\\\\\\\\\", "#ffffff"),
}
"""How the share of an origin looks, in the order of drawing; the moves of algorithms are alike
but for the hatch."""
_HATCHES = ("...", "**", "oo", "\\\\\\\\\\", "|||")  # of moves that are not told here
_PANELS = dict(evaluations="trials", machine_s="machine time", gain_share="log improvement")
_SHORT = dict(evaluations="trials", machine_s="seconds", gain_share="gain")
_LEAST = 0.12  # of a bar: a share that is told in figures


def plot_anatomy(
    anatomy: pd.DataFrame,
    quality: pd.DataFrame,
    calibration: pd.DataFrame,
    *,
    height: float | None = None,
) -> Figure:
    """Draws where trials and seconds went, where the improvement came from, and what models knew.

    Above, a bar per searcher: the shares of its origins in trials, in machine seconds, and in the
    logarithm of the improvement (left of 0: what an origin lost). Below, the rank correlation of
    predictions and readings per generation with its interval (hollow: fewer than half of the
    searcher's runs got there), and the calibration of the searchers that predict a probability,
    if any does. Draw at full width: `with paper("icml", columns=2)`.

    Args:
        anatomy: From `kt_lab.stats.anatomy.anatomy`: one row per searcher and origin.
        quality: From `kt_lab.stats.surrogates.surrogate_quality`.
        calibration: From `kt_lab.stats.surrogates.calibration`; may be empty.
        height: In inches.
    """
    check_columns(anatomy, ("searcher", "origin", *_PANELS), what="anatomy")
    check_columns(quality, ("measure", "searcher", "generation", "estimate"), what="quality")
    if anatomy.duplicated(["searcher", "origin"]).any():
        raise UsageError(
            "the anatomy that is drawn must hold one row per searcher and origin, got several; "
            "select one lane count, kernel or GPU first"
        )
    names, origins = style_order(anatomy["searcher"]), _origins(anatomy)
    fig = new_figure(height=height or 2.7 + 0.19 * len(names))
    fig.get_layout_engine().set(wspace=0.05)
    ratios = [0.9 + 0.19 * len(names), 2.0]
    if narrow := is_narrow(fig):  # their legends have more rows
        ratios = [ratios[0] + 0.25, ratios[1] + 0.4]
        fig.set_figheight(height or 0.55 + fig.get_figheight())
    above, below = fig.subfigures(2, 1, height_ratios=ratios)
    axes = above.subplots(1, 3, sharey=True)
    for ax, (column, words) in zip(axes, _PANELS.items(), strict=True):
        _bars(ax, anatomy, column, names=names, origins=origins)
        ax.set_xlabel(f"{_SHORT[column]} (%)" if narrow else f"share of {words} (%)")
    axes[0].set_yticks(range(len(names)), row_labels(fig, names))
    axes[0].invert_yaxis()
    ratios = [1.55, 1][: 2 if len(calibration) else 1]
    ranks, *chances = below.subplots(1, len(ratios), squeeze=False, width_ratios=ratios)[0]
    models = style_order(quality["searcher"])
    _ranks(ranks, quality, models)
    for ax in chances:
        _calibration(ax, calibration)
    patches = [Patch(**_look(origin), label=origin, linewidth=0) for origin in origins]
    for half, handles in ((above, patches), (below, [_line(name) for name in models])):
        legend_above(half, handles)
    for ax, letter in zip((axes[0], axes[2], ranks, *chances), "abcd", strict=False):
        ax.set_title(f"({letter})", loc="left")
    return fig


def _origins(anatomy: pd.DataFrame) -> list[str]:
    """Returns the origins in the order of drawing, unknown ones before polish."""
    known = list(ORIGINS)
    found = [*anatomy["origin"].astype(str).unique()]
    return sorted(found, key=lambda o: (known.index(o if o in known else "polish"), o in known, o))


def _look(origin: str) -> dict[str, str]:
    """Returns the look of an origin; an unknown one gets a hatch by its spelling."""
    hatch = _HATCHES[zlib.crc32(origin.encode()) % len(_HATCHES)]
    fill, hatch, line = ORIGINS.get(origin, (_MIDDLE, hatch, "#ffffff"))
    return {"facecolor": fill, "hatch": hatch, "edgecolor": line}


def _bars(
    ax: Axes, anatomy: pd.DataFrame, column: str, *, names: Sequence[str], origins: Sequence[str]
) -> None:
    """Draws one stacked bar of shares per searcher, one that has nothing to share none."""
    table = anatomy.astype({"searcher": str, "origin": str})
    values = table.pivot(index="searcher", columns="origin", values=column)
    shares = values.div(values.sum(axis=1), axis=0).fillna(0.0)
    for row, name in enumerate(names):
        ends = [0.0, 0.0]  # of what lies left and right of 0
        for origin in origins:
            share, look = float(shares.loc[name, origin]), _look(origin)
            left = ends[share > 0]
            ax.barh(row, share, 0.72, left=left, linewidth=0, **look)
            ends[share > 0] += share
            if share >= _LEAST:
                text = ax.text(left + share / 2, row, f"{100 * share:.0f}", fontsize=SMALL)
                text.set(ha="center", va="center_baseline")
                text.set_color("#ffffff" if look["facecolor"] == _DARK else INK)
                if look["hatch"]:  # a clear patch to read it on, a light one on what is dark
                    fill = "#ffffff" if look["facecolor"] == _MIDDLE else look["facecolor"]
                    text.set_bbox({"fc": fill, "ec": "none", "pad": 0.6})
        if ends == [0.0, 0.0]:
            ax.text(0.02, row, "none", va="center_baseline", color=QUIET, fontsize=SMALL)
    ax.set_xlim(min(0.0, ax.dataLim.x0), max(1.0, ax.dataLim.x1))
    ax.set_xticks(np.linspace(0, 1, 5))
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _ranks(ax: Axes, quality: pd.DataFrame, names: Sequence[str]) -> None:
    """Draws the rank correlation against the generation."""
    table = quality[quality["measure"] == "rank_correlation"]
    steps = table.dropna(subset=["generation", "estimate"])
    whole = table[table["generation"].isna()].set_index("searcher")["n_runs"]
    ax.axhline(0.0, color=INK, linewidth=0.7)
    for name in names:
        own = steps[steps["searcher"] == name].sort_values("generation")
        x, y = own["generation"].to_numpy(float), own["estimate"].to_numpy(float)
        look = searcher_style(name)
        ends = [own[end].to_numpy(float) for end in ("low", "high")]
        ax.fill_between(x, *ends, color=look.color, alpha=0.13, linewidth=0)
        ax.plot(x, y, color=look.color, linestyle=look.dash, zorder=3)
        full = (2 * own["n_runs"] >= whole[name]).to_numpy()
        for some, fill in ((full, look.color), (~full, "#ffffff")):
            ax.plot(x[some], y[some], look.marker, color=look.color, mfc=fill, zorder=4)
    lowest = np.nanmin([0.0, *steps["low"].to_numpy(float)])
    ax.set_ylim(np.floor(2 * lowest) / 2 - 0.05, 1.05)
    ax.yaxis.set_major_locator(MultipleLocator(0.5))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if steps.empty:
        ax.set_xticks([])
        ax.text(0.5, 0.5, "too few choices", transform=ax.transAxes, ha="center", va="bottom")
    ax.set(xlabel="generation", ylabel="rank correlation")
    ax.grid(axis="y")


def _calibration(ax: Axes, calibration: pd.DataFrame) -> None:
    """Draws how often what was called good was good."""
    ax.plot([0, 1], [0, 1], color=INK, linewidth=0.7)
    for name in style_order(calibration["searcher"]):
        own, look = calibration[calibration["searcher"] == name], searcher_style(name)
        x, y = own["predicted"].to_numpy(float), own["observed"].to_numpy(float)
        ax.vlines(x, own["low"], own["high"], color=look.color, linewidth=0.6, alpha=0.6)
        ax.plot(x, y, color=look.color, linestyle=look.dash)
        area = 3 + 27 * own["n_configs"].to_numpy(float) / calibration["n_configs"].max()
        ax.scatter(x, y, area, color=look.color, marker=look.marker, linewidth=0, zorder=3)
    ax.set(xlim=(0, 1), ylim=(-0.02, 1.02), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    said = "predicted" if is_narrow(ax) else "predicted probability of being good"
    ax.set(xlabel=said, ylabel="share that was good")
    ax.grid()


def _line(name: str) -> Line2D:
    look = searcher_style(name)
    return Line2D([], [], c=look.color, ls=look.dash, marker=look.marker, label=look.label)


def caption_anatomy(
    anatomy: pd.DataFrame, quality: pd.DataFrame, calibration: pd.DataFrame, *, evidence: str
) -> str:
    """Returns the caption of `plot_anatomy`, from its data.

    Args:
        anatomy: As drawn.
        quality: As drawn; of its runs some may have too few choices for a correlation.
        calibration: As drawn.
        evidence: What the whole figure rests on, a sentence.
    """
    names = listed(searcher_style(name).label for name in style_order(anatomy["searcher"]))
    errors = {row["searcher"]: row["calibration_error"] for row in calibration.to_dict("records")}
    told = [f"{searcher_style(n).label} {errors[n]:.2f}" for n in style_order(errors)]
    known = (
        "(d) Share of what the model chose that was good, by the searcher's own bar at that time, "
        "against the probability that it predicted; areas are counts; expected calibration "
        f"error: {listed(told)}. "
    ) * bool(told)
    confidence = f"{100 * float(quality['confidence'].iloc[0]):g}%"
    return (
        f"Anatomy of {names}. {evidence} (a) Trials and machine seconds by what asked for them. "
        "(b) Share of the log improvement over the first incumbent. (c) Spearman correlation of a "
        "model's predictions with the readings of what it chose, failures being slowest; 1: it "
        "knew the order. Hollow: fewer than half of the searcher's runs got that far. "
        f"{known}Bands{' and whiskers' * bool(told)}: {confidence} percentile bootstrap over "
        "kernels, their workloads and their seeds."
    )
