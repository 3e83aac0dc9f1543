"""SeveralRunner: one search measured by several GPUs of one kind at once."""

import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from kt_lab.closing import Closing
from kt_lab.errors import KtLabError, UsageError
from kt_lab.runners import Runner
from kt_lab.runners.controls import drift, require_one_kind
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.runners.workers import usable_cores
from kt_lab.trial import OK, Config, Measurement, Proposal

_CONTROL = "control"  # origin of what no searcher proposed


class SeveralRunner(Closing):
    """Hands each proposal to the runner with the most free lanes; results come as they finish.

    A search reads latencies of all GPUs as if they were of one. How far that is true is measured:
    a control config is timed on every GPU first and again after every so many proposals, and
    `facts["devices"]` tells how the GPUs differ and drift. Every measurement tells its GPU in
    info["device"]. What a search found is raced and confirmed on one GPU, the first that is left.

    A runner that breaks is closed, and what it had under way goes to the others.

    Simulated runners are advanced in the order of their clocks, so that a replay of several GPUs
    repeats itself; live ones are waited for in a thread each.

    Attributes:
        live: Whether the clocks are the wall's.
        lost: Device -> error of the runners that broke.
        on_measurement: None, or called with every (proposal, measurement, now) as it finishes.
    """

    def __init__(
        self,
        runners: Sequence[Runner] | Mapping[str, Runner],
        *,
        control: Config | None = None,
        every: int = 50,
    ):
        """Takes over open runners on one workload and one space; they are closed with this one.

        Args:
            runners: At least one, by the name of its device; a plain sequence is named by the
                UUIDs in the runners' facts, or "device-0" and so on.
            control: What every GPU times again; None: the space's default.
            every: After so many proposals on a GPU, >= 1.

        Raises:
            UsageError: The GPUs are of different kinds, or some runners are simulated only.
        """
        given = runners if isinstance(runners, Mapping) else {}
        for at, runner in enumerate([] if given else runners):
            given[getattr(runner, "facts", {}).get("uuid") or f"device-{at}"] = runner
        kinds = {name: getattr(r, "facts", {}).get("slug") for name, r in given.items()}
        if every < 1 or not given or len({r.live for r in given.values()}) > 1:
            raise UsageError(
                "several runners must be at least one, all live or all simulated, with a control "
                f"every >= 1 proposals, got {list(given)} and every={every}"
            )
        require_one_kind(kinds)
        self._alive: dict[str, Runner] = dict(given)
        self._first = next(iter(given.values()))
        self.live, self.on_measurement = self._first.live, None
        self.lost: dict[str, Exception] = {}
        self._every = every
        self._control = control or self._first.space.default
        self._out: dict[str, list[Proposal]] = {name: [] for name in given}
        self._read: dict[str, list[float]] = {name: [] for name in given}
        self._since = dict.fromkeys(given, every)
        self._now = 0.0
        self._ahead: dict[str, tuple[float, Any]] = {}  # simulated: drawn, and not yet returned
        self._results: queue.SimpleQueue = queue.SimpleQueue()
        self._owed = {name: threading.Semaphore(0) for name in given}
        for name, runner in given.items() if self.live else ():
            told = (name, runner, self._owed[name])
            threading.Thread(target=self._pump, args=told, daemon=True).start()

    # -- what `tune` needs ----------------------------------------------------------------------

    @property
    def free(self) -> int:
        """Lanes without work, of all runners together."""
        return sum(map(self._free, self._alive))

    @property
    def pending(self) -> int:
        """Proposals submitted and not yet returned; controls do not count."""
        return sum(map(len, self._out.values()))

    @property
    def now(self) -> float:
        """Machine seconds since the first runner was made."""
        return max(r.now for r in self._alive.values()) if self.live else self._now

    def submit(self, proposals: Sequence[Proposal]) -> None:
        """Hands proposals out; raises SpaceError before handing out any."""
        for proposal in proposals:
            self._first.space.check(proposal.config)
        for proposal in proposals:
            self._hand(proposal)

    def next(self) -> tuple[Proposal, Measurement]:
        """Waits for the next finished measurement of any runner.

        Raises:
            Exception: What broke the last runner.
        """
        if not self.pending:
            raise UsageError("SeveralRunner.next needs a pending proposal, got none")
        while True:
            name, found = self._results.get() if self.live else self._draw()
            if name not in self._alive:
                continue  # what others measure again
            if isinstance(found, Exception):
                self._lose(name, found)
            elif _is_control(found[0]):
                self._read[name] += [found[1].latency_us] if found[1].status == OK else []
            else:
                self._out[name].remove(found[0])
                return found

    def close(self) -> None:
        """Closes every runner; may be called twice."""
        for runner in self._alive.values():
            runner.close()

    # -- beyond `tune` --------------------------------------------------------------------------

    @property
    def facts(self) -> dict[str, Any]:
        """The first runner's facts, and under "devices" what the control says of each GPU."""
        told = {name: row | {"lost": None} for name, row in drift(self._read).items()}
        for name, error in self.lost.items():
            told[name]["lost"] = f"{type(error).__name__}: {error}"
        return dict(getattr(self._first, "facts", {})) | {"devices": told}

    def recall(self, readings: Sequence[tuple[Proposal, Measurement]]) -> None:
        """Takes in what an earlier part of the same run measured, each on its own GPU."""
        for name, runner in self._alive.items():
            if hasattr(runner, "recall"):
                runner.recall([r for r in readings if r[1].info.get("device") == name])

    def race(self, configs: Sequence[Config], **options: Any) -> np.ndarray:
        """Times configs in alternation on one GPU; see `GpuRunner.race`."""
        return next(iter(self._alive.values())).race(configs, **options)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the first runner's: workload, space, protocol, tally..."""
        return getattr(self.__dict__["_first"], name)

    # -- small steps ----------------------------------------------------------------------------

    def _free(self, name: str) -> int:
        return max(0, self._alive[name].free - (name in self._ahead))

    def _hand(self, proposal: Proposal) -> None:
        """Gives a proposal to the runner with the most room, the control first where it is due."""
        name = max(self._alive, key=self._free)
        work = [proposal]
        if self._since[name] >= self._every:
            self._since[name] = 0
            work.insert(0, Proposal(-1, self._control, origin=_CONTROL))
        self._since[name] += 1
        self._out[name].append(proposal)
        try:
            self._alive[name].submit(work)
        except KtLabError:
            self._out[name].remove(proposal)
            raise
        except Exception as error:
            self._lose(name, error)
            return
        for _ in work:
            self._owed[name].release()

    def _lose(self, name: str, error: Exception) -> None:
        """Gives up a runner; raises its error if it was the last."""
        self.lost[name] = error
        self._ahead.pop(name, None)
        moved, self._out[name] = self._out[name], []
        runner = self._alive[name]
        if len(self._alive) == 1:
            raise error
        del self._alive[name]
        runner.close()
        for proposal in moved:
            self._hand(proposal)

    def _finished(self, name: str, runner: Runner) -> tuple[Proposal, Measurement]:
        """Waits for a runner's next result and says whose it is."""
        proposal, measurement = runner.next()
        found = replace(measurement, info=dict(measurement.info) | {"device": name})
        if self.on_measurement and not _is_control(proposal):
            self.on_measurement(proposal, found, runner.now)
        return proposal, found

    def _pump(self, name: str, runner: Runner, owed: threading.Semaphore) -> None:
        """Waits for a live runner, in a thread of its own, until it breaks or is closed."""
        while owed.acquire():
            try:
                self._results.put((name, self._finished(name, runner)))
            except Exception as error:
                self._results.put((name, error))
                return

    def _draw(self) -> tuple[str, Any]:
        """Returns the earliest result of the simulated runners."""
        for name, runner in self._alive.items():
            if name in self._ahead or not runner.pending:
                continue
            try:
                found = self._finished(name, runner)
            except Exception as error:
                return name, error
            self._ahead[name] = (runner.now, found)
        name = min(self._ahead, key=lambda n: self._ahead[n][0])
        at, found = self._ahead.pop(name)
        self._now = max(self._now, at)
        return name, found


def _is_control(proposal: Proposal) -> bool:
    return proposal.origin == _CONTROL and proposal.id < 0


def several_gpus(
    workload: Any,
    *,
    devices: Sequence[int],
    control: Config | None = None,
    every: int = 50,
    **options: Any,
) -> SeveralRunner:
    """Opens a `GpuRunner` on each of several GPUs of this host; they share its cores.

    Args:
        workload: As for `GpuRunner`.
        devices: Indices of the GPUs as CUDA counts them.
        control: As for `SeveralRunner`.
        every: As for `SeveralRunner`.
        options: Of every `GpuRunner`.
    """
    options = {"compile_workers": max(1, usable_cores() // max(1, len(devices)))} | options
    with ExitStack() as stack:
        opened = [stack.enter_context(GpuRunner(workload, device=at, **options)) for at in devices]
        several = SeveralRunner(opened, control=control, every=every)
        stack.pop_all()
        return several
