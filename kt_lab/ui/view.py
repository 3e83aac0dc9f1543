"""What a tuner panel shows: badge, status, picture, incumbent, failures, errors."""

import html
import time
from collections.abc import Callable
from pathlib import Path

import ipywidgets as w

from kt_lab.live import Confirmed
from kt_lab.ui.choices import Known
from kt_lab.ui.controls import button
from kt_lab.ui.keyboard import described
from kt_lab.ui.picture import progress_png
from kt_lab.ui.progress import IDLE, PAUSED, RUNNING, Snapshot
from kt_lab.ui.session import ConfirmSnapshot
from kt_lab.ui.shell import Shell

_SHARE = 2.0  # times what a drawing took goes by before the next
_BUTTONS = {
    "start": ("Starts a search with the settings above.", "play"),
    "pause": ("Holds the search after the trial under way, or goes on.", "pause"),
    "stop": ("Ends the search after the trial under way; what was found is kept.", "stop"),
    "save": ("Stores the trials so far as a table in the folder of recorded data.", "save"),
    "copy": ("Shows the incumbent as a triton.Config to be pasted.", "copy"),
    "confirm": ("Times the best against the default anew and stores the winner; live.", "check"),
}


class TunerView(Shell):
    """The widgets that show a session; `render` is where they change.

    Attributes:
        box: All of them.
        buttons: start, pause, stop, save, copy and confirm, by name.
        image: The picture.
        code: The incumbent as text to be pasted.
        renders: How often something was rendered.
    """

    def __init__(self):
        """Makes the widgets, for a session that has not begun."""
        super().__init__()
        self.badge, self.status.value = w.HTML(), Snapshot().state
        self.buttons = {
            name: button(name, tooltip, css=f"ktl-{name}", icon=icon)
            for name, (tooltip, icon) in _BUTTONS.items()
        }
        self.image = w.Image(format="png", layout=w.Layout(max_width="100%", display="none"))
        self.card, self.failures = w.HTML(), w.HTML()
        self.code = w.Textarea(
            layout=w.Layout(width="auto", display="none"),
            **described("config", "The incumbent as a triton.Config; select and copy."),
        )
        for name in ("badge", "image", "card", "failures", "code"):
            getattr(self, name).add_class(f"ktl-{name}")
        row = w.HBox([*self.buttons.values(), self.status])
        facts = w.HBox([self.card, self.failures])
        self.box = w.VBox([row, self.image, facts, self.code, self.drawer])
        self.renders, self._seen, self._phase = 0, None, None
        self._drawn, self._draw_at = (), 0.0
        self._enable(Snapshot(), live=False)

    def render(
        self,
        snapshot: Snapshot,
        *,
        searcher: str,
        known: Known,
        badge: Callable[[], str],
        live: bool = False,
        confirming: ConfirmSnapshot | None = None,
    ) -> None:
        """Shows a session's snapshot; nothing changes while the snapshot does not.

        The picture of a running session may be older than the text: drawing takes at most a
        third of the time, which the search shares.

        Args:
            snapshot: What to show.
            searcher: Its name gives the line's look.
            known: What the search is held against.
            badge: Says where it is measured; asked when that may have changed.
            live: Whether a GPU measures.
            confirming: How far the confirmation of the finalists is; None: there is none.
        """
        if (snapshot, known, confirming) == self._seen:
            return
        self._seen = (snapshot, known, confirming)
        self.renders += 1
        phase = (snapshot.state, snapshot.readings > 0, confirming and confirming.state)
        if phase != self._phase:
            self._phase = phase
            self.show_badge(badge())
        self.status.value = status_text(snapshot) if not confirming else confirm_text(confirming)
        self.card.value = card_html(snapshot, known, confirming and confirming.found)
        self.failures.value = failures_html(snapshot)
        self._enable(snapshot, live=live, confirming=confirming)
        if snapshot.state != RUNNING or time.monotonic() >= self._draw_at:
            self._draw(snapshot, searcher, known)
        for each in (snapshot, confirming):
            if each is not None and each.error:
                self.file(each.traceback, each.error)

    def begin(self) -> None:
        """Empties the drawer, and takes away the config of the search before."""
        super().begin()
        self.code.value, self.code.layout.display = "", "none"

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

    def _draw(self, snapshot: Snapshot, searcher: str, known: Known) -> None:
        """Draws the curve, if it is another than the last one drawn."""
        if snapshot.curve and snapshot.curve != self._drawn:
            began, self._drawn = time.monotonic(), snapshot.curve
            self.image.value = progress_png(snapshot, searcher=searcher, known=known)
            now = time.monotonic()
            self._draw_at = now + _SHARE * (now - began)
        self.image.layout.display = "" if snapshot.curve else "none"

    def _enable(
        self, snapshot: Snapshot, *, live: bool, confirming: ConfirmSnapshot | None = None
    ) -> None:
        going = snapshot.alive and not snapshot.stopping
        racing = confirming is not None and confirming.state == RUNNING
        some, found = snapshot.readings > 0, snapshot.incumbent is not None
        rest = not snapshot.alive and not racing
        on = {"start": rest, "pause": going, "stop": going or (racing and not confirming.stopping)}
        on |= {"save": some, "copy": found, "confirm": rest and found and live}
        for name, wanted in on.items():
            self.buttons[name].disabled = not wanted
        self.buttons["pause"].description = "resume" if snapshot.state == PAUSED else "pause"


def status_text(snapshot: Snapshot) -> str:
    """Returns the status line."""
    if snapshot.state == IDLE:
        return IDLE
    state = "stopping after the trial under way" if snapshot.stopping else snapshot.state
    said = f"{state}: {snapshot.trials:,} trials in {snapshot.elapsed_s:,.1f} s"
    if recalled := min(snapshot.recalled, snapshot.readings):
        said += f", {recalled:,} readings from the journal"
    if snapshot.error:
        return f"{said}; {snapshot.error}"
    return said if snapshot.readings or not snapshot.alive else f"{state}: starting up"


def confirm_text(confirming: ConfirmSnapshot) -> str:
    """Returns the status line of a confirmation."""
    if confirming.found is not None:
        told = confirming.found.confirmation
        return f"confirmed: {told.reason}; stored in {confirming.found.path}"
    if confirming.error:
        return f"the confirmation failed: {confirming.error}"
    return "confirming the finalists" if confirming.state == RUNNING else confirming.state


def confirmed_rows(found: Confirmed) -> list[tuple[str, str]]:
    """Returns the rows of a confirmed winner: what fresh readings say of it."""
    winner, rows = found.winner, []
    stays = "" if found.confirmation.replaced else " (the default stays)"
    if winner.latency_us is not None:
        rows.append((f"confirmed{stays}", f"{winner.latency_us:,.2f} µs"))
    else:
        rows.append(("confirmed", "the default stays"))
    if winner.ratio is not None:
        said = f"{winner.ratio:.3f} [{winner.low:.3f}, {winner.high:.3f}]"
        rows.append(("confirmed / the default", said))
    if winner.p_best is not None:
        rows.append(("probability of being best", f"{winner.p_best:.2f}"))
    return rows


def card_html(snapshot: Snapshot, known: Known, confirmed: Confirmed | None = None) -> str:
    """Returns the incumbent: latency, what it is held against, and its config.

    With a confirmation, the fresh readings come first and the config is the winner's.
    """
    if snapshot.incumbent is None:
        return "no incumbent yet"
    judged = snapshot.judged_us
    latency = snapshot.reading_us if judged is None else judged
    rows = [] if confirmed is None else confirmed_rows(confirmed)
    rows += [("incumbent, as read", f"{snapshot.reading_us:,.2f} µs")]
    rows += [("judged on other visits", f"{judged:,.2f} µs")] if judged is not None else []
    against = (
        ("the default", snapshot.reference_us),
        ("the optimum", known.optimum_us),
        ("the bytes floor", known.bytes_floor_us),
    )
    rows += [(f"/ {name} ({us:,.2f} µs)", f"{latency / us:.3f}") for name, us in against if us]
    config = snapshot.incumbent if confirmed is None else confirmed.winner.config
    rows += [(name, repr(value)) for name, value in config.items()]
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
