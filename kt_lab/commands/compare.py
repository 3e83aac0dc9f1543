"""kt-lab compare: which searcher finds more, on recorded landscapes, by replay.

Runs searchers (registered ones, peers, rows of the study `field`) on landscapes, or reads a stored
study, and prints what they hold at budgets, with intervals and corrected p-values. With a
directory, an interrupted comparison resumes.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd

from kt_lab.cells import recorded
from kt_lab.commands import require_folder
from kt_lab.comparison import budget_table, draw_all, request, table_text
from kt_lab.comparison.requests import rows_of
from kt_lab.errors import LandscapeError, UnknownName, UsageError, require_known
from kt_lab.experiment import process_pool
from kt_lab.landscape import REFERENCE_GPU, Landscape, data_directory, landscapes
from kt_lab.stats.tables import check_searcher
from kt_lab.studies import FIELD, REFERENCE, SEARCHERS, STUDIES, load_study

_FIXED = ("trials", "seeds", "directory")  # a stored study has its own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to compare, how often, for how long, and where the results go."""
    add = parser.add_argument
    add("--searchers", nargs="+", metavar="NAME", help=f"default: {' '.join(SEARCHERS)}")
    add("--workloads", nargs="+", metavar="WORKLOAD",
        help="keys, kernels or landscapes' .parquet files; default: all recorded")  # fmt: skip
    add("--gpu", help=f"whose landscapes; default: {REFERENCE_GPU}, where several recorded one")
    add("--seeds", type=int, help="per searcher and workload; default: 5")
    add("--trials", type=int, help="budget of every run; default: 200")
    add("--lanes", type=int, default=16, help="simulated compile lanes")
    add("--workers", type=int, default=1, help="processes")
    add("--directory", type=Path, help="keeps the runs, and resumes them")
    add("--study", nargs="+", choices=sorted(STUDIES), help="read their stored runs instead")
    add("--reference", metavar="NAME", help="what the others are tested against; default: "
        f"{REFERENCE} where it is compared, else the first searcher")  # fmt: skip
    add("--figures", type=Path, metavar="DIRECTORY", help="draw them into this folder")


def run(args: argparse.Namespace) -> int:
    """Compares, prints the table, and draws the figures if they are wanted."""
    require_folder("--figures", args.figures)
    runs, given, reference = _stored(args) if args.study else _replayed(args)
    known = {"reference": reference, "landscapes": given}
    table = budget_table(runs, **known)
    least = table.loc[table["n_seeds"].idxmin()]
    print(
        f"{least['n_workloads']} workloads of {least['n_kernels']} kernels, {least['n_seeds']} "
        f"seeds or more each, {least['lanes']} compile lanes, on "
        f"{', '.join(sorted(runs['gpu'].astype(str).unique()))}\n\n{table_text(table)}"
    )
    if args.figures:
        origin = {"command": "compare", "study": args.study}
        for name, drawing in draw_all(runs, table=table, rows=_rows(args), **known).items():
            print(f"drew {drawing.save(name, directory=args.figures, provenance=origin)['pdf']}")
    return 0


def _reference(wanted: str | None, names: Sequence[str]) -> str:
    """Returns what the others of some known searchers are tested against."""
    found = wanted or (REFERENCE if REFERENCE in names else names[0])
    if found not in names or len(set(names)) < 2:
        raise UsageError(
            "a comparison needs its reference and at least one other searcher, got searchers "
            f"{', '.join(names)} and reference {found!r}; name both with --searchers"
        )
    return found


def _replayed(args: argparse.Namespace) -> tuple[pd.DataFrame, list[Landscape], str]:
    """Returns runs computed now, or resumed, their landscapes, and the reference."""
    _require_landscapes(args.workloads or ())
    if not args.workloads and not landscapes():
        raise LandscapeError(
            f"a comparison needs recorded landscapes, got none in {data_directory()}: does "
            "KT_LAB_DATA fit?"
        )
    names = list(rows_of(args.searchers or SEARCHERS))
    reference = _reference(args.reference, names)
    if args.gpu:
        require_known("recorded GPU", [args.gpu], [entry.gpu for entry in landscapes()])
        if files := [name for name in args.workloads or () if name.endswith(".parquet")]:
            raise UsageError(f"a landscape's file says its GPU, got --gpu {args.gpu} and "
                             f"{', '.join(files)}; leave one of them out")  # fmt: skip
    pool = nullcontext() if args.workers == 1 else process_pool(args.workers)
    experiment = request(
        names,
        args.workloads,
        seeds=5 if args.seeds is None else args.seeds,
        trials=200 if args.trials is None else args.trials,
        lanes=args.lanes,
        gpu=args.gpu,
        name="compare",
    )
    last = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > 10:
            last = time.monotonic()
            print(f"{done:,} of {total:,} runs", flush=True)

    with pool as executor:
        runs = experiment.run(directory=args.directory, executor=executor, on_progress=progress)
    return runs, [recorded(name, args.gpu) for name in experiment.workloads], reference


def _require_landscapes(names: Sequence[str]) -> None:
    """Raises UsageError for a file that is no landscape, and says how it becomes one."""
    for name in names:
        if name.endswith(".parquet") or not Path(name).is_file():
            continue
        if name.removesuffix(".gz").endswith(".json"):
            hint = f"convert it first: kt-lab convert {name} NAME --format cache (or t4)"
        else:
            hint = "kt-lab convert makes one of Kernel Tuner's caches and of T4 results, both JSON"
        raise UsageError(f"a workload must be a key or a .parquet, got the file {name}; {hint}")


def _rows(args: argparse.Namespace) -> dict[str, Any]:
    """Returns what the names of searchers stand for, those of stored studies, too."""
    rows = dict(FIELD)
    for name in args.study or ():
        given = STUDIES[name]().searchers
        rows |= given if isinstance(given, Mapping) else {each: each for each in given}
    return rows


def _stored(args: argparse.Namespace) -> tuple[pd.DataFrame, None, str]:
    """Returns the wanted part of a stored study, whose landscapes ship, and the reference."""
    if given := [f"--{name}" for name in _FIXED if getattr(args, name) is not None]:
        raise UsageError(f"a stored study has its own {', '.join(given)}; leave them out")
    runs = load_study(*(STUDIES[name]() for name in dict.fromkeys(args.study)))
    wanted = runs["lanes"] == args.lanes
    if not wanted.any():
        lanes = sorted(runs["lanes"].unique().tolist())
        raise UsageError(f"lanes must be one of the study's {lanes}, got {args.lanes}")
    for name in args.searchers or ():
        check_searcher(runs, name)
    names = args.searchers or sorted(runs["searcher"].astype(str).unique())
    reference = _reference(args.reference, names)
    if args.searchers:
        wanted &= runs["searcher"].isin(args.searchers)
    if args.workloads:
        known = {*runs["workload"].astype(str), *runs["kernel"].astype(str)}
        for name in args.workloads:
            if name not in known:
                raise UnknownName("workload", name, known)
        wanted &= runs["workload"].isin(args.workloads) | runs["kernel"].isin(args.workloads)
    if args.gpu:
        require_known("GPU of the study", [args.gpu], runs["gpu"].astype(str))
        wanted &= runs["gpu"] == args.gpu
    return runs[wanted], None, reference
