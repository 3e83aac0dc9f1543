"""The fault matrix: every fault injected many times into a live run, and what became of it.

The second part asks for the same configs again between readings of a control config. There, a
fault of the compiler is answered from memory, and a wrong result is not checked again: only what
happens on the GPU or to the timing process happens anew.
"""

import argparse
import os
import shutil
import stat
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from kt_lab.budget import Budget
from kt_lab.evidence.scripted import Scripted
from kt_lab.provenance import provenance
from kt_lab.runners.gpu.jobs import Limits
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.space import Choice, Integer, ParameterSpace
from kt_lab.stats.significance import holm
from kt_lab.trial import Config, Proposal
from kt_lab.tune import tune_whole
from kt_lab.workload import Kernel, Workload

# fault -> statuses that say it; anything else would be a wrong account of what happened
EXPECTED = {
    "illegal_access": {"crashed"},
    "misaligned_access": {"crashed"},
    "device_assert": {"crashed"},
    "endless_loop": {"timeout"},
    "ptxas_hangs": {"timeout"},
    "out_of_gpu_memory": {"launch_error"},
    "out_of_host_memory": {"launch_error"},
    "compiler_out_of_memory": {"compile_error", "crashed"},
    "timing_killed": {"crashed"},
    "compile_killed": {"crashed"},
    "wrong_result": {"wrong_result"},
    "nan": {"wrong_result"},
    "unwritten": {"wrong_result"},
    "differs": {"wrong_result"},
    "writes_after": {"wrong_result"},
    "writes_before": {"wrong_result"},
}
_HEALTHY = "none"
_NOTHING = "nothing"  # no config in between
_COSTS_THE_PROCESS = {
    "illegal_access",
    "misaligned_access",
    "device_assert",
    "endless_loop",
    "timing_killed",
}
_LAUNCHES_NOTHING = {
    "ptxas_hangs",
    "out_of_gpu_memory",
    "out_of_host_memory",
    "compiler_out_of_memory",
    "compile_killed",
}
_RESTART = (
    "restart"  # the timing process gives itself up: replaced like after a fault, without one
)
_ELEMENTS = 2**22
_LIMITS = Limits(compile_least_s=3.0, compile_most_s=30.0, timing_s=3.0)
_PTXAS = """#!/bin/sh
for word in "$@"; do
  case "$word" in *.ptx) grep -q kt_lab_ptxas_hangs "$word" && sleep 100000 ;; esac
done
exec {ptxas} "$@"
"""


def kernel(times: int) -> Kernel:
    """Returns the kernel of faults with `times` variants of each."""
    workload = Workload("faults", str(_ELEMENTS), {"N": _ELEMENTS}, "float32", "made for this")
    space = ParameterSpace(
        [Choice("FAULT", (_HEALTHY, _RESTART, *EXPECTED)), Integer("VARIANT", 0, max(1, times))],
        default={"FAULT": _HEALTHY, "VARIANT": 0},
        constants={"N": _ELEMENTS},
    )
    return Kernel(
        name="faults",
        description="adds 1, or goes wrong on demand",
        workloads=(workload,),
        space=lambda _: space,
        bytes_moved=lambda _: 8 * _ELEMENTS,
        flops=lambda _: _ELEMENTS,
        rtol=1e-3,
        atol=1e-3,
        device="kt_lab.evidence.fault_kernel",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds how often."""
    parser.add_argument("--times", type=int, default=20, help="injections of each fault, per part")
    parser.add_argument("--faults", nargs="+", default=list(EXPECTED), choices=list(EXPECTED))


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Injects all faults at once, and then one by one between readings of a control config."""
    with tempfile.TemporaryDirectory() as folder, _hanging_ptxas(folder):
        found = kernel(args.times)
        runner = GpuRunner(
            found.workloads[0],
            kernel=found,
            cache=Path(folder) / "cache",
            limits=_LIMITS,
            share_duplicates=False,  # faults of processes have healthy twins
        )
        with runner:
            storm = _storm(runner, args.faults, args.times)
            control = _between_controls(runner, args.faults, args.times)
            lost = runner.tally.lost
            facts = runner.facts
    torch = sys.modules.get("torch")
    return {
        "gpu": facts["gpu"],
        "times": args.times,
        "storm": storm,
        "control": control,
        "timing_processes_replaced": lost,
        "caller_holds_a_cuda_context": bool(torch and torch.cuda.is_initialized()),
        "facts": {k: v for k, v in facts.items() if k != "uuid"},
        "provenance": provenance(),
    }


def _storm(runner: GpuRunner, faults: list[str], times: int) -> dict[str, Any]:
    """Runs every fault and as many healthy configs through `tune`, in random order."""
    configs = [Config(FAULT=f, VARIANT=v) for f in faults for v in range(times)]
    healthy = [Config(FAULT=_HEALTHY, VARIANT=v) for v in range(times)]
    order = np.random.default_rng(0).permutation(len(configs)).tolist()
    script = healthy + [configs[i] for i in order]  # healthy first: limits follow what was seen
    began = time.perf_counter()
    history = tune_whole(Scripted(script), runner, budget=Budget(trials=len(script)))
    statuses: dict[str, Counter] = defaultdict(Counter)
    errors: dict[str, str] = {}
    for trial in history:
        fault = trial.config["FAULT"]
        statuses[fault][trial.status] += 1
        errors.setdefault(fault, trial.measurement.error)
    wrong = sum(t.status not in EXPECTED.get(t.config["FAULT"], {"ok"}) for t in history)
    return {
        "asked": len(script),
        "answered": len(history),
        "lost": len(script) - len({t.config for t in history}),
        "wrong_account": wrong,
        "seconds": time.perf_counter() - began,
        "statuses": {f: dict(c) for f, c in statuses.items()},
        "errors": errors,
    }


def _between_controls(runner: GpuRunner, faults: list[str], times: int) -> dict[str, Any]:
    """Reads a healthy config before and after every fault, in turns, so that drift is shared.

    The norm for a fault that costs the timing process is a restart without a fault, because
    processes differ a little and a fresh one is a little slower; for one that comes to no launch
    it is nothing in between; for the others it is another healthy config.
    """
    control = Config(FAULT=_HEALTHY, VARIANT=times)
    _read(runner, control)
    arms = (_NOTHING, _HEALTHY, _RESTART, *faults)
    pairs: dict[str, list[list[float]]] = {arm: [] for arm in arms}
    for variant in range(times):
        for arm, readings in pairs.items():
            before = _read(runner, control)
            if arm != _NOTHING:
                _read(runner, Config(FAULT=arm, VARIANT=variant))
            readings.append([before, _read(runner, control)])
    return judged(pairs, faults)


def judged(pairs: dict[str, list[list[float]]], faults: list[str]) -> dict[str, Any]:
    """Returns what the pairs of readings say.

    A fault's shift is the median step over it less that over its norm, as a fraction; `noise` is
    the spread of its norm's steps (1.48 times their median absolute deviation, so that a single
    disturbed reading does not hide a shift), `p_holm` a rank test's.
    """
    steps = {arm: np.log([after / before for before, after in p]) for arm, p in pairs.items()}
    norms = {f: steps[_norm(f)] for f in faults}
    p_values = [float(scipy.stats.mannwhitneyu(steps[f], norms[f]).pvalue) for f in faults]
    return {
        "pairs_us": pairs,
        "base_us": float(np.median([before for p in pairs.values() for before, _ in p])),
        "step": {arm: float(np.expm1(np.median(step))) for arm, step in steps.items()},
        "shift": {f: float(np.expm1(np.median(steps[f]) - np.median(norms[f]))) for f in faults},
        "noise": {f: _spread(norms[f]) for f in faults},
        "p_holm": dict(zip(faults, holm(p_values).tolist(), strict=True)),
        "failed_controls": int(sum(np.isnan(step).sum() for step in steps.values())),
    }


def _spread(steps: np.ndarray) -> float:
    return float(scipy.stats.median_abs_deviation(steps, scale="normal"))


def _norm(fault: str) -> str:
    """Returns what must have happened between two readings for a fault's to be like them."""
    if fault in _COSTS_THE_PROCESS:
        return _RESTART
    return _NOTHING if fault in _LAUNCHES_NOTHING else _HEALTHY


def _read(runner: GpuRunner, config: Config) -> float:
    runner.submit([Proposal(0, config, repetitions=10)])
    _, measurement = runner.next()
    return measurement.latency_us if measurement.status == "ok" else float("nan")


@contextmanager
def _hanging_ptxas(folder: str):
    """While open, Triton's assembler never returns for a kernel that carries the mark."""
    import triton

    bundled = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    wrapper = Path(folder) / "ptxas"
    wrapper.write_text(_PTXAS.format(ptxas=bundled if bundled.exists() else shutil.which("ptxas")))
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    before = os.environ.get("TRITON_PTXAS_PATH")
    os.environ["TRITON_PTXAS_PATH"] = str(wrapper)  # inherited by the workers
    try:
        yield
    finally:
        del os.environ["TRITON_PTXAS_PATH"]
        if before is not None:
            os.environ["TRITON_PTXAS_PATH"] = before


def report(result: dict[str, Any]) -> str:
    """Returns the matrix for people."""
    storm, control = result["storm"], result["control"]
    times = f"{result['times']} times at once, and asked for again one by one"
    lines = [f"{result['gpu']}: each fault {times}"]
    for fault, statuses in sorted(storm["statuses"].items()):
        told = ", ".join(f"{n} {status}" for status, n in statuses.items())
        shift = control["shift"].get(fault)
        if shift is not None:
            noise, p = control["noise"][fault], control["p_holm"][fault]
            shift = f"{shift:+.2%} of {noise:.2%} (p {p:.3f})"
        lines.append(
            f"  {fault:24s} {told:20s} later readings {shift or '':28s} "
            f"{storm['errors'][fault][:70]}"
        )
    steps = control["step"]
    lines += [
        f"{storm['answered']} of {storm['asked']} trials answered, {storm['lost']} lost, "
        f"{storm['wrong_account']} with a status that does not fit, in {storm['seconds']:.0f} s; "
        f"{result['timing_processes_replaced']} timing processes replaced",
        f"control of {control['base_us']:.2f} us, read before and after: it moves by "
        f"{steps[_NOTHING]:+.2%} over nothing, {steps[_HEALTHY]:+.2%} over another healthy config "
        f"and {steps[_RESTART]:+.2%} over a restart without a fault; each shift above is relative "
        "to its norm among these, beside the norm's own spread; p by Mann-Whitney and Holm; "
        f"{control['failed_controls']} controls failed",
        f"the calling process holds a CUDA context: {result['caller_holds_a_cuda_context']}",
    ]
    return "\n".join(lines)
