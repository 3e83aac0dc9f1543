"""A notebook in a browser tab, driven as its reader would: by its menu, mouse and keys."""

import re
import time
from pathlib import Path

from playwright.sync_api import Page

from tests.browser.lab import PATIENCE_S, ROOT, Lab

SHOTS = ROOT / "figures" / "browser"  # not tracked; tests.browser.gallery takes some of them
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
FLAGS += ("--disable-background-networking", "--disable-component-update", "--disable-sync")
_MS = PATIENCE_S * 1000
_READY = """() => {
    const shown = window.jupyterapp && window.jupyterapp.shell.currentWidget;
    return !!shown && shown.context && shown.context.isReady && shown.sessionContext.isReady
        && !!shown.sessionContext.session && !!shown.sessionContext.session.kernel;
}"""
_EXECUTE = """async (code) => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    const future = kernel.requestExecute({code, store_history: false});
    let text = '';
    future.onIOPub = (message) => {
        const said = message.content;
        if (message.header.msg_type === 'stream') text += said.text;
        if (message.header.msg_type === 'error') text += said.ename + ': ' + said.evalue;
    };
    await future.done;
    return text;
}"""
_IN_TIME = """async ([code, argument, ms]) => {
    const late = new Promise((_, fail) => setTimeout(
        () => fail(new Error(`not done after ${ms} ms: ${code}`)), ms));
    return Promise.race([eval(code)(argument), late]);
}"""
FOLDS = ".jupyter-widget-Collapse-header"  # the headers of accordions
_SHOWN = """(css) => document.querySelector(css) ? 'shown'
    : document.body.innerText.includes('widget: model not found') && 'lost'"""
_NEW_CELL = """async ([text, source]) => {
    const {commands, shell} = window.jupyterapp, notebook = shell.currentWidget.content;
    notebook.activeCellIndex = notebook.widgets.findIndex((cell) =>
        cell.model.type === 'code' && cell.model.sharedModel.source.includes(text));
    await commands.execute('notebook:insert-cell-above');
    notebook.activeCell.model.sharedModel.setSource(source);
    await commands.execute('notebook:run-cell');
}"""
_CONTROLS = "button, input, select, textarea, .noUi-handle"
_USABLE = """(root, css) => [...root.querySelectorAll(css)]
    .filter((e) => e.checkVisibility() && !e.disabled && !e.closest('[disabled]')
        && e.getAttribute('tabindex') !== '-1')  // one of a grid is reached, arrows do the rest
"""


_STILL_MS = 400  # longer than a panel takes between two drawings


def _pictures(element) -> list[str]:
    """Returns what the images within an element show."""
    return element.locator("img").evaluate_all("(all) => all.map((e) => e.src)")


class NotebookPage:
    """One notebook in one tab.

    Attributes:
        page: Playwright's page.
        name: The notebook's file name.
    """

    def __init__(self, page: Page, lab: Lab, name: str):
        """Opens the notebook and waits for its kernel."""
        self.page, self.name, self._lab = page, name, lab
        page.set_default_timeout(_MS)
        self.open()

    def open(self) -> None:
        """Opens the notebook, or loads it anew."""
        self.page.goto(self._lab.address(self.name))
        self.page.wait_for_function(_READY)

    def reopen(self, css: str, *, cell: str, name: str) -> None:
        """Closes the tab's page and opens it; what it showed is then shown again.

        JupyterLab's widget manager looks two seconds for a widget: where the kernel answers at
        just that moment, "model not found" stays though the widget came (`get_model` of
        @jupyter-widgets/base 6.0). Then, as notebook 04 tells its reader, a new cell shows it.

        Args:
            css: Of what is shown.
            cell: Text of the code cell above which the new one goes.
            name: What the new cell consists of.
        """
        self.page.goto("about:blank")
        self.open()
        if self.page.wait_for_function(_SHOWN, arg=css).json_value() == "lost":
            self.evaluate(_NEW_CELL, [cell, name])

    def evaluate(self, code: str, argument: object = None) -> object:
        """Returns what a function in the page gives or promises, if that comes in time."""
        return self.page.evaluate(_IN_TIME, [code, argument, _MS])

    def command(self, name: str, *, wait: bool = True) -> None:
        """Runs a command of JupyterLab, and waits for its end."""
        call = f"window.jupyterapp.commands.execute('{name}')"
        self.page.evaluate(f"() => {{ window.ktlCommand = {call}; }}")
        if wait:
            self.done()

    def done(self) -> None:
        """Waits for the end of the last command."""
        self.evaluate("() => window.ktlCommand.then(() => null)")

    def run_all(self, *, wait: bool = True) -> None:
        """Runs every cell, as the menu does."""
        self.command("notebook:run-all-cells", wait=wait)

    def run_above(self, text: str) -> None:
        """Runs the cells above the code cell that holds `text`, as the menu does."""
        self._select(text)
        self.command("notebook:run-all-above")

    def run_cell(self, text: str) -> None:
        """Selects the code cell that holds `text` and runs it, as Ctrl-Enter does."""
        self._select(text)
        self.command("notebook:run-cell")

    def _select(self, text: str) -> None:
        self.page.evaluate(
            """(text) => {
                const notebook = window.jupyterapp.shell.currentWidget.content;
                notebook.activeCellIndex = notebook.widgets.findIndex((cell) =>
                    cell.model.type === 'code' && cell.model.sharedModel.source.includes(text));
            }""",
            text,
        )

    def execute(self, code: str) -> str:
        """Returns what a piece of code prints in the notebook's kernel."""
        return self.evaluate(_EXECUTE, code)

    def save(self) -> None:
        """Saves the notebook with its outputs."""
        self.command("docmanager:save")

    def restart(self) -> None:
        """Restarts the kernel through the menu's command and its question."""
        self.command("notebook:restart-kernel", wait=False)
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self.done()

    def text(self, css: str) -> str:
        """Returns the text of the last element that fits: of the newest panel."""
        return self.page.locator(css).last.inner_text()

    def until(self, css: str, pattern: str) -> re.Match:
        """Waits until the text of an element fits a pattern; returns the match."""
        until = time.monotonic() + PATIENCE_S
        said = "nothing"
        while time.monotonic() < until:
            if self.page.locator(css).count():
                said = self.text(css)
                if found := re.search(pattern, said):
                    return found
            self.page.wait_for_timeout(20)
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / "failed.png")
        raise AssertionError(f"{css} never said {pattern!r}, at last: {said}; {self.errors()}")

    def errors(self) -> list[str]:
        """Returns the tracebacks that the notebook's cells show."""
        return self.page.locator(".jp-RenderedText[data-mime-type*=error]").all_inner_texts()

    def picture(self, css: str) -> str:
        """Returns what names the picture that is shown: each has another name."""
        return self.page.locator(css).last.evaluate("(e) => e.src")

    def changed(self, css: str, before: str) -> None:
        """Waits until another picture is shown than `before`."""
        self.page.wait_for_function(
            "([css, before]) => [...document.querySelectorAll(css)].at(-1).src !== before",
            arg=[css, before],
        )

    def click(self, css: str) -> None:
        """Clicks the newest element that fits, once it can be clicked."""
        self.page.locator(css).last.click()

    def shoot(self, name: str, css: str) -> Path:
        """Keeps a picture of the newest element that fits, once its own pictures stand still."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = SHOTS / f"{name}.png"
        element = self.page.locator(css).last
        drawn, before = _pictures(element), None
        while drawn != before:
            self.page.wait_for_timeout(_STILL_MS)
            drawn, before = _pictures(element), drawn
        element.screenshot(path=path, animations="disabled")
        return path

    def untold(self, css: str) -> list[str]:
        """Returns the visible controls within an element that show no tooltip when pointed at."""
        bare = []
        for each in self._usable(css, _CONTROLS):
            each.dispatch_event("pointerover")
            told = each.evaluate("(e) => (e.closest('.jupyter-widgets [title]') || {}).title")
            if not told or told == "null":
                bare.append(each.evaluate("(e) => e.outerHTML.slice(0, 200)"))
        return bare

    def unreached(self, css: str) -> list[str]:
        """Returns the visible controls within an element at which pressing Tab never stops."""
        controls = self._usable(css, f"{_CONTROLS}, {FOLDS}")
        assert controls, css
        controls[0].evaluate("(e) => { document.activeElement.blur(); e.focus(); }")
        for each in controls:
            each.evaluate("(e) => { e.ktlReached = document.activeElement === e; }")
        for _ in range(3 * len(controls)):
            self.page.keyboard.press("Tab")
            inside = self.page.locator(css).last.evaluate(
                "(root) => { document.activeElement.ktlReached = true;"
                " return root.contains(document.activeElement); }"
            )
            if not inside:
                break
        missed = [each for each in controls if not each.evaluate("(e) => !!e.ktlReached")]
        return [each.evaluate("(e) => e.outerHTML.slice(0, 200)") for each in missed]

    def _usable(self, css: str, what: str) -> list:
        found = self.page.locator(css).last.evaluate_handle(_USABLE, what)
        return [each.as_element() for each in found.get_properties().values()]
