"""Landscapes become files that others read, and come back the same."""

import json

import jsonschema
import kernel_tuner
import numpy as np
import pytest
from constraint import FunctionConstraint
from kernel_tuner.file_utils import output_file_schema, store_output_file

from kt_lab import load_landscape
from kt_lab.cli import main
from kt_lab.errors import LandscapeError, StoreError
from kt_lab.formats import read_cache, read_t4, write_cache, write_t4
from kt_lab.landscape import Landscape
from kt_lab.runners.replay import ReplayRunner
from kt_lab.space import Integer, ParameterSpace
from kt_lab.trial import Proposal
from tests.formats.files import assert_same_readings, hub, write
from tests.runners.tables import make_landscape

FORMATS = [(write_cache, read_cache), (write_t4, read_t4)]
WORKLOAD = "softmax/256x128256"  # 39 of its 1,497 configs fail to launch


@pytest.fixture(scope="module")
def recorded():
    return load_landscape(WORKLOAD)


@pytest.mark.parametrize(("write_it", "read_it"), FORMATS)
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_recorded_landscape_comes_back_sample_by_sample(
    tmp_path, recorded, write_it, read_it, suffix
):
    found = read_it(write_it(recorded, tmp_path / f"out{suffix}"))
    assert_same_readings(recorded, found)
    assert (found.workload, found.gpu) == (recorded.workload, recorded.gpu)
    assert found.space.default == recorded.space.default
    assert found.best == recorded.best
    assert [p.name for p in tmp_path.iterdir()] == [f"out{suffix}"]  # nothing half-written


@pytest.mark.parametrize(("write_it", "read_it"), FORMATS)
def test_every_status_comes_back_with_its_error_and_its_cost(tmp_path, write_it, read_it):
    statuses = ("crashed", "timeout", "censored", "invalid", "launch_error")
    before = make_landscape(contention=None)
    for at, status in zip((10, 11, 12, 13, 14), statuses, strict=True):
        before.table.at[at, "status"] = status
        before.table.at[at, "error"] = f"E: {status}"
        before.table.at[at, "failure_s"] = 0.25
        for name in ("samples_us", "visit"):
            before.table.at[at, name] = []
    after = read_it(write_it(before, tmp_path / "toy.json"))
    assert_same_readings(before, after)
    assert list(before.column("error", missing="")) == list(after.column("error", missing=""))
    failed = before.status != "ok"
    for name in ("compile_s", "failure_s"):
        ours, theirs = (x.column(name).astype(float)[failed] for x in (before, after))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert_same_readings(after, read_it(write_it(after, tmp_path / "again.json")))


@pytest.mark.parametrize("clock", ["cpu", "wall"])
@pytest.mark.parametrize(("write_it", "read_it"), FORMATS)
def test_a_compilation_costs_what_replay_charges_for_it(tmp_path, write_it, read_it, clock):
    before = make_landscape(compile_clock=clock)
    charged = []
    for landscape in (before, read_it(write_it(before, tmp_path / "toy.json"))):
        runner = ReplayRunner(landscape, seed=0)
        runner.submit([Proposal(0, before.best)])
        charged.append(runner.next()[1].compile_s)
    assert charged == pytest.approx([{"cpu": 0.9, "wall": 0.4}[clock]] * 2)


@pytest.mark.parametrize(("write_it", "read_it"), FORMATS)
def test_a_partly_recorded_landscape_comes_back_as_what_was_recorded(tmp_path, write_it, read_it):
    whole = make_landscape()
    kept = whole.table.iloc[1:4].reset_index(drop=True)  # without the default
    part = Landscape(kept, whole.manifest)
    found = read_it(write_it(part, tmp_path / "part.json"))
    assert found.space.size == len(found.table) == 3
    assert found.optimum_us == part.optimum_us


def test_t4_obeys_its_schema_and_tells_failures(tmp_path, recorded):
    _, schema = output_file_schema("results")
    found = json.loads(write_t4(recorded, tmp_path / "T4.json").read_text())
    jsonschema.validate(found, schema)
    assert found["schema_version"] == "1.0.0"
    assert found["metadata"]["timeunit"] == "milliseconds"
    invalid = [r["invalidity"] for r in found["results"]]
    assert (invalid.count("correct"), invalid.count("runtime")) == (1458, 39)
    toy = write_t4(make_landscape(contention=None), tmp_path / "toy.json", metadata={"who": "me"})
    found = json.loads(toy.read_text())
    jsonschema.validate(found, schema)
    by_status = {r["invalidity"]: r for r in found["results"]}
    assert by_status["compile"]["correctness"] == 1
    assert by_status["correctness"]["correctness"] == 0
    assert by_status["correct"]["times"]["compilation"] == pytest.approx(1000.0)
    assert by_status["correct"]["times"]["compilation_time"] == pytest.approx(1000.0)
    assert found["metadata"]["who"] == "me"


def test_kernel_tuner_replays_our_cache_and_finds_our_optimum(tmp_path, recorded):
    path = write_cache(recorded, tmp_path / "softmax.json")
    results, env = kernel_tuner.tune_cache(str(path), quiet=True)
    assert len(results) == 1458  # tune_cache searches what works only
    names = recorded.space.names
    assert {name: env["best_config"][name] for name in names} == dict(recorded.best)
    assert env["best_config"]["time"] == pytest.approx(recorded.optimum_us / 1e3)
    assert read_cache(path).best == recorded.best  # replaying left the file whole


def test_kernel_tuner_meets_our_failures_and_its_own_results_come_back(tmp_path, recorded):
    path = write_cache(recorded, tmp_path / "softmax.json")
    data = json.loads(path.read_text())
    members = {tuple(r[n] for n in data["tune_params_keys"]) for r in data["cache"].values()}
    results, env = kernel_tuner.tune_kernel(
        data["kernel_name"],
        "",
        data["problem_size"],
        [],
        data["tune_params"],
        restrictions=[FunctionConstraint(lambda *values: values in members)],
        cache=str(path),
        simulation_mode=True,
        strategy="random_sample",
        strategy_options={"fraction": 1.0},
        quiet=True,
    )
    assert len(results) == 1497
    assert sum("__error__" in r for r in results) == 39
    assert {n: env["best_config"][n] for n in recorded.space.names} == dict(recorded.best)
    out = tmp_path / "T4.json"
    store_output_file(str(out), results, data["tune_params"])
    found = read_t4(out, kernel="softmax", gpu="NVIDIA H200")
    assert found.best == recorded.best
    assert (found.status == "launch_error").sum() == 39


@pytest.mark.parametrize("names", [("time", "x"), ("compile_time", "x")])
def test_a_parameter_with_a_fields_name_is_refused(tmp_path, names):
    space = ParameterSpace([Integer(n, 0, 1) for n in names], default=dict.fromkeys(names, 0))
    row = make_landscape().table.iloc[[0]].assign(**{f"p_{n}": 0 for n in names})
    manifest = {"space": space.describe(), "fingerprint": space.fingerprint}
    landscape = Landscape(row, make_landscape().manifest | manifest)
    with pytest.raises(LandscapeError, match="field's name"):
        write_cache(landscape, tmp_path / "x.json")
    assert not list(tmp_path.iterdir())


def test_an_export_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_cache(make_landscape(), tmp_path / "toy.json")
    before = path.read_bytes()

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(StoreError, match="no space left"):
        write_cache(make_landscape(), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["toy.json"]


@pytest.mark.parametrize("kind", ["cache", "t4"])
def test_the_command_converts_both_ways(tmp_path, capsys, kind):
    out, back = tmp_path / "out.json.gz", tmp_path / "lands" / "256x128256"
    assert main(["convert", WORKLOAD, str(out), "--format", kind]) == 0
    assert "1,497 configs, 39 failed" in capsys.readouterr().out
    assert main(["convert", str(out), str(back), "--format", kind]) == 0
    assert_same_readings(load_landscape(WORKLOAD), Landscape.load(back))
    again = tmp_path / "again.json.gz"
    assert main(["convert", f"{back}.parquet", str(again), "--format", kind]) == 0
    assert_same_readings(Landscape.load(back), (read_t4 if kind == "t4" else read_cache)(again))


def test_the_command_takes_conditions_and_names(tmp_path, capsys):
    source = write(tmp_path / "a.json", hub())
    condition = {"Expression": "block_size_x * block_size_y <= 128"}
    t1 = write(tmp_path / "T1.json", {"ConfigurationSpace": {"Conditions": [condition]}})
    argv = ["convert", str(source), str(tmp_path / "out"), "--format", "cache"]
    extra = ["--conditions", str(t1), "--kernel", "conv", "--gpu", "a100", "--objective", "time"]
    assert main([*argv, *extra]) == 0
    found = Landscape.load(tmp_path / "out")
    assert (found.workload, found.gpu) == ("conv/4096x4096", "a100")
    assert len(found.space.constraints) == 1
    assert main(["convert", str(t1), str(tmp_path / "no"), "--format", "t4"]) == 2
    assert "invalidity" not in (said := capsys.readouterr().err)
    assert "a list of results" in said
    assert not (tmp_path / "no.parquet").exists()


def test_a_conversion_replaces_nobodys_file(tmp_path, capsys):
    source = write(tmp_path / "kt.json", hub())
    before = source.read_bytes()
    assert main(["convert", str(source), str(tmp_path / "kt.parquet"), "--format", "cache"]) == 2
    assert "would write over kt.json" in capsys.readouterr().err
    assert source.read_bytes() == before
    assert main(["convert", str(source), str(tmp_path / "land"), "--format", "cache"]) == 0
    land = tmp_path / "land.parquet"
    assert main(["convert", str(land), str(tmp_path / "land.json"), "--format", "cache"]) == 2
    assert "the manifest of land.parquet" in capsys.readouterr().err
    Landscape.load(land)
    assert main(["convert", str(source), str(land), "--format", "cache"]) == 0, "its own it may"


def test_an_import_replaces_no_landscape_of_another_workload(tmp_path, capsys):
    source = write(tmp_path / "kt.json", hub())
    target = ["convert", str(source), str(tmp_path / "land.parquet"), "--format", "cache"]
    assert main([*target, "--workload", "4096x1"]) == 0
    before = (tmp_path / "land.parquet").read_bytes()
    assert main([*target, "--workload", "4096x2"]) == 2
    assert "got convolution_kernel/4096x2 on" in (said := capsys.readouterr().err)
    assert "which holds convolution_kernel/4096x1" in said
    assert (tmp_path / "land.parquet").read_bytes() == before
    assert main([*target, "--workload", "4096x1"]) == 0, "its own it may"


def test_nor_does_saving_or_writing_from_python(tmp_path):
    source = write(tmp_path / "kt.json", hub())
    before = source.read_bytes()
    found = read_cache(source)
    with pytest.raises(LandscapeError, match=r"would write over kt\.json, .* another name"):
        found.save(tmp_path / "kt")
    assert (source.read_bytes(), list(tmp_path.glob("*.parquet"))) == (before, [])
    (tmp_path / "kt.parquet").write_bytes(b"of another one")  # which makes it no manifest
    with pytest.raises(LandscapeError, match=r"would write over kt\.json"):
        found.save(tmp_path / "kt")
    assert source.read_bytes() == before
    path = found.save(tmp_path / "mine")
    for write_it in (write_cache, write_t4):
        with pytest.raises(LandscapeError, match=r"than a landscape's manifest, got 'mine\.json'"):
            write_it(found, tmp_path / "mine.json")
    Landscape.load(path)
    found.save(path)  # its own it may


def test_samples_keep_the_protocol_that_they_were_taken_by(recorded, tmp_path):
    back = read_cache(write_cache(recorded, tmp_path / "a.json"))
    assert back.manifest["protocol"] == recorded.manifest["protocol"]


def test_a_dot_in_a_name_is_part_of_it(tmp_path):
    source = write(tmp_path / "sm.json", hub())
    for name in ("sm.v1.1", "sm.v1.2"):
        assert main(["convert", str(source), str(tmp_path / name), "--format", "cache"]) == 0
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"sm.json", *(f"sm.v1.{n}.{s}" for n in (1, 2) for s in ("json", "parquet"))}


def test_a_packed_files_name_makes_a_landscapes(tmp_path):
    source = write(tmp_path / "k.json", hub())
    assert main(["convert", str(source), str(tmp_path / "a.json.gz"), "--format", "cache"]) == 0
    assert Landscape.load(tmp_path / "a.parquet").table.shape[0]
    assert not list(tmp_path.glob("a*gz*"))


def test_a_conversion_keeps_its_source_and_what_is_no_manifest(tmp_path, capsys):
    source, table = write(tmp_path / "k.json", hub()), tmp_path / "k.parquet"
    before = source.read_bytes()
    table.write_bytes(b"of another one")
    assert main(["convert", str(source), str(table), "--format", "cache"]) == 2
    assert "would write over k.json, its own source" in capsys.readouterr().err
    assert (source.read_bytes(), table.read_bytes()) == (before, b"of another one")
    other = write(tmp_path / "other.json", hub())
    assert main(["convert", str(other), str(table), "--format", "cache"]) == 2
    assert "would write over k.json, which is no landscape's" in capsys.readouterr().err
    assert source.read_bytes() == before
    assert main(["convert", str(source), str(tmp_path / "land"), "--format", "cache"]) == 0
    land = tmp_path / "land.parquet"
    assert main(["convert", str(land), str(land), "--format", "cache"]) == 2
    assert "would write over landscape land.parquet" in capsys.readouterr().err
    Landscape.load(land)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["out.json", "--kernel", "foo", "--conditions", "nope"], "--kernel and --conditions"),
        (["out.json", "--objective", "time"], "--objective; leave it out"),
        (["out.parquet"], "name it out.json"),
    ],
)
def test_an_export_refuses_what_it_would_not_heed(tmp_path, monkeypatch, capsys, more, said):
    monkeypatch.chdir(tmp_path)
    assert main(["convert", WORKLOAD, *more, "--format", "cache"]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_gpu_of_a_landscapes_file_is_its_own(tmp_path, capsys):
    path = load_landscape(WORKLOAD).save(tmp_path / "own")
    argv = ["convert", str(path), str(tmp_path / "out.json"), "--format", "cache", "--gpu", "h100"]
    assert main(argv) == 2
    assert "--gpu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [("a.json", "convert it first: kt-lab convert a.json NAME --format cache"), ("a.csv", "JSON")],
)
def test_a_comparison_of_a_file_that_is_no_landscape_says_how_to_convert_it(
    tmp_path, monkeypatch, capsys, name, said
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / name, hub())
    assert main(["compare", "--workloads", name]) == 2
    assert said in capsys.readouterr().err


def test_a_conversion_of_csv_says_what_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.csv", "a,b\n1,2\n")
    assert main(["convert", "a.csv", "b.json", "--format", "cache"]) == 2
    assert "CSV and other forms are not read" in capsys.readouterr().err
