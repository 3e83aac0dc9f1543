"""Short runs next to the recorded workloads: which shapes, what is stored, and who may use it."""

import argparse
import json
import math
from functools import partial
from types import SimpleNamespace

import pytest

from kt_lab import transfer
from kt_lab.errors import UsageError
from kt_lab.evidence import histories
from kt_lab.evidence.resuming import as_text
from kt_lab.kernels import get_workload, workloads
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.workload import Workload
from tests.runners import live_fakes as fakes


@pytest.mark.parametrize("key", ["matmul/4096x4096x4096", "rope/1x4096x32x32x96"])
def test_neighbours_differ_in_one_extent_by_two_and_are_never_recorded_shapes(key):
    workload = get_workload(key)
    found = histories.neighbours(workload, each=4)
    assert found == histories.neighbours(workload, each=4)
    assert len(set(found)) == len(found) > 0
    for other in found:
        pairs = zip(workload.extents.values(), other.extents.values(), strict=True)
        assert [max(p) / min(p) for p in pairs if p[0] != p[1]] == [2.0]
        assert all(
            math.gcd(a, 16) == math.gcd(b, 16)
            for a, b in zip(workload.extents.values(), other.extents.values(), strict=True)
        )
        assert other.key not in {w.key for w in workloads(workload.kernel)}
        assert other.dtype == workload.dtype


@pytest.fixture
def fake_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))
    beside = {"fake/16": ("8", "32")}

    def neighbours(workload, *, each):
        made = [Workload("fake", n, {"N": int(n)}, "float32") for n in beside[workload.key]]
        return tuple(made[:each])

    entry = SimpleNamespace(workload="fake/16", gpu="fake")
    runner = partial(GpuRunner, kernel=fakes.CALM, compile_workers=2, services=fakes.SERVICES)
    opened = []

    def open_one(workload, **options):
        opened.append(workload)
        return runner(workload, **options)

    monkeypatch.setattr(histories, "GpuRunner", open_one)
    monkeypatch.setattr(histories, "get_kernel", {"fake": fakes.CALM}.__getitem__)
    shapes = {f"fake/{n}": Workload("fake", n, {"N": int(n)}, "float32") for n in ("8", "32")}
    monkeypatch.setattr(transfer, "workload_of_shape", shapes.__getitem__)
    monkeypatch.setattr(transfer, "get_kernel", {"fake": fakes.CALM}.__getitem__)
    monkeypatch.setattr(histories, "landscapes", lambda: [entry])
    monkeypatch.setattr(histories, "neighbours", neighbours)
    return opened


def searched(path, **changes):
    parser = argparse.ArgumentParser()
    histories.add_arguments(parser)
    args = parser.parse_args(["--gpu", "fake", "--trials", "6", "--searcher", "random"])
    vars(args).update(out=path, table=path.with_name("runs.parquet"), **changes)
    result = histories.run(args)
    path.write_text(as_text(result))
    return json.loads(path.read_text())


def test_one_start_serves_all_runs_of_a_kernel_and_what_is_stored_is_kept(fake_gpu, tmp_path):
    path = tmp_path / "histories.json"
    first = searched(path, each=1)
    assert [row["workload"] for row in first["rows"]] == ["fake/8"]
    both = searched(path)
    assert both["rows"][0] == first["rows"][0]
    assert [row["workload"] for row in both["rows"]] == ["fake/8", "fake/32"]
    assert len(fake_gpu) == 2  # one runner each time
    again = searched(path)
    assert again["rows"] == both["rows"]
    assert len(fake_gpu) == 2  # nothing to do: none
    assert "fake" in histories.report(again)
    late = searched(tmp_path / "late.json", deadline_s=0.0)
    assert histories.report(late) == "no runs"


@pytest.mark.usefixtures("fake_gpu")
def test_runs_on_another_gpu_than_the_recordings_are_refused(tmp_path, monkeypatch):
    entry = SimpleNamespace(workload="fake/16", gpu="another")
    monkeypatch.setattr(histories, "landscapes", lambda: [entry])
    with pytest.raises(UsageError, match="made on one, got fake"):
        searched(tmp_path / "histories.json", gpu="another")
    assert not (tmp_path / "runs.parquet").exists()


@pytest.mark.usefixtures("fake_gpu")
def test_stored_runs_tell_configs_and_latencies_in_order_and_refuse_another_space(tmp_path):
    result, path = searched(tmp_path / "histories.json"), tmp_path / "runs.parquet"
    runs = transfer.earlier_runs("fake", "fake", path=path)
    assert [w.key for w in runs] == ["fake/8", "fake/32"]
    assert [dict(w.extents) for w in runs] == [{"N": 8}, {"N": 32}]
    for read, row in zip(runs.values(), result["rows"], strict=True):
        assert [us for _, us in read] == [us and pytest.approx(us) for us in row["latency_us"]]
        good = [(config, us) for config, us in read if us is not None]  # a busy machine hangs
        assert good
        assert all(us == pytest.approx(fakes.latency_us(config), 1e-3) for config, us in good)
    assert transfer.earlier_runs("fake", "elsewhere") == {}
    result["rows"][1]["space"] = "0" * 8
    histories.tabled(result, path)
    with pytest.raises(UsageError, match="fake/32"):
        transfer.earlier_runs("fake", "fake", path=path)
