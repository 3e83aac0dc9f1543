"""Widgets that edit a searcher's options and the allowed values of a space."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as w

from kt_lab.errors import UnknownName
from kt_lab.runners.workers import usable_cores
from kt_lab.search.base import Options, kinds_of, option
from kt_lab.space import ParameterSpace
from kt_lab.transfer import KNOWLEDGE
from kt_lab.ui.keyboard import described
from kt_lab.ui.restriction import count_text

_NAMES = {"description_width": "13em"}
_FIELD = w.Layout(width="25em")
_ROW = w.Layout(align_items="center")
_INTEGER = 2**53 - 1  # the largest that the browser keeps exactly
_REAL = 1e300
_FIRST = {"seconds": 60.0, "workers": usable_cores()}  # what an unset option starts from
_MOST_ROWS = 6  # of a list of values; longer ones scroll
_VALUES = "Values of {} that the search may use; Ctrl-click for several."


@dataclasses.dataclass(frozen=True)
class RunOptions(Options):
    """How long to search, and with what chance."""

    trials: int | None = option(
        200, "Budget: configs measured at most, failures included.", unit="configs", low=1
    )
    seconds: float | None = option(
        None, "Budget of machine seconds: compiling and timing.", unit="s", low=0.001
    )
    seed: int = option(0, "Fixes every random choice.", low=0, high=2**53 - 1)
    lanes: int = option(16, "Compile processes; simulated ones in a replay.", low=1, high=1024)
    known: str = option(
        "nothing",
        "What the search starts from: nothing, recordings of the kernel's other shapes, or also "
        "stored runs at the shapes nearest. Scout makes most of it.",
        choices=tuple(KNOWLEDGE),
    )
    afresh: bool = option(
        False, "Live runs: measure again, instead of going on with the journal of this search."
    )


Guard = Callable[[Callable[[], object]], object]


def _plainly(action: Callable[[], object]) -> None:
    """Calls an action; without a panel what it raises has no better place."""
    action()


class OptionControls:
    """One row of widgets per field of an options dataclass, and a reset button.

    Attributes:
        box: The widget to show.
        kind: The dataclass.
    """

    def __init__(
        self, kind: type, *, value: Mapping[str, Any] | None = None, guard: Guard = _plainly
    ):
        """Makes the widgets.

        Args:
            kind: A frozen dataclass of `kt_lab.search.base.option` fields. A field of a type of
                the searcher's own gets no widget and keeps its default.
            value: Options that differ from the defaults.
            guard: Calls what the reset button does; a panel's shows what it raises.
        """
        self.kind = kind
        fields = {f.name: f for f in dataclasses.fields(kind)}
        rows = {name: _row(f, kinds_of(kind, f)) for name, f in fields.items()}
        self._rows = {name: row for name, row in rows.items() if row is not None}
        self._default = {name: fields[name].default for name in self._rows}
        reset = button("reset", "Sets every option back to its default.", css="ktl-reset")
        reset.on_click(lambda _: guard(self.reset))
        boxes = [row.box for row in self._rows.values()]
        self.box = w.VBox([*boxes, reset] if boxes else [w.Label("no options")])
        self.value = dict(value or {})

    @property
    def value(self) -> dict[str, Any]:
        """What the widgets say: every option by name."""
        return {name: row.get() for name, row in self._rows.items()}

    @value.setter
    def value(self, value: Mapping[str, Any]) -> None:
        for name in value:
            if name not in self._rows:
                raise UnknownName("option", name, self._rows)
        checked = self.kind(**self._default | dict(value))
        for name, row in self._rows.items():
            row.set(getattr(checked, name))

    def reset(self) -> None:
        """Sets every option back to its default."""
        self.value = {}


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    """One option: its box, and how its value is read and set."""

    box: w.Widget
    get: Callable[[], Any]
    set: Callable[[Any], None]


def _row(field: dataclasses.Field, kinds: tuple) -> _Row | None:
    told, none = field.metadata, type(None) in kinds
    look = described(field.name, told["doc"]) | {"style": _NAMES, "layout": _FIELD}
    if told["choices"] is not None or bool in kinds:
        values = told["choices"] or (False, True)
        listed = [("none", None)] * none + [(str(v) or "(empty)", v) for v in values]
        return _plain(w.Dropdown(options=listed, **look), told)
    if float in kinds or int in kinds:
        number = _number(float in kinds, told, look)
        number.value = _FIRST.get(field.name, number.value) if none else number.value
        return _optional(number, told) if none else _plain(number, told)
    if str in kinds:
        return _plain(w.Text(continuous_update=False, **look), told)
    return None


def _number(real: bool, told: Mapping[str, Any], look: Mapping[str, Any]) -> w.Widget:
    most = _REAL if real else _INTEGER
    low = -most if told["low"] is None else told["low"]
    high = most if told["high"] is None else told["high"]
    kind = w.BoundedFloatText if real else w.BoundedIntText
    step = {"step": None} if real else {}
    return kind(value=low, min=low, max=high, **step, **look)


def _plain(widget: w.Widget, told: Mapping[str, Any]) -> _Row:
    box = w.HBox([widget, _unit(told)], layout=_ROW)
    return _Row(box, lambda: widget.value, lambda v: setattr(widget, "value", v))


def _optional(number: w.Widget, told: Mapping[str, Any]) -> _Row:
    """A number that a toggle turns off: None."""
    wide = w.Layout(width="5em")
    used = w.ToggleButton(description="set", tooltip="Not pressed: none.", layout=wide)

    def change(value: Any) -> None:
        used.value = value is not None
        number.value = number.value if value is None else value
        number.disabled = not used.value

    def turn(_: object) -> None:
        number.disabled, used.icon = not used.value, "check" if used.value else ""

    used.observe(turn, names="value")
    box = w.HBox([number, _unit(told), used], layout=_ROW)
    return _Row(box, lambda: number.value if used.value else None, change)


def _unit(told: Mapping[str, Any]) -> w.Label:
    return w.Label(told["unit"], layout=w.Layout(width="7em"))


class ValueControls:
    """A list of values to tick per parameter, and how many valid configs they leave.

    Attributes:
        box: The widget to show.
        space: The whole space.
        count: The label with the number.
    """

    def __init__(
        self,
        space: ParameterSpace,
        *,
        value: Mapping[str, Sequence[Any]] | None = None,
        guard: Guard = _plainly,
    ):
        """Makes the lists with everything ticked, or only `value` of the parameters it names.

        `guard` calls what the button and the counting do; a panel's shows what they raise.
        """
        self.space, self._guard = space, guard
        self.count = w.Label()
        self.count.add_class("ktl-count")
        self._lists = {p.name: self._list(p) for p in space.parameters}
        reset = button("allow all", "Ticks every value.", css="ktl-allow-all")
        reset.on_click(lambda _: guard(self.reset))
        grid = w.Box(list(self._lists.values()), layout=w.Layout(flex_flow="row wrap"))
        self.box = w.VBox([grid, w.HBox([self.count, reset])])
        self.value = dict(value or {})

    @property
    def value(self) -> dict[str, list[Any]]:
        """The ticked values of every parameter of which not all are ticked."""
        ticked = {p.name: self._lists[p.name].value for p in self.space.parameters}
        return {
            p.name: [p.values[i] for i in ticked[p.name]]
            for p in self.space.parameters
            if len(ticked[p.name]) < p.cardinality
        }

    @value.setter
    def value(self, value: Mapping[str, Sequence[Any]]) -> None:
        count_text(self.space, value)  # refuses foreign names and values before anything changes
        for p in self.space.parameters:
            wanted = value.get(p.name, p.values)
            self._lists[p.name].value = tuple(sorted({p.index(v) for v in wanted}))
        self._recount()

    def reset(self) -> None:
        """Ticks every value."""
        self.value = {}

    def _list(self, parameter: Any) -> w.SelectMultiple:
        found = w.SelectMultiple(
            options=[(str(v) or "(empty)", i) for i, v in enumerate(parameter.values)],
            rows=min(parameter.cardinality, _MOST_ROWS),
            layout=w.Layout(width="16em"),
            **described(parameter.name, _VALUES.format(parameter.name)),
        )
        found.add_class(f"ktl-values-{parameter.name}")
        found.observe(lambda _: self._guard(self._recount), names="value")
        return found

    def _recount(self) -> None:
        self.count.value = count_text(self.space, self.value)


def button(description: str, tooltip: str, *, css: str, icon: str = "") -> w.Button:
    """Returns a button with a tooltip and a CSS class, by which tests find it."""
    layout = w.Layout(width="auto", align_self="flex-start", flex="0 0 auto")
    found = w.Button(description=description, tooltip=tooltip, icon=icon, layout=layout)
    return found.add_class(css)


def dropdown(name: str, tooltip: str, options: Sequence[Any] = ()) -> w.Dropdown:
    """Returns a drop-down with a tooltip and the CSS class ktl-<name>."""
    found = w.Dropdown(options=options, **described(name, tooltip))
    return found.add_class(f"ktl-{name}")


def entry(name: str, tooltip: str) -> w.Text:
    """Returns a field for a line of text, read when Enter is pressed or the field is left."""
    found = w.Text(continuous_update=False, **described(name, tooltip))
    return found.add_class(f"ktl-{name}")


def offer(menu: w.Dropdown, options: Sequence[Any]) -> None:
    """Sets what a drop-down offers and selects the first, which it does not do when empty."""
    menu.options = options
    menu.index = 0 if options else None
