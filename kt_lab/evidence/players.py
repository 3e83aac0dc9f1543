"""Players of the dojo on the same operators with equal budgets of different compiled programs.

All players of an operator share the reading of a program, so that none is luckier than another.
"""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kt_lab.evidence.dojo_tables import best_so_far, players_table
from kt_lab.evidence.playing import (
    LIMIT_S,
    SIZES,
    Field,
    measured,
    open_field,
    play,
    runs,
    sized,
)
from kt_lab.evidence.resuming import Rows
from kt_lab.programs.operators import operators
from kt_lab.provenance import provenance
from kt_lab.runners.c import CRunner, Protocol, find_toolchain
from kt_lab.trial import OK, Config
from kt_lab.workload import Workload

SLOW = 1.5  # times the start program's latency, from which on timing stops early
OPERATORS = ("softmax", "layer_norm", "matmul", "depthwise_conv2d")
PLAYERS = (
    "random",
    "greedy",
    "beam",
    "annealing",
    "evolution",
    "lfbo",
    "max_q",
    "expert",
    "expert+annealing",
)


def add_arguments(parser: argparse.ArgumentParser, *, players: Sequence[str] = PLAYERS) -> None:
    """Adds who plays on what, and how long."""
    names = [operator.name for operator in operators()]
    parser.add_argument("--operators", nargs="+", choices=names, default=list(OPERATORS))
    parser.add_argument("--size", choices=SIZES, default="cache")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--players", nargs="+", default=list(players), metavar="PLAYER")
    parser.add_argument("--budget", type=int, default=128, help="programs a player measures")
    parser.add_argument("--seeds", type=int, default=5, help="runs of every player")
    parser.add_argument("--samples", type=int, default=30, help="batches of a reading")
    parser.add_argument("--timeout-s", type=float, default=3.0, help="of a program's check")
    parser.add_argument("--cache", help="SQLite file of readings, to go on with after a stop")
    parser.add_argument("--again", action="store_true", help="measure what is stored once more")


def open_rows(args: argparse.Namespace) -> Rows:
    """Returns the stored rows that were measured under the same conditions."""
    facts = {
        "budget": args.budget,
        "size": args.size,
        "threads": args.threads,
        "samples": args.samples,
        "timeout_s": args.timeout_s,
        "compiler": find_toolchain().version,
    }
    return Rows(args.out, facts, provenance(), again=args.again)


@contextmanager
def arena(workload: Workload, args: argparse.Namespace) -> Iterator[tuple[Field, float]]:
    """Yields what players play on, and the start program's latency in microseconds."""
    with CRunner(
        workload,
        threads=args.threads,
        awake=args.threads > 1,
        protocol=Protocol(samples=args.samples, limit_s=LIMIT_S),
        cache=args.cache,
        timeout_s=args.timeout_s,
    ) as runner:
        field = open_field(runner, threads=args.threads)
        yield field, measured(runner, Config(schedule="")).latency_us


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Lets every player play on every operator; returns the curves and their table."""
    rows = open_rows(args)
    for name in args.operators:
        workload = sized(name, args.size)
        with arena(workload, args) as (field, start_us):
            for player, seed in runs(args.players, args.seeds):
                key = {"workload": workload.key, "player": player, "seed": seed}
                rows.once(key, lambda f=field, u=start_us, k=key: one_run(f, u, k, args.budget))
    result = rows.result
    result["table"] = players_table(result["rows"]).to_dict("records")
    return result


def one_run(
    field: Field,
    start_us: float,
    key: Mapping[str, Any],
    budget: int,
    *,
    player: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Returns a row: what a player (that of the key) with a seed found, and what it took."""
    history = play(
        player or key["player"],
        field,
        budget=budget,
        seed=key["seed"],
        cutoff_us=SLOW * start_us,
        options=options,
    )
    statuses = [trial.status for trial in history]
    return {
        "start_us": start_us,
        "points": best_so_far([t.latency_us for t in history]),
        "programs": len(history),
        "failed": sum(status not in (OK, "censored") for status in statuses),
        "search_s": history[-1].search_s if len(history) else 0.0,
        "load": os.getloadavg()[0],
    }


def report(result: Mapping[str, Any]) -> str:
    """Returns latencies over the best known after powers of two of programs, for people."""
    lines = ["latency over the best that anybody found, median of seeds (quartiles):"]
    lines += [
        f"{row['workload']:32s} {row['player']:18s} {row['programs']:5d} "
        f"{row['median']:7.3f} ({row['low']:.3f} to {row['high']:.3f})"
        for row in result["table"]
    ]
    return "\n".join(lines)
