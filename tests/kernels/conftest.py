"""Runs device code in child processes: interpreted, or cross-compiled for a Hopper.

Triton decides at import whether functions are interpreted, so neither may happen in the process
that runs the other tests.
"""

import heapq
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from kt_lab.kernels import get_kernel
from kt_lab.workload import Workload

_HERE = Path(__file__).parent
_INVISIBLE = ("EVICTION", "num_warps", "num_stages")  # the interpreter ignores them


class _Child:
    """A process that answers one case after another: its imports take longer than most cases."""

    def __init__(self, script: str, environment: Mapping[str, str]):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
        ours = {"PYTHONPATH": str(_HERE.parents[1]), "TRITON_DEFAULT_FP_FUSION": "1"}
        self._told = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(
            [sys.executable, str(_HERE / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._told,
            text=True,
            env=clean | ours | dict(environment),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()
        self._told.close()

    def lives(self) -> bool:
        """Whether it can be asked: an error ends it."""
        return self._process.poll() is None

    def ask(self, cases: Sequence[dict]) -> list[dict]:
        """Returns the answers to all cases; fails where the child does, with its traceback."""
        late = threading.Timer(600, self._process.kill)
        late.start()
        try:
            return [self._answer(case) for case in cases]
        finally:
            late.cancel()

    def _answer(self, case: dict) -> dict:
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(case) + "\n")
            self._process.stdin.flush()
        if line := self._process.stdout.readline():
            return json.loads(line)
        code = self._process.wait()
        self._told.seek(0)
        raise AssertionError(f"exit code {code}: {self._told.read()[-4000:]}")


def _asking(script: str, environment: Mapping[str, str]):
    """Yields what asks a child, which starts when first asked, and anew where it ended."""
    with ExitStack() as stack:
        children: list[_Child] = []

        def ask(cases: Sequence[dict]) -> list[dict]:
            if not children or not children[-1].lives():
                children.append(stack.enter_context(_Child(script, environment)))
            return children[-1].ask(cases)

        yield ask


@pytest.fixture(scope="session")
def interpret() -> Iterator[Callable[[Sequence[dict]], list[dict]]]:
    """Runs cases in the Triton interpreter; each answer has "problem", empty if all is well."""
    yield from _asking("run_cases.py", {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"})


def _once(cases: Sequence[dict]) -> list[dict]:
    with _Child("run_cases.py", {}) as child:
        return child.ask(cases)


@pytest.fixture(scope="session")
def on_gpu() -> Callable[[Sequence[dict]], list[dict]]:
    """Runs cases on the GPU, spread over one process per core to compile them."""

    def run(cases: Sequence[dict]) -> list[dict]:
        parts = max(1, (os.cpu_count() or 2) - 1)
        chunks = [
            [c | {"device": "cuda"} for c in cases[i::parts]] for i in range(parts) if cases[i:]
        ]
        with ThreadPoolExecutor(parts) as pool:
            answers = list(pool.map(_once, chunks))
        found: list[dict] = [{}] * len(cases)
        for i, answer in enumerate(answers):
            found[i::parts] = answer
        return found

    return run


@pytest.fixture(scope="session")
def cross_compile(tmp_path_factory) -> Iterator[Callable[[Sequence[dict]], list[dict]]]:
    """Compiles cases for sm_90 without a GPU; each answer has "ptx" and "shared" bytes."""
    cache = str(tmp_path_factory.mktemp("triton"))
    yield from _asking("compile_cases.py", {"TRITON_CACHE_DIR": cache})


@pytest.fixture(scope="session")
def without_gpu() -> Callable[[str], None]:
    """Runs Python code in a process of its own that sees no GPU; fails where the code does."""

    def run(program: str) -> None:
        hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=100, env=hidden, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]

    return run


@pytest.fixture(scope="session")
def distinct_cases() -> Callable[..., list[dict]]:
    """Lists one case for every config that the interpreter can tell apart."""
    return _distinct_cases


@pytest.fixture(scope="session")
def pairwise() -> Callable[..., list[dict]]:
    """Thins cases out; every pair of values that occurs still does, the extents being a value.

    With `in_each_shape`, every pair of parameters' values still occurs with all extents it had.
    """
    return _pairwise


def _distinct_cases(kernel: str, *, sms: int = 2, **extents: int) -> list[dict]:
    workload = Workload(kernel, "test", extents, get_kernel(kernel).workloads[0].dtype)
    space = get_kernel(kernel).space(workload)
    seen: dict[tuple, dict] = {}
    for config in space.configs(space.enumerate()):
        seen.setdefault(
            tuple(v for name, v in config.items() if name not in _INVISIBLE), dict(config)
        )
    return [
        {"kernel": kernel, "extents": extents, "config": config, "sms": sms}
        for config in seen.values()
    ]


def _pairwise(cases: list[dict], *, in_each_shape: bool = False) -> list[dict]:
    shuffled = random.Random(0).sample(cases, len(cases))
    pairs = []
    for case in shuffled:
        facts = [item for item in case["config"].items() if item[0] not in _INVISIBLE]
        shape = ("extents", tuple(case["extents"].items()))
        if in_each_shape:
            found = {(shape, *pair) for pair in itertools.combinations(facts, 2)}
        else:
            found = set(itertools.combinations([shape, *facts], 2))
        pairs.append(found or {shape})
    kept, covered = [], set()
    queue = [(-len(found), at) for at, found in enumerate(pairs)]
    heapq.heapify(queue)
    while queue:  # what adds most is next: a third fewer than in any order
        gain, at = heapq.heappop(queue)
        fresh = pairs[at] - covered
        if len(fresh) == -gain:
            kept.append(at)
            covered |= fresh
        elif fresh:
            heapq.heappush(queue, (-len(fresh), at))
    return [shuffled[at] for at in sorted(kept)]
