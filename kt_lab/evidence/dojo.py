"""The dojo's programs beside PyTorch: one table from one run; a row: operator, shape, threads.

A row begins with a search: players measure `budget` different programs each. Then the expert pass
and the fastest programs found are timed in alternation, visit after visit, every visit in fresh
processes. The first visit chooses among them, the others judge it, so that a lucky reading wins
nothing. After all of these PyTorch's paths are timed in as many visits as judge, in alternation
with each other and not with ours, and then, once and alone, the start program as gcc makes it.
Floors, a reference and no bound, come from ceilings measured for as many bytes and threads. Every
row is stored when it is done; the same command goes on where it was stopped.
"""

import argparse
import functools
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from kt_lab.errors import UsageError
from kt_lab.evidence.ceilings import Ceilings, floor_us, measure_ceilings, pooled
from kt_lab.evidence.dojo_tables import PATHS, means, merged
from kt_lab.evidence.playing import (
    EXPERT,
    LIMIT_S,
    SIZES,
    finalists,
    measured,
    open_field,
    played,
    sized,
)
from kt_lab.evidence.resuming import Rows, short
from kt_lab.evidence.visits import torch_visit, visit, waits
from kt_lab.programs.operators import get_operator, operators
from kt_lab.provenance import provenance
from kt_lab.runners.c import CRunner, Protocol, find_toolchain
from kt_lab.trial import OK, Config
from kt_lab.workload import Workload

PLAYERS = ("expert+annealing", "expert+evolution")
TORCH = ("eager", "compiled", "autotuned")
_START_S = 600.0  # the start program of a large convolution takes seconds a call


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is compared, and the effort."""
    names = [operator.name for operator in operators()]
    parser.add_argument("--operators", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["cache", "memory"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--players", nargs="+", default=list(PLAYERS), metavar="PLAYER")
    parser.add_argument("--budget", type=int, default=100, help="programs a player measures")
    parser.add_argument("--seeds", type=int, default=1, help="runs of every player")
    parser.add_argument("--finalists", type=int, default=5, help="programs that visits time")
    parser.add_argument("--visits", type=int, default=3, help="in fresh processes, >= 2")
    parser.add_argument("--rounds", type=int, default=30, help="batches of a path in a visit")
    parser.add_argument("--batch-us", type=float, default=200.0, help="a batch takes at least")
    parser.add_argument("--timeout-s", type=float, default=10.0, help="of a program's check")
    parser.add_argument("--torch", nargs="*", choices=TORCH, default=list(TORCH))
    parser.add_argument("--again", action="store_true", help="measure what is stored once more")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures the rows that are not stored yet; returns all of them with their means."""
    if args.visits < 2:  # before hours of measuring
        raise UsageError(
            f"visits must be >= 2: one chooses, the others judge; got --visits {args.visits}"
        )
    chain = find_toolchain()
    facts = {
        "budget": args.budget,
        "seeds": args.seeds,
        "players": args.players,
        "visits": args.visits,
        "rounds": args.rounds,
        "batch_us": args.batch_us,
        "timeout_s": args.timeout_s,
        "torch_paths": args.torch,
        "compiler": chain.version,
    }
    rows = Rows(args.out, facts, provenance(), again=args.again)
    for name in args.operators:
        for size in args.sizes:
            for threads in args.threads:
                workload = sized(name, size)
                key = {"workload": workload.key, "threads": threads}
                rows.once(key, lambda w=workload, s=size, t=threads: _row(w, s, t, args))
    result = rows.result
    result["rows"] = floored(result["rows"])
    result["means"] = means(result["rows"])
    return result


def floored(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows with floors by the highest ceilings that any of them measured."""
    found = [Ceilings(**row["ceilings"]) for row in rows]
    told = []
    for row, own in zip(rows, found, strict=True):
        extents = dict(sized(row["operator"], row["size"]).extents)
        bound, limit = floor_us(get_operator(row["operator"]), extents, pooled(own, found))
        told.append({**row, "floor_us": short(bound), "floor_by": limit})
    return told


def _row(workload: Workload, size: str, threads: int, args) -> dict[str, Any]:
    """Searches, times in visits and finds the floor of one workload on some threads."""
    operator = get_operator(workload.kernel)
    protocol = Protocol(samples=args.rounds, batch_us=args.batch_us)
    quick = replace(protocol, limit_s=LIMIT_S)
    limits = {"protocol": quick, "timeout_s": args.timeout_s}
    with CRunner(workload, threads=threads, awake=threads > 1, **limits) as runner:
        field = open_field(runner, threads=threads)
        searched, histories = played(field, args.players, budget=args.budget, seeds=args.seeds)
        found = finalists(histories, field.space, args.finalists)
        facts = runner.facts
    known = field.space.key(field.expert)
    raced = [field.expert, *(c for c in found if field.space.key(c) != known)]
    visits = [visit(workload, threads, raced, args) for _ in range(args.visits)]
    best = int(np.nanargmin(visits[0].min(axis=0)))
    parts = [_named(samples, best) for samples in visits[1:]]
    torch = [torch_visit(workload, threads, args) for _ in parts] if args.torch else []
    paths = merged([*parts, *(found["paths"] for found in torch)])
    paths["start"] = _start(workload, protocol)
    ceilings = _ceilings(operator.bytes_moved(workload.extents), threads, protocol)
    bound, limit = floor_us(operator, dict(workload.extents), ceilings)
    return {
        "operator": operator.name,
        "chain": operator.chain,
        "size": size,
        "paths": paths,
        "floor_us": bound,
        "floor_by": limit,
        "ceilings": asdict(ceilings),
        "found": searched,
        "schedules": {EXPERT: field.expert["schedule"], "best": raced[best]["schedule"]},
        "load": os.getloadavg()[0],
        "facts": {k: facts[k] for k in ("flags", "processor", "protocol")},
        "torch": torch[0]["torch"] if torch else None,
    }


def _named(visit: np.ndarray, best: int) -> dict[str, list[float]]:
    return {EXPERT: visit[:, 0].tolist(), "best": visit[:, best].tolist()}


def _start(workload: Workload, protocol: Protocol) -> dict[str, Any]:
    """Times the start program as gcc -O3 makes it, vectorised by itself where that is right."""
    plain = find_toolchain()
    for chain in (replace(plain, automatic=True), plain):
        with CRunner(workload, protocol=protocol, toolchain=chain, timeout_s=_START_S) as runner:
            reading = measured(runner, Config(schedule=""))
        if reading.status == OK:
            facts = {"automatic": chain.automatic}
            return merged([{"start": list(reading.samples_us)}])["start"] | facts
    return {"min_us": None, "error": f"{reading.status}: {reading.error}"}


@functools.cache
def _ceilings(moved: int, threads: int, protocol: Protocol) -> Ceilings:
    """Returns the ceilings for some bytes; more threads can do what one can."""
    found = measure_ceilings(moved, threads=threads, protocol=protocol, waits=waits(threads))
    if threads == 1:
        return found
    alone = _ceilings(moved, 1, protocol)
    rates = ("copy_gb_s", "read_gb_s", "gflop_s")
    return replace(found, **{n: max(getattr(found, n), getattr(alone, n)) for n in rates})


def report(result: Mapping[str, Any]) -> str:
    """Returns the table for people: microseconds, and ratios to PyTorch below 1 where we win."""
    title = f"{'workload, threads':38s}" + "".join(f"{head:>10s}" for head in PATHS)
    lines = [f"{title}     floor  best/eager"]
    for row in result["rows"]:
        told = [_us(row["paths"].get(head, {}).get("min_us")) for head in PATHS]
        eager = row["paths"].get("eager")
        ratio = f"{row['paths']['best']['min_us'] / eager['min_us']:12.2f}" if eager else ""
        key = f"{row['workload']} {row['threads']}T"
        lines.append(f"{key:38s}{''.join(told)}{_us(row['floor_us'])}{ratio}")
    for mean in result["means"]:
        lines.append(
            f"best / {mean['reference']}, {mean['group']}, {mean['threads']} threads: "
            f"{mean['ratio']:.3f} [{mean['low']:.3f}, {mean['high']:.3f}], "
            f"{mean['losses']} of {mean['workloads']} lost"
        )
    loads = [row["load"] for row in result["rows"]]
    lines.append(
        f"load of the machine, the mean of a minute: median {statistics.median(loads):.1f}"
    )
    return "\n".join(lines)


def _us(value: float | None) -> str:
    return f"{value:10.4g}" if value is not None else f"{'-':>10s}"
