"""Notebook 00 in a real JupyterLab: a curve that moves by itself, and ComparePanel."""

import re

import pandas as pd
import pytest

from tests.browser.notebook_page import FOLDS

pytestmark = pytest.mark.browser

NAME = "00_start_here.ipynb"
CELL = "compare = ComparePanel("  # the cell that makes the panel
RUNS = r"(\d[\d,]*) of (\d[\d,]*) runs in"
STOPPED = rf"^stopped: {RUNS}.*?, (\d+) of them stored before"
LONG = "compare.choose(searchers=['pattern'], seeds=1000, trials=100, workers=2)"


@pytest.fixture(scope="module")
def notebook(tab):
    """The notebook, opened."""
    return tab(NAME)


def running(notebook, *, beyond=0):
    """Waits until the comparison counts more than so many finished runs; returns how many."""
    while True:
        found = notebook.until(".ktl-compare .ktl-status", rf"^running: {RUNS}")
        assert found[2] == "1,000"
        if (now := int(found[1])) > beyond:
            return now


def test_run_all_brings_a_curve_that_moves_and_a_comparison(notebook, lab):
    notebook.run_all(wait=False)
    numbers = {notebook.until(".ktl-tuner .ktl-status", r"running: (\d+) trials in")[1]}
    while len(numbers) < 3:
        numbers.add(notebook.until(".ktl-tuner .ktl-status", r"running: (\d+) trials in")[1])
    notebook.until(".ktl-tuner .ktl-status", "^done: 150 trials")
    notebook.until(".ktl-compare .ktl-status", r"^done: 15 runs")
    notebook.done()
    assert notebook.errors() == []
    for suffix in ("pdf", "png", "csv", "json"):
        assert (lab.notebooks / "figures" / f"start_here.{suffix}").stat().st_size > 100
    for picture in (".ktl-tuner .ktl-image", ".ktl-compare .ktl-image", ".ktl-ratios"):
        assert notebook.page.locator(picture).last.evaluate("(e) => e.naturalWidth") > 500
    notebook.shoot("compare", ".ktl-compare")
    notebook.shoot("start_here", ".ktl-tuner")


def test_the_target_slider_redraws_from_the_finished_runs(notebook):
    handle = notebook.page.locator(".ktl-target .noUi-handle").last
    handle.focus()
    before = notebook.picture(".ktl-compare .ktl-image")
    for _ in range(4):
        notebook.page.keyboard.press("ArrowRight")
    notebook.changed(".ktl-compare .ktl-image", before)
    while notebook.execute("print(compare.view.target.value)").strip() != "7.0":
        notebook.page.wait_for_timeout(20)
    before = notebook.picture(".ktl-compare .ktl-image")
    notebook.page.locator(".ktl-x select").last.select_option("seconds")
    notebook.changed(".ktl-compare .ktl-image", before)


def test_every_control_has_a_tooltip_and_is_reached_by_keyboard(notebook):
    folded = notebook.page.locator(f".ktl-compare {FOLDS}")
    told = [notebook.unreached(".ktl-compare") + notebook.untold(".ktl-compare")]
    for which in range(folded.count()):
        folded.nth(which).focus()
        notebook.page.keyboard.press("Enter")
        told.append(notebook.unreached(".ktl-compare") + notebook.untold(".ktl-compare"))
    assert told == [[]] * 3


def test_an_export_writes_what_it_says(notebook, lab):
    notebook.run_cell(CELL)
    notebook.until(".ktl-compare .ktl-status", "^idle")
    notebook.click(".ktl-compare .ktl-start")
    notebook.until(".ktl-compare .ktl-status", r"^done: 15 runs.* 15 of them stored before")
    notebook.click(f".ktl-export-box {FOLDS}")
    notebook.page.locator(".ktl-figure-name input").last.fill("mine")
    notebook.page.keyboard.press("Enter")
    while notebook.execute("print(compare.view.figure_name.value)").strip() != "mine":
        notebook.page.wait_for_timeout(20)  # a click may overtake a value
    notebook.click(".ktl-export")
    notebook.until(".ktl-compare .ktl-status", "^exported 8 files")
    for kind in ("incumbents", "ratios"):
        written = lab.notebooks / "figures" / f"mine_{kind}"
        assert written.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
        assert len(pd.read_csv(written.with_suffix(".csv"))) > 2
        notebook.until(".ktl-paths", re.escape(written.with_suffix(".json").name))


def test_a_comparison_is_stopped_and_its_cell_run_again_while_it_runs(notebook):
    notebook.execute(LONG)
    notebook.click(".ktl-compare .ktl-start")
    done = running(notebook)
    notebook.execute("first = compare.session")
    notebook.run_cell(CELL)
    notebook.until(".ktl-compare .ktl-status", "^idle")
    ended = notebook.execute("print(first.ended.wait(60), first.snapshot().state)")
    assert ended.split() == ["True", "stopped"]
    notebook.execute(LONG)
    notebook.click(".ktl-compare .ktl-start")
    running(notebook, beyond=done)
    notebook.click(".ktl-compare .ktl-stop")
    found = notebook.until(".ktl-compare .ktl-status", STOPPED)
    assert done <= int(found[3]) <= int(found[1])


def test_a_restart_under_way_leaves_no_process_and_loses_no_run(notebook, lab):
    notebook.execute(LONG)
    notebook.click(".ktl-compare .ktl-start")
    done = running(notebook, beyond=5)
    before = lab.computing()
    notebook.restart()
    assert not lab.without(before), "the kernel before, or what it started"
    for text in ("WORKLOAD =", "from kt_lab.ui", CELL):
        notebook.run_cell(text)
    notebook.execute(LONG)
    notebook.click(".ktl-compare .ktl-start")
    running(notebook, beyond=done)
    notebook.click(".ktl-compare .ktl-stop")
    found = notebook.until(".ktl-compare .ktl-status", STOPPED)
    assert done <= int(found[3]) <= int(found[1])
