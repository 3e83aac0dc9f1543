"""Executors: runs computed in this process, on its cores or by a cluster, with one result.

Whatever computes a run computes it from the same cell, and only if what determines the result is
the same there as here. A worker that dies costs time, not a run; a lost network ends the run with
what to do next, and what was computed by then is in the journal.
"""

import ast
import hashlib
import os
import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from traceback import extract_tb
from typing import Any

from kt_lab import __version__
from kt_lab.cells import Cell, columns, recorded, run_cell, searcher_kind
from kt_lab.errors import StoreError, UnknownName, UsageError
from kt_lab.kernels import get_kernel
from kt_lab.provenance import kernel_source
from kt_lab.search.peers.handoff import PeerSearcher

_LOOK_S = 0.2  # how often a stop is looked for while runs go on
_COUNT_S = 1.0  # how often a cluster is asked for its workers
_LEAST = 16  # calls handed to a cluster without workers: an adaptive one starts them for these
_AHEAD = 4  # calls per worker that a pool holds: other processes take of the rest
_UNTOLD = 64  # workers of an executor that does not say how many it has
_DEATHS = 3  # workers that a run may take with it; after the first one it is computed alone


class DaskExecutor(Executor):
    """A Dask client as an executor of `concurrent.futures`, which notices that a cluster is gone.

    Runs whose worker died are given to another by Dask itself.
    """

    def __init__(self, client: Any, *, patience_s: float = 300.0, **asked: Any):
        """Takes a client, which stays open.

        Args:
            client: A synchronous `distributed.Client`.
            patience_s: How long to wait for a worker while there is none, > 0 seconds: longer
                than a batch system's queue if workers are jobs.
            asked: What `client.get_executor` takes, for example resources={"GPU": 1}.
        """
        self.client, self.patience_s = client, patience_s
        self._inner = client.get_executor(**({"pure": False} | asked))
        self._counted, self._seen, self._threads = -_COUNT_S, time.monotonic(), {}

    @property
    def window(self) -> int:
        """How many calls to hand over at a time: enough for the workers that there are."""
        return max(_LEAST, 2 * sum(self.workers().values()))

    def workers(self) -> dict[str, int]:
        """Returns how many threads each worker has, by its address, as of a second ago.

        Raises:
            StoreError: The scheduler is out of reach, or no worker was there for too long.
        """
        now = time.monotonic()
        if self.client.status not in ("running", "connecting"):
            raise lost(f"a client that is {self.client.status}")
        if now - self._counted > _COUNT_S:
            try:
                self._threads = dict(self.client.nthreads())
            except Exception as error:
                raise lost(f"{type(error).__name__} from the scheduler: {error}") from error
            self._counted = now
        self._seen = now if self._threads else self._seen
        if now - self._seen > self.patience_s:
            raise lost(f"no worker for {self.patience_s:g} s")
        return self._threads

    def submit(self, fn: Callable, /, *args: Any, **kwargs: Any) -> Future:
        """Hands a call to the cluster."""
        self.workers()
        return self._inner.submit(fn, *args, **kwargs)


def lost(found: str) -> StoreError:
    """Returns the error that says that a cluster is out of reach, and how to go on."""
    return StoreError(
        f"a cluster must stay within reach while it computes, got {found}; nothing that came back "
        "is lost: the journal in directory=... is kept, connect a client again and run the same "
        "again with it, or without an executor, to go on from there"
    )


def as_executor(given: Any, **asked: Any) -> Executor:
    """Returns an executor for what `run(executor=...)` was given.

    Args:
        given: An executor, a `distributed.Client` or its `get_executor()`.
        asked: What calls need of a cluster, see `DaskExecutor`; others ignore it.
    """
    if isinstance(given, DaskExecutor) and asked:
        return DaskExecutor(given.client, patience_s=given.patience_s, **asked)
    if hasattr(given, "get_executor") and hasattr(given, "nthreads"):
        return DaskExecutor(given, **asked)
    if isinstance(given, Executor) and type(given).__module__.startswith("distributed."):
        return DaskExecutor(given._client, **(given._kwargs | asked))
    if isinstance(given, Executor):
        return given
    raise UsageError(
        "executor must be one of concurrent.futures, a distributed.Client or its get_executor(), "
        f"got {type(given).__name__}; of a Dask cluster give cluster.get_client()"
    )


def require_processes(executor: Executor, searchers: Mapping[str, str | None]) -> None:
    """Raises UsageError if a searcher that owns its loop would share a process with another.

    Args:
        executor: From `as_executor`.
        searchers: Name of the algorithm -> its source, if it has one, as in `Cell`.
    """
    own = [
        a for a, source in searchers.items() if issubclass(searcher_kind(a, source), PeerSearcher)
    ]
    threads = isinstance(executor, ThreadPoolExecutor)
    if own and isinstance(executor, DaskExecutor):
        workers = executor.workers().items()
        threads = any(n > 1 or address.startswith("inproc") for address, n in workers)
    if own and threads:
        raise UsageError(
            f"searchers that own their loop swap the global state of their process, so each needs "
            f"one of its own, got {', '.join(own)} on threads; use process_pool(), or Dask with "
            "processes=True and threads_per_worker=1"
        )


@lru_cache(maxsize=256)
def code_hash(algorithm: str, source: str | None) -> str:
    """Returns kt_lab's version and a hash over the modules that runs of a searcher come from.

    These are the modules of `run_cell` and of the searcher, and those that they import: changing
    another searcher changes nothing.
    """
    todo = [run_cell.__module__, searcher_kind(algorithm, source).__module__]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in found and _file(name):
            found.add(name)
            todo += _imported(name)
    digest = hashlib.sha256((source or "").encode())
    for name in sorted(found):
        digest.update(_file(name).read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"


@lru_cache(maxsize=1024)
def _imported(module: str) -> list[str]:
    """Returns what a module's source imports: not what happens to be loaded in this process."""
    names = []
    for node in ast.walk(ast.parse(_file(module).read_bytes())):
        if isinstance(node, ast.ImportFrom):
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


def _file(module: str) -> Path | None:
    """Returns the source of a module of kt_lab; None for anything else."""
    package, *parts = module.split(".")
    place = Path(__file__).parent.joinpath(*parts)
    choices = (place.with_suffix(".py"), place / "__init__.py")
    ours = package == "kt_lab" and parts
    return next((path for path in choices if path.is_file()), None) if ours else None


@lru_cache(maxsize=256)
def data_hashes(workload: str, gpu: str | None) -> dict[str, str]:
    """Returns what runs on a recorded workload read: landscape, kernel source and space."""
    landscape = recorded(workload, gpu)
    try:
        source = kernel_source(get_kernel(landscape.kernel))
    except UnknownName:  # a foreign landscape: its manifest is all that anybody has
        source = str(landscape.manifest.get("kernel_source"))
    sha256 = str(landscape.manifest.get("sha256"))
    return {"landscape": sha256, "kernel source": source, "space": landscape.space.fingerprint}


def fingerprint(cell: Cell) -> dict[str, str]:
    """Returns what must be equal wherever a run is computed."""
    code = code_hash(cell.algorithm, cell.source)
    return {"kt_lab": code} | data_hashes(cell.workload, cell.gpu)


def run_checked(cell: Cell, expected: Mapping[str, str]) -> tuple[dict[str, list], str]:
    """Computes a run where the fingerprint is what the caller expects; called in workers.

    Returns:
        Its columns, and the `process_name` of who computed it.

    Raises:
        UsageError: kt_lab, landscape, kernel or space differ here.
    """
    found = fingerprint(cell)
    different = [name for name in expected if found.get(name) != expected[name]]
    if different:
        told = "; ".join(f"{n} {found.get(n)} there, {expected[n]} here" for n in different)
        raise UsageError(
            f"a worker must have what its caller has, got another {' and '.join(different)} for "
            f"{cell.workload} in process {os.getpid()} of {platform.node()}: {told}; install the "
            "same kt_lab and data there and restart its workers"
        )
    return columns(run_cell(cell)), process_name()


def process_name() -> str:
    """Returns a name of this process for provenance: a hash of the host's name, and its id."""
    return f"{hashlib.sha256(platform.node().encode()).hexdigest()[:8]}/{os.getpid()}"


def spread(
    cells: Iterable[Cell], executor: Executor, stop: Callable[[], bool]
) -> Iterator[tuple[Cell, tuple[dict[str, list], str]]]:
    """Yields runs with what `run_checked` returns as workers finish them.

    A run whose worker died is computed again, alone, so that the run that kills its workers is
    known by it. What is queued at the end is cancelled.

    Args:
        cells: What to compute, taken as there is room.
        executor: From `as_executor`.
        stop: Asked now and then; once it says yes, no other run begins.

    Raises:
        UsageError: A run took several workers with it, or a worker differs from the caller.
        StoreError: The workers are out of reach.
    """
    left, again, futures = iter(cells), deque(), {}
    deaths: Counter[int] = Counter()  # by id of the cell under way: options need not hash
    usual = _AHEAD * (getattr(executor, "_max_workers", None) or _UNTOLD)
    try:
        while True:
            if stop():
                left = iter(())
                again.clear()
                futures = {f: cell for f, cell in futures.items() if not f.cancel()}
            suspects = again or any(id(cell) in deaths for cell in futures.values())
            most = 1 if suspects else getattr(executor, "window", usual)
            drained = iter(lambda: again.popleft() if again else None, None)
            for cell in islice(chain(drained, left), max(0, most - len(futures))):
                futures[_submit(executor, cell)] = cell
            if not futures:
                return
            done = wait(futures, _LOOK_S, return_when=FIRST_COMPLETED).done
            if not done and isinstance(executor, DaskExecutor):
                executor.workers()  # raises once they are gone
            for future in done:
                cell = futures.pop(future)
                found = _result(future, cell, deaths)
                if found is None:
                    again.append(cell)
                else:
                    deaths.pop(id(cell), None)
                    yield cell, found
    finally:
        for future in futures:
            future.cancel()


def _submit(executor: Executor, cell: Cell) -> Future:
    try:
        return executor.submit(run_checked, cell, fingerprint(cell))
    except RuntimeError as error:  # BrokenExecutor, or a pool after its `with`
        raise StoreError(
            f"a pool must be open, and outlive its workers, got {type(error).__name__}: {error}; "
            "what came back is in the journal in directory=...: run the same again inside "
            "`with process_pool() as pool:`, which replaces processes that die"
        ) from error


def _result(future: Future, cell: Cell, deaths: Counter) -> tuple | None:
    """Returns what came of a run; None if its worker died and it may be tried again."""
    try:
        return future.result()
    except CancelledError as error:  # not by `spread`, which forgets what it cancels
        raise lost("the loss of its scheduler while runs were under way") from error
    except Exception as error:
        if type(error).__name__ == "KilledWorker":  # Dask has tried several
            raise _killer(cell, "several") from error
        # A result that goes with its worker while Dask hands it on is taken for an error there.
        gone = extract_tb(error.__traceback__)[-1].name == "_cascade_future"
        if not (gone or isinstance(error, BrokenExecutor)):
            raise
        deaths[id(cell)] += 1
        if deaths[id(cell)] < _DEATHS:
            return None
        raise _killer(cell, _DEATHS) from error


def _killer(cell: Cell, times: Any) -> UsageError:
    return UsageError(
        f"a run must leave its worker alive, got {times} workers that died in {cell.searcher} on "
        f"{cell.workload} with seed {cell.seed}; look for memory on their machines, or compute "
        "that run without an executor to see what happens"
    )
