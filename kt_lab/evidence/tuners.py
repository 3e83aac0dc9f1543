"""Naive and guarded tuning over many shapes and spaces, again and again, by replay.

Every recorded shape is tuned on each of its lists: the published spaces of the FP8 quantisers,
each of them without its duplicates, and everything that was recorded; of other kernels, lists as
their authors might write them. Seeded; nothing depends on the machine that computes it.
"""

import argparse
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.evidence.families import WIDE, crossed_families
from kt_lab.evidence.repeated import (
    GUARDED,
    NAIVE,
    compare_tuners,
    distinct,
    rate_high,
    repeat_tunings,
    tuner_list,
)
from kt_lab.kernels.moe_spaces import PUBLISHED, published
from kt_lab.landscape import Landscape, LandscapeEntry, data_directory, landscapes
from kt_lab.provenance import provenance
from kt_lab.runners.pool import Pool
from kt_lab.runners.replay import contention_factor
from kt_lab.trial import OK, Config

DISTINCT, FENCED, STORED = ", distinct", "_acq_rel", "repeated.json"
_SIZES = (8, 16, 24, 36, 45)  # of the lists of kernels without published ones
_PER_TUNER = ("agreement", "entropy_bits", "apparent_gain", "confirmed_gain")
_PER_TUNER += ("true_gain", "regressions", "worst", "timing_s")
KEEP, AGREE, RATIO = 0.9, 0.95, 1.5  # what is asked of the guarded tuner
_HELD_OUT = ("agreement", "true_gain", "regressions", "worst")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which shapes, and how often."""
    parser.add_argument("--kernels", nargs="+", help="default: those with published spaces")
    parser.add_argument("--workloads", nargs="+", help="keys; default: all of the kernels")
    parser.add_argument("--gpu", default=None, help="default: every GPU that was recorded")
    parser.add_argument("--repeats", type=int, default=20, help="tunings per list and tuner")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=None, help="default: one per core")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Replays all tunings; returns one line per shape and list, totals, targets, families."""
    entries = _chosen(args)
    whole = data_directory() / "evidence" / STORED  # which others take for every shape
    if (args.kernels or args.workloads) and vars(args).get("out") == whole:
        raise UsageError(f"some shapes' tunings need a file of their own, --out, got {whole}")
    with Pool(args.workers) as pool:
        jobs = [pool.submit(_tuned, e.path, args.repeats, args.seed) for e in entries]
        groups: dict[tuple[str, str], list[Path]] = {}
        for entry in entries:
            groups.setdefault((entry.kernel, entry.gpu), []).append(entry.path)
        crossed = [
            pool.submit(crossed_families, paths, seed=args.seed) for paths in groups.values()
        ]
        rows = pd.DataFrame([row for job in jobs for row in job.result()])
        families = [row for job in crossed for row in job.result()]
    totals = [_short(_total(*group, args.repeats)) for group in _groups(rows)]
    return {
        "repeats": args.repeats,
        "shapes": int(rows.groupby(["workload", "gpu"]).ngroups),
        "totals": totals,
        "targets": {row["lists"]: _targets(row) for row in totals[:2]},
        "table": _lines(rows),
        "families": _lines(pd.DataFrame(families)),
        "provenance": provenance(),
    }


def _chosen(args: argparse.Namespace) -> list[LandscapeEntry]:
    if args.repeats < 1:
        raise UsageError(f"repeated tunings need --repeats >= 1, got {args.repeats}")
    kernels = args.kernels or (None if args.workloads else list(PUBLISHED))
    found = [
        entry
        for entry in landscapes()
        if args.gpu in (None, entry.gpu)
        and (kernels is None or entry.kernel in kernels)
        and (args.workloads is None or entry.workload in args.workloads)
    ]
    if not found:
        known = sorted({entry.kernel for entry in landscapes()})
        raise UsageError(
            f"repeated tunings need recorded shapes, got none of {args.workloads or kernels} on "
            f"{args.gpu or 'any GPU'}; name some with --kernels, recorded: {', '.join(known)}"
        )
    return found


def read_table(lines: Sequence[str]) -> pd.DataFrame:
    """Returns a table of a stored result ("table" or "families")."""
    return pd.read_csv(io.StringIO("\n".join(lines)))


def _short(found: Any) -> Any:
    """Returns numbers of four digits in dicts of dicts."""
    if isinstance(found, dict):
        return {name: _short(value) for name, value in found.items()}
    return float(f"{found:.4g}") if isinstance(found, float) else found


def _lines(table: pd.DataFrame) -> list[str]:
    return table.to_csv(index=False, float_format="%.3g").splitlines()


# -- one shape ------------------------------------------------------------------------------------


def lists_of(landscape: Landscape) -> Iterator[tuple[str, Config, list[Config]]]:
    """Yields name, incumbent and configs of every list that a shape is tuned on.

    Published lists of one config are left out, and what was not recorded. A list with the fenced
    atomics of before has the incumbent of before.
    """
    space, at = landscape.space, landscape.table.index.to_numpy()
    recorded = dict.fromkeys(space.configs(space.enumerate()[at]))
    own = space.default
    given: dict[str, tuple[Config, list[Config]]] = {}
    if landscape.kernel in PUBLISHED:
        for name in PUBLISHED[landscape.kernel]:
            fenced = FENCED if name.endswith(FENCED) else ""
            (incumbent,) = published(landscape.kernel, f"original{fenced}")
            listed = [c for c in published(landscape.kernel, name) if c in recorded]
            given[name] = (incumbent, listed)
    else:
        for size in _SIZES:
            given[f"author {size}"] = (own, tuner_list(landscape, size, seed=size))
    for name, (incumbent, listed) in given.items():
        if len(listed) > 1:
            yield name, incumbent, listed
            ran = sum(landscape.status[landscape.index(c)] == OK for c in listed)
            first = [incumbent] if incumbent in listed else []
            fewer = distinct(landscape, dict.fromkeys([*first, *listed]))
            if len(fewer) < ran:
                yield name + DISTINCT, incumbent, fewer
    yield WIDE, own, list(dict.fromkeys([own, *recorded]))


def cold_cost(
    landscape: Landscape, configs: Sequence[Config], *, incumbent: Config, lanes: int = 16
) -> dict[str, float]:
    """Returns what there is to compile before anything is timed, failures included.

    Args:
        landscape: Of what; its recorded seconds are taken as those of a config compiled alone.
        configs: The list; what one specialisation serves is compiled once.
        incumbent: The single config that it is compared with.
        lanes: Compile processes that work side by side.

    Returns:
        single_compile_s (the incumbent), compile_s (the list, one after the other, as
        `triton.autotune` does it), lanes_compile_s (the list on that many lanes, at best).
    """
    names = ("compile_s", "compile_cpu_s", "compile_workers")
    wall, cpu, workers = (landscape.column(n).astype(float) for n in names)
    by_cpu = landscape.manifest.get("compile_clock") == "cpu"
    slower = contention_factor(None if by_cpu else landscape.manifest.get("contention"))
    alone = wall / np.array([slower(n) for n in workers])
    alone = np.nan_to_num(np.where(np.isfinite(cpu), cpu, wall) if by_cpu else alone)
    made = landscape.column("specialisation", missing="")
    each = {made[at]: float(alone[at]) for at in map(landscape.index, configs)}
    busy = min(lanes, len(each))
    return {
        "single_compile_s": float(alone[landscape.index(incumbent)]),
        "compile_s": sum(each.values()),
        "lanes_compile_s": max(sum(each.values()) / busy, *each.values()) * slower(busy),
    }


def _tuned(path: Path, repeats: int, seed: int) -> list[dict[str, Any]]:
    landscape, rows = Landscape.load(path), []
    for name, incumbent, listed in lists_of(landscape):
        if landscape.status[landscape.index(incumbent)] != OK:
            continue
        given = {"repeats": repeats, "seed": seed, "incumbent": incumbent}
        row = {
            "workload": landscape.workload,
            "gpu": landscape.gpu,
            "list": name,
            "configs": len(listed),
            "programs": len(distinct(landscape, listed)),
            **cold_cost(landscape, listed, incumbent=incumbent),
        }
        for prefix, held_out in (("", False), ("other_", True)):
            if held_out and landscape.visits < 2:
                continue
            found = compare_tuners(repeat_tunings(landscape, listed, held_out=held_out, **given))
            row[f"{prefix}oracle_gain"] = found["oracle_gain"].iloc[0]
            for tuner, told in found.set_index("tuner").iterrows():
                kept = _HELD_OUT if held_out else _PER_TUNER
                row |= {f"{prefix}{tuner}_{column}": told[column] for column in kept}
        rows.append(row)
    return rows


# -- totals and report ----------------------------------------------------------------------------


def _groups(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields lists together: as published, wide, with the incumbent, by size as published."""
    fewer, wide = rows["list"].str.endswith(DISTINCT), rows["list"] == WIDE
    yield "as published", rows[~fewer & ~wide]
    yield WIDE, rows[wide]
    yield "with the incumbent", rows[~fewer & ~wide & rows["naive_apparent_gain"].notna()]
    where = ["workload", "gpu"]
    whole = rows[[*where, "list", "configs"]].set_index([*where, "list"])["configs"]
    base = rows.assign(list=rows["list"].str.removesuffix(DISTINCT))[[*where, "list"]]
    size = whole.reindex(pd.MultiIndex.from_frame(base)).to_numpy()
    fenced = base["list"].str.endswith(FENCED)
    for (count, old, few), group in rows[~wide].groupby(
        [size[~wide], fenced[~wide], fewer[~wide]]
    ):
        yield f"{count}{', fenced' * old}{DISTINCT * few}", group


def _total(name: str, rows: pd.DataFrame, repeats: int) -> dict[str, Any]:
    ratio = rows["guarded_timing_s"] / rows["naive_timing_s"]
    seconds = ("single_compile_s", "compile_s", "lanes_compile_s")
    seconds += ("naive_timing_s", "guarded_timing_s")
    return {
        "lists": name,
        "tuned": len(rows),
        **{t: _judged(rows, t, repeats) | _read(rows, t) for t in (NAIVE, GUARDED)},
        **{f"other_{t}": _judged(rows, f"other_{t}", repeats) for t in (NAIVE, GUARDED)},
        "timing_ratio": {"geomean": math.exp(np.log(ratio).mean()), "most": float(ratio.max())},
        "cold_s": {n: float(rows[n].mean()) for n in seconds},
    }


def _judged(rows: pd.DataFrame, tuner: str, repeats: int) -> dict[str, Any]:
    """Returns what a tuner's picks are worth, over lists; `other_`: on another visit."""
    rows = rows.dropna(subset=f"{tuner}_regressions")
    if rows.empty:
        return {}
    prefix = "other_" if tuner.startswith("other_") else ""
    count, of = int(rows[f"{tuner}_regressions"].sum()), len(rows) * repeats
    lists = int((rows[f"{tuner}_regressions"] > 0).sum())
    oracle = np.log1p(rows[f"{prefix}oracle_gain"]).sum()
    kept = np.log1p(rows[f"{tuner}_true_gain"]).sum()
    return {
        "tunings": of,
        "regressions": count,
        "rate": count / of,
        "rate_high": rate_high(count, of),
        "worst": float(rows[f"{tuner}_worst"].max()),
        "worst_share": 0.05 ** (1 / of),
        "regressing": lists / len(rows),
        "regressing_high": rate_high(lists, len(rows)),
        "kept": float(kept / oracle) if oracle > 0 else None,
        "agreement": float(rows[f"{tuner}_agreement"].mean()),
        "agreeing": float((rows[f"{tuner}_agreement"] >= AGREE).mean()),
    }


def _read(rows: pd.DataFrame, tuner: str) -> dict[str, Any]:
    """Returns what picks gain, and what readings of lists that hold the incumbent promised."""
    rows = rows.dropna(subset=f"{tuner}_regressions")
    of = {"true_gain": rows, "apparent_gain": rows.dropna(subset=f"{NAIVE}_apparent_gain")}
    of |= {"confirmed_gain": rows} if tuner == GUARDED else {}
    means = {n: np.log1p(part[f"{tuner}_{n}"]).mean() for n, part in of.items()}
    entropy = float(rows[f"{tuner}_entropy_bits"].mean())
    return {n: math.expm1(mean) for n, mean in means.items()} | {"entropy_bits": entropy}


def _targets(total: dict[str, Any]) -> dict[str, bool]:
    """Returns whether the guarded tuner does what is asked of it."""
    found = total[GUARDED]
    return {
        "no regression": found["regressions"] == 0,
        f"keeps {KEEP:.0%} of the oracle's gain": found["kept"] is None or found["kept"] >= KEEP,
        f"agrees with itself in {AGREE:.0%}": found["agreement"] >= AGREE,
        f"at most {RATIO} of the naive timing": total["timing_ratio"]["geomean"] <= RATIO,
    }


def report(result: dict[str, Any]) -> str:
    """Returns the findings for people."""
    lines = [f"{result['shapes']} shapes, {result['repeats']} tunings of each list by each tuner"]
    for total in result["totals"]:
        lines.append(
            f"{total['lists']} ({total['tuned']} lists): timing guarded / naive "
            f"{total['timing_ratio']['geomean']:.2f} (most {total['timing_ratio']['most']:.2f})"
        )
        told = {t: total[t] for t in (NAIVE, GUARDED, f"other_{NAIVE}", f"other_{GUARDED}")}
        lines += [_line(tuner, found) for tuner, found in told.items() if found]
    for lists, met in result["targets"].items():
        told = ", ".join(f"{target}: {'yes' if ok else 'NO'}" for target, ok in met.items())
        lines.append(f"{lists}: {told}")
    lines.append("other_: judged by a visit that no tuning read, as on another day")
    found = read_table(result["families"]) if len(result["families"]) > 1 else None
    away = [] if found is None else found[found["tuned"] != found["ran"]].groupby("list")
    for name, group in away:
        lines.append(
            f"{name}, tuned on one family and run on another ({group['cases'].sum()} cases): "
            f"{group['loss_regressions'].sum()} regress, worst {group['loss_worst'].max():.1%}; "
            f"if each shape confirms it {group['guarded_regressions'].sum()}, worst "
            f"{group['guarded_worst'].max():.1%}"
        )
    return "\n".join(lines)


def _line(tuner: str, told: dict[str, Any]) -> str:
    kept = "no gain to keep" if told["kept"] is None else f"keeps {told['kept']:.1%}"
    return (
        f"  {tuner:13s} regresses in {told['rate']:.2%} (95 % limit {told['rate_high']:.2%}), "
        f"worst {told['worst']:.1%}; {kept}; agrees in {told['agreement']:.1%} (95 % and more on "
        f"{told['agreeing']:.0%} of lists)"
    )
