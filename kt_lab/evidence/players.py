"""Players of the dojo on the same operators with equal budgets of different compiled programs.

All players of an operator share the reading of a program, so that none is luckier than another;
those who play side by side may read one at the same time, and then the later reading stays.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kt_lab.errors import UsageError
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
from kt_lab.evidence.resuming import Rows, short
from kt_lab.experiment import process_pool
from kt_lab.programs.operators import operators
from kt_lab.programs.space import ScheduleSpace
from kt_lab.provenance import provenance
from kt_lab.runners.c import CRunner, Protocol, find_toolchain
from kt_lab.runners.workers import usable_cores
from kt_lab.trial import OK, Config, Measurement
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
    parser.add_argument("--workers", type=int, default=1, help="runs side by side")
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
    lanes = max(1, usable_cores() // args.workers - args.threads) if args.workers > 1 else None
    with CRunner(
        workload,
        lanes=lanes,
        threads=args.threads,
        awake=args.threads > 1,
        protocol=Protocol(samples=args.samples, limit_s=LIMIT_S),
        cache=args.cache,
        timeout_s=args.timeout_s,
    ) as runner:
        ground = open_field(runner, threads=args.threads)
        yield ground, started(runner).latency_us


@dataclass(frozen=True)
class Job:
    """A run to be played.

    Attributes:
        key: Of its row.
        workload: What is played on.
        player: Who plays.
        options: Of the player.
        encoder: What the player reads programs with; None: the usual one.
    """

    key: Mapping[str, Any]
    workload: Workload
    player: str
    options: Mapping[str, Any] = field(default_factory=dict)
    encoder: str | None = None


def played(job: Job, args: argparse.Namespace) -> dict[str, Any]:
    """Plays one run; returns its row (see `one_run`) and the seconds that it took."""
    began = time.monotonic()
    with arena(job.workload, args) as (ground, start_us):
        if job.encoder:
            known = ground.space
            space = ScheduleSpace(known.program, longest=known.longest, encoder=job.encoder)
            ground = replace(ground, space=space)
        row = one_run(
            ground, start_us, job.key, args.budget, player=job.player, **dict(job.options)
        )
    return row | {"seconds": round(time.monotonic() - began, 1)}


def play_all(jobs: Sequence[Job], rows: Rows, args: argparse.Namespace) -> None:
    """Plays and stores what is not stored yet, `args.workers` runs side by side."""
    workloads = list(dict.fromkeys(job.workload for job in jobs if not rows.has(job.key)))
    tasks = [(job.key, partial(played, job)) for job in jobs]
    side_by_side(tasks, rows, args, first=[partial(_read_first, w) for w in workloads])


def side_by_side(
    tasks: Sequence[tuple[Mapping[str, Any], Callable[[argparse.Namespace], dict[str, Any]]]],
    rows: Rows,
    args: argparse.Namespace,
    *,
    first: Sequence[Callable[[argparse.Namespace], Any]] = (),
) -> None:
    """Does what has no row yet and stores it as it is done; all share one file of readings.

    What is to be done `first` is waited for, where several work side by side.
    """
    missing = [(key, do) for key, do in tasks if not rows.has(key)]
    with nullcontext(args.cache) if args.cache else _folder() as cache:
        shared = argparse.Namespace(**vars(args) | {"cache": cache})
        if args.workers == 1:
            for key, do in missing:
                rows.once(key, partial(do, shared))
            return
        with process_pool(args.workers) as pool:
            for begun in [pool.submit(do, shared) for do in first]:
                begun.result()
            found = {pool.submit(do, shared): key for key, do in missing}
            for future in as_completed(found):
                rows.once(found[future], future.result)
        rows.in_order([key for key, _ in tasks])


def started(runner: CRunner) -> Measurement:
    """Returns the start program's reading; a busy machine gets a second chance.

    Raises:
        UsageError: It cannot be measured: nothing could be told beside it.
    """
    for _ in range(2):
        found = measured(runner, Config(schedule=""))
        if found.status == OK:
            return found
    raise UsageError(
        f"the start program of {runner.workload.key} must be measured, got {found.status}: "
        f"{found.error}; give a larger --timeout-s, or fewer --workers"
    )


def _read_first(workload: Workload, args: argparse.Namespace) -> float:
    """Reads a workload's start program and its expert's, so that all who play know the same."""
    with arena(workload, args) as (_, start_us):
        return start_us


@contextmanager
def _folder() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder) / "readings.sqlite"


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Lets every player play on every operator; returns the curves and their table."""
    rows = open_rows(args)
    jobs = []
    for workload in [sized(name, args.size) for name in args.operators]:
        for player, seed in runs(args.players, args.seeds):
            key = {"workload": workload.key, "player": player, "seed": seed}
            jobs.append(Job(key, workload, player))
    play_all(jobs, rows, args)
    result = rows.result
    result["table"] = players_table(result["rows"]).to_dict("records")
    return result


def one_run(
    field: Field,
    start_us: float,
    key: Mapping[str, Any],
    budget: int,
    *,
    player: str,
    **options: Any,
) -> dict[str, Any]:
    """Returns a row: what a player with the seed of the key found, and what it took."""
    history = play(
        player,
        field,
        budget=budget,
        seed=key["seed"],
        cutoff_us=SLOW * start_us,
        options=options,
    )
    statuses = [trial.status for trial in history]
    return {
        "start_us": short(start_us, 6),
        "points": [[n, short(us, 6)] for n, us in best_so_far([t.latency_us for t in history])],
        "programs": len(history),
        "failed": sum(status not in (OK, "censored") for status in statuses),
        "search_s": short(history[-1].search_s if len(history) else 0.0, 6),
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
