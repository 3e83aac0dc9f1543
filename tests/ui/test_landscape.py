"""The landscape panel: what its map shows, how it is walked, and how a search is played on it."""

import asyncio
import re
import threading
from functools import partial

import ipywidgets as w
import numpy as np
import pandas as pd
import pytest

from kt_lab import ParameterSpace, PowerOfTwo, load_landscape
from kt_lab.errors import SpaceError, UnknownName, UsageError
from kt_lab.landscape import Landscape, data_directory
from kt_lab.plots import read_points
from kt_lab.plots.slices import cell_text
from kt_lab.stats import search_path
from kt_lab.trial import OK
from kt_lab.ui import (
    ComparePanel,
    ConfigInspector,
    LandscapePanel,
    TunerPanel,
    landscape,
    shell,
    slice_figure,
)
from kt_lab.ui.background import alive
from tests.stats.exact_landscapes import RISING, exact

WORKLOAD = "int4_gemm/1x2048x2048x2048"  # the one with most failures
LONG_S = 60.0


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    for job in alive():
        job.close(timeout=LONG_S)
    assert not alive()


@pytest.fixture
def panel():
    return LandscapePanel(WORKLOAD, gpu="h200", x="BLOCK_N", y="num_warps", searcher="pattern")


def controls(widget):
    yield widget
    for child in kids(widget):
        yield from controls(child)


def kids(widget):
    return getattr(widget, "children", ())


def chosen(panel):
    found = [at for at, cell in panel.map.cells.items() if "ktl-chosen" in cell._dom_classes]
    assert len(found) == 1
    assert [at for at, cell in panel.map.cells.items() if cell.tabbable] == found
    return found[0]


def test_the_file_of_a_landscape_is_told_where_panels_find_it():
    file, told = "recorded/softmax/h200/4096x640.parquet", "copy it and its .json to a folder"
    for make in (LandscapePanel, ConfigInspector, TunerPanel):
        with pytest.raises(UsageError, match=told):
            make(file)
    with pytest.raises(UsageError, match=told):
        ComparePanel(["random"], [file])


# -- the map --------------------------------------------------------------------------------------


def test_a_folder_of_other_landscapes_opens_at_the_first(tmp_path, monkeypatch):
    folder = tmp_path / "landscapes" / "rope"
    folder.parent.mkdir()
    folder.symlink_to(data_directory() / "landscapes" / "rope")
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    first = sorted(path.stem for path in (folder / "h200").glob("*.parquet"))[0]
    for make in (LandscapePanel, ConfigInspector):
        assert make().picker.workload.value == f"rope/{first}"


def test_a_landscape_without_a_map_is_refused_in_words(tmp_path, monkeypatch):
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    known = exact(RISING, "known")
    axis = ParameterSpace([PowerOfTwo("BLOCK", 16, 128)], default={"BLOCK": 16})
    told = {"workload": "toy/line", "space": axis.describe(), "fingerprint": axis.fingerprint}
    line = Landscape(known.table.iloc[::4].drop(columns="p_num_stages"), known.manifest | told)
    for made in (known, line, exact(np.full((4, 4), np.nan), "failed")):
        made.save(tmp_path / "landscapes" / made.kernel / made.gpu / made.workload[4:])
    for make in (LandscapePanel, ConfigInspector):
        with pytest.raises(UsageError, match="a config that works, got none of toy/failed on"):
            make("toy/failed")
        shown = make("toy/known")
        shown.picker.workload.value = "toy/failed"
        assert "a config that works" in shown.shell.status.value
    assert ConfigInspector("toy/line").shell.status.value == ""
    with pytest.raises(UsageError, match="a map needs two parameters, got 1 of toy/line"):
        LandscapePanel("toy/line")
    shown = LandscapePanel("toy/known")
    shown.picker.workload.value = "toy/line"
    assert "a map needs two parameters" in shown.shell.status.value
    assert "16 configs" in shown._facts.value, "of the map that is still shown"


def test_choices_that_do_not_fit_side_by_side_go_on_below(panel):
    tuner = TunerPanel("softmax/4096x640")
    (column,) = (each for each in controls(tuner.box) if tuner.kernel in kids(each))
    for box, widget in ((panel.box, panel.picker.gpu), (tuner.box, column)):
        (row,) = (each for each in controls(box) if widget in kids(each))
        assert row.layout.flex_flow == "row wrap"


def test_the_map_says_of_each_cell_what_the_table_says(panel):
    assert len(panel.map.cells) == len(panel.cells) == 9
    for row in panel.cells.itertuples():
        button = panel.map.cells[row.x_index, row.y_index]
        assert button.description == (cell_text(row.status, row.ratio) or "·")
        assert ("ktl-none" in button._dom_classes) == (row.n_configs == 0)
        if row.status == OK:
            assert f"{row.latency_us:,.2f} µs" in button.tooltip
            assert f"visits {row.low_us:,.2f} to {row.high_us:,.2f} µs" in button.tooltip
            assert f"BLOCK_N = {row.x}\n" in button.tooltip
    best = panel.cells.loc[panel.cells["ratio"].idxmin()]
    assert chosen(panel) == (best["x_index"], best["y_index"])
    assert panel.config == panel.landscape.best


def test_failures_and_what_cannot_be_look_different(panel):
    panel.choose(x="BLOCK_M", y="num_stages", fixed={"BLOCK_N": 256, "BLOCK_K": 128})
    failed = [c for c in panel.map.cells.values() if "ktl-failed" in c._dom_classes]
    assert [c.description for c in failed] == ["C", "C", "C"]
    assert all("compile error" in c.tooltip for c in failed)
    none = [c for c in panel.map.cells.values() if "ktl-none" in c._dom_classes]
    assert none
    assert all(c.tooltip.startswith("no valid config") for c in none)
    assert panel.slice.others["BLOCK_N"].layout.display != "none"
    assert panel.slice.others["BLOCK_M"].layout.display == "none"


def test_a_cell_is_chosen_by_mouse_and_by_keyboard(panel):
    panel.map.cells[2, 1].click()
    assert chosen(panel) == (2, 1) == (panel.map.across.value, panel.map.up.value)
    assert str(panel.config["BLOCK_N"]) == "256"
    assert "BLOCK_N = 256" in panel.map.details.value
    panel.map.across.value = 1
    assert chosen(panel) == (1, 1)
    panel.map.up.value = 2
    assert chosen(panel) == (1, 2)
    assert "num_warps = 16" in panel.map.details.value
    panel.map.cells[0, 2].click()  # no valid config there
    assert panel.config is None
    assert "no valid config" in panel.map.details.value


def test_the_name_of_the_vertical_axis_stays_in_one_line(panel):
    def broad(name):
        panel.choose(y=name)
        (width,) = set(re.findall(r"width:(\d+)px", panel.map._ylabels.value))
        return int(width)

    assert broad("num_stages") >= 8 * len("num_stages ↑") > broad("BLOCK_K")


def test_the_same_axis_twice_swaps_the_axes(panel):
    panel.slice.x.value = "num_warps"
    assert (panel.slice.x.value, panel.slice.y.value) == ("num_warps", "BLOCK_N")
    assert panel.cells["x_name"].iloc[0] == "num_warps"
    panel.choose(y="BLOCK_K")
    assert (panel.slice.x.value, panel.slice.y.value) == ("num_warps", "BLOCK_K")


def test_another_landscape_brings_its_parameters(panel):
    panel.picker.kernel.value = "softmax"
    assert panel.landscape.kernel == "softmax"
    assert set(panel.slice.others) == set(panel.landscape.space.names)
    assert panel.slice.x.value in panel.landscape.space.names
    assert panel.cells["workload"].iloc[0] == panel.landscape.workload
    assert panel.shell.drawer.titles == ("errors: none",)
    for wrong in ({"workload": "softmax/1x1"}, {"gpu": "h201"}, {"searcher": "tpee"}, {"x": "Q"}):
        with pytest.raises(UnknownName):
            panel.choose(**wrong)
    with pytest.raises(SpaceError):
        panel.choose(fixed={"WAVES": 77})


def test_a_browser_does_not_move_the_choice_to_the_last_of_fewer_values(panel, monkeypatch):
    panel.choose("softmax/256x128256", x="BLOCK_N", y="num_warps")
    said, told = [], {each: each.get_state() for each in (panel.map.across, panel.map.up)}

    def send(slider, key=None):
        told[slider].update(slider.get_state(key))
        last = len(told[slider]["_options_labels"]) - 1
        if told[slider]["index"] > last:  # a browser's slider stays on its track, and tells so
            said.append((slider, last))

    for slider in told:
        monkeypatch.setattr(slider, "send_state", partial(send, slider))
    panel.choose("int4_gemm/1x1x7168x8192")
    for slider, index in said:
        slider.index = index
    assert panel.config == panel.landscape.best


def test_what_cannot_be_chosen_sets_nothing(panel):
    def state():
        chosen = (panel.landscape, panel.slice.x.value, panel.slice.y.value, panel.slice.fixed)
        return (*chosen, panel.controls.seed.value, panel.controls.trials.value)

    panel.choose(fixed={"BLOCK_K": 128})
    before = state()
    other = {"workload": "softmax/4096x640"}
    for wrong, said in (
        ({"trials": 0}, "trials must be a whole number >= 1, got trials=0"),
        ({"trials": 10**6}, "trials must be in 1..100000, got 1000000"),
        ({"trials": "a"}, "trials must be a whole number >= 1, got trials='a'"),
        ({"seed": 1.5}, "seed must be a whole number >= 0, got seed=1.5"),
        ({"x": "BLOCK_M", "y": "BLOCK_M"}, "must be two parameters"),
    ):
        with pytest.raises(UsageError, match=said):
            panel.choose(**other, **wrong)
    for wrong in ({"x": "nope"}, {"gpu": "nope"}, {"fixed": {"nope": 1}}, {"y": "BLOCK_K"}):
        with pytest.raises(UnknownName):
            panel.choose(**other, **wrong)
    with pytest.raises(SpaceError):
        panel.choose(**other, fixed={"num_stages": 99})
    assert state() == before


def test_fixed_values_stay_where_another_workload_has_them(panel):
    panel.choose(fixed={"BLOCK_K": 128, "num_stages": 3})
    panel.choose("int4_gemm/1x1x7168x8192")
    assert (panel.slice.x.value, panel.slice.y.value) == ("BLOCK_N", "num_warps")
    assert panel.slice.fixed == {"BLOCK_K": 128, "num_stages": 3}
    shown = panel.cells.loc[panel.cells["status"] == OK, "config"]
    space = panel.landscape.space
    assert {space.config(space.enumerate()[int(at)])["num_stages"] for at in shown} == {3}
    panel.choose("softmax/4096x640")  # no BLOCK_K, and other stages
    assert "BLOCK_K" not in panel.slice.fixed


# -- a search on it -------------------------------------------------------------------------------


def test_a_search_is_shown_reading_by_reading(panel, tmp_path):
    panel.choose(trials=40, seed=2)
    panel.search()
    run = panel.wait(LONG_S)
    assert panel.shell.status.value == "done: 40 trials of pattern, seed 2"
    assert panel.upto == panel.controls.slider.max == panel.controls.play.max == len(run)
    path = search_path(panel.landscape, run, "BLOCK_N", "num_warps")
    for upto in (0, 1, 17):
        panel.upto = upto
        dots = re.findall('<path d="(.*?)"', panel.map.trail.value)[0]
        assert dots.count("M") == (path["status"].iloc[:upto] == OK).sum()
        assert f"the first {upto} readings" in panel.map.trail.value
    mask = re.findall('<g mask="url[(]#(.*?)[)]"><polyline', panel.map.trail.value)
    assert f'<mask id="{mask[0]}"' in panel.map.trail.value, "the line passes behind the numbers"
    holes = re.findall('<mask.*<path d="(.*?)"', panel.map.trail.value)
    assert holes[0].count("M") == len(panel.map.cells)
    assert panel.controls.now.value.startswith(f"reading 17 of {len(run)}: ")
    panel.controls.buttons["step"].click()
    assert panel.upto == 18
    panel.controls.buttons["back"].click()
    panel.controls.buttons["back"].click()
    assert panel.upto == 16
    panel.controls.buttons["replay"].click()
    assert (panel.upto, panel.controls.play.playing) == (0, True)
    panel.upto = 9
    paths = panel.save("way", directory=tmp_path)
    assert len(read_points(paths["csv"])["path"]) == 9
    assert str(paths["pdf"]) in panel.shell.status.value


def test_the_way_stays_when_the_slice_changes_and_goes_with_the_landscape(panel):
    panel.choose(trials=20)
    panel.search()
    panel.wait(LONG_S)
    panel.upto = 7
    panel.slice.others["num_stages"].value = 1
    assert panel.upto == 7
    panel.picker.kernel.value = "softmax"
    assert (panel.run, panel.map.trail.value) == (None, "")
    assert panel.controls.buttons["replay"].disabled
    panel.search()
    assert panel.wait(LONG_S)["workload"].unique().tolist() == [panel.landscape.workload]


def test_the_way_of_a_search_is_back_when_its_landscape_is(panel):
    kernel, workload = panel.picker.kernel.value, panel.picker.workload.value
    panel.choose(trials=20)
    panel.search()
    run = panel.wait(LONG_S)
    panel.picker.kernel.value = "softmax"
    assert panel.run is None
    said = f"done: 20 trials of pattern, seed 0 on {run['workload'].iloc[0]}, h200"
    assert panel.shell.status.value == said
    panel.picker.kernel.value = kernel
    panel.picker.workload.value = workload
    pd.testing.assert_frame_equal(panel.run, run)
    assert not panel.controls.buttons["replay"].disabled


def test_a_stored_run_can_be_laid_over_the_map(panel):
    with pytest.raises(UsageError, match="one run"):
        panel.show_run(_run("softmax/4096x640"))
    panel.show_run(_run(WORKLOAD))
    assert panel.upto == 30
    assert panel.controls.now.value.endswith(" (random, seed 0)")
    panel.show_run(None)
    assert panel.map.trail.value == ""


def _run(workload):
    from kt_lab.cells import Cell, run_cell

    return run_cell(Cell(workload, "h200", "random", "random", (), 16, 0, 30, None))


def test_a_search_that_fails_is_told_in_the_panel(panel, monkeypatch):
    monkeypatch.setattr(landscape, "make_searcher", lambda *_, **__: 1 / 0)
    panel.controls.buttons["search"].click()
    with pytest.raises(ZeroDivisionError):
        panel.wait(LONG_S)
    assert "ZeroDivisionError" in panel.shell.status.value
    assert "ZeroDivisionError" in panel.shell.drawer.titles[0]
    assert "Traceback" in panel.shell.errors.outputs[-1]["text"]
    assert not panel.controls.buttons["search"].disabled


def test_one_search_at_a_time_and_none_of_a_panel_that_was_replaced(panel, monkeypatch):
    gate, make = threading.Event(), landscape.make_searcher

    def gated(*args, **kwargs):
        gate.wait(LONG_S)
        return make(*args, **kwargs)

    monkeypatch.setattr(landscape, "make_searcher", gated)
    panel.search()
    panel.controls.buttons["search"].click()
    assert "stop it first" in panel.shell.status.value
    again = LandscapePanel(WORKLOAD, gpu="h200", searcher="random", trials=5)
    assert panel.session.snapshot().stopping
    gate.set()
    panel.wait(LONG_S)
    assert panel.session.snapshot().state == "stopped"
    again.search()
    assert len(again.wait(LONG_S)) == 5


def test_in_an_event_loop_the_panel_renders_by_itself():
    async def notebook():
        panel = LandscapePanel(WORKLOAD, gpu="h200", searcher="random", trials=10)
        panel.search()
        await asyncio.wait_for(panel._pump, LONG_S)
        return panel

    panel = asyncio.run(notebook())
    assert panel.shell.status.value == "done: 10 trials of random, seed 0"
    assert panel.upto == 10


def test_a_burst_of_changes_is_shown_at_once_and_at_its_end():
    called = []

    async def burst():
        show = shell.Throttle(lambda: called.append(asyncio.get_running_loop().time()))
        for _ in range(100):
            show()
        assert len(called) == 1
        while len(called) < 2:  # the last of a burst is made up for
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(burst(), LONG_S))
    assert called[1] - called[0] >= 0.9 * shell.EVERY_S
    alone = []
    show = shell.Throttle(lambda: alone.append(1))
    show()
    show()
    assert len(alone) == 2, "without a loop nothing could be made up for"


# -- what everything shares -----------------------------------------------------------------------


def test_every_control_is_told_and_can_be_found():
    inspector = ConfigInspector(WORKLOAD, gpu="h200")
    panel = LandscapePanel(WORKLOAD, gpu="h200", inspector=inspector)
    for each, hooks in (
        (
            panel,
            "landscape map cell chosen across up trail card kernel workload gpu x y now play upto "
            "searcher seed trials search stop replay back step save venue to-a to-b status drawer",
        ),
        (
            inspector,
            "inspector kernel workload gpu preset-a preset-b a-BLOCK_N facts differing roofline "
            "neighbours walk kind compare diff status drawer",
        ),
    ):
        found = list(controls(each.box))
        inputs = [x for x in found if isinstance(x, w.ValueWidget | w.Button | w.Select)]
        inputs = [x for x in inputs if not isinstance(x, w.HTML | w.Label | w.Image)]
        assert len(inputs) > 20
        for control in inputs:
            assert control.tooltip, control
            assert control.description, control
        classes = {name for x in found for name in getattr(x, "_dom_classes", ())}
        assert {f"ktl-{hook}" for hook in hooks.split()} <= classes
        assert "application/vnd.jupyter.widget-view+json" in each._repr_mimebundle_()


def test_the_chosen_config_goes_to_the_inspector():
    inspector = ConfigInspector("softmax/4096x640", gpu="h200")
    panel = LandscapePanel(WORKLOAD, gpu="h200", inspector=inspector, x="BLOCK_N", y="num_warps")
    panel.map.cells[2, 1].click()
    panel.controls.buttons["to-b"].click()
    assert inspector.landscape.workload == WORKLOAD
    assert inspector.configs == {"A": panel.landscape.best, "B": panel.config}
    panel.map.cells[0, 2].click()
    assert panel.controls.buttons["to-a"].disabled


def test_the_figure_is_one_call():
    drawing = slice_figure(load_landscape(WORKLOAD, gpu="h200"), "BLOCK_N", "num_warps")
    assert drawing.caption.startswith(f"{WORKLOAD} on h200: latency over the optimum")
    assert len(drawing.points) == 9
