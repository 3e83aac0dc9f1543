"""An artifact is unpacked elsewhere, recomputes its numbers, and tells what was changed in it."""

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from kt_lab.artifact import bundle, compare_tables, recomputing, replay_runs
from kt_lab.artifact.recompute import check_files
from kt_lab.budget import Budget
from kt_lab.capture.searcher import searcher_class
from kt_lab.cli import main
from kt_lab.errors import UnknownName, UsageError
from kt_lab.experiment import Experiment
from kt_lab.publication import FIGURES, TABLES

NAMES = ["quality_at_trials", "ratios", "table_trials"]


@pytest.fixture(scope="module")
def archive(stored, tmp_path_factory):
    """The artifact of the small study, as an archive."""
    path = tmp_path_factory.mktemp("artifact") / "tiny.zip"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KT_LAB_DATA", str(stored))
        words = ["--output", str(path), "--only", *NAMES, "--workers", "1"]
        assert main(["artifact", "tiny", *words]) == 0
    return path


@pytest.fixture
def unpacked(archive, tmp_path):
    """The same, unpacked in a folder that knows nothing of this repository."""
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path)
    return tmp_path / "tiny"


def recompute(root, *arguments):
    """Runs the artifact's own script with the artifact's own code; returns status and words."""
    kept = {k: v for k, v in os.environ.items() if k not in ("KT_LAB_DATA", "PYTHONPATH")}
    command = [sys.executable, "recompute.py", "--workers", "1", *arguments]
    done = subprocess.run(
        command, cwd=root, env=kept, capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, done.stdout + done.stderr


def forge(root, name):
    """Makes a changed file look as it was bundled."""
    path = root / "MANIFEST.json"
    manifest = json.loads(path.read_text())
    digest = hashlib.sha256((root / name).read_bytes()).hexdigest()
    manifest["files"][name]["sha256"] = digest
    path.write_text(json.dumps(manifest))


def test_an_unpacked_artifact_recomputes_its_numbers(unpacked):
    status, said = recompute(unpacked, "--replay", "3")
    assert status == 0, said
    assert "all files are as they were bundled" in said
    assert "tiny: the numbers of 3 of 3 figures and tables are equal" in said
    assert "tiny_one: 3 of 3 replayed runs are equal" in said
    for name in NAMES:
        fresh = unpacked / "recomputed" / "tiny" / f"{name}.csv"
        assert fresh.read_bytes() == (unpacked / "paper" / "tiny" / f"{name}.csv").read_bytes()
    assert recompute(unpacked, "--replay", "0", "--only", NAMES[0])[0] == 0  # files are as before
    wrong = {"table_trails": ["--only", "table_trails"], "abc": ["--replay", "abc"]}
    for word, arguments in (wrong | {"for all, got -1": ["--replay", "-1"]}).items():
        status, said = recompute(unpacked, *arguments)
        assert (status, word in said, "Traceback" in said) == (2, True, False), said


@pytest.mark.usefixtures("data")
def test_what_is_bundled_under_any_name_can_be_recomputed(stored, tmp_path, monkeypatch):
    """The author's own name for the study, and the folder that one stands in."""
    name = "v1.2 é"
    own = Experiment(name, ["softmax/4096x640"], ["random", "pattern"], 1, Budget(trials=9))
    folder = stored / "runs" / name
    own.run(directory=folder)
    monkeypatch.chdir(tmp_path)
    assert bundle([name], ".", only=["table_trials", "table_scores"]) == tmp_path
    shutil.rmtree(folder)
    status, said = recompute(tmp_path, "--replay", "1")
    assert status == 0, said
    assert f"{name}: the numbers of 2 of 2 figures and tables are equal" in said
    assert "et al. |" not in (tmp_path / "README.md").read_text(), "cut within a sentence"


def test_runs_of_a_searcher_that_is_not_here_are_told(tmp_path, monkeypatch):
    module = tmp_path / "walkmod.py"
    words = "from kt_lab.search.random import RandomSearch\n\n\nclass Walk(RandomSearch):\n"
    module.write_text(f'{words}    """My own."""\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    walk = importlib.import_module("walkmod").Walk
    searchers = {"random": "random", "my walk": walk}
    own = Experiment("own", ["softmax/4096x640"], searchers, 1, Budget(trials=5), gpu="h200")
    own.run(directory=tmp_path / "runs")
    sys.modules.pop("walkmod")
    module.unlink()
    searcher_class.cache_clear()
    importlib.invalidate_caches()
    lacking = {}
    path = tmp_path / "runs" / "own.parquet"
    found = replay_runs(path, count=None, left_out=lacking)
    assert [*found.values()] == [[]]
    ((searcher, why),) = lacking.items()
    assert searcher == "my walk"
    assert "walkmod" in why
    told, fine = recomputing._replayed(
        "own", tmp_path / "runs" / "own.parquet", count=None, seed=0
    )
    assert told[-1].startswith("own: runs of my walk were left out: ")
    assert not fine, "nobody else has its code"


def test_it_holds_all_that_an_evaluator_needs(unpacked):
    manifest = json.loads((unpacked / "MANIFEST.json").read_text())
    on_disk = {p.relative_to(unpacked).as_posix() for p in unpacked.rglob("*") if p.is_file()}
    assert set(manifest["files"]) | {"MANIFEST.json"} == on_disk
    assert {
        *("README.md", "recompute.py", "requirements.lock", "pyproject.toml"),
        *("kt_lab/__init__.py", "data/runs/tiny_one/tiny_one.parquet"),
        *("data/landscapes/softmax/h200/4096x640.parquet", "paper/tiny/document.tex"),
    } <= on_disk
    guide = (unpacked / "README.md").read_text()
    for words in ("venv/bin/python recompute.py", "pip install -c requirements.lock"):
        assert words in guide
    assert all(f"paper/tiny/{name}" in guide for name in NAMES)


@pytest.mark.usefixtures("data")
def test_all_that_a_study_has_is_bundled_where_nothing_is_named(tmp_path):
    """None of its searchers predicts, so it has no anatomy, for which nobody asked."""
    root = bundle(["tiny"], tmp_path / "whole")
    only = json.loads((root / "MANIFEST.json").read_text())["studies"]["tiny"]["only"]
    assert set(only) == {*FIGURES, *TABLES} - {"anatomy"}
    with pytest.raises(UsageError, match="got anatomy, of which tiny has nothing to draw"):
        bundle(["tiny"], tmp_path / "named", only=["anatomy"])


@pytest.mark.parametrize(
    "name",
    ["data/runs/tiny_one/tiny_one.parquet", "paper/tiny/table_trials.csv", "kt_lab/budget.py"],
)
def test_a_changed_file_is_told_before_anything_runs(unpacked, name):
    raw = bytearray((unpacked / name).read_bytes())
    raw[len(raw) // 2] ^= 1
    (unpacked / name).write_bytes(raw)
    status, said = recompute(unpacked)
    assert status == 1
    assert f"changed since it was bundled: {name}" in said
    assert not (unpacked / "recomputed").exists()


def test_missing_and_added_files_are_told(unpacked):
    here = unpacked.parent / "recomputed"  # a folder's name of its own, here around it
    unpacked = unpacked.rename(here)
    (unpacked / "requirements.lock").unlink()
    (unpacked / "kt_lab" / "sitecustomize.py").write_text("raise SystemExit(0)\n")
    status, said = recompute(unpacked)
    assert status == 1
    assert "missing: requirements.lock" in said
    assert "not part of the artifact: kt_lab/sitecustomize.py" in said


def test_a_number_that_the_runs_do_not_give_is_told_even_if_the_manifest_agrees(unpacked):
    name = "paper/tiny/table_trials.csv"
    table = pd.read_csv(unpacked / name)
    table.loc[1, "estimate"] *= 1 + 1e-6
    table.to_csv(unpacked / name, index=False)
    forge(unpacked, name)
    status, said = recompute(unpacked, "--replay", "0", "--only", "table_trials")
    assert status == 1
    assert "tiny/table_trials: 1 of" in said
    assert "values of estimate differ, first in row 1" in said
    assert "the numbers of 0 of 1 figures and tables are equal" in said


@pytest.mark.parametrize(
    ("name", "was", "told"),
    [
        ("table_trials", "budget 40 trials", "line 4 of table_trials.tex differs: "),
        ("ratios", "runs and Pattern in", "line 5 of ratios.tex differs: "),
    ],
)
def test_a_printed_word_that_the_runs_do_not_give_is_told(unpacked, name, was, told):
    """What a reader sees is not the csv: numbers are printed in tables and in captions."""
    path = unpacked / "paper" / "tiny" / f"{name}.tex"
    path.write_text(path.read_text().replace(was, was.replace("0", "5").replace("runs", "goes")))
    forge(unpacked, f"paper/tiny/{name}.tex")
    status, said = recompute(unpacked, "--replay", "0", "--only", name)
    assert status == 1
    assert f"tiny/{name}: {told}" in said
    assert "was published, " in said


@pytest.mark.parametrize("text", [None, "{", "[]", '{"studies": {}}'])
def test_an_artifact_without_its_list_of_files_says_so(unpacked, text):
    (unpacked / "MANIFEST.json").unlink()
    if text is not None:
        (unpacked / "MANIFEST.json").write_text(text)
    (said,) = check_files(unpacked)
    assert said.startswith("without its list of files: MANIFEST.json: ")


def test_a_run_that_the_landscape_does_not_give_is_told(unpacked):
    from kt_lab.store import read_table, write_table

    path = unpacked / "data/runs/tiny_one/tiny_one.parquet"
    frame, facts = read_table(path)
    frame.loc[frame.index[-1], "machine_steps"] += 10_000
    write_table(frame, path, facts=facts)
    forge(unpacked, "data/runs/tiny_one/tiny_one.parquet")
    status, said = recompute(unpacked, "--replay", "all", "--only", "none")
    assert status == 1
    assert "differs in machine_s" in said
    assert "tiny_one: 7 of 8 replayed runs are equal" in said


def test_the_same_study_gives_the_same_archive(archive, data, tmp_path):
    again = bundle(["tiny"], tmp_path / "tiny.zip", only=NAMES)
    with zipfile.ZipFile(archive) as one, zipfile.ZipFile(again) as two:
        assert {i.filename: i.CRC for i in one.infolist()} == {
            i.filename: i.CRC for i in two.infolist()
        }
    assert again.read_bytes() == archive.read_bytes()
    assert data.exists()


@pytest.mark.usefixtures("data")
def test_mistakes_are_told(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("kept")
    with pytest.raises(UsageError, match="empty folder, got full"):
        bundle(["tiny"], tmp_path / "full")
    with pytest.raises(UsageError, match="each once"):
        bundle(["tiny", "tiny"], tmp_path / "new")
    with pytest.raises(UnknownName, match="tiny"):
        bundle(["tiny", "tyni"], tmp_path / "new", only=["ratios"])
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    assert compare_tables(Path("absent.csv"), Path("absent.csv")) == ["absent.csv was not written"]
