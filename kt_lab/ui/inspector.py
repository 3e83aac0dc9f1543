"""ConfigInspector: what is known of one config of a landscape, or of two side by side."""

import importlib.util
from collections.abc import Mapping
from typing import Any

import ipywidgets as w

from kt_lab.errors import SpaceError, UsageError
from kt_lab.landscape import Landscape
from kt_lab.plots import png_bytes
from kt_lab.stats.configs import differing_parameters, inspect_config, neighbours_table
from kt_lab.trial import OK, Config
from kt_lab.ui.background import alive
from kt_lab.ui.choices import usual_workload
from kt_lab.ui.controls import button, dropdown
from kt_lab.ui.inspector_code import CodeComparison, CodeSnapshot, kinds
from kt_lab.ui.inspector_config import DEFAULT, OPTIMUM, ConfigControls
from kt_lab.ui.inspector_words import diff_html, differing_html, facts_html, neighbour_options
from kt_lab.ui.keyboard import described, keyboard
from kt_lab.ui.landscape_choice import LandscapePicker
from kt_lab.ui.landscape_figure import roofline_figure
from kt_lab.ui.landscape_map import CSS
from kt_lab.ui.shell import Shell, Throttle, pump, wait_for

_DPI = 130


class ConfigInspector:
    """A panel on one config or two of a recorded landscape.

    Without a browser it does the same: `inspector.choose(a=...)`, `inspector.compare()`,
    `inspector.wait()`; what it shows is `kt_lab.stats.inspect_config`, `neighbours_table`,
    `differing_parameters`, `roofline_figure` and `kt_lab.inspect.diff`.

    Attributes:
        box: The widget to show; a notebook cell that ends with the inspector shows it.
        picker: The controls that choose the landscape.
        controls: Those that choose the configs, by "a" and "b".
        kind: The drop-down of what the code is compared as.
        job: The last comparison of code; None: there was none.
    """

    def __init__(self, workload: str | None = None, *, name: str = "inspector", **settings: Any):
        """Makes the panel: A is the optimum, B the default.

        Args:
            workload: Key of a recorded workload; None: a softmax, or the first of others.
            name: Of two inspectors of one name in a process only one compiles.
            settings: What else `choose` takes.

        Raises:
            UnknownName: There is no such workload or GPU.
        """
        for job in alive(name):
            job.stop()
        self.name, self.job = name, None
        self._drawn: tuple = ()
        self._build()
        self.choose(workload or usual_workload(), **settings)

    # -- what a user does -----------------------------------------------------------------------

    def choose(
        self,
        workload: str | None = None,
        *,
        gpu: str | None = None,
        a: Mapping[str, Any] | None = None,
        b: Mapping[str, Any] | None = None,
    ) -> None:
        """Sets the controls, as their widgets do; what is not named stays.

        Another landscape has its own configs: A is its optimum then, and B its default.

        Args:
            workload: Key of a recorded workload.
            gpu: Short name of the GPU that it was recorded on.
            a: Values of every parameter.
            b: The same, of the other config.

        Raises:
            UnknownName: There is no such workload or GPU.
            SpaceError: A config is not valid.
        """
        self.picker.choose(workload, gpu=gpu)
        for controls, config in zip(self.controls.values(), (a, b), strict=True):
            if config is not None:
                controls.value = config

    @property
    def landscape(self) -> Landscape:
        """The landscape that is inspected."""
        return self.picker.landscape

    @property
    def configs(self) -> dict[str, Config]:
        """The chosen configs by "A" and, if there is one, "B"; raises SpaceError."""
        found = {name.upper(): controls.value for name, controls in self.controls.items()}
        return {name: config for name, config in found.items() if config is not None}

    def walk(self) -> None:
        """Makes the neighbour that is selected in the list A."""
        if self.neighbours.value is None:
            raise UsageError("a walk needs a neighbour, got none selected; select one")
        space = self.landscape.space
        self.controls["a"].value = space.config(space.enumerate()[self.neighbours.value])

    def compare(self) -> CodeComparison:
        """Compiles A and B in worker processes and shows how their code differs."""
        if self.job is not None and self.job.alive:
            raise UsageError("an inspector compiles one pair at a time, got one running; wait")
        configs, kind = self.configs, self.kind.value
        if len(configs) < 2 or kind is None:
            raise UsageError(
                f"code is compared of two configs on a known target, got {len(configs)} and "
                f"kind {kind}; choose A and B"
            )
        self.job = job = CodeComparison(
            self.name, self.landscape, configs["A"], configs["B"], kind=kind
        ).start()
        self._kind, self._compared = kind, (self.landscape, configs)
        self.render()
        self._pump = pump(job, lambda: self.job is job and self.shell.guarded(self.render))
        return job

    def wait(self, timeout: float | None = None) -> CodeSnapshot:
        """Waits for the comparison of code, or `timeout` seconds.

        Raises:
            UsageError: Nothing was started.
            Exception: What it failed with.
        """
        return wait_for(self.job, self.render, timeout=timeout, what="a comparison of code")

    def render(self) -> None:
        """Shows how far the comparison of code is."""
        if self.job is None:
            return
        found = self.job.snapshot()
        self.buttons["compare"].disabled = found.state == "running" or not self._compiler
        if not self._is_shown(*self._compared):  # other configs were chosen since
            if found.error:
                self.shell.status.value = f"the configs before, as {self._kind}: {found.error}"
            return
        self.shell.status.value = f"comparing {self._kind}: {found.error or found.state}"
        if found.error:
            self.shell.file(found.traceback, found.error)
        if found.state == "done":
            self.code.value = diff_html(found.text, self._kind)

    # -- small steps ----------------------------------------------------------------------------

    def _is_shown(self, landscape: Landscape, configs: Mapping[str, Config]) -> bool:
        """Tells whether these are what the controls say."""
        try:
            return self.landscape is landscape and self.configs == configs
        except SpaceError:
            return False

    def _build(self) -> None:
        self.shell, self._show = Shell(), Throttle(lambda: self.shell.guarded(self._refresh))
        self.controls = {
            name: ConfigControls(name, self._show, optional=name == "b") for name in ("a", "b")
        }
        self.facts, self.differing, self.code = (
            w.HTML().add_class(f"ktl-{name}") for name in ("facts", "differing", "diff")
        )
        self.image = w.Image(format="png", layout=w.Layout(max_width="440px", height="auto"))
        self.image.add_class("ktl-roofline")
        self.neighbours = w.Select(
            rows=9,
            layout=w.Layout(width="46em"),
            **described(
                "neighbours",
                "Configs one step from A: latency ratio to A, and its range over the visits.",
            ),
        ).add_class("ktl-neighbours")
        self.kind = dropdown("kind", "What the code is compared as.")
        known = {
            "walk": ("walk there", "Makes the selected neighbour A.", "arrow-right"),
            "compare": ("compare code", "Compiles A and B and shows what differs.", "code"),
        }
        self.buttons = {
            name: button(text, tip, css=f"ktl-{name}", icon=icon)
            for name, (text, tip, icon) in known.items()
        }
        missing = [m for m in ("torch", "triton") if importlib.util.find_spec(m) is None]
        self._compiler = not missing
        if missing:
            self.buttons["compare"].tooltip = f"Needs {' and '.join(missing)}, not installed here."
            self.buttons["compare"].disabled = True
        self.shell.on_click(self.buttons["walk"], self.walk)
        self.shell.on_click(self.buttons["compare"], self.compare)
        self.picker = LandscapePicker(lambda: self.shell.acted(self._landscape_chosen))
        wrap = w.Layout(flex_flow="row wrap", grid_gap="0 2em")
        self.box = w.VBox(
            [
                keyboard(),
                w.HTML(CSS),
                self.picker.box,
                *(controls.box for controls in self.controls.values()),
                w.HBox([self.facts, w.VBox([self.differing, self.image])], layout=wrap),
                w.HBox([self.neighbours, self.buttons["walk"]]),
                w.HBox([self.kind, self.buttons["compare"], self.shell.status]),
                self.code,
                self.shell.drawer,
            ]
        ).add_class("ktl-inspector")

    def _landscape_chosen(self) -> None:
        landscape = self.landscape
        for name, preset in (("a", OPTIMUM), ("b", DEFAULT)):
            self.controls[name].offer(landscape, preset)
        offered = kinds(landscape)
        self.kind.options = offered
        self.kind.value = "ttgir" if "ttgir" in offered else None
        self._refresh()

    def _refresh(self) -> None:
        """Shows what is known of the chosen configs."""
        for shown in (self.facts, self.differing, self.code, self.shell.status):
            shown.value = ""  # nothing stays of another config, should this one be refused
        self.neighbours.options = ()
        try:
            landscape, configs = self.landscape, self.configs
        except Exception:
            self.image.value, self._drawn = b"", ()
            raise
        facts = {name: inspect_config(landscape, config) for name, config in configs.items()}
        self.facts.value = facts_html(facts)
        both = len(configs) == 2
        self.differing.value = (
            differing_html(differing_parameters(configs["A"], configs["B"])) if both else ""
        )
        table = neighbours_table(landscape, configs["A"])
        self.neighbours.options = neighbour_options(table)
        self.neighbours.index = 0 if len(table) else None
        self._roofline(configs)

    def _roofline(self, configs: Mapping[str, Config]) -> None:
        """Draws where the configs stand, the default and the optimum beside them, once each."""
        landscape = self.landscape
        known = configs | {"default": landscape.space.default, "optimum": landscape.best}
        named: dict[Config, list[str]] = {}
        for name, config in known.items():
            if landscape.status[landscape.space.index(config)] == OK:
                named.setdefault(config, []).append(name)
        drawn = (id(landscape), tuple(named), tuple(map(tuple, named.values())))
        if drawn != self._drawn:
            self._drawn = drawn
            points = {" = ".join(names): config for config, names in named.items()}
            try:
                figure = roofline_figure(landscape, points).figure
            except Exception:
                self.image.value = b""  # nothing stays of another landscape
                raise
            self.image.value = png_bytes(figure, dpi=_DPI)

    def _repr_mimebundle_(self, **given: Any) -> Any:
        """Shows the inspector where a notebook cell ends with it."""
        return self.box._repr_mimebundle_(**given)
