"""What a tuner panel is asked for: kernel, workload, runner, searcher, options, values, budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ipywidgets as w

from kt_lab.budget import Budget
from kt_lab.errors import UnknownName, UsageError
from kt_lab.kernels import workload_of_shape
from kt_lab.landscape import landscapes
from kt_lab.search import get_searcher
from kt_lab.space import ParameterSpace
from kt_lab.ui.choices import (
    RunnerChoice,
    Search,
    chosen,
    require_listed,
    runner_choices,
    searcher_names,
)
from kt_lab.ui.controls import OptionControls, RunOptions, ValueControls, dropdown, entry, offer
from kt_lab.ui.restriction import restrict
from kt_lab.ui.view import TunerView
from kt_lab.workload import Kernel, Workload


@dataclass(frozen=True, slots=True)
class Asked:
    """What the controls say at one moment.

    Attributes:
        kernel: What is tuned.
        workload: Its shape and element type.
        choice: Where it is measured.
        space: The configs that may be measured.
        search: Searcher, options, seed, lanes.
        budget: When to stop.
        facts: All of it, JSON-ready.
    """

    kernel: Kernel
    workload: Workload
    choice: RunnerChoice
    space: ParameterSpace
    search: Search
    budget: Budget
    facts: Mapping[str, Any]


class TunerChoice:
    """The controls of a search.

    Attributes:
        settings: The widget to show.
        kernel, workload, runner, searcher: The drop-downs.
        shape: A field for a shape that the kernel does not ship with; it joins the workloads.
        run: The controls of RunOptions.
        options: The controls of the searcher's options.
        values: The controls of the allowed values.
    """

    def __init__(self, view: TunerView, kernels: Sequence[Kernel]):
        """Makes the widgets; what their handlers raise is shown by the view."""
        self._view, self._kernels = view, {k.name: k for k in kernels}
        self.kernel = dropdown("kernel", "What is tuned.", list(self._kernels))
        self._added: dict[str, list[Workload]] = {name: [] for name in self._kernels}
        self.workload = dropdown("workload", "Its shape and element type.")
        self.shape = entry("shape", "Any other shape of the kernel, for a GPU of this machine.")
        self.runner = dropdown("runner", "A GPU of this machine, or the replay of a recorded one.")
        self.searcher = dropdown("searcher", "The algorithm that chooses.", searcher_names())
        self.run = OptionControls(RunOptions, guard=view.acted)
        self._option_slot, self._value_slot = w.VBox(), w.VBox()
        self._valued: str | None = None  # whose kernel's values are offered
        more = w.Accordion(
            [self._option_slot, self._value_slot], titles=("searcher options", "allowed values")
        )
        chain = (
            (self.kernel, self._kernel_chosen),
            (self.workload, self._workload_chosen),
            (self.shape, self._shape_given),
            (self.runner, self._runner_chosen),
            (self.searcher, self._searcher_chosen),
        )
        for widget, action in chain:
            view.on_change(widget, action)
            action()
        left = w.VBox([self.kernel, self.workload, self.shape, self.runner, self.searcher])
        asked = w.HBox([left, self.run.box], layout=w.Layout(flex_flow="row wrap"))
        self.settings = w.VBox([asked, more])

    def choose(
        self,
        workload: str | None = None,
        *,
        runner: str | None = None,
        searcher: str | None = None,
        options: Mapping[str, Any] | None = None,
        allowed: Mapping[str, Sequence[Any]] | None = None,
        **run: Any,
    ) -> None:
        """Sets the controls, as their widgets do; what is not named stays.

        A search that runs goes on as it began: the controls count from the next start on.

        Args:
            workload: Key of a workload, at any shape of its kernel ("softmax/1000x777").
            runner: "live" for this machine's GPU, the short name of a recorded GPU, or a label.
            searcher: Registered name; its options are set to their defaults.
            options: Of the searcher; those not named get their defaults.
            allowed: Values that the search may use, by parameter; others may have any.
            run: Fields of RunOptions: trials, seconds, seed, lanes, known, afresh.

        Raises:
            UnknownName: There is no such workload, runner, searcher, option or parameter.
            UsageError: A value is outside its range, the kernel has other extents, or nobody
                registered it or recorded the workload.
        """
        if workload is not None:
            self._turn_to(workload)
        if runner is not None:
            self.runner.value = chosen([c for _, c in self.runner.options], runner)
        if searcher is not None:
            _require("searcher", searcher, self.searcher.options)
            self.searcher.value = searcher
        if options is not None:
            self.options.value = options
        if allowed is not None:
            self.values.value = allowed
        self.run.value = self.run.value | run

    def asked(self, *, directory: Path | str | None = None) -> Asked:
        """Returns what the controls say; `directory` is that of journals and winners.

        Raises:
            UsageError: There is nowhere to measure the workload.
            SpaceError: The allowed values leave no config.
        """
        kernel, workload, run = self._kernels[self.kernel.value], self._workload, self.run.value
        choice, options = self.runner.value, self.options.value
        if choice is None:
            raise UsageError(
                f"tuning needs a GPU or a landscape, got neither for {workload.key}; choose a "
                "recorded workload"
            )
        space = restrict(self.values.space, self.values.value)
        facts = {
            "workload": workload.key,
            "kernel": kernel.name,
            "gpu": choice.gpu,
            "runner": choice.label,
            "searcher": self.searcher.value,
            "options": options,
            "allowed": self.values.value,
            "space": space.fingerprint,
        }
        how = {name: run[name] for name in ("seed", "lanes", "known", "afresh")}
        return Asked(
            kernel,
            workload,
            choice,
            space,
            Search(self.searcher.value, options, **how, directory=directory),
            Budget(trials=run["trials"], seconds=run["seconds"]),
            facts | run,
        )

    @property
    def _workloads(self) -> list[Workload]:
        return [*self._kernels[self.kernel.value].workloads, *self._added[self.kernel.value]]

    @property
    def _workload(self) -> Workload:
        return next(each for each in self._workloads if each.key == self.workload.value)

    def _turn_to(self, key: str) -> None:
        """Chooses a workload; one of another shape is offered from now on."""
        require_listed(key)
        kernel = key.partition("/")[0]
        shipped = [each.key for known in self._kernels.values() for each in known.workloads]
        if kernel not in self._kernels and key in {each.workload for each in landscapes()}:
            raise UsageError(
                f"a tuner panel tunes registered kernels, or those that it is given, got {key} of "
                "another; ComparePanel and LandscapePanel replay any landscape"
            )
        if kernel not in self._kernels:
            raise UnknownName("workload", key, shipped)
        found = workload_of_shape(key, self._kernels[kernel])
        self.kernel.value = kernel
        if found.key not in self.workload.options:
            self._added[kernel].append(found)
            self.workload.options = [each.key for each in self._workloads]
        self.workload.value = found.key

    def _shape_given(self) -> None:
        lengths = self.shape.value.replace("*", "x").replace(",", "x").replace(" ", "")
        if lengths:
            self._turn_to(f"{self.kernel.value}/{lengths}")
            self.shape.value = ""

    def _kernel_chosen(self) -> None:
        offer(self.workload, [each.key for each in self._workloads])
        like = self._kernels[self.kernel.value].workloads[0]
        self.shape.placeholder = f"{' x '.join(like.extents)}, such as {like.name}"

    def _workload_chosen(self) -> None:
        before = self.runner.value
        offer(self.runner, [(c.label, c) for c in runner_choices(self._workload)])
        if before is not None:  # who chose a GPU stays on it, where it has the workload
            same = [c for _, c in self.runner.options if c and c.label == before.label]
            self.runner.value = same[0] if same else self.runner.value
        space = self._kernels[self.kernel.value].space(self._workload)
        kept: dict[str, list] = {}
        if self._valued == self.kernel.value:  # another shape: who allowed values still does
            said = self.values.value
            by = {
                p.name: [v for v in said.get(p.name, ()) if v in p.values]
                for p in space.parameters
            }
            kept = {name: values for name, values in by.items() if values}
        self._valued = self.kernel.value
        self.values = ValueControls(space, value=kept, guard=self._view.acted)
        self._value_slot.children = [self.values.box]

    def _runner_chosen(self) -> None:
        choice = self.runner.value
        self._view.show_badge(choice.badge() if choice else "no GPU and no landscape")

    def _searcher_chosen(self) -> None:
        options = get_searcher(self.searcher.value).Options
        self.options = OptionControls(options, guard=self._view.acted)
        self._option_slot.children = [self.options.box]


def _require(kind: str, name: str, known_names: Sequence[str]) -> None:
    if name not in known_names:
        raise UnknownName(kind, name, known_names)
