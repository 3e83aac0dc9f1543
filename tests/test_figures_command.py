"""Figures: a check that speaks, drawn on every machine, shown with their captions."""

from base64 import b64decode

import pandas as pd
import pytest
from matplotlib.figure import Figure

from kt_lab.cli import main
from kt_lab.commands import figures
from kt_lab.experiment import LATER
from kt_lab.studies import headline, load_study
from kt_lab.study import Drawing, apart, spot_check

TPE = "softmax/4096x640 tpe lanes=4 seed=1"
PATTERN = "softmax/4096x640 pattern lanes=4 seed=1"


def test_runs_that_another_cpu_may_change_are_kept_apart():
    tuned = "softmax/4096x640 tpe_tuned lanes=16 seed=0"
    late = {TPE: [LATER, "config"], PATTERN: [LATER, "config"], tuned: [LATER, "trial"]}
    assert apart(late | {"a random b c": []}) == ([PATTERN], [TPE, tuned])
    assert apart({TPE: ["config"], tuned: ["machine_s"]}) == ([TPE, tuned], [])


@pytest.mark.parametrize(
    ("differ", "status", "said"),
    [
        ({TPE: [LATER, "config"]}, 0, "1 of Optuna's differ, whose later trials hang on the CPU"),
        ({PATTERN: ["config"]}, 1, "1 differ that must not"),
    ],
)
def test_the_stored_runs_are_drawn_whatever_differs(
    differ, status, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(figures, "spot_check", lambda *_, **__: {"a random b c": [], **differ})
    assert main(["figures", "--directory", str(tmp_path), "--check", "2"]) == status
    told = capsys.readouterr().out
    assert said in told
    lines = [f"differs from the stored run: {run}: {', '.join(c)}" for run, c in differ.items()]
    assert all(line in told for line in lines)
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
