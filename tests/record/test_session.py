import argparse
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kt_lab.commands import record as command
from kt_lab.datasheet import noisy
from kt_lab.errors import LandscapeError, UsageError
from kt_lab.landscape import Landscape, data_directory
from kt_lab.record import Recording, RecordOptions, SessionOptions, SessionRecording
from kt_lab.record.session import chosen
from kt_lab.runners.replay import ReplayRunner
from kt_lab.sessions import draw_offset, load_sessions, log_offsets
from kt_lab.stats.sessions import agreement, evenly
from kt_lab.trial import Proposal

ROOT = Path(__file__).resolve().parents[2]
FAKE = "tests.record.fake_gpu"
SERVICES = {"compile": f"{FAKE}:compile_service", "timing": f"{FAKE}:timing_service"}
WORKLOADS = ("softmax/4096x640", "softmax/65536x512")
OPTIONS = SessionOptions(others=8, control_every=5, compile_workers=2, near=1.3)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two small landscapes of a fake GPU, and two sessions over them."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("recorded")
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("KT_LAB_DATA", str(folder))
        options = RecordOptions(limit=60, compile_workers=2, contention=0)
        paths = Recording(WORKLOADS, directory=folder, options=options, services=SERVICES).run()
        found = {Landscape.load(p).workload: Landscape.load(p) for p in paths}
        for name in ("first", "second"):
            SessionRecording(
                WORKLOADS,
                name=name,
                cache=folder / "cache",
                options=OPTIONS,
                services=SERVICES,
                load=lambda key, *, gpu: found[key],  # noqa: ARG005
            ).run()
        yield found, load_sessions("test")


def test_a_session_times_contenders_and_others_with_a_control(recorded):
    found, table = recorded
    for (name, key), frame in table[~table["control"]].groupby(["session", "workload"]):
        landscape = found[key]
        assert sorted(frame["config"]) == sorted(chosen(landscape, OPTIONS)), name
        near = landscape.latency_us <= OPTIONS.near * landscape.optimum_us
        assert set(np.flatnonzero(near)) <= set(frame["config"])
    control = table[table["control"]]
    assert control.groupby("session")[["workload", "config"]].nunique().eq(1).all(axis=None)
    readings = int((~table["control"]).sum())
    assert len(control) == 2 * -(-readings // 2 // OPTIONS.control_every)
    for _, frame in table.groupby("session"):
        assert sorted(frame["order"]) == list(range(len(frame)))
    assert set(control.loc[control["status"] == "ok", "session"]) == {"first", "second"}


def test_sessions_of_a_gpu_that_never_changes_agree_exactly(recorded):
    found, table = recorded
    for key, landscape in found.items():
        told = agreement(landscape, table[table["workload"] == key])
        assert list(told["session"]) == ["first", "second"]
        assert told["spearman"].to_numpy() == pytest.approx(1, abs=0.02)
        assert told["offset"].to_numpy() == pytest.approx(1, abs=0.01)
        assert told["optimum_ratio"].to_numpy() == pytest.approx(1, abs=0.01)


def test_a_slower_day_shows_as_an_offset_and_moves_replay_but_not_its_judge(recorded):
    found, table = recorded
    landscape = found[WORKLOADS[0]]
    slower = table[table["session"] == "first"].copy()
    slower["samples_us"] = [1.1 * np.asarray(samples) for samples in slower["samples_us"]]
    told = agreement(landscape, slower)
    assert told["offset"].item() == pytest.approx(1.1, abs=0.01)
    assert told["optimum_ratio"].item() == pytest.approx(1, abs=0.01)
    days = [draw_offset(landscape, slower, seed=seed) for seed in range(20)]
    means = {round(float(np.exp(day.mean())), 1) for day in days}
    assert means == {1.0, 1.1}  # the recording's own day, and the slower one
    day = next(day for day in days if day.any())
    plain, moved = (ReplayRunner(landscape, seed=0, offset=o) for o in (None, day))
    for runner in (plain, moved):
        runner.submit([Proposal(0, landscape.best)])
    at = landscape.index(landscape.best)
    ratio = moved.next()[1].latency_us / plain.next()[1].latency_us
    assert ratio == pytest.approx(np.exp(day[at]), rel=1e-5)
    assert moved.judge(landscape.best) == plain.judge(landscape.best)


def test_a_config_that_a_session_did_not_time_gets_a_deviation_that_was_seen(recorded):
    found, table = recorded
    landscape = found[WORKLOADS[0]]
    mine = table[table["workload"] == landscape.workload]
    seen = np.concatenate([o[np.isfinite(o)] for o in log_offsets(landscape, mine).values()])
    day = next(d for d in (draw_offset(landscape, mine, seed=s) for s in range(9)) if d.any())
    assert np.isfinite(day).all()
    assert day.min() >= seen.min() - 1e-9
    assert day.max() <= seen.max() + 1e-9
    assert not draw_offset(landscape, mine.iloc[:0], seed=0).any()


def test_an_offset_of_another_landscape_is_refused(recorded):
    found, _ = recorded
    with pytest.raises(UsageError, match=r"one entry per config, .* got \(3,\)"):
        ReplayRunner(found[WORKLOADS[0]], seed=0, offset=np.zeros(3))


def test_a_session_that_could_tell_nothing_is_refused():
    with pytest.raises(UsageError, match="near >= 1"):
        SessionOptions(near=0.9)


def test_a_session_without_time_is_refused_and_saves_nothing(recorded, tmp_path, monkeypatch):
    found, _ = recorded
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    session = SessionRecording(
        WORKLOADS[:1],
        name="none",
        cache=tmp_path / "cache",
        options=SessionOptions(compile_workers=1, stop_after_s=0.0),
        services=SERVICES,
        load=lambda key, *, gpu: found[key],  # noqa: ARG005
    )
    with pytest.raises(UsageError, match=r"must time one config at least, got none in 0\.0 s"):
        session.run()
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("how", ["lost", "interrupted"])
def test_a_session_that_is_cut_off_keeps_its_readings(recorded, tmp_path, monkeypatch, how):
    found, _ = recorded
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    (tmp_path / "gone").touch()

    def interrupt(progress):
        if how == "interrupted" and progress.phase == "session" and progress.done == 6:
            raise KeyboardInterrupt

    session = SessionRecording(
        WORKLOADS[:1],
        name="cut",
        cache=tmp_path / "cache",
        options=OPTIONS,
        on_progress=interrupt,
        services=SERVICES | ({"timing": f"{FAKE}:lost_gpu"} if how == "lost" else {}),
        load=lambda key, *, gpu: found[key],  # noqa: ARG005
    )
    if how == "lost":
        with pytest.raises(UsageError, match=r"lost.* under another name: \d+ readings are in"):
            session.run()
    else:
        assert session.run().exists()
    kept = load_sessions("test", directory=tmp_path / "sessions")
    assert len(kept) >= 6
    assert kept["order"].tolist() == list(range(len(kept)))


def test_a_session_is_not_written_over(recorded):
    again = SessionRecording(
        WORKLOADS,
        name="first",
        cache=data_directory() / "cache",
        options=OPTIONS,
        services=SERVICES,
        load=lambda key, *, gpu: recorded[0][key],  # noqa: ARG005
    )
    with pytest.raises(UsageError, match="a name of its own, got first, which is stored"):
        again.run()


@pytest.mark.parametrize("given", ["--devices 0 1", "--slices", "--limit 9", "--visits 5"])
def test_the_command_refuses_what_a_session_does_not_heed(given):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args([WORKLOADS[0], "--session", "monday", *given.split()])
    with pytest.raises(UsageError, match=f"got {given.split()[0]}; leave"):
        command.run(args)


def test_the_command_finds_what_was_recorded_into_its_directory(recorded, monkeypatch):
    found, _ = recorded
    asked = {}
    session = SimpleNamespace(run=lambda: "nothing")
    monkeypatch.setattr(
        command, "SessionRecording", lambda *_, **given: asked.update(given) or session
    )
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    for folder in (["--directory", str(data_directory())], []):
        assert command.run(parser.parse_args([WORKLOADS[0], "--session", "monday", *folder])) == 0
        if folder:
            read = asked["load"](WORKLOADS[0], gpu="test")
            assert read.manifest == found[WORKLOADS[0]].manifest
            monkeypatch.delenv("KT_LAB_DATA")  # what is not below the directory is as shipped
            assert asked["load"]("softmax/8192x8192", gpu="h200").gpu == "h200"
        else:
            with pytest.raises(LandscapeError, match="must name one landscape, got none"):
                asked["load"](WORKLOADS[0], gpu="test")


def test_a_foreign_file_is_no_session(tmp_path):
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "x.parquet").write_bytes(b"not parquet")
    with pytest.raises(LandscapeError, match=r"must be a Parquet file, got x\.parquet"):
        load_sessions("gpu", directory=tmp_path)


def test_a_session_of_the_older_form_is_read(recorded, tmp_path):
    _, table = recorded
    path = tmp_path / "gpu" / "old.parquet"
    path.parent.mkdir()
    old = table[table["session"] == "first"].drop(columns="session")
    about = {"schema": 1, "session": "first"}
    written = pa.Table.from_pandas(old, preserve_index=False)
    pq.write_table(written.replace_schema_metadata({"kt_lab": json.dumps(about)}), path)
    read = load_sessions("gpu", directory=tmp_path)
    assert len(read) == len(old)
    assert all(map(np.allclose, read["samples_us"], old["samples_us"]))


def test_ranks_are_compared_over_the_whole_landscape_and_not_its_best_alone():
    latency_us = np.linspace(1.0, 2.0, 1_000)
    latency_us[990:] = np.inf
    timed = np.concatenate([np.arange(300), np.arange(300, 990, 7), [995]])
    even = evenly(latency_us, timed)
    assert set(even) <= set(timed)
    assert 995 not in even
    gaps = np.diff(np.sort(even))
    assert len(even) >= 95
    assert gaps.max() <= 17  # 989 / 99, and half of 7 on either side


def test_contenders_that_other_sessions_reorder_are_listed_as_noisy():
    row = {"sessions": 3, "gpu": "h200", "visits_spearman": 0.9, "session_offsets": "1 to 1"}
    good = row | {"workload": "a/1", "spearman": 0.99, "optimum_moves": 1.01}
    moved = row | {"workload": "a/2", "spearman": 0.99, "optimum_moves": 1.03}
    mixed = row | {"workload": "a/3", "spearman": 0.97, "optimum_moves": 1.0}
    once = {"workload": "a/4", "sessions": 1}
    said, listed = noisy(pd.DataFrame([good, moved, mixed, once]))
    assert "Of 3 landscapes" in said
    assert "1 agree" in said
    assert [line.split(" | ")[0] for line in listed.splitlines()[2:]] == ["| a/3", "| a/2"]
    assert noisy(pd.DataFrame([once])) == []
