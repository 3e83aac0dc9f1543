"""LandscapePanel and ConfigInspector in a real JupyterLab, as notebook 03 shows them."""

import pytest

from tests.browser.notebook_page import FOLDS

pytestmark = pytest.mark.browser

NAME = "03_landscape_atlas.ipynb"
AFTER = "space = landscape.space"  # the cell below both panels
ROOTS = (".ktl-landscape", ".ktl-inspector")
NOW = r"reading (\d+) of (\d+)"


@pytest.fixture(scope="module")
def notebook(tab):
    """The notebook, run so far as the panels go."""
    found = tab(NAME)
    found.run_above(AFTER)
    assert found.errors() == []
    return found


def settled(notebook):
    """Waits until a search under way adds no reading; it shows the last of those so far, too."""
    total = None
    while (seen := now(notebook, r"reading (\d+) of \1")) != total:
        total = seen
        notebook.page.wait_for_timeout(1_500)
    return total


def now(notebook, pattern=NOW):
    return int(notebook.until(".ktl-landscape .ktl-now", pattern)[1])


def test_a_search_is_run_and_played_over_the_map(notebook, lab):
    assert notebook.page.locator(".ktl-landscape .ktl-cell").count() > 10
    notebook.page.locator(".ktl-landscape .ktl-seed input").last.fill("1")
    notebook.page.keyboard.press("Enter")
    notebook.click(".ktl-landscape .ktl-search")
    notebook.until(".ktl-landscape .ktl-status", r"^done: \d+ trials of .*")
    total = settled(notebook)
    notebook.shoot("landscape", ".ktl-landscape")
    notebook.click(".ktl-landscape .ktl-replay")
    first = now(notebook, rf"reading (?!{total} )(\d+) of {total}")
    moved = now(notebook, rf"reading (?!{total} |{first} )(\d+) of {total}")
    assert 0 <= first < moved < total
    notebook.page.locator(".ktl-landscape .ktl-play button").first.click()  # pause
    notebook.page.wait_for_timeout(500)  # more than a frame of the animation, for one under way
    notebook.page.locator(".ktl-landscape .ktl-upto .noUi-handle").last.focus()
    held = now(notebook)
    notebook.page.keyboard.press("ArrowRight")
    assert now(notebook, rf"reading (?!{held} )(\d+) of {total}") == held + 1
    notebook.click(".ktl-landscape .ktl-save")
    notebook.until(".ktl-landscape .ktl-status", "^saved")
    names = {path.name for path in (lab.notebooks / "figures").iterdir()}
    assert {f"atlas_map.{kind}" for kind in ("pdf", "png", "csv", "json")} <= names
    assert [n for n in names if n.endswith(".pdf") and not n.startswith("atlas")], "what was saved"


def test_a_cell_is_read_chosen_and_inspected(notebook):
    cells = notebook.page.locator(".ktl-landscape .ktl-cell:not(.ktl-none):not(.ktl-failed)")
    cell = cells.nth(cells.count() // 2)
    assert "of the optimum" in cell.get_attribute("title")
    before = notebook.text(".ktl-landscape .ktl-card")
    cell.click()
    notebook.page.wait_for_function(
        "(before) => document.querySelector('.ktl-landscape .ktl-card').innerText !== before",
        arg=before,
    )
    facts = notebook.text(".ktl-inspector .ktl-facts")
    notebook.click(".ktl-landscape .ktl-to-a")
    notebook.page.wait_for_function(
        "(before) => document.querySelector('.ktl-inspector .ktl-facts').innerText !== before",
        arg=facts,
    )
    wide = notebook.page.locator(".ktl-inspector .ktl-roofline").last
    assert wide.evaluate("(e) => e.naturalWidth") > 200
    notebook.shoot("inspector", ".ktl-inspector")


@pytest.mark.parametrize("root", ROOTS)
def test_every_control_has_a_tooltip_and_is_reached_by_keyboard(notebook, root):
    folded = notebook.page.locator(f"{root} {FOLDS}")
    told = notebook.unreached(root) + notebook.untold(root)
    for which in range(folded.count()):
        folded.nth(which).focus()
        notebook.page.keyboard.press("Enter")
        told += notebook.unreached(root) + notebook.untold(root)
    assert told == []


def test_what_a_handler_raises_is_shown_in_the_panel(notebook):
    notebook.execute("panel.drawing = lambda *_, **__: 1 / 0")
    notebook.click(".ktl-landscape .ktl-save")
    notebook.until(".ktl-landscape .ktl-status", "^refused: ZeroDivisionError")
    notebook.until(".ktl-landscape .ktl-drawer", "errors: ZeroDivisionError")
