"""One call makes figures, tables and captions; the same inputs give the same bytes anywhere."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from kt_lab.budget import Budget
from kt_lab.capture.autotune import Recording, Timing
from kt_lab.cells import recorded
from kt_lab.cli import main
from kt_lab.datasheet import datasheet, markdown
from kt_lab.errors import StoreError, UnknownName, UsageError
from kt_lab.experiment import Experiment
from kt_lab.formats import read_cache
from kt_lab.landscape import landscapes
from kt_lab.publication import FIGURES, TABLES, publish, read_study, tables
from kt_lab.publication.stored import parts_of, sha256
from kt_lab.store import read_table, write_table
from kt_lab.study import latency_table
from kt_lab.trial import Config
from tests.formats.files import hub, write
from tests.runners.tables import make_landscape

DRAWN = [name for name in FIGURES if name != "anatomy"]  # no searcher of the study predicts


@pytest.fixture(scope="module")
def written(stored, tmp_path_factory):
    """Everything of the small study, for a two-column page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KT_LAB_DATA", str(stored))
        return publish("tiny", venue="mlsys", directory=tmp_path_factory.mktemp("all"))


def test_one_call_writes_every_figure_and_table(written):
    assert list(written) == [*DRAWN, *TABLES, "document"]
    for name in DRAWN:
        assert sorted(written[name]) == ["csv", "json", "pdf", "png", "tex"]
    for name in TABLES:
        assert sorted(written[name]) == ["csv", "html", "json", "tex"]
    assert all(path.stat().st_size > 100 for paths in written.values() for path in paths.values())
    document = written["document"]["tex"].read_text()
    assert all(f"\\input{{{name}.tex}}" in document for name in [*DRAWN, *TABLES])


@pytest.mark.parametrize("name", [*DRAWN, *TABLES])
def test_captions_tell_what_they_rest_on(written, name):
    facts = json.loads(written[name]["json"].read_text())
    told = [
        *("2 workloads of 2 kernels", "h200", "2 seeds per workload", "budget 40 trials"),
        *("kt_lab 0.1.0", "protocol cuda-events/l2-flush-256MiB/queued", "NVIDIA H200"),
    ]
    for words in told:
        assert words in facts["caption"], words
    assert "kt\\_lab 0.1.0" in facts["caption_latex"]
    assert facts["caption_latex"] in written[name]["tex"].read_text()
    if name in ("ratios", "table_trials", "table_running_times"):
        assert "95% percentile bootstrap" in facts["caption"]
    if name in ("ratios", "table_trials", "table_scores"):
        assert "Pattern" in facts["caption"] or name == "table_scores"


def test_a_score_is_told_as_the_mean_that_it_is(written):
    """Not as a geomean, and its range of trials as a mean where workloads have their own."""
    caption = json.loads(written["table_scores"]["json"].read_text())["caption"]
    data = pd.read_csv(written["table_scores"]["csv"])
    ends = (f"{data[name].mean():.0f}" for name in ("from_trials", "to_trials"))
    assert f"from {' to '.join(ends)} trials, all means over workloads; the highest" in caption
    assert "; a mean (over workloads) resamples kernels" in caption
    assert "geomean" not in caption


def test_nothing_of_the_moment_or_the_machine_is_written(written):
    folder = str(written["document"]["tex"].parent)
    for paths in written.values():
        for kind, path in paths.items():
            if kind != "png":
                assert folder.encode() not in path.read_bytes()
    facts = json.loads(written["ratios"]["json"].read_text())
    assert facts["provenance"]["study"] == "tiny"
    assert set(facts["provenance"]["runs"]) == {"tiny_one"}
    assert len(facts["provenance"]["runs"]["tiny_one"]["sha256"]) == 64
    assert not {"utc", "host", "cpu"} & set(facts["provenance"])


def test_another_process_in_another_folder_writes_the_same_bytes(written, stored, tmp_path):
    names = ["quality_at_trials", "significance", "table_trials", "table_scores"]
    program = (
        "from kt_lab.publication import publish\n"
        f"publish('tiny', venue='mlsys', directory='elsewhere', only={names})"
    )
    home = {"KT_LAB_DATA": str(stored), "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=os.environ | home, check=True
    )
    for name in names:
        for path in written[name].values():
            assert (tmp_path / "elsewhere" / path.name).read_bytes() == path.read_bytes(), (
                path.name
            )


def test_the_csv_of_a_table_holds_what_is_printed(written):
    data = pd.read_csv(written["table_trials"]["csv"])
    end = data[data["budget"].isna()].sort_values("estimate").iloc[0]
    words = f"\\textbf{{{end.estimate:.3f}}} [{end.low:.3f}, {end.high:.3f}]"
    assert words in written["table_trials"]["tex"].read_text()
    assert f"<b>{end.estimate:.3f}</b>" in written["table_trials"]["html"].read_text()


def test_figures_have_the_width_that_is_asked_for(data, tmp_path):
    for width, inches in (("column", 3.25), ("text", 6.75)):
        paths = publish(
            "tiny_one", venue="icml", width=width, directory=tmp_path, only=["quality_vs_time"]
        )
        facts = json.loads(paths["quality_vs_time"]["json"].read_text())
        assert facts["inches"][0] == inches
        star = "*" if width == "text" else ""
        tex = paths["quality_vs_time"]["tex"].read_text()
        assert f"\\begin{{figure{star}}}" in tex
        assert list(paths) == ["quality_vs_time", "document"]
    assert data.exists()


def test_a_study_that_was_read_is_published_as_it_is(data, tmp_path):
    study = read_study("tiny_one", reference="random")
    paths = publish(study, directory=tmp_path, only=["table_scores"])
    assert "over Random" in paths["table_scores"]["html"].read_text()
    with pytest.raises(UsageError, match="are its own"):
        publish(study, directory=tmp_path, reference="pattern")
    assert data.exists()


@pytest.mark.usefixtures("data")
def test_mistakes_are_told(tmp_path):
    with pytest.raises(UnknownName, match="tiny_one"):
        publish("tyni_one", directory=tmp_path / "tyni_one")
    assert not (tmp_path / "tyni_one").exists()
    with pytest.raises(UnknownName, match="mlsys"):
        publish("tiny", directory=tmp_path, venue="mlsis")
    with pytest.raises(UsageError, match="workers >= 1, got workers=0"):
        publish("tiny", directory=tmp_path, workers=0)
    with pytest.raises(UnknownName, match="table_trials"):
        publish("tiny", directory=tmp_path, only=["table_trails"])
    with pytest.raises(UnknownName, match="pattern"):
        read_study("tiny", reference="patern")
    with pytest.raises(UsageError, match=r"lanes must be one of the study's \[16\]"):
        read_study("tiny", lanes=4)
    with pytest.raises(UsageError, match="got anatomy, of which tiny has nothing to draw"):
        publish("tiny", directory=tmp_path / "new", only=["anatomy"])
    with pytest.raises(UnknownName, match="pattern"):
        publish("tiny", directory=tmp_path / "new", reference="patern")
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()  # the caller's own
    with pytest.raises(UnknownName, match="pattern"):
        publish("tiny", directory=tmp_path / "empty", reference="patern")
    assert (tmp_path / "empty").exists()
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        with pytest.raises(UsageError, match=r"directory must be a folder.*where a file stands"):
            publish("tiny", directory=tmp_path / place, only=["ratios"])


def test_a_study_without_its_landscapes_is_refused(stored, tmp_path, monkeypatch):
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    (tmp_path / "runs").symlink_to(stored / "runs")
    with pytest.raises((StoreError, UsageError), match=r"softmax/4096x640|int4_gemm"):
        read_study("tiny")


def _save(landscape, data):
    name = landscape.workload.partition("/")[2]
    return landscape.save(data / "landscapes" / landscape.kernel / landscape.gpu / name)


def test_runs_of_a_landscapes_file_are_not_published_with_another_landscape(tmp_path, monkeypatch):
    data = tmp_path / "data"
    monkeypatch.setenv("KT_LAB_DATA", str(data))
    own = make_landscape().save(tmp_path / "own")
    study = Experiment("own", [str(own)], ("pattern", "random"), 2, Budget(trials=8))
    study.run(directory=data / "runs" / "own")
    other = make_landscape()
    other.table["check_s"] = 0.003
    _save(other, data)
    recorded.cache_clear()
    with pytest.raises(StoreError, match="own replayed another landscape of toy/16 than"):
        read_study("own")
    _save(make_landscape(), data)
    recorded.cache_clear()
    (replayed,) = read_study("own").landscapes
    assert replayed.manifest["sha256"] == sha256(own)


def _imported(folder):
    return read_cache(write(folder / "A100.json", hub()))


def _captured(_):
    timings = [
        Timing(Config(BLOCK=block, num_warps=warps), *[block * warps * f for f in (1, 2, 3)], "ok")
        for block in (16, 32, 64)
        for warps in (1, 2, 4)
    ]
    facts = {"gpu": "NVIDIA H200", "triton": "3.5.0"}
    return Recording("mine", (512,), timings, timings[0].config, 1.0, False, facts).landscape()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (_imported, "timing protocol kernel-tuner-cache/times."),
        (_captured, "h200 is NVIDIA H200 (driver unknown, Triton 3.5.0)."),
    ],
)
def test_a_study_of_what_others_measured_is_published_with_what_they_tell(
    tmp_path, monkeypatch, made, said
):
    data = tmp_path / "data"
    monkeypatch.setenv("KT_LAB_DATA", str(data))
    landscape = made(tmp_path)
    _save(landscape, data)
    budget = Budget(trials=8)
    study = Experiment("theirs", [landscape.workload], ("pattern", "random"), 2, budget)
    study.run(directory=data / "runs" / "theirs")
    written = publish("theirs", directory=tmp_path / "out", only=["convergence", *TABLES])
    assert said in json.loads(written["table_latencies"]["json"].read_text())["caption"]
    row = pd.read_csv(written["table_latencies"]["csv"]).iloc[0]
    assert row[["bytes_floor_us", "vendor_us"]].isna().all()
    assert row["optimum_us"] == pytest.approx(landscape.optimum_us)
    (told,) = datasheet().to_dict("records")
    assert told["optimum_us"] == landscape.optimum_us
    assert pd.isna([told[n] for n in ("bound", "vendor", "vendor_us", "share_of_roofline")]).all()
    assert landscape.workload in markdown(datasheet())


@pytest.mark.usefixtures("data")
def test_what_one_kernel_or_one_shape_of_each_cannot_tell_is_no_number():
    study = read_study("tiny")
    two = tables._power(study, None).data  # of two kernels, a shape each
    assert two["workload_sd"].isna().all()
    assert two["kernel_sd"].notna().all()
    one = replace(study, runs=study.runs[study.runs["kernel"] == "softmax"])
    alone = tables._power(one, None).data
    assert alone[["kernel_sd", "workload_sd"]].isna().all(axis=None)
    assert alone.loc[alone["claim"] == "kernels", "needed"].isna().all()
    assert alone["seed_sd"].notna().all()


@pytest.mark.usefixtures("data")
def test_the_command_publishes(tmp_path, capsys):
    words = ["publish", "tiny", "--venue", "neurips", "--directory", str(tmp_path)]
    assert main([*words, "--only", "table_power", "--workers", "1"]) == 0
    assert "table_power: csv, html, json, tex" in capsys.readouterr().out
    assert (tmp_path / "document.tex").exists()


def test_a_workload_of_two_gpus_is_published_as_two(data, tmp_path, monkeypatch):
    both = tmp_path / "data"
    shutil.copytree(data / "landscapes", both / "landscapes")
    here = next(e for e in landscapes() if e.workload == "softmax/4096x640")
    monkeypatch.delenv("KT_LAB_DATA")
    other = next(e for e in landscapes() if (e.workload, e.gpu) == (here.workload, "h100"))
    folder = both / "landscapes" / "softmax" / "h100"
    folder.mkdir()
    for suffix in (".json", ".parquet"):
        shutil.copy(other.path.with_suffix(suffix), folder)
    monkeypatch.setenv("KT_LAB_DATA", str(both))
    for gpu in ("h100", "h200"):
        name, budget = f"mine_{gpu}", Budget(trials=25)
        study = Experiment(name, [here.workload], ("pattern", "random"), 2, budget, gpu=gpu)
        study.run(directory=both / "runs" / name)
    names = ["profiles", "table_latencies"]
    written = publish("mine", directory=tmp_path / "out", only=names)
    said = json.loads(written["profiles"]["json"].read_text())["caption"]
    assert "1 workload of 1 kernel (h100 and h200" in said
    assert "share of 2 landscapes on which" in said
    table = pd.read_csv(written["table_latencies"]["csv"])
    assert len(table) == 2
    told = json.loads(written["table_latencies"]["json"].read_text())["provenance"]["landscapes"]
    assert set(told) == {"softmax/4096x640 on h100", "softmax/4096x640 on h200"}
    printed = written["table_latencies"]["tex"].read_text()
    assert all(f"softmax/4096x640 ({gpu}) &" in printed for gpu in ("h100", "h200"))
    own = Experiment("mine_own", [here.workload], ("random",), 2, Budget(trials=5), gpu="h200")
    own.run(directory=both / "runs" / "mine_own")
    told = r"mine mine_h100 \(2 searchers\), .* mine_own \(1 searchers\), and runs in common"
    with pytest.raises(UsageError, match=told):
        read_study("mine")
    begun = both / "runs" / "begun"
    begun.mkdir()
    (begun / "begun.jsonl").touch()
    with pytest.raises(StoreError, match="begun is not computed to its end; run it again"):
        read_study("begun")


def test_a_part_that_is_missing_or_there_twice_is_told(stored, tmp_path, monkeypatch):
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    runs = tmp_path / "runs"
    for folder in ("tiny_one", "tiny_one_before"):
        shutil.copytree(stored / "runs" / "tiny_one", runs / folder)
    with pytest.raises(StoreError, match=r"tiny_one.parquet in tiny_one and tiny_one_before; m"):
        parts_of("tiny")
    shutil.rmtree(runs / "tiny_one_before")
    (runs / "tiny_two").mkdir()
    (runs / "tiny_two" / "tiny_two+1.jsonl").touch()
    (runs / "same").symlink_to(runs / "tiny_one")
    with pytest.raises(StoreError, match="the study tiny_two is not computed to its end"):
        parts_of("tiny")
    assert [*parts_of("tiny_one")] == ["tiny_one"]


def test_a_study_without_some_of_its_runs_is_refused(stored, tmp_path, monkeypatch):
    """Seeds that were left out would be but a lower number in captions."""
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    shutil.copytree(stored / "landscapes", tmp_path / "landscapes")
    path = tmp_path / "runs" / "fewer" / "fewer.parquet"
    frame, facts = read_table(stored / "runs" / "tiny_one" / "tiny_one.parquet")
    write_table(frame[(frame["seed"] == 0) | (frame["searcher"] == "random")], path, facts=facts)
    with pytest.raises(StoreError, match="all 8 runs that were asked for, got 6 in fewer"):
        read_study("fewer")
    told = {name: value for name, value in facts.items() if name not in ("seeds", "budget")}
    write_table(frame, path, facts=told)
    with pytest.raises(StoreError, match="got no seeds, budget in fewer"):
        read_study("fewer")


def test_a_study_of_which_no_run_found_anything_is_refused(data, tmp_path):
    name, budget = "late", Budget(seconds=1e-3)
    study = Experiment(name, ["softmax/4096x640"], ("pattern", "random"), 2, budget, gpu="h200")
    study.run(directory=data / "runs" / name)
    with pytest.raises(UsageError, match="got none of 4 runs that did; give a larger budget"):
        publish(name, directory=tmp_path)
    shutil.rmtree(data / "runs" / name)


@pytest.mark.usefixtures("data")
def test_a_run_that_found_nothing_counts_in_a_median():
    runs = read_study("tiny").runs.copy()
    failed = (runs["searcher"] == "random") & (runs["seed"] == 0)
    runs.loc[failed, ["latency_us", "judged_us"]] = None
    assert np.isinf(latency_table(runs)["random_us"]).all()
    assert np.isfinite(latency_table(runs)["pattern_us"]).all()
