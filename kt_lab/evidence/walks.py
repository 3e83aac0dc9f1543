"""Do moves ever change what a program computes, and would the walks notice if they did?

Random walks over legal moves start from every operator and every trap; each step is undone, and
programs are executed. Then every rule is switched off in turn: walks must find that out.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import cache
from typing import Any

from kt_lab.programs.claims import TOLERANCE, catch, failures, mutants
from kt_lab.programs.moves import KINDS
from kt_lab.programs.walks import LENGTH, SEEDS, Start, starts, traps
from kt_lab.provenance import provenance

_SHOWN = 20  # failures that are stored in full
_CHUNK = 50  # walks handed to a process at a time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds how many walks, and by how many processes."""
    parser.add_argument("--walks", type=int, default=10_000, help="over all start programs")
    parser.add_argument("--length", type=int, default=LENGTH, help="moves of a walk at most")
    parser.add_argument("--mutant-walks", type=int, default=500, help="at most, per rule")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Takes the walks, then switches every rule off in turn."""
    numbers = range(args.seed, args.seed + args.walks)
    by_proof = {False: mutants(), True: mutants(proofs=True)}
    asked = [(rule, proof, args.mutant_walks) for proof in by_proof for rule in by_proof[proof]]
    jobs = [(number, args.length) for number in numbers]
    caught = {rule for rules in by_proof.values() for rule in rules}
    kinds, wrong = Counter(), []
    for counted, found in _mapped(_walk, jobs, args.processes):
        kinds.update(counted)
        wrong += found
    return {
        "walks": len(jobs),
        "length": args.length,
        "starts": [start.name for start in _grounds()],
        "executed_by": f"interpreter, float64, seeds {SEEDS}, tolerance {TOLERANCE}",
        "steps": {name: kinds[name] for name in KINDS},
        "wrong": len(wrong),
        "failures": wrong[:_SHOWN],
        "mutants": list(_mapped(_mutant, asked, args.processes)),
        "limits": [
            f"{kind.name}.{rule.name}"
            for kind in KINDS.values()
            for rule in kind.rules
            if f"{kind.name}.{rule.name}" not in caught
        ],
        "provenance": provenance(),
    }


@cache
def _grounds() -> tuple[Start, ...]:
    return (*traps(), *starts())


def _walk(job: tuple[int, int]) -> tuple[dict[str, int], list[dict]]:
    """Takes one walk; returns how often each kind was played, and what was wrong."""
    number, length = job
    start, kinds = _grounds()[number % len(_grounds())], Counter()
    found = list(failures(start, seed=number, length=length, kinds=kinds))
    return dict(kinds), found


def _mutant(job: tuple[str, bool, int]) -> dict[str, Any]:
    """Returns how a rule was missed; without walks when it was not."""
    rule, proof, most = job
    found = catch(rule, _grounds(), most=most, proof=proof)
    return {"rule": rule, "by": "proof" if proof else "results"} | (
        asdict(found) if found else {"walks": None}
    )


def _mapped(function, jobs: Iterable, processes: int) -> Iterator:
    if processes == 1:
        yield from map(function, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(function, jobs, chunksize=_CHUNK if len(jobs) > _CHUNK else 1)


def report(result: dict[str, Any]) -> str:
    """Returns what was found, a line for every rule."""
    steps = sum(result["steps"].values())
    lines = [
        f"{result['walks']} walks of {steps} moves from {len(result['starts'])} programs: "
        f"{result['wrong']} wrong"
    ]
    lines += [f"  {f['start']}: {f['what']} after {f['schedule']}" for f in result["failures"]]
    lines += [f"  {name:16s} {count:7d} moves" for name, count in result["steps"].items()]
    lines.append("walks until the absence of a rule shows:")
    for row in result["mutants"]:
        shown = f"{row['walks']:4d}  {row['what']}" if row["walks"] else "   -  NOT MISSED"
        lines.append(f"  {row['rule']:28s} {row['by']:8s} {shown}")
    lines.append(f"limits of size and form, which change no result: {', '.join(result['limits'])}")
    return "\n".join(lines)
