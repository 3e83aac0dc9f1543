"""The compare panel: what its controls do, what it shows and exports, and how often it draws."""

import asyncio
import io
import json

import ipywidgets as w
import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from kt_lab import experiment as experiment_module
from kt_lab import stats
from kt_lab.comparison import compare, incumbent_figure, optima_table, target_figure, target_tables
from kt_lab.errors import UnknownName, UsageError
from kt_lab.plots import VENUES, read_points
from kt_lab.stats.intervals import RESAMPLES
from kt_lab.ui import ComparePanel, compare_choice
from kt_lab.ui.background import alive
from kt_lab.ui.compare_view import compare_status
from kt_lab.ui.compared import Compared, Shown
from kt_lab.ui.comparing import CompareSnapshot
from tests.ui.gated import LONG_S

WORKLOAD = "softmax/4096x640"
NAMES = ["random", "pattern"]


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    for each in alive():
        each.close(timeout=0)
    assert all(each.ended.wait(LONG_S) for each in alive())


@pytest.fixture(scope="module")
def runs():
    return compare(NAMES, [WORKLOAD], seeds=6, trials=30)


def panel_of(tmp_path, **settings):
    how = {"seeds": 2, "trials": 10, "workers": 0} | settings
    return ComparePanel(NAMES, [WORKLOAD], directory=tmp_path / "runs", **how)


def picture(image):
    return matplotlib.image.imread(io.BytesIO(image.value))


def enabled(panel):
    return {name for name, button in panel.view.buttons.items() if not button.disabled}


# -- a whole comparison ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    panel = panel_of(tmp_path_factory.mktemp("panel"), trials=40)
    assert enabled(panel) == {"start"}
    panel.start()
    assert panel.wait(LONG_S).state == "done"
    return panel


def test_a_comparison_runs_without_a_browser_and_shows_both_figures(done):
    assert done.view.status.value.startswith("done: 4 runs in ")
    assert (done.view.progress.value, done.view.progress.max) == (4, 4)
    assert enabled(done) == {"start", "export"}
    assert done.view.reference.options == ("pattern", "random")
    assert done.view.reference.value == "pattern"
    assert done.view.shown.value == WORKLOAD
    assert done.compared._made["tables"][0] == (16, "pattern", RESAMPLES), "drawn finely at last"
    for image in done.view.images.values():
        assert image.layout.display == ""
        assert picture(image).shape[1] == int(6.75 * 130)
        assert len(np.unique(picture(image).reshape(-1, 4), axis=0)) > 10


@pytest.mark.parametrize(("venue", "width"), [("icml", "column"), ("neurips", "text")])
def test_figures_are_exported_at_the_venues_size(done, tmp_path, venue, width):
    done.view.venue.value = venue
    assert done.view.width.options == VENUES[venue].widths
    done.view.width.value = width
    paths = done.export("mine", tmp_path)
    assert {path.name for kinds in paths.values() for path in kinds.values()} == {
        f"mine_{figure}.{kind}"
        for figure in ("incumbents", "ratios")
        for kind in ("pdf", "png", "csv", "json")
    }
    for kinds in paths.values():
        told = json.loads(kinds["json"].read_text())
        assert told["inches"][0] == pytest.approx(VENUES[venue].inches(width))
        assert told["provenance"]["panel"]["searchers"] == NAMES
        assert told["provenance"]["panel"]["shown"]["within"] == 0.05
    assert set(read_points(paths["ratios"]["csv"])) == {"latency", "wall_clock", "target_time"}
    assert str(tmp_path) in done.view.status.value
    assert "mine_ratios.pdf" in done.view.paths.value


def test_each_control_of_the_view_changes_a_picture(done):
    changes = {
        "x": ("elapsed_s", "incumbents"),
        "band": ("none", "incumbents"),
        "target": (20.0, "ratios"),
        "reference": ("random", "ratios"),
    }
    for control, (value, image) in changes.items():
        before = done.view.images[image].value
        getattr(done.view, control).value = value
        assert done.view.images[image].value != before, control
    assert "errors: none" in done.view.drawer.titles


def test_stored_runs_are_shown_without_running(tmp_path, monkeypatch):
    compare(NAMES, [WORKLOAD], seeds=1, trials=6, directory=tmp_path)
    (path,) = tmp_path.glob("*.parquet")
    monkeypatch.setattr(compare_choice, "stored_runs", lambda: {"mine": path})
    monkeypatch.setattr(experiment_module, "run_cell", lambda _: 1 / 0)
    panel = panel_of(tmp_path, source="mine")
    assert panel.choice._asked.layout.display == "none"
    panel.start()
    assert panel.wait(LONG_S).done == 2
    assert panel.view.images["ratios"].value
    assert "2 of them stored before" in panel.view.status.value
    monkeypatch.setattr(compare_choice, "stored_runs", dict)  # somebody deleted them
    panel.start()
    with pytest.raises(UnknownName, match="stored comparison must be one of"):
        panel.wait(LONG_S)


# -- what is refused ------------------------------------------------------------------------------


def test_what_is_refused_is_told_in_the_panel(tmp_path):
    panel = panel_of(tmp_path)
    for verb in ("stop", "wait", "export"):
        with pytest.raises(UsageError, match="start"):
            getattr(panel, verb)()
    panel.choice.searchers.value = ()
    panel.view.buttons["start"].click()
    assert panel.view.status.value.startswith("refused: a comparison needs searchers")
    assert "UsageError" in panel.view.errors.outputs[-1]["text"]
    for wrong in ({"searchers": ["patern"]}, {"workloads": ["softmax/1x1"]}, {"source": "none"}):
        with pytest.raises(UnknownName):
            panel.choose(**wrong)
    for name in ("searchers", "workloads"):
        with pytest.raises(UsageError, match=f"{name} must be a list of names, got 'random'"):
            panel.choose(**{name: "random"})


def test_a_comparison_that_fails_is_told_in_the_panel(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment_module, "run_cell", lambda _: 1 / 0)
    panel = panel_of(tmp_path)
    panel.start()
    with pytest.raises(ZeroDivisionError):
        panel.wait(LONG_S)
    assert panel.view.status.value.startswith("failed: 0 of 4 runs")
    assert "ZeroDivisionError" in panel.view.drawer.titles[0]
    assert len(panel.view.errors.outputs) == 1
    assert enabled(panel) == {"start"}


def test_runs_that_measured_nothing_do_not_leave_the_figures_of_others(tmp_path):
    panel = panel_of(tmp_path)
    panel.start()
    panel.wait(LONG_S)
    assert enabled(panel) == {"start", "export"}
    panel.choose(seconds=0.001, seeds=1)
    panel.start()
    assert panel.wait(LONG_S).done == 2
    assert panel.view.status.value.startswith("done: 2 runs in ")
    assert "no run measured anything: give them more seconds" in panel.view.status.value
    assert {image.layout.display for image in panel.view.images.values()} == {"none"}
    assert enabled(panel) == {"start"}
    with pytest.raises(UsageError, match="got none"):
        panel.export()


def test_an_export_tells_of_the_runs_that_it_shows_not_of_what_was_chosen_since(tmp_path):
    panel = panel_of(tmp_path)
    panel.start()
    panel.wait(LONG_S)
    panel.choose(searchers=["random"], seeds=17)
    paths = panel.export("kept", tmp_path)
    told = json.loads(paths["incumbents"]["json"].read_text())["provenance"]["panel"]
    assert (told["searchers"], told["seeds"]) == (list(NAMES), 2)


def test_running_a_cell_again_stops_the_comparison_of_the_panel_before(tmp_path):
    first = panel_of(tmp_path, seeds=200)
    first.start()
    second = panel_of(tmp_path)
    assert first.session.wait(LONG_S).state == "stopped"
    second.start()
    assert second.wait(LONG_S).state == "done"


# -- rendering ------------------------------------------------------------------------------------


def test_in_an_event_loop_the_panel_renders_itself_and_a_drag_draws_its_last_value(tmp_path):
    async def notebook():
        panel = panel_of(tmp_path)
        panel.start()
        await asyncio.wait_for(panel._pump_task, LONG_S)
        drawn, show = [], panel.show
        panel.show = lambda: (drawn.append(panel.view.target.value), show())
        for value in (6.0, 7.0, 8.0, 9.0, 10.0):
            panel.view.target.value = value
        while drawn[-1] != 10.0:
            await asyncio.sleep(0.02)
        return panel, drawn

    panel, drawn = asyncio.run(asyncio.wait_for(notebook(), LONG_S))
    assert panel.view.status.value.startswith("done: 4 runs")
    assert drawn == [6.0, 10.0]


def test_a_new_target_computes_nothing_else_again(runs, monkeypatch):
    compared = Compared(runs, optima_table(runs))
    first = compared.drawings(Shown(16, within=0.05))
    for name in ("latency_ratios", "wall_clock_ratios", "convergence_bands"):
        monkeypatch.setattr(stats, name, lambda *_, **__: 1 / 0)
    second = compared.drawings(Shown(16, within=0.2))
    assert second["ratios"].points["latency"] is first["ratios"].points["latency"]
    within = second["ratios"].points["target_time"]["within"]
    assert set(within) == {0.2}
    with pytest.raises(ZeroDivisionError):
        compared.drawings(Shown(16, within=0.2, reference="random"))


def test_the_panel_and_the_functions_give_the_same_points(runs):
    shown = Shown(16, x="elapsed_s", within=0.1)
    drawn = Compared(runs, optima_table(runs)).drawings(shown, resamples=200)
    tables = target_tables(runs, within=0.1, x="elapsed_s", resamples=200)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(drawn["ratios"].points[name], table)
    alone = incumbent_figure(runs, x="elapsed_s", within=0.1)
    pd.testing.assert_frame_equal(drawn["incumbents"].points, alone.points)
    assert alone.caption == drawn["incumbents"].caption


def test_time_to_target_is_exact_where_every_run_starts_at_the_target(runs):
    """Within 10,000 % of the optimum everything reaches it at once: trials 1 over 1."""
    how = {"x": "spent_trials", "resamples": 200}
    table = target_tables(runs, within=100.0, **how)["target_time"]
    assert set(table["estimate"]) == set(table["low"]) == set(table["high"]) == {1.0}
    assert (table["n_success"] == table["n_runs"]).all()
    never = target_tables(runs, within=-0.9, **how)["target_time"]
    own = never[never["searcher"] == "random"]
    assert (own["n_success"] == 0).all()
    drawing = target_figure(runs, tables=target_tables(runs, within=-0.9, **how))
    assert drawing.figure.axes[2].get_xlabel() == "Pattern never reaches it"
    assert "Pattern never reaches it, so nothing is divided by it" in drawing.caption
    assert "infinite" not in drawing.caption
    tables = target_tables(runs, within=100.0, **how)
    assert "fewer" not in target_figure(runs, tables=tables).caption
    mean = (tables["latency"]["scope"] == "geomean") & (tables["latency"]["searcher"] == "random")
    tables["latency"].loc[mean, "n_workloads"] -= 1  # as where it ran on fewer of them
    assert (
        "fewer workloads than others': Random over" in target_figure(runs, tables=tables).caption
    )


# -- bands ----------------------------------------------------------------------------------------


def test_bands_are_quartiles_an_exact_interval_or_nothing(runs):
    curves = stats.incumbent_curves(runs)
    bands = {b: stats.convergence_bands(curves, band=b) for b in ("iqr", "interval", "none")}
    for name in ("interval", "none"):
        assert (bands[name]["median"].fillna(0) == bands["iqr"]["median"].fillna(0)).all()
    none, wide = bands["none"].dropna(), bands["interval"].dropna()
    assert (none["low"] == none["median"]).all()
    quartiles = bands["iqr"].loc[wide.index]
    # Of six seeds, minimum and maximum hold the median with 97%: they hold the quartiles too.
    assert (wide["low"] <= quartiles["low"]).all()
    assert (wide["high"] >= quartiles["high"]).all()
    few = stats.convergence_bands(curves[curves["seed"] < 5], band="interval")
    assert few[["low", "high"]].isna().all(axis=None), "five seeds give no 95% interval"
    with pytest.raises(UnknownName, match="band"):
        stats.convergence_bands(curves, band="sd")


def test_an_interval_that_few_seeds_cannot_give_is_not_promised(runs):
    for seeds, said in ((5, "95% interval (from 6 seeds)"), (6, "95% interval")):
        figure = incumbent_figure(runs[runs["seed"] < seeds], band="interval").figure
        assert said in [text.get_text() for text in figure.legends[0].get_texts()]


# -- the controls ---------------------------------------------------------------------------------


def controls(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from controls(child)


def test_every_control_is_told_and_can_be_found(done):
    found = list(controls(done.box))
    inputs = [x for x in found if isinstance(x, w.ValueWidget | w.Button)]
    inputs = [x for x in inputs if not isinstance(x, w.HTML | w.Label | w.Image)]
    assert len(inputs) > 20
    for each in inputs:
        assert each.tooltip, each
    classes = {name for each in found for name in getattr(each, "_dom_classes", ())}
    hooks = "compare source searchers workloads gpu start stop export status progress image ratios"
    hooks += " x band target reference shown lanes venue width figure-name folder paths drawer"
    assert {f"ktl-{hook}" for hook in hooks.split()} <= classes
    assert "application/vnd.jupyter.widget-view+json" in done._repr_mimebundle_()


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        (CompareSnapshot(), "idle"),
        (CompareSnapshot("running"), "running: starting up"),
        (
            CompareSnapshot("running", done=3, total=9, elapsed_s=6.04, eta_s=12.4),
            "running: 3 of 9 runs in 6.0 s; about 12 s left",
        ),
        (
            CompareSnapshot("running", stopping=True, done=3, total=9, elapsed_s=6.0),
            "stopping after the runs under way: 3 of 9 runs in 6.0 s",
        ),
        (
            CompareSnapshot("done", done=9, total=9, resumed=9, elapsed_s=1.0),
            "done: 9 runs in 1.0 s, 9 of them stored before",
        ),
        (
            CompareSnapshot("failed", total=9, elapsed_s=1.0, error="E: no"),
            "failed: 0 of 9 runs in 1.0 s; E: no",
        ),
    ],
)
def test_the_status_line_says_how_far_it_is(snapshot, said):
    assert compare_status(snapshot) == said


def test_another_gpu_keeps_what_it_has_of_the_choice(tmp_path):
    panel = ComparePanel(["random"], gpu="h100", directory=tmp_path)
    assert len(panel.choice.workloads.value) == 16
    panel.choose(workloads=["softmax/4096x640"])
    panel.choose(gpu="h200")
    assert panel.choice.workloads.value == ("softmax/4096x640",)
    panel.choose(workloads=["tokens_transpose/16640x5120"])
    panel.choose(gpu="h100")
    assert panel.choice.workloads.value, "there is always something to compare"


@pytest.mark.parametrize("within", [0.05, 0.2])
def test_a_target_above_all_curves_has_ticks_as_far_as_the_axis_goes(within):
    few = compare(["random", "pattern"], ["tokens_transpose/16640x1408"], seeds=3, trials=60)
    axis = incumbent_figure(few, within=within).figure.axes[0].yaxis
    low, high = axis.get_view_interval()
    shown = [tick for tick in axis.get_major_locator().tick_values(low, high) if tick <= high]
    assert high >= 1 + within
    assert len(shown) > 2
    assert max(shown) > 1 + within / 2
