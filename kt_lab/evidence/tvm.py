"""The dojo's programs beside TVM, untuned and tuned, and beside PyTorch: all from one run.

A row: operator, shape, threads. Our players measure `trials` different programs each and
MetaSchedule as many. Of what read fastest in every search a first visit chooses, for the least of
many single readings is often a lucky one: of each player's programs and the expert's, and of
MetaSchedule's. Then the chosen ones, PyTorch and untuned TVM are timed visit after visit, every
visit in fresh processes, as `kt-lab evidence dojo` does, until of every path a second visit
confirms the least. `best` is what was fastest of ours in the first visit, so that no lucky reading
of the others wins; a row says whose it is. TVM may live in another environment: see --tvm-python.
"""

import argparse
import functools
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.evidence.dojo_tables import means, merged, ratios, settled
from kt_lab.evidence.playing import (
    EXPERT,
    LIMIT_S,
    SIZES,
    Field,
    finalists,
    open_field,
    played,
    sized,
)
from kt_lab.evidence.resuming import Rows, rounded
from kt_lab.evidence.tvm_paths import TUNED, UNTUNED, environment, variant_of
from kt_lab.evidence.visits import answer, answers, others, torch_visit, visit
from kt_lab.plots.captions import counted
from kt_lab.programs.operators import get_operator, operators
from kt_lab.provenance import provenance
from kt_lab.runners.c import CRunner, Protocol, find_toolchain
from kt_lab.trial import Config, History
from kt_lab.workload import Workload

PLAYERS = ("expert+annealing", "expert+evolution")
ENOUGH = 256  # trials of MetaSchedule, below which beating it says little
_MODULE = "kt_lab.evidence.tvm_paths"
_PATHS = (EXPERT, "best", "eager", "compiled", UNTUNED, TUNED)
_STARTED_S, _TRIAL_S = 600.0, 150.0  # a trial may take 120 s to build and 30 s to run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is compared, and the effort."""
    names = [operator.name for operator in operators()]
    parser.add_argument("--operators", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["cache", "memory"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--trials", type=int, default=64, help="of each player and MetaSchedule")
    parser.add_argument("--players", nargs="+", default=list(PLAYERS), metavar="PLAYER")
    parser.add_argument("--seed", type=int, default=0, help="of MetaSchedule; ours have 0")
    parser.add_argument("--finalists", type=int, default=5, help="of each search: one is chosen")
    parser.add_argument("--visits", type=int, default=2, help="in fresh processes, after that")
    parser.add_argument("--most-visits", type=int, default=8, help="until the least is confirmed")
    parser.add_argument("--rounds", type=int, default=30, help="batches of a path in a visit")
    parser.add_argument("--batch-us", type=float, default=200.0, help="a batch takes at least")
    parser.add_argument("--timeout-s", type=float, default=10.0, help="of our programs' check")
    parser.add_argument("--tvm-python", default=sys.executable, help="interpreter that has TVM")
    parser.add_argument("--again", action="store_true", help="measure what is stored once more")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures the rows that are not stored yet; returns all of them with their means."""
    args.torch = ["eager", "compiled"]
    facts = {
        "trials": args.trials,
        "players": args.players,
        "seed": args.seed,
        "visits": args.visits,
        "rounds": args.rounds,
        "batch_us": args.batch_us,
        "timeout_s": args.timeout_s,
        "compiler": find_toolchain().version,
        "tvm": _ask({"operator": "its version"}, 1, args)["tvm"],
    }
    rows = Rows(args.out, facts, provenance(), again=args.again)
    for size in args.sizes:
        for name in args.operators:
            for threads in args.threads:
                workload = sized(name, size)
                key = {"workload": workload.key, "threads": threads}
                rows.once(key, lambda w=workload, s=size, t=threads: _row(w, s, t, args))
    result = rows.result
    result["means"] = summary(result["rows"], args.players)
    return result


def summary(rows: Sequence[Mapping[str, Any]], players: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the means of the best program and of every player's, by their `path`."""
    references = (UNTUNED, TUNED, "eager", "compiled")
    found = [{"path": "best"} | mean for mean in means(rows, references=references)]
    for path in players:
        alone = means(rows, references=(TUNED,), path=path)
        found += [{"path": path} | mean for mean in alone]
    return rounded(found)


def _ask(job: Mapping[str, Any], threads: int, args, *, awake: bool = True) -> dict[str, Any]:
    limit_s = _STARTED_S + _TRIAL_S * job.get("trials", 0)
    env = environment(threads, awake=awake)
    return answer(_MODULE, job, env=env, timeout_s=limit_s, python=args.tvm_python)


def _row(workload: Workload, size: str, threads: int, args) -> dict[str, Any]:
    """Lets players and MetaSchedule search one workload, then times all sides in visits."""
    operator = get_operator(workload.kernel)
    found, configs, at = _chosen(workload, threads, args)
    parts: list[Mapping[str, Any]] = []
    errors: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        job = {"operator": operator.name, "extents": dict(workload.extents), "threads": threads}
        job["folder"] = folder
        effort = {"trials": args.trials, "seed": args.seed, "finalists": args.finalists}
        timing = job | {"rounds": args.rounds, "batch_us": args.batch_us}
        try:
            tuning = _ask(job | effort, threads, args)
        except UsageError as error:  # it may crash for one operator: a fact to store
            tuning = {"trials": 0, "seconds": None, "errors": {TUNED: str(error)}}
        ask = functools.partial(_ask, timing, threads, args)
        _keep_fastest(answers(threads, lambda awake: ask(awake=awake)), Path(folder))
        while (done := len(parts) // 3) < args.visits or (
            done < args.most_visits and not settled(parts)
        ):
            samples = visit(workload, threads, configs, args)
            torch = torch_visit(workload, threads, args)
            tvm = others(threads, lambda awake: ask(awake=awake))
            parts += [{path: samples[:, k].tolist() for path, k in at.items()}, torch["paths"]]
            parts += [tvm["paths"]]
            errors |= tvm["errors"]
    return {
        "operator": operator.name,
        "chain": operator.chain,
        "size": size,
        # That of the expert pass follows from the program and the threads: `open_field`.
        "schedules": {path: configs[at[path]]["schedule"] for path in args.players},
        "best": next(path for path in args.players if at[path] == at["best"]),
        "found": found,
        "paths": merged(parts, agreeing=True),
        "visits": done,
        "finalists": args.finalists,
        "tuning": tuning | {"errors": errors | tuning["errors"]},
        "load": os.getloadavg()[0],
        "torch": torch["torch"],
    }


def _chosen(
    workload: Workload, threads: int, args
) -> tuple[list[dict], list[Config], dict[str, int]]:
    """Returns what players came to, programs, and whose choice each is, by their numbers."""
    found, field, histories = _played(workload, threads, args)
    mine = {
        player: {field.space.key(c): c for c in finalists([history], field.space, args.finalists)}
        for player, history in zip(args.players, histories[1:], strict=True)
    }
    expert = {field.space.key(field.expert): field.expert}
    raced = expert | {key: config for some in mine.values() for key, config in some.items()}
    first = visit(workload, threads, list(raced.values()), args).min(axis=0)
    least_us = dict(zip(raced, np.nan_to_num(first, nan=np.inf), strict=True))
    chosen = {who: min(expert | some, key=least_us.__getitem__) for who, some in mine.items()}
    chosen["best"] = min(chosen.values(), key=least_us.__getitem__)
    [chosen[EXPERT]] = expert
    kept = list(dict.fromkeys(chosen.values()))
    at = {who: kept.index(key) for who, key in chosen.items()}
    return found, [raced[key] for key in kept], at


def _played(
    workload: Workload, threads: int, args
) -> tuple[list[dict[str, Any]], Field, list[History]]:
    """Lets the players search; see `played`."""
    quick = Protocol(samples=args.rounds, batch_us=args.batch_us, limit_s=LIMIT_S)
    options = {"protocol": quick, "timeout_s": args.timeout_s}
    with CRunner(workload, threads=threads, awake=threads > 1, **options) as runner:
        field = open_field(runner, threads=threads)
        found, histories = played(field, args.players, budget=args.trials)
    return found, field, histories


def _keep_fastest(visited: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Removes what MetaSchedule tuned but for what was fastest, if any was right.

    Args:
        visited: Answers of a first visit, one for each way to wait, as our programs have it.
        folder: Of what was tuned.
    """
    least = [
        (min(row["samples_us"]), name)
        for found in visited
        for name, row in found["paths"].items()
        if name.startswith(f"{TUNED}/") and not row["error"]
    ]
    _, fastest = min(least, default=(None, None))
    for file in folder.glob(f"{TUNED}@*"):
        if fastest and variant_of(file) != fastest:
            file.unlink()


def report(result: Mapping[str, Any]) -> str:
    """Returns the table for people: microseconds, and ratios to tuned TVM, < 1 where we win."""
    lines = [f"{'workload, threads':38s}{''.join(f'{path:>11s}' for path in _PATHS)}   best/tuned"]
    table = best_over_tuned(result["rows"])
    for row in result["rows"]:
        known = [row["paths"].get(path) for path in _PATHS]
        told = "".join(f"{path['min_us']:11.4g}" if path else f"{'-':>11s}" for path in known)
        key = (row["workload"], row["threads"])
        ratio = f"{table[key]:13.2f}" if key in table.index else ""
        lines.append(f"{f'{key[0]} {key[1]}T':38s}{told}{ratio}")
        lines += [f"  {path}: {error}" for path, error in row["tuning"]["errors"].items()]
    counts = [row["tuning"]["trials"] for row in result["rows"]]
    lines.append(
        f"MetaSchedule was given {result['trials']} trials and measured {min(counts)} to "
        f"{max(counts)} a row, TVM {result['tvm']}"
    )
    for mean in result["means"]:
        lines.append(
            f"{mean['path']} / {mean['reference']}, {mean['group']}, {mean['threads']} threads: "
            f"{mean['ratio']:.3f} [{mean['low']:.3f}, {mean['high']:.3f}], {mean['losses']} of "
            f"{mean['workloads']} lost{_verdict(mean, result['trials'])}"
        )
    return "\n".join(lines)


def table(result: Mapping[str, Any]) -> pd.DataFrame:
    """Returns the least microseconds of every path, and best over tuned TVM, a row per row.

    `failed` are those of MetaSchedule's trials that took too long to build or to run.
    """
    found = best_over_tuned(result["rows"]).rename("best / tuned").round(2)
    rows = {
        (row["workload"], row["threads"]): {path: _told(row["paths"].get(path)) for path in _PATHS}
        for row in result["rows"]
    }
    for row in result["rows"]:
        rows[row["workload"], row["threads"]]["failed"] = failed_trials(row)
    told = pd.DataFrame(rows).T.rename_axis(["workload", "threads"])
    return told.join(found).fillna("-")


def best_over_tuned(rows: Sequence[Mapping[str, Any]]) -> pd.Series:
    """Returns the best program's latency over tuned TVM's, by workload and threads."""
    found = ratios(rows, references=(TUNED,), paths=("best",))
    return found.set_index(["workload", "threads"])["ratio"]


def failed_trials(row: Mapping[str, Any]) -> str:
    """Returns "7 of 64", how many of MetaSchedule's trials failed; empty: none."""
    tuned = row["tuning"]
    return f"{tuned['failed']} of {tuned['trials']}" if tuned.get("failed") else ""


def _told(path: Mapping[str, Any] | None) -> str:
    us = path["min_us"] if path else 0.0
    return (f"{us:,.0f}" if us >= 1000 else f"{us:.4g}") if path else "-"


def means_table(result: Mapping[str, Any]) -> pd.DataFrame:
    """Returns the geometric means of the ratios, with their intervals and losses.

    A row per path, reference and group of operators; two columns per number of threads.
    """
    rows: dict[tuple, dict[tuple, str]] = {}
    for mean in result["means"]:
        key = (mean["path"], mean["reference"], mean["group"])
        threads = counted(mean["threads"], "thread")
        rows.setdefault(key, {}).update(
            {
                (threads, "ratio"): f"{mean['ratio']:.2f} [{mean['low']:.2f}, {mean['high']:.2f}]",
                (threads, "lost"): f"{mean['losses']} of {mean['workloads']}",
            }
        )
    told = pd.DataFrame(rows).T.fillna("-")
    return told.rename_axis(["path", "over", "group"])


def _verdict(mean: Mapping[str, Any], trials: int) -> str:
    """Words what a mean shows of tuned TVM, and no more."""
    if mean["reference"] != TUNED:
        return ""
    if mean["workloads"] < 2:
        return ": one workload shows nothing"
    if mean["high"] < 1:
        enough = trials >= ENOUGH
        return ": a win" if enough else f"; no win is claimed of {trials} < {ENOUGH} trials"
    return ": a loss" if mean["low"] > 1 else ": neither is shown to be faster"
