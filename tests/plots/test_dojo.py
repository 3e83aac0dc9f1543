"""Figures of the dojo: what they draw, and what their captions count."""

import re

import pytest
from matplotlib import pyplot

from kt_lab.evidence.dojo_figures import (
    comparison_figure,
    comparison_table,
    players_figure,
    stored,
)
from tests.dojo_rows import dojo_row, players_row


@pytest.fixture
def comparison():
    rows = [dojo_row("softmax", best=1.0, eager=2.0, threads=threads) for threads in (1, 2)]
    rows += [dojo_row("multiply", best=2.0, eager=1.0), dojo_row("bias_gelu", best=1.0, eager=4.0)]
    rows[-1]["chain"] = True
    return {"rows": rows}


def test_programs_stand_beside_their_references_chains_below(comparison):
    drawing = comparison_figure(comparison)
    one, two = drawing.figure.axes
    assert [label.get_text() for label in one.get_yticklabels()] == [
        "softmax/1",
        "multiply/1",
        "bias_gelu/1",
    ]
    assert (one.get_title(), two.get_title()) == ("1 thread", "2 threads")
    told = r"on 1 thread PyTorch eager 0\.63 \[0\.25, 2\.00\] \(1 of 3 lost\) and torch"
    assert re.search(told, drawing.caption)
    assert "on 2 threads PyTorch eager 0.50 [0.50, 0.50] (0 of 1 lost)" in drawing.caption
    assert set(drawing.points["ratios"]["path"]) == {"best"}
    assert drawing.points["means"]["losses"].sum() == 1
    pyplot.close(drawing.figure)


def test_tvm_is_a_reference_where_it_is_asked_for_and_floors_are_told_of_where_they_stand(
    comparison,
):
    path = comparison["rows"][0]["paths"]["best"]
    comparison["rows"][0]["paths"]["tvm_tuned"] = path | {"min_us": 0.5}
    drawing = comparison_figure(comparison, references=("eager", "tvm_tuned"))
    assert "TVM, tuned 2.00 [2.00, 2.00] (1 of 1 lost)" in drawing.caption
    assert "MetaSchedule" in drawing.caption
    assert "The floor is" not in drawing.caption
    assert "MetaSchedule" not in comparison_figure(comparison).caption
    pyplot.close("all")


def test_the_table_has_a_column_for_each_path_that_was_timed(comparison):
    table = comparison_table(comparison)
    assert table["best_over_eager"].tolist() == [0.5, 0.5, 2.0, 0.25]
    assert "autotuned" not in table.columns
    assert table["share_of_floor"].eq(0.5).all()


def test_players_are_drawn_over_programs_and_the_caption_ranks_them(tmp_path):
    rows = [players_row("random", seed, [None, 8.0, 6.0, 4.0]) for seed in (0, 1)]
    rows += [players_row("annealing", seed, [8.0, 4.0, 2.0, 2.0]) for seed in (0, 1)]
    rows += [players_row("expert", 0, [3.0]), players_row("random", 0, [5.0], workload="b/1")]
    drawing = players_figure({"rows": rows})
    first, second = drawing.figure.axes
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == ("softmax/1", "b/1")
    assert "Annealing 1.00 (on 1 of 2), Expert pass 1.50 (on 1 of 2)" in drawing.caption
    assert "share one reading of each program" in drawing.caption
    assert "left out" not in drawing.caption
    apart = [rows[0] | {"start_us": 2 * rows[0]["start_us"], "points": [(1, 400.0)]}, *rows[1:]]
    told = players_figure({"rows": apart, "provenance": {"cpu": "A CPU", "cores": 2}}).caption
    assert "read up to 2.00 times as slow by one player as by another" in told
    assert "What lies above 30 is left out." in told
    assert told.endswith(" A CPU, 2 cores.")
    one_runner = [{k: v for k, v in row.items() if k != "start_us"} for row in rows]
    assert "share one reading of each program" in players_figure({"rows": one_runner}).caption
    pyplot.close("all")
    paths = drawing.save("players", directory=tmp_path)
    assert all(path.stat().st_size > 100 for path in paths.values())
    pyplot.close(drawing.figure)


def test_the_lowest_panel_of_each_column_has_labels():
    rows = [players_row("random", 0, [8.0, 4.0], workload=f"{name}/1") for name in "abc"]
    drawing = players_figure({"rows": rows})
    drawing.figure.canvas.draw()
    labelled = [
        any(text.get_visible() and text.get_text() for text in ax.get_xticklabels())
        for ax in drawing.figure.axes
        if ax.get_visible()
    ]
    assert labelled == [False, True, True]
    pyplot.close(drawing.figure)


def test_what_was_not_measured_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    assert stored("dojo") is None
