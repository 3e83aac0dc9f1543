"""Shows what kt_lab needs, what of it is here, and the command that mends each gap.

With --journal: what of one journal is damaged. Every sound record is kept, and if any was not,
the damaged file is put aside; running what wrote it again goes on from there.
"""

import argparse
import dataclasses
import json
from pathlib import Path

from kt_lab.doctor import Check, diagnose
from kt_lab.store import repair

_MARKS = {True: "ok", False: "MISSING", None: "-"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `kt-lab doctor`."""
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects")
    parser.add_argument("--journal", type=Path, help="mend this journal instead")


def run(args: argparse.Namespace) -> int:
    """Prints every check; the exit code is 1 when something is missing that everything needs."""
    if args.journal:
        return _mend(args.journal)
    checks = diagnose()
    if args.json:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    else:
        print("\n".join(_lines(checks)))
    return int(any(check.ok is False for check in checks))


def _mend(path: Path) -> int:
    found = repair(path)
    for number, damage in found.damaged:
        print(f"line {number}: {damage}")
    if found.aside:
        print(f"{path.name}: {found.kept:,} records kept; the damaged file is {found.aside}")
    else:
        print(f"{path.name}: {found.kept:,} records, none damaged")
    return 0


def _lines(checks: list[Check]) -> list[str]:
    width = max(len(check.name) for check in checks)
    lines: list[str] = []
    purpose = None
    for check in checks:
        if check.purpose != purpose:
            purpose = check.purpose
            lines += [*([""] if lines else []), f"for {purpose}:"]
        found = check.found or "not found"
        lines.append(f"  {_MARKS[check.ok]:<7}  {check.name:<{width}}  {found}")
        if check.fix:
            lines.append(f"  {'':<7}  {'':<{width}}  mend: {check.fix}")
    return lines
