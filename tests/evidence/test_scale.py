"""What a large table takes is measured on one like those that are stored."""

import pytest

from kt_lab import cli
from kt_lab.evidence import scale
from kt_lab.evidence.scale import made_up
from kt_lab.experiment import load_runs
from kt_lab.stats import incumbent_curves
from kt_lab.studies import headline, load_study


def test_the_made_up_table_is_like_a_stored_one(tmp_path):
    count = made_up(20_000, tmp_path / "t.parquet")
    runs = load_runs(tmp_path / "t.parquet")
    assert len(runs) == count
    assert count == 18_000  # whole runs, as many of every searcher and workload
    real = load_study(headline())
    assert dict(runs.dtypes.astype(str)) == dict(real.dtypes.astype(str))
    again = ~runs["first"]
    assert 0.05 < again.mean() < 0.5
    assert runs.loc[runs["status"] != "ok", "latency_us"].isna().all()
    assert incumbent_curves(runs)["judged_us"].notna().mean() > 0.9


def test_steps_are_measured_one_by_one(tmp_path, monkeypatch):
    made_up(20_000, tmp_path / "t.parquet")
    monkeypatch.setattr(scale, "budget_table", lambda *_, **__: None)
    found = scale._steps(tmp_path / "t.parquet")
    assert found["trials"] == len(load_runs(tmp_path / "t.parquet"))
    assert min(found.values()) >= 0
    assert found["imported_mib"] <= found["summary_mib"] <= found["peak_mib"]
    assert found["summary_s"] == found["load_s"] + found["curves_s"] + found["ratios_s"]


def test_the_benchmark_prints_seconds_memory_and_ratios(capsys, monkeypatch):
    monkeypatch.setattr(scale, "made_up", lambda trials, path: path.write_text(str(trials)))
    names = ("load_s", "curves_s", "ratios_s", "summary_s", "compare_s")
    names = (*names, "imported_mib", "summary_mib", "peak_mib", "trials")
    known = lambda path: dict.fromkeys(names, int(path.read_text()))  # noqa: E731
    monkeypatch.setattr(scale, "measured", known)
    assert cli.main(["benchmark", "scale", "--trials", "200000"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split() == ["20,000", "200,000", "trials", "ratio"]
    assert len(rows) == 9
    assert all(row.split()[-3:] == ["20000.00", "200000.00", "10.0"] for row in rows[1:])


@pytest.mark.parametrize(
    ("words", "said"), [([], "got trials=0"), (["scale"], "at least 180,000 trials, got 0")]
)
def test_no_trials_are_refused_not_taken_for_the_default(words, said, capsys):
    assert cli.main(["benchmark", *words, "--trials", "0"]) == 2
    assert said in capsys.readouterr().err
