"""kt-lab programs: tuned operators as a C library with a Python wrapper.

The schedules come as a JSON object: workload to schedule, such as those of a search's incumbents.
"""

import argparse
import json
from pathlib import Path

from kt_lab.errors import UsageError
from kt_lab.runners.c.bundle import write_library


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the schedules and where the library goes."""
    parser.add_argument("action", choices=["build"], help="check, time and compile schedules")
    parser.add_argument("schedules", type=Path, help='JSON: {"softmax/512x1024": "fuse 0; .."}')
    parser.add_argument("--to", type=Path, required=True, help="folder of the library")
    parser.add_argument("--name", default="kt_ops", help="of the library; default: kt_ops")
    parser.add_argument("--threads", type=int, default=1, help="of every operator; default: 1")


def run(args: argparse.Namespace) -> int:
    """Builds the library, and prints what is in it."""
    try:
        schedules = json.loads(args.schedules.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"schedules must be a readable JSON file, got {args.schedules.name}: {error}"
        ) from None
    if not isinstance(schedules, dict) or not all(isinstance(s, str) for s in schedules.values()):
        raise UsageError(
            "schedules must be a JSON object of texts by workload, got another in "
            f"{args.schedules.name}"
        )
    record = write_library(args.to, schedules, name=args.name, threads=args.threads)
    for name, facts in record["functions"].items():
        print(f"{name}: {facts['latency_us']:.4g} us, deviation {facts['deviation']:.1e}")
    print(f"saved {args.to / args.name}.h and its library, {record['compiler']}")
    return 0
