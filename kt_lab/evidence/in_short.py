"""The README's first findings, a table each, written from what is stored in data/evidence."""

import json
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pandas as pd

from kt_lab.evidence.cold import FLAGSHIP
from kt_lab.evidence.dojo_published import complete
from kt_lab.evidence.dojo_tables import cpus_of
from kt_lab.evidence.dojo_tables import means as geomeans
from kt_lab.evidence.geomeans import geomean_interval
from kt_lab.evidence.helion_field_tables import (
    AS_LONG,
    DEFAULT,
    REFERENCE,
    field_ratios,
    on_one_machine,
)
from kt_lab.evidence.large_tables import large_table, shown
from kt_lab.evidence.live_tables import TIMERS, live_table
from kt_lab.evidence.markdown import grid
from kt_lab.evidence.tvm import ENOUGH
from kt_lab.evidence.tvm_longer import longer_means
from kt_lab.evidence.tvm_paths import TUNED
from kt_lab.evidence.warm_live import MODES
from kt_lab.landscape import data_directory
from kt_lab.plots.captions import listed
from kt_lab.plots.style import searcher_style
from kt_lab.stats.ratios import LATENCY, WALL_CLOCK

BEGIN = "<!-- short -->"
END = "<!-- /short -->"
_BUDGETS = (25, 50, 100, 200)
_SLOWER = 1.01  # ratio from which a kernel counts as slower at full effort
_COMPARED = (FLAGSHIP, "tpe", "helion_lfbo_tree", "random")


def block(directory: Path | None = None) -> str:
    """Returns the findings as Markdown.

    Args:
        directory: Folder of the stored results; None: data/evidence.
    """
    names = ("cold", "cold-unseen", "cold-captured", "warm_live", "live", "large", "large-judged")
    names += ("helion_field", "helion_field-h100", "tvm", "tvm-xeon", "tvm-256")
    names += ("tvm-zen4", "tvm-zen4-256", "tvm-zen2", "tvm-zen2-256")
    folder = directory or data_directory() / "evidence"
    stored = {name: json.loads((folder / f"{name}.json").read_text()) for name in names}
    parts = [
        _cold(*(stored[name] for name in names[:3])),
        _warm(stored["warm_live"]),
        _helion(stored),
        _programs(stored),
    ]
    return "\n\n".join(parts)


def _cold(
    result: Mapping[str, Any], unseen: Mapping[str, Any], captured: Mapping[str, Any]
) -> str:
    kinds = {"": result, "since: ": unseen, "captured: ": captured}
    rows = [
        [f"{kind}{_extent(of)}" if name == FLAGSHIP else "", _label(name), *_told(of, name)]
        for kind, of in kinds.items()
        for name in _COMPARED
    ]
    heads = ["on", "latency / optimum after", *(f"{b} trials" for b in _BUDGETS)]
    return (
        f"**From nothing.** `{FLAGSHIP}` tunes unless another searcher is named. It was not "
        "designed on these kernels. Two of its defaults were chosen when it was known that they "
        "help on the first eight; *since* were recorded when all of it was set; *captured* are "
        "kernels of other kinds, from a convolution to a selective scan, brought and recorded as "
        "users bring their own. inf: some run had found nothing yet that works:\n\n"
    ) + grid(heads, rows)


def _told(result: Mapping[str, Any], name: str) -> list[str]:
    means = {(m["searcher"], m["budget"]): m["estimate"] for m in result["means"]}
    return [f"{means[name, budget]:.3f}" for budget in _BUDGETS]


def _extent(result: Mapping[str, Any]) -> str:
    count = len({row["kernel"] for row in result["rows"]})
    return f"{len(result['rows'])} workloads of {count} kernels"


def _warm(result: Mapping[str, Any]) -> str:
    means = {(mean["known"], mean["budget"]): mean["to_best"] for mean in result["means"]}
    cold, warm = means[MODES[0], 5] - 1, means[MODES[-1], 5] - 1
    return (
        f"**From what is known of other shapes.** Live on {len(result['rows'])} kernels at shapes "
        "that nobody had recorded or searched, its first five trials end "
        f"{warm:.1%} above the fastest config that any of its searches found, {cold:.1%} without "
        "that knowledge."
    )


# -- beside Helion --------------------------------------------------------------------------------


def _helion(stored: Mapping[str, Mapping[str, Any]]) -> str:
    live, timer = stored["live"], TIMERS[0]
    table = live_table(live)
    seconds = geomean_interval(table, column="wall_ratio")
    latency = _span(*astuple(geomean_interval(table, column=f"{timer}_ratio")))
    effort, day = live["steps"][0]["effort"], live["provenance"]["utc"][:10]
    lost = int((table[f"{timer}_ratio"] > 1).sum())
    apart = f"{effort} effort, each on kernels of its own ({day})"
    after = f"{seconds.estimate:.2f} of its wall-clock"
    rows = [[apart, after, str(len(table)), latency, str(lost)]]
    own = [large_table(stored[name]) for name in ("large", "large-judged")]
    every = pd.concat([found[found["run"] == FLAGSHIP] for found in own])
    for after, column in (("as many seconds", "equal_ratio"), ("as many configs", "end_ratio")):
        ratios = every[column].dropna().tolist()
        mean = f"{geometric_mean(ratios):.2f}, by kernel {min(ratios):.3f} to {max(ratios):.3f}"
        slower = f"{sum(r > 1 for r in ratios) or 'none'} ({shown(every, column)})"
        about = "its LFBO tree search at quick effort, in Helion's spaces"
        rows.append([about, after, str(len(ratios)), mean, slower])
    h200, h100 = stored["helion_field"], stored["helion_field-h100"]
    for result in (h200, h100):
        rows += _full(result, REFERENCE, "", AS_LONG)
    rows += _full(h200, DEFAULT, ", several hosts", FLAGSHIP, AS_LONG)
    rows += _full(on_one_machine(h200), DEFAULT, ", the same host and GPU", AS_LONG)
    return (
        f"**Beside Helion's autotuner**, live, by {timer}; full effort and {_label(DEFAULT)} are "
        "its defaults:\n\n"
    ) + grid(["beside Helion's", "after", "kernels", "latency over its", "slower"], rows)


def _full(result: Mapping[str, Any], reference: str, where: str, *names: str) -> list[list[str]]:
    """Returns rows on the flagship over a search of Helion's at full effort, if that ran."""
    tables = field_ratios(result, effort="full", timer=TIMERS[0], reference=reference)
    found = []
    for name in names if tables else ():
        own = {key: table[table["searcher"] == name] for key, table in tables.items()}
        means = {key: table[table["scope"] == "geomean"].iloc[0] for key, table in own.items()}
        kernels = own[LATENCY].loc[own[LATENCY]["scope"] == "workload", "estimate"]
        about = f"{_label(reference)} at full effort, {result['gpu']}{where}"
        after = f"{means[WALL_CLOCK]['estimate']:.2f} of its seconds"
        slower = f"{int((kernels > _SLOWER).sum()) or 'none'} by more than {_SLOWER - 1:.0%}"
        ratio = _span(*means[LATENCY][["estimate", "low", "high"]], digits=3)
        found.append([about, after, str(means[LATENCY]["n_kernels"]), ratio, slower])
    return found


def _label(name: str) -> str:
    return searcher_style(name).label


def _span(estimate: float, low: float, high: float, *, digits: int = 2) -> str:
    return f"{estimate:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


# -- programs -------------------------------------------------------------------------------------


def _programs(stored: Mapping[str, Mapping[str, Any]]) -> str:
    first = stored["tvm"]
    rows = [row for name in ("tvm", "tvm-zen4", "tvm-zen2") for row in _timed(stored[name])]
    rows += _longer(stored["tvm-xeon"], stored["tvm-256"])
    rows += _longer(stored["tvm-zen4"], stored["tvm-zen4-256"])
    rows += _longer(stored["tvm-zen2"], stored["tvm-zen2-256"])
    spent = [row["tuning"]["trials"] for row in first["rows"]]
    few = first["trials"] < ENOUGH
    claim = f": {first['trials']} are too few to claim a win over TVM" if few else ""
    heads = ["CPU", "programs each", "size", "threads", "workloads", "time over tuned TVM's"]
    return (
        "**Programs for CPUs**, found by moves that keep the meaning. Each of our "
        f"{len(first['players'])} players measures so many programs of a workload beside the "
        f"expert's one, and TVM's MetaSchedule as many, or all that it knows ({min(spent)} at "
        f"least){claim}. CPUs as LLVM calls them; PyTorch's time contains a call from Python:\n\n"
    ) + grid([*heads, "slower", "over torch.compile's"], rows)


def _timed(result: Mapping[str, Any]) -> list[list[str]]:
    """Returns rows on a result, of sizes that are complete."""
    rows = complete(result)["rows"]
    found = geomeans(rows, references=(TUNED, "compiled"))
    means = {(m["reference"], m["threads"]): m for m in found if m["group"] == "all"}
    told = []
    for threads in sorted({row["threads"] for row in rows}):
        sizes = dict.fromkeys(row["size"] for row in rows if row["threads"] == threads)
        mean, compiled = means[TUNED, threads], means["compiled", threads]
        about = [listed(sorted(cpus_of(rows))), str(result["trials"]), " and ".join(sizes)]
        told.append([*about, *_mean_cells(mean), f"{compiled['ratio']:.2f}"])
    return told


def _longer(result: Mapping[str, Any], longer: Mapping[str, Any]) -> list[list[str]]:
    """Returns rows on more trials of sizes that every workload is in; both are of one CPU."""
    cpu = listed(sorted(cpus_of(longer["rows"])))
    return [
        [cpu, f"up to {longer['trials']}", mean["size"], *_mean_cells(mean), ""]
        for mean in longer_means(result, longer)
        if mean["workloads"] == mean["of"]
    ]


def _mean_cells(mean: Mapping[str, Any]) -> list[str]:
    ratio = _span(mean["ratio"], mean["low"], mean["high"])
    counts = [str(mean[name]) for name in ("threads", "workloads")]
    return [*counts, ratio, str(mean["losses"] or "none")]
