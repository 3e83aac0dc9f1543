"""Controls that choose a recorded landscape, and two of its axes with the values of the others."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ipywidgets as w

from kt_lab.cells import recorded, require_apart
from kt_lab.errors import UnknownName, UsageError
from kt_lab.landscape import Landscape, landscapes
from kt_lab.stats.slices import check_axes, value_text
from kt_lab.ui.choices import require_listed
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
        wrap = w.Layout(flex_flow="row wrap")
        self.box = w.HBox([self.kernel, self.workload, self.gpu], layout=wrap)
        self._depth = 1  # tells nobody yet
        offer(self.kernel, list(dict.fromkeys(e.kernel for e in self._entries)))
        self._depth = 0

    @property
    def landscape(self) -> Landscape:
        """The chosen one; raises UsageError where nothing of it works."""
        require_apart([self.workload.value], self.gpu.value)
        return recorded(self.workload.value, self.gpu.value)

    def wanted(self, workload: str | None = None, *, gpu: str | None = None) -> Landscape:
        """Returns the landscape that `choose` would choose; sets nothing.

        Raises:
            UnknownName: Nothing was recorded of the workload, or not on that GPU.
            UsageError: It is a file, or nothing of it works.
        """
        workload = self.workload.value if workload is None else workload
        require_listed(workload)
        gpus = [e.gpu for e in self._entries if e.workload == workload]
        if not gpus:
            raise UnknownName("recorded workload", workload, [e.workload for e in self._entries])
        if gpu is not None and gpu not in gpus:
            raise UnknownName("recorded GPU", gpu, gpus)
        kept = self.gpu.value if self.gpu.value in gpus else gpus[0]
        require_apart([workload], gpu or kept)
        return recorded(workload, gpu or kept)

    def choose(self, workload: str | None = None, *, gpu: str | None = None) -> None:
        """Sets the controls; what is not named stays where it can.

        Raises:
            UnknownName: Nothing was recorded of the workload, or not on that GPU.
            UsageError: It is a file, or nothing of it works.
        """
        landscape = self.wanted(workload, gpu=gpu)
        with self._together():
            self.kernel.value = landscape.kernel
            self.workload.value = landscape.workload
            self.gpu.value = landscape.gpu

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
        axes, fixed = self._kept(landscape)
        self._landscape, space = landscape, landscape.space
        with self._together():
            self._changed = True
            self.others = {p.name: self._other(p) for p in space.parameters}
            self._slot.children = tuple(self.others.values())
            self._axes = None
            self.x.options = self.y.options = space.names
            self._set(*axes, self._places(fixed))

    def choose(
        self, *, x: str | None = None, y: str | None = None, fixed: Mapping[str, Any] | None = None
    ) -> None:
        """Sets the axes and the fixed values; None: as they are.

        Raises:
            UnknownName: There is no such parameter.
            UsageError: An axis is doubled or fixed.
            SpaceError: A fixed value is not one of the parameter's.
        """
        wanted = self.wanted(self._landscape, x=x, y=y, fixed=fixed)
        with self._together():
            self._axes = None
            self._set(*wanted[:2], self._places(wanted[2]))

    def wanted(
        self,
        landscape: Landscape,
        *,
        x: str | None = None,
        y: str | None = None,
        fixed: Mapping[str, Any] | None = None,
    ) -> tuple[str, str, dict[str, Any]]:
        """Returns the axes and fixed values that `choose` would set on a landscape; sets nothing.

        Raises:
            UnknownName, UsageError, SpaceError: As in `choose`.
        """
        before, kept = self._kept(landscape)
        x = x or (before[0] if y != before[0] else before[1])
        y = y or (before[1] if x != before[1] else before[0])
        if fixed is None:
            fixed = {name: value for name, value in kept.items() if name not in (x, y)}
        check_axes(landscape, x, y, fixed)
        for name, value in fixed.items():
            landscape.space.parameters[landscape.space.names.index(name)].index(value)
        return x, y, dict(fixed)

    def _kept(self, landscape: Landscape) -> tuple[tuple[str, str], dict[str, Any]]:
        """Returns the axes and fixed values of now that a landscape has too."""
        parameters = {p.name: p for p in landscape.space.parameters}
        axes = (self.x.value, self.y.value)
        if len(parameters) < 2:
            raise UsageError(
                f"a map needs two parameters, got {len(parameters)} of {landscape.workload}; "
                "ConfigInspector shows its configs"
            )
        if not set(axes) <= set(parameters):  # those that show most cells
            long = sorted(landscape.space.parameters, key=lambda p: -p.cardinality)
            axes = (long[0].name, long[1].name)
        kept = {
            name: value
            for name, value in (self.fixed if self.others else {}).items()
            if name in parameters and name not in axes and value in parameters[name].values
        }
        return axes, kept

    def _places(self, fixed: Mapping[str, Any]) -> dict[str, int]:
        parameters = {p.name: p for p in self._landscape.space.parameters}
        return {name: parameters[name].index(value) for name, value in fixed.items()}

    def _set(self, x: str, y: str, places: Mapping[str, int]) -> None:
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
