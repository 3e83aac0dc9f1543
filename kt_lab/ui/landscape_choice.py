"""Controls that choose a recorded landscape, and two of its axes with the values of the others."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ipywidgets as w

from kt_lab.cells import recorded
from kt_lab.errors import UnknownName, UsageError
from kt_lab.landscape import Landscape, landscapes
from kt_lab.stats.slices import check_axes, value_text
from kt_lab.ui.controls import dropdown, offer
from kt_lab.ui.keyboard import described

_BEST = -1  # instead of a value's position: the best over the parameter


class _Quiet:
    """Widgets whose changes are told once, not once for each that one of them brings about."""

    def __init__(self, on_change: Callable[[], object]):
        self._tell, self._depth, self._changed = on_change, 0, False

    @contextmanager
    def _together(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if not self._depth and self._changed:
            self._changed = False
            self._tell()

    def _on(self, widget: w.Widget, action: Callable[[], object] | None = None) -> None:
        def changed(_: object) -> None:
            with self._together():
                self._changed = True
                if action:
                    action()

        widget.observe(changed, names="value")


class LandscapePicker(_Quiet):
    """Drop-downs for a kernel, a workload and a GPU that a landscape was recorded on.

    Attributes:
        box: The widget to show.
        kernel, workload, gpu: The drop-downs (CSS classes ktl-kernel, ktl-workload, ktl-gpu).
    """

    def __init__(self, on_change: Callable[[], object]):
        """Offers what is recorded; the first `choose` tells that something is chosen.

        Args:
            on_change: Called once another landscape is chosen.
        """
        super().__init__(on_change)
        self._entries = landscapes()
        if not self._entries:
            raise UsageError("a landscape must have been recorded, got none; use kt-lab record")
        self.kernel = dropdown("kernel", "What was recorded.")
        self.workload = dropdown("workload", "Its shape.")
        self.gpu = dropdown("gpu", "The GPU that it was recorded on.")
        self._on(self.kernel, self._kernel_chosen)
        self._on(self.workload, self._workload_chosen)
        self._on(self.gpu)
        self.box = w.HBox([self.kernel, self.workload, self.gpu])
        self._depth = 1  # tells nobody yet
        offer(self.kernel, list(dict.fromkeys(e.kernel for e in self._entries)))
        self._depth = 0

    @property
    def landscape(self) -> Landscape:
        """The chosen one."""
        return recorded(self.workload.value, self.gpu.value)

    def choose(self, workload: str | None = None, *, gpu: str | None = None) -> None:
        """Sets the controls; what is not named stays where it can.

        Raises:
            UnknownName: Nothing was recorded of the workload, or not on that GPU.
        """
        found = {e.workload: e for e in self._entries}
        with self._together():
            if workload is not None:
                if workload not in found:
                    raise UnknownName("recorded workload", workload, found)
                self.kernel.value = found[workload].kernel
                self.workload.value = workload
            if gpu is not None:
                if gpu not in self.gpu.options:
                    raise UnknownName("recorded GPU", gpu, self.gpu.options)
                self.gpu.value = gpu

    def _kernel_chosen(self) -> None:
        of = (e.workload for e in self._entries if e.kernel == self.kernel.value)
        offer(self.workload, list(dict.fromkeys(of)))

    def _workload_chosen(self) -> None:
        before = self.gpu.value
        offer(self.gpu, [e.gpu for e in self._entries if e.workload == self.workload.value])
        if before in self.gpu.options:
            self.gpu.value = before


class SliceControls(_Quiet):
    """Two axes, and for every other parameter a value or the best over it.

    Attributes:
        box: The widget to show.
        x, y: The drop-downs of the axes (CSS classes ktl-x, ktl-y).
        others: One drop-down per parameter, by name (ktl-slice-<name>); those of the axes hide.
    """

    def __init__(self, on_change: Callable[[], object]):
        """Makes controls without a landscape: `offer` one."""
        super().__init__(on_change)
        self.x = dropdown("x", "The parameter along the horizontal axis.")
        self.y = dropdown("y", "The parameter along the vertical axis.")
        self.others: dict[str, w.Dropdown] = {}
        self._slot = w.Box(layout=w.Layout(flex_flow="row wrap"))
        self._axes: tuple[str, str] | None = None
        for widget in (self.x, self.y):
            self._on(widget, self._axes_chosen)
        self.box = w.VBox([w.HBox([self.x, self.y]), self._slot])

    @property
    def fixed(self) -> dict[str, Any]:
        """The values of the parameters that are not the best over theirs."""
        return {
            p.name: p.values[self.others[p.name].value]
            for p in self._landscape.space.parameters
            if p.name not in (self.x.value, self.y.value) and self.others[p.name].value != _BEST
        }

    def offer(self, landscape: Landscape) -> None:
        """Offers the parameters of a landscape; axes and values that it has stay chosen."""
        self._landscape, space = landscape, landscape.space
        before = (self.x.value, self.y.value)
        # without another wish the axes that show most cells
        long = sorted(space.parameters, key=lambda p: -p.cardinality)
        wanted = before if set(before) <= set(space.names) else (long[0].name, long[1].name)
        with self._together():
            self._changed = True
            self.others = {p.name: self._other(p) for p in space.parameters}
            self._slot.children = tuple(self.others.values())
            self._axes = None
            self.x.options = self.y.options = space.names
            self._axes = wanted
            self.x.value, self.y.value = wanted
            self._hide()

    def choose(
        self, *, x: str | None = None, y: str | None = None, fixed: Mapping[str, Any] | None = None
    ) -> None:
        """Sets the axes and the fixed values; None: as they are.

        Raises:
            UnknownName: There is no such parameter.
            UsageError: An axis is doubled or fixed.
            SpaceError: A fixed value is not one of the parameter's.
        """
        x = x or (self.x.value if y != self.x.value else self.y.value)
        y = y or (self.y.value if x != self.y.value else self.x.value)
        wanted = dict(self.fixed if fixed is None else fixed)
        if fixed is None:
            wanted = {name: value for name, value in wanted.items() if name not in (x, y)}
        check_axes(self._landscape, x, y, wanted)
        parameters = {p.name: p for p in self._landscape.space.parameters}
        places = {name: parameters[name].index(value) for name, value in wanted.items()}
        with self._together():
            self._axes = None
            self.x.value, self.y.value, self._axes = x, y, (x, y)
            for name, widget in self.others.items():
                widget.value = places.get(name, _BEST)
            self._hide()

    def _axes_chosen(self) -> None:
        """Swaps the axes where one was set to the other."""
        if self._axes is None:  # both are being set
            return
        before, now = self._axes, (self.x.value, self.y.value)
        if now[0] == now[1]:
            now = before[::-1]
            self._axes = None
            self.x.value, self.y.value = now
        self._axes = now
        self._hide()

    def _hide(self) -> None:
        for name, widget in self.others.items():
            widget.layout.display = "none" if name in (self.x.value, self.y.value) else ""

    def _other(self, parameter: Any) -> w.Dropdown:
        values = [(value_text(v), at) for at, v in enumerate(parameter.values)]
        widget = w.Dropdown(
            options=[("best over the others", _BEST), *values],
            value=_BEST,
            **described(parameter.name, f"A value of {parameter.name}, or the best over all."),
        )
        self._on(widget)
        return widget.add_class(f"ktl-slice-{parameter.name}")
