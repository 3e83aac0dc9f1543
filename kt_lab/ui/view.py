"""What a tuner panel shows: badge, status, picture, incumbent, failures, errors."""

import html
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import ipywidgets as w

from kt_lab.errors import KtLabError
from kt_lab.ui.choices import Known
from kt_lab.ui.controls import button
from kt_lab.ui.picture import progress_png
from kt_lab.ui.progress import IDLE, PAUSED, RUNNING, Snapshot

_SHARE = 2.0  # times what a drawing took goes by before the next
_BUTTONS = {
    "start": ("Starts a search with the settings above.", "play"),
    "pause": ("Holds the search after the trial under way, or goes on.", "pause"),
    "stop": ("Ends the search after the trial under way; what was found is kept.", "stop"),
    "save": ("Stores the trials so far as a table in the folder of recorded data.", "save"),
    "copy": ("Shows the incumbent as a triton.Config to be pasted.", "copy"),
}


class TunerView:
    """The widgets that show a session; `render` is where they change.

    Attributes:
        box: All of them.
        buttons: start, pause, stop, save and copy, by name.
        status: One line.
        image: The picture.
        code: The incumbent as text to be pasted.
        errors: The error drawer.
        renders: How often something was rendered.
    """

    def __init__(self):
        """Makes the widgets, for a session that has not begun."""
        self.badge, self.status = w.HTML(), w.Label(Snapshot().state)
        self.buttons = {
            name: button(name, tooltip, css=f"ktl-{name}", icon=icon)
            for name, (tooltip, icon) in _BUTTONS.items()
        }
        self.image = w.Image(format="png", layout=w.Layout(max_width="100%", display="none"))
        self.card, self.failures = w.HTML(), w.HTML()
        self.code = w.Textarea(
            description="config",
            tooltip="The incumbent as a triton.Config; select and copy.",
            layout=w.Layout(width="auto", display="none"),
        )
        self.errors = w.Output()
        self.drawer = w.Accordion([self.errors], titles=("errors: none",))
        for name in ("badge", "status", "image", "card", "failures", "code", "drawer"):
            getattr(self, name).add_class(f"ktl-{name}")
        row = w.HBox([*self.buttons.values(), self.status])
        facts = w.HBox([self.card, self.failures])
        self.box = w.VBox([row, self.image, facts, self.code, self.drawer])
        self.renders, self._last, self._phase = 0, None, None
        self._drawn, self._draw_at = (), 0.0
        self._enable(Snapshot())

    def render(
        self, snapshot: Snapshot, *, searcher: str, known: Known, badge: Callable[[], str]
    ) -> None:
        """Shows a session's snapshot; nothing changes while the snapshot does not.

        The picture of a running session may be older than the text: drawing takes at most a
        third of the time, which the search shares.

        Args:
            snapshot: What to show.
            searcher: Its name gives the line's look.
            known: What the search is held against.
            badge: Says where it is measured; asked when that may have changed.
        """
        if (snapshot, known) == self._last:
            return
        before, self._last = self._last, (snapshot, known)
        self.renders += 1
        phase = (snapshot.state, snapshot.readings > 0)
        if phase != self._phase:
            self._phase = phase
            self.show_badge(badge())
        self.status.value = status_text(snapshot)
        self.card.value = card_html(snapshot, known)
        self.failures.value = failures_html(snapshot)
        self._enable(snapshot)
        if snapshot.state != RUNNING or time.monotonic() >= self._draw_at:
            self._draw(snapshot, searcher, known)
        if snapshot.error and (before is None or before[0].error != snapshot.error):
            self._file(snapshot.traceback, snapshot.error)

    def complain(self, error: Exception) -> None:
        """Shows an exception where the user looks: one line, and all of it in the drawer."""
        reason = (
            str(error) if isinstance(error, KtLabError) else f"{type(error).__name__}: {error}"
        )
        self.status.value = f"refused: {reason}"
        self._file("".join(traceback.format_exception(error)), reason)

    def show_badge(self, text: str) -> None:
        """Says where is measured."""
        style = "border:1px solid #0173B2;border-radius:4px;padding:0 6px;color:#0173B2"
        self.badge.value = f'<span style="{style}">{html.escape(text)}</span>'

    def show_code(self, text: str) -> None:
        """Shows text to be copied."""
        self.code.value, self.code.layout.display = text, ""

    def saved(self, path: Path) -> None:
        """Says where the trials were stored."""
        self.status.value = f"saved {path}"

    def guarded(self, action: Callable[[], object]) -> bool:
        """Calls an action; shows what it raises and returns whether it raised nothing."""
        try:
            action()
        except Exception as error:  # whatever a handler raises would be seen nowhere else
            self.complain(error)
            return False
        return True

    def _draw(self, snapshot: Snapshot, searcher: str, known: Known) -> None:
        """Draws the curve, if it is another than the last one drawn."""
        if snapshot.curve and snapshot.curve != self._drawn:
            began, self._drawn = time.monotonic(), snapshot.curve
            self.image.value = progress_png(snapshot, searcher=searcher, known=known)
            now = time.monotonic()
            self._draw_at = now + _SHARE * (now - began)
        self.image.layout.display = "" if snapshot.curve else "none"

    def _file(self, text: str, reason: str) -> None:
        self.errors.append_stderr(text)
        self.drawer.titles = (f"errors: {reason.partition(chr(10))[0]}",)

    def _enable(self, snapshot: Snapshot) -> None:
        going = snapshot.alive and not snapshot.stopping
        some = snapshot.readings > 0
        on = {"start": not snapshot.alive, "pause": going, "stop": going}
        for name, wanted in {**on, "save": some, "copy": snapshot.incumbent is not None}.items():
            self.buttons[name].disabled = not wanted
        self.buttons["pause"].description = "resume" if snapshot.state == PAUSED else "pause"


def status_text(snapshot: Snapshot) -> str:
    """Returns the status line."""
    if snapshot.state == IDLE:
        return IDLE
    state = "stopping after the trial under way" if snapshot.stopping else snapshot.state
    said = f"{state}: {snapshot.trials:,} trials in {snapshot.elapsed_s:,.1f} s"
    if snapshot.error:
        return f"{said}; {snapshot.error}"
    return said if snapshot.readings or not snapshot.alive else f"{state}: starting up"


def card_html(snapshot: Snapshot, known: Known) -> str:
    """Returns the incumbent: latency, what it is held against, and its config."""
    if snapshot.incumbent is None:
        return "no incumbent yet"
    judged = snapshot.judged_us
    latency = snapshot.reading_us if judged is None else judged
    rows = [("incumbent, as read", f"{snapshot.reading_us:,.2f} µs")]
    rows += [("judged on other visits", f"{judged:,.2f} µs")] if judged is not None else []
    against = (
        ("the default", snapshot.reference_us),
        ("the optimum", known.optimum_us),
        ("the bytes floor", known.bytes_floor_us),
    )
    rows += [(f"/ {name} ({us:,.2f} µs)", f"{latency / us:.3f}") for name, us in against if us]
    rows += [(name, repr(value)) for name, value in snapshot.incumbent.items()]
    return _table(rows)


def failures_html(snapshot: Snapshot) -> str:
    """Returns how many measurements failed, by status."""
    rows = [(name, f"{n:,}") for name, n in sorted(snapshot.failures.items())]
    rows = [("failures", f"{sum(snapshot.failures.values()):,} of {snapshot.readings:,}"), *rows]
    return _table(rows) if snapshot.readings else ""


def _table(rows: list[tuple[str, str]]) -> str:
    cells = (
        f"<tr><td>{html.escape(name)}</td><td style='padding-left:1em'><b>{html.escape(value)}"
        "</b></td></tr>"
        for name, value in rows
    )
    return f"<table style='line-height:1.3;margin-right:3em'>{''.join(cells)}</table>"
