"""TVM's ways to compute the dojo's operators, tuned and timed; a process of its own.

    python -m kt_lab.evidence.tvm_paths < job.json > answer.json

It runs where TVM is, which need not be where kt_lab is installed: beside TVM it takes numpy only.
A job that has `trials` compiles an operator into `folder`, as TVM makes it by default and the
fastest that MetaSchedule read; a job without checks and times what is there. A batch of calls is
timed in TVM's own loop, without what Python takes to make a call, as our programs are timed.
"""

import functools
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.evidence.torch_paths import alternating, failed, judged, main
from kt_lab.programs.operators import get_operator

UNTUNED, TUNED = "tvm", "tvm_tuned"
_LIMIT_S = 5.0  # of a path: an untuned convolution takes seconds a call
_BUILD_S = 120.0  # MetaSchedule's own 30 would lose what it unrolls most, on few cores
_FAILED_S = 1e6  # MetaSchedule notes what did not run with seconds beyond any


def environment(threads: int, *, awake: bool = True) -> dict[str, str]:
    """Returns the environment of a process of so many threads, bound to cores.

    Args:
        threads: Of every function.
        awake: Whether threads that wait spin, as TVM has it when nobody asks, or sleep.
    """
    return {
        "TVM_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "TVM_BIND_THREADS": "1",
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "-1",
    } | ({} if awake else {"TVM_THREAD_POOL_SPIN_COUNT": "0"})


def answer(job: Mapping[str, Any]) -> dict[str, Any]:
    """Tunes or times one workload.

    Args:
        job: `operator`, `extents`, `threads` and `folder`; and `trials`, `seed` and `finalists`,
            or `rounds` and `batch_us`. Nothing of them: only the version is asked for.

    Returns:
        See `_tuned` and `_timed`; and `tvm`, its version.
    """
    import tvm

    if "folder" not in job:
        return {"tvm": tvm.__version__}
    return (_tuned if "trials" in job else _timed)(job) | {"tvm": tvm.__version__}


def _tuned(job: Mapping[str, Any]) -> dict[str, Any]:
    """Tunes; returns target, trials measured, failed of them, seconds, and errors by path.

    A trial has failed, too, that took too long to build (`build_limit_s`) or to run (30 s).
    """
    import tvm
    from tvm.s_tir import meta_schedule as ms
    from tvm.target.codegen import llvm_get_system_cpu

    from kt_lab.evidence.tvm_operators import function

    made = {"kind": "llvm", "mcpu": llvm_get_system_cpu(), "num-cores": job["threads"]}
    target = tvm.target.Target(made)
    func = function(job["operator"], get_operator(job["operator"]).program(job["extents"]))
    errors = {}

    def export(path: str, module) -> None:
        file = Path(job["folder"], f"{path}.so")
        try:
            tvm.compile(module, target).export_library(str(file))
        except Exception as wrong:  # what TVM cannot compile is a fact to store
            errors[variant_of(file)] = failed(wrong)["error"]

    export(UNTUNED, func)
    cores, began = os.cpu_count() or 1, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        database = ms.tune_tir(
            func,
            target,
            work_dir=folder,
            max_trials_global=job["trials"],
            num_trials_per_iter=min(64, -(-job["trials"] // 4)),  # so that its model can learn
            num_tuning_cores=cores,  # they build; one trial runs at a time
            builder=ms.builder.LocalBuilder(max_workers=cores, timeout_sec=_BUILD_S),
            seed=job["seed"],
        )
        records = database.get_all_tuning_records()
        fastest = database.get_top_k(records[0].workload, job["finalists"]) if records else []
    seconds = time.monotonic() - began
    for rank, record in enumerate(fastest):
        schedule = tvm.s_tir.Schedule(record.workload.mod)
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
        export(f"{TUNED}@{rank}", schedule.mod)
    if not fastest:
        errors[TUNED] = "MetaSchedule found no schedule"
    failures = sum(min(map(float, r.run_secs or [np.inf])) > _FAILED_S for r in records)
    counts = {"trials": len(records), "failed": failures, "seconds": seconds}
    counts["build_limit_s"] = _BUILD_S
    return {"target": made, **counts, "errors": errors}


def variant_of(file: Path) -> str:
    """Returns path/variant of a compiled file of a job's folder, or the path that has none."""
    return file.stem.replace("@", "/")


def _timed(job: Mapping[str, Any]) -> dict[str, Any]:
    """Checks and times in alternation; returns paths: samples_us, deviation and error of each."""
    import tvm

    operator = get_operator(job["operator"])
    inputs = operator.inputs(job["extents"])
    expected = operator.expected(inputs)
    names = [b.name for b in operator.program(job["extents"]).of_kind("out")]
    # One set of buffers for all, as our programs have: see kt_lab.runners.c.memory.
    poison = [np.full(expected[n].shape, np.nan, np.float32) for n in names]
    outputs = [tvm.runtime.tensor(a) for a in poison]
    arrays = [tvm.runtime.tensor(a) for a in inputs.values()] + outputs
    rows, batches = {}, {}
    for file in sorted(Path(job["folder"]).glob("*.so")):
        path, library = variant_of(file), tvm.runtime.load_module(str(file))
        for output, nan in zip(outputs, poison, strict=True):
            output.copyfrom(nan)
        try:
            library["main"](*arrays)
        except Exception as wrong:  # as above
            rows[path] = failed(wrong)
            continue
        found = {n: a.numpy() for n, a in zip(names, outputs, strict=True)}
        rows[path] = judged(found, expected, operator.tolerance(job["extents"]))
        if not rows[path]["error"]:
            batches[path] = functools.partial(_batch, library, arrays)
    taken = alternating(batches, job["rounds"], job["batch_us"], limit_s=_LIMIT_S)
    for path, samples in taken.items():
        rows[path]["samples_us"] = samples
    return {"paths": rows, "threads": tvm.get_global_func("runtime.NumThreads")()}


def _batch(library, arrays: list, count: int) -> float:
    import tvm

    timer = library.time_evaluator("main", tvm.cpu(), number=count, repeat=1)
    return timer(*arrays).mean * 1e6


if __name__ == "__main__":
    main(answer)
