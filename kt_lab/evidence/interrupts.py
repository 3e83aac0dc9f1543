"""Is anything lost or measured twice when a run is interrupted at random moments and resumed?"""

import argparse
import tempfile
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from kt_lab.budget import Budget
from kt_lab.cells import NOT_REPEATABLE, history_table, recorded
from kt_lab.evidence.interrupting import interrupt_and_resume
from kt_lab.provenance import provenance
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.runners.lent import LentRunner
from kt_lab.runners.repetitions import Repetitions
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import make_searcher
from kt_lab.trial import History
from kt_lab.tune import tune_whole

_PACE_S = 0.001  # of a replayed measurement, so that most moments fall into one
_COUNTS = ("interrupts", "kills", "finished", "journaled", "lost", "doubled", "cut_off")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to interrupt and how often."""
    parser.add_argument("--workload", default="softmax/4096x640")
    parser.add_argument("--searchers", nargs="+", default=["random", "pattern", "lfbo_pattern"])
    parser.add_argument("--lanes", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--times", type=int, default=50, help="interruptions in all")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--kill-share", type=float, default=0.3, help="share of SIGKILL")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--live", action="store_true", help="on this GPU, by SIGINT only")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Interrupts replayed searches, and compares each with the same search left alone."""
    if args.live:
        return _live(args)
    cells = list(product(args.searchers, args.lanes))
    rows = []
    for number, (name, lanes) in enumerate(cells):
        times = len(range(number, args.times, len(cells)))
        rows.append(_row(args, name, lanes, times, seed=args.seed + number))
    return {"workload": args.workload, "rows": rows, "provenance": provenance()}


def _live(args: argparse.Namespace) -> dict[str, Any]:
    """Interrupts live searches; the workers stay up, only the searches are cut off."""
    budget = Budget(trials=args.trials)
    rows = []
    with GpuRunner(args.workload) as runner:
        for number, name in enumerate(args.searchers):
            with tempfile.TemporaryDirectory() as folder:
                found = interrupt_and_resume(
                    partial(LentRunner, runner),
                    partial(_searcher, args.workload, name, args.seed, budget),
                    budget=budget,
                    times=len(range(number, args.times, len(args.searchers))),
                    seed=args.seed + number,
                    directory=Path(folder),
                )
            counts = {n: getattr(found, n) for n in _COUNTS}
            row = {"searcher": name, "lanes": runner.lanes, "same_table": None}
            rows.append(row | {"same_readings": None} | counts)
        gpu = runner.facts["gpu"]
    return {"workload": args.workload, "gpu": gpu, "rows": rows, "provenance": provenance()}


def _row(args, name: str, lanes: int, times: int, *, seed: int) -> dict[str, Any]:
    budget = Budget(trials=args.trials)
    runner = partial(_replay, args.workload, lanes, args.seed)
    searcher = partial(_searcher, args.workload, name, args.seed, budget)
    alone = tune_whole(searcher(), runner(), budget=budget)
    with tempfile.TemporaryDirectory() as folder:
        found = interrupt_and_resume(
            runner,
            searcher,
            budget=budget,
            times=times,
            seed=seed,
            directory=Path(folder),
            kill_share=args.kill_share,
            expected=len(alone),
        )
    return {
        "searcher": name,
        "lanes": lanes,
        **{n: getattr(found, n) for n in _COUNTS},
        "same_readings": _readings(found.history) == _readings(alone),
        # Several lanes lose what was in flight, so clocks and order may differ.
        "same_table": _table(found.history).equals(_table(alone)) if lanes == 1 else None,
    }


class _Paced(ReplayRunner):
    """A replay that takes some time for each measurement."""

    def next(self):
        time.sleep(_PACE_S)
        return super().next()


def _replay(workload: str, lanes: int, seed: int) -> ReplayRunner:
    """Returns a replay; with several lanes one whose readings do not depend on their order."""
    fixed = {"share_duplicates": False, "rule": Repetitions(probes=10, usual=10, most=10)}
    options = fixed if lanes > 1 else {}
    return _Paced(recorded(workload, None), seed=seed, compile_lanes=lanes, **options)


def _searcher(workload: str, name: str, seed: int, budget: Budget):
    return make_searcher(name, recorded(workload, None).space, seed=seed, budget=budget)


def _readings(history: History) -> dict:
    """Returns config -> what was read of it, in order."""
    found: dict = {}
    for t in history:
        found.setdefault(t.config, []).append((t.status, t.measurement.samples_us))
    return found


def _table(history: History):
    table = history_table(history, facts={})
    return table.drop(columns=[c for c in NOT_REPEATABLE if c in table])


def report(result: dict[str, Any]) -> str:
    """Returns the counts for people."""
    rows = result["rows"]
    where = f"live on {result['gpu']}" if "gpu" in result else "by replay"
    lines = [f"{result['workload']} {where}: interrupted at random moments and resumed"]
    for row in rows:
        same = "all columns" if row["same_table"] else "readings"
        equal = row["same_readings"] and row["same_table"] in (True, None)
        told = f"; {same} as if left alone" if equal else "; NOT as if left alone"
        lines.append(
            f"  {row['searcher']:13s} {row['lanes']:2d} lanes: {row['interrupts']} interrupts, "
            f"{row['kills']} kills; {row['journaled']} measurements, {row['lost']} lost, "
            f"{row['doubled']} doubled, {row['cut_off']} cut off"
            + ("" if row["same_readings"] is None else told)
        )
    total = {n: sum(row[n] for row in rows) for n in _COUNTS}
    lines.append(
        f"{total['interrupts']} interrupts and {total['kills']} kills: {total['lost']} lost, "
        f"{total['doubled']} doubled, {total['cut_off']} cut off (a kill may cut off one)"
    )
    return "\n".join(lines)
