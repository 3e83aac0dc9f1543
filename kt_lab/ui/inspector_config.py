"""Controls that choose one config of a landscape."""

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as w

from kt_lab.landscape import Landscape
from kt_lab.stats.slices import value_text
from kt_lab.trial import Config
from kt_lab.ui.keyboard import described

OPTIMUM, DEFAULT, CUSTOM, NONE = "optimum", "default", "as chosen", "none"


class ConfigControls:
    """One drop-down per parameter, and one for the configs that everybody asks for.

    Attributes:
        box: The widget to show.
        preset: The optimum, the default, as chosen or none (CSS class ktl-preset-<name>).
        values: One drop-down per parameter, by its name (ktl-<name>-<parameter>).
    """

    def __init__(self, name: str, on_change: Callable[[], object], *, optional: bool):
        """Makes controls without a landscape: `offer` one.

        Args:
            name: "a" or "b".
            on_change: Called once another config is chosen.
            optional: Whether none may be chosen.
        """
        self._name, self._tell, self._quiet = name, on_change, False
        self.preset = w.Dropdown(
            options=[OPTIMUM, DEFAULT, CUSTOM, *([NONE] if optional else [])],
            **described(
                name.upper(),
                f"Which config is {name.upper()}; a value set below makes it one as chosen.",
            ),
        ).add_class(f"ktl-preset-{name}")
        self.preset.observe(lambda _: self._preset_chosen(), names="value")
        self.values: dict[str, w.Dropdown] = {}
        self._slot = w.Box(layout=w.Layout(flex_flow="row wrap"))
        self.box = w.VBox([self.preset, self._slot])

    @property
    def value(self) -> Config | None:
        """The chosen config; None: none.

        Raises:
            SpaceError: The values together are no valid config.
        """
        if self.preset.value == NONE:
            return None
        return self._landscape.space.check({name: v.value for name, v in self.values.items()})

    @value.setter
    def value(self, config: Mapping[str, Any] | None) -> None:
        found = None if config is None else self._landscape.space.check(config)
        presets = {NONE: None, OPTIMUM: self._landscape.best}
        presets[DEFAULT] = self._landscape.space.default
        self._set(found, next((n for n, of in presets.items() if of == found), CUSTOM))
        self._tell()

    def offer(self, landscape: Landscape, preset: str) -> None:
        """Offers the parameters of a landscape, at one of its presets; tells nobody."""
        self._landscape = landscape
        self.values = {p.name: self._dropdown(p) for p in landscape.space.parameters}
        self._slot.children = tuple(self.values.values())
        self._set(self._of(preset), preset)

    def _of(self, preset: str) -> Config | None:
        space = self._landscape.space
        return {OPTIMUM: self._landscape.best, DEFAULT: space.default}.get(preset)

    def _set(self, config: Mapping[str, Any] | None, preset: str) -> None:
        self._quiet = True
        for name, value in (config or {}).items():
            self.values[name].value = value
        self.preset.value = preset
        self._slot.layout.display = "none" if preset == NONE else ""
        self._quiet = False

    def _preset_chosen(self) -> None:
        if not self._quiet:
            self._set(self._of(self.preset.value), self.preset.value)
            self._tell()

    def _value_chosen(self) -> None:
        if not self._quiet:
            self._set(None, CUSTOM)
            self._tell()

    def _dropdown(self, parameter: Any) -> w.Dropdown:
        widget = w.Dropdown(
            options=[(value_text(v), v) for v in parameter.values],
            layout=w.Layout(width="17em"),
            **described(parameter.name, f"{parameter.name} of config {self._name.upper()}."),
        )
        widget.observe(lambda _: self._value_chosen(), names="value")
        return widget.add_class(f"ktl-{self._name}-{parameter.name}")
