"""kt-lab compare: which searcher finds more, on recorded landscapes, by replay.

Runs searchers (registered ones, peers, rows of the study `field`) on landscapes, or reads a stored
study, and prints what they hold at budgets, with intervals and corrected p-values. With a
directory, an interrupted comparison resumes.
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd

from kt_lab.budget import Budget
from kt_lab.cells import recorded
from kt_lab.comparison import budget_table, draw_all, table_text
from kt_lab.errors import UnknownName, UsageError
from kt_lab.experiment import Experiment, process_pool
from kt_lab.landscape import Landscape, landscapes
from kt_lab.provenance import provenance
from kt_lab.search import searchers
from kt_lab.search.peers import PEERS
from kt_lab.stats.tables import check_searcher
from kt_lab.studies import FIELD, REFERENCE, SEARCHERS, STUDIES, load_study

_FIXED = ("trials", "seeds", "directory")  # a stored study has its own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to compare, how often, for how long, and where the results go."""
    add = parser.add_argument
    add("--searchers", nargs="+", metavar="NAME", help=f"default: {' '.join(SEARCHERS)}")
    add("--workloads", nargs="+", metavar="WORKLOAD",
        help="keys, kernels or landscapes' .parquet files; default: all recorded")  # fmt: skip
    add("--gpu", help="whose landscapes, where several recorded a workload")
    add("--seeds", type=int, help="per searcher and workload; default: 5")
    add("--trials", type=int, help="budget of every run; default: 200")
    add("--lanes", type=int, default=16, help="simulated compile lanes")
    add("--workers", type=int, default=1, help="processes")
    add("--directory", type=Path, help="keeps the runs, and resumes them")
    add("--study", nargs="+", choices=sorted(STUDIES), help="read their stored runs instead")
    add("--reference", default=REFERENCE, help="what the others are tested against")
    add("--figures", type=Path, metavar="DIRECTORY", help="draw them into this folder")


def run(args: argparse.Namespace) -> int:
    """Compares, prints the table, and draws the figures if they are wanted."""
    runs, given = _stored(args) if args.study else _replayed(args)
    known = {"reference": args.reference, "landscapes": given}
    table = budget_table(runs, **known)
    first = table.iloc[0]
    print(
        f"{first['n_workloads']} workloads of {first['n_kernels']} kernels, {first['n_seeds']} "
        f"seeds or more each, {first['lanes']} compile lanes\n\n{table_text(table)}"
    )
    if args.figures:
        origin = {"command": "compare", "study": args.study, "drawn_with": provenance()}
        for name, drawing in draw_all(runs, table=table, rows=FIELD, **known).items():
            print(f"drew {drawing.save(name, directory=args.figures, provenance=origin)['pdf']}")
    return 0


def rows_of(names: Sequence[str]) -> dict[str, Any]:
    """Returns what runs under each name: a row of the field, a searcher or a peer."""
    known = {name: name for name in (*searchers(), *PEERS)} | FIELD
    for name in names:
        if name not in known:
            raise UnknownName("searcher", name, known)
    return {name: known[name] for name in names}


def find_workloads(names: Sequence[str] | None, *, gpu: str | None) -> list[str]:
    """Returns what an Experiment runs on, for keys, kernels and files; None: all that ship.

    A workload that several GPUs recorded is named by its files.
    """
    shipped = [each for each in landscapes() if gpu in (None, each.gpu)]
    keys = [each.workload for each in shipped]
    found: list[str] = []
    for name in keys if names is None else names:
        same = [each for each in shipped if name in (each.workload, each.kernel)]
        if not same and not name.endswith(".parquet"):
            raise UnknownName("workload", name, {*keys, *(each.kernel for each in shipped)})
        several = [str(e.path) if keys.count(e.workload) > 1 else e.workload for e in same]
        found += several or [name]
    return list(dict.fromkeys(found))


def _replayed(args: argparse.Namespace) -> tuple[pd.DataFrame, list[Landscape]]:
    """Returns runs computed now, or resumed, and their landscapes."""
    names = args.searchers or SEARCHERS
    if args.reference not in names or len(set(names)) < 2:
        raise UsageError(
            "a comparison needs its reference and at least one other searcher, got searchers "
            f"{', '.join(names)} and reference {args.reference!r}; name it with --reference"
        )
    workloads = find_workloads(args.workloads, gpu=args.gpu)
    experiment = Experiment(
        "compare",
        workloads,
        rows_of(names),
        seeds=5 if args.seeds is None else args.seeds,
        budget=Budget(trials=200 if args.trials is None else args.trials),
        lanes=(args.lanes,),
        gpu=args.gpu,
    )
    last = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > 10:
            last = time.monotonic()
            print(f"{done:,} of {total:,} runs", flush=True)

    pool = process_pool(args.workers) if args.workers > 1 else nullcontext()
    with pool as executor:
        runs = experiment.run(directory=args.directory, executor=executor, on_progress=progress)
    return runs, [recorded(name, args.gpu) for name in workloads]


def _stored(args: argparse.Namespace) -> tuple[pd.DataFrame, None]:
    """Returns the wanted part of a stored study, whose landscapes ship."""
    if given := [f"--{name}" for name in _FIXED if getattr(args, name) is not None]:
        raise UsageError(f"a stored study has its own {', '.join(given)}; leave them out")
    runs = load_study(*(STUDIES[name]() for name in args.study))
    wanted = runs["lanes"] == args.lanes
    if not wanted.any():
        lanes = sorted(runs["lanes"].unique().tolist())
        raise UsageError(f"lanes must be one of the study's {lanes}, got {args.lanes}")
    for name in args.searchers or ():
        check_searcher(runs, name)
    if args.searchers:
        wanted &= runs["searcher"].isin(args.searchers)
    if args.workloads:
        known = {*runs["workload"].astype(str), *runs["kernel"].astype(str)}
        for name in args.workloads:
            if name not in known:
                raise UnknownName("workload", name, known)
        wanted &= runs["workload"].isin(args.workloads) | runs["kernel"].isin(args.workloads)
    return runs[wanted], None
