import hashlib
import json

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.errors import LandscapeError
from kt_lab.experiment import Experiment
from kt_lab.landscape import Landscape, landscapes, load_landscape
from tests.runners.tables import make_landscape


def test_a_landscape_survives_the_disk_sample_by_sample(tmp_path):
    before = make_landscape()
    path = before.save(tmp_path / "toy")
    after = Landscape.load(path)
    np.testing.assert_array_equal(before.status, after.status)
    np.testing.assert_allclose(before.latency_us, after.latency_us, rtol=1e-6)
    for visit in range(2):
        for ours, theirs in zip(before.samples[visit], after.samples[visit], strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert after.best == before.best
    assert after.space.fingerprint == before.space.fingerprint


def test_failures_are_null_and_the_optimum_ignores_them():
    landscape = make_landscape()
    assert np.isnan(landscape.latency_us[[3, 5]]).all()
    assert landscape.optimum_us == pytest.approx(landscape.latency_us[0])
    assert landscape.visits == 2


def test_the_same_landscape_gives_the_same_bytes(tmp_path):
    one = make_landscape().save(tmp_path / "one").read_bytes()
    two = make_landscape().save(tmp_path / "two").read_bytes()
    assert one == two


def _truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def _replace_by_text(path):
    path.write_text("latency\n1\n")


def _vouch_for_text(path):
    _replace_by_text(path)
    _edit_manifest(path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def _edit_manifest(path, **changes):
    manifest = path.with_suffix(".json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))


@pytest.mark.parametrize(
    ("damage", "law"),
    [
        (_truncate, "sha256"),
        (_replace_by_text, "sha256"),
        (_vouch_for_text, "Parquet file"),
        (lambda p: p.unlink(), "Parquet file"),
        (lambda p: p.with_suffix(".json").unlink(), "manifest"),
        (lambda p: p.with_suffix(".json").write_text("[]"), "a list at the top"),
        (lambda p: _edit_manifest(p, schema=99), "schema 2, got 99"),
        (lambda p: _edit_manifest(p, fingerprint="0" * 16), "fingerprint must match"),
        (lambda p: _edit_manifest(p, sha256="0" * 64), "sha256"),
    ],
)
def test_a_damaged_landscape_is_refused_with_its_law(tmp_path, damage, law):
    path = make_landscape().save(tmp_path / "toy")
    damage(path)
    with pytest.raises(LandscapeError, match=law):
        Landscape.load(path)


def test_what_save_returns_is_what_others_take(tmp_path):
    path = make_landscape().save(tmp_path / "mine")
    assert load_landscape(path).table.equals(load_landscape(str(path)).table)
    study = Experiment("mine", [path], ["random"], seeds=1, budget=Budget(trials=2), lanes=(2,))
    assert study.workloads == [str(path)]
    assert set(study.run()["workload"]) == {load_landscape(path).workload}


def test_a_dot_in_a_name_is_part_of_it(tmp_path):
    paths = [make_landscape().save(tmp_path / f"run-1.{n}") for n in (1, 2)]
    assert [path.name for path in paths] == ["run-1.1.parquet", "run-1.2.parquet"]
    assert sorted(p.name for p in tmp_path.iterdir())[::2] == ["run-1.1.json", "run-1.2.json"]
    for name in ("run-1.1", "run-1.1.parquet", "run-1.1.json"):
        assert Landscape.load(tmp_path / name).workload == "toy/16"


@pytest.mark.parametrize("foreign", ["[1, 2]", "no JSON", '{"kernel": "notes"}'])
def test_a_foreign_file_among_the_landscapes_hides_none_of_them(tmp_path, foreign):
    path = make_landscape().save(tmp_path / "toy" / "test" / "16")
    (path.parent / "notes.json").write_text(foreign)
    assert [entry.path for entry in landscapes(tmp_path)] == [path]


def test_a_landscape_that_lost_its_table_is_listed_so_that_loading_it_says_so(tmp_path):
    path = make_landscape().save(tmp_path / "toy" / "test" / "16")
    path.unlink()
    (entry,) = landscapes(tmp_path)
    with pytest.raises(LandscapeError, match=r"got 16\.parquet: FileNotFoundError"):
        Landscape.load(entry.path)


@pytest.mark.parametrize(
    ("workload", "gpu", "said"),
    [
        ("softmax/4096x641", None, "'softmax/4096x641' must .* did you mean 'softmax/4096x640'"),
        ("softmax/4096x640", "h1000", "on gpu 'h1000' must .*; name one with gpu=: h200"),
    ],
)
def test_a_landscape_that_is_absent_is_told_with_the_nearest(workload, gpu, said):
    with pytest.raises(LandscapeError, match=said) as told:
        load_landscape(workload, gpu=gpu)
    assert "kt-lab list landscapes" in str(told.value)
    assert "None" not in str(told.value)
    assert len(str(told.value)) < 300
