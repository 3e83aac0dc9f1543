"""Fuzzes one parser; a process of its own, for what parses may crash, hang or eat memory.

    python -m kt_lab.evidence.fuzz_process < job.json > answer.json

The first inputs are traced: one that reaches lines that no other did joins those that are mutated
further. While an input is parsed nothing may be executed, and no file opened outside the folder.
"""

import mmap
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kt_lab
from kt_lab.evidence.fuzz_mutations import LARGEST, mutated
from kt_lab.evidence.fuzz_targets import REFUSALS, TARGETS, Target
from kt_lab.evidence.torch_paths import main

CURRENT = "current"  # the file that holds the input that is being parsed
_TRACED = 0.2  # of the inputs
_LIMIT_S = 5.0  # of one input
_MEMORY = 2 << 30  # bytes beyond what the process has when it begins
_FORBIDDEN = ("exec", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen")
_FORBIDDEN += ("socket.connect", "pickle.find_class", "ctypes.dlopen")
_PACKAGE = Path(kt_lab.__file__).parent
_MINE = f"{os.sep}fuzz_"
_OWN = tuple(map(os.path.realpath, (sys.prefix, sys.base_prefix, _PACKAGE, "/proc", "/dev/null")))


class Broken(BaseException):
    """A law that parsing broke, which no parser may catch: it took too long, or it reached out."""


def answer(job: Mapping[str, Any]) -> dict[str, Any]:
    """Fuzzes one parser after the other.

    Args:
        job: `parsers`, names of targets; `seed`; `inputs`, how many of each; and `folder`, empty.

    Returns:
        `rows`, one for each parser: inputs, seconds, parsed and refused (how many), kept (inputs
        that reached new lines), the slowest input's seconds, and findings: type, place, line,
        message, count and an example each.
    """
    folder = Path(job["folder"])
    watch = _Watch(folder)
    _limit()
    return {"rows": [_row(name, watch, folder, job) for name in job["parsers"]]}


def _row(name: str, watch: "_Watch", folder: Path, job: Mapping[str, Any]) -> dict[str, Any]:
    target, rng = TARGETS[name], random.Random(f"{job['seed']} {name}")
    corpus, lines = target.samples(folder), _Lines(target)
    for sample in corpus:
        target.feed(sample, folder)  # what is valid parses, and what is imported late is there
    counts = {"inputs": job["inputs"], "parsed": 0, "refused": 0}
    findings: dict[tuple[str, str], dict[str, Any]] = {}
    slowest, began = 0.0, time.perf_counter()
    with _current(folder) as current:
        for number in range(job["inputs"]):
            data = mutated(rng, corpus)
            current[: 8 + len(data)] = len(data).to_bytes(8, "little") + data
            traced = number < _TRACED * job["inputs"]
            started = time.perf_counter()
            what, error = _fed(target, data, folder, watch, lines if traced else None)
            slowest = max(slowest, time.perf_counter() - started)
            if error is None:
                counts[what] += 1
            else:
                _note(findings, error, data)
            if traced and lines.new():
                corpus.append(data)
    spent = {"seconds": time.perf_counter() - began, "slowest_s": slowest}
    return counts | spent | {"kept": lines.kept, "findings": list(findings.values())}


def _fed(target: Target, data: bytes, folder: Path, watch, lines) -> tuple[str, Any]:
    """Returns what came of an input: parsed or refused; or the error that it must not raise."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, _LIMIT_S)
            watch.on = True
            if lines:
                sys.settrace(lines)
            target.feed(data, folder)
        finally:
            sys.settrace(None)
            watch.on = False
            signal.setitimer(signal.ITIMER_REAL, 0)
    except REFUSALS:
        return "refused", None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return "", error
    return "parsed", None


def _note(findings: dict, error: BaseException, data: bytes) -> None:
    """Counts a finding by its type and its place, the innermost function of the package."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [
        f
        for f in frames
        if f[0].co_filename.startswith(str(_PACKAGE)) and _MINE not in f[0].co_filename
    ]
    code, line = own[-1] if own else frames[-1]
    place = f"{code.co_filename.removeprefix(str(_PACKAGE) + os.sep)}:{code.co_name}"
    message = str(error)[:200].encode(errors="replace").decode()
    found = {"type": type(error).__name__, "place": place, "line": line}
    found |= {"message": message, "count": 0, "example": repr(data[:400])}
    findings.setdefault((found["type"], place), found)["count"] += 1


class _Lines:
    """A trace function that knows which lines of the target's modules were reached."""

    def __init__(self, target: Target):
        self._parts, self._seen, self.kept = target.modules, set(), 0
        self._size = 0

    def __call__(self, frame, _event, _argument):
        name = frame.f_code.co_filename
        return self._line if any(part in name for part in self._parts) else None

    def _line(self, frame, event, _argument):
        if event == "line":
            self._seen.add((frame.f_code, frame.f_lineno))
        return self._line

    def new(self) -> bool:
        """Whether lines were reached since the last time that none had reached before."""
        more, self._size = len(self._seen) > self._size, len(self._seen)
        self.kept += more
        return more


class _Watch:
    """Ends what an input makes the interpreter do beyond parsing; while `on`."""

    def __init__(self, folder: Path):
        self.on, self._folder = False, os.path.realpath(folder)
        sys.addaudithook(self._hook)

        def late(*_):
            raise Broken(f"an input must be parsed in {_LIMIT_S:g} s")

        signal.signal(signal.SIGALRM, late)

    def _hook(self, event: str, arguments: tuple) -> None:
        if not self.on or not (event == "open" or event in _FORBIDDEN):
            return
        self.on = False  # for what is asked here
        try:
            if event != "open":
                bad = not _importing()
            else:
                path = arguments[0]
                path = os.path.realpath(path) if isinstance(path, str | bytes) else self._folder
                path = os.fsdecode(path)
                roots = (self._folder, *_OWN)
                bad = not any(path == root or path.startswith(root + os.sep) for root in roots)
        finally:
            self.on = True
        if bad:
            raise Broken(f"parsing must not {event}: {str(arguments)[:150]}")


def _importing() -> bool:
    """Whether a module is being imported, which executes the module."""
    frame = sys._getframe()
    while frame:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _limit() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * mmap.PAGESIZE + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _current(folder: Path) -> mmap.mmap:
    path = folder / CURRENT
    path.write_bytes(bytes(LARGEST + 8))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


if __name__ == "__main__":
    main(answer)
