"""Every parser against mutated inputs: each parses or raises a KtLabError, in bounded time.

An input must not be executed, make a file outside its folder be opened, take longer than 5 s or
more than 2 GiB, or end the process; a command line may end with argparse's own exit. Findings are
one each for a type of error and a place in the package.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kt_lab.errors import UsageError
from kt_lab.evidence.fuzz_process import CURRENT
from kt_lab.evidence.fuzz_targets import TARGETS
from kt_lab.evidence.resuming import Rows
from kt_lab.evidence.visits import answer
from kt_lab.provenance import provenance

_STARTED_S, _INPUT_S = 120.0, 0.1  # after which a process is taken to hang


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which parsers, and how many inputs."""
    names = list(TARGETS)
    parser.add_argument("--parsers", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--inputs", type=int, default=100_000, help="of every parser")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations")
    parser.add_argument("--again", action="store_true", help="fuzz what is stored once more")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Fuzzes the parsers that are not stored yet; returns all rows."""
    facts = {"inputs_each": args.inputs, "seed": args.seed}
    rows = Rows(args.out, facts, provenance(), again=args.again)
    for name in args.parsers:
        rows.once({"parser": name}, lambda n=name: fuzzed([n], args.inputs, seed=args.seed)[0])
    return rows.result


def fuzzed(parsers: Sequence[str], inputs: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Fuzzes parsers in a process of their own.

    Args:
        parsers: Names of TARGETS.
        inputs: How many of each.
        seed: Of the mutations; equal seeds give equal inputs.

    Returns:
        A row each, see `kt_lab.evidence.fuzz_process.answer`; where the process died or hung
        there is one row with that finding, and the input that it was at.
    """
    with tempfile.TemporaryDirectory() as folder:
        job = {"operator": ", ".join(parsers), "parsers": list(parsers), "seed": seed}
        job |= {"inputs": inputs, "folder": folder}
        limit_s = _STARTED_S + _INPUT_S * inputs * len(parsers)
        try:
            return answer("kt_lab.evidence.fuzz_process", job, env={}, timeout_s=limit_s)["rows"]
        except UsageError as error:
            current = Path(folder, CURRENT)
            raw = current.read_bytes() if current.exists() else bytes(8)
            example = raw[8 : 8 + int.from_bytes(raw[:8], "little")]
            found = {"type": "end of the process", "place": "?", "line": None, "count": 1}
            found |= {"message": str(error), "example": repr(example[:400])}
            return [{"inputs": 0, "parsed": 0, "refused": 0, "kept": 0, "findings": [found]}]


def report(result: Mapping[str, Any]) -> str:
    """Returns the table for people."""
    lines = [f"{'parser':18s}{'inputs':>9s}{'parsed':>9s}{'refused':>9s}{'kept':>6s}  findings"]
    for row in result["rows"]:
        counts = "".join(f"{row[n]:9,}" for n in ("inputs", "parsed", "refused"))
        lines.append(f"{row['parser']:18s}{counts}{row['kept']:6,}  {len(row['findings'])}")
        lines += [
            f"  {f['type']} in {f['place']}, line {f['line']}, {f['count']} times: {f['message']}"
            for f in row["findings"]
        ]
    total = sum(row["inputs"] for row in result["rows"])
    count = sum(len(row["findings"]) for row in result["rows"])
    return "\n".join([*lines, f"{total:,} inputs, {count} findings"])
