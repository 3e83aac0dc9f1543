from types import SimpleNamespace

import pytest

from kt_lab.budget import Budget
from kt_lab.capture.listening import by_listener
from kt_lab.landscape import Landscape
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import make_searcher
from kt_lab.trial import Config
from kt_lab.tune import tune
from tests.capture.notebook import CellError

CELL = '''
import dataclasses
import triton, torch
import triton.language as tl
from kt_lab.capture import record_autotune
from triton.runtime import driver
from kt_lab.runners.gpu.compiling import StubDriver

TIMES = {(64, 4): 0.5, (64, 8): 0.4, (128, 4): float("inf"), (256, 8): 0.3}  # milliseconds
asked = []

def bench(call, quantiles):
    block, warps = list(TIMES)[len(asked) % len(TIMES)]
    asked.append(quantiles)
    p50 = TIMES[block, warps]
    return [p50, 0.9 * p50, 1.2 * p50]

configs = [triton.Config({"BLOCK": b, "MODE": "fast"}, num_warps=w) for b, w in TIMES]

def tuned(**options):
    @triton.autotune(configs=configs, key=["n"], do_bench=bench, **options)
    @triton.jit
    def doubled(x, out, n, BLOCK: tl.constexpr, MODE: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
    return doubled

def launch(kernel, n):
    """Tunes, and stops where the winner would be launched: there is no GPU."""
    x = torch.zeros(n)
    try:
        kernel[(1,)](x, x, n)
    except Exception as error:
        return type(error).__name__

def plain(recording):
    kept = {f.name: getattr(recording, f.name) for f in dataclasses.fields(recording)}
    timings = [[dict(t.config), t.p20_us, t.p50_us, t.p80_us, t.status] for t in kept["timings"]]
    return kept | {"timings": timings, "best": dict(kept["best"])}
'''


@pytest.fixture(scope="module")
def cell(notebook):
    notebook(CELL)
    return notebook


@pytest.fixture(scope="module")
def recorded(cell):
    cell(
        "kernel = tuned()\n"
        "with record_autotune() as recorder:\n"
        "    stopped = [launch(kernel, n) for n in (1000, 1000, 2000)]\n"
    )
    return cell("[plain(r) for r in recorder.recordings]")


@pytest.fixture
def landscape(cell, recorded, tmp_path):
    assert recorded
    path = str(tmp_path / "one")
    cell("import pathlib\nrecorder.recordings[0].landscape().save(pathlib.Path(path))", path=path)
    return Landscape.load(path)


def test_every_tuned_key_is_recorded_once(recorded):
    assert [(r["kernel"], r["key"][0]) for r in recorded] == [("doubled", 1000), ("doubled", 2000)]
    assert recorded[0]["key"][1:] == ["torch.float32", "torch.float32"]
    assert not recorded[0]["cache_hit"]
    assert recorded[0]["duration_s"] >= 0


def test_quantiles_are_named_and_in_microseconds(recorded):
    config, p20, p50, p80, status = recorded[0]["timings"][0]
    assert config == {"BLOCK": 64, "MODE": "fast", "num_warps": 4, "num_stages": 3}
    assert (p20, p50, p80) == pytest.approx((450, 500, 600))
    assert status == "ok"
    assert recorded[0]["best"] == config | {"BLOCK": 256, "num_warps": 8}


def test_a_config_that_failed_is_a_status(recorded, landscape):
    assert [t[-1] for t in recorded[0]["timings"]] == ["ok", "ok", "compile_error", "ok"]
    failed = landscape.index(Config(BLOCK=128, MODE="fast", num_warps=4, num_stages=3))
    assert landscape.status[failed] == "compile_error"
    assert "out of resources" in landscape.table["error"][failed]


def test_the_landscape_holds_the_timed_configs_and_no_others(landscape):
    axes = {p.name: p.values for p in landscape.space.parameters}
    assert axes == {
        "BLOCK": (64, 128, 256),
        "MODE": ("fast",),
        "num_warps": (4, 8),
        "num_stages": (3,),
    }
    assert landscape.space.size == 4
    assert landscape.space.default["BLOCK"] == 64
    assert not landscape.space.contains(dict(landscape.space.default) | {"BLOCK": 256})
    assert landscape.best["BLOCK"] == 256
    assert landscape.optimum_us == pytest.approx(300)
    assert landscape.workload == "doubled/1000"
    assert landscape.manifest["dtype"] == "float32"
    assert landscape.manifest["protocol"]["name"] == "triton-autotune/p20-p50-p80"
    assert landscape.manifest["provenance"]["triton"]


def test_the_landscape_replays_with_its_failures(landscape):
    runner = ReplayRunner(landscape, seed=0)
    searcher = make_searcher("random", landscape.space, seed=0)
    history = tune(searcher, runner, budget=Budget(trials=4))
    # Nobody looked which binaries are the same: no config may stand in for another.
    assert sorted(t.latency_us for t in history.readings.values()) == pytest.approx(
        [300, 400, 500]
    )
    assert sorted(t.status for t in history) == ["compile_error", "ok", "ok", "ok"]


def test_replay_charges_what_tuning_took(cell):
    cell(
        "from kt_lab.capture.autotune import AutotuneRecorder\n"
        "from kt_lab.runners.replay import ReplayRunner\n"
        "from kt_lab.trial import Proposal\n"
        "slow = AutotuneRecorder()\n"
        "slow.take(fn=tuned().fn, key=(7,), best_config=configs[0], duration=60.0,\n"
        "          configs_timings=dict(zip(configs, TIMES.values())), cache_hit=False)\n"
        "slow = slow.recordings[0].landscape()\n"
        "runner = ReplayRunner(slow, seed=0)\n"
        "members = slow.space.configs(slow.space.enumerate())\n"
        "runner.submit([Proposal(i, c) for i, c in enumerate(members)])\n"
    )
    spent = cell("[runner.next()[1].measure_s for _ in members]")
    assert spent == pytest.approx([15.0] * 4, abs=0.02)


def test_a_listener_that_was_there_hears_the_same_and_stays():
    heard, taken = [], []

    def mine(**told):
        heard.append(told["key"])

    knobs = SimpleNamespace(listener=mine)
    triton = SimpleNamespace(knobs=SimpleNamespace(autotuning=knobs))
    with by_listener(triton, lambda **told: taken.append(told["key"])):
        knobs.listener(key=3000)
    knobs.listener(key=4000)
    assert (heard, taken) == ([3000, 4000], [3000])
    assert knobs.listener is mine


def test_timings_from_tritons_disk_cache_say_so(cell):
    cell(
        "before = driver._active\n"
        "driver.set_active(StubDriver(arch=90, backend='cuda', warp_size=32))\n"
        "with record_autotune() as cached:\n"
        "    for _ in range(2):\n"
        "        launch(tuned(cache_results=True), 500)\n"
        "driver.set_active(before)\n"
    )
    first, second = cell("[plain(r) for r in cached.recordings]")
    assert (first["cache_hit"], second["cache_hit"]) == (False, True)
    assert second["duration_s"] is None
    assert second["timings"] == first["timings"]
    assert cell("cached.recordings[1].landscape().optimum_us") == pytest.approx(300)


def test_an_older_triton_is_recorded_beside_its_autotuner(cell, recorded):
    assert recorded
    cell(
        "from kt_lab.capture import autotune as inside, listening\n"
        "beside = inside.AutotuneRecorder()\n"
        "original = triton.runtime.autotuner.Autotuner.run\n"
        "with listening.by_wrapping(triton, beside.take):\n"
        "    for _ in range(2):\n"
        "        launch(kernel, 7000)\n"
        "kept = triton.runtime.autotuner.Autotuner.run is original\n"
    )
    assert cell("[len(beside.recordings), beside.recordings[0].cache_hit, kept]") == [
        1,
        False,
        True,
    ]
    first, found = cell("[plain(recorder.recordings[0]), plain(beside.recordings[0])]")
    assert found["key"][0] == 7000
    assert found["timings"] == first["timings"]
    assert found["best"] == first["best"]
    assert cell("beside.recordings[0].duration_s") >= 0


def test_numbers_of_numpy_are_numbers(cell):
    cell(
        "import numpy as np\n"
        "powers = [triton.Config({'BLOCK': b}, num_warps=w)\n"
        "          for b, w in zip(2 ** np.arange(4, 7), (1, 2, 4))]\n"
        "counted = AutotuneRecorder()\n"
        "counted.take(fn=tuned().fn, key=(64,), best_config=powers[0], cache_hit=False,\n"
        "             configs_timings={c: [1.0, 1.0, 1.0] for c in powers}, duration=1.0)\n"
        "space = counted.recordings[0].landscape().space\n"
    )
    axes = cell("{p.name: [type(p).__name__, list(p.values)] for p in space.parameters}")
    assert axes["BLOCK"] == ["PowerOfTwo", [16, 32, 64]]


def test_what_varies_becomes_an_axis_and_odd_values_survive(cell):
    cell(
        "def timed(configs):\n"
        "    return {c: [1.0 + i, 1.0 + i, 1.0 + i] for i, c in enumerate(configs)}\n"
        "odd = {'ACC': tl.float16}\n"
        "varied = [triton.Config({'B': b, 'EVEN': e, 'SLOPE': float(e)} | odd, num_stages=s,\n"
        "                        num_ctas=c, maxnreg=r)\n"
        "          for b, e, s, c, r in [(48, True, 1, 1, None), (16, False, 3, 2, 128)]]\n"
        "wide = AutotuneRecorder()\n"
        "wide.take(fn=tuned().fn, key=(True, 'a b'), best_config=varied[0],\n"
        "          configs_timings=timed(varied), duration=1.0, cache_hit=False)\n"
        "found = wide.recordings[0].landscape()\n"
    )
    axes = cell("{p.name: [type(p).__name__, list(p.values)] for p in found.space.parameters}")
    assert axes == {
        "B": ["Integer", [16, 48]],
        "ACC": ["Choice", ["fp16"]],
        "EVEN": ["Flag", [False, True]],
        "SLOPE": ["Choice", [1.0, 0.0]],
        "num_warps": ["PowerOfTwo", [4]],
        "num_stages": ["Integer", [1, 3]],
        "num_ctas": ["PowerOfTwo", [1, 2]],
        "maxnreg": ["Choice", [None, 128]],
    }
    assert cell("[found.workload, found.space.size]") == ["doubled/one", 2]


def test_equal_configs_are_refused(cell):
    with pytest.raises(CellError, match="must differ in what they set"):
        cell(
            "twins = [triton.Config({'B': 1}, pre_hook=h) for h in (None, print)]\n"
            "AutotuneRecorder().take(fn=tuned().fn, key=(), best_config=twins[0],\n"
            "    configs_timings=timed(twins), duration=1.0, cache_hit=False)"
        )


def test_without_a_gpu_for_triton_a_recording_says_so(cell):
    cell(
        "import os\n"
        "os.environ['TRITON_DEFAULT_BACKEND'] = 'amd'\n"
        "driver._active = driver._default = None\n"
    )
    plain = "kernel = triton.autotune(configs, key=['n'])(tuned().fn)\nx = torch.zeros(64)\n"
    with pytest.raises(
        CellError, match=r"recording needs a GPU that Triton can use, got .*doctor"
    ):
        cell(f"{plain}with record_autotune():\n    kernel[(1,)](x, x, 64)")
    with pytest.raises(CellError, match="RuntimeError: my own"):
        cell("with record_autotune():\n    raise RuntimeError('my own')")
    cell("del os.environ['TRITON_DEFAULT_BACKEND']")
