"""The tables of a comparison as papers print them."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pandas as pd

from kt_lab import comparison, study
from kt_lab.comparison.figures import evidence_of
from kt_lab.comparison.words import limits_of
from kt_lab.plots.captions import JUDGED, interval_words, listed
from kt_lab.plots.forest import budget_words
from kt_lab.plots.style import searcher_style
from kt_lab.plots.tables import Column, PaperTable, numbers, words
from kt_lab.publication.stored import StoredStudy
from kt_lab.stats.tables import UNITS

_WITHIN = (0.05, 0.01)
_SHOWN = 6  # searchers whose microseconds are told
_SHAPE = ["kernel", "workload"]
_POWER = 0.8
_KIND = {"spent_trials": "trials", "elapsed_s": "seconds"}


def draw_tables(
    stored: StoredStudy, *, table: pd.DataFrame | None = None, only: Collection[str] | None = None
) -> dict[str, PaperTable]:
    """Returns the tables of a stored study by name.

    Args:
        stored: The study.
        table: From `kt_lab.comparison.budget_table` of its runs; None: made where needed.
        only: Names of those that are wanted; None: all.
    """
    wanted = [name for name in TABLES if only is None or name in only]
    if table is None and not _FROM_BUDGETS.isdisjoint(wanted):
        table = comparison.budget_table(
            stored.runs, reference=stored.reference, landscapes=stored.landscapes
        )
    drawn = {name: TABLES[name](stored, table) for name in wanted}
    said = stored.versions()
    return {name: replace(one, caption=f"{one.caption} {said}") for name, one in drawn.items()}


def _labels(names: pd.Series) -> list[str]:
    return [searcher_style(str(name)).label for name in names]


def _interval(table: pd.DataFrame) -> str:
    return f"{float(table['confidence'].iloc[0]):.0%} interval"


def _quality(stored: StoredStudy, table: pd.DataFrame, axis: str) -> PaperTable:
    """Returns what searchers hold at the budgets of one axis, best in the last one on top."""
    shown = table[table["axis"] == axis].reset_index(drop=True)
    budgets = [rows for _, rows in shown.groupby("budget", sort=True, dropna=False)]
    order = budgets[-1].sort_values(["estimate", "searcher"])["searcher"].tolist()
    budgets = [rows.set_index("searcher").loc[order].reset_index() for rows in budgets]
    last, group = budgets[-1], "latency / optimum after"
    columns = [words("searcher", _labels(last["searcher"]))]
    for rows in budgets[:-1]:
        amount = float(rows["budget"].iloc[0])
        columns.append(numbers(f"{amount:g}", rows["estimate"], best="low", unit=UNITS[axis],
                               group=group))  # fmt: skip
    when = budget_words(axis, last["budget"].iloc[0])
    columns += [
        numbers(when, last["estimate"], low=last["low"], high=last["high"], best="low",
                unit=_interval(last), group=group),
        numbers("worst", last["worst"], best="low", unit="seed", group=group),
        numbers(f"to {searcher_style(stored.reference).label}", last["ratio"],
                low=last["ratio_low"], high=last["ratio_high"], best="low",
                unit=_interval(last), group="latency ratio"),
        numbers("p", last["p_workload"], digits=2, significant=True, unit="Holm",
                group="latency ratio"),
        numbers("best", last["probability_best"], digits=2, best="high", unit="probability"),
    ]  # fmt: skip
    caption = (
        f"Latency of the incumbent over the optimum at budgets of {_KIND[axis]}, and over "
        f"{searcher_style(stored.reference).label} at the last of them, {JUDGED}; "
        f"the lowest in bold. {evidence_of(stored.runs)} "
        f"{interval_words(last)} worst: geomean over workloads of the worst seed. p: signed-rank "
        f"tests over workloads. best: probability of being best. {limits_of(shown)}"
    )
    return PaperTable(tuple(columns), shown, caption)


def _latencies(stored: StoredStudy, table: pd.DataFrame) -> PaperTable:
    """Returns microseconds per workload: floors, references, and a few searchers' medians."""
    runs = stored.runs
    chosen = comparison.leaders(runs, table=table, reference=stored.reference, most=_SHOWN)
    data = study.latency_table(runs[runs["searcher"].isin(chosen)])
    optima = comparison.optima_table(runs, landscapes=stored.landscapes)
    data = data.merge(optima[["workload", "gpu", "noise_floor"]], on=["workload", "gpu"])
    names = {"bytes_floor_us": "bytes floor", "vendor_us": "vendor", "default_us": "default"}
    names["optimum_us"] = "optimum"
    rows = data["workload"].astype(str)
    if data["gpu"].nunique() > 1:
        rows += " (" + data["gpu"].astype(str) + ")"
    columns = [words("workload", rows)]
    columns += [numbers(head, data[name], digits=2, unit="µs") for name, head in names.items()]
    columns.append(numbers("noise floor", 100 * (data["noise_floor"] - 1), digits=1, unit="%"))
    medians = data[[f"{name}_us" for name in chosen]].to_numpy(float)
    printed = np.array([[f"{value:.2f}" for value in row] for row in medians])
    lowest = np.array([f"{row.min():.2f}" for row in medians])
    for at, name in enumerate(chosen):
        label = searcher_style(name).label
        column = numbers(label, medians[:, at], digits=2, unit="µs", group="median incumbent")
        columns.append(replace(column, bold=tuple((printed[:, at] == lowest).tolist())))
    caption = (
        "Latencies per workload: moving every byte once at the measured copy speed, the vendor's "
        "path, the kernel's default config, the best recorded config, by how much the best of "
        "one reading of every config is above it, and medians over seeds of the final "
        f"incumbents, {JUDGED}; the lowest in bold. As that "
        "is one visit, a median can lie below the optimum, which is of all visits pooled. "
        f"{evidence_of(runs)}"
    )
    return PaperTable(tuple(columns), data, caption)


def _running_times(stored: StoredStudy, _: pd.DataFrame | None) -> PaperTable:
    """Returns expected running times to near the optimum."""
    data = comparison.running_time_table(stored.runs, landscapes=stored.landscapes, within=_WITHIN)
    means = data[data["scope"] == "geomean"].astype({"searcher": str})
    last = means[(means["within"] == _WITHIN[-1]) & (means["axis"] == "spent_trials")]
    order = last.sort_values(["estimate", "success_rate", "searcher"],
                             ascending=[True, False, True])["searcher"].tolist()  # fmt: skip
    columns = [words("searcher", _labels(order))]
    for within in _WITHIN:
        group = f"within {within:.0%} of the optimum"
        for axis, kind in _KIND.items():
            rows = means[(means["within"] == within) & (means["axis"] == axis)]
            rows = rows.set_index("searcher").loc[order]
            ends = {"low": rows["low"], "high": rows["high"]}
            columns.append(numbers(kind, rows["estimate"], **ends, significant=True, best="low",
                                   unit=_interval(rows), group=group))  # fmt: skip
        columns.append(numbers("runs", 100 * rows["success_rate"], digits=0, best="high",
                               unit="%", group=group))  # fmt: skip
    caption = (
        f"Expected running time to within {listed(f'{w:.0%}' for w in _WITHIN)} of the optimum, "
        "unsuccessful runs included, in trials and in seconds of tuning: geomean over workloads, "
        "infinite where no run reaches the target of one; runs: that reached it. The best in "
        f"bold. {evidence_of(stored.runs)} {interval_words(last)}"
    )
    return PaperTable(tuple(columns), data, caption)


def _scores(stored: StoredStudy, _: pd.DataFrame | None) -> PaperTable:
    """Returns the community's score of every searcher."""
    data = comparison.methodology_table(
        stored.runs, reference=stored.reference, landscapes=stored.landscapes
    )
    data = data.sort_values(["estimate", "searcher"], ascending=[False, True])
    label = searcher_style(stored.reference).label
    ends = {"low": data["difference_low"], "high": data["difference_high"]}
    each = ", all means over workloads" if data["n_workloads"].iloc[0] > 1 else ""
    columns = (
        words("searcher", _labels(data["searcher"])),
        numbers("score", data["estimate"], low=data["low"], high=data["high"], best="high",
                unit=_interval(data)),
        numbers(f"over {label}", data["difference"], **ends, unit=_interval(data)),
    )  # fmt: skip
    caption = (
        "Score of Willemsen et al. (FGCS 2024): the incumbent's mean position between exact "
        f"random search (0) and the optimum (1) from {data['from_trials'].mean():.0f} to "
        f"{data['to_trials'].mean():.0f} trials{each}; the highest in bold. "
        f"{evidence_of(stored.runs)} {interval_words(data, mean='mean')}"
    )
    return PaperTable(columns, data.reset_index(drop=True), caption)


def _power(stored: StoredStudy, _: pd.DataFrame | None) -> PaperTable:
    """Returns how many kernels and seeds would resolve a difference of 1%."""
    data = comparison.power_table(stored.runs, reference=stored.reference)
    if "needed" not in data:
        data = data.assign(claim=None, vary=None, power=np.nan, needed=np.nan)
        data = data.assign(**{f"{name}_sd": np.nan for name in ("kernel", "workload", "seed")})
    kernels, shapes = (len(stored.runs[k].drop_duplicates()) for k in (["kernel"], _SHAPE))
    if kernels == 1:  # nothing tells how kernels differ
        data["kernel_sd"] = np.nan
        data["needed"] = data["needed"].where(data["claim"] != "kernels")
    if shapes == kernels:  # nor shapes of one
        data["workload_sd"] = np.nan
    names = list(dict.fromkeys(data["searcher"]))
    each = data.drop_duplicates("searcher").set_index("searcher").loc[names]
    columns = [words("searcher", _labels(names))]
    for name in ("kernel", "workload", "seed"):
        columns.append(numbers(name, 100 * each[f"{name}_sd"], digits=1, unit="%",
                               group="standard deviation of"))  # fmt: skip
    for claim, vary in (("kernels", "kernels"), ("workloads", "seeds")):
        rows = data[(data["claim"] == claim) & (data["vary"] == vary)]
        rows = rows[rows["power"] == _POWER].drop_duplicates("searcher").set_index("searcher")
        found = rows["needed"].reindex(names).to_numpy(float, na_value=np.nan)
        columns.append(_counts(f"{vary} needed", found, group=f"about {claim}"))
    caption = (
        "Standard deviations of the log latency ratio to "
        f"{searcher_style(stored.reference).label}, and how many kernels (for a claim about "
        "kernels at large) or seeds (for one about these workloads) find a difference of "
        f"{data['difference'].iloc[0]:.0%} with a chance of {_POWER:.0%}; a dash: none would, or "
        f"the variance is not known. {evidence_of(stored.runs)}"
    )
    return PaperTable(tuple(columns), data, caption)


def _counts(head: str, values: np.ndarray, *, group: str) -> Column:
    return numbers(head, values, digits=0, group=group)


TABLES = {
    "table_trials": lambda stored, table: _quality(stored, table, "spent_trials"),
    "table_seconds": lambda stored, table: _quality(stored, table, "elapsed_s"),
    "table_latencies": _latencies,
    "table_running_times": _running_times,
    "table_scores": _scores,
    "table_power": _power,
}
"""What makes each table, by name: from a study, and its budget table."""

_FROM_BUDGETS = {"table_trials", "table_seconds", "table_latencies"}
