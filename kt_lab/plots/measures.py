"""Tables of ratios: what every figure of them asks and says."""

import pandas as pd
from matplotlib.axes import Axes

from kt_lab.errors import UsageError
from kt_lab.plots.captions import counted
from kt_lab.plots.lettering import points_wide
from kt_lab.plots.style import searcher_style

MEASURES = {
    "latency": "latency",
    "wall_clock": "wall-clock",
    "convergence_time": "convergence-time",
    "target_time": "time-to-target",
}
THE_REFERENCE = "the reference"  # where its name is too long; legends and captions tell it
_NEEDED = ("measure", "scope", "searcher", "reference", "estimate", "low", "high")
_AXES = 0.8  # of a row's height are its axes, about, once they are laid out


def check_ratios(table: pd.DataFrame) -> None:
    """Refuses a table that is not one measure of ratios."""
    missing = [name for name in _NEEDED if name not in table.columns]
    if missing or table.empty or table["measure"].nunique() != 1:
        raise UsageError(
            "a figure of ratios draws one table of kt_lab.stats (latency_ratios, "
            "wall_clock_ratios or convergence_time_ratios) at a time; this one has "
            f"{len(table)} rows and lacks {', '.join(missing) or 'a single measure'}"
        )


def reference_name(table: pd.DataFrame) -> str:
    """Returns the name of the searcher that the others are divided by."""
    return str(table["reference"].iloc[0])


def reference_of(table: pd.DataFrame) -> str:
    """Returns the label of that searcher."""
    return searcher_style(reference_name(table)).label


def reference_along(ax: Axes, table: pd.DataFrame, *, words: str) -> str:
    """Returns that label; "the reference" where it and the words before it are too long for y."""
    label, size = reference_of(table), ax.yaxis.label.get_fontsize()
    spec, inches = ax.get_subplotspec(), ax.get_figure(root=True).get_size_inches()[1]
    share = ax.get_position().height if spec is None else _AXES / spec.get_gridspec().nrows
    long = points_wide(f"{words}{label}", size) > share * inches * 72
    return THE_REFERENCE if long else label


def never_reached(table: pd.DataFrame) -> str:
    """Returns where the reference of a table of ratios never succeeds; empty: nowhere."""
    single = table[table["scope"] == "workload"].drop_duplicates(["gpu", "workload"])
    never = int((single["reference_n_success"] == 0).sum())
    if not never:
        return ""
    where = "" if never == len(single) else f" on {never} of {counted(len(single), 'workload')}"
    return f"{reference_of(table)} never reaches it{where}"
