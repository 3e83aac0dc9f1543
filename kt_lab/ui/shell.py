"""What panels share: a status line, a drawer for errors, and how often something is shown."""

import asyncio
import html
import math
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ipywidgets as w

from kt_lab.errors import UsageError
from kt_lab.ui.background import Background, one_line

EVERY_S = 0.1  # between two renderings, at least
_REFUSED, _NO_ERRORS = "refused: ", "errors: none"


class Shell:
    """A status line and an error drawer; what handlers raise is seen nowhere else.

    Attributes:
        status: One line (CSS class ktl-status).
        errors: The tracebacks.
        drawer: They are folded into it (CSS class ktl-drawer).
    """

    def __init__(self):
        """Makes the widgets."""
        self.status, self.errors, self._last = w.Label(), w.Output(), ""
        self._complaints, self._before = 0, ""  # how many, and what the status said before
        self.drawer = w.Accordion([self.errors], titles=(_NO_ERRORS,))
        self.status.add_class("ktl-status")
        self.drawer.add_class("ktl-drawer")

    def guarded(self, action: Callable[[], object]) -> bool:
        """Calls an action; shows what it raises and returns whether it raised nothing."""
        try:
            action()
        except Exception as error:  # whatever a handler raises would be seen nowhere else
            self.complain(error)
            return False
        return True

    def acted(self, action: Callable[[], object]) -> bool:
        """Calls what a user did, guarded; where nothing is refused, an older refusal goes."""
        before = self._complaints
        fine = self.guarded(action)
        if before == self._complaints and self.status.value.startswith(_REFUSED):
            self.status.value = self._before
        return fine

    def begin(self) -> None:
        """Empties the drawer: what begins now has raised nothing yet."""
        self.errors.outputs, self._last = (), ""
        self.drawer.titles = (_NO_ERRORS,)

    def complain(self, error: BaseException) -> None:
        """Shows an exception where the user looks: one line, and all of it in the drawer."""
        self._complaints += 1
        if not self.status.value.startswith(_REFUSED):
            self._before = self.status.value
        self.status.value = f"{_REFUSED}{one_line(error)}"
        self.file("".join(traceback.format_exception(error)), one_line(error))

    def file(self, text: str, reason: str) -> None:
        """Puts a traceback into the drawer, once in a row, and its reason onto it."""
        if text != self._last:
            self.errors.append_stderr(text)
        self._last = text
        self.drawer.titles = (f"errors: {reason}",)

    def on_change(self, widget: w.Widget, action: Callable[[], object]) -> None:
        """Calls an action, guarded, whenever the widget's value changes."""
        widget.observe(lambda _: self.acted(action), names="value")

    def on_click(self, button: w.Button, action: Callable[[], object]) -> None:
        """Calls an action, guarded, whenever the button is clicked."""
        button.on_click(lambda _: self.acted(action))


class Throttle:
    """Calls an action at most every EVERY_S; the last call of a burst is made up for.

    Without an event loop, where nothing could be made up for, every call goes through.
    """

    def __init__(self, action: Callable[[], object]):
        """Takes what to call; it must catch its own exceptions."""
        self._action, self._at, self._due = action, 0.0, False

    def __call__(self) -> None:
        """Calls the action now or, if it was called just before, a little later."""
        wait = self._at - time.monotonic()
        if wait <= 0:
            self._run()
        elif not self._due:
            try:
                asyncio.get_running_loop().call_later(wait, self._run)
                self._due = True
            except RuntimeError:  # no event loop: a script
                self._run()

    def _run(self) -> None:
        self._due = False
        self._action()
        self._at = time.monotonic() + EVERY_S  # from its end: what takes long must not queue up


def pump(job: Background, render: Callable[[], bool]) -> asyncio.Task | None:
    """Renders a job while it runs, and its end, if there is an event loop to do it in.

    Args:
        job: A started one.
        render: Returns whether to go on.
    """

    async def turning() -> None:
        going = True
        while going:
            await asyncio.sleep(EVERY_S)
            going = job.alive
            going &= render()

    with suppress(RuntimeError):  # no event loop: a script, where somebody waits
        return asyncio.get_running_loop().create_task(turning())
    return None


def wait_for(
    job: Background | None, render: Callable[[], object], *, timeout: float | None, what: str
) -> Any:
    """Waits for a job's end, or `timeout` seconds, renders meanwhile, and returns its snapshot.

    For scripts and papermill: while it waits, no button of the notebook reacts.

    Raises:
        UsageError: There is no job.
        Exception: What the job failed with.
    """
    if job is None:
        raise UsageError(f"waiting needs {what}, got none; start one")
    until = time.monotonic() + (math.inf if timeout is None else timeout)
    while job.alive and (left := until - time.monotonic()) > 0:
        job.ended.wait(min(left, EVERY_S))
        render()
    render()
    return job.wait(0)


def table_html(rows: list[tuple[Any, ...]], *, css: str = "", heads: tuple = ()) -> str:
    """Returns rows of text as an HTML table in the theme's colours; the first column is quiet."""
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(text))}</td>" for text in row) + "</tr>"
        for row in rows
    )
    head = f"<thead><tr>{head}</tr></thead>" if heads else ""
    return f'<table class="ktl-table {css}">{head}<tbody>{body}</tbody></table>'
