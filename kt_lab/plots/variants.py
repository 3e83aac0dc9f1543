"""A searcher with one part changed at a time, beside the whole."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kt_lab.plots.captions import counted
from kt_lab.plots.scales import ratio_limits, set_ratio_axis
from kt_lab.plots.style import INK, QUIET, SMALL, legend_above, new_figure
from kt_lab.stats.tables import check_columns

_ROW = 0.15  # inches
_SURE = 0.05  # Holm's p below which a dot is filled
_COLUMNS = ("budget", "variant", "ratio", "low", "high", "p_holm")
_FAINT = "#f4f4f4"


def plot_variants(table: pd.DataFrame) -> Figure:
    """Draws the latency of every variant over that of the whole, the costliest change on top.

    A panel per budget, all on one axis; a dot is the geomean, its line the interval; a dot is
    filled where the signed-rank test over kernels, Holm-corrected, is below 0.05. Right of 1 the
    change costs. Draw at full width.

    Args:
        table: From `kt_lab.evidence.ablation.paired`: budget, variant, ratio, low, high, p_holm.
    """
    check_columns(table, _COLUMNS, what="variants")
    budgets = sorted(table["budget"].unique())
    last = table[table["budget"] == budgets[-1]].sort_values("ratio", ascending=False)
    names = last["variant"].tolist()
    fig = new_figure(height=0.9 + _ROW * len(names))
    axes = fig.subplots(1, len(budgets), sharey=True, squeeze=False)[0]
    low, high, log = ratio_limits([*table["low"], *table["high"]])
    for ax, budget in zip(axes, budgets, strict=True):
        for at in range(0, len(names), 2):
            ax.axhspan(at - 0.5, at + 0.5, color=_FAINT, linewidth=0, zorder=0)
        for row in table[table["budget"] == budget].to_dict("records"):
            at, sure = names.index(row["variant"]), row["p_holm"] < _SURE
            ax.plot([row["low"], row["high"]], [at, at], color=QUIET, lw=1.0, zorder=2)
            ax.plot([row["ratio"]], [at], **_dot(sure), zorder=3)
        set_ratio_axis(ax.xaxis, low, high, log=log, most=4)
        ax.axvline(1.0, color=INK, linewidth=0.6, zorder=1)
        ax.grid(axis="x")
        ax.tick_params(axis="y", length=0)
        ax.tick_params(axis="both", labelsize=SMALL)
        ax.set_title(f"{budget:g} trials")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    fig.supxlabel("latency over that of the whole (right of 1: the change costs)")
    handles = [
        Line2D([], [], **_dot(True), label="p < 0.05 over kernels"),
        Line2D([], [], **_dot(False), label="not shown to differ"),
    ]
    legend_above(fig, handles, handle_length=1)
    return fig


def caption_variants(table: pd.DataFrame, *, whole: str, workloads: int, seeds: int, gpu: str):
    """Returns the caption of `plot_variants`.

    Args:
        table: As drawn.
        whole: Name of the searcher without changes.
        workloads: That were searched.
        seeds: Runs of each.
        gpu: Whose recordings were replayed.
    """
    sure = sorted({row.variant for row in table.itertuples() if row.p_holm < _SURE})
    told = "No change is shown to differ." if not sure else f"Shown to differ: {'; '.join(sure)}."
    return (
        f"Latency of {whole} with one part changed over that of {whole} as it is, geomeans over "
        f"{counted(int(table['kernels'].iloc[0]), 'kernel')} ({counted(workloads, 'workload')} on "
        f"{gpu.upper()}, {counted(seeds, 'seed')}, by replay), with 95 % intervals over kernels, "
        f"workloads and seeds. {told} Tests are signed ranks over kernels, Holm-corrected for the "
        "changes at a budget."
    )


def _dot(sure: bool) -> dict:
    fill = INK if sure else "white"
    return {"ls": "none", "marker": "o", "ms": 3.4, "color": INK, "mfc": fill, "mew": 0.8}
