"""What more trials of MetaSchedule change: the same workloads with 64 of them and with 256.

Both on one CPU: a ratio of one says nothing of another's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.evidence.dojo_tables import cpus_of
from kt_lab.evidence.dojo_tables import means as geomeans
from kt_lab.evidence.markdown import folded, grid
from kt_lab.evidence.tvm import ENOUGH, best_over_tuned
from kt_lab.evidence.tvm_paths import TUNED
from kt_lab.plots.captions import counted


def of_its_cpu(
    results: Sequence[Mapping[str, Any]], longer: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Returns the result that was measured on the CPU of another; the first one if none was."""
    cpus = cpus_of(longer["rows"])
    return next((result for result in results if cpus_of(result["rows"]) == cpus), results[0])


def longest(result: Mapping[str, Any], longer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the rows that more trials were given, and those that more trials cannot change.

    MetaSchedule measured all that it knows where it measured fewer programs than it might.

    Args:
        result: Of `kt-lab evidence tvm`, stored.
        longer: The same with more trials, of some of its workloads and threads.

    Raises:
        UsageError: They are of different CPUs, by the name that MetaSchedule's target has.
    """
    cpus = cpus_of([*result["rows"], *longer["rows"]])
    if len(cpus) > 1:
        raise UsageError(
            "more trials must stand beside fewer of the same CPU, got rows of "
            f"{', '.join(sorted(cpus))}; give the stored result of that CPU"
        )
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
        trials and ratio are NaN where only more trials were measured.
    """
    before, rows = _both(result, longer)
    old = best_over_tuned(before)
    new = best_over_tuned(rows)
    spent = {_key(row): row["tuning"]["trials"] for row in before}
    found = []
    for row in rows:
        key = _key(row)
        about = {"workload": key[0], "threads": key[1], "size": row["size"]}
        about |= {"trials": spent.get(key, np.nan), "more_trials": row["tuning"]["trials"]}
        found.append(about | {"ratio": old.get(key, np.nan), "more_ratio": new[key]})
    return pd.DataFrame(found)


def longer_means(result: Mapping[str, Any], longer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns geomeans of best over tuned TVM per size and threads, with more trials and before.

    Args:
        result: Of `kt-lab evidence tvm`, stored.
        longer: The same with more trials.

    Returns:
        size, threads; ratio, low, high, losses and workloads of `longer_table`; of, how many
        workloads there are; before, the ratio of the same workloads in `result` (None: not all
        were measured).
    """
    before, rows = _both(result, longer)
    found = []
    for size in dict.fromkeys(row["size"] for row in result["rows"]):
        every = {row["workload"] for row in result["rows"] if row["size"] == size}
        own, old = ([row for row in part if row["size"] == size] for part in (rows, before))
        ratios = {(m["threads"], m["workloads"]): m["ratio"] for m in _means(old)}
        for mean in _means(own):
            known = ratios.get((mean["threads"], mean["workloads"]))
            found.append(mean | {"size": size, "of": len(every), "before": known})
    return found


def longer_lines(results: Sequence[Mapping[str, Any]], longer: Mapping[str, Any]) -> str:
    """Returns the lines of RESULTS.md as Markdown.

    Args:
        results: Of `kt-lab evidence tvm`, stored, one of them of the CPU of `longer`.
        longer: The same with more trials.
    """
    result = of_its_cpu(results, longer)
    trials, more = result["trials"], longer["trials"]
    told = "; ".join(_told(mean, trials, more) for mean in longer_means(result, longer))
    cpu = "".join(f" on a CPU that LLVM calls {name}" for name in cpus_of(longer["rows"]))
    said = (
        f"With {more} trials of MetaSchedule and {more} programs of each of our players{cpu}, or "
        f"{trials} where MetaSchedule knows fewer, `best` over tuned TVM: {told}. Each "
        "ratio is of programs timed in the same visits; those of few and of many trials were "
        "timed on different days."
    )
    heads = ["workload", "threads", *["trials of TVM", "best / TVM tuned"] * 2]
    rows = []
    for row in longer_table(result, longer).itertuples():
        known = not np.isnan(row.ratio)
        before = (f"{row.trials:.0f}", f"{row.ratio:.2f}") if known else ("", "")
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
    old = f" ({mean['before']:.2f} with up to {trials} trials)" if mean["before"] else ""
    return (
        f"all {mean['of']} {about} {mean['ratio']:.2f} [{mean['low']:.2f}, {mean['high']:.2f}], "
        f"{mean['losses']} lost{verdict}{old}"
    )


def _both(
    result: Mapping[str, Any], longer: Mapping[str, Any]
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Returns the rows of `result` and of `longest` that time TVM, none that the other failed on.

    What `result` has not measured, such as a size on as many threads, has no row before.
    """
    parts = (result["rows"], longest(result, longer))
    before, rows = ([row for row in rows if TUNED in row["paths"]] for rows in parts)
    failed = {_key(row) for row in result["rows"]} - {_key(row) for row in before}
    rows = [row for row in rows if _key(row) not in failed]
    both = {_key(row) for row in rows}
    return [row for row in before if _key(row) in both], rows


def _key(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["workload"], row["threads"]


def _means(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [mean for mean in geomeans(rows, references=(TUNED,)) if mean["group"] == "all"]
