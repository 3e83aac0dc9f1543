"""One step of the comparison with Helion, in a process of its own: python -m ... TASK RESULT.

TASK is JSON with `do` (a name in JOBS), `began` (seconds since the epoch at which the parent
started this process), `workload` and the job's own arguments; RESULT is where the answer goes.
Helion starts workers that import this module again, so nothing may happen on import.
"""

import contextlib
import csv
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kt_lab.budget import Budget
from kt_lab.evidence.resuming import short
from kt_lab.evidence.side_by_side import WAIT_S, Bench, judged, locked, race
from kt_lab.runners.gpu.compiling import one_line
from kt_lab.runners.gpu.facts import read_sensors
from kt_lab.runners.workers import usable_cores
from kt_lab.search import make_searcher
from kt_lab.trial import History
from kt_lab.tune import tune_whole

# -- Helion tunes its kernel ----------------------------------------------------------------------


def tune_helion(task: dict[str, Any]) -> dict[str, Any]:
    """Lets Helion tune its own kernel as it does for its users; effort and seed by environment."""
    from helion.autotuner.metrics import register_post_autotune_hook

    from kt_lab.evidence.helion_kernels import arguments, bound

    # Helion starts a compile process per core that it counts: pinned to some, it must count those.
    os.cpu_count = usable_cores
    imported_s = time.time() - task["began"]
    metrics: dict[str, Any] = {}
    register_post_autotune_hook(lambda found: metrics.update(found.to_dict()))
    with locked(task):
        bench = Bench(task["workload"])
        kernel = bench.workload.kernel
        prepared_s = time.time() - task["began"]
        config = bound(kernel, bench.inputs).autotune(arguments(kernel, bench.inputs), force=True)
        tuned_s = time.time() - task["began"]
        found = {
            "config": dict(config),
            "configs": metrics.get("num_configs_tested"),
            "import_s": imported_s,
            "inputs_s": prepared_s - imported_s,
            "tuning_s": tuned_s - prepared_s,
            "wall_s": tuned_s,
            "own_best_us": 1e3 * metrics["best_perf_ms"] if metrics else None,
            "metrics": {k: v for k, v in metrics.items() if k != "kernel_source"},
            "versions": {name: _version(name) for name in ("helion", "torch", "triton")},
            "trace": _trace(os.environ.get("HELION_AUTOTUNE_LOG", "")),
        }
        with contextlib.suppress(Exception):
            from helion.autotuner.benchmarking import do_bench

            launch = bench.launch("helion", config)
            found["own_final_us"] = 1e3 * do_bench(launch, return_mode="median")
        return found | judged(bench, "helion", config) | {"sensors": read_sensors(0)}


def _trace(base: str) -> list[list[Any]]:
    """Returns [seconds, status, milliseconds] of every config that Helion's log tells of."""
    try:
        with open(f"{base}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError:
        return []
    kept = [row for row in rows if row.get("status") != "started"]
    told = [(row.get("timestamp_s"), row.get("status"), row.get("perf_ms")) for row in kept]
    return [[s and float(s), status, ms and float(ms)] for s, status, ms in told]


def _version(package: str) -> str | None:
    import importlib.metadata

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


# -- kt_lab tunes its kernel ----------------------------------------------------------------------


def tune_ours(task: dict[str, Any]) -> dict[str, Any]:
    """Tunes kt_lab's kernel live, confirmation included."""
    from kt_lab.live import tune_live
    from kt_lab.runners.gpu.runner import GpuRunner

    imported_s = time.time() - task["began"]
    with (
        tempfile.TemporaryDirectory() as folder,
        GpuRunner(task["workload"], wait_s=WAIT_S) as runner,
    ):
        result = tune_live(
            runner,
            searcher=task["searcher"],
            options=task.get("options"),
            budget=Budget(trials=task.get("trials"), seconds=task.get("seconds")),
            seed=task["seed"],
            directory=Path(folder),
        )
    confirmation = result.confirmation
    wall_s = time.time() - task["began"]
    return _searched(result.history) | {
        "config": dict(result.winner.config),
        "import_s": imported_s,
        "startup_s": result.startup_s,
        "search_s": result.search_s,
        "tuning_s": wall_s - imported_s,
        "wall_s": wall_s,
        "confirmation": confirmation.describe() if confirmation else None,
        "pipeline": dict(result.pipeline),
        "sensors": result.sensors,
    }


def _searched(history: History) -> dict[str, Any]:
    best = history.incumbent
    return {
        "configs": history.trials_spent,
        "trials": len(history),
        "failures": sum(t.status != "ok" for t in history),
        "own_best_us": best.latency_us if best else None,
        "trace": [
            [round(t.elapsed_s, 3), t.status, t.latency_us and short(t.latency_us / 1e3)]
            for t in history
        ],
    }


# -- crossed: whose search, on whose kernel and space ---------------------------------------------


def helion_on_ours(task: dict[str, Any]) -> dict[str, Any]:
    """Lets Helion's search choose configs of kt_lab's kernel, measured by kt_lab's runner."""
    from kt_lab.runners.gpu.runner import GpuRunner

    imported_s = time.time() - task["began"]
    with GpuRunner(task["workload"], wait_s=WAIT_S) as runner:
        searcher = make_searcher(
            "helion_lfbo_tree", runner.space, seed=task["seed"], effort=task["effort"]
        )
        history = tune_whole(searcher, runner, budget=Budget(trials=task["trials"]))
        startup_s, tuning_s = runner.startup_s, runner.now
    return _searched(history) | {
        "config": dict(history.incumbent.config),
        "import_s": imported_s,
        "startup_s": startup_s,
        "tuning_s": tuning_s,
        "wall_s": time.time() - task["began"],
    }


def ours_on_helion(task: dict[str, Any]) -> dict[str, Any]:
    """Lets a searcher of kt_lab choose Helion's configs, measured by Helion's own provider."""
    from kt_lab.evidence.helion_kernels import arguments, bound
    from kt_lab.evidence.helion_space import HelionRunner, HelionSpace

    imported_s = time.time() - task["began"]
    with locked(task):
        bench = Bench(task["workload"])
        kernel = bench.workload.kernel
        prepared_s = time.time() - task["began"]
        bound_kernel = bound(kernel, bench.inputs)
        bound_kernel.settings.autotune_ignore_errors = True  # an odd config must not end the run
        space = HelionSpace(bound_kernel)
        runner = HelionRunner(bound_kernel, arguments(kernel, bench.inputs), space)
        try:
            searcher = make_searcher(
                task["searcher"], space.space, seed=task["seed"], **task.get("options", {})
            )
            history = tune_whole(searcher, runner, budget=Budget(trials=task["trials"]))
        finally:
            runner.close()
        config = dict(space.helion(history.incumbent.config))
        wall_s = time.time() - task["began"]
        found = _searched(history) | {
            "config": config,
            "import_s": imported_s,
            "tuning_s": wall_s - prepared_s,
            "wall_s": wall_s,
        }
        return found | judged(bench, "helion", config)


# -- the process ----------------------------------------------------------------------------------

JOBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "helion": tune_helion,
    "ours": tune_ours,
    "helion_on_ours": helion_on_ours,
    "ours_on_helion": ours_on_helion,
    "race": race,
}


def main(task: str, path: str) -> int:
    """Does one job and writes its answer; an error is an answer too, with its traceback."""
    given = json.loads(task)
    try:
        answer = JOBS[given["do"]](given)
    except Exception as error:
        answer = {"error": one_line(error), "traceback": traceback.format_exc()[-3000:]}
    partial = Path(f"{path}.partial")
    partial.write_text(json.dumps(answer, default=str))
    partial.replace(path)
    return int("error" in answer)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
