"""What the dojo's readings come to: paths over visits, means over operators, players' curves."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.evidence.geomeans import geomean_interval
from kt_lab.evidence.resuming import short
from kt_lab.stats.intervals import quantiles

QUIET = 1.2  # median over least sample, beyond which a visit was disturbed
AGREE = 1.05  # of least samples of two visits, up to which one confirms the other
PATHS = ("start", "expert", "best", "eager", "compiled", "autotuned")
REFERENCES = ("start", "eager", "compiled")
_GROUPS = {"all": (False, True), "single operators": (False,), "fusable chains": (True,)}


def confirmed(least: Sequence[float]) -> list[int]:
    """Returns the visits that read about the least latency which another visit read too.

    A neighbour on the other thread of a core, or where pages lie, slows whole visits down, by
    half and for seconds. Such a visit says little of a program, and a single fast one may be luck.

    Args:
        least: The least sample of each visit, microseconds.

    Returns:
        Positions of those within AGREE of the least that is confirmed; empty: none is.
    """
    order = sorted(range(len(least)), key=least.__getitem__)
    for first, second in pairwise(order):
        if least[second] <= AGREE * least[first]:
            return [k for k in order if least[first] <= least[k] <= AGREE * least[first]]
    return []


def settled(visits: Sequence[Mapping[str, Sequence[float]]]) -> bool:
    """Whether a second visit confirms the least latency of every path: see `confirmed`.

    That other visits agree on more is not enough: two in a row may have had the same neighbour.
    """
    found = _least(visits).values()
    return all(int(np.argmin(least)) in confirmed(least) for least in found)


def _least(visits: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    names = dict.fromkeys(name for visit in visits for name in visit)
    return {n: [float(np.min(visit[n])) for visit in visits if n in visit] for n in names}


def merged(
    visits: Sequence[Mapping[str, Sequence[float]]], *, agreeing: bool = False
) -> dict[str, dict[str, Any]]:
    """Returns what every path took over some visits.

    Args:
        visits: Per visit the samples of every path, microseconds; a path may miss in some.
        agreeing: Only of the visits that are `confirmed`, of a path of which any are.

    Returns:
        Per path `min_us` and `median_us`, the medians over visits of the visit's least and median
        sample, `p90_us`, and `disturbed`, whether median and least differ by more than QUIET.
    """
    found = {}
    for path, each in _least(visits).items():
        samples = [np.asarray(visit[path], float) for visit in visits if path in visit]
        if kept := agreeing and confirmed(each):
            samples = [samples[k] for k in kept]
        least, middle = ([float(f(s)) for s in samples] for f in (np.min, np.median))
        found[path] = {
            "min_us": float(np.median(least)),
            "median_us": float(np.median(middle)),
            # tells the spread, which needs no more digits
            "p90_us": short(float(np.median([np.percentile(s, 90) for s in samples])), 4),
            "disturbed": any(b > QUIET * a for a, b in zip(least, middle, strict=True)),
        }
    return found


def ratios(
    rows: Sequence[Mapping[str, Any]],
    *,
    references: Sequence[str] = (*REFERENCES, "floor"),
    paths: Sequence[str] = ("best", "expert"),
) -> pd.DataFrame:
    """Returns a table of latency ratios of what was found, one row per workload and reference.

    Args:
        rows: Of `kt-lab evidence dojo`.
        references: Paths, or the floor.
        paths: Whose ratios.

    Returns:
        Columns workload, kernel (the operator), threads, chain, size, reference, path, ratio
        (< 1: faster than the reference) and disturbed.
    """
    found = []
    for row in rows:
        for path in paths:
            ours = row["paths"].get(path)
            for reference in references:
                other = _reference(row, reference)
                if ours and other:
                    found.append(
                        {
                            "workload": row["workload"],
                            "kernel": row["operator"],
                            "threads": row["threads"],
                            "chain": row["chain"],
                            "size": row["size"],
                            "reference": reference,
                            "path": path,
                            "ratio": ours["min_us"] / other,
                            "disturbed": ours["disturbed"],
                        }
                    )
    columns = ["workload", "kernel", "threads", "chain", "size", "reference", "path", "ratio"]
    return pd.DataFrame(found, columns=[*columns, "disturbed"])


def _reference(row: Mapping[str, Any], name: str) -> float | None:
    if name == "floor":
        return row["floor_us"]
    return row["paths"].get(name, {}).get("min_us")


def means(
    rows: Sequence[Mapping[str, Any]],
    *,
    references: Sequence[str] = REFERENCES,
    path: str = "best",
) -> list[dict[str, Any]]:
    """Returns geometric means of a path's ratios, with 95 % bootstrap intervals.

    Operators are resampled, then their workloads: shapes of one operator are alike.

    Returns:
        Per reference, threads and group (all, single operators, fusable chains): `ratio`, `low`,
        `high`, `workloads` and `losses`, how many ratios are above 1.
    """
    table = ratios(rows, references=references, paths=(path,))
    found = []
    for (reference, threads), part in table.groupby(["reference", "threads"], sort=True):
        for group, chains in _GROUPS.items():
            chosen = part[part["chain"].isin(chains)]
            if len(chosen):
                mean = geomean_interval(chosen)
                found.append(
                    {
                        "reference": str(reference),
                        "threads": int(threads),
                        "group": group,
                        "ratio": mean.estimate,
                        "low": mean.low,
                        "high": mean.high,
                        "workloads": len(chosen),
                        "losses": int((chosen["ratio"] > 1).sum()),
                    }
                )
    return found


def best_so_far(latencies: Sequence[float | None]) -> list[tuple[int, float | None]]:
    """Returns the least latency after 1, 2, 4, .. programs and after all; null while none is ok.

    Args:
        latencies: In microseconds, in the order of measuring; None for a failure.
    """
    best = np.minimum.accumulate([math.inf if x is None else x for x in latencies] or [math.inf])
    count = len(best)
    at = sorted({*(2**k for k in range(count.bit_length()) if 2**k <= count), count})
    return [(n, float(best[n - 1]) if np.isfinite(best[n - 1]) else None) for n in at]


def players_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Returns how far players are above the best that anybody found, after some programs.

    Args:
        rows: Of `kt-lab evidence players`: workload, player, seed and points.

    Returns:
        Columns workload, player, programs, seeds, median, low and high (quartiles over seeds;
        inf: nothing right yet). A run that ended early keeps what it has.
    """
    found = []
    for workload in dict.fromkeys(row["workload"] for row in rows):
        here = [row for row in rows if row["workload"] == workload]
        known = [us for row in here for _, us in row["points"] if us is not None]
        counts = sorted({n for row in here for n, _ in row["points"]})
        for player in dict.fromkeys(row["player"] for row in here):
            runs = [dict(map(tuple, row["points"])) for row in here if row["player"] == player]
            for count in counts:
                values = [_held(run, count) / min(known) for run in runs] if known else []
                if values:
                    low, median, high = quantiles(values, (0.25, 0.5, 0.75)).tolist()
                    numbers = {"median": median, "low": low, "high": high}
                    what = {"workload": workload, "player": player, "programs": count}
                    found.append(what | {"seeds": len(runs)} | numbers)
    return pd.DataFrame(found)


def cpus_of(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Returns what LLVM calls the CPUs of rows beside TVM; a row whose search crashed has none."""
    targets = (row.get("tuning", {}).get("target", {}) for row in rows)
    return {target["mcpu"] for target in targets if "mcpu" in target}


def readings_apart(rows: Sequence[Mapping[str, Any]]) -> float:
    """Returns how many times as slow one run read a workload's start program as another, >= 1.

    Args:
        rows: As for `players_table`, with start_us; those without shared one reading.
    """
    read: dict[str, list[float]] = {}
    for row in rows:
        if "start_us" in row:
            read.setdefault(row["workload"], []).append(row["start_us"])
    return max((max(starts) / min(starts) for starts in read.values()), default=1.0)


def _held(run: Mapping[int, float | None], count: int) -> float:
    """Returns what a run holds after some programs, inf for nothing."""
    return min((us for n, us in run.items() if n <= count and us is not None), default=math.inf)
