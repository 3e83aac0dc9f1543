"""kt-lab benchmark: how fast replay and the searchers run here, or what a large table takes.

`kt-lab benchmark scale` makes up a table of a million trials and one of a tenth of that, and
prints seconds and memory of loading them, of curves and ratio tables, and of the table that
`kt-lab compare` prints.
"""

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

from kt_lab.budget import Budget
from kt_lab.errors import UsageError
from kt_lab.experiment import Experiment, process_pool
from kt_lab.studies import GPU, SEARCHERS, WORKLOADS

_LEAST = 180_000  # of a table whose tenth is timed, too: fewer seeds than two are not made up


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds how much to run."""
    parser.add_argument("what", nargs="?", default="replay", choices=("replay", "scale"))
    parser.add_argument(
        "--trials",
        type=int,
        help="of every run, default: 200; scale: of the whole table, default: 1000000",
    )
    parser.add_argument("--seeds", type=int, default=2, help="per searcher and workload")
    parser.add_argument("--workers", type=int, default=1, help="processes; 0: one per core")
    parser.add_argument("--workloads", type=int, default=8, help="how many of the recorded ones")


def run(args: argparse.Namespace) -> int:
    """Prints what was asked for."""
    return _scale(args) if args.what == "scale" else _replay(args)


def _replay(args: argparse.Namespace) -> int:
    """Prints trials per second of replay per searcher, and seconds of the whole."""
    began = time.perf_counter()
    base, budget = None, Budget(trials=200 if args.trials is None else args.trials)
    workers = args.workers or os.cpu_count()
    if not 1 <= args.workloads <= len(WORKLOADS):
        raise UsageError(f"workloads must be in 1..{len(WORKLOADS)}, got {args.workloads}")
    with process_pool(workers) as executor:
        # Processes start and import at their first work: that is not the speed of replay.
        warm = Experiment("warm", WORKLOADS, SEARCHERS, seeds=1, budget=Budget(trials=1), gpu=GPU)
        warm.run(executor=executor)
        for name in SEARCHERS:
            experiment = Experiment(
                "benchmark",
                WORKLOADS[: args.workloads],
                [name],
                seeds=args.seeds,
                budget=budget,
                gpu=GPU,
            )
            started = time.perf_counter()
            runs = experiment.run(executor=executor)
            rate = len(runs) / (time.perf_counter() - started)
            base = base or rate
            print(
                f"{name:13s} {len(runs):7,} trials  {rate:8,.0f} trials/s "
                f"({rate / base:.2f} of {SEARCHERS[0]})",
                flush=True,
            )
        used = max(job.result() for job in [executor.submit(_used_gib) for _ in range(workers)])
    print(
        f"{time.perf_counter() - began:.0f} s on {workers} processes; "
        f"a process used {used:.2f} GiB"
    )
    return 0


def _used_gib() -> float:
    """Returns the most memory that this process ever had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _scale(args: argparse.Namespace) -> int:
    """Prints seconds and memory of loading and summarising a table, and of a tenth of it."""
    from kt_lab.evidence.scale import made_up, measured

    trials, found = 1_000_000 if args.trials is None else args.trials, []
    if trials < _LEAST:
        raise UsageError(
            f"a table that is made up must have at least {_LEAST:,} trials, got {trials:,}; leave "
            "--trials out for a million"
        )
    with tempfile.TemporaryDirectory() as folder:
        for size in (trials // 10, trials):
            path = Path(folder) / f"{size}.parquet"
            made_up(size, path)
            found.append(measured(path))
    small, large = found
    print(f"{'':30s} {small['trials']:>11,} {large['trials']:>11,} trials  ratio")
    for name, what in _SCALE.items():
        print(
            f"{what:30s} {small[name]:11.2f} {large[name]:11.2f} {large[name] / small[name]:13.1f}"
        )
    return 0


_SCALE = {
    "load_s": "load, s",
    "curves_s": "incumbent curves, s",
    "ratios_s": "three ratio tables, s",
    "summary_s": "these together, s",
    "compare_s": "the table of compare, s",
    "imported_mib": "memory after import, MiB",
    "summary_mib": "most until the ratios, MiB",
    "peak_mib": "most of all, MiB",
}
