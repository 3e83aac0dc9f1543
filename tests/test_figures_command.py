"""Figures: a check that speaks, drawn on every machine, shown with their captions."""

from base64 import b64decode

import pandas as pd
from matplotlib.figure import Figure

from kt_lab import study
from kt_lab.cli import main
from kt_lab.commands import figures
from kt_lab.experiment import LATER
from kt_lab.studies import headline, load_study
from kt_lab.study import Drawing, apart, spot_check

TPE = "softmax/4096x640 tpe lanes=4 seed=1"
PATTERN = "softmax/4096x640 pattern lanes=4 seed=1"


def test_runs_that_another_cpu_may_change_are_kept_apart():
    tuned = "softmax/4096x640 tpe_tuned lanes=16 seed=0"
    late = {TPE: [LATER, "config"], PATTERN: ["config"], tuned: [LATER, "trial"]}
    assert apart(late | {"a random b c": []}) == ([PATTERN], [TPE, tuned])
    assert apart({TPE: ["config"], tuned: ["machine_s"]}) == ([TPE, tuned], [])


def checked(differ, directory, monkeypatch, capsys):
    """Returns the status and the words of the command when stored runs differ so."""
    monkeypatch.setattr(figures, "spot_check", lambda *_, **__: {"a random b c": [], **differ})
    for module in (figures, study):  # 4 lanes are drawn in the same way
        monkeypatch.setattr(module, "LANES", (16,))
    status = main(["figures", "--directory", str(directory), "--check", "2"])
    told = capsys.readouterr().out
    lines = [f"differs from the stored run: {run}: {', '.join(c)}" for run, c in differ.items()]
    assert all(line in told for line in lines)
    return status, told


def test_runs_that_may_differ_are_told_and_no_failure(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "draw_all", lambda *_: {})
    status, told = checked({TPE: [LATER, "config"]}, tmp_path, monkeypatch, capsys)
    assert status == 0
    assert "1 of Optuna's differ, whose later trials hang on the CPU" in told


def test_the_stored_runs_are_drawn_where_one_differs_that_must_not(tmp_path, monkeypatch, capsys):
    status, told = checked({PATTERN: ["config"]}, tmp_path, monkeypatch, capsys)
    assert status == 1
    assert "1 differ that must not" in told
    for name in ("convergence", "landscapes", "ratios_16_lanes", "quality_vs_time_16_lanes"):
        assert (tmp_path / f"{name}.pdf").exists()


def test_a_run_of_the_headline_is_recomputed():
    experiment = headline()
    checked = spot_check(experiment, load_study(experiment), cells=1, seed=3)
    assert len(checked) == 1
    assert apart(checked)[0] == []


def test_a_notebook_shows_a_figure_with_its_caption():
    drawing = Drawing(Figure(figsize=(1, 1)), pd.DataFrame(), "Latency < 1 is better.")
    shown = drawing._repr_mimebundle_(include=None, exclude=None)
    assert "Latency &lt; 1 is better.</figcaption>" in shown["text/html"]
    assert f"base64,{shown['image/png']}" in shown["text/html"]
    assert b64decode(shown["image/png"]).startswith(b"\x89PNG")
