"""Recordings spread over a cluster: each workload is recorded by one worker with its own GPU."""

from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from kt_lab.executors import as_executor
from kt_lab.kernels import get_workload
from kt_lab.record.recording import SERVICES, Recording
from kt_lab.record.state import RecordOptions

GPU = {"GPU": 1}
"""What a Dask worker must offer to time on its GPU, as `kt_lab.recipes` start them."""


def record(
    workloads: Sequence[str],
    *,
    directory: Path | str,
    options: RecordOptions,
    executor: Any = None,
    services: Mapping[str, str] = SERVICES,
) -> list[Path]:
    """Records workloads here, or each on a worker that has a GPU; resumes what is journaled.

    Args:
        workloads: Keys of registered workloads.
        directory: Journals, compiled binaries and landscapes; workers must share it.
        options: How to measure. On a cluster set `compile_workers` to the cores that a GPU has to
            itself.
        executor: A `distributed.Client` whose workers offer the resource GPU and see one each, or
            an executor of processes that do; None: `Recording` on this host's GPUs.
        services: As in `Recording`.

    Returns:
        The landscapes that are complete, sorted; those that `options.stop_after_s` cut off are
        missing.
    """
    directory = Path(directory)
    if executor is None:
        made = Recording(workloads, directory=directory, options=options, services=services)
        return sorted(made.run())
    keys = [get_workload(key).key for key in workloads]  # unknown ones raise here
    options = replace(options, device=0, devices=())
    with_gpu = as_executor(executor, resources=GPU)
    told = [with_gpu.submit(_record_one, k, str(directory), options, dict(services)) for k in keys]
    return sorted(path for future in as_completed(told) for path in future.result())


def _record_one(key: str, directory: str, options: RecordOptions, services: dict) -> list[Path]:
    name = f"journal-{key.replace('/', '-')}.jsonl"
    return Recording(
        [key], directory=Path(directory), options=options, services=services, journal=name
    ).run()
