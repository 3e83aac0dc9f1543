"""How many configs a second the live pipeline compiles and times, and where the rest goes."""

import argparse
import tempfile
from typing import Any

from kt_lab.budget import Budget
from kt_lab.provenance import provenance
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.search import make_searcher
from kt_lab.tune import tune_whole

WORKLOADS = ("softmax/4096x640", "int4_gemm/1x16x7168x8192", "int4_gemm/1x2048x2048x2048")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to measure and how much of it."""
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--trials", type=int, default=400, help="random configs per workload")
    parser.add_argument("--protocol", default="events")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Tunes every workload by random search with an empty compile cache."""
    rows, facts = [], {}
    for workload in args.workloads:
        with (
            tempfile.TemporaryDirectory() as cache,
            GpuRunner(workload, cache=cache, protocol=args.protocol) as runner,
        ):
            searcher = make_searcher("random", runner.space, seed=0)
            history = tune_whole(searcher, runner, budget=Budget(trials=args.trials))
            rows.append({"workload": workload} | breakdown(runner, trials=history.trials_spent))
            rows[-1]["failures"] = sum(t.status != "ok" for t in history)
            facts = runner.facts
            sensors = runner.sensors
        rows[-1]["sensors"] = sensors  # the last reading is taken on closing
    return {
        "gpu": facts["gpu"],
        "protocol": args.protocol,
        "rows": rows,
        "facts": {k: v for k, v in facts.items() if k != "uuid"},
        "provenance": provenance(),
    }


def breakdown(runner: GpuRunner, *, trials: int) -> dict[str, Any]:
    """Returns rates and shares of a finished run.

    Shares are of the seconds from the first proposal to the last measurement. The GPU lane is
    busy from the moment a task is sent to the timing process to the arrival of its answer; the
    compile lanes' share is over all of them.
    """
    tally = runner.tally
    seconds = tally.last_at - tally.first_at
    lane = tally.timing_busy_s
    parts = {"load": tally.load_s, "check": tally.check_s, "timing": tally.timing_s}
    return {
        "trials": trials,
        "seconds": seconds,
        "startup_s": runner.startup_s,
        "trials_per_s": trials / seconds,
        "trials_per_s_with_startup": trials / (seconds + runner.startup_s),
        "lanes": runner.lanes,
        "compiled": tally.compiled,
        "compile_s_each": tally.compile_busy_s / max(1, tally.compiled),
        "compile_lanes_busy": tally.compile_busy_s / (runner.lanes * seconds),
        "timed": tally.timed,
        "shared": tally.shared,
        "gpu_lane_busy": lane / seconds,
        **{f"gpu_lane_{name}": part / seconds for name, part in parts.items()},
        "gpu_lane_hand_over": (lane - sum(parts.values())) / seconds,
    }


def report(result: dict[str, Any]) -> str:
    """Returns the table for people."""
    lines = [
        f"{result['gpu']}, protocol {result['protocol']}: configs compiled and timed by random "
        "search, empty compile cache"
    ]
    for row in result["rows"]:
        lines += [
            f"{row['workload']}: {row['trials_per_s']:.1f} configs/s ({row['trials']} in "
            f"{row['seconds']:.1f} s after {row['startup_s']:.1f} s of start-up; "
            f"{row['failures']} failed)",
            f"  {row['lanes']} compile lanes busy {row['compile_lanes_busy']:.0%} with "
            f"{row['compiled']} compilations of {row['compile_s_each']:.2f} s",
            f"  GPU lane busy {row['gpu_lane_busy']:.0%}: timing {row['gpu_lane_timing']:.1%}, "
            f"check {row['gpu_lane_check']:.1%}, load {row['gpu_lane_load']:.1%}, hand-over "
            f"{row['gpu_lane_hand_over']:.1%}; {row['timed']} timed, {row['shared']} answered by "
            "an identical launch",
        ]
    return "\n".join(lines)
