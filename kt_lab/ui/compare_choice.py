"""What a compare panel compares: searchers, workloads and how often, or runs that are stored."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets as w

from kt_lab.comparison import request, stored_runs
from kt_lab.errors import UnknownName, UsageError
from kt_lab.experiment import Experiment
from kt_lab.landscape import landscapes
from kt_lab.search.base import Options, option
from kt_lab.ui.choices import require_listed, searcher_names
from kt_lab.ui.controls import OptionControls, dropdown
from kt_lab.ui.keyboard import described
from kt_lab.ui.shell import Shell

RUN = "run here"
_ROWS = 8


@dataclasses.dataclass(frozen=True)
class CompareOptions(Options):
    """How much is compared, and with how many processes."""

    seeds: int = option(5, "Runs per searcher and workload.", unit="seeds", low=1, high=1000)
    trials: int | None = option(
        100, "Budget: configs measured at most, failures included.", unit="configs", low=1
    )
    seconds: float | None = option(None, "Budget of machine seconds.", unit="s", low=0.001)
    lanes: int = option(16, "Simulated compile processes.", low=1, high=1024)
    workers: int | None = option(
        None, "Processes that compute runs; unset: one per core; 0: none but this.", low=0
    )


class CompareChoice:
    """The controls of what is compared.

    Attributes:
        box: The widget to show.
        source: "run here", or the name of stored runs.
        searchers, workloads: Lists to choose several from.
        gpu: Whose landscapes are replayed.
        options: The controls of CompareOptions.
    """

    def __init__(self, shell: Shell):
        """Makes the widgets; what their handlers raise is shown by the shell."""
        tip = "Runs searchers by replay, or opens runs that are stored."
        self.source = dropdown("source", tip, [RUN, *stored_runs()])
        self.searchers = _several("searchers", "What is compared", searcher_names())
        self.workloads = _several("workloads", "On what", [])
        gpus = list(dict.fromkeys(entry.gpu for entry in landscapes()))
        self.gpu = dropdown("gpu", "Whose recorded landscapes are replayed.", gpus)
        self.options = OptionControls(CompareOptions, guard=shell.acted)
        lists = w.HBox([self.searchers, self.workloads], layout=w.Layout(flex_flow="row wrap"))
        self._asked = w.VBox([lists, self.gpu, self.options.box])
        self.box = w.VBox([self.source, self._asked])
        for menu, action in ((self.gpu, self._gpu_chosen), (self.source, self._source_chosen)):
            shell.on_change(menu, action)
            action()

    def choose(
        self,
        *,
        source: str | None = None,
        searchers: Sequence[str] | None = None,
        workloads: Sequence[str] | None = None,
        gpu: str | None = None,
        **options: Any,
    ) -> None:
        """Sets the controls, as their widgets do; what is not named stays.

        Args:
            source: "run here", or the name of stored runs (`kt_lab.comparison.stored_runs`).
            searchers: Registered ones, peers.
            workloads: Keys of recorded workloads.
            gpu: Whose landscapes.
            options: Fields of CompareOptions: seeds, trials, seconds, lanes, workers.

        Raises:
            UnknownName: There is no such source, searcher, workload, GPU or option.
            UsageError: A value is outside its range, or a name stands where a list is asked for.
        """
        wanted = (("source", source), ("gpu", gpu))
        for name, value in wanted:
            if value is not None:
                _require(name, [value], getattr(self, name).options)
                getattr(self, name).value = value
        for name, values in (("searchers", searchers), ("workloads", workloads)):
            if isinstance(values, str):
                raise UsageError(
                    f"{name} must be a list of names, got {values!r}; give [{values!r}]"
                )
            if values is not None:
                for value in values if name == "workloads" else ():
                    require_listed(value)
                _require(name[:-1], values, getattr(self, name).options)
                getattr(self, name).value = tuple(values)
        self.options.value = self.options.value | options

    def refresh(self) -> None:
        """Offers what has been stored since."""
        wanted, chosen = (RUN, *stored_runs()), self.source.value
        if self.source.options != wanted:
            self.source.options = wanted
            self.source.value = chosen if chosen in wanted else RUN

    def firsts(self) -> list[str]:
        """Returns the first workload of every kernel."""
        known = {key.partition("/")[0]: key for key in reversed(self.workloads.options)}
        return list(reversed(known.values()))

    def source_of(self) -> Callable[[], Experiment | Path]:
        """Returns what makes the experiment that the controls ask for, or names its table.

        Raises:
            UsageError: No searcher or no workload is chosen.
        """
        if self.source.value != RUN:
            return partial(_stored, self.source.value)
        for name in ("searchers", "workloads"):
            if not getattr(self, name).value:
                raise UsageError(f"a comparison needs {name}, got none; choose some")
        wanted = {k: v for k, v in self.options.value.items() if k != "workers"}
        return partial(
            request, self.searchers.value, self.workloads.value, gpu=self.gpu.value, **wanted
        )

    def facts(self) -> dict[str, Any]:
        """Returns what is compared, JSON-ready."""
        asked = {
            "searchers": list(self.searchers.value),
            "workloads": list(self.workloads.value),
            "gpu": self.gpu.value,
            **self.options.value,
        }
        return {"source": self.source.value} | (asked if self.source.value == RUN else {})

    def _gpu_chosen(self) -> None:
        before = self.workloads.value
        found = [entry.workload for entry in landscapes() if entry.gpu == self.gpu.value]
        self.workloads.options = found
        kept = [key for key in before if key in found]
        self.workloads.value = kept if kept or not before else self.firsts()

    def _source_chosen(self) -> None:
        self._asked.layout.display = "" if self.source.value == RUN else "none"


def _stored(name: str) -> Path:
    known = stored_runs()
    if name not in known:
        raise UnknownName("stored comparison", name, known)
    return known[name]


def _several(name: str, tooltip: str, options: Sequence[str]) -> w.SelectMultiple:
    """Returns a list to choose several from, with the CSS class ktl-<name>."""
    found = w.SelectMultiple(
        options=options, rows=_ROWS, **described(name, f"{tooltip}; Ctrl-click for several.")
    )
    return found.add_class(f"ktl-{name}")


def _require(kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownName(kind, name, known)
