import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kt_lab.errors import StoreError, UnknownName, UsageError
from kt_lab.landscape import Landscape
from kt_lab.record import Recording, RecordOptions, fit_contention, state
from kt_lab.store import read_journal

ROOT = Path(__file__).resolve().parents[2]
SERVICES = {
    "compile": "tests.record.fake_gpu:compile_service",
    "timing": "tests.record.fake_gpu:timing_service",
}
WORKLOADS = ("softmax/4096x640", "softmax/65536x512")
OPTIONS = RecordOptions(limit=60, compile_workers=2, contention=5)


@pytest.fixture
def recording(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def make(options=OPTIONS, on_progress=None):
        return Recording(
            WORKLOADS,
            directory=tmp_path,
            options=options,
            on_progress=on_progress,
            services=SERVICES,
        )

    return make


def test_a_recording_holds_every_config_with_its_samples_costs_and_failures(recording):
    seen = []
    paths = recording(on_progress=seen.append).run()
    assert [p.stem for p in paths] == ["4096x640", "65536x512"]
    for path in paths:
        landscape = Landscape.load(path)
        table = landscape.table
        assert len(table) == 60
        ok = table[table["status"] == "ok"]
        assert len(ok) > 30
        assert {"compile_error", "wrong_result"} & set(table["status"])
        for samples, visits in zip(ok["samples_us"], ok["visit"], strict=True):
            counts = np.bincount(np.asarray(visits), minlength=2)
            assert counts.min() >= OPTIONS.fewest
            near = np.median(samples) <= OPTIONS.slow_factor * landscape.optimum_us
            assert not near or counts.min() == OPTIONS.repetitions
            assert max(samples) < 1.3 * min(samples), "late launches are measured again"
        bad = table[table["status"] == "wrong_result"]
        assert (bad["failure_s"] > 0).all()
        assert all(len(s) == 0 for s in table[table["status"] != "ok"]["samples_us"])
        assert (ok["compile_s"] > 0).all()
        assert 0 < landscape.manifest["disturbed"] < 30
        assert landscape.manifest["contention"]["configs"] <= 5
        assert landscape.manifest["compile_clock"] == "wall"
        assert landscape.manifest["baseline"]["name"] == "torch"
    assert {p.phase.split(" at ")[0] for p in seen} >= {"compile and visit 1", "visit 2"}
    assert any(p.eta_s is not None for p in seen)


def test_a_killed_recording_resumes_without_measuring_anything_twice(recording, tmp_path):
    code = (
        "from tests.record.test_record import *\n"
        "if __name__ == '__main__':\n"
        f"    Recording(WORKLOADS, directory={str(tmp_path)!r}, options=OPTIONS,"
        " services=SERVICES).run()\n"
    )
    script = tmp_path / "main.py"
    script.write_text(code)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, script], env=environment, start_new_session=True)
    journal = tmp_path / "journal.jsonl"
    while not journal.exists() or journal.read_bytes().count(b'"visit"') < 25:
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with journal.open("ab") as file:
        file.write(b'{"kind": "visit", "workl')  # what a kill in mid-write leaves behind
    paths = recording().run()
    assert len(paths) == 2
    records = read_journal(journal)
    visits = [(r["workload"], r["config"], r["visit"]) for r in records if r["kind"] == "visit"]
    assert len(visits) == len(set(visits))
    compiled = [r["specialisation"] for r in records if r["kind"] == "compile"]
    assert len(compiled) == len(set(compiled))
    assert Landscape.load(paths[0]).visits == 2


def test_a_recording_stops_in_time_and_says_what_is_complete(recording):
    assert recording(RecordOptions(limit=60, compile_workers=2, stop_after_s=0.0)).run() == []
    assert len(recording().run()) == 2


def test_an_unknown_workload_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UnknownName, match="did you mean 'softmax/4096x640'"):
        Recording(["softmax/4096x64"], directory=tmp_path, options=OPTIONS)
    assert not list(tmp_path.iterdir())


def test_a_machine_without_a_gpu_is_told_so_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    services = SERVICES | {"timing": "tests.record.fake_gpu:no_gpu"}
    recording = Recording(WORKLOADS, directory=tmp_path, options=OPTIONS, services=services)
    with pytest.raises(UsageError, match=r"must reach a working GPU, got .*no GPU 0 here") as told:
        recording.run()
    assert "\n" not in str(told.value)


def test_a_damaged_journal_is_refused_with_the_line(recording, tmp_path):
    (tmp_path / "journal.jsonl").write_text('{"kind": "facts", "facts": {}}\nnot json\n{}\n')
    with pytest.raises(StoreError, match=r"got line 2 of journal\.jsonl"):
        recording()


def test_a_recording_too_thin_to_judge_by_is_refused():
    with pytest.raises(UsageError, match="visits >= 2"):
        RecordOptions(visits=1)


def test_the_contention_curve_recovers_a_known_law():
    records = [
        {"status": "ok", "specialisation": s, "workers": n, "wall_s": base * (1 + 0.1 * (n - 1))}
        for s, base in (("a", 0.2), ("b", 1.5))
        for n in (1, 4, 16)
    ]
    fit = fit_contention(records)
    assert fit["a"] == pytest.approx(0.1, rel=0.05)
    assert fit["p"] == pytest.approx(1.0, rel=0.05)
    assert fit["rms_log_error"] < 0.02
    assert fit_contention([]) is None


def test_a_recording_goes_on_with_readings_of_the_same_thing_alone(recording, monkeypatch):
    recording(options=replace(OPTIONS, stop_after_s=0.0)).run()
    with pytest.raises(StoreError, match="protocol is graph and was events; record into another"):
        recording(options=replace(OPTIONS, protocol="graph")).run()
    monkeypatch.setattr(state, "kernel_source", lambda _: "edited")
    with pytest.raises(StoreError, match=r"softmax/4096x640 is \w+ edited and was"):
        recording().run()


def test_a_contention_curve_that_was_cut_off_is_measured_anew(recording):
    class Cut(Exception):
        pass

    def stop(progress):
        if progress.phase == "contention at 1 workers":
            raise Cut

    with pytest.raises(Cut):
        recording(on_progress=stop).run()
    told = Landscape.load(recording().run()[0]).manifest["contention"]
    assert told["configs"] == 5
    assert len(told["factors"]) >= 2
