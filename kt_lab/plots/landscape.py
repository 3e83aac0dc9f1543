"""Landscapes: which share of all configs comes close to the best."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from kt_lab.errors import UsageError
from kt_lab.plots.captions import counted, listed, spread
from kt_lab.plots.scales import set_ratio_axis
from kt_lab.plots.style import legend_above, new_figure

_LINES = ("#0173B2", "#DE8F05", "#029E73", "#D55E00", "#CC78BC", "#CA9161", "#56B4E9", "#949494")
_DASHES = ("-", (0, (4, 1.2)), (0, (1, 1)), (0, (4, 1, 1, 1)))


def plot_landscape_ecdf(
    profile: pd.DataFrame, *, most: float = 10.0, ax: Axes | None = None
) -> Axes:
    """Draws, per workload, the share of configs within a factor of the best.

    Workloads of one kernel share a colour and differ by dash. A curve that ends below 1 ends
    where configs fail, or are slower than `most`.

    Args:
        profile: From `kt_lab.baseline.landscape_profile`.
        most: Right end of the x axis, as a multiple of the optimum.
        ax: Where to draw; None: a new figure.
    """
    missing = [n for n in ("workload", "ratio", "share", "n_configs") if n not in profile.columns]
    if missing or profile.empty:
        raise UsageError(
            "a landscape figure draws kt_lab.baseline.landscape_profile; this table has "
            f"{len(profile)} rows and lacks {', '.join(missing) or 'nothing'}"
        )
    ax = new_figure(height=2.5).subplots() if ax is None else ax
    kernels = profile["kernel"] if "kernel" in profile else profile["workload"]
    kernels = kernels.astype(str)
    for number, kernel in enumerate(dict.fromkeys(kernels)):
        rows = profile[kernels == kernel]
        cell = [name for name in ("gpu", "workload") if name in rows]
        for dash, (_, one) in enumerate(rows.groupby(cell, observed=True, sort=False)):
            ax.step(
                np.append(one["ratio"], max(most, one["ratio"].iloc[-1])),
                np.append(one["share"], one["share"].iloc[-1]),
                where="post",
                color=_LINES[number % len(_LINES)],
                linestyle=_DASHES[dash % len(_DASHES)],
                linewidth=0.9,
                label=kernel if dash == 0 else None,
            )
    set_ratio_axis(ax.xaxis, 1.0, most, log=True)
    ax.set_yscale("log")
    smallest = 1 / profile["n_configs"].max()
    ax.set_ylim(smallest, 1.15)
    ax.grid()
    ax.set_xlabel("latency / optimum")
    ax.set_ylabel("share of configs at least as fast")
    handles = ax.get_legend_handles_labels()[0]
    legend_above(ax.figure, handles)
    return ax


def caption_landscape_ecdf(profile: pd.DataFrame) -> str:
    """Returns the caption of `plot_landscape_ecdf`, from its data."""
    each = profile.drop_duplicates([n for n in ("gpu", "workload") if n in profile])
    failed = 1 - each["n_ok"].sum() / each["n_configs"].sum()
    where = f" on {listed(sorted(each['gpu'].astype(str).unique()))}" if "gpu" in each else ""
    kernels = f" of {counted(each['kernel'].nunique(), 'kernel')}" if "kernel" in each else ""
    return (
        "Share of all configs whose latency is within a factor of the best, for "
        f"{counted(each['workload'].nunique(), 'workload')}{kernels}{where}; "
        f"{spread(each['n_configs'].min(), each['n_configs'].max(), 'config')} per workload, of "
        f"which {failed:.1%} failed (they count in the share's denominator). Workloads of one "
        "kernel share a colour."
    )
