"""Pool: freshly spawned processes for replays, none of which outlives the process that made it."""

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process

_NICE = 5  # of the workers: a notebook on the same cores stays quick


class Pool(ProcessPoolExecutor):
    """Spawned processes that end with the one that made them, however it ends.

    Forking instead would copy the locks that other threads of a Jupyter kernel hold at that
    moment, and now and then a worker would wait for one of them forever.

    Attributes:
        window: How many calls to hand over at a time, so that the others can still be left out.
    """

    def __init__(self, workers: int | None = None):
        """Prepares so many processes, or one per core; they start with the first call."""
        super().__init__(workers, mp_context=get_context("spawn"), initializer=_end_with_parent)
        self.window = 2 * (workers or os.cpu_count() or 1)


def _end_with_parent() -> None:
    """Ends this worker when its parent is gone, as when a Jupyter kernel is killed.

    A worker waits for work on a pipe whose other end it holds too: it would wait forever.
    """
    os.nice(_NICE)
    parent = parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
