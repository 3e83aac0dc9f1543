"""Pool: fresh processes for replays, none of which outlives the process that made it."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from tempfile import gettempdir
from typing import Any

_NICE = 5  # of the workers: a notebook on the same cores stays quick
_MOST_BYTES = 75  # of the temporary folder's path: the server's socket in it may have 107
# What a worker needs and nobody edits: a worker imports the rest, so that it runs the code of now.
_LIBRARIES = ["numpy", "pandas", "pyarrow.parquet", "scipy.stats", "sklearn.ensemble"]


class Pool(Executor):
    """Processes that end with the one that made them, however it ends.

    Forking that one would copy the locks that other threads of a Jupyter kernel hold at that
    moment, and now and then a worker would wait for one of them forever. So on Linux a server
    without such threads, which has imported the libraries once, is forked for each worker.
    Elsewhere, and where the temporary folder's path is too long for its socket, each is spawned.
    When a process dies, the calls under way fail with BrokenExecutor and the next call starts new
    processes.

    Attributes:
        window: How many calls to hand over at a time, so that the others can still be left out.
    """

    def __init__(self, workers: int | None = None):
        """Prepares so many processes, or one per core; they start with the first call."""
        self._workers = workers
        self._processes = self._fresh()
        self.window = 2 * (workers or os.cpu_count() or 1)

    def submit(self, fn: Callable, /, *args: Any, **kwargs: Any) -> Future:
        """Hands a call to a process, a new one if need be."""
        try:
            return self._processes.submit(fn, *args, **kwargs)
        except BrokenExecutor:
            self._processes = self._fresh()
            return self._processes.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the processes; see `concurrent.futures.Executor`."""
        self._processes.shutdown(wait, cancel_futures=cancel_futures)

    def _fresh(self) -> ProcessPoolExecutor:
        serves = sys.platform == "linux" and len(os.fsencode(gettempdir())) <= _MOST_BYTES
        context = get_context("forkserver" if serves else "spawn")
        if serves:
            context.set_forkserver_preload(_LIBRARIES)
        return ProcessPoolExecutor(
            self._workers, mp_context=context, initializer=_begin, initargs=(dict(os.environ),)
        )


def _begin(environment: dict[str, str]) -> None:
    """Gives this worker its parent's environment, and ends it when its parent is gone.

    The server keeps the environment that it was started in. And a worker waits for work on a pipe
    whose other end it holds too: when a Jupyter kernel is killed, it would wait forever.
    """
    os.environ.clear()
    os.environ.update(environment)
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is its parent's to act on
    parent = parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
