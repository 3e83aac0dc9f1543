"""kt-lab study: run a stored study by replay, on every core, resumably."""

import argparse
import os
import time

from kt_lab.experiment import process_pool
from kt_lab.studies import STUDIES, stored


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which study, and on how many processes."""
    parser.add_argument("name", choices=sorted(STUDIES))
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")


def run(args: argparse.Namespace) -> int:
    """Runs the study, or says that it is complete."""
    experiment = STUDIES[args.name]()
    began = last = time.monotonic()
    resumed = None  # runs that an earlier part had done

    def progress(done: int, total: int) -> None:
        nonlocal last, resumed
        now = time.monotonic()
        resumed = done - 1 if resumed is None else resumed
        if now - last > 10 or done == total:
            last = now
            left = (now - began) / (done - resumed) * (total - done)
            print(f"{done:,} of {total:,} runs, {left:.0f} s to go", flush=True)

    with process_pool(args.workers) as executor:
        runs = experiment.run(
            directory=stored(experiment).parent, executor=executor, on_progress=progress
        )
    print(f"{len(runs):,} trials in {stored(experiment)}, {time.monotonic() - began:.0f} s")
    return 0
