import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kt_lab.errors import StoreError, UsageError
from kt_lab.landscape import Landscape
from kt_lab.record import (
    Recording,
    RecordOptions,
    SessionOptions,
    SessionRecording,
    fit_contention,
    state,
)
from kt_lab.record.lanes import Lane
from kt_lab.runners.gpu import facts
from kt_lab.runners.workers import Outcome
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

    def make(options=OPTIONS, on_progress=None, workloads=WORKLOADS, journal="", **services):
        fakes = {name: f"tests.record.fake_gpu:{fake}" for name, fake in services.items()}
        return Recording(
            workloads,
            directory=tmp_path,
            options=options,
            on_progress=on_progress,
            services=SERVICES | fakes,
            journal=journal or "journal.jsonl",
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
        assert landscape.manifest["baseline"]["samples_us"] == [9.1] * 5  # as float32
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


def test_a_recording_that_goes_on_counts_what_is_left_and_no_more(recording):
    """Binaries are compiled again where only some of the configs that share them are whole."""

    def stop(progress):
        if progress.phase == "visit 2" and progress.done >= progress.total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recording(on_progress=stop).run()
    seen = []
    assert len(recording(on_progress=seen.append).run()) == 2
    assert all(p.done <= p.total for p in seen)
    last = {p.phase: (p.done, p.total) for p in seen}
    done, total = last["compile and visit 1"]
    assert done == total > 0


def test_a_recording_stops_in_time_and_says_what_is_complete(recording):
    assert recording(RecordOptions(limit=60, compile_workers=2, stop_after_s=0.0)).run() == []
    assert len(recording().run()) == 2


def test_any_shape_of_a_kernel_is_recorded(recording):
    (path,) = recording(workloads=["softmax/1000x777"]).run()
    landscape = Landscape.load(path)
    assert landscape.workload == "softmax/1000x777"
    assert landscape.manifest["extents"] == {"M": 1000, "N": 777}


def test_an_unknown_workload_is_refused_before_anything_is_written(tmp_path):
    for name, told in (
        ("softmac/4096x640", "did you mean 'softmax'"),
        ("softmax/4096", "must have the extents M x N, got 4096"),
        ("softmax/large", "a shape of softmax is M x N"),
    ):
        with pytest.raises(UsageError, match=told):
            Recording([name], directory=tmp_path, options=OPTIONS)
    assert not list(tmp_path.iterdir())


def test_a_machine_without_a_gpu_is_told_so_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    services = SERVICES | {"timing": "tests.record.fake_gpu:no_gpu"}
    recording = Recording(WORKLOADS, directory=tmp_path, options=OPTIONS, services=services)
    with pytest.raises(UsageError, match=r"must reach a working GPU, got .*no GPU 0 here") as told:
        recording.run()
    assert "\n" not in str(told.value)


def test_without_a_gpu_nothing_is_started(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "gpu_arch", lambda _: None)
    monkeypatch.setattr(facts, "_counted", lambda: 0)
    options = replace(OPTIONS, devices=(1, 0))
    with pytest.raises(UsageError, match=r"index 1; .*kt-lab compare"):
        Recording(WORKLOADS, directory=tmp_path, options=options).run()
    session = {"name": "again", "cache": tmp_path, "options": SessionOptions()}
    with pytest.raises(UsageError, match="needs a GPU, got no GPU with index 0"):
        SessionRecording(WORKLOADS, **session).run()


def test_a_damaged_journal_is_refused_with_the_line(recording, tmp_path):
    (tmp_path / "journal.jsonl").write_text('{"kind": "facts", "facts": {}}\nnot json\n{}\n')
    with pytest.raises(StoreError, match=r"got line 2 of journal\.jsonl"):
        recording()


def test_a_recording_too_thin_to_judge_by_is_refused():
    with pytest.raises(UsageError, match="visits must be a whole number >= 2"):
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


def kinds(folder, kind):
    return [r for r in read_journal(folder / "journal.jsonl") if r["kind"] == kind]


def test_a_gpu_that_is_lost_stops_the_recording_and_is_no_failure_of_the_configs(
    recording, tmp_path
):
    (tmp_path / "gone").touch()
    with pytest.raises(UsageError, match=r"working GPU, got error: .*GPU 0 is lost; see kt-lab"):
        recording(timing="lost_gpu").run()
    told = [r["status"] for r in kinds(tmp_path, "visit")]
    assert told[-1] == "crashed", "the tenth reading, which may have been the cause"
    assert set(told) <= {"ok", "wrong_result", "crashed"}
    assert len(recording().run()) == 2, "run again, it goes on with all the others"
    assert {r["status"] for r in kinds(tmp_path, "visit")} <= {"ok", "wrong_result", "crashed"}


def test_a_timing_process_without_a_service_is_no_failure_of_the_config(recording, tmp_path):
    made = recording()
    lane = Lane("GPU-a", timing=None)
    unserved = Outcome("error", None, "the service could not start", served=False)
    with pytest.raises(UsageError, match="working GPU, got error: the service could not start"):
        made._take_visit(lane, (WORKLOADS[0], 0, 0), unserved)
    assert not kinds(tmp_path, "visit")


def test_compilers_that_do_not_start_stop_the_recording(recording, tmp_path):
    with pytest.raises(UsageError, match=r"compile processes must start, got .*no compiler here"):
        recording(compile="no_compiler").run()
    assert not kinds(tmp_path, "compile")


def test_what_others_left_in_the_cache_is_compiled_all_the_same(recording, tmp_path):
    recording(compile="cached_service").run()
    told = [r for r in kinds(tmp_path, "compile") if r["status"] == "ok"]
    assert {r["wall_s"] for r in told} == {0.5}


def test_a_landscape_is_whole_without_the_vendors_path(recording, tmp_path):
    with pytest.warns(UserWarning, match="no reading beside the vendor's path, .*capturing"):
        paths = recording(timing="no_vendor").run()
    assert len(paths) == 2
    assert not kinds(tmp_path, "compare")
    with pytest.warns(UserWarning, match="vendor's path"):
        recording(timing="no_vendor").run()
    recording().run()  # and it is measured once it can be
    assert len(kinds(tmp_path, "compare")) == 2


def test_the_contention_curve_is_of_what_compiles(recording, tmp_path):
    recording(replace(OPTIONS, limit=30, contention=99)).run()
    assert {r["status"] for r in kinds(tmp_path, "compile")} == {"ok", "compile_error"}
    assert {r["status"] for r in kinds(tmp_path, "contention")} == {"ok"}


def test_a_space_in_which_nothing_compiles_is_recorded_as_such(recording, tmp_path):
    for path in recording(compile="failing_service").run():
        assert set(Landscape.load(path).table["status"]) == {"compile_error"}
    assert not kinds(tmp_path, "recompiled"), "what compiles later has its curve measured"


def test_a_process_that_takes_the_place_of_a_lost_one_is_warmed_up_first(recording, tmp_path):
    recording(timing="cold_service", options=replace(OPTIONS, limit=200, contention=0)).run()
    told = [r["status"] for r in kinds(tmp_path, "visit")]
    assert "crashed" in told
    assert set(told) == {"ok", "wrong_result", "crashed"}


def test_a_journal_may_go_on_with_another_workload(recording):
    recording(workloads=WORKLOADS[:1]).run()
    (path,) = recording(workloads=WORKLOADS[1:]).run()
    told = Landscape.load(path).manifest["control"]
    assert told["workload"] == WORKLOADS[1], "what is not asked for is neither loaded nor timed"
    assert sum(row["readings"] for row in told["devices"].values()) > 0
    both = recording().run()
    assert [Landscape.load(p).workload for p in both] == [*WORKLOADS]
    assert Landscape.load(both[0]).manifest["control"]["workload"] == WORKLOADS[0]


def test_a_landscape_of_another_journal_is_not_replaced(recording, tmp_path):
    small = replace(OPTIONS, limit=20, contention=0)
    path, _ = recording(small).run()
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(UsageError, match=r"4096x640\.json with 20 configs, .* keep 0;"):
            recording(small, journal="other.jsonl").run()
    assert not (tmp_path / "other.jsonl").exists(), "refused before anything is measured"
    assert path.read_bytes() == before


def test_a_landscape_is_not_replaced_by_a_sample_of_it_but_by_more(recording):
    small, large = (replace(OPTIONS, limit=n, contention=0) for n in (20, 30))
    path, _ = recording(small).run()
    assert recording(large).run()[0] == path
    assert len(Landscape.load(path).table) == 30
    with pytest.raises(UsageError, match=r"with 30 configs, .* keep 20; .* another --directory"):
        recording(small).run()
    assert len(Landscape.load(path).table) == 30
