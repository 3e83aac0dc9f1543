"""The dojo's best stored programs beside TVM, untuned and tuned, and beside PyTorch eager.

A row: operator, shape, threads. MetaSchedule tunes it anew; then our stored schedules, PyTorch and
TVM are timed in one run, visit after visit, every visit in fresh processes, as `kt-lab evidence
dojo` does. TVM may live in another environment: see --tvm-python.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kt_lab.errors import UsageError
from kt_lab.evidence.dojo_tables import means, merged, ratios
from kt_lab.evidence.playing import EXPERT, SIZES, sized
from kt_lab.evidence.resuming import Rows
from kt_lab.evidence.tvm_paths import TUNED, UNTUNED, environment
from kt_lab.evidence.visits import answer, others, torch_visit, visit
from kt_lab.landscape import data_directory
from kt_lab.programs.operators import get_operator, operators
from kt_lab.provenance import provenance
from kt_lab.runners.c import find_toolchain
from kt_lab.trial import Config

ENOUGH = 256  # trials of MetaSchedule, below which beating it says little
_MODULE = "kt_lab.evidence.tvm_paths"
_PATHS = (EXPERT, "best", "eager", UNTUNED, TUNED)
_STARTED_S, _TRIAL_S = 600.0, 60.0  # MetaSchedule gives a trial 30 s to build and 30 s to run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is compared, and the effort."""
    names = [operator.name for operator in operators()]
    parser.add_argument("--operators", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["cache", "memory"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--trials", type=int, default=64, help="that MetaSchedule measures")
    parser.add_argument("--seed", type=int, default=0, help="of MetaSchedule")
    parser.add_argument("--visits", type=int, default=2, help="in fresh processes")
    parser.add_argument("--rounds", type=int, default=30, help="batches of a path in a visit")
    parser.add_argument("--batch-us", type=float, default=200.0, help="a batch takes at least")
    parser.add_argument("--dojo", type=Path, help="default: data/evidence/dojo.json")
    parser.add_argument("--tvm-python", default=sys.executable, help="interpreter that has TVM")
    parser.add_argument("--again", action="store_true", help="measure what is stored once more")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures the rows that are not stored yet; returns all of them with their means."""
    wanted = _wanted(args)
    args.torch = ["eager"]
    facts = {
        "trials": args.trials,
        "seed": args.seed,
        "visits": args.visits,
        "rounds": args.rounds,
        "batch_us": args.batch_us,
        "compiler": find_toolchain().version,
        "tvm": _ask({"operator": "its version"}, 1, args)["tvm"],
    }
    rows = Rows(args.out, facts, provenance(), again=args.again)
    result = rows.result
    found = {(row["workload"], row["threads"]): row["schedules"] for row in wanted}
    result["rows"] = [  # without those of programs that were measured anew since
        row
        for row in result["rows"]
        if found.get((row["workload"], row["threads"]), row["schedules"]) == row["schedules"]
    ]
    for row in wanted:
        key = {name: row[name] for name in ("workload", "threads")}
        rows.once(key, lambda row=row: _row(row, args))
    result["means"] = means(result["rows"], references=(UNTUNED, TUNED, "eager"))
    return result


def _wanted(args) -> list[Mapping[str, Any]]:
    """Returns the dojo's rows that were asked for, or raises UsageError where one is not there."""
    path = args.dojo or data_directory() / "evidence" / "dojo.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    known = {(row["workload"], row["threads"]): row for row in rows}
    asked = [
        (sized(name, size).key, threads)
        for name in args.operators
        for size in args.sizes
        for threads in args.threads
    ]
    missing = [f"{key} {threads}T" for key, threads in asked if (key, threads) not in known]
    if missing:
        raise UsageError(
            f"{path} must hold programs of all that is compared, got none of "
            f"{', '.join(missing)}; run kt-lab evidence dojo, or ask for less"
        )
    return [known[key] for key in asked]


def _ask(job: Mapping[str, Any], threads: int, args, *, awake: bool = True) -> dict[str, Any]:
    limit_s = _STARTED_S + _TRIAL_S * job.get("trials", 0)
    env = environment(threads, awake=awake)
    return answer(_MODULE, job, env=env, timeout_s=limit_s, python=args.tvm_python)


def _row(stored: Mapping[str, Any], args) -> dict[str, Any]:
    """Tunes one workload on some threads, then times all sides in visits."""
    operator, threads = get_operator(stored["operator"]), stored["threads"]
    workload = sized(operator, stored["size"])
    ours = (EXPERT, "best")
    configs = [Config(schedule=stored["schedules"][path]) for path in ours]
    parts: list[Mapping[str, Any]] = []
    errors: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        job = {"operator": operator.name, "extents": dict(workload.extents), "threads": threads}
        job["folder"] = folder
        effort = {"trials": args.trials, "seed": args.seed}
        try:
            tuning = _ask(job | effort, threads, args)
        except UsageError as error:  # it may crash for one operator: a fact to store
            tuning = {"trials": 0, "seconds": None, "errors": {TUNED: str(error)}}
        timing = job | {"rounds": args.rounds, "batch_us": args.batch_us}
        for _ in range(args.visits):
            samples = visit(workload, threads, configs, args)
            torch = torch_visit(workload, threads, args)
            tvm = others(threads, lambda awake: _ask(timing, threads, args, awake=awake))
            parts += [dict(zip(ours, samples.T.tolist(), strict=True)), torch["paths"]]
            parts += [tvm["paths"]]
            errors |= tvm["errors"]
    return {
        "operator": operator.name,
        "chain": operator.chain,
        "schedules": stored["schedules"],
        "size": stored["size"],
        "paths": merged(parts),
        "tuning": tuning | {"errors": errors | tuning["errors"]},
        "load": os.getloadavg()[0],
        "torch": torch["torch"],
    }


def report(result: Mapping[str, Any]) -> str:
    """Returns the table for people: microseconds, and ratios to tuned TVM, < 1 where we win."""
    lines = [f"{'workload, threads':38s}{''.join(f'{path:>11s}' for path in _PATHS)}   best/tuned"]
    table = ratios(result["rows"], references=(TUNED,))
    table = table[table["path"] == "best"].set_index(["workload", "threads"])["ratio"]
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
            f"best / {mean['reference']}, {mean['group']}, {mean['threads']} threads: "
            f"{mean['ratio']:.3f} [{mean['low']:.3f}, {mean['high']:.3f}], {mean['losses']} of "
            f"{mean['workloads']} lost{_verdict(mean, result['trials'])}"
        )
    return "\n".join(lines)


def _verdict(mean: Mapping[str, Any], trials: int) -> str:
    """Words what a mean shows of tuned TVM, and no more."""
    if mean["reference"] != TUNED:
        return ""
    if mean["high"] < 1:
        enough = trials >= ENOUGH
        return ": a win" if enough else f"; no win is claimed of {trials} < {ENOUGH} trials"
    return ": a loss" if mean["low"] > 1 else ": neither is shown to be faster"
