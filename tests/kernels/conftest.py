"""Runs device code in child processes: interpreted, or cross-compiled for a Hopper.

Triton decides at import whether functions are interpreted, so neither may happen in the process
that runs the other tests.
"""

import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kt_lab.kernels import get_kernel
from kt_lab.workload import Workload

_HERE = Path(__file__).parent
_INVISIBLE = ("EVICTION", "num_warps", "num_stages")  # the interpreter ignores them


def _ask(script: str, cases: Sequence[dict], environment: Mapping[str, str]) -> list[dict]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    root = str(_HERE.parents[1])
    done = subprocess.run(
        [sys.executable, str(_HERE / script)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=600,
        env=clean | {"PYTHONPATH": root, "TRITON_DEFAULT_FP_FUSION": "1"} | dict(environment),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases), done.stderr[-4000:]
    return answers


@pytest.fixture(scope="session")
def interpret() -> Callable[[Sequence[dict]], list[dict]]:
    """Runs cases in the Triton interpreter; each answer has "problem", empty if all is well."""
    return lambda cases: _ask("run_cases.py", cases, {"TRITON_INTERPRET": "1"})


@pytest.fixture(scope="session")
def on_gpu() -> Callable[[Sequence[dict]], list[dict]]:
    """Runs cases on the GPU, spread over one process per core to compile them."""

    def run(cases: Sequence[dict]) -> list[dict]:
        parts = max(1, (os.cpu_count() or 2) - 1)
        chunks = [
            [c | {"device": "cuda"} for c in cases[i::parts]] for i in range(parts) if cases[i:]
        ]
        with ThreadPoolExecutor(parts) as pool:
            answers = list(pool.map(lambda chunk: _ask("run_cases.py", chunk, {}), chunks))
        found: list[dict] = [{}] * len(cases)
        for i, answer in enumerate(answers):
            found[i::parts] = answer
        return found

    return run


@pytest.fixture(scope="session")
def cross_compile(tmp_path_factory) -> Callable[[Sequence[dict]], list[dict]]:
    """Compiles cases for sm_90 without a GPU; each answer has "ptx" and "shared" bytes."""
    cache = str(tmp_path_factory.mktemp("triton"))
    return lambda cases: _ask("compile_cases.py", cases, {"TRITON_CACHE_DIR": cache})


@pytest.fixture(scope="session")
def distinct_cases() -> Callable[..., list[dict]]:
    """Lists one case for every config that the interpreter can tell apart."""
    return _distinct_cases


@pytest.fixture(scope="session")
def pairwise() -> Callable[[list[dict]], list[dict]]:
    """Thins cases out so that every pair of parameter values that occurs still occurs."""
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


def _pairwise(cases: list[dict]) -> list[dict]:
    shuffled = random.Random(0).sample(cases, len(cases))
    kept, covered = [], set()
    for case in shuffled:
        visible = [item for item in case["config"].items() if item[0] not in _INVISIBLE]
        shape = tuple(case["extents"].items())
        pairs = {(shape, *pair) for pair in itertools.combinations(visible, 2)}
        if pairs - covered or not visible:
            kept.append(case)
            covered |= pairs
    return kept
