"""TunerPanel: choose what to tune and how, watch it converge, keep what was found."""

import asyncio
import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets as w

from kt_lab.decisions import triton_text
from kt_lab.errors import UsageError
from kt_lab.kernels import kernels as registered
from kt_lab.live import confirm_found
from kt_lab.search import make_searcher
from kt_lab.ui.background import Background, alive
from kt_lab.ui.choices import Known, make_runner, open_gpu, prior_known
from kt_lab.ui.keyboard import keyboard
from kt_lab.ui.progress import PAUSED, Snapshot
from kt_lab.ui.session import Confirming, Session
from kt_lab.ui.shell import EVERY_S, pump
from kt_lab.ui.tuner_choice import Asked, TunerChoice
from kt_lab.ui.view import TunerView
from kt_lab.workload import Kernel


class TunerPanel(TunerChoice):
    """A panel on one search at a time; each button is a method of the same name.

    Without a browser it does the same: `panel.start()`, `panel.wait()`.

    Attributes:
        box: The widget to show; a notebook cell that ends with the panel shows it.
        view: The widgets that show the session.
        session: The current session; None before the first start.
        confirming: The confirmation of its finalists; None: not asked for since.
        kernel, workload, runner, searcher, run, options, values: As in `TunerChoice`.
    """

    def __init__(
        self,
        workload: str = "softmax/4096x640",
        *,
        kernels: Sequence[Kernel] | None = None,
        name: str = "tuner",
        directory: Path | str | None = None,
        **settings: Any,
    ):
        """Makes the panel; the session of an earlier panel of the same name is stopped.

        Args:
            workload: Key of the workload to begin with.
            kernels: To choose from; None: the registered ones.
            name: Of two panels of one name in a process only one runs.
            directory: Where live runs keep journals and winners; None: the folder of recorded
                data.
            settings: What else `choose` takes. Without them: this machine's GPU or else a replay,
                scout with its own defaults, all values, 200 trials.

        Raises:
            UnknownName: There is no such workload, searcher, runner, option or parameter.
        """
        for session in alive(name):
            session.stop()
        self.name, self.directory = name, directory
        self.session: Session | None = None
        self.confirming: Confirming | None = None
        self._asked: Asked | None = None
        self._levels: list[Known] = []  # filled by the session's worker
        self._pump_task: asyncio.Task | None = None
        self.view = TunerView()
        super().__init__(self.view, kernels or registered())
        self._build()
        self.choose(workload, **{"searcher": "scout"} | settings)

    # -- what a user does -----------------------------------------------------------------------

    def start(self) -> Session:
        """Starts a search with what the controls say; returns its session.

        A live one keeps a journal: started again after whatever end, it goes on from there.
        """
        self._require_rest("start")
        self._asked = self.asked(directory=self.directory)
        self.session, self.confirming = self._session(self._asked), None
        self.view.begin()
        self._follow(self.session.start())
        return self.session

    def pause(self) -> None:
        """Holds the search after the trial under way, or goes on where it was held."""
        session = self._started("pause")
        (session.resume if session.snapshot().state == PAUSED else session.pause)()
        self.render(session.snapshot())

    def stop(self) -> None:
        """Ends the search after the trial under way; what was found is kept."""
        session = self._started("stop")
        (self.confirming or session).stop()
        self.render(session.snapshot())

    def confirm(self) -> Confirming:
        """Races what a live search found against the default, and stores the winner.

        Searches keep the lowest of many noisy readings; only fresh readings in alternation tell
        whether it is faster (`kt_lab.live.confirm_found`).

        Raises:
            UsageError: The search runs, was a replay, or found nothing.
        """
        session, asked = self._started("confirm"), self._asked
        self._require_rest("confirm")
        found = session.snapshot()
        if not asked.choice.live or found.incumbent is None:
            got = "a replay" if not asked.choice.live else "no incumbent"
            raise UsageError(f"a confirmation needs a live search that found something, got {got}")
        self.confirming = Confirming(
            self.name,
            runner=partial(
                open_gpu, asked.choice, asked.workload, asked.kernel, lanes=asked.search.lanes
            ),
            confirm=partial(
                confirm_found,
                history=session.history,
                elapsed_s=found.elapsed_s,
                **asked.search.about,
            ),
        )
        self._follow(self.confirming.start())
        return self.confirming

    def save(self, path: Path | str | None = None) -> Path:
        """Stores the trials so far; see `Session.save`."""
        path = self._started("save").save(path)
        self.view.saved(path)
        return path

    def copy(self) -> str:
        """Returns the incumbent, or the confirmed winner, as a `triton.Config`, and shows it."""
        config = self._started("copy").snapshot().incumbent
        if self.confirming is not None and self.confirming.snapshot().found is not None:
            config = self.confirming.snapshot().found.winner.config
        if config is None:
            raise UsageError("copying needs an incumbent, got none: nothing was ok so far; wait")
        text = triton_text(config)
        self.view.show_code(text)
        return text

    def wait(self, timeout: float | None = None) -> Snapshot:
        """Waits for the end of search or confirmation, or `timeout` seconds, and shows both.

        For scripts and papermill: while it waits, no button of the notebook reacts.

        Returns:
            The search's snapshot; the confirmation has its own (`confirming.snapshot()`).

        Raises:
            UsageError: Nothing was started.
            Exception: What it failed with.
        """
        session = self._started("wait")
        job = self.confirming or session
        until = time.monotonic() + (math.inf if timeout is None else timeout)
        while job.alive and (left := until - time.monotonic()) > 0:
            job.ended.wait(min(left, EVERY_S))
            self.render(session.snapshot())
        self.render(session.snapshot())
        job.wait(0)
        return session.snapshot()

    def render(self, snapshot: Snapshot) -> None:
        """Shows a snapshot of the session, and how far its confirmation is."""
        self.view.render(
            snapshot,
            searcher=self.session.facts["searcher"],
            known=self._levels[-1] if self._levels else Known(),
            badge=self._asked.choice.badge,
            live=self._asked.choice.live,
            confirming=self.confirming and self.confirming.snapshot(),
        )

    # -- small steps ----------------------------------------------------------------------------

    def _follow(self, job: Background) -> None:
        """Renders a job that has begun while it runs and is this panel's, and its end."""
        session = self.session
        self.render(session.snapshot())

        def turn() -> bool:
            ours = self.session is session and job in (session, self.confirming)
            return ours and self.view.guarded(lambda: self.render(session.snapshot()))

        self._pump_task = pump(job, turn)

    def _require_rest(self, verb: str) -> None:
        for job in (self.session, self.confirming):
            if job is not None and job.alive:
                raise UsageError(
                    f"to {verb}, nothing of the panel may be running, got a "
                    f"{'search' if job is self.session else 'confirmation'}; stop it first"
                )

    def _started(self, verb: str) -> Session:
        if self.session is None:
            raise UsageError(f"to {verb}, a search must have been started, got none; start one")
        return self.session

    def _session(self, asked: Asked) -> Session:
        """Returns a session of what the controls say, not started."""
        self._levels = []
        space, search = asked.space, asked.search
        return Session(
            self.name,
            searcher=partial(_searcher, asked),
            runner=partial(
                make_runner,
                asked.choice,
                asked.workload,
                asked.kernel,
                space=space,
                search=search,
                tell=self._levels.append,
            ),
            budget=asked.budget,
            reference=space.default,
            facts=asked.facts,
        )

    def _build(self) -> None:
        for name in ("start", "pause", "stop", "save", "copy", "confirm"):
            self.view.on_click(self.view.buttons[name], getattr(self, name))
        shown = [keyboard(), self.view.badge, self.settings, self.view.box]
        self.box = w.VBox(shown).add_class("ktl-tuner")

    def _repr_mimebundle_(self, **given: Any) -> Any:
        """Shows the panel where a notebook cell ends with it."""
        return self.box._repr_mimebundle_(**given)


def _searcher(asked: Asked) -> Any:
    """Returns the searcher that was asked for, with what it is to know beforehand."""
    search = asked.search
    return make_searcher(
        search.name,
        asked.space,
        seed=search.seed,
        budget=asked.budget,
        prior=prior_known(search.known, asked.workload, asked.choice.gpu),
        **search.options,
    )
