"""Checks the files of this artifact, then recomputes its tables and a sample of its runs.

    python recompute.py                  all tables and figures' points, and 12 runs of each study
    python recompute.py --replay all     every run anew (hours)
    python recompute.py --only table_trials ratios --replay 0

Exit status 0: everything is as published; 1: something differs, and it was said what. What is
drawn anew lies in `recomputed/` afterwards.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MANIFEST = "MANIFEST.json"
_CHECKED = ("kt_lab", "data")  # folders in which a file more than listed is a fault
_OWN = "__pycache__"  # folders that using the artifact makes among these


def check_files(root: Path) -> list[str]:
    """Returns what is wrong with the files of an artifact, a sentence each; needs no packages."""
    try:
        listed = json.loads((root / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"without its list of files: {MANIFEST}: {type(error).__name__}: {error}"]
    problems = []
    for name, facts in listed.items():
        path = root / name
        if ".." in path.parts or not path.is_relative_to(root):
            problems.append(f"outside the artifact: {name}")
        elif not path.is_file():
            problems.append(f"missing: {name}")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != facts["sha256"]:
            problems.append(f"changed since it was bundled: {name}")
    for folder in _CHECKED:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_file() and name not in listed and path.parent.name != _OWN:
                problems.append(f"not part of the artifact: {name}")
    return problems


def _runs(text: str) -> int | None:
    """Returns a number of runs, or None for all."""
    return None if text == "all" else int(text)


def say(text: str) -> None:
    """Tells the evaluator."""
    sys.stdout.write(text + "\n")


def main() -> int:
    """Checks files first and with the standard library only, so that changed code is not run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--replay", type=_runs, default=12, metavar="N|all", help="runs of each study"
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses them")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="figures and tables, or none; default: all"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    args = parser.parse_args()
    sys.dont_write_bytecode = True
    if problems := check_files(HERE):
        say("\n".join(problems))
        say(f"{len(problems)} files are not as they were bundled; nothing was recomputed")
        return 1
    say("all files are as they were bundled")
    os.environ["KT_LAB_DATA"] = str(HERE / "data")
    os.environ["PYTHONPATH"] = str(HERE)  # for the processes that are started
    sys.path.insert(0, str(HERE))
    from kt_lab.artifact.recomputing import recompute
    from kt_lab.errors import UsageError

    how = {"seed": args.seed, "only": args.only, "workers": args.workers}
    try:
        told, good = recompute(HERE, replays=args.replay, **how)
    except UsageError as error:
        parser.error(str(error))
    say("\n".join(told))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
