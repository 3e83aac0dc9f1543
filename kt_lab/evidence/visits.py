"""Visits: our programs and other systems' paths, timed in fresh processes until it was quiet."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import kt_lab
from kt_lab.errors import UsageError
from kt_lab.evidence.dojo_tables import QUIET
from kt_lab.evidence.torch_paths import ENVIRONMENT
from kt_lab.runners.c import CRunner, Protocol
from kt_lab.trial import Config
from kt_lab.workload import Workload

_TORCH_S = 900.0  # torch.compile may take minutes
_TRIES = 3  # of a visit that was disturbed


def waits(threads: int) -> tuple[bool, ...]:
    """Whether waiting threads stay awake: both ways are tried where there are any, for all sides.

    Asleep is how a single program is measured beside other work; awake, as OpenMP has it when
    nobody asks and as searches of several threads measure, threads start sooner.
    """
    return (False, True) if threads > 1 else (False,)


def visit(workload: Workload, threads: int, configs: Sequence[Config], args) -> np.ndarray:
    """Times programs in alternation, in fresh processes; the faster way to wait counts.

    Args:
        workload: Of an operator.
        threads: Of every program.
        configs: The programs' schedules.
        args: With `rounds` and `batch_us`.

    Returns:
        Samples, one batch each, microseconds, shape (rounds, configs); NaN of what failed in every
        try.
    """
    protocol = Protocol(samples=args.rounds, batch_us=args.batch_us)

    def race(awake: bool) -> np.ndarray:
        with CRunner(workload, threads=threads, protocol=protocol, awake=awake) as runner:
            return runner.race(configs, rounds=args.rounds, repetitions=1)

    taken = [
        _quiet(lambda awake=awake: race(awake), lambda samples: samples.T)
        for awake in waits(threads)
    ]
    # argmin would take NaN, of what failed, for the least
    least = np.nan_to_num([samples.min(axis=0) for samples in taken], nan=np.inf)
    faster = np.argmin(least, axis=0)
    return np.stack([taken[way][:, k] for k, way in enumerate(faster)], axis=1)


def others(threads: int, ask: Callable[[bool], Mapping[str, Any]]) -> dict[str, Any]:
    """Times another system's paths; the faster variant of each counts.

    Args:
        threads: Of every path.
        ask: Whether waiting threads stay awake -> an answer with `paths`: by "path" or
            "path/variant" samples_us and error.

    Returns:
        The last answer: `paths` the samples of each that was right, microseconds, `errors` what
        was wrong with the others.
    """
    paths: dict[str, list[float]] = {}
    for found in answers(threads, ask):
        for name, row in found["paths"].items():
            path = name.partition("/")[0]
            if not row["error"] and min(row["samples_us"]) < min(paths.get(path, [np.inf])):
                paths[path] = row["samples_us"]
    errors = {name: row["error"] for name, row in found["paths"].items() if row["error"]}
    return {**found, "paths": paths, "errors": errors}


def answers(threads: int, ask: Callable[[bool], Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns another system's answer for each way to wait, asked again while it was disturbed.

    Args:
        threads: Of every path.
        ask: As `others` takes it.
    """

    def samples(found: Mapping[str, Any]) -> list[list[float]]:
        return [row["samples_us"] for row in found["paths"].values() if not row["error"]]

    return [_quiet(lambda awake=awake: ask(awake), samples) for awake in waits(threads)]


def torch_visit(workload: Workload, threads: int, args) -> dict[str, Any]:
    """Times PyTorch's paths, those of `args.torch`; see `others`."""
    job = {
        "operator": workload.kernel,
        "extents": dict(workload.extents),
        "threads": threads,
        "wanted": [p for p in args.torch if p != "autotuned" or workload.kernel == "matmul"],
        "rounds": args.rounds,
        "batch_us": args.batch_us,
    }
    numbers = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))

    def ask(awake: bool) -> dict[str, Any]:
        env = ENVIRONMENT | numbers
        if awake:
            del env["OMP_WAIT_POLICY"]
        return answer("kt_lab.evidence.torch_paths", job, env=env, timeout_s=_TORCH_S)

    return others(threads, ask)


def answer(
    module: str,
    job: Mapping[str, Any],
    *,
    env: Mapping[str, str],
    timeout_s: float,
    python: str = sys.executable,
) -> dict[str, Any]:
    """Runs a job of a module of kt_lab in a fresh process.

    Args:
        module: Run as a program: takes the job as JSON on stdin, answers it on stdout.
        job: With the `operator` that it is of.
        env: On top of this process's environment.
        timeout_s: After which it is killed.
        python: The interpreter; kt_lab need not be installed there.

    Raises:
        UsageError: There is no such interpreter, or there was no answer.
    """
    home = {"PYTHONPATH": str(Path(kt_lab.__file__).parents[1])}
    try:
        done = subprocess.run(
            [python, "-m", module],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            env=os.environ | home | env,
            timeout=timeout_s,
            check=False,
        )
        if not done.returncode:
            return json.loads(done.stdout)
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        said = f"exit code {done.returncode}, {said}"
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    raise UsageError(f"{module} must answer for {job['operator']} in {python}, got {said}")


def _quiet(measure: Callable[[], Any], samples: Callable[[Any], Iterable]) -> Any:
    """Measures again, a few times, while a path failed or medians are far above least samples."""

    def disturbed(found: Any) -> tuple[int, float]:
        """Returns how many paths have no sample, and what the others' medians are at most."""
        ratios = np.asarray([np.median(s) / np.min(s) for s in samples(found)])
        right = ratios[np.isfinite(ratios)]
        # no path was right: its error is the answer
        return len(ratios) - len(right), float(right.max(initial=0.0))

    tried = []
    for _ in range(_TRIES):
        tried.append(measure())
        if disturbed(tried[-1]) <= (0, QUIET):
            break
    return min(tried, key=disturbed)
