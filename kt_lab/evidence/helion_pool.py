"""Helion's code generation behind kt_lab's workers: many configs compiled at once, one timed.

Each compile worker binds Helion's kernel once, then turns configs into Triton code and binaries;
the timing process loads what they left in the cache, compares its output with the reference and
times it. So neither Python nor CUDA is started anew for a config, whoever chose it: a searcher of
kt_lab through `PooledRunner`, or a search class of Helion's (`kt_lab.evidence.large`).
"""

import json
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.closing import Closing
from kt_lab.evidence.helion_services import ENVIRONMENT
from kt_lab.runners.gpu.compiling import one_line
from kt_lab.runners.repetitions import Repetitions
from kt_lab.runners.workers import Outcome, Workers, wait_any
from kt_lab.trial import OK, Measurement, Proposal

_SERVICES = "kt_lab.evidence.helion_services"
_LEAST_S, _MOST_S = 2.0, 8.0  # what a compilation may take, by what the others took
_SLOWER = 4.0  # times the slowest tenth seen
_SEEN = 20
_SPARES = 2  # compile workers that stand by: those that took too long are killed
_TIMING_S = 20.0
_AHEAD = 2  # compiled configs that may wait for the GPU while every lane stays busy
_HEATS = ((8, 2), (4, 2), (1, 4))  # how many of the fastest stay, after how many turns more
_FAILED = {"error": "launch_error"}


class Pool(Closing):
    """Compiles and times Helion's configs of one workload.

    Attributes:
        lanes: Compile workers.
        waited_s: Seconds of the run that who asked spent waiting for a measurement.
    """

    def __init__(
        self,
        workload: str,
        *,
        folder: Path,
        lanes: int,
        share_code: bool = True,
        module: str = _SERVICES,
    ):
        """Starts the workers.

        Args:
            workload: Key of a workload that Helion has a kernel for.
            folder: Where binaries are kept, of each run apart.
            lanes: Compile workers, >= 1.
            share_code: Give configs that become the same code one measurement; Helion times
                each of them.
            module: Where `compile_service` and `timing_service` are.
        """
        settings = {"settings": {"workload": workload}, "env": ENVIRONMENT}
        compiling = f"{module}:compile_service"
        self._compiling = Workers(lanes, service=compiling, spares=_SPARES, **settings)
        self._timing = Workers(1, service=f"{module}:timing_service", spares=1, **settings)
        self.lanes, self._folder, self._runs = lanes, folder, 0
        self._shared = share_code
        self.begin()

    def begin(self, *, most_s: float | None = None) -> None:
        """Starts a run: nothing is known or compiled, and the clock is at zero.

        Args:
            most_s: Seconds that compiling may take, if not less by what others took; None: 8.
        """
        self.settle()
        self._runs += 1
        self._most_s = most_s or _MOST_S
        self._cache = str(self._folder / str(self._runs))
        self._rule, self._best_us = Repetitions(), math.inf
        self._code: dict[str, str] = {}  # config -> what Helion made of it
        self._known: dict[str, Measurement] = {}  # code -> what it measured
        self._compile_s: list[float] = []
        self.waited_s = 0.0
        self._began = time.perf_counter()

    def settle(self) -> None:
        """Lets what is under way come to its end unheard: whoever is done would stop it."""
        while self._runs and (self._compiling.next() or self._timing.next()):
            pass
        self._ready: deque[tuple[Any, dict]] = deque()
        self._done: deque[tuple[Any, Measurement]] = deque()
        self._waiting: dict[str, list[Any]] = {}  # code -> tags that wait for its measurement
        self.pending = 0

    @property
    def now(self) -> float:
        """Seconds of the wall since the run began."""
        return time.perf_counter() - self._began

    @property
    def free(self) -> int:
        """Configs that can be taken without waiting for a lane."""
        waiting = max(0, len(self._ready) - _AHEAD)
        return max(0, self.lanes - self._compiling.pending - waiting)

    def submit(self, tag: Any, config: Mapping[str, Any]) -> None:
        """Takes up one of Helion's configs; `tag` comes back with its measurement."""
        self.pending += 1
        task = {"config": dict(config), "cache": self._cache}
        self._compiling.submit((tag, _name(config)), task, timeout_s=self._limit_s())

    def code(self, config: Mapping[str, Any]) -> str | None:
        """Returns what Helion made of a config that was compiled; several may share it."""
        return self._code.get(_name(config))

    def again(self, tag: Any, config: Mapping[str, Any], *, timer: str = "events") -> None:
        """Takes up a config that was measured, to be timed once more, by "events" or "graph"."""
        self.pending += 1
        code = self.code(config)
        if code is None or self._known[code].status != OK:
            self._done.append((tag, Measurement("launch_error", error="it failed before")))
        else:
            self._ready.append(((tag, timer), self._task(code) | {"again": timer}))

    def fastest(self, configs: Sequence[Mapping[str, Any]], *, timer: str = "events") -> Any:
        """Times measured configs again in turns; returns that with the lowest median, or None.

        In heats: the fewer are left, the more often each is timed. What else is under way
        comes to its end unheard.
        """
        read: dict[int, list[float]] = {at: [] for at in range(len(configs))}
        left = list(read)
        for heat, (stay, turns) in enumerate(_HEATS):
            places = {("again", heat, turn, at): at for turn in range(turns) for at in left}
            for tag, at in places.items():
                self.again(tag, configs[at], timer=timer)
            waiting = set(places)
            while waiting:
                tag, measured = self.next()
                waiting.discard(tag)
                if tag in places and measured.status == OK:
                    read[places[tag]].append(measured.latency_us)
            left = sorted((at for at in left if read[at]), key=lambda at: np.median(read[at]))
            left = left[:stay]
        return configs[left[0]] if left else None

    def refuse(self, tag: Any, measurement: Measurement) -> None:
        """Takes up a config whose measurement is known already."""
        self.pending += 1
        self._done.append((tag, measurement))

    def next(self) -> tuple[Any, Measurement]:
        """Waits for the next measurement."""
        asked_s = self.now
        while not self._done:
            self._feed()
            wait_any([self._compiling, self._timing])
            for tag, outcome in self._compiling.poll():
                self._compiled(*tag, outcome)
            for about, outcome in self._timing.poll():
                self._timed(about, outcome)
            self._feed()
        self.pending -= 1
        self.waited_s += self.now - asked_s
        return self._done.popleft()

    def close(self) -> None:
        """Ends all processes."""
        self._compiling.close()
        self._timing.close()

    def _limit_s(self) -> float:
        if len(self._compile_s) < _SEEN:
            return self._most_s
        slow = sorted(self._compile_s)[int(0.9 * len(self._compile_s))]
        return min(self._most_s, max(_LEAST_S, _SLOWER * slow))

    def _task(self, code: str) -> dict[str, Any]:
        return {"code": code, "cache": self._cache, "again": None}

    def _compiled(self, tag: Any, name: str, outcome: Outcome) -> None:
        answer, seconds = outcome.value or {"error": outcome.error}, outcome.seconds
        if code := answer.get("code"):
            self._compile_s.append(seconds)
            self._code[name] = code
            known = code in self._known or code in self._waiting
            if known and not self._shared:
                self._ready.append(((tag, "events"), self._task(code)))
            elif code in self._known:  # Helion writes the same kernel for several configs
                self._done.append((tag, _twin(self._known[code], seconds)))
            elif code in self._waiting:
                self._waiting[code].append((tag, seconds))
            else:
                self._waiting[code] = [(tag, seconds)]
                self._ready.append((code, self._task(code)))
            return
        status = outcome.kind if outcome.kind in ("timeout", "crashed") else "compile_error"
        failed = Measurement(status, compile_s=seconds, error=answer["error"][:200])
        self._done.append((tag, failed))

    def _feed(self) -> None:
        if self._ready and not self._timing.pending:
            about, task = self._ready.popleft()
            best_us = self._best_us if math.isfinite(self._best_us) else None
            task |= {"rule": self._rule, "best_us": best_us}
            self._timing.submit(about, task, timeout_s=_TIMING_S)

    def _timed(self, about: Any, outcome: Outcome) -> None:
        answer = outcome.value or {
            "status": _FAILED.get(outcome.kind, outcome.kind),
            "error": outcome.error,
        }
        measured = Measurement(
            answer["status"],
            samples_us=tuple(answer.get("samples_us", ())),
            measure_s=outcome.seconds,
            error=answer.get("error", "")[:200],
        )
        again = isinstance(about, tuple)  # of code that was timed before
        tag, timer = about if again else (None, "events")
        if measured.status == OK and timer == "events":  # others read less
            self._best_us = min(measured.latency_us, self._best_us)
        if again:
            self._done.append((tag, measured))
            return
        self._known[about] = measured
        (tag, seconds), *twins = self._waiting.pop(about)
        self._done.append((tag, replace(measured, compile_s=seconds)))
        self._done += [(tag, _twin(measured, seconds)) for tag, seconds in twins]


def _name(config: Mapping[str, Any]) -> str:
    return json.dumps(dict(config), sort_keys=True, default=str)


def _twin(measured: Measurement, compile_s: float) -> Measurement:
    """Returns a measurement for another config with the same code: it was not timed again."""
    return replace(measured, compile_s=compile_s, measure_s=0.0, info={"twin": True})


class PooledRunner:
    """A pool as what `tune` measures with: configs are those of a HelionSpace."""

    live = True

    def __init__(self, pool: Pool, space: Any, *, most_s: float | None = None):
        """Begins a run; see `Pool.begin`."""
        pool.begin(most_s=most_s)
        self._pool, self._space = pool, space
        self._asked: dict[int, Proposal] = {}
        self._tags = 0

    @property
    def free(self) -> int:
        """Configs that can be taken without waiting for a lane."""
        return self._pool.free

    @property
    def pending(self) -> int:
        """Proposals that were not answered yet."""
        return self._pool.pending

    @property
    def now(self) -> float:
        """Seconds of the wall since the run began."""
        return self._pool.now

    def submit(self, proposals: Sequence[Proposal]) -> None:
        """Takes up proposals; what Helion refuses is invalid, at no cost."""
        from helion import exc

        for proposal in proposals:
            tag, self._tags = self._tags, self._tags + 1
            self._asked[tag] = proposal
            try:
                config = self._space.helion(proposal.config)
            except exc.InvalidConfig as error:
                self._pool.refuse(tag, Measurement("invalid", error=one_line(error)))
            else:
                self._pool.submit(tag, config)

    def next(self) -> tuple[Proposal, Measurement]:
        """Waits for the next measurement."""
        tag, measurement = self._pool.next()
        return self._asked.pop(tag), measurement
