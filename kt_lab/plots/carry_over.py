"""What is known on one shape or GPU of another: ranks, and what tuned configs cost there."""

from collections.abc import Callable
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator

from kt_lab.plots.atlas import is_narrow_figure
from kt_lab.plots.captions import counted
from kt_lab.plots.slices import cell_color, ink_on
from kt_lab.plots.style import QUIET, SMALL, legend_above, new_figure
from kt_lab.stats.tables import check_columns

_MOST = 2.0  # times the target's optimum: where the colours end
_COLUMNS = ("source", "target", "shared", "spearman", "best_ratio", "top_ratio")


class _Panel(NamedTuple):
    column: str
    title: str
    color: Callable[[float], str]
    text: Callable[[float], str]


def _rank_color(rank: float) -> str:
    return to_hex(mpl.colormaps["cividis"](min(max(rank, 0.0), 1.0)))


def _ratio_text(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.0f}"


def _panels(top: int) -> tuple[_Panel, ...]:
    def color(ratio: float) -> str:
        return cell_color(ratio, most=_MOST)

    return (
        _Panel("spearman", "rank correlation", _rank_color, "{:.2f}".format),
        _Panel("best_ratio", "the best config, used there", color, _ratio_text),
        _Panel("top_ratio", f"the best {top}, tried there", color, _ratio_text),
    )


def plot_carry_over(carry: pd.DataFrame, *, top: int = 10) -> Figure:
    """Draws three matrices: rank correlations, and what the best and the top configs cost.

    Rows are where a config was found, columns where it is used.

    Args:
        carry: From `kt_lab.stats.atlas.carry_over`.
        top: The number of configs that its `top_ratio` is of.
    """
    check_columns(carry, _COLUMNS, what="carried configs")
    names = list(dict.fromkeys(carry["source"].astype(str)))
    several = len({name.partition(" on ")[2] for name in names}) > 1
    labels = [n.replace(" on ", ", ") if several else n.partition(" on ")[0] for n in names]
    matrix = max(0.19 * len(names), 0.45)
    fig = new_figure(height=1.1 + matrix)
    if is_narrow_figure(fig):
        fig.set_figheight(1.4 + 3 * (matrix + 0.2))
        axes = fig.subplots(3, 1, sharex=True)
    else:
        axes = fig.subplots(1, 3, sharey=True)
    for ax, panel in zip(axes, _panels(top), strict=True):
        for row in carry.itertuples():
            at = names.index(str(row.target)), names.index(str(row.source))
            _cell(ax, *at, getattr(row, panel.column), panel)
        ax.set(xlim=(0, len(names)), ylim=(len(names), 0), title=panel.title)
        places = np.arange(len(names)) + 0.5
        ax.xaxis.set_major_locator(FixedLocator(places))
        ax.set_xticklabels(labels, rotation=90, fontsize=SMALL)
        ax.yaxis.set_major_locator(FixedLocator(places))
        ax.set_yticklabels(labels, fontsize=SMALL)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    fig.supylabel("found on")
    fig.supxlabel("used on")
    keys = list(_keys(carry))
    if keys:
        legend_above(fig, keys, handle_length=1.2)
    return fig


def caption_carry_over(carry: pd.DataFrame, *, kernel: str, top: int = 10) -> str:
    """Returns the caption of `plot_carry_over`, from its data.

    Args:
        carry: As drawn.
        kernel: Whose landscapes they are.
        top: As drawn.
    """
    others = carry[carry["source"] != carry["target"]]
    if others.empty:
        return f"{kernel} has one landscape: there is nothing to carry over."
    finite = others[np.isfinite(others["best_ratio"])]
    failed, unknown = _failures(others), int(others["best_ratio"].isna().sum())
    if finite.empty:
        cost = "no best config is known elsewhere"
    else:
        worst = finite.loc[finite["best_ratio"].idxmax()]
        cost = (
            f"the best config of one costs {finite['best_ratio'].median():.2f} times the optimum "
            f"of another in the median, and {worst['best_ratio']:.2f} times from "
            f"{worst['source']} to {worst['target']} at worst"
        )
    tried = finite["top_ratio"][np.isfinite(finite["top_ratio"])]  # of the same pairs
    gain = f"; trying its {top} best there leaves {tried.median():.2f} times" if len(tried) else ""
    return (
        f"{kernel}, {counted(carry['source'].nunique(), 'landscape')}: {cost}{gain}. "
        f"Of {counted(len(others), 'ordered pair')} the best config fails in {failed:,} and is "
        f"outside the space of the other or unrecorded in {unknown:,}. Left: rank correlation "
        "over the configs measured in both, missing where fewer than 20 are shared. Ratios are to "
        "the optimum of the landscape in the column."
    )


def _failures(carry: pd.DataFrame) -> int:
    return int(np.isinf(carry["best_ratio"]).sum())


def _cell(ax: Axes, x: int, y: int, value: float, panel: _Panel) -> None:
    place = {"ha": "center", "va": "center", "fontsize": SMALL}
    if np.isfinite(value):
        face = panel.color(value)
        ax.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor="white", lw=0.5))
        said = panel.text(value).replace("-", "−")  # noqa: RUF001
        ax.text(x + 0.5, y + 0.5, said, color=ink_on(face), **place)
    elif np.isinf(value):
        ax.add_patch(
            Rectangle((x, y), 1, 1, facecolor="white", edgecolor=QUIET, hatch="//////", lw=0)
        )
    else:
        ax.text(x + 0.5, y + 0.5, "·", color=QUIET, **place)


def _keys(carry: pd.DataFrame):
    values = carry[["best_ratio", "top_ratio"]]
    if np.isinf(values.to_numpy(float)).any():
        yield Patch(facecolor="white", edgecolor=QUIET, hatch="//////", label="it fails there")
    if carry[["spearman", "best_ratio", "top_ratio"]].isna().to_numpy().any():
        dot = {"marker": ".", "markersize": 1.5, "color": QUIET, "linestyle": "none"}
        yield mpl.lines.Line2D([], [], label="not in the other space, or too few shared", **dot)
