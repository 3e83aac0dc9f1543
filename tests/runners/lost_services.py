"""Services that are lost for good: the GPU at its seventh reading, or the compilers at once."""

import os
import signal
import time
from pathlib import Path

from tests.runners import live_fakes as fakes


class _Lost(fakes.Timing):
    def measure(self, task):
        if self.timed == 6:
            gone().write_text("since the seventh reading")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().measure(task)


class _Slow(fakes.Timing):
    def race(self, task):
        time.sleep(0.5)
        return super().race(task)


class _Full(fakes.Timing):
    def load(self, _):
        raise MemoryError("CUDA out of memory: somebody else has it")


def gone():
    """Returns the file that says that the GPU is lost."""
    return Path(os.environ["KT_LAB_LOCKS"]) / "gone"


def lost_gpu(*, device):
    if gone().exists():
        raise OSError(f"GPU {device} is lost")
    return _Lost()


def slow_race(*, device):  # noqa: ARG001
    return _Slow()


def full_gpu(*, device):  # noqa: ARG001
    return _Full()


def no_compiler(**settings):  # noqa: ARG001
    raise OSError("no compiler here")


def compile_slowly(**settings):
    """As the fakes' compilers, but that each compilation says that it took half a second."""
    compile_ = fakes.compile_service(**settings)
    return lambda task: compile_(task) | {"wall_s": 0.5}
