"""The README's first findings, a sentence each, written from what is stored in data/evidence."""

import json
from collections.abc import Mapping, Sequence
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
from kt_lab.evidence.markdown import bullets
from kt_lab.evidence.tvm import ENOUGH
from kt_lab.evidence.tvm_longer import longer_means
from kt_lab.evidence.tvm_paths import TUNED
from kt_lab.evidence.warm_live import MODES
from kt_lab.landscape import data_directory
from kt_lab.plots.captions import counted, listed
from kt_lab.plots.style import searcher_style
from kt_lab.stats.ratios import LATENCY, WALL_CLOCK

BEGIN = "<!-- short -->"
END = "<!-- /short -->"
_BUDGETS = (25, 50, 100)
_ALL = (*_BUDGETS, 200)
_SLOWER = 1.01  # ratio from which a kernel counts as slower at full effort
_COMPARED = ("tpe", "helion_lfbo_tree", "random")


def block(directory: Path | None = None) -> str:
    """Returns the findings as Markdown.

    Args:
        directory: Folder of the stored results; None: data/evidence.
    """
    names = ("cold", "cold-unseen", "warm_live", "live", "large", "large-judged")
    names += ("helion_field", "helion_field-h100", "tvm", "tvm-xeon", "tvm-256")
    names += ("tvm-zen4", "tvm-zen4-256", "tvm-zen2")
    folder = directory or data_directory() / "evidence"
    stored = {name: json.loads((folder / f"{name}.json").read_text()) for name in names}
    return bullets(
        [
            _cold(stored["cold"], stored["cold-unseen"]),
            _warm(stored["warm_live"]),
            _helion(stored["live"], stored["large"], stored["large-judged"])
            + _full(stored["helion_field"], stored["helion_field-h100"]),
            _programs(stored["tvm"])
            + _longer(stored["tvm-xeon"], stored["tvm-256"])
            + _longer(stored["tvm-zen4"], stored["tvm-zen4-256"])
            + _narrow(stored["tvm-zen2"]),
        ]
    )


def _cold(result: Mapping[str, Any], unseen: Mapping[str, Any]) -> str:
    others = "; ".join(f"{searcher_style(name).label} {_told(result, name)}" for name in _COMPARED)
    since = "; ".join(
        f"{searcher_style(name).label} {_told(unseen, name, _ALL)}"
        for name in (FLAGSHIP, *_COMPARED)
    )
    return (
        f"**From nothing.** `{FLAGSHIP}`, which tunes unless another searcher is named, stands at "
        f"{_told(result, FLAGSHIP)} times the optimum after {listed(map(str, _BUDGETS))} "
        f"evaluations, on {_extent(result)} that it was not designed on (but two of its defaults "
        f"were chosen when it was known that they help there). {others}. On "
        f"{_extent(unseen)} that were recorded when all of it was set, after "
        f"{listed(map(str, _ALL))}: {since}."
    )


def _told(result: Mapping[str, Any], name: str, budgets: Sequence[int] = _BUDGETS) -> str:
    means = {(m["searcher"], m["budget"]): m["estimate"] for m in result["means"]}
    return ", ".join(f"{means[name, budget]:.3f}" for budget in budgets)


def _extent(result: Mapping[str, Any]) -> str:
    count = len({row["kernel"] for row in result["rows"]})
    return f"{len(result['rows'])} workloads of {count} kernels"


def _warm(result: Mapping[str, Any]) -> str:
    means = {(mean["known"], mean["budget"]): mean["to_best"] for mean in result["means"]}
    cold, warm = means[MODES[0], 5] - 1, means[MODES[-1], 5] - 1
    return (
        f"**From what is known of other shapes.** Live on {len(result['rows'])} kernels at shapes "
        "that nobody had recorded or searched, its first five evaluations end "
        f"{warm:.1%} above the fastest config that any of its searches found, {cold:.1%} without "
        "that knowledge."
    )


def _helion(live: Mapping[str, Any], *spaces: Mapping[str, Any]) -> str:
    table, timer = live_table(live), TIMERS[0]
    seconds = geomean_interval(table, column="wall_ratio")
    latency = geomean_interval(table, column=f"{timer}_ratio")
    lost = int((table[f"{timer}_ratio"] > 1).sum())
    own = [large_table(result) for result in spaces]
    every = pd.concat([found[found["run"] == FLAGSHIP] for found in own])
    shares, ends = (every[column].dropna().tolist() for column in ("equal_ratio", "end_ratio"))
    return (
        f"**Beside Helion's autotuner** at {live['steps'][0]['effort']} effort, which is not its "
        "default (full), each on kernels of its own "
        f"({live['provenance']['utc'][:10]}): {seconds.estimate:.2f} of its wall-clock to a "
        f"tuned kernel, {latency.estimate:.2f} ({latency.low:.2f} to {latency.high:.2f}) of its "
        f"latency; {lost} of {len(table)} kernels are slower. In "
        "Helion's own spaces, after as many seconds as its LFBO tree search at quick effort "
        f"(by {timer}): {geometric_mean(shares):.2f} of its latency, by kernel from "
        f"{min(shares):.3f} to {max(shares):.3f}, "
        f"on {len(shares)} kernels, {sum(share > 1 for share in shares) or 'none'} of them "
        f"slower ({shown(every, 'equal_ratio')}); after as many "
        f"configs {geometric_mean(ends):.2f}, from {min(ends):.3f} to {max(ends):.3f}, "
        f"{sum(end > 1 for end in ends) or 'none'} slower ({shown(every, 'end_ratio')})."
    )


def _full(*fields: Mapping[str, Any]) -> str:
    """Words the latencies of the flagship after the seconds of Helion's search at full effort."""
    told = []
    for result in fields:
        table = field_ratios(result, effort="full", timer=TIMERS[0])[LATENCY]
        table = table[table["searcher"] == AS_LONG]
        mean = table[table["scope"] == "geomean"].iloc[0]
        slower = int((table.loc[table["scope"] == "workload", "estimate"] > _SLOWER).sum())
        told.append(
            f"{mean['estimate']:.3f} ({mean['low']:.3f} to {mean['high']:.3f}) on "
            f"{mean['n_kernels']} kernels ({result['gpu']}; {slower or 'none'} more than "
            f"{_SLOWER - 1:.0%} slower)"
        )
    reference = searcher_style(REFERENCE).label
    return (
        f" Its latency over {reference}'s at full effort, after as many seconds: "
        f"{', '.join(told)}."
    ) + "".join(map(_over_default, fields))


def _over_default(result: Mapping[str, Any]) -> str:
    """Words the flagship over Helion's default at full effort; nothing where that did not run."""
    told = _at_default(result, FLAGSHIP, AS_LONG)
    if not told:
        return ""
    again = _at_default(on_one_machine(result), AS_LONG)
    same = f"; of runs that shared machine and GPU {again}" if again else ""
    return (
        f" Over {searcher_style(DEFAULT).label}'s, Helion's default, at full effort "
        f"({result['gpu']}, several hosts): {told}{same}."
    )


def _at_default(result: Mapping[str, Any], *names: str) -> str:
    tables = field_ratios(result, effort="full", timer=TIMERS[0], reference=DEFAULT)
    if not tables:
        return ""
    latency, seconds = (
        table[table["scope"] == "geomean"].set_index("searcher")
        for table in (tables[LATENCY], tables[WALL_CLOCK])
    )
    told = [
        f"{row.estimate:.3f} ({row.low:.3f} to {row.high:.3f}) after "
        f"{seconds.loc[row.Index, 'estimate']:.2f} of its seconds"
        for row in latency.loc[list(names)].itertuples()
    ]
    kernels = counted(int(latency.loc[AS_LONG, "n_kernels"]), "kernel")
    return f"{' and '.join(told)} on {kernels}"


def _programs(result: Mapping[str, Any]) -> str:
    means = {
        (mean["reference"], mean["threads"]): mean
        for mean in result["means"]
        if mean["path"] == "best" and mean["group"] == "all"
    }
    told = "; ".join(
        f"{mean['ratio']:.2f} ({mean['low']:.2f} to {mean['high']:.2f}) of tuned TVM's time and "
        f"{means['compiled', threads]['ratio']:.2f} of torch.compile's on "
        f"{counted(threads, 'thread')}, {mean['losses']} of {mean['workloads']} workloads slower "
        "than TVM's"
        for (reference, threads), mean in means.items()
        if reference == TUNED
    )
    trials = result["trials"]
    claim = "" if trials >= ENOUGH else ", too few to claim a win over TVM"
    spent = [row["tuning"]["trials"] for row in result["rows"]]
    return (
        "**Programs for CPUs**, found by moves that keep the meaning: the best take "
        f"{told}; PyTorch's time contains a call from Python. Each of our "
        f"{len(result['players'])} players measured {trials} programs of a "
        f"workload beside the expert's one, TVM's MetaSchedule {min(spent)} to {max(spent)}, all "
        f"that it knows where that is fewer{claim}."
    )


def _longer(result: Mapping[str, Any], longer: Mapping[str, Any]) -> str:
    """Words the means of more trials that every workload of a size is in; "" if there are none.

    Both results are of one CPU, and no claim is made beyond it.
    """
    told = [
        f"{mean['ratio']:.2f} ({mean['low']:.2f} to {mean['high']:.2f}) of tuned TVM's time on "
        f"the {mean['of']} workloads of {mean['size']} size on "
        f"{counted(mean['threads'], 'thread')}, {mean['losses']} of them slower"
        for mean in longer_means(result, longer)
        if mean["workloads"] == mean["of"]
    ]
    cpu = longer["provenance"]["cpu"]
    said = f" With up to {longer['trials']} programs each, on one CPU ({cpu}): {'; '.join(told)}."
    return said if told else ""


def _narrow(result: Mapping[str, Any]) -> str:
    """Words the means on a CPU whose vectors are half as long, of sizes that are complete."""
    rows = complete(result)["rows"]
    told = [
        f"{mean['ratio']:.2f} ({mean['low']:.2f} to {mean['high']:.2f}) of tuned TVM's time on "
        f"the {mean['workloads']} workloads of {size} size on {counted(mean['threads'], 'thread')}"
        f", {mean['losses']} of them slower"
        for size in dict.fromkeys(row["size"] for row in rows)
        for mean in geomeans([row for row in rows if row["size"] == size], references=(TUNED,))
        if mean["group"] == "all"
    ]
    names = listed(sorted(cpus_of(rows)))
    return f" On a CPU with AVX2 alone ({names} as LLVM calls it): {'; '.join(told)}."
