"""What more trials of MetaSchedule change: the same workloads with 64 of them and with 256."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from kt_lab.evidence.dojo_tables import means as geomeans
from kt_lab.evidence.dojo_tables import ratios
from kt_lab.evidence.markdown import folded, grid
from kt_lab.evidence.tvm_paths import TUNED
from kt_lab.plots.captions import counted

_KEY = ["workload", "threads"]


def searched_out(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the rows of which MetaSchedule measured all that it knows, fewer than it might.

    Args:
        result: Of `kt-lab evidence tvm`, stored.
    """
    return [row for row in result["rows"] if 0 < row["tuning"]["trials"] < result["trials"]]


def longest(result: Mapping[str, Any], longer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the rows that more trials were given, and those that more trials cannot change.

    Args:
        result: Of `kt-lab evidence tvm`, stored.
        longer: The same with more trials, of some of its workloads and threads.
    """
    has = {(row["workload"], row["threads"]) for row in longer["rows"]}
    threads = {row["threads"] for row in longer["rows"]}
    rest = [
        row
        for row in searched_out(result)
        if row["threads"] in threads and (row["workload"], row["threads"]) not in has
    ]
    return [*longer["rows"], *rest]


def longer_table(result: Mapping[str, Any], longer: Mapping[str, Any]) -> pd.DataFrame:
    """Returns a row per workload and threads that `longest` has.

    Args:
        result: Of `kt-lab evidence tvm`, stored.
        longer: The same with more trials.

    Returns:
        workload, threads, size; trials and more_trials, which MetaSchedule measured; ratio and
        more_ratio, the best program's latency over that of tuned TVM (equal: it knew no more).
    """
    rows = longest(result, longer)
    found = _ratios(rows)
    before = _ratios(result["rows"])
    spent = {(row["workload"], row["threads"]): row["tuning"]["trials"] for row in result["rows"]}
    return pd.DataFrame(
        {
            "workload": row["workload"],
            "threads": row["threads"],
            "size": row["size"],
            "trials": spent.get(key),
            "more_trials": row["tuning"]["trials"],
            "ratio": before.get(key),
            "more_ratio": found.get(key),
        }
        for row in rows
        for key in [(row["workload"], row["threads"])]
    )


def longer_means(result: Mapping[str, Any], longer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns geomeans of best over tuned TVM per size and threads, with more trials and before.

    Args:
        result: Of `kt-lab evidence tvm`, stored.
        longer: The same with more trials.

    Returns:
        size, threads; ratio, low, high, losses and workloads of `longest`; of, how many workloads
        there are; before, the ratio of the same workloads in `result`.
    """
    rows = longest(result, longer)
    found = []
    for size in dict.fromkeys(row["size"] for row in result["rows"]):
        own = [row for row in rows if row["size"] == size]
        keys = {(row["workload"], row["threads"]) for row in own}
        same = [row for row in result["rows"] if (row["workload"], row["threads"]) in keys]
        before = {mean["threads"]: mean["ratio"] for mean in _means(same)}
        for mean in _means(own):
            every = [r for r in result["rows"] if r["size"] == size]
            count = sum(row["threads"] == mean["threads"] for row in every)
            about = {"size": size, "of": count, "before": before.get(mean["threads"])}
            found.append(mean | about)
    return found


def longer_lines(result: Mapping[str, Any], longer: Mapping[str, Any]) -> str:
    """Returns the README's lines as Markdown."""
    trials, more = result["trials"], longer["trials"]
    told = "; ".join(_told(mean, trials) for mean in longer_means(result, longer))
    said = (
        f"With {more} trials of MetaSchedule and {more} programs of each of our players, or "
        f"{trials} where MetaSchedule knows fewer, `best` over tuned TVM: {told}."
    )
    heads = ["workload", "threads", *["trials of TVM", "best / TVM tuned"] * 2]
    rows = []
    for row in longer_table(result, longer).itertuples():
        before = (str(row.trials), f"{row.ratio:.2f}")
        after = (str(row.more_trials), f"{row.more_ratio:.2f}")
        rows.append([f"`{row.workload}`", str(row.threads), *before, *after])
    summary = f"Each workload with up to {trials} and up to {more} trials"
    return f"{said}\n\n{folded(summary, grid(heads, rows))}"


def _told(mean: Mapping[str, Any], trials: int) -> str:
    whole = mean["workloads"] == mean["of"]
    count = f"all {mean['of']}" if whole else f"{mean['workloads']} of {mean['of']}"
    verdict = ", a win" if whole and mean["high"] < 1 else ""
    return (
        f"{count} workloads of {mean['size']} size on {counted(mean['threads'], 'thread')} "
        f"{mean['ratio']:.2f} [{mean['low']:.2f}, {mean['high']:.2f}], {mean['losses']} lost"
        f"{verdict} ({mean['before']:.2f} with up to {trials} trials)"
    )


def _means(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [mean for mean in geomeans(rows, references=(TUNED,)) if mean["group"] == "all"]


def _ratios(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], float]:
    return ratios(rows, references=(TUNED,), paths=("best",)).set_index(_KEY)["ratio"].to_dict()
