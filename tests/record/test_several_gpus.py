"""Several GPUs record together: who timed what is known, and so is how the GPUs differ."""

from pathlib import Path

import numpy as np
import pytest

from kt_lab import recipes
from kt_lab.commands.record import _told_control
from kt_lab.errors import GpuBusy, UsageError
from kt_lab.landscape import Landscape
from kt_lab.record import Recording, RecordOptions, record
from kt_lab.record import lanes as lanes_module
from kt_lab.runners.controls import drift
from kt_lab.runners.gpu.lock import GpuLock
from kt_lab.store import read_journal

ROOT = Path(__file__).resolve().parents[2]
SERVICES = {
    "compile": "tests.record.fake_gpu:compile_service",
    "timing": "tests.record.fake_gpu:timing_service",
}
WORKLOADS = ("softmax/4096x640", "softmax/65536x512")
CARDS = ("GPU-a", "GPU-b", "GPU-c")  # the second is a quarter slower, the third of another kind
FAST, SLOW = CARDS[:2]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))
    monkeypatch.setattr(lanes_module, "gpu_uuid", lambda index: CARDS[index])
    return tmp_path


def options(**changes):
    given = {"limit": 40, "compile_workers": 2, "contention": 0, "control_every": 5}
    return RecordOptions(**(given | {"devices": (0, 1)} | changes))


def recording(folder, **changes):
    given = options(**changes)
    return Recording(WORKLOADS, directory=folder / "out", options=given, services=SERVICES)


def journal(folder):
    return read_journal(folder / "out" / "journal.jsonl")


def test_each_workload_has_a_gpu_of_its_own_and_both_time_the_control(folder):
    paths = recording(folder).run()
    assert len(paths) == 2
    visits = [r for r in journal(folder) if r["kind"] == "visit"]
    assert {(r["workload"], r["device"]) for r in visits} == set(
        zip(WORKLOADS, (FAST, SLOW), strict=True)
    )
    for path in paths:
        landscape = Landscape.load(path)
        assert "device" not in landscape.table, "no row of another GPU is in it"
        control = landscape.manifest["control"]
        assert landscape.manifest["compile_clock"] == "cpu", "no contention curve was measured"
        assert set(control["devices"]) == {FAST, SLOW}
        assert control["devices"][SLOW]["offset"] == pytest.approx(0.25, abs=0.01)
        assert control["devices"][FAST]["offset"] == 0
        assert control["devices"][SLOW]["drift"] == pytest.approx(0, abs=0.01)
    assert "GPU-b: control" in _told_control(control)
    assert "us, +2" in _told_control(control)


def test_slices_of_a_space_name_the_gpu_of_every_row(folder):
    path, _ = recording(folder, slices=True).run()
    landscape = Landscape.load(path)
    timed = landscape.table[landscape.table["status"] == "ok"]
    assert set(timed["device"]) == {FAST, SLOW}
    visits = [r for r in journal(folder) if r["kind"] == "visit"]
    owners = {}
    for r in visits:
        assert owners.setdefault((r["workload"], r["config"]), r["device"]) == r["device"]
    for at, device in timed["device"].items():
        assert owners[landscape.workload, at] == device
    ticks = {}  # a control at the beginning, and then after every five readings of a device
    for r in journal(folder):
        if r["kind"] in ("visit", "control"):
            ticks.setdefault(r["device"], []).append(r["kind"])
    for kinds in ticks.values():
        first = kinds.index("control")
        gaps = np.diff([i for i, kind in enumerate(kinds[first:]) if kind == "control"])
        assert len(gaps) >= 5
        assert set(gaps) == {6}
        assert first <= 12


def test_a_recording_of_several_gpus_resumes_where_each_left_off(folder):
    seen = []

    def stop(progress):
        seen.append(progress)
        if len(seen) == 30:
            raise KeyboardInterrupt

    first = recording(folder, slices=True)
    first._report = stop
    with pytest.raises(KeyboardInterrupt):
        first.run()
    assert len(recording(folder, slices=True).run()) == 2
    visits = [r for r in journal(folder) if r["kind"] == "visit"]
    asked = [(r["workload"], r["config"], r["visit"]) for r in visits]
    assert len(asked) == len(set(asked))


def test_gpus_of_two_kinds_and_gpus_in_use_are_refused(folder):
    with pytest.raises(UsageError, match=r"one kind, got GPU-a \(test\), GPU-c \(other\)"):
        recording(folder, devices=(0, 2)).run()
    with GpuLock(SLOW, what="something"), pytest.raises(GpuBusy, match="GPU-b held by"):
        recording(folder).run()
    with pytest.raises(UsageError, match=r"each GPU once, got .*devices=\(1, 1\)"):
        options(devices=(1, 1))


def test_workers_with_a_gpu_each_record_a_workload_each(folder):
    with recipes.host_gpus(CARDS[:2], dashboard=False) as client:
        paths = record(
            WORKLOADS,
            directory=folder / "out",
            options=options(compile_workers=1),
            executor=client,
            services=SERVICES,
        )
    assert [p.stem for p in paths] == ["4096x640", "65536x512"]
    names = sorted(p.name for p in (folder / "out").glob("journal*.jsonl"))
    assert names == ["journal-softmax-4096x640.jsonl", "journal-softmax-65536x512.jsonl"]
    for path in paths:
        assert len(Landscape.load(path).manifest["control"]["devices"]) == 1


def test_drift_of_readings_that_never_change_is_zero():
    found = drift({"a": [2.0] * 4, "b": [3.0, 3.0, 3.3, 3.3], "c": []})
    assert found["a"] == {
        **{"readings": 4, "median_us": 2.0, "offset": 0.0},
        **{"drift": 0.0, "spread": 0.0},
    }
    assert found["b"]["drift"] == pytest.approx(0.1)
    assert found["b"]["offset"] == pytest.approx(3.15 / 2 - 1)
    assert found["b"]["spread"] == pytest.approx(0.1)
    assert found["c"] == dict.fromkeys(found["c"]) | {"readings": 0}
