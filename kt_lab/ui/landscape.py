"""LandscapePanel: a recorded landscape on two axes, and searches replayed on it."""

import html
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets as w
import pandas as pd

from kt_lab.budget import Budget
from kt_lab.cells import history_table
from kt_lab.errors import UnknownName, UsageError
from kt_lab.landscape import Landscape
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import make_searcher
from kt_lab.stats.slices import landscape_slice, search_path
from kt_lab.study import Drawing
from kt_lab.trial import Config
from kt_lab.ui.background import alive
from kt_lab.ui.choices import usual_workload
from kt_lab.ui.keyboard import keyboard
from kt_lab.ui.landscape_choice import LandscapePicker, SliceControls
from kt_lab.ui.landscape_figure import slice_figure
from kt_lab.ui.landscape_map import LandscapeMap, scale_html
from kt_lab.ui.landscape_view import SearchControls
from kt_lab.ui.landscape_words import (
    cell_config,
    cell_tip,
    landscape_line,
    reading_line,
    run_name,
)
from kt_lab.ui.session import Session
from kt_lab.ui.shell import Shell, Throttle, pump, wait_for

LANES = 16  # compile processes of the simulated machine


class LandscapePanel:
    """A panel on one recorded landscape; each button is a method too.

    Without a browser it does the same: `panel.search()`, `panel.wait()`, `panel.upto = 20`.

    Attributes:
        box: The widget to show; a notebook cell that ends with the panel shows it.
        picker: The controls that choose the landscape.
        slice: The controls of the axes and of the other parameters.
        map: The heat map.
        controls: What is searched, how far its way is shown, and how a figure is saved.
        shell: The status line and the drawer of errors.
        cells: The table that is shown, from `kt_lab.stats.landscape_slice`.
        run: The tidy table of the search that is shown; None: there is none.
        session: The last search that was started here.
    """

    def __init__(
        self,
        workload: str | None = None,
        *,
        name: str = "landscape",
        inspector: Any = None,
        **settings: Any,
    ):
        """Makes the panel; the search of an earlier panel of the same name is stopped.

        Args:
            workload: Key of a recorded workload; None: a softmax, or the first of others.
            name: Of two panels of one name in a process only one searches.
            inspector: A ConfigInspector that takes the chosen configs.
            settings: What else `choose` takes.

        Raises:
            UnknownName: There is no such workload, GPU, parameter or searcher.
        """
        for job in alive(name):
            job.stop()
        self.name, self.inspector = name, inspector
        self.session: Session | None = None
        self.run = self._path = None  # tables of a search
        self._shown = 0  # trials of the session that were shown
        self._build()
        self.choose(workload or usual_workload(), **settings)

    # -- what a user does -----------------------------------------------------------------------

    def choose(
        self,
        workload: str | None = None,
        *,
        gpu: str | None = None,
        x: str | None = None,
        y: str | None = None,
        fixed: Mapping[str, Any] | None = None,
        searcher: str | None = None,
        seed: int | None = None,
        trials: int | None = None,
    ) -> None:
        """Sets the controls, as their widgets do; what is not named stays.

        Args:
            workload: Key of a recorded workload.
            gpu: Short name of the GPU that it was recorded on.
            x: Parameter along the horizontal axis.
            y: Parameter along the vertical axis.
            fixed: Values of other parameters; for those not named the best is taken.
            searcher: Registered name.
            seed: Of searches, >= 0.
            trials: Budget of searches, >= 1.

        Raises:
            UnknownName: There is no such workload, GPU, parameter or searcher.
            UsageError: An axis is doubled or fixed, or a number out of its range.
            SpaceError: A fixed value is not one of the parameter's. Nothing is set then.
        """
        if searcher is not None and searcher not in self.controls.searcher.options:
            raise UnknownName("searcher", searcher, self.controls.searcher.options)
        self.controls.check(seed=seed, trials=trials)
        self.slice.wanted(self.picker.wanted(workload, gpu=gpu), x=x, y=y, fixed=fixed)
        self.picker.choose(workload, gpu=gpu)
        if (x, y, fixed) != (None, None, None):
            self.slice.choose(x=x, y=y, fixed=fixed)
        for name, value in (("searcher", searcher), ("seed", seed), ("trials", trials)):
            if value is not None:
                getattr(self.controls, name).value = value

    @property
    def landscape(self) -> Landscape:
        """The landscape that is shown."""
        return self.picker.landscape

    @property
    def config(self) -> Config | None:
        """The chosen cell's config; None: it has none."""
        return cell_config(self.landscape, self._cell())

    @property
    def upto(self) -> int:
        """How many readings of the search are shown."""
        return self.controls.slider.value

    @upto.setter
    def upto(self, count: int) -> None:
        self.controls.slider.value = count

    def search(self) -> Session:
        """Replays a search in the background, and shows its way while it goes on."""
        if self.session is not None and self.session.alive:
            raise UsageError("a panel runs one search at a time, got one running; stop it first")
        self.shell.begin()
        landscape, of = self.landscape, self.controls
        name, seed, budget = of.searcher.value, of.seed.value, Budget(trials=of.trials.value)
        told = {"workload": landscape.workload, "kernel": landscape.kernel, "gpu": landscape.gpu}
        self.session = Session(
            self.name,
            searcher=partial(make_searcher, name, landscape.space, seed=seed, budget=budget),
            runner=partial(ReplayRunner, landscape, seed=seed, compile_lanes=LANES),
            budget=budget,
            facts=told | {"searcher": name, "lanes": LANES, "seed": seed},
        ).start()
        session, self._shown = self.session, 0
        self.show_run(None)
        self.render()
        self._pump = pump(
            session, lambda: self.session is session and self.shell.guarded(self.render)
        )
        return session

    def stop(self) -> None:
        """Ends the search; its way so far is kept."""
        if self.session is not None:
            self.session.stop()

    def wait(self, timeout: float | None = None) -> pd.DataFrame | None:
        """Waits for the end of the search, or `timeout` seconds; returns the run so far.

        Raises:
            UsageError: Nothing was started.
            Exception: What the search failed with.
        """
        wait_for(self.session, self.render, timeout=timeout, what="a search")
        return self.run

    def show_run(self, run: pd.DataFrame | None) -> None:
        """Lays one run over the map; None: takes it away.

        Args:
            run: The tidy table of one run on this landscape, from an experiment or a study.

        Raises:
            UsageError: It holds several runs, or one of another landscape.
        """
        path, of = None, self.slice
        if run is not None:
            path = search_path(self.landscape, run, of.x.value, of.y.value, fixed=of.fixed)
        self.run, self._path = run, path
        self.controls.fit(0 if run is None else len(run))
        self._trail()

    def step(self, by: int = 1) -> None:
        """Shows so many readings more, or less."""
        self.upto = min(max(self.upto + by, 0), self.controls.slider.max)

    def replay(self) -> None:
        """Plays the search from its first reading; the browser turns the pages."""
        self.controls.replay()

    def drawing(self, *, venue: str | None = None, width: str = "column") -> Drawing:
        """Returns what is shown as a figure for a paper, with its points and caption."""
        shown = None if self.run is None else self.run.sort_values("trial").head(self.upto)
        return slice_figure(
            self.landscape,
            self.slice.x.value,
            self.slice.y.value,
            fixed=self.slice.fixed,
            run=shown if shown is not None and len(shown) else None,
            venue=venue or self.controls.venue.value,
            width=width,
        )

    def save(
        self, name: str | None = None, *, directory: str | Path = "figures"
    ) -> dict[str, Path]:
        """Writes `drawing` as pdf, png, csv and json; returns their paths."""
        stem = f"{self.landscape.workload}_{self.slice.x.value}_{self.slice.y.value}"
        paths = self.drawing().save(name or stem.replace("/", "_"), directory=directory)
        self.shell.status.value = f"saved {', '.join(str(path) for path in paths.values())}"
        return paths

    def render(self) -> None:
        """Shows the session's state and its way so far."""
        if self.session is None:
            return
        found = self.session.snapshot()
        facts, of = self.session.facts, self.picker
        same = (facts["workload"], facts["gpu"]) == (of.workload.value, of.gpu.value)
        if same and found.readings > self._shown:
            run = history_table(self.session.history, facts=facts)
            self._shown = len(run)
            self.show_run(run)
        self.controls.buttons["search"].disabled = found.alive
        self.controls.buttons["stop"].disabled = not found.alive
        where = "" if same else f" on {facts['workload']}, {facts['gpu']}"
        said = f"{found.state}: {found.trials:,} trials of {run_name(facts)}{where}"
        self.shell.status.value = f"{said}; {found.error}" if found.error else said
        if found.error:
            self.shell.file(found.traceback, found.error)

    # -- small steps ----------------------------------------------------------------------------

    def _build(self) -> None:
        self.shell, self._show = Shell(), Throttle(lambda: self.shell.guarded(self._trail))
        self.map = LandscapeMap(self._cell_chosen)
        self.slice = SliceControls(lambda: self.shell.acted(self._sliced))
        self._facts = w.HTML().add_class("ktl-told")
        self.controls = SearchControls(inspecting=self.inspector is not None)
        self.controls.slider.observe(lambda _: self._show(), names="value")
        actions = {
            "search": self.search,
            "stop": self.stop,
            "replay": self.replay,
            "back": lambda: self.step(-1),
            "step": self.step,
            "save": self.save,
            "to-a": lambda: self._hand_over("a"),
            "to-b": lambda: self._hand_over("b"),
        }
        for name, action in actions.items():
            self.shell.on_click(self.controls.buttons[name], action)
        self.show_run(None)
        self.picker = LandscapePicker(lambda: self.shell.acted(self._landscape_chosen))
        head = [self._facts, self.picker.box, self.slice.box, self.map.box, w.HTML(scale_html())]
        rest = [*self.controls.rows, self.shell.status, self.shell.drawer]
        self.box = w.VBox([keyboard(), *head, *rest]).add_class("ktl-landscape")

    def _landscape_chosen(self) -> None:
        self.run, self._shown = None, 0  # it belongs to another landscape
        self.slice.offer(self.landscape)
        self._facts.value = html.escape(landscape_line(self.landscape))
        self.render()  # a search of this one, if there is any

    def _sliced(self) -> None:
        """Shows the slice that the controls say, and the run on it."""
        x, y, fixed = self.slice.x.value, self.slice.y.value, self.slice.fixed
        self.cells = landscape_slice(self.landscape, x, y, fixed=fixed)
        self.map.show(self.cells, [cell_tip(self.landscape, c) for c in self.cells.itertuples()])
        upto, same = self.upto, self.run is not None
        self.show_run(self.run)
        self.upto = upto if same else 0

    def _trail(self) -> None:
        self.map.trace(self._path, self.upto)
        self.controls.now.value = (
            "no search shown"
            if self._path is None
            else f"{reading_line(self._path, self.upto)} ({run_name(self.run.iloc[0])})"
        )

    def _cell(self) -> Any:
        x, y = self.map.chosen
        found = self.cells[(self.cells["x_index"] == x) & (self.cells["y_index"] == y)]
        return next(found.itertuples())

    def _cell_chosen(self) -> None:
        cell = self._cell()
        text = html.escape(cell_tip(self.landscape, cell))
        self.map.details.value = f'<pre class="ktl-axis">chosen cell\n{text}</pre>'
        for name in ("to-a", "to-b"):
            self.controls.buttons[name].disabled = self.config is None

    def _hand_over(self, which: str) -> None:
        if self.inspector is None or self.config is None:
            raise UsageError("to inspect a config choose a cell that has one, and an inspector")
        here = self.landscape
        self.inspector.choose(here.workload, gpu=here.gpu, **{which: self.config})

    def _repr_mimebundle_(self, **given: Any) -> Any:
        """Shows the panel where a notebook cell ends with it."""
        return self.box._repr_mimebundle_(**given)
