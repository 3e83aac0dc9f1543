"""kt-lab inspect: cross-compile search spaces for GPUs that are not there, and compare configs."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.commands import add_from, kernel_from, require_folder, require_least, workloads_named
from kt_lab.commands.listing import aligned
from kt_lab.errors import UnknownName, UsageError
from kt_lab.inspect import TARGETS, Inspection, Target, diff, get_target, inspect_space
from kt_lab.kernels import get_kernel, subject
from kt_lab.space import Config, ParameterSpace
from kt_lab.workload import Kernel, Workload

_EVERY_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to inspect, for which targets, and how to show it."""
    parser.add_argument("name", metavar="KERNEL_OR_WORKLOAD", help="such as softmax/4096x640")
    add_from(parser)
    parser.add_argument(
        "--target",
        action="append",
        metavar="TARGET",
        help=f"repeatable; one of {', '.join(TARGETS)} (default: sm_90)",
    )
    parser.add_argument("--limit", type=int, default=None, help="configs per workload, sampled")
    parser.add_argument("--workers", type=int, default=None, help="compile processes")
    parser.add_argument("--cache", type=Path, default=None, help="folder of Triton's cache")
    parser.add_argument(
        "--max-spill-bytes", type=int, default=None, help="of a thread; more is hopeless"
    )
    parser.add_argument("--csv", type=Path, default=None, help="write one row per config")
    parser.add_argument("--json", action="store_true", help="print a JSON list of summaries")
    parser.add_argument(
        "--diff",
        nargs=2,
        metavar="CONFIG",
        default=None,
        help="two configs of one workload, as NAME=VALUE,...; the rest is the default's",
    )
    parser.add_argument("--kind", default="ttgir", help="of text to compare (default: ttgir)")


def run(args: argparse.Namespace) -> int:
    """Inspects every workload for every target, or prints the difference of two configs."""
    targets = [get_target(name) for name in args.target or ["sm_90"]]
    own = kernel_from(args.source, args.name)
    chosen = workloads_named([args.name], own)
    if args.diff:
        unheeded = [f"--{n}" for n in ("csv", "json", "limit") if getattr(args, n)]
        if unheeded:
            raise UsageError(f"--diff prints a text, got {', '.join(unheeded)}; leave that out")
        if len(chosen) > 1 or len(targets) > 1:
            raise UsageError(
                "--diff compares configs of one workload for one target, got "
                f"{', '.join(w.key for w in chosen)} for {', '.join(t.name for t in targets)}"
            )
        return _print_difference(chosen[0], own, targets[0], args)
    require_least(args, limit=1, workers=1, max_spill_bytes=0)
    if args.csv and (not args.csv.parent.is_dir() or args.csv.is_dir()):
        raise UsageError(f"--csv must name a file in a folder that exists, got {args.csv}")
    require_folder("--cache", args.cache)
    found = [(w, _inspect(w, own, target, args)) for w in chosen for target in targets]
    if args.csv:
        tables = {(workload.key, i.target.name): i.table for workload, i in found}
        pd.concat(tables, names=["workload", "target"]).to_csv(args.csv)
    _show(found, args)
    return 0


def parse_config(text: str, space: ParameterSpace) -> Config:
    """Returns the config that NAME=VALUE,... describes; what it leaves out is the default's.

    Raises:
        UsageError: A part is no NAME=VALUE, or names an unknown parameter or value.
    """
    values = dict(space.default)
    parameters = {p.name: {str(v): v for v in p.values} for p in space.parameters}
    for part in filter(None, text.split(",")):
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise UsageError(f"a config must be written NAME=VALUE,..., got {part!r}")
        if name not in parameters:
            raise UnknownName("parameter", name, parameters)
        if value not in parameters[name]:
            raise UnknownName(f"value of {name}", value, parameters[name])
        values[name] = parameters[name][value]
    return space.check(values)


def _print_difference(
    workload: Workload, own: Kernel | None, target: Target, args: argparse.Namespace
) -> int:
    space = (own or get_kernel(workload.kernel)).space(workload)
    a, b = (parse_config(text, space) for text in args.diff)
    found = diff(subject(workload, own), a, b, target=target, kind=args.kind, cache=args.cache)
    print(found or f"the {args.kind} is the same")
    return 0


def _inspect(
    workload: Workload, own: Kernel | None, target: Target, args: argparse.Namespace
) -> Inspection:
    space = (own or get_kernel(workload.kernel)).space(workload)
    rows = None
    if args.limit is not None and args.limit < space.size:
        rows = space.enumerate()[np.random.default_rng(0).permutation(space.size)[: args.limit]]
    return inspect_space(
        subject(workload, own),
        space,
        target=target,
        rows=rows,
        workers=args.workers,
        cache=args.cache,
        on_progress=_Line(f"{workload.key} for {target.name}"),
    )


def _show(found: list[tuple[Workload, Inspection]], args: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    for workload, inspection in found:
        summary = inspection.summary(max_spill_bytes=args.max_spill_bytes)
        rows.append({"workload": workload.key} | summary)
    if args.json:
        failures = [{"failures": inspection.failures} for _, inspection in found]
        print(json.dumps([r | f for r, f in zip(rows, failures, strict=True)], indent=2))
        return
    print(aligned([{name: _cell(value) for name, value in row.items()} for row in rows]))
    for row, (_, inspection) in zip(rows, found, strict=True):
        for reason, count in inspection.failures.items():
            print(f"{row['workload']} for {row['target']}: {count:,} x {reason}")


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.1f}"
    return "-" if value is None else value


class _Line:
    """Prints a line of progress to stderr every few seconds: stdout is for results."""

    def __init__(self, what: str):
        self._what, self._last = what, time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self._last > _EVERY_S:
            self._last = time.monotonic()
            print(f"{self._what}: {done:,} of {total:,} compiled", file=sys.stderr, flush=True)
