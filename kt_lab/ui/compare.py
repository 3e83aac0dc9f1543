"""ComparePanel: which searcher finds more, on which workloads, at what cost; runs and figures."""

import asyncio
import dataclasses
import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets as w
import pandas as pd

from kt_lab.comparison import finished_part
from kt_lab.errors import UsageError
from kt_lab.landscape import data_directory
from kt_lab.plots import VENUES
from kt_lab.studies import REFERENCE, SEARCHERS
from kt_lab.trial import OK
from kt_lab.ui.background import alive
from kt_lab.ui.compare_choice import CompareChoice
from kt_lab.ui.compare_view import CompareView
from kt_lab.ui.compared import Compared, Shown
from kt_lab.ui.comparing import CompareSession, CompareSnapshot
from kt_lab.ui.controls import offer
from kt_lab.ui.keyboard import keyboard
from kt_lab.ui.progress import DONE
from kt_lab.ui.shell import EVERY_S, Throttle, pump

ALL = "all workloads"
_ROUGH = 500  # resamples of intervals that are drawn anew in a moment
_SHARE = 2.0  # times what a drawing took goes by before the next, while runs are computed


class ComparePanel:
    """A panel on one comparison at a time; each button is a method of the same name.

    Without a browser it does the same: `panel.start()`, `panel.wait()`, `panel.export()`; and
    without a panel: `kt_lab.comparison.compare`, `incumbent_figure` and `target_figure`.

    Attributes:
        box: The widget to show; a notebook cell that ends with the panel shows it.
        view: The widgets that show the comparison.
        session: The current one; None before the first start.
        compared: The finished runs that are shown (`compared.runs`).
        choice: The controls of what is compared.
    """

    def __init__(
        self,
        searchers: Sequence[str] = SEARCHERS,
        workloads: Sequence[str] | None = None,
        *,
        name: str = "compare",
        directory: Path | str | None = None,
        **settings: Any,
    ):
        """Makes the panel; the comparison of an earlier panel of the same name is stopped.

        Args:
            searchers: Chosen at first: registered ones, peers.
            workloads: Chosen at first; None: the first recorded one of every kernel.
            name: Of two panels of one name in a process only one runs.
            directory: Where finished runs are kept; None: `comparisons` in the folder of
                recorded data.
            settings: What else `choose` takes.

        Raises:
            UnknownName: There is no such searcher, workload, source or option.
        """
        for job in alive(name):
            job.stop()
        self.name, self.session = name, None
        self._directory = directory
        self._pump_task: asyncio.Task | None = None
        self.compared = Compared()
        self._draw_at, self._settling = 0.0, False
        self._drawn = (0, True)  # how many runs, and whether more were to come
        self._picked: dict[w.ValueWidget, Any] = {}  # by the user: they outlast new options
        self._draw = Throttle(lambda: self.view.guarded(self.show))
        self.view = CompareView()
        self.choice = CompareChoice(self.view)
        self._build()
        if "gpu" in settings:  # it says which workloads there are to be the first
            self.choose(gpu=settings["gpu"])
        workloads = self.choice.firsts() if workloads is None else workloads
        self.choose(searchers=searchers, workloads=workloads, **settings)

    # -- what a user does -----------------------------------------------------------------------

    def choose(self, **settings: Any) -> None:
        """Sets the controls of what is compared; see `CompareChoice.choose`."""
        self.choice.choose(**settings)

    def start(self) -> CompareSession:
        """Runs the comparison that the controls ask for, or opens it; returns its session."""
        if self.session is not None and self.session.alive:
            raise UsageError("a panel runs one comparison at a time, got one running; stop it")
        self.session = self._session()
        self._asked = self.choice.facts()  # of these runs: the controls may move on
        self._drawn = (0, True)
        self.compared = Compared()
        self.view.begin()
        self.view.draw({})  # another comparison's figures are not this one's
        self.session.start()
        self.view.render(self.session.snapshot())
        self._pump_task = pump(self.session, partial(self._turn, self.session))
        return self.session

    def stop(self) -> None:
        """Ends the comparison after the runs under way; all finished runs are kept."""
        self._started("stop").stop()
        self.view.render(self.session.snapshot())

    def wait(self, timeout: float | None = None) -> CompareSnapshot:
        """Waits for the end of the comparison, or `timeout` seconds, and shows it meanwhile.

        For scripts and papermill: while it waits, no button of the notebook reacts.

        Raises:
            UsageError: Nothing was started.
            Exception: What the comparison failed with.
        """
        session = self._started("wait")
        until = time.monotonic() + (math.inf if timeout is None else timeout)
        while session.alive and (left := until - time.monotonic()) > 0:
            session.ended.wait(min(left, EVERY_S))
            self.render()
        self.render()
        return session.wait(0)

    def render(self) -> None:
        """Shows the session's progress and, as often as drawing allows, its figures."""
        snapshot = self.session.snapshot()
        self.view.render(snapshot)
        due = not snapshot.alive or time.monotonic() >= self._draw_at
        if due and (snapshot.done, snapshot.alive) != self._drawn:  # once more at the end, finely
            self._drawn = (snapshot.done, snapshot.alive)
            self.view.guarded(lambda: self._take(self.session))
        if not snapshot.alive:
            self.choice.refresh()
            if snapshot.done and not _measured(self.session.runs()):
                self.view.unmeasured()

    def show(self) -> None:
        """Draws the finished runs, as the controls of the view say."""
        if self.compared.runs.empty:
            return
        began = time.monotonic()
        going = self.session is not None and self.session.alive
        how = {"resamples": _ROUGH} if going else {}
        self.view.draw(self.compared.drawings(self._shown(), **how))
        now = time.monotonic()
        self._draw_at = now + _SHARE * (now - began)

    def export(
        self, name: str | None = None, directory: Path | str | None = None
    ) -> dict[str, dict[str, Path]]:
        """Writes the figures as pdf, png, csv and json at the chosen venue's size.

        Args:
            name: Stem of the files; None: what the control says.
            directory: None: what the control says.

        Returns:
            The paths of "incumbents" and "ratios", by kind.
        """
        if self.compared.runs.empty:
            raise UsageError("an export needs finished runs, got none; start a comparison")
        stem = self.view.figure_name.value if name is None else name
        folder = Path(self.view.folder.value if directory is None else directory)
        shown = {"shown": dataclasses.asdict(self._shown())}
        origin = {"panel": self._asked | shown}
        page = {"venue": self.view.venue.value, "width": self.view.width.value}
        drawn = self.compared.drawings(self._shown(), **page)
        paths = {
            kind: drawing.save(f"{stem}_{kind}", directory=folder, provenance=origin)
            for kind, drawing in drawn.items()
        }
        self.view.exported(paths)
        return paths

    # -- small steps ----------------------------------------------------------------------------

    def _turn(self, session: CompareSession) -> bool:
        """Renders the session while it is this panel's; returns whether to go on."""
        return self.session is session and self.view.guarded(self.render)

    def _started(self, verb: str) -> CompareSession:
        if self.session is None:
            raise UsageError(f"to {verb}, a comparison must have been started, got none; start")
        return self.session

    def _take(self, session: CompareSession) -> None:
        """Takes the runs that are finished by now, and offers what they hold."""
        runs = session.runs()
        runs = runs if session.snapshot().state == DONE else finished_part(runs)
        self.compared = Compared(runs, session.optima) if _measured(runs) else Compared()
        names = {name: self.compared.names(name) for name in ("searcher", "workload", "lanes")}
        if not names["searcher"]:
            return
        view = self.view
        self._settling = True  # the new options draw nothing each: one drawing follows
        try:
            for menu, wanted, first in (
                (view.reference, names["searcher"], REFERENCE),
                (view.shown, [*names["workload"], ALL], None),
                (view.lanes, names["lanes"], names["lanes"][-1]),
            ):
                if list(menu.options) != wanted:
                    menu.options = wanted
                    liked = [x for x in (self._picked.get(menu), first) if x in wanted]
                    menu.value = liked[0] if liked else wanted[0]
        finally:
            self._settling = False
        self.show()

    def _shown(self) -> Shown:
        view = self.view
        return Shown(
            lanes=view.lanes.value,
            workload=None if view.shown.value == ALL else view.shown.value,
            x=view.x.value,
            band=view.band.value,
            reference=view.reference.value,
            within=view.target.value / 100,
        )

    def _session(self) -> CompareSession:
        """Returns a session of what the controls say, not started."""
        folder = self._directory or data_directory() / "comparisons"
        workers = self.choice.options.value["workers"]
        return CompareSession(
            self.name, source=self.choice.source_of(), directory=folder, workers=workers
        )

    # -- the widgets ----------------------------------------------------------------------------

    def _build(self) -> None:
        view = self.view
        view.on_change(view.venue, self._venue_chosen)
        self._venue_chosen()
        for menu in (view.x, view.band, view.shown, view.reference, view.lanes, view.target):
            view.on_change(menu, partial(self._changed, menu))
        for name in ("start", "stop", "export"):
            view.on_click(view.buttons[name], getattr(self, name))
        self.box = w.VBox([keyboard(), self.choice.box, view.box]).add_class("ktl-compare")

    def _changed(self, menu: w.ValueWidget) -> None:
        if not self._settling:
            self._picked[menu] = menu.value
            self._draw()

    def _venue_chosen(self) -> None:
        offer(self.view.width, VENUES[self.view.venue.value].widths)

    def _repr_mimebundle_(self, **given: Any) -> Any:
        """Shows the panel where a notebook cell ends with it."""
        return self.box._repr_mimebundle_(**given)


def _measured(runs: pd.DataFrame) -> bool:
    """Whether any trial of some runs gave a latency."""
    return not runs.empty and bool((runs["status"] == OK).any())
