"""TunerPanel: choose what to tune and how, watch it converge, keep what was found."""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets as w

from kt_lab.budget import Budget
from kt_lab.decisions import triton_text
from kt_lab.errors import UnknownName, UsageError
from kt_lab.kernels import kernels as registered
from kt_lab.search import get_searcher, make_searcher
from kt_lab.ui.choices import Known, chosen, make_runner, runner_choices, searcher_names
from kt_lab.ui.controls import OptionControls, RunOptions, ValueControls, dropdown, offer
from kt_lab.ui.progress import PAUSED, Snapshot
from kt_lab.ui.restriction import restrict
from kt_lab.ui.session import Session, alive
from kt_lab.ui.view import TunerView
from kt_lab.workload import Kernel, Workload

EVERY_S = 0.1  # between two renderings, at least: a fast replay would drown the browser


class TunerPanel:
    """A panel on one search at a time; each button is a method of the same name.

    Without a browser it does the same: `panel.start()`, `panel.wait()`.

    Attributes:
        box: The widget to show; a notebook cell that ends with the panel shows it.
        view: The widgets that show the session.
        session: The current session; None before the first start.
        kernel, workload, runner, searcher: The drop-downs.
        run: The controls of RunOptions.
        options: The controls of the searcher's options.
        values: The controls of the allowed values.
    """

    def __init__(
        self,
        workload: str = "softmax/4096x640",
        *,
        kernels: Sequence[Kernel] | None = None,
        name: str = "tuner",
        **settings: Any,
    ):
        """Makes the panel; the session of an earlier panel of the same name is stopped.

        Args:
            workload: Key of the workload to begin with.
            kernels: To choose from; None: the registered ones.
            name: Of two panels of one name in a process only one runs.
            settings: What else `choose` takes. Without them: this machine's GPU or else a replay,
                LFBO pattern search with its own defaults, all values, 200 trials.

        Raises:
            UnknownName: There is no such workload, searcher, runner, option or parameter.
        """
        for session in alive(name):
            session.stop()
        self.name, self.session = name, None
        self._kernels = {k.name: k for k in (kernels or registered())}
        self._levels: list[Known] = []  # filled by the session's worker
        self._pump_task: asyncio.Task | None = None
        self.view = TunerView()
        self._build()
        self.choose(workload, **{"searcher": "lfbo_pattern"} | settings)

    # -- what a user does -----------------------------------------------------------------------

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
            workload: Key of a workload.
            runner: "live" for this machine's GPU, the short name of a recorded GPU, or a label.
            searcher: Registered name; its options are set to their defaults.
            options: Of the searcher; those not named get their defaults.
            allowed: Values that the search may use, by parameter; others may have any.
            run: Fields of RunOptions: trials, seconds, seed, lanes.

        Raises:
            UnknownName: There is no such workload, runner, searcher, option or parameter.
            UsageError: A value is outside its range.
        """
        if workload is not None:
            keys = [each.key for kernel in self._kernels.values() for each in kernel.workloads]
            _require("workload", workload, keys)
            self.kernel.value = workload.partition("/")[0]
            self.workload.value = workload
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

    def start(self) -> Session:
        """Starts a search with what the controls say; returns its session."""
        if self.session is not None and self.session.alive:
            raise UsageError("a panel runs one search at a time, got one running; stop it first")
        self.session = self._session()
        self.session.start()
        self.render(self.session.snapshot())
        with suppress(RuntimeError):  # no event loop: a script, where `wait` renders
            loop = asyncio.get_running_loop()
            self._pump_task = loop.create_task(self._pump(self.session))
        return self.session

    def pause(self) -> None:
        """Holds the search after the trial under way, or goes on where it was held."""
        session = self._started("pause")
        (session.resume if session.snapshot().state == PAUSED else session.pause)()
        self.render(session.snapshot())

    def stop(self) -> None:
        """Ends the search after the trial under way; what was found is kept."""
        session = self._started("stop")
        session.stop()
        self.render(session.snapshot())

    def save(self, path: Path | str | None = None) -> Path:
        """Stores the trials so far; see `Session.save`."""
        path = self._started("save").save(path)
        self.view.saved(path)
        return path

    def copy(self) -> str:
        """Returns the incumbent as a `triton.Config` to be pasted, and shows it."""
        config = self._started("copy").snapshot().incumbent
        if config is None:
            raise UsageError("copying needs an incumbent, got none: nothing was ok so far; wait")
        text = triton_text(config)
        self.view.show_code(text)
        return text

    def wait(self, timeout: float | None = None) -> Snapshot:
        """Waits for the end of the search, or `timeout` seconds, and renders meanwhile.

        For scripts and papermill: while it waits, no button of the notebook reacts.

        Raises:
            UsageError: Nothing was started.
            Exception: What the search failed with.
        """
        session = self._started("wait")
        until = time.monotonic() + (math.inf if timeout is None else timeout)
        while session.alive and (left := until - time.monotonic()) > 0:
            session.ended.wait(min(left, EVERY_S))
            self.render(session.snapshot())
        self.render(session.snapshot())
        return session.wait(0)

    def render(self, snapshot: Snapshot) -> None:
        """Shows a snapshot of the session."""
        self.view.render(
            snapshot,
            searcher=self.session.facts["searcher"],
            known=self._levels[-1] if self._levels else Known(),
            badge=self._choice.badge,
        )

    # -- small steps ----------------------------------------------------------------------------

    async def _pump(self, session: Session) -> None:
        """Renders the session while it is this panel's and runs, and its end."""
        going = True
        while going:
            await asyncio.sleep(EVERY_S)
            going = session.alive
            if self.session is not session:
                return
            going &= self.view.guarded(lambda: self.render(session.snapshot()))

    def _started(self, verb: str) -> Session:
        if self.session is None:
            raise UsageError(f"to {verb}, a search must have been started, got none; start one")
        return self.session

    def _session(self) -> Session:
        """Returns a session of what the controls say, not started."""
        kernel, workload, run = self._kernels[self.kernel.value], self._workload, self.run.value
        choice, name, options = self.runner.value, self.searcher.value, self.options.value
        if choice is None:
            raise UsageError(
                f"tuning needs a GPU or a landscape, got neither for {workload.key}; choose a "
                "recorded workload"
            )
        budget = Budget(trials=run["trials"], seconds=run["seconds"])
        space = restrict(self.values.space, self.values.value)
        self._choice, self._levels = choice, []
        opened = partial(make_runner, choice, workload, kernel, tell=self._levels.append)
        facts = {
            "workload": workload.key,
            "kernel": kernel.name,
            "gpu": choice.gpu,
            "runner": choice.label,
            "searcher": name,
            "options": options,
            "allowed": self.values.value,
            "space": space.fingerprint,
        }
        return Session(
            self.name,
            searcher=partial(
                make_searcher, name, space, seed=run["seed"], budget=budget, **options
            ),
            runner=partial(opened, space=space, seed=run["seed"], lanes=run["lanes"]),
            budget=budget,
            reference=space.default,
            facts=facts | run,
        )

    # -- the widgets ----------------------------------------------------------------------------

    def _build(self) -> None:
        self.kernel = dropdown("kernel", "What is tuned.", list(self._kernels))
        self.workload = dropdown("workload", "Its shape and element type.")
        self.runner = dropdown("runner", "This machine's GPU, or the replay of a recorded one.")
        self.searcher = dropdown("searcher", "The algorithm that chooses.", searcher_names())
        self.run = OptionControls(RunOptions)
        self._option_slot, self._value_slot = w.VBox(), w.VBox()
        more = w.Accordion(
            [self._option_slot, self._value_slot], titles=("searcher options", "allowed values")
        )
        chain = (
            (self.kernel, self._kernel_chosen),
            (self.workload, self._workload_chosen),
            (self.runner, self._runner_chosen),
            (self.searcher, self._searcher_chosen),
        )
        for widget, action in chain:
            widget.observe(lambda _, act=action: self.view.guarded(act), names="value")
            action()
        for name in ("start", "pause", "stop", "save", "copy"):
            action = getattr(self, name)
            self.view.buttons[name].on_click(lambda _, act=action: self.view.guarded(act))
        left = w.VBox([self.kernel, self.workload, self.runner, self.searcher])
        settings = w.HBox([left, self.run.box])
        self.box = w.VBox([self.view.badge, settings, more, self.view.box]).add_class("ktl-tuner")

    @property
    def _workload(self) -> Workload:
        workloads = self._kernels[self.kernel.value].workloads
        return next(each for each in workloads if each.key == self.workload.value)

    def _kernel_chosen(self) -> None:
        offer(self.workload, [x.key for x in self._kernels[self.kernel.value].workloads])

    def _workload_chosen(self) -> None:
        offer(self.runner, [(c.label, c) for c in runner_choices(self._workload)])
        self.values = ValueControls(self._kernels[self.kernel.value].space(self._workload))
        self._value_slot.children = [self.values.box]

    def _runner_chosen(self) -> None:
        choice = self.runner.value
        self.view.show_badge(choice.badge() if choice else "no GPU and no landscape")

    def _searcher_chosen(self) -> None:
        self.options = OptionControls(get_searcher(self.searcher.value).Options)
        self._option_slot.children = [self.options.box]

    def _repr_mimebundle_(self, **given: Any) -> Any:
        """Shows the panel where a notebook cell ends with it."""
        return self.box._repr_mimebundle_(**given)


def _require(kind: str, name: str, known_names: Sequence[str]) -> None:
    if name not in known_names:
        raise UnknownName(kind, name, known_names)
