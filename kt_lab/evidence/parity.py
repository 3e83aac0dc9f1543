"""Does a replay tell what a live run does? Record, replay and run live, on one machine."""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.budget import Budget
from kt_lab.landscape import Landscape
from kt_lab.provenance import provenance
from kt_lab.record import Recording, RecordOptions
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import make_searcher
from kt_lab.trial import History
from kt_lab.tune import tune_whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to compare and how often."""
    parser.add_argument("--workload", default="softmax/4096x640")
    parser.add_argument("--searchers", nargs="+", default=["pattern", "lfbo_pattern", "random"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--landscape", type=Path, help="replay this one instead of recording")
    parser.add_argument("--keep", type=Path, help="folder for the landscape that is recorded")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Records the workload, then runs every searcher and seed live and by replay."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = args.landscape or _record(args.workload, args.keep or Path(folder))
        landscape = Landscape.load(path)
        for name in args.searchers:
            for seed in range(args.seeds):
                rows.append(_pair(landscape, name, seed, args.trials))
    return {
        "gpu": landscape.manifest["facts"][0]["gpu"],
        "workload": args.workload,
        "trials": args.trials,
        "rows": rows,
        "provenance": provenance(),
    }


def _record(workload: str, folder: Path) -> Path:
    options = RecordOptions(visits=3, contention=30)
    (path,) = Recording([workload], directory=folder, options=options).run()
    return path


def _pair(landscape: Landscape, name: str, seed: int, trials: int) -> dict[str, Any]:
    budget = Budget(trials=trials)
    live, live_s, lane_s, lanes = _live(landscape, name, seed, budget)
    _, again_s, _, _ = _live(landscape, name, seed, budget)
    replay = ReplayRunner(landscape, seed=seed, compile_lanes=lanes)
    replayed = tune_whole(make_searcher(name, landscape.space, seed=seed), replay, budget=budget)
    judged = landscape.latency_us
    ours, theirs = (_final_us(h, judged) for h in (live, replayed))
    return {
        "searcher": name,
        "seed": seed,
        "same_first": _same_first(live, replayed),
        "overlap": _overlap(live, replayed),
        "live_trials": live.trials_spent,
        "replay_trials": replayed.trials_spent,
        "live_final_us": ours,
        "replay_final_us": theirs,
        "latency_ratio": ours / theirs,
        "live_s": live_s,
        "live_again_s": again_s,
        "replay_s": replayed[-1].machine_s,
        "wall_clock_ratio": live_s / replayed[-1].machine_s,
        "again_ratio": again_s / live_s,
        "live_lane_s": lane_s,
        "replay_lane_s": replay.timing_busy_s,
        "reading_ratio": _readings(live, replayed),
    }


def _live(
    landscape: Landscape, name: str, seed: int, budget: Budget
) -> tuple[History, float, float, int]:
    """Returns a live run, its seconds without start-up, those of the GPU lane, and the lanes."""
    with (
        tempfile.TemporaryDirectory() as cache,
        GpuRunner(landscape.workload, cache=cache) as runner,
    ):
        lanes, startup_s = runner.lanes, runner.startup_s
        live = tune_whole(make_searcher(name, runner.space, seed=seed), runner, budget=budget)
        return live, live[-1].machine_s - startup_s, runner.tally.timing_busy_s, lanes


def _final_us(history: History, judged: np.ndarray) -> float:
    """Returns the recorded latency of the config that the run ended with."""
    return float(judged[history.incumbent.measurement.info["config"]])


def _same_first(a: History, b: History) -> int:
    """Returns how many proposals were the same, in order of asking, before the first other."""
    first, second = (
        [t.config for t in sorted((t for t in h if t.first), key=lambda t: t.proposal.id)]
        for h in (a, b)
    )
    pairs = zip(first, second, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(first), len(second)))


def _overlap(a: History, b: History) -> float:
    """Returns the share of configs that both runs measured, of those that either did."""
    first, second = ({t.config for t in h} for h in (a, b))
    return len(first & second) / len(first | second)


def _readings(a: History, b: History) -> float:
    """Returns the median ratio of live to replayed readings of the configs that both read."""
    first, second = ({c: t.latency_us for c, t in h.readings.items()} for h in (a, b))
    both = first.keys() & second.keys()
    return float(np.median([first[c] / second[c] for c in both]))


def report(result: dict[str, Any]) -> str:
    """Returns the comparison for people."""
    lines = [
        f"{result['gpu']}, {result['workload']}, {result['trials']} trials: live beside the "
        "replay of the landscape just recorded (seconds without start-up)"
    ]
    for row in result["rows"]:
        lines.append(
            f"  {row['searcher']:13s} seed {row['seed']}: first {row['same_first']} proposals the "
            f"same, {row['overlap']:.0%} of configs shared; final {row['live_final_us']:.2f} / "
            f"{row['replay_final_us']:.2f} us; wall-clock {row['live_s']:.2f} / "
            f"{row['replay_s']:.2f} s; GPU lane {row['live_lane_s']:.2f} / "
            f"{row['replay_lane_s']:.2f} s; readings {row['reading_ratio']:.3f}"
        )
    names = {
        "latency_ratio": "latency live / replay",
        "wall_clock_ratio": "wall-clock live / replay",
        "again_ratio": "wall-clock live, once more / live",
    }
    for name, title in names.items():
        values = np.log([row[name] for row in result["rows"]])
        lines.append(
            f"{title}: geomean {np.exp(values.mean()):.3f}, "
            f"range {np.exp(values.min()):.3f} to {np.exp(values.max()):.3f}"
        )
    return "\n".join(lines)
