"""TunerPanel in a real JupyterLab, as notebook 04 shows it."""

import re

import pytest
from playwright.sync_api import expect

from kt_lab.store import read_table
from tests.browser.lab import PATIENCE_S
from tests.browser.notebook_page import FOLDS

pytestmark = pytest.mark.browser

NAME = "04_tune_live.ipynb"
CELL = "panel = TunerPanel("  # the cell that makes the panel
TRIALS = r"(\d[\d,]*) trials in"
LATENCY = r"judged on other visits\s+([\d.]+) µs"
# A search long enough to be held and stopped: TPE thinks for milliseconds before each trial.
LONG = "panel.choose(searcher='tpe', trials=2000)"


def count(found):
    return int(found[1].replace(",", ""))


@pytest.fixture(scope="module")
def ran(tab):
    """The notebook after Run All."""
    found = tab(NAME)
    found.run_all()
    found.until(".ktl-status", r"^saved .*tuned\.parquet")
    return found


@pytest.fixture
def notebook(ran):
    """The notebook with a new panel, and a long search to start."""
    ran.run_cell(CELL)
    assert ran.execute(LONG) == ""
    ran.until(".ktl-status", "^idle")
    return ran


def running(notebook, *, beyond=0):
    """Waits until the panel counts more than so many trials; returns how many."""
    while True:
        now = count(notebook.until(".ktl-status", rf"^running: {TRIALS}"))
        if now > beyond:
            return now


def state(notebook):
    """What the kernel says of the panel's session, and how many sessions run."""
    said = notebook.execute(
        "from kt_lab.ui.background import alive\n"
        "print(panel.session.snapshot().state, len(panel.session.history), len(alive()))"
    )
    return said.split()


def test_a_search_is_started_held_stopped_and_saved(notebook, lab):
    notebook.click(".ktl-start")
    first = running(notebook)
    best = float(notebook.until(".ktl-card", LATENCY)[1])
    notebook.page.locator(".ktl-image img, img.ktl-image").last.wait_for()
    moved = running(notebook, beyond=first)
    notebook.click(".ktl-pause")
    held = count(notebook.until(".ktl-status", rf"^paused: {TRIALS}"))
    assert held >= moved
    settled = [state(notebook) for _ in range(4)]  # the trial under way ends within the first
    assert settled[-1] == settled[-2] == ["paused", settled[-1][1], "1"]
    assert notebook.text(".ktl-pause").strip() == "resume"
    notebook.click(".ktl-pause")
    assert running(notebook, beyond=held) > held
    assert float(notebook.until(".ktl-card", LATENCY)[1]) <= best * 1.5
    notebook.click(".ktl-stop")
    stopped = count(notebook.until(".ktl-status", rf"^stopped: {TRIALS}"))
    assert stopped > held
    notebook.page.wait_for_function(
        "() => [...document.querySelectorAll('.ktl-image')].at(-1).naturalWidth > 500"
    )
    notebook.shoot("tuner", ".ktl-tuner")

    notebook.click(".ktl-copy")
    code = notebook.page.locator(".ktl-code textarea").last
    expect(code).to_have_value(re.compile(r"^triton\.Config\(\{'BLOCK_M': \d+"))

    before = set(lab.data.rglob("sessions/**/*.parquet"))
    notebook.click(".ktl-save")
    notebook.until(".ktl-status", r"^saved .*\.parquet")
    (path,) = set(lab.data.rglob("sessions/**/*.parquet")) - before
    table, facts = read_table(path)
    assert [facts["searcher"], facts["state"]] == ["tpe", "stopped"]
    assert str(len(table)) == state(notebook)[1]
    assert {"status", "latency_us", "values"} <= set(table.columns)


def test_running_the_cell_again_stops_the_search_before(notebook):
    notebook.click(".ktl-start")
    running(notebook)
    notebook.execute("first = panel.session")
    notebook.run_cell(CELL)
    notebook.until(".ktl-status", "^idle")
    said = notebook.execute(f"print(first.ended.wait({PATIENCE_S}), first.snapshot().state)")
    assert said.split() == ["True", "stopped"]
    notebook.execute(LONG)
    notebook.click(".ktl-start")
    running(notebook)
    assert state(notebook)[0::2] == ["running", "1"], "one search at a time"
    notebook.click(".ktl-stop")
    notebook.until(".ktl-status", "^stopped")


def test_every_control_has_a_tooltip_and_is_reached_and_worked_by_keyboard(notebook):
    page = notebook.page
    folded = page.locator(f".ktl-tuner {FOLDS}")
    told = [notebook.unreached(".ktl-tuner") + notebook.untold(".ktl-tuner")]
    for which in range(folded.count()):
        folded.nth(which).focus()
        page.keyboard.press("Enter")
        told.append(notebook.unreached(".ktl-tuner") + notebook.untold(".ktl-tuner"))
    assert told == [[]] * 4
    # keys do in the panel what they do in any page, and not what they do to the notebook's cells
    cells = page.locator(".jp-Cell").count()
    menu = page.locator(".ktl-searcher select").last
    menu.focus()
    for key in ("ArrowDown", "r"):
        page.keyboard.press(key)
    page.keyboard.press("x")
    assert menu.input_value() == "random"
    assert page.locator(".jp-Cell").count() == cells
    while notebook.execute("print(panel.searcher.value)").strip() != "random":
        page.wait_for_timeout(20)  # a click may overtake a value: ipywidgets holds values back
    page.locator(".ktl-start").last.focus()
    page.keyboard.press("Enter")
    notebook.until(".ktl-status", rf"^done: {TRIALS}")
    assert notebook.execute("print(panel.session.facts['searcher'])").strip() == "random"


def test_what_a_handler_raises_is_shown_in_the_panel(notebook):
    notebook.execute("panel.choose(allowed={'num_warps': []})")
    notebook.click(".ktl-start")
    notebook.until(".ktl-status", r"^refused: allowed values must leave")
    notebook.execute("panel.values.reset(); panel.values.space = None")  # no user's mistake
    notebook.click(".ktl-start")
    notebook.until(".ktl-status", r"^refused: AttributeError: 'NoneType'")
    notebook.until(".ktl-drawer", r"errors: AttributeError")
    notebook.click(f".ktl-drawer {FOLDS}")
    assert "SpaceError: allowed" in notebook.until(".ktl-drawer", r"Traceback[^$]*NoneType")[0]
    notebook.shoot("tuner_error", ".ktl-tuner")


def test_a_closed_tab_loses_no_trial(notebook):
    notebook.save()
    notebook.click(".ktl-start")
    before = running(notebook)
    notebook.reopen(".ktl-status", cell=CELL, name="panel")
    after = running(notebook, beyond=before)
    assert int(state(notebook)[1]) >= after
    notebook.click(".ktl-stop")
    shown = count(notebook.until(".ktl-status", rf"^stopped: {TRIALS}"))
    found = notebook.execute("print(panel.session.history.trials_spent)")
    assert int(found) == shown


def test_a_restarted_kernel_leaves_no_process_and_the_notebook_runs_again(notebook, lab):
    notebook.click(".ktl-start")
    running(notebook)
    before = lab.processes()
    assert before
    notebook.restart()
    assert not lab.without(before), "the kernel before, or what it started"
    notebook.run_cell("from kt_lab.ui")
    notebook.run_cell("WORKLOAD =")
    notebook.run_cell(CELL)
    notebook.until(".ktl-status", "^idle")
    notebook.click(".ktl-start")
    notebook.until(".ktl-status", rf"^done: {TRIALS}")
