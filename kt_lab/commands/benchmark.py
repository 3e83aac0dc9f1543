"""kt-lab benchmark: how fast replay and the searchers themselves run on this machine."""

import argparse
import os
import resource
import time

from kt_lab.budget import Budget
from kt_lab.experiment import Experiment, process_pool
from kt_lab.studies import GPU, SEARCHERS, WORKLOADS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds how much to run."""
    parser.add_argument("--trials", type=int, default=200, help="budget of every run")
    parser.add_argument("--seeds", type=int, default=2, help="per searcher and workload")
    parser.add_argument("--workers", type=int, default=1, help="processes; 0: one per core")
    parser.add_argument("--workloads", type=int, default=8, help="how many of the recorded ones")


def run(args: argparse.Namespace) -> int:
    """Prints trials per second of replay per searcher, and seconds of the whole."""
    began = time.perf_counter()
    base = None
    workers = args.workers or os.cpu_count()
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
                budget=Budget(trials=args.trials),
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
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(
        f"{time.perf_counter() - began:.0f} s on {workers} processes; "
        f"the largest process used {children:.2f} GiB"
    )
    return 0
