"""Warm starts live: which shapes, what is raced, and what the means are of."""

import argparse
import json
from functools import partial
from types import SimpleNamespace

import pytest

from kt_lab.errors import UsageError
from kt_lab.evidence import warm_live
from kt_lab.evidence.warm_live import BUDGETS, MODES, between, means, table_of
from kt_lab.kernels import kernels
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.transfer import earlier_runs, run_prior
from kt_lab.trial import Config
from tests.runners import live_fakes as fakes


@pytest.mark.parametrize("kernel", kernels(), ids=lambda kernel: kernel.name)
def test_a_shape_between_the_known_ones_is_neither_recorded_nor_searched_before(kernel):
    workload = between(kernel.workloads[0])
    assert workload.key not in {w.key for w in kernel.workloads}
    assert workload not in earlier_runs(kernel.name, "h200")
    space = kernel.space(workload)
    assert space.contains(space.default)
    known = kernel.workloads[0].extents
    assert {n: e for n, e in workload.extents.items() if known[n] <= 16} == {
        n: e for n, e in known.items() if e <= 16
    }


@pytest.fixture
def fake_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))
    entry = SimpleNamespace(kernel="fake", gpu="fake")
    opened = partial(GpuRunner, kernel=fakes.CALM, compile_workers=2, services=fakes.SERVICES)
    monkeypatch.setattr(warm_live, "GpuRunner", opened)
    monkeypatch.setattr(warm_live, "get_kernel", {"fake": fakes.CALM}.__getitem__)
    monkeypatch.setattr(warm_live, "landscapes", lambda: [entry])
    monkeypatch.setattr(warm_live, "BUDGETS", (1, 3))
    slow = Config(fakes.CALM_SPACE.default, VARIANT=9, PROGRAMS=2)
    prior = run_prior({("fake/32", "fake"): [(slow, 1.0)]}, workload="fake/16", gpu="fake")
    told = {"nothing": None, "shapes": prior, "nearby": prior}
    monkeypatch.setattr(warm_live, "prior_named", lambda name, *_, **__: told[name])
    return slow


def searched(path, **changes):
    parser = argparse.ArgumentParser()
    warm_live.add_arguments(parser)
    args = parser.parse_args(["--gpu", "fake", "--seeds", "1", "--long", "5", "--rounds", "2"])
    vars(args).update(out=path, **changes)
    return warm_live.run(args)


def test_what_each_search_would_have_kept_is_raced_with_the_default(fake_gpu, tmp_path):
    path = tmp_path / "warm_live.json"
    result = searched(path)
    [row] = result["rows"]
    assert row["workload"] == "fake/16"
    assert row["default_us"] == pytest.approx(10.0)
    kept = {run["known"]: run["us"] for run in row["kept"]}
    assert set(kept) == set(MODES)
    assert kept["nearby"] == kept["shapes"]
    possible = {
        fakes.latency_us(c) for c in fakes.CALM_SPACE.configs(fakes.CALM_SPACE.enumerate())
    }
    assert {us for each in kept.values() for us in each} <= possible
    assert kept["nearby"][0] in (fakes.latency_us(fake_gpu), 10.0)
    assert all(after <= before for before, after in kept.values())
    assert json.loads(path.read_text())["rows"] == result["rows"]
    assert searched(path)["rows"] == result["rows"]  # nothing is searched twice
    assert "nearby" in warm_live.report(result)
    assert warm_live.report(searched(tmp_path / "late.json", deadline_s=0.0)) == "nothing searched"


@pytest.mark.usefixtures("fake_gpu")
def test_recordings_of_another_gpu_are_not_believed(tmp_path, monkeypatch):
    entry = SimpleNamespace(kernel="fake", gpu="another")
    monkeypatch.setattr(warm_live, "landscapes", lambda: [entry])
    with pytest.raises(UsageError, match="got fake; name it with --gpu"):
        searched(tmp_path / "warm_live.json", gpu="another")


def _row(name, cold, warm, default=9.0):
    runs = [
        {"known": "nothing", "seed": s, "us": [us] * len(BUDGETS)} for s, us in enumerate(cold)
    ]
    runs += [
        {"known": mode, "seed": s, "us": [us] * len(BUDGETS)}
        for mode in ("shapes", "nearby")
        for s, us in enumerate(warm)
    ]
    facts = {"workload": f"{name}/1", "kernel": name, "default_us": default, "long_us": None}
    return facts | {"kept": runs}


def test_medians_over_seeds_are_compared_and_failures_count():
    rows = [_row("a", (4.0, 6.0, 8.0), (3.0, 3.0, None)), _row("b", (2.0,), (None,))]
    table = table_of(rows).set_index(["kernel", "known", "budget"])
    assert table.loc[("a", "nearby", 5), "ratio"] == 0.5
    assert table.loc[("a", "nearby", 5), "to_best"] == 1.0
    assert table.loc[("b", "nearby", 5), "ratio"] == float("inf")
    nothing_runs = _row("c", (None,), (None,), default=None)
    assert table_of([nothing_runs]).empty
    assert means([nothing_runs]) == []
    of_a = {(m["known"], m["budget"]): m for m in means(rows[:1])}
    assert of_a["nearby", 25]["ratio"] == 0.5
    assert of_a["nothing", 25]["to_best"] == 2.0
