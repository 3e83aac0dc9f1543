"""How fast the machine of the rows beside TVM could be: bytes or multiply-adds at its best rates.

Who stands at a floor cannot be beaten by much. So the ratio that a program at every floor would
have to tuned TVM says how much any search could win there, and what of it ours did.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.evidence.ceilings import Ceilings, floor_us, measure_ceilings, pooled
from kt_lab.evidence.dojo_published import complete
from kt_lab.evidence.geomeans import geomean_interval
from kt_lab.evidence.markdown import folded, grid
from kt_lab.evidence.playing import sized
from kt_lab.evidence.resuming import Rows
from kt_lab.evidence.tvm_paths import TUNED
from kt_lab.evidence.visits import waits
from kt_lab.landscape import data_directory
from kt_lab.plots.captions import counted
from kt_lab.programs.operators import get_operator
from kt_lab.provenance import provenance
from kt_lab.runners.c import Protocol, find_toolchain
from kt_lab.stats.intervals import Interval

_NEAR = 0.9  # of the floor's rate: who is there is counted as at it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds whose workloads, and the effort."""
    parser.add_argument("--of", default="tvm-zen4", help="stored result beside TVM, of this CPU")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--turns", type=int, default=3, help="the highest rate of them counts")
    parser.add_argument("--rounds", type=int, default=30, help="batches of a program")
    parser.add_argument("--batch-us", type=float, default=200.0, help="a batch takes at least")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures the ceilings that are not stored yet, for as many bytes as each workload moves."""
    stored = json.loads((data_directory() / "evidence" / f"{args.of}.json").read_text())
    here = provenance()
    if (cpu := stored["provenance"]["cpu"]) != here["cpu"]:
        raise UsageError(
            f"floors must be measured on the CPU of the rows, {cpu}, got {here['cpu']}; name the "
            "stored result of this CPU with --of"
        )
    facts = {"of": args.of, "rounds": args.rounds, "batch_us": args.batch_us}
    rows = Rows(args.out, facts | {"compiler": find_toolchain().version}, here, again=False)
    protocol = Protocol(samples=args.rounds, batch_us=args.batch_us)
    for turn in range(args.turns):
        for size in sorted({_bytes(row) for row in stored["rows"]}):
            for threads in args.threads:
                key = {"bytes": size, "threads": threads, "turn": turn}
                asked = {"threads": threads, "protocol": protocol, "waits": waits(threads)}
                rows.once(key, lambda s=size, a=asked: asdict(measure_ceilings(s, **a)))
    return rows.result


def _bytes(row: Mapping[str, Any]) -> int:
    extents = sized(row["operator"], row["size"]).extents
    return get_operator(row["operator"]).bytes_moved(dict(extents))


def floors_table(beside: Mapping[str, Any], floors: Mapping[str, Any]) -> pd.DataFrame:
    """Returns floors and ratios, one row per row beside TVM that has all of them.

    Args:
        beside: Of `kt-lab evidence tvm`, stored.
        floors: Of `kt-lab evidence tvm_floors` on the same CPU.

    Returns:
        workload, kernel (the operator), size, threads; floor_us by the highest ceilings of any
        turn, for as many threads or fewer, and floor_by ("copy", "read" or "flops"); best_us and
        tuned_us; best_share and tuned_share of the floor's rate, < 1 unless the floor was beaten;
        floor_ratio, floor / tuned TVM, and best_ratio.
    """
    names = Ceilings.__dataclass_fields__
    known = [Ceilings(**{name: row[name] for name in names}) for row in floors["rows"]]
    found = []
    for row in beside["rows"]:
        paths, size, threads = row["paths"], _bytes(row), row["threads"]
        own = [each for each in known if (each.bytes, each.threads) == (size, threads)]
        able = [replace(each, threads=threads) for each in known if each.threads <= threads]
        if not own or not {"best", TUNED} <= paths.keys():
            continue
        extents = dict(sized(row["operator"], row["size"]).extents)
        us, by = floor_us(get_operator(row["operator"]), extents, pooled(own[0], able))
        best_us, tuned_us = (paths[name]["min_us"] for name in ("best", TUNED))
        found.append(
            {name: row[name] for name in ("workload", "size", "threads")}
            | {"kernel": row["operator"], "floor_us": us, "floor_by": by}
            | {"best_us": best_us, "tuned_us": tuned_us}
            | {"best_share": us / best_us, "tuned_share": us / tuned_us}
            | {"floor_ratio": us / tuned_us, "best_ratio": best_us / tuned_us}
        )
    return pd.DataFrame(found)


def with_floors(beside: Mapping[str, Any], floors: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what stood beside TVM with `floor_us` and `floor_by` in each row, and no others."""
    table = floors_table(beside, floors).set_index(["workload", "threads"])
    rows = [
        row | table.loc[key, ["floor_us", "floor_by"]].to_dict()
        for row in beside["rows"]
        if (key := (row["workload"], row["threads"])) in table.index
    ]
    return dict(beside) | {"rows": rows}


def floor_lines(beside: Mapping[str, Any], floors: Mapping[str, Any]) -> str:
    """Returns what RESULTS.md tells of the floors: means of whole sizes, and every row."""
    table = floors_table(complete(beside), floors)
    turns = 1 + max(row["turn"] for row in floors["rows"])
    said = (
        f"How much there is to win on that CPU, {floors['provenance']['cpu']}: the floor of a "
        "workload is its bytes at the bandwidth, or its arithmetic at the rate of multiply-adds, "
        "whichever takes longer, that programs of the dojo were measured to reach there "
        f"(`kt-lab evidence --out data/evidence/{floors['of']}-floors.json tvm_floors --of "
        f"{floors['of']}`, the highest of {counted(turns, 'turn')}). It is a reference that a "
        "program may beat, and knows nothing of what an exponential or a division takes. "
    )
    told = [_mean(part, threads) for threads, part in table.groupby("threads")]
    return "\n\n".join([said + " ".join(told), _all(table)])


def _mean(table: pd.DataFrame, threads: int) -> str:
    """Tells what stands at the floors of rows of one number of threads."""
    groups = _groups(table)

    def mean(part: pd.DataFrame, column: str) -> Interval:
        return geomean_interval(part, column=column)

    least, shares = [], []
    for name, part in groups:
        floor, best = mean(part, "floor_ratio"), mean(part, "best_ratio")
        bounds = f"[{floor.low:.2f}, {floor.high:.2f}]"
        least.append(f"{name} {floor.estimate:.2f} {bounds} (`best` {best.estimate:.2f})")
        ours, theirs = mean(part, "best_share"), mean(part, "tuned_share")
        shares.append(f"{name} {ours.estimate:.0%} and {theirs.estimate:.0%}")
    there = int((table["tuned_share"] >= _NEAR).sum())
    return (
        f"On {counted(threads, 'thread')} a program at every floor would take of tuned TVM's "
        f"time: {'; '.join(least)}. `best` and tuned TVM reach of the floors' rates: "
        f"{'; '.join(shares)}; tuned TVM {_NEAR:.0%} and more on {there} of {len(table)}."
    )


def _groups(table: pd.DataFrame) -> Sequence[tuple[str, pd.DataFrame]]:
    """Returns the rows of each size, and of both where there are as many of each."""
    parts = [(f"{size} size", part) for size, part in table.groupby("size", sort=False)]
    same = len(parts) > 1 and len({len(part) for _, part in parts}) == 1
    return [*parts, ("both sizes", table)] if same else parts


def _all(table: pd.DataFrame) -> str:
    heads = ["workload", "threads", "floor", "by", "best", "TVM tuned", "best's share"]
    heads += ["TVM's share", "floor / TVM tuned", "best / TVM tuned"]
    numbers = ("floor_us", "floor_by", "best_us", "tuned_us")
    shares = {"best_share": ".0%", "tuned_share": ".0%", "floor_ratio": ".2f", "best_ratio": ".2f"}
    rows = []
    for row in table.to_dict("records"):
        cells = [f"`{row['workload']}`", str(row["threads"])]
        cells += [row[n] if n == "floor_by" else f"{row[n]:.4g}" for n in numbers]
        rows.append(cells + [format(row[name], form) for name, form in shares.items()])
    return folded(f"Microseconds and shares of the floor, {len(rows)} rows", grid(heads, rows))


def report(result: Mapping[str, Any]) -> str:
    """Returns the ceilings for people, and what they make of the rows beside TVM."""
    path = data_directory() / "evidence" / f"{result['of']}.json"
    lines = []
    for row in result["rows"]:
        about = (
            f"{row['bytes']:>12,} bytes, {counted(row['threads'], 'thread')}, turn {row['turn']}"
        )
        rates = f"copy {row['copy_gb_s']:.1f} GB/s, read {row['read_gb_s']:.1f} GB/s"
        lines.append(f"{about}: {rates}, {row['gflop_s']:.1f} GFLOP/s")
    return "\n".join([*lines, "", floor_lines(json.loads(path.read_text()), result)])
