"""A zygote: one process imports what is heavy, every worker is forked from it.

It is started with `subprocess`, not `multiprocessing`, so that a script needs no `__main__` guard
and a notebook's `__main__` is not imported again; no CUDA and no second thread make a fork as good
as a fresh process. Each worker has a *leash*, a socket between parent and zygote: on it the zygote
reports how the worker ended; pulled or closed, it makes the zygote kill the whole process group.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from kt_lab.errors import UsageError

# A pool of threads does not survive a fork, and a library that counts on it would wait for ever.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_BOOT = f"import json, sys; sys.path[:]=json.loads(sys.argv[2]); import {__name__} as z; z.main()"
_CLOSE_S = 10.0  # a process in the GPU's driver may take long to die, or never do


class Process:
    """The parent's end of one forked process.

    Attributes:
        pipe: To the entry function in the process, both ways; EOF when the process is gone.
        leash: Readable when there is news of the process: then call `poll`.
        pid: Its id, which is its process group's too; None until `poll` has read it.
    """

    def __init__(self, pipe: Connection, leash: Connection):
        """Wraps the ends; `Zygote.fork` makes them."""
        self.pipe, self.leash = pipe, leash
        self.pid: int | None = None
        self._end = ""

    def poll(self) -> str:
        """Returns how the process ended, in one line; an empty string while it lives."""
        try:
            while not self._end and self.leash.poll():
                news = self.leash.recv()
                if isinstance(news, int):
                    self.pid = news
                else:
                    self._end = news
        except (EOFError, OSError):
            self._end = "the process ended with the zygote that it was forked from"
            if self.pid is not None:  # on Linux it is dead by now, what it started is not
                _kill_group(self.pid)
        return self._end

    def kill(self) -> None:
        """Asks for SIGKILL to the whole process group; returns at once."""
        _tell(self.leash, "kill")

    def close(self) -> None:
        """Closes the parent's ends, which kills what still lives; may be called twice."""
        self.pipe.close()
        self.leash.close()


class Zygote(contextlib.AbstractContextManager):
    """The process that workers are forked from; to be used by one thread at a time."""

    def __init__(self, *, preload: Sequence[str] = (), env: Mapping[str, str] | None = None):
        """Starts the zygote and returns at once; it imports in the background.

        Args:
            preload: Modules to import before the first fork, "module:function" to call something
                that remembers its result too; then what these modules name in a tuple `PRELOAD`
                of their own. What fails is left out.
            env: Environment variables of the zygote and all its processes; by default the parent's
                and one thread for each numerical library.
        """
        self._preload = tuple(preload)
        self._env = ONE_THREAD | dict(env or {})
        self._directory = ""
        self._closed = False
        self._start()

    @property
    def pid(self) -> int:
        """The zygote's process id, which changes when it had to be started again."""
        return self._process.pid

    def fork(self, entry: str, *args: Any, env: Mapping[str, str] | None = None) -> Process:
        """Forks a process that calls `entry(pipe, *args)`; returns at once.

        The process has the parent's environment, `sys.path` and working directory of this moment,
        nothing on stdin and the zygote's stdout and stderr; it ignores SIGINT. A zygote that was
        killed is started again.

        Args:
            entry: "module:function".
            args: Picklable arguments.
            env: Environment variables on top of the parent's and the zygote's.
        """
        if self._closed:
            raise UsageError("a zygote must be open to fork from, got a closed one; make another")
        with contextlib.suppress(FileNotFoundError):  # deleted
            self._directory = os.getcwd()
        setup = (
            os.environ | self._env | dict(env or {}),
            list(map(str, sys.path)),
            self._directory,
        )
        messages = [pickle.dumps(message) for message in (setup, (entry, args))]
        pipe, far_pipe = Pipe()
        leash, far_leash = Pipe()
        with far_pipe, far_leash:
            self._hand_over([far_pipe.fileno(), far_leash.fileno()])
        with contextlib.suppress(OSError):  # the zygote has died: `poll` tells
            for message in messages:
                pipe.send_bytes(message)
        return Process(pipe, leash)

    def close(self) -> None:
        """Kills the zygote and every process forked from it; may be called twice."""
        self._closed = True
        self._process.terminate()  # it kills and reaps its own first, so do not kill it at once
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_S)
        self._bury()

    def __exit__(self, *_):
        """Closes."""
        self.close()

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        path = json.dumps(list(map(str, sys.path)))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, str(theirs.fileno()), path, *self._preload],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | self._env,
                process_group=0,  # Ctrl-C belongs to the caller
            )

    def _bury(self) -> None:
        self._process.kill()
        self._process.wait()
        self._control.close()

    def _hand_over(self, fds: list[int]) -> None:
        for _ in range(2):
            with contextlib.suppress(OSError):
                if self._process.poll() is None:
                    socket.send_fds(self._control, [b"f"], fds)
                    return
            self._bury()
            self._start()


def _tell(leash: Connection, what: Any) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        leash.send(what)


# -- in the zygote ------------------------------------------------------------------------------


def main() -> None:
    """Runs in the zygote: import, then fork and reap until the parent goes or says so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()  # PR_SET_PDEATHSIG would follow the thread that started the zygote
    control = socket.socket(fileno=int(sys.argv[1]))
    _import(sys.argv[3:])
    gc.collect()
    gc.freeze()  # or the first collection in a child would copy every page of what was imported
    news, bell = socket.socketpair()
    bell.setblocking(False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(bell.fileno())
    children: dict[Connection, int] = {}  # by leash
    pulled: set[Connection] = set()
    while True:
        ready = set(wait([control, news, *(children.keys() - pulled)], timeout=1.0))
        told = news.recv(4096) if news in ready else b""
        # A fork of the parent may hold the other end of `control` open: hence getppid.
        if signal.SIGTERM in told or os.getppid() != parent:
            break
        for leash in (children.keys() - pulled) & ready:
            pulled.add(leash)
            _kill_group(children[leash])
        _reap(children)
        pulled &= children.keys()
        if control in ready:
            fds = socket.recv_fds(control, 1, 2)[1]
            if not fds:
                break
            pipe, leash = map(Connection, fds)
            _fork(pipe, leash, children, [control, news, bell])
    for pid in children.values():
        _kill_group(pid)
    _reap(children, options=0)
    os._exit(0)  # nothing of what was imported needs an orderly end


def _import(names: Sequence[str]) -> None:
    queue = list(names)
    for name in queue:  # which grows
        with contextlib.suppress(Exception):  # whoever needs the module will say so
            module, _, function = name.partition(":")
            found = importlib.import_module(module)
            queue += [more for more in getattr(found, "PRELOAD", ()) if more not in queue]
            if function:
                getattr(found, function)()
    if sys.stdout:
        sys.stdout.flush()  # or every child would print it again


def _fork(pipe: Connection, leash: Connection, children: dict[Connection, int], others) -> None:
    """Forks one process; `others` are what else the zygote holds open, closed in the child."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of an imported library
            zygote, pid = os.getpid(), os.fork()
    except OSError as error:
        _tell(leash, f"the process could not be forked: {error}")
        pipe.close()
        leash.close()
        return
    if not pid:
        _be_a_child(pipe, zygote, [leash, *children, *others])
    with contextlib.suppress(OSError):  # in the child too: whoever comes first
        os.setpgid(pid, pid)
    pipe.close()
    children[leash] = pid
    _tell(leash, pid)


def _reap(children: dict[Connection, int], options: int = os.WNOHANG) -> None:
    """Reports and forgets the children that have ended."""
    for leash, pid in list(children.items()):
        found, status = os.waitpid(pid, options)
        if found:
            _kill_group(pid)  # what the child had started
            _tell(leash, _how_it_ended(os.waitstatus_to_exitcode(status)))
            leash.close()
            del children[leash]


def _how_it_ended(code: int) -> str:
    names = {-number.value: number.name for number in signal.Signals}
    signalled = f"signal {-code} ({names.get(code, 'real-time')})"
    return "the process ended with " + (f"exit code {code}" if code >= 0 else signalled)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _be_a_child(pipe: Connection, zygote: int, foreign: list) -> None:
    """Runs in the forked process, which ends here; `foreign` is what it must not hold open."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for end in foreign:  # or a sibling's death would not show as EOF
            end.close()
        with contextlib.suppress(EOFError, ConnectionError):  # the parent has gone
            _call(pipe, zygote)
        sys.stdout.flush()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code & 0xFF)


def _call(pipe: Connection, zygote: int) -> None:
    os.setpgid(0, 0)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(AttributeError):  # not Linux: the parent kills the group
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != zygote:
        return
    os.set_inheritable(pipe.fileno(), False)
    env, sys.path[:], directory = pickle.loads(pipe.recv_bytes())
    importlib.invalidate_caches()
    os.environ.update(env)
    with contextlib.suppress(OSError):
        os.chdir(directory)
    if "numpy.random" in sys.modules:  # `random` does so by itself
        sys.modules["numpy.random"].seed()
    entry, args = pickle.loads(pipe.recv_bytes())
    module, _, name = entry.partition(":")
    getattr(importlib.import_module(module), name)(pipe, *args)
