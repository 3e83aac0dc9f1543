"""Picks that are shared: across numbers of experts and groups, and across families of shapes."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from kt_lab.plots.atlas import is_narrow_figure
from kt_lab.plots.captions import counted
from kt_lab.plots.moe_look import label, row_axis, shape
from kt_lab.plots.scales import ratio_limits, set_ratio_axis
from kt_lab.plots.slices import cell_color, ink_on
from kt_lab.plots.style import INK, QUIET, SMALL, legend_above, new_figure
from kt_lab.stats.tables import check_columns

_MOST = 2.0  # times the shape's own pick: where the colours end
_LOOKS = {
    "Llama 4": ("#0173B2", "o"),
    "DeepSeek-V3": ("#D55E00", "s"),
    "DeepSeek-MoE-16B": ("#029E73", "^"),
}
_OTHER = (INK, "D")


def plot_regrets(regrets: pd.DataFrame) -> Figure:
    """Draws what a pick tuned on one shape costs on another, a matrix per kernel and list.

    Args:
        regrets: From `kt_lab.moe_study.sharing.regrets`, of one or more kernels and lists.
    """
    columns = ("kernel", "list", "tuned", "workload", "regret", "shares_original", "shares_mended")
    check_columns(regrets, columns, what="regrets")
    panels = list(regrets.groupby(["kernel", "list"], sort=False))
    kernels = list(dict.fromkeys(kernel for (kernel, _), _ in panels))
    several = max(sum(k == kernel for (k, _), _ in panels) for kernel in kernels)
    sizes = [regrets.loc[regrets["kernel"] == k, "workload"].nunique() for k in kernels]
    fig = new_figure()
    narrow = is_narrow_figure(fig)
    down, across = (len(panels), 1) if narrow else (len(kernels), several)
    rows = [sizes[kernels.index(k)] for (k, _), _ in panels] if narrow else sizes
    fig.set_figheight(0.5 + sum(0.62 + 0.17 * n for n in rows))
    axes = fig.subplots(down, across, squeeze=False, height_ratios=[n + 2.5 for n in rows])
    for ax in axes.flat:
        ax.set_axis_off()
    for n, ((kernel, name), table) in enumerate(panels):
        before = sum(k == kernel for (k, _), _ in panels[:n])
        ax = axes[n, 0] if narrow else axes[kernels.index(kernel), before]
        ax.set_axis_on()
        _matrix(ax, table, first=narrow or before == 0)
        ax.set_title(f"{label(kernel)}, {name}")
    fig.supxlabel("run on")
    fig.supylabel("tuned on")
    outline = Patch(fc="white", ec=INK, lw=1.2, label=f"shared by {_key(regrets)}")
    legend_above(fig, [outline], handle_length=1.2)
    return fig


def _key(regrets: pd.DataFrame) -> str:
    """Returns which key the outlines are of: that of the jagged kernels has changed since."""
    jagged = regrets["kernel"].astype(str).str.startswith("jagged").all()
    return "torchao's key before 3952" if jagged else "torchao's key"


def _matrix(ax: Axes, table: pd.DataFrame, *, first: bool) -> None:
    names = list(dict.fromkeys([*table["tuned"], *table["workload"]]))
    for row in table.itertuples():
        x, y = names.index(row.workload), names.index(row.tuned)
        known = np.isfinite(row.regret)
        face = cell_color(1 + max(row.regret, 0.0), most=_MOST) if known else "#ffffff"
        ax.add_patch(Rectangle((x, y), 1, 1, fc=face, ec="white", lw=0.5))
        said = _percent(row.regret) if row.tuned != row.workload else "·"
        place = {"ha": "center", "va": "center", "fontsize": SMALL}
        ax.text(x + 0.5, y + 0.5, said, color=ink_on(face), **place)
        if row.shares_original and row.tuned != row.workload:
            inner = Rectangle((x + 0.06, y + 0.06), 0.88, 0.88, fc="none", ec=INK, lw=1.1)
            ax.add_patch(inner)
    labels = [shape(str(table["kernel"].iloc[0]), name) for name in names]
    ax.set(xlim=(0, len(names)), ylim=(len(names), 0))
    ax.set_xticks(np.arange(len(names)) + 0.5, labels, fontsize=SMALL, rotation=30, ha="right",
                  rotation_mode="anchor")  # fmt: skip
    ax.set_yticks(np.arange(len(names)) + 0.5, labels if first else [], fontsize=SMALL)
    ax.tick_params(length=0, pad=1)
    ax.spines[:].set_visible(False)


def _percent(regret: float) -> str:
    if np.isnan(regret):
        return "–"  # noqa: RUF001
    if np.isinf(regret):
        return "fails"
    if abs(regret) < 5e-4:
        return "0"
    text = f"{100 * regret:+.0f}%" if abs(regret) >= 0.095 else f"{100 * regret:+.1f}%"
    return text.replace("-", "−")  # noqa: RUF001


def caption_regrets(regrets: pd.DataFrame, *, differ: str) -> str:
    """Returns the caption of `plot_regrets`, from its data.

    Args:
        regrets: As drawn.
        differ: In what the shapes differ, in words ("experts").
    """
    others = regrets[regrets["tuned"] != regrets["workload"]]
    told = []
    for (kernel, name), table in others.groupby(["kernel", "list"], sort=False):
        shared = table[table["shares_original"] & np.isfinite(table["regret"])]
        if len(shared):
            told.append(f"{label(kernel)}, {name}: {shared['regret'].max():+.1%}")
    unknown = int(others["regret"].isna().sum())
    return (
        f"Latency of the pick of one shape on another that differs in {differ}, over that of the "
        "shape's own pick; picks read one visit and are judged by the other. "
        f"{counted(others['kernel'].nunique(), 'kernel')}, "
        f"{counted(len(others), 'ordered pair')}; {unknown} outside the other's space (dash). "
        f"Worst where {_key(regrets)} shares the pick: {'; '.join(told) or 'none is shared'}."
    )


def plot_held_out(losses: pd.DataFrame) -> Figure:
    """Draws what one family's config is worth on the shapes of the others.

    Args:
        losses: From `kt_lab.moe_study.held_out.losses`.
    """
    check_columns(losses, ("kernel", "list", "tuned", "workload", "loss", "own"), what="losses")
    away = losses[~losses["own"] & losses["loss"].notna()]
    groups = list(away[["kernel", "list"]].drop_duplicates().itertuples(index=False))
    fig = new_figure(height=1.0 + 0.2 * len(groups))
    ax = fig.subplots()
    tuned = away["tuned"].unique()
    families = [*(n for n in _LOOKS if n in tuned), *(n for n in tuned if n not in _LOOKS)]
    for row in away.itertuples():
        color, marker = _LOOKS.get(row.tuned, _OTHER)
        y = groups.index((row.kernel, row.list)) + 0.2 * (families.index(row.tuned) - 1)
        bad = {"mfc": color if row.regressed else "white", "mew": 0.8}
        ax.plot([1 + row.loss], [y], ls="none", marker=marker, color=color, ms=3.8, **bad)
    row_axis(ax, [f"{label(g.kernel)}, {g.list}" for g in groups])
    ax.axvline(1.0, color=QUIET, lw=0.8)
    low, high, log = ratio_limits(1 + away["loss"][np.isfinite(away["loss"])])
    set_ratio_axis(ax.xaxis, low, high, log=log)
    ax.set_xlabel("latency over the original config's")
    looks = {name: _LOOKS.get(name, _OTHER) for name in families}
    handles = [
        Line2D([], [], ls="none", color=c, marker=m, ms=3.8, mfc="white", label=f"tuned on {n}")
        for n, (c, m) in looks.items()
    ]
    filled = Line2D([], [], ls="none", color=INK, marker="o", ms=3.8, label="a regression")
    legend_above(fig, [*handles, filled], handle_length=1)
    return fig


def caption_held_out(losses: pd.DataFrame) -> str:
    """Returns the caption of `plot_held_out`, from its data."""
    away = losses[~losses["own"] & losses["loss"].notna()]
    if away.empty:
        return "No kernel is recorded on shapes of two families."
    worst, count = away.loc[away["loss"].idxmax()], int(away["regressed"].sum())
    held = int((~losses["own"] & losses["loss"].isna()).sum())
    return (
        "One config is chosen for all shapes of a family and runs on the shapes of the others: "
        f"{counted(len(away), 'case')} of {counted(away['kernel'].nunique(), 'kernel')}, {count} "
        f"of them more than 1 % slower than the original config, worst {worst['loss']:+.0%} "
        f"({label(worst['kernel'])}, {worst['list']}, tuned on {worst['tuned']}, run on "
        f"{worst['workload']}). {held} configs are outside the other shape's space. Nothing is "
        "confirmed here: a duel on each shape keeps the original config where it is faster."
    )
