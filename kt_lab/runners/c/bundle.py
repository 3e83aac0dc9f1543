"""Tuned operators as one C library: sources, header, shared object, Python wrapper, schedules.

Every schedule is replayed, compared with the operator's reference and timed before it goes in.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kt_lab.errors import ProgramError, UsageError
from kt_lab.programs.emit_c import emit_c, parameters, signature
from kt_lab.programs.ir import Program
from kt_lab.runners.c.runner import CRunner
from kt_lab.runners.c.toolchain import Toolchain, build, find_toolchain
from kt_lab.trial import OK, Config, Proposal

_WRAPPER = '''"""The operators of lib{name}.so on NumPy arrays: `call("{first}", ..)`.

Inputs are cast to the dtype of their buffer. Outputs come back new, unless `out` holds
C-contiguous arrays for them, aligned to 64 bytes, that share no memory with an input or with each
other. Two threads need two `out`. Functions of several threads cannot be called in a process that
was forked after a call: use the start method spawn.
"""

import ctypes
import json
import os
from pathlib import Path

import numpy as np

_HERE = Path(__file__).resolve().parent
_RECORD = json.loads((_HERE / "{name}.json").read_text(encoding="utf-8"))
TABLE = _RECORD["functions"]
_LIBRARY = ctypes.CDLL(str(_HERE / "lib{name}.so"))
_CALLED, _FORKED = [], []  # OpenMP's threads do not survive a fork: a call would wait for ever
if _RECORD["threads"] > 1 and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _FORKED.extend(_CALLED))
_DTYPES = {{"f32": np.float32, "f64": np.float64}}


def empty(shape, dtype=np.float32):
    """Returns an uninitialised array aligned to 64 bytes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)


def _refuse_shared(arrays, outputs):
    """Raises where an output overlaps: the C code reads and writes as if none did (restrict)."""
    for name in outputs:
        for other, array in arrays.items():
            if other != name and np.shares_memory(array, arrays[name]):
                raise ValueError(
                    f"an output must share no memory with another buffer, got {{name}} on that of "
                    f"{{other}}; give out= an array of its own, such as empty(shape)"
                )


def call(name, *inputs, out=None):
    """Computes one function of TABLE; returns its outputs by name."""
    buffers, arrays, given = TABLE[name]["buffers"], {{}}, list(inputs)
    if len(given) != sum(b["kind"] == "in" for b in buffers):
        raise ValueError(f"{{name}} takes {{[b['name'] for b in buffers if b['kind'] == 'in']}}")
    for b in buffers:
        dtype, shape = _DTYPES[b["dtype"]], tuple(b["shape"])
        if b["kind"] == "in":
            array = np.ascontiguousarray(given.pop(0), dtype)
        elif b["kind"] == "out" and out is not None:
            if b["name"] not in out:
                raise ValueError(f"out= must hold {{b['name']}}, got {{sorted(out)}}")
            array = out[b["name"]]
            plain = array.dtype == dtype and array.flags.c_contiguous and array.flags.writeable
            if not plain or array.ctypes.data % 64:
                raise ValueError(
                    f"{{b['name']}} must be {{b['dtype']}}, contiguous, writeable and aligned"
                )
        else:
            array = empty(shape if b["kind"] == "out" else (b["elements"],), dtype)
        if b["kind"] != "tmp" and array.shape != shape:
            raise ValueError(f"{{b['name']}} has the shape {{shape}}, not {{array.shape}}")
        arrays[b["name"]] = array
    _refuse_shared(arrays, [b["name"] for b in buffers if b["kind"] == "out"])
    if _FORKED:
        raise RuntimeError("a library of several threads was called before this process was "
                           "forked from that; use multiprocessing's start method spawn")
    _CALLED[:] = [name]
    _LIBRARY[TABLE[name]["symbol"]](*(ctypes.c_void_p(a.ctypes.data) for a in arrays.values()))
    return {{b["name"]: arrays[b["name"]] for b in buffers if b["kind"] == "out"}}
'''


def write_library(
    folder: Path | str,
    schedules: Mapping[str, str],
    *,
    name: str = "kt_ops",
    threads: int = 1,
    toolchain: Toolchain | None = None,
) -> dict[str, Any]:
    """Writes a library of tuned operators.

    It consists of FUNCTION.c for each, NAME.h, libNAME.so for this machine, NAME.py, a wrapper by
    ctypes, and NAME.json with schedules, latencies and how they were measured.

    Args:
        folder: Where to; made if need be.
        schedules: Schedules by the key of a workload ("softmax/512x1024"), at least one.
        name: Of the library, an identifier.
        threads: Of every operator.
        toolchain: The C compiler; None: the one found first.

    Returns:
        What NAME.json holds.

    Raises:
        ProgramError: A schedule does not replay, or its program is wrong or fails.
    """
    if not schedules or not name.isidentifier():
        raise UsageError(
            f"a library must have a schedule and an identifier for a name, got {len(schedules)} "
            f"schedules and {name!r}"
        )
    folder, chain = Path(folder), toolchain or find_toolchain()
    functions, declared, sources = {}, [], []
    verified = {key: _verified(key, text, threads, chain) for key, text in schedules.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for key, (program, facts) in verified.items():
        function = key.replace("/", "_")
        sources.append(folder / f"{function}.c")
        sources[-1].write_text(emit_c(program, name=function), encoding="utf-8")
        declared += [_comment(program), f"{signature(program, function)};"]
        functions[function] = facts | {"symbol": f"kt_{function}", "buffers": _buffers(program)}
    record = {
        "threads": threads,
        "compiler": chain.version,
        "flags": " ".join(chain.flags(threads)),
        "functions": functions,
    }
    texts = {"h": _header(name, record, declared), "json": json.dumps(record, indent=1) + "\n"}
    texts["py"] = _WRAPPER.format(name=name, first=next(iter(functions)))
    for suffix, text in texts.items():
        (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    error = build(chain.line(folder / f"lib{name}.so", *sources, threads=threads), "")
    if error:
        raise ProgramError(f"a library must link, got {error}")
    return record


def _header(name: str, record: Mapping[str, Any], declared: Sequence[str]) -> str:
    guard = f"{name.upper()}_H"
    head = f"/* Built with {record['compiler']}, {record['flags']}; align buffers to 64 bytes. */"
    return "\n".join([head, f"#ifndef {guard}", f"#define {guard}", *declared, "#endif", ""])


def _verified(
    key: str, schedule: str, threads: int, chain: Toolchain
) -> tuple[Program, dict[str, Any]]:
    config = Config(schedule=schedule)
    with CRunner(key, threads=threads, toolchain=chain) as runner:
        try:
            program = runner.program(config)
        except ProgramError as error:
            raise ProgramError(f"the schedule of {key} must replay; {error}") from None
        runner.submit([Proposal(0, config)])
        _, measurement = runner.next()
    if measurement.status != OK:
        raise ProgramError(f"{key} must be right, got {measurement.status}: {measurement.error}")
    facts = {"workload": key, "schedule": schedule, "latency_us": measurement.latency_us}
    info = {name: measurement.info[name] for name in ("min_us", "p90_us", "deviation", "protocol")}
    return program, facts | info


def _buffers(program: Program) -> list[dict[str, Any]]:
    return [
        {
            "name": b.name,
            "kind": b.kind,
            "dtype": b.dtype,
            "shape": list(b.shape),
            "elements": b.elements,
        }
        for b in parameters(program)
    ]


def _comment(program: Program) -> str:
    shapes = [
        f"{b.name} {'workspace of ' if b.kind == 'tmp' else ''}"
        f"{'x'.join(map(str, b.shape)) if b.kind != 'tmp' else b.elements}"
        for b in parameters(program)
    ]
    return f"\n/* {', '.join(shapes)} */"
