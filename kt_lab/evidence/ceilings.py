"""What a machine was measured to do at best: bytes read or copied a second, multiply-adds.

The ceilings are programs of the dojo too, compiled and timed as all others are. A floor made of
them is a measured reference and no bound: another program may read or write faster.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kt_lab.errors import UsageError
from kt_lab.evidence.playing import measured
from kt_lab.evidence.resuming import short
from kt_lab.programs.expert import expert_schedule
from kt_lab.programs.operators import Operator, get_operator
from kt_lab.runners.c import CRunner, Protocol
from kt_lab.trial import OK, Config
from kt_lab.workload import Workload

_ROW = 4096  # elements
_WIDTH, _CHAINS = 16, 24  # lanes, and vectors that do not wait for each other
_STEPS = 4096
_READ_ONLY = 0.1  # share of results in the bytes, below which reading is what counts

_COPY = """kernel copy
in x f32 [$rows,$cols]
out z f32 [$rows,$cols]
---
$rows
| $cols
| | z[{0},{1}] = x[{0},{1}]
"""
_FMA = """kernel fma
in x f32 [$lanes]
in y f32 [$lanes]
in s f32 [$parts,$chains,$lanes]
tmp t f32 [$parts,$chains,$lanes] heap
out z f32 [$parts,$chains,$lanes]
---
$parts
| $chains
| | $lanes
| | | t[{0},{1},{2}] = s[{0},{1},{2}]
| $steps
| | $chains
| | | $lanes
| | | | t[{0},{2},{3}] = t[{0},{2},{3}] * x[{3}] + y[{3}]
| $chains
| | $lanes
| | | z[{0},{1},{2}] = t[{0},{1},{2}]
"""
_FMA_SCHEDULE = """reuse_dim t 0; place t reg; vectorise 0.0.0; unroll 0.0; vectorise 0.1.0.0;
    unroll 0.1.0; vectorise 0.2.0; unroll 0.2"""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Measured limits, by one or more threads.

    Attributes:
        threads: How many.
        bytes: That are touched in all.
        copy_gb_s: Bytes read and written, each counted, in 1e9 a second; the best of plain and
            non-temporal stores.
        read_gb_s: Bytes read and summed.
        gflop_s: Arithmetic of multiply-adds that count as two, on registers alone.
    """

    threads: int
    bytes: int
    copy_gb_s: float
    read_gb_s: float
    gflop_s: float


def floor_us(operator: Operator, extents: dict[str, int], found: Ceilings) -> tuple[float, str]:
    """Returns a measured reference for the programs of an operator, and what it goes by.

    Microseconds of bytes that must move at the bandwidth measured for as many bytes (of reading
    where hardly anything is written; else of copying or of reading, whichever is higher, as a
    cache may read faster than it is written), or of arithmetic at the rate of multiply-adds,
    whichever takes longer. Programs whose bytes lie in a cache do beat it: two streams may be
    read faster than one, and a ceiling may have been disturbed.
    """
    program = operator.program(extents)
    moved = operator.bytes_moved(extents)
    written = sum(b.bytes for b in program.of_kind("out"))
    reads = written < _READ_ONLY * moved
    rate = found.read_gb_s if reads else max(found.copy_gb_s, found.read_gb_s)
    times = {
        "read" if reads else "copy": moved / rate / 1e3,
        "flops": operator.flops(extents) / found.gflop_s / 1e3,
    }
    limit = max(times, key=times.get)
    return times[limit], limit


def pooled(own: Ceilings, found: Sequence[Ceilings]) -> Ceilings:
    """Returns the highest limits that the same number of threads showed in any measurement.

    A low one was disturbed: nothing makes a machine faster than it is. Arithmetic knows no size;
    bandwidths are those of as many bytes or more, as fewer bytes are in a nearer cache.

    Args:
        own: Measured for the bytes and threads in question.
        found: All measurements of the machine.
    """
    same = [each for each in (own, *found) if each.threads == own.threads]
    more = [each for each in same if each.bytes >= own.bytes]
    return replace(
        own,
        copy_gb_s=max(each.copy_gb_s for each in more),
        read_gb_s=max(each.read_gb_s for each in more),
        gflop_s=max(each.gflop_s for each in same),
    )


def measure_ceilings(
    size: int, *, threads: int, protocol: Protocol, waits: Sequence[bool] = (False,)
) -> Ceilings:
    """Measures the ceilings for programs that touch about `size` bytes.

    Args:
        size: Bytes in all.
        threads: Of the programs.
        protocol: How to time.
        waits: Whether waiting threads stay awake; the best of these ways counts.
    """
    rows = {"copy": max(threads, size // (8 * _ROW)), "read": max(threads, size // (4 * _ROW))}
    parallel = "; parallelise 0" if threads > 1 else ""
    plain = f"vectorise 0.0{parallel}"
    copy = {"rows": rows["copy"], "cols": _ROW}
    copied = 8 * rows["copy"] * _ROW
    read = {"rows": rows["read"], "cols": _ROW}
    summing = get_operator("row_sum")
    summed = expert_schedule(summing.program(read), threads=threads, region_us=0.0)
    fma = {"parts": 2 * threads, "steps": _STEPS, "lanes": _WIDTH, "chains": _CHAINS}
    work = 2 * 2 * threads * _STEPS * _WIDTH * _CHAINS
    asked = {"threads": threads, "protocol": protocol, "waits": waits}
    rates = (  # as they are stored, so that a floor of a stored row is the floor that was told
        copied / _best_us(_copy(), copy, (plain, f"{plain}; place z nt"), **asked) / 1e3,
        4 * rows["read"] * _ROW / _best_us(summing, read, (summed,), **asked) / 1e3,
        work / _best_us(_fma(fma["parts"]), fma, (_FMA_SCHEDULE + parallel,), **asked) / 1e3,
    )
    return Ceilings(threads, size, *map(short, rates))


def _best_us(operator: Operator, extents, schedules, *, waits: Sequence[bool], **asked) -> float:
    workload = Workload(operator.name, "ceiling", extents, "float32", "this house's choice")
    found = []
    for awake in waits:
        with CRunner(workload, operator=operator, awake=awake, **asked) as runner:
            for schedule in schedules:
                reading = measured(runner, Config(schedule=schedule))
                if reading.status != OK:
                    raise UsageError(
                        f"a ceiling must be measured, got {reading.status} of {operator.name}: "
                        f"{reading.error}"
                    )
                found.append(min(reading.samples_us))
    return min(found)


def _copy() -> Operator:
    tiny = {"rows": 2, "cols": 16}
    return Operator("copy", "A copy.", _COPY, lambda x: {"z": x["x"]}, (), tiny)


def _fma(parts: int) -> Operator:
    # the fixed point of t = t/2 + 1, which float32 has reached after 25 steps
    limit = {"z": np.full((parts, _CHAINS, _WIDTH), 2.0)}
    tiny = {"parts": 1, "steps": 64, "lanes": _WIDTH, "chains": _CHAINS}
    special = {  # chains that begin alike would be computed once
        "x": lambda _, shape: np.full(shape, 0.5),
        "y": lambda _, shape: np.full(shape, 1.0),
    }
    return Operator("fma", "Multiply-adds.", _FMA, lambda _: limit, (), tiny, special=special)
