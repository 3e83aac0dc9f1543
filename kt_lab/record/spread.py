"""Recordings spread over a cluster: each workload is recorded by one worker with its own GPU."""

from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from kt_lab.executors import as_executor
from kt_lab.record.recording import SERVICES, Recording
from kt_lab.record.state import RecordOptions
from kt_lab.record.works import Work, works_of
from kt_lab.workload import Kernel, Workload

GPU = {"GPU": 1}
"""What a Dask worker must offer to time on its GPU, as `kt_lab.recipes` start them."""


def record(
    workloads: Sequence[str | Workload],
    *,
    directory: Path | str,
    options: RecordOptions | None = None,
    kernel: Kernel | None = None,
    executor: Any = None,
    services: Mapping[str, str] = SERVICES,
) -> list[Path]:
    """Records workloads here, or each on a worker that has a GPU; resumes what is journaled.

    Args:
        workloads: Workloads, or keys: any shapes of kernels.
        directory: Journals, compiled binaries and landscapes; workers must share it.
        options: How to measure; None: as RecordOptions has it. On a cluster set
            `compile_workers` to the cores that a GPU has to itself.
        kernel: That they are of; None: the registered ones. Workers of other hosts must see a
            captured one's file, as with $KT_LAB_CACHE in a shared folder.
        executor: A `distributed.Client` whose workers offer the resource GPU and see one each, or
            an executor of processes that do; None: `Recording` on this host's GPUs.
        services: As in `Recording`.

    Returns:
        The landscapes that are complete, sorted; those that `options.stop_after_s` cut off are
        missing.
    """
    directory, options = Path(directory), options or RecordOptions()
    if executor is None:
        made = Recording(
            workloads, directory=directory, options=options, kernel=kernel, services=services
        )
        return sorted(made.run())
    options = replace(options, device=0, devices=())
    with_gpu = as_executor(executor, resources=GPU)
    told = [
        with_gpu.submit(_record_one, work, str(directory), options, dict(services))
        for work in works_of(workloads, kernel).values()  # unknown ones raise here
    ]
    return sorted(path for future in as_completed(told) for path in future.result())


def _record_one(work: Work, directory: str, options: RecordOptions, services: dict) -> list[Path]:
    name = f"journal-{work.workload.key.replace('/', '-')}.jsonl"
    return Recording(
        [work.workload],
        directory=Path(directory),
        options=options,
        kernel=work.kernel,
        services=services,
        journal=name,
    ).run()
