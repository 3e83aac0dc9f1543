"""What runs in the timing process: load a compiled program, check it, time it; no torch here."""

import _ctypes
import ctypes
import os
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from kt_lab.errors import UsageError
from kt_lab.programs.operators import error
from kt_lab.runners.c.memory import Block, Memory
from kt_lab.runners.c.tasks import Binary, Measure, Protocol, Race, Reading, Run

# A batch of calls is timed in C: a call through ctypes would add its own time to each. It asks
# OpenMP only in order to be linked with its runtime: the timer stays loaded, so that the runtime
# does too, whose waiting threads would crash if it went with the program that brought it.
TIMER = """#include <time.h>
#ifdef _OPENMP
#include <omp.h>
int kt_threads(void)
{
    return omp_get_max_threads();
}
#endif
double kt_time_us(void (*call)(void *const *), void *const *buffers, long count)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long k = 0; k < count; k++)
        call(buffers);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return 1e6 * (double)(to.tv_sec - from.tv_sec) + 1e-3 * (double)(to.tv_nsec - from.tv_nsec);
}
"""
# A waiting thread that spins steals the core of whoever works.
# Bound: threads that wait passively on a busy machine may else share one core.
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "OMP_DYNAMIC": "false", "OMP_PROC_BIND": "true"}
_WARM_UPS = 2
_LEAST = 5  # samples that no limit takes away
_PROBES = 3  # batches before a cut-off may end the timing
# A first call of this many cut-offs ends check and timing; what it may take for touching memory
# and code, or while others have the core, does not count.
_HOPELESS, _FIRST_US = 4.0, 4e4
_QUIET = 1.2  # median over least sample beyond which a round counts as disturbed
_ROUNDS = 3


def timing_service(*, timer: str) -> Callable:
    """Makes the service of a timing process.

    Args:
        timer: Path of the shared object made of TIMER.
    """
    measured = ctypes.CDLL(timer).kt_time_us
    measured.restype = ctypes.c_double
    measured.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)
    kinds = {Run: _run, Measure: _measure, Race: _race}
    return lambda task: kinds[type(task)](task, measured)


def _run(task: Run, _timer) -> dict[str, np.ndarray]:
    memory = Memory(task.binary.blocks)
    memory.fill(task.inputs)
    with _loaded(task.binary) as call:
        call(memory.pointers)
    damage = memory.damage(task.inputs)
    if damage:
        raise UsageError(f"a program must stay within its buffers, but {damage}")
    return {name: array.copy() for name, array in memory.outputs().items()}


def _measure(task: Measure, timer) -> Reading:
    began = time.perf_counter()
    memory = Memory(task.binary.blocks)
    with _loaded(task.binary) as call:
        worst = 0.0
        for case in reversed(task.cases):  # so that the first case's data stay for the timing
            inputs, expected = _case(task.folder, case, task.binary.blocks)
            memory.fill(inputs)
            took_us = timer(call, memory.pointers, 1)
            deviation = error(memory.outputs(), expected)
            wrong = memory.damage(inputs)
            if not wrong and not deviation <= task.tolerance:
                wrong = f"it deviates by {deviation:.2g}, more than {task.tolerance:.2g}"
            worst = max(worst, deviation)
            check_s = time.perf_counter() - began
            if wrong:
                return Reading("wrong_result", f"case {case}: {wrong}", (), check_s, worst)
            bound_us = took_us - _FIRST_US
            if bound_us > _HOPELESS * (task.cutoff_us or np.inf):
                return Reading("censored", "", (bound_us,), check_s, worst, 1)

        def batch(calls: int) -> float:
            return timer(call, memory.pointers, calls) / calls

        return _timed(batch, task, check_s, worst)


def _timed(batch: Callable[[int], float], task: Measure, check_s: float, worst: float) -> Reading:
    calls = _calls(batch, task.protocol.batch_us)
    best: list[float] = []
    status, rounds = "ok", 0
    while rounds < _ROUNDS:
        samples, slow = _round(batch, calls, task.protocol, task.cutoff_us)
        rounds += 1
        if not best or np.median(samples) < np.median(best):
            best = samples
        if slow:
            status, best = "censored", samples
            break
        if np.median(best) <= _QUIET * min(best):
            break
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return Reading(status, "", tuple(best), check_s, worst, calls, rounds, load)


def _round(batch, calls: int, protocol: Protocol, cutoff_us: float | None):
    """Returns the samples of a round, and whether the cut-off ended it."""
    samples: list[float] = []
    end = time.perf_counter() + protocol.limit_s
    while len(samples) < protocol.samples:
        samples.append(batch(calls))
        if len(samples) == _PROBES and cutoff_us is not None and min(samples) > cutoff_us:
            return samples, True
        if len(samples) >= _LEAST and time.perf_counter() > end:
            break
    return samples, False


def _calls(batch: Callable[[int], float], batch_us: float) -> int:
    """How many calls take `batch_us`; it warms up too."""
    latency = min(batch(1) for _ in range(_WARM_UPS))
    if latency < batch_us:  # the first calls of a fast program say little
        latency = min(latency, batch(max(1, int(batch_us / max(latency, 1e-3)))))
    return max(1, -int(-batch_us // max(latency, 1e-3)))


def _race(task: Race, timer) -> np.ndarray:
    out = np.full(task.order.shape, np.nan)
    calls: dict[int, int] = {}
    memories: list[Memory] = []
    for binary in task.binaries:
        memories.append(Memory(binary.blocks, beside=memories))
    inputs, _ = _case(task.folder, task.case, task.binaries[0].blocks)
    for memory in memories:
        memory.fill(inputs)
    for number, positions in enumerate(task.order):
        for at in positions:
            with _loaded(task.binaries[at]) as call:
                pointers = memories[at].pointers

                def batch(count: int, call=call, pointers=pointers) -> float:
                    return timer(call, pointers, count) / count

                if at not in calls:
                    calls[at] = _calls(batch, task.batch_us)
                batch(1)
                out[number, at] = np.median([batch(calls[at]) for _ in range(task.samples)])
    return out


@contextmanager
def _loaded(binary: Binary):
    loaded = ctypes.CDLL(binary.path)
    try:
        call = loaded[binary.symbol]
        call.restype = None
        yield call
    finally:
        _ctypes.dlclose(loaded._handle)


def _case(folder: str, case: str, blocks: Sequence[Block]):
    """Reads a case; the pages of its files are shared with whoever read them before."""

    def read(kind: str) -> dict[str, np.ndarray]:
        names = [block.name for block in blocks if block.kind == kind]
        return {n: np.load(Path(folder, case, f"{n}.npy"), mmap_mode="r") for n in names}

    return read("in"), read("out")
