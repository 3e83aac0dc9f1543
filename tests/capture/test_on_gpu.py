"""What only a GPU can show: captured kernels tuned live, and Triton's own autotuner recorded."""

import pytest

from tests.capture.test_variety import CELL as KERNELS

TUNE = """
from kt_lab.budget import Budget
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.search import make_searcher
from kt_lab.tune import tune

def tuned(kernel):
    with GpuRunner(kernel.workloads[0], kernel=kernel) as runner:
        searcher = make_searcher("random", runner.space, seed=0)
        history = tune(searcher, runner, budget=Budget(trials=3))
    return [[t.status, t.measurement.error] for t in history]
"""


@pytest.fixture
def cell(notebook):
    notebook(KERNELS)
    notebook(TUNE)
    return notebook


@pytest.mark.gpu
def test_a_captured_kernel_is_tuned_live(cell):
    assert cell("tuned(capture(doubled, **usual | {'extents': {'n': 2**20}}))") == [["ok", ""]] * 3


@pytest.mark.gpu
def test_a_kernel_in_place_is_right_also_after_it_was_timed(cell):
    cell(
        "@triton.jit\n"
        "def grow(x, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(x + at, 3 * tl.load(x + at, mask=at < n), mask=at < n)\n"
        "def grown(args):\n"
        "    return 3 * args['x']\n"
    )
    found = cell("tuned(capture(grow, **usual | dict(output='x', reference=grown)))")
    assert found == [["ok", ""]] * 3


@pytest.mark.gpu
def test_tritons_autotuner_is_recorded_as_it_runs(cell):
    cell(
        "from kt_lab.capture import record_autotune\n"
        "pairs = [(b, w) for b in (64, 1024) for w in (2, 4)]\n"
        "configs = [triton.Config({'BLOCK': b}, num_warps=w) for b, w in pairs]\n"
        "kernel = triton.autotune(configs=configs, key=['n'])(doubled)\n"
        "args = inputs(torch.device('cuda'), 2**20)\n"
        "with record_autotune() as recorder:\n"
        "    kernel[grid](**args)\n"
        "landscape = recorder.recordings[0].landscape()\n"
    )
    assert cell("torch.equal(args['out'], 2 * args['x'])")
    assert cell("[landscape.workload, len(landscape.table)]") == ["doubled/1048576", 4]
    assert cell("set(landscape.status.tolist()) == {'ok'} and landscape.optimum_us > 0")
    assert cell("landscape.gpu") != "unknown"
    assert cell("dict(landscape.best) == dict(recorder.recordings[0].best)")
