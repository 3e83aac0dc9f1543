"""Services for the tests of workers; a task is the name of a function and its arguments."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from kt_lab.runners.workers import WorkerLost

IMPORTED_BY = os.getpid()
PRELOAD = ("no_such_module", "tests.runners.worker_services:remember", "colorsys")
_REMEMBERED = []
_MADE = []
_TASKS = []


def remember():
    _REMEMBERED.append(os.getpid())


def service(**settings):
    _MADE.append((os.getpid(), time.perf_counter(), settings))
    return lambda task: _handle(*task)


def slow_service(*, start_s):
    time.sleep(start_s)
    return service()


def dying_service(*, folder):
    Path(folder, f"{os.getpid()}").touch()
    os._exit(7)


def broken_service():
    raise OSError("no such device")


def torch_service():
    import torch

    def multiply(size):
        ones = torch.ones(size, size)
        return (
            float((ones @ ones).sum()),
            torch.get_num_threads(),
            len(os.listdir("/proc/self/task")),
        )

    return multiply


def _handle(name, *arguments):
    _TASKS.append(name)
    return globals()[name](*arguments)


def echo(value):
    return value


def about():
    with open(0, closefd=False) as stdin:
        read = stdin.read()
    sockets = [fd for fd in os.listdir("/proc/self/fd") if _is_socket(fd)]
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "group": os.getpgid(0),
        "imported_by": IMPORTED_BY,
        "remembered": list(_REMEMBERED),
        "made": list(_MADE),
        "tasks": len(_TASKS),
        "environ": dict(os.environ),
        "path": list(sys.path),
        "directory": os.getcwd(),
        "stdin": read,
        "sockets": len(sockets),
        "modules": set(sys.modules),
        "random": (random.random(), _numpy_random()),
    }


def _is_socket(fd):
    with contextlib.suppress(FileNotFoundError):
        return os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    return False


def _numpy_random():
    import numpy as np

    return float(np.random.mtrand.random_sample())


def sleep(seconds):
    time.sleep(seconds)
    return seconds


def hang(folder):
    """Tells its pid, then never answers."""
    Path(folder, f"{os.getpid()}").touch()
    while True:
        time.sleep(60)


def start_child(folder, then, *arguments):
    child = subprocess.Popen(["sleep", "600"])
    Path(folder, f"{child.pid}").touch()
    return globals()[then](*arguments)


def fail(text):
    raise ValueError(text)


def give_up(text):
    raise WorkerLost(text)


def leave(code):
    sys.exit(code)


def die(number):
    os.kill(os.getpid(), number)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    return "still here"


def allocate(size):
    return len(bytearray(size))


def unpicklable():
    return lambda: None


class Stubborn:
    """Pickles, and cannot be unpickled."""

    def __reduce__(self):
        return fail, ("not here",)


def stubborn():
    return Stubborn()
