"""Rows of RESULTS.md's table of evidence: claim, what was measured, command."""

from collections.abc import Mapping, Sequence
from typing import Any

from kt_lab.evidence import flush as flushes
from kt_lab.evidence import record_scaling as recordings
from kt_lab.evidence.cold import KERNELS as HELD_OUT
from kt_lab.evidence.geomeans import geomean_interval
from kt_lab.evidence.scaling import table as scaling_table
from kt_lab.evidence.sizes import table_of as sizes_table
from kt_lab.evidence.triton_programs import ratios
from kt_lab.evidence.warm_live import MODES
from kt_lab.evidence.warm_tables import beside
from kt_lab.plots.captions import listed
from kt_lab.plots.style import searcher_style, style_order

Row = tuple[str, str, str]
_NAMES = {
    "default": "the schedule untuned",
    "eager": "PyTorch eager",
    "compiled": "torch.compile",
    "autotuned": "torch.compile, max-autotune",
}
_LONG = (400, 2000)  # trials that long searches of widened spaces are told at


def warm(result: Mapping[str, Any]) -> Row:
    """Returns what knowing other workloads gains, and what wrong knowledge costs."""
    after, wrong = (
        next(r for r in result["compared"] if r["mode"] == mode and r["budget"] == budget)
        for mode, budget in (("shapes", 5), ("misled", 100))
    )
    kernels = len({row["kernel"] for row in result["rows"] if row["mode"] == "shapes"})
    return (
        f"`{result['searcher']}` that knows the kernel's other shapes beside itself cold, "
        f"{kernels} kernels, {result['seeds']} seeds",
        f"latency after 5 evaluations {after['ratio']:.3f} ({after['low']:.3f} to "
        f"{after['high']:.3f}); after 100 with knowledge that is wrong {wrong['ratio']:.3f} "
        f"({wrong['low']:.3f} to {wrong['high']:.3f})",
        f"evidence warm --seeds {result['seeds']}",
    )


def near(result: Mapping[str, Any]) -> Row:
    """Returns what short runs at the shapes nearby add: latency over the optimum."""
    told = [_nearby(result["rows"], kernels, result["budgets"]) for kernels in (HELD_OUT, None)]
    wrong = next(
        r for r in result["compared"] if r["mode"] == "near_misled" and r["budget"] == 100
    )
    return (
        f"`{result['searcher']}` cold, with recordings of other shapes, and with these and short "
        f"runs at the four shapes nearest, {result['seeds']} seeds",
        f"latency / optimum on {told[0]}; on {told[1]}; with all that upside down "
        f"{wrong['ratio']:.3f} ({wrong['low']:.3f} to {wrong['high']:.3f}) times cold after 100",
        f"evidence warm --seeds {result['seeds']}",
    )


def _nearby(rows: Sequence[Mapping[str, Any]], kernels: Sequence[str] | None, budgets) -> str:
    own = [row for row in rows if kernels is None or row["kernel"] in kernels]
    told = {row["mode"]: row for row in beside(own, "near")}
    at = [budgets.index(budget) for budget in (5, 25)]
    first, later = (
        ", ".join(f"{told[m]['geomean'][n]:.3f}" for m in ("cold", "shapes", "near")) for n in at
    )
    number = len({row["kernel"] for row in own if row["mode"] == "near"})
    whose = f"the {number} kernels that it was not designed on" if kernels else f"all {number}"
    return (
        f"{told['near']['landscapes']} workloads of {whose} after 5 evaluations {first}, "
        f"after 25 {later}, then the worst workload {told['near']['worst'][at[1]]:.2f}"
    )


def warm_live(result: Mapping[str, Any]) -> Row:
    """Returns what is known helps live, on shapes that nobody recorded: over the race's best."""
    told = {(mean["known"], mean["budget"]): mean for mean in result["means"]}
    parts = []
    for budget in (5, 25):
        means = [told[mode, budget] for mode in MODES]
        reached = ", ".join(f"{mean['to_best']:.3f} (worst {mean['worst']:.2f})" for mean in means)
        last = means[-1]
        parts.append(
            f"after {budget} evaluations {reached}, the last over the first {last['ratio']:.3f} "
            f"({last['low']:.3f} to {last['high']:.3f})"
        )
    return (
        f"`{result['searcher']}` live on {len(result['rows'])} shapes of as many kernels that "
        f"nobody recorded or searched, {result['rows'][0]['gpu']}, {result['seeds']} seeds: cold, "
        "with recordings of other shapes, and with runs nearby too",
        f"latency over the fastest config of the final race {'; '.join(parts)}",
        f"evidence warm_live --long {result['long']} --rounds {result['rounds']}",
    )


def storage(result: Mapping[str, Any]) -> Row:
    """Returns what faults did to stored runs."""
    rows = result["rows"]
    total = {name: sum(row[name] for row in rows) for name in ("times", "struck", "same", "fits")}
    harm = ", ".join(
        f"{sum(row[name] for row in rows)} {name}" for name in ("lost", "doubled", "corrupted")
    )
    return (
        f"{len(rows)} kinds of fault in a store that processes share, {total['times']} times",
        f"{total['struck']} struck before the end; {total['same']} tables as if nothing had "
        f"happened, {total['fits']} times the right message; runs: {harm}",
        "evidence storage",
    )


def sizes(result: Mapping[str, Any], *, budget: int = 50) -> Row:
    """Returns what searchers lose in a space whose added axes hold nothing better."""
    table = sizes_table(result)
    table = table[table["budget"] == budget]
    ends = table["configs"].min(), table["configs"].max()
    small, large = (table[table["configs"] == size] for size in ends)
    before, after = (part.set_index("searcher")["ratio"] for part in (small, large))
    told = [
        f"{searcher_style(name).label} {before[name]:.3f} to {after[name]:.3f}"
        for name in style_order(before.index)
    ]
    return (
        f"{table['workload'].iloc[0]} searched in {large['configs'].iloc[0]:,} configs instead of "
        f"{small['configs'].iloc[0]:,} whose best is {small['best'].iloc[0]:.3f} of theirs, "
        f"{table['seeds'].iloc[0]} seeds",
        f"latency / optimum after {budget} trials: {', '.join(told)}",
        f"evidence sizes --seeds {result['seeds']}",
    )


def drawn(found: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Returns the rows of what was partly drawn: spaces made wide, and regions that fail."""
    wide = [widened(found[name]) for name in ("widened", "widened-long")]
    return [*wide, refused(found["refused"])]


def widened(result: Mapping[str, Any]) -> Row:
    """Returns what the flagship's latency is of a peer's, and of its own otherwise."""
    own = {
        "as before": "its defaults before",
        "one epoch": "itself never begun anew",
        "one epoch, like parents": "itself never begun anew and from the best alone",
        "starts anywhere": "itself with starts from all of the space",
        "scales anywhere": "itself with scales drawn whole",
        "extreme starts": "itself with starts further apart",
        "shapes at will": "itself with no choice kept for new tiles and warps",
    }
    budgets = (50, 100) if result["trials"] < _LONG[0] else _LONG
    return (
        f"`scout` in {len(result['rows'])} spaces that cannot be listed, {_kernels(result)} "
        f"recorded kernels times 16 to 19 parameters with drawn costs, {result['seeds']} seeds",
        _over_others(result, own, budgets),
        "evidence widened" if budgets is not _LONG else _long_widened(result),
    )


def refused(result: Mapping[str, Any]) -> Row:
    """Returns the same where a drawn region of every landscape fails."""
    shares = sorted(row["failed"] / row["configs"] for row in result["rows"])
    own = {
        "failures slow": "itself before, with failures counted as slow",
        "failures typical": "itself with failures counted as the median",
    }
    return (
        f"`scout` on {len(result['rows'])} landscapes of {_kernels(result)} recorded kernels of "
        f"which a drawn region fails ({shares[0]:.0%} to {shares[-1]:.0%} of all configs), "
        f"{result['seeds']} seeds",
        _over_others(result, own, (25, 50, 100, 200)),
        "evidence refused",
    )


def _kernels(result: Mapping[str, Any]) -> int:
    return len({row["kernel"] for row in result["rows"]})


def _over_others(result: Mapping[str, Any], own: Mapping[str, str], budgets: Sequence) -> str:
    """Returns the flagship's latency over that of peers, and of its variants by `own` words."""
    told: dict[str, list[str]] = {}
    for row in result["paired"]:
        peer = row["says"] == "a peer"
        differs = row["low"] < row["high"]  # else it is the same search: no epoch had ended
        if row["budget"] in budgets and differs and (peer or row["variant"] in own):
            name = searcher_style(row["variant"]).label if peer else own[row["variant"]]
            ends = f"{1 / row['high']:.2f} to {1 / row['low']:.2f}"
            told.setdefault(name, []).append(f"{1 / row['ratio']:.2f} ({ends})")
    each = ", ".join(f"{name} {listed(each)}" for name, each in told.items())
    return f"latency over that of others after {listed(map(str, budgets))} trials: {each}"


def _long_widened(result: Mapping[str, Any]) -> str:
    variants = " ".join(f'"{name}"' if " " in name else name for name in result["variants"])
    return (
        "evidence --out data/evidence/widened-long.json widened "
        f"--trials {result['trials']} --seeds {result['seeds']} --variants {variants}"
    )


def fuzzing(result: Mapping[str, Any]) -> Row:
    """Returns how many mutated inputs the parsers withstand."""
    rows = result["rows"]
    crashes = sum(found["count"] for row in rows for found in row["findings"])
    return (
        f"{len(rows)} parsers, {result['inputs_each']:,} mutated inputs each",
        f"{crashes} crashes or hangs; {sum(row['parsed'] for row in rows):,} inputs were read, "
        "the others refused with an error that says why",
        "evidence fuzzing",
    )


def scaling(result: Mapping[str, Any]) -> Row:
    """Returns how replay gains from processes and from Dask's workers."""
    found = scaling_table(result["rows"])
    found = found[found["workers"] == found["workers"].max()]
    told = [f"{row.way} {row.speedup:.2f} ({row.efficiency:.0%})" for row in found.itertuples()]
    return (
        f"speed-up of replay on {int(found['workers'].iloc[0])} workers, {result['runs']:,} runs",
        f"{', '.join(told)}; {'all' if found['same'].all() else 'NOT all'} results the same",
        "evidence scaling",
    )


def record_scaling(result: Mapping[str, Any]) -> Row:
    """Returns how recordings gain from several GPUs."""
    found = recordings.table(result["rows"])
    told = [
        f"{row.speedup:.2f} on {row.gpus} ({row.efficiency:.0%}) of {row.configs:,} configs with "
        f"{row.each} compile processes each, {row.whole:.2f} with the start-up"
        for row in found.itertuples()
        if row.gpus > found["gpus"].min()
    ]
    least = min(row["spearman"] for row in result["agreement"])
    return (
        f"speed-up of recording {result['workload']} on several {found['gpu'].iloc[0].upper()}",
        f"{'; '.join(told)}; Spearman with one GPU's {least:.4f}",
        "evidence record_scaling",
    )


def flush(result: Mapping[str, Any]) -> Row:
    """Returns what a flush by writing leaves in the L2."""
    wide = flushes.ratios(result).pivot(
        index=["workload", "hint"], columns="way", values="latency_us"
    )
    left = wide["written"] / wide["copies"]
    polluted = wide["polluted"] / wide["written"]
    workloads = wide.index.get_level_values("workload").nunique()
    return (
        f"{workloads} workloads after a flush by writing, with and without `evict_last`, "
        f"{result['gpu'].upper()}: latency over",
        f"that on copies never in the L2 {left.median():.3f} ({left.min():.3f} to "
        f"{left.max():.3f}); launches with the other hint before, over none "
        f"{polluted.min():.3f} to {polluted.max():.3f}",
        "evidence flush",
    )


def triton(result: Mapping[str, Any]) -> Row:
    """Returns how programs of the dojo do as Triton kernels."""
    table, told = ratios(result), []
    for reference, part in table.groupby("reference", sort=False):
        mean, lost = geomean_interval(part), part[part["low"] > 1]
        told.append(
            f"{_NAMES[reference]} {mean.estimate:.2f} ({mean.low:.2f} to {mean.high:.2f}), slower "
            f"at {len(lost)}"
        )
    operators = table["kernel"].nunique()
    return (
        f"programs of the dojo as Triton kernels, {operators} operators, "
        f"{table['workload'].nunique()} workloads, {result['gpu']}: latency over",
        "; ".join(told),
        "evidence triton_programs",
    )
