"""What the figures of the MoE FP8 study share: a look per kernel, rows, what they rest on."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from kt_lab.plots.captions import counted, listed
from kt_lab.plots.style import SMALL

PAIR = "moe_weights_pair"  # both launches of the atomic weights together, no kernel
_LOOKS = {  # label, colour (of seaborn's "colorblind"), marker
    "moe_weights_atomic": ("atomic: scales", "#0173B2", "o"),
    "moe_weights_cast": ("atomic: cast", "#56B4E9", "s"),
    PAIR: ("atomic pair", "#222222", "P"),
    "moe_weights_reduction": ("reduction", "#D55E00", "D"),
    "moe_weights_colwise": ("weights colwise", "#CC78BC", "X"),
    "jagged_rowwise": ("jagged rowwise", "#029E73", "^"),
    "jagged_colwise": ("jagged colwise", "#DE8F05", "v"),
    "blockwise_quantise": ("blockwise", "#CA9161", "h"),
    "tokens_transpose": ("transpose", "#949494", "<"),
}
FAINT = "#e3e3e3"
NAIVE, GUARDED = "#D55E00", "#0173B2"


def label(kernel: str) -> str:
    """Returns what a figure calls a kernel."""
    return _LOOKS.get(kernel, (kernel, "", ""))[0]


def look(kernel: str) -> dict[str, Any]:
    """Returns colour and marker of a kernel, the same in every figure of the study."""
    _, color, marker = _LOOKS.get(kernel, (kernel, "#222222", "*"))
    return {"color": color, "marker": marker}


def kernel_handles(kernels: Iterable[str]) -> list[Line2D]:
    """Returns a legend's handle for each kernel, in the order of the study."""
    names = set(kernels)
    known = [name for name in _LOOKS if name in names]
    return [
        Line2D([], [], linestyle="none", label=label(name), **look(name), ms=4) for name in known
    ]


def shape(kernel: str, workload: str) -> str:
    """Returns a shape as rows name it: "E=16, 8192 x 5120", or tokens, width, groups."""
    extents = workload.split("x")
    if kernel.startswith("moe_weights") and len(extents) == 3:
        return f"E={extents[0]}, {extents[1]} x {extents[2]}"
    if kernel.startswith("jagged") and len(extents) == 5:
        skew = {"1": ", equal", "3": ", skewed", "4": ", one expert", "5": ", half of them empty"}
        skew = (skew | {"6": ", ragged"}).get(extents[3], "")
        turned = ", tokens first" if extents[4] == "2" else ""
        return f"{extents[0]} x {extents[1]}, {extents[2]} gr.{skew}{turned}"
    return " x ".join(extents)


def row_axis(ax: Axes, labels: Sequence[str], *, small: bool = True) -> None:
    """Labels rows from the top and draws a faint line along each."""
    for y in range(len(labels)):
        ax.axhline(y, color=FAINT, lw=0.5, zorder=0)
    ax.set_yticks(range(len(labels)), labels, fontsize=SMALL if small else None)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def percent_axis(axis: Axis, *, signed: bool = True) -> None:
    """Prints the ticks of fractions as per cent."""
    sign = "+" if signed else ""
    axis.set_major_formatter(
        FuncFormatter(lambda v, _: "0" if abs(v) < 1e-12 else f"{100 * v:{sign}.3g}%")
    )


def scope(table: pd.DataFrame) -> str:
    """Returns what a table rests on: "31 workloads of 6 kernels on h200"."""
    workloads = counted(len(table[["kernel", "workload"]].drop_duplicates()), "workload")
    kernels = counted(table["kernel"].nunique(), "kernel")
    gpus = f" on {listed(sorted(table['gpu'].astype(str).unique()))}" if "gpu" in table else ""
    return f"{workloads} of {kernels}{gpus}"
