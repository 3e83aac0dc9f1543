"""What more trials of MetaSchedule change: the same workloads with 64 of them and with 256."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from kt_lab.evidence.dojo_tables import means as geomeans
from kt_lab.evidence.markdown import folded, grid
from kt_lab.evidence.tvm import ENOUGH, best_over_tuned
from kt_lab.evidence.tvm_paths import TUNED
from kt_lab.plots.captions import counted


def longest(result: Mapping[str, Any], longer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the rows that more trials were given, and those that more trials cannot change.

    MetaSchedule measured all that it knows where it measured fewer programs than it might.

    Args:
        result: Of `kt-lab evidence tvm`, stored.
        longer: The same with more trials, of some of its workloads and threads.
    """
    has = {_key(row) for row in longer["rows"]}
    threads = {row["threads"] for row in longer["rows"]}
    rest = [
        row
        for row in result["rows"]
        if row["threads"] in threads
        and _key(row) not in has
        and 0 < row["tuning"]["trials"] < result["trials"]
    ]
    return [*longer["rows"], *rest]


def longer_table(result: Mapping[str, Any], longer: Mapping[str, Any]) -> pd.DataFrame:
    """Returns a row per workload and threads that both results tell a ratio of.

    Args:
        result: Of `kt-lab evidence tvm`, stored.
        longer: The same with more trials.

    Returns:
        workload, threads, size; trials and more_trials, which MetaSchedule measured; ratio and
        more_ratio, the best program's latency over that of tuned TVM (equal: it knew no more).
    """
    before, rows = _both(result, longer)
    old = best_over_tuned(before)
    new = best_over_tuned(rows)
    spent = {_key(row): row["tuning"]["trials"] for row in before}
    found = []
    for row in rows:
        key = _key(row)
        about = {"workload": key[0], "threads": key[1], "size": row["size"]}
        about |= {"trials": spent[key], "more_trials": row["tuning"]["trials"]}
        found.append(about | {"ratio": old[key], "more_ratio": new[key]})
    return pd.DataFrame(found)


def longer_means(result: Mapping[str, Any], longer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns geomeans of best over tuned TVM per size and threads, with more trials and before.

    Args:
        result: Of `kt-lab evidence tvm`, stored.
        longer: The same with more trials.

    Returns:
        size, threads; ratio, low, high, losses and workloads of `longer_table`; of, how many
        workloads there are; before, the ratio of the same workloads in `result`.
    """
    before, rows = _both(result, longer)
    found = []
    for size in dict.fromkeys(row["size"] for row in result["rows"]):
        every = [row["threads"] for row in result["rows"] if row["size"] == size]
        own, old = ([row for row in part if row["size"] == size] for part in (rows, before))
        ratios = {mean["threads"]: mean["ratio"] for mean in _means(old)}
        for mean in _means(own):
            threads = mean["threads"]
            about = {"size": size, "of": every.count(threads), "before": ratios[threads]}
            found.append(mean | about)
    return found


def longer_lines(result: Mapping[str, Any], longer: Mapping[str, Any]) -> str:
    """Returns the lines of RESULTS.md as Markdown."""
    trials, more = result["trials"], longer["trials"]
    told = "; ".join(_told(mean, trials, more) for mean in longer_means(result, longer))
    said = (
        f"With {more} trials of MetaSchedule and {more} programs of each of our players, or "
        f"{trials} where MetaSchedule knows fewer, `best` over tuned TVM: {told}. Each "
        "ratio is of programs timed in the same visits; those of few and of many trials were "
        "timed on different days."
    )
    heads = ["workload", "threads", *["trials of TVM", "best / TVM tuned"] * 2]
    rows = []
    for row in longer_table(result, longer).itertuples():
        before = (str(row.trials), f"{row.ratio:.2f}")
        after = (str(row.more_trials), f"{row.more_ratio:.2f}")
        rows.append([f"`{row.workload}`", str(row.threads), *before, *after])
    summary = f"Each workload with up to {trials} and up to {more} trials"
    return f"{said}\n\n{folded(summary, grid(heads, rows))}"


def _told(mean: Mapping[str, Any], trials: int, more: int) -> str:
    about = f"workloads of {mean['size']} size on {counted(mean['threads'], 'thread')}"
    if mean["workloads"] < mean["of"]:  # what was measured first is no sample of them
        lost = f"{mean['losses']} lost, which have no mean yet"
        return f"{mean['workloads']} of {mean['of']} {about} so far, {lost}"
    verdict = ", a win" if mean["high"] < 1 and more >= ENOUGH else ""
    return (
        f"all {mean['of']} {about} {mean['ratio']:.2f} [{mean['low']:.2f}, {mean['high']:.2f}], "
        f"{mean['losses']} lost{verdict} ({mean['before']:.2f} with up to {trials} trials)"
    )


def _both(
    result: Mapping[str, Any], longer: Mapping[str, Any]
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Returns the rows of `result` and of `longest` of the workloads that both time TVM on."""
    parts = (result["rows"], longest(result, longer))
    timed = [[row for row in rows if TUNED in row["paths"]] for rows in parts]
    both = set.intersection(*({_key(row) for row in rows} for rows in timed))
    before, rows = ([row for row in rows if _key(row) in both] for rows in timed)
    return before, rows


def _key(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["workload"], row["threads"]


def _means(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [mean for mean in geomeans(rows, references=(TUNED,)) if mean["group"] == "all"]
