"""A budget table in words: for a notebook, and for a terminal."""

import pandas as pd

from kt_lab import plots
from kt_lab.plots.captions import counted, limits
from kt_lab.plots.forest import budget_words
from kt_lab.plots.significance import LEVEL


def asked_words(trials: int | None, seconds: float | None) -> str:
    """Returns a budget as captions tell it: "200 trials", "4 machine seconds", or both."""
    told = [counted(trials, "trial")] if trials is not None else []
    told += [f"{seconds:g} machine seconds"] if seconds is not None else []
    return " or ".join(told)


def display_table(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a budget table as words, for a notebook: budgets and measures in two-level columns.

    Rows are searchers by name, the best at the last budget of trials on top.
    """
    last = table[table["axis"] == table["axis"].iloc[0]].groupby("searcher").last()
    order = last.sort_values("estimate").index
    confidence, reference = table["confidence"].iloc[0], table["reference"].iloc[0]
    label = plots.searcher_style(reference).label
    shown = {}
    for (axis, budget), rows in table.groupby(["axis", "budget"], sort=False, dropna=False):
        rows = rows.set_index("searcher").loc[order]
        when = budget_words(axis, budget)
        words = {
            f"latency / optimum [{100 * confidence:g}%]": _ranges(rows, "estimate", "low", "high")
        }
        for column in ("p90", "worst"):
            words[column] = rows[column].map("{:.3f}".format)
        name = f"ratio to {label} [{100 * confidence:g}%]"
        words[name] = _ranges(rows, "ratio", "ratio_low", "ratio_high")
        for unit in ("workload", "kernel"):
            words[f"p over {unit}s (Holm)"] = rows[f"p_{unit}"].map("{:.2g}".format, "ignore")
        best = rows["probability_best"].map("{:.2f}".format)
        words["P(best)"] = best.where(rows["low"].notna(), "")  # of single runs: not known
        shown |= {(when, measure): column for measure, column in words.items()}
    found = pd.DataFrame(shown).fillna("").astype(str)
    return found.rename(index=lambda name: plots.searcher_style(name).label)


def _ranges(rows: pd.DataFrame, *columns: str) -> pd.Series:
    parts = [rows[column].map("{:.3f}".format) for column in columns]
    between = (" [" + parts[1] + ", " + parts[2] + "]").where(rows[columns[1]].notna(), "")
    return parts[0] + between  # of single runs nothing says how sure they are


def table_text(table: pd.DataFrame) -> str:
    """Returns a budget table for a terminal: a block per measure, budgets side by side."""
    shown = display_table(table)
    blocks = []
    for measure in shown.columns.get_level_values(1).unique():
        if "kernels" in measure and 2.0 ** (1 - table["n_kernels"].min()) > LEVEL:
            continue  # all are 1, or as good as: the last sentence says why
        block = shown.xs(measure, axis=1, level=1)
        for axis in table["axis"].unique() if "[" in measure else [None]:
            rows = table if axis is None else table[table["axis"] == axis]
            pairs = rows[["axis", "budget"]].drop_duplicates().itertuples(index=False)
            columns = [budget_words(*pair) for pair in pairs]
            blocks.append(f"{measure}\n{block[columns].to_string()}")
    return "\n\n".join([*blocks, limits_of(table)])


def limits_of(table: pd.DataFrame) -> str:
    """Returns the sentences that say what the p-values of a budget table cannot show."""
    return limits(
        kernels=int(table["n_kernels"].min()),
        workloads=int(table["n_workloads"].min()),
        comparisons=table["searcher"].nunique() - 1,
    )
