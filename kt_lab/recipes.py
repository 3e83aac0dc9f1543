"""Recipes: from one laptop to a cluster. Each returns a Dask client to give as `executor=`.

    with recipes.local(4) as client:
        runs = experiment.run(executor=client, directory="runs")

Closing the client (leaving `with`) ends the workers that the recipe started. All of them need the
extra `dask`. Workers must have the same kt_lab and the same data as the caller: each run carries
the fingerprint of both, and a worker that differs refuses it by name. Workers have one thread
each, because a searcher may own the global state of its process.

`client.dashboard_link` is the page that shows what every worker does.
"""

import importlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from kt_lab.errors import UsageError, install
from kt_lab.record.spread import GPU
from kt_lab.runners.gpu.facts import gpu_uuid
from kt_lab.runners.workers import usable_cores


def local(workers: int | None = None, *, dashboard: bool = True) -> Any:
    """Returns a client of so many processes of this machine, one per core by default.

    Needs nothing but the extra `dask`. For runs on one machine `process_pool` does the same with
    less; this is where the way to a cluster is tried out.

    Args:
        workers: How many, >= 1.
        dashboard: Whether a page shows the workers, on any free port of this machine.
    """
    distributed = _required("distributed")
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be >= 1, got workers={workers}")
    return _client(
        distributed.LocalCluster(
            n_workers=workers or usable_cores(),
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.ERROR,
            scheduler_kwargs={"dashboard": dashboard},
        )
    )


def host_gpus(devices: Sequence[str] | None = None, *, dashboard: bool = True) -> Any:
    """Returns a client of one worker per GPU of this host, for `kt_lab.record.record`.

    Every worker sees its own GPU and no other (CUDA_VISIBLE_DEVICES by UUID), so that nothing can
    time on a neighbour's, and offers it as the resource GPU. Needs the extras `dask` and `gpu`,
    and NVML to tell the UUIDs.

    Args:
        devices: UUIDs of GPUs; None: all that this process may use.
        dashboard: As in `local`.
    """
    distributed = _required("distributed")
    devices = list(devices or gpu_uuids())
    if not devices:
        raise UsageError(
            "a worker per GPU needs a GPU, got none that NVML knows; see kt-lab doctor"
        )
    workers = {uuid: {"cls": distributed.Nanny, "options": gpu_worker(uuid)} for uuid in devices}
    options = {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0"}
    options |= {"dashboard": dashboard}
    scheduler = {"cls": distributed.Scheduler, "options": options}
    quiet = {"silence_logs": logging.ERROR}
    return _client(distributed.SpecCluster(workers=workers, scheduler=scheduler, **quiet))


def gpu_uuids() -> list[str]:
    """Returns the identities of the GPUs that this process may use, in its order."""
    found: list[str] = []
    while uuid := gpu_uuid(len(found)):
        found.append(uuid)
    return found


def gpu_worker(uuid: str) -> dict[str, Any]:
    """Returns the options of a Dask nanny whose worker has this GPU and no other."""
    return {"nthreads": 1, "resources": dict(GPU), "env": {"CUDA_VISIBLE_DEVICES": uuid}}


def ssh(hosts: Sequence[str], *, workers: int = 1, python: str | None = None) -> Any:
    """Returns a client of workers on hosts that this one reaches by ssh.

    Needs the extra `dask` and asyncssh here (`pip install asyncssh`); on every host a login by
    key, and kt_lab with its data in the same Python version. The scheduler runs on the first
    host; the hosts must reach each other.

    Args:
        hosts: Names or addresses, one at least.
        workers: Processes on each host, >= 1.
        python: Path of the Python on the hosts; None: that of this process.
    """
    distributed = _required("distributed")
    _required("asyncssh", fix="pip install asyncssh")
    if not hosts or workers < 1:
        raise UsageError(f"ssh needs a host and workers >= 1, got {hosts!r} and {workers}")
    return _client(
        distributed.SSHCluster(
            [hosts[0], *hosts],
            worker_options={"nthreads": 1, "n_workers": workers},
            remote_python=python,
        )
    )


def slurm(
    jobs: int,
    *,
    cores: int = 1,
    memory: str = "4GB",
    walltime: str = "01:00:00",
    queue: str | None = None,
    gpus: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Returns a client of workers that SLURM starts as jobs; they join as the queue lets them.

    Needs the extra `dask` and dask-jobqueue (`pip install dask-jobqueue`), `sbatch` on this host,
    and a file system with kt_lab and its data that the nodes share. Give
    `executors.DaskExecutor(client, patience_s=...)` more patience than the queue takes.

    Args:
        jobs: How many, >= 1.
        cores: Of each job, one process each; with `gpus` one process has them all for compiling.
        memory: Of each job.
        walltime: Of each job; a run that a job's end cuts off is computed by another.
        queue: SLURM's partition.
        gpus: Of each job, 0 or 1: which one it is, SLURM says in CUDA_VISIBLE_DEVICES.
        options: What else `dask_jobqueue.SLURMCluster` takes, for example account.
    """
    jobqueue = _required("dask_jobqueue", fix="pip install dask-jobqueue")
    if jobs < 1 or gpus not in (0, 1):
        raise UsageError(f"slurm needs jobs >= 1 and gpus of 0 or 1 each, got {jobs} and {gpus}")
    wanted = {"cores": cores, "processes": cores, "memory": memory, "walltime": walltime}
    if gpus:
        wanted |= {"cores": 1, "processes": 1, "job_cpu": cores}
        wanted["job_extra_directives"] = ["--gpus=1"]
        wanted["worker_extra_args"] = ["--resources", "GPU=1"]
    cluster = jobqueue.SLURMCluster(queue=queue, **(wanted | dict(options or {})))
    cluster.scale(jobs=jobs)
    return _client(cluster)


def _client(cluster: Any) -> Any:
    """Returns a client that takes its cluster down with it."""
    client = cluster.get_client()
    alone = client.close

    def close(*args: Any, **kwargs: Any) -> None:
        try:
            alone(*args, **kwargs)
        finally:
            cluster.close()

    client.close = close
    return client


def _required(module: str, *, fix: str = install("dask")) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"this recipe needs the package {module}, got {error}; {fix}") from None
