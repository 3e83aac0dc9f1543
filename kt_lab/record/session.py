"""Sessions: the contenders of recorded landscapes timed again in a fresh process, another day.

A recording is one process on one day: what changes between processes, machines and days is not
in its noise. A session times every config near the optimum and a sample of the others once more,
in a new order, with a control config every so often that tells how the GPU itself drifts.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError, whole_fields
from kt_lab.landscape import Landscape, load_landscape
from kt_lab.record.lanes import ask, compiled, locked
from kt_lab.record.recording import COMPILE_TIMEOUT_S, SERVICES, TIMING_TIMEOUT_S
from kt_lab.record.state import Progress
from kt_lab.record.works import works_of
from kt_lab.runners.gpu.compiling import ENVIRONMENT
from kt_lab.runners.gpu.facts import require_gpu
from kt_lab.runners.gpu.planning import launches
from kt_lab.runners.repetitions import Repetitions
from kt_lab.runners.workers import Workers, served, usable_cores
from kt_lab.sessions import require_new, save_session
from kt_lab.trial import OK
from kt_lab.workload import Kernel, Workload


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What a session times, and how.

    Attributes:
        near: A contender is within this factor of the recorded optimum, >= 1.
        most: At most so many contenders per workload, the fastest.
        others: Further configs per workload, evenly spaced over the ranks of the rest.
        control_every: A control config is timed after so many readings.
        repetitions: Timed launches per config.
        compile_workers: Compile processes; None: one per core but one.
        device: Index of the GPU.
        protocol: Short name of the timing protocol.
        seed: Shuffles the order.
        stop_after_s: Stop cleanly after so many seconds with what has been timed.
    """

    near: float = 1.10
    most: int = 300
    others: int = 100
    control_every: int = 100
    repetitions: int = 16
    compile_workers: int | None = None
    device: int = 0
    protocol: str = "events"
    seed: int = 0
    stop_after_s: float | None = None

    def __post_init__(self):
        """Checks that a session can tell something."""
        whole_fields(self, most=0, others=0, repetitions=5, control_every=1, device=0, seed=0)
        if not self.near >= 1:
            raise UsageError(f"a session needs near >= 1, got near={self.near}")


def chosen(landscape: Landscape, options: SessionOptions) -> list[int]:
    """Returns the configs that a session times: contenders, and others spread over the ranks.

    Args:
        landscape: What was recorded.
        options: How many of each.

    Returns:
        Positions in `space.enumerate()`, the contenders first, fastest first.
    """
    latency = landscape.latency_us
    ranked = [int(i) for i in np.argsort(latency) if np.isfinite(latency[i])]
    near = [i for i in ranked if latency[i] <= options.near * landscape.optimum_us]
    near = near[: options.most]
    rest = ranked[len(near) :]
    spread = np.unique(np.linspace(0, len(rest) - 1, min(options.others, len(rest))).astype(int))
    return near + [rest[i] for i in spread]


class SessionRecording:
    """One session over some recorded workloads of this machine's GPU."""

    def __init__(
        self,
        workloads: Sequence[str | Workload],
        *,
        name: str,
        cache: Path,
        options: SessionOptions,
        kernel: Kernel | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        services: Mapping[str, str] = SERVICES,
        load: Callable[..., Landscape] = load_landscape,
    ):
        """Looks the workloads up; nothing is measured before `run`.

        Args:
            workloads: With a landscape of this kind of GPU, or their keys.
            name: Of the session; its file is called so.
            cache: Folder of compiled binaries.
            options: What to time, and how.
            kernel: That they are of, such as a captured one; None: the registered ones.
            on_progress: Called after every step.
            services: The worker services "compile" and "timing" as module:function.
            load: (key, *, gpu) -> the recorded landscape.
        """
        self._works = works_of(workloads, kernel)
        self.workloads = tuple(self._works)
        self.name, self.options, self._cache = name, options, Path(cache)
        self._services, self._load = services, load
        self._report = on_progress or (lambda _: None)
        self._began = time.perf_counter()

    def run(self) -> Path:
        """Compiles and times what is chosen; returns the saved session.

        Ctrl-C while it times ends it, as `stop_after_s` does.

        Raises:
            UsageError: Nothing was timed, or the GPU was lost: what was read is saved then too.
        """
        rows: list[dict[str, Any]] = []
        lost = None
        require_gpu(self.options.device, timing=self._services["timing"])
        workers = self.options.compile_workers or max(1, usable_cores() - 1)
        device = self.options.device
        with (
            locked(device, what=f"session {self.name}"),
            self._workers("timing", 1, {"device": device}) as timing,
        ):
            facts = ask(timing, {"do": "facts", "protocol": self.options.protocol})
            require_new(self.name, gpu=facts["slug"])
            order = self._order(facts)
            major, minor = facts["capability"].split(".")
            target = {"arch": int(major) * 10 + int(minor), "nice": 5}
            with self._workers("compile", workers, target) as compiling:
                ready = self._compile(compiling, order, facts["sms"])
            for work in self._works.values():
                ask(timing, {"do": "load", "subject": work.subject})
            try:
                self._time(timing, [pair for pair in order if pair in ready], rows)
                facts["after"] = ask(timing, {"do": "facts", "protocol": self.options.protocol})
            except UsageError as error:
                lost = error
            except KeyboardInterrupt:
                if not rows:
                    raise
        if lost and not rows:
            raise lost
        if not rows:
            raise UsageError(
                f"a session must time one config at least, got none in "
                f"{self.options.stop_after_s} s; give it more seconds or fewer workloads"
            )
        table = pd.DataFrame([row | {"order": i} for i, row in enumerate(rows)])
        path = save_session(
            table, name=self.name, facts=facts, rules=self._rules(), gpu=facts["slug"]
        )
        if lost:
            raise UsageError(f"{lost}, under another name: {len(rows)} readings are in {path}")
        return path

    def _rules(self) -> dict[str, Any]:
        names = ("near", "most", "others", "control_every", "repetitions", "protocol", "seed")
        return {name: getattr(self.options, name) for name in names}

    def _workers(self, service: str, count: int, settings: Mapping[str, Any]) -> Workers:
        env = ENVIRONMENT | {"TRITON_CACHE_DIR": str(self._cache), "OMP_NUM_THREADS": "1"}
        return Workers(count, service=self._services[service], settings=settings, env=env)

    def _order(self, facts: Mapping[str, Any]) -> list[tuple[str, int]]:
        pairs = []
        for key, work in self._works.items():
            landscape = self._load(key, gpu=facts["slug"])
            landscape.require(work.space)
            pairs += [(key, at) for at in chosen(landscape, self.options)]
        np.random.default_rng(self.options.seed).shuffle(pairs)
        return [(str(key), int(at)) for key, at in pairs]

    def _compile(self, compiling: Workers, order: Sequence[tuple[str, int]], sms: int) -> set:
        works = self._works.items()
        plans = {k: list(launches(work.subject, work.space, sms=sms)) for k, work in works}
        sharing: dict[str, list[tuple[str, int]]] = {}
        for key, at in order:
            sharing.setdefault(plans[key][at][0], []).append((key, at))
        for name, pairs in sharing.items():
            task = self._task(*pairs[0]) | {"sms": sms}
            compiling.submit(name, task, timeout_s=COMPILE_TIMEOUT_S)
        ready: set[tuple[str, int]] = set()
        for done in range(1, len(sharing) + 1):
            if self.out_of_time:
                break
            name, outcome = compiling.next()
            if compiled(outcome)["status"] == OK:
                ready |= set(sharing[name])
            self._progress("compile", done, len(sharing))
        return ready

    def _time(self, timing: Workers, order: Sequence[tuple[str, int]], rows: list) -> None:
        best: dict[str, float] = {}
        control = min(order, key=lambda pair: self.workloads.index(pair[0]), default=None)
        for done, pair in enumerate(order):
            if self.out_of_time:
                break
            if done % self.options.control_every == 0:
                rows.append(self._read(timing, control, best) | {"control": True})
            rows.append(self._read(timing, pair, best) | {"control": False})
            self._progress("session", done + 1, len(order))

    def _read(self, timing: Workers, pair: tuple[str, int], best: dict) -> dict[str, Any]:
        count = self.options.repetitions
        task = self._task(*pair) | {
            "do": "measure",
            "protocol": self.options.protocol,
            "rule": Repetitions(probes=5, usual=count, most=count, slow=2.0, close=1.0),
            "asked": None,
            "best_us": best.get(pair[0]),
            "cutoff_us": None,
            "check": False,
        }
        timing.submit(pair, task, timeout_s=TIMING_TIMEOUT_S)
        _, outcome = timing.next()
        answer = served(outcome).value or {"status": outcome.kind}
        if outcome.kind in ("timeout", "crashed"):  # another process reads high until it is warm
            ask(timing, {"do": "load", "subject": self._works[pair[0]].subject})
        samples = answer.get("samples_us") or []
        if samples:
            median = float(np.median(samples))
            best[pair[0]] = min(median, best.get(pair[0], median))
        return {
            "workload": pair[0],
            "config": pair[1],
            "status": answer["status"],
            "samples_us": samples,
        }

    def _task(self, key: str, at: int) -> dict[str, Any]:
        work, space = self._works[key], self._works[key].space
        return {"subject": work.subject, "config": dict(space.config(space.enumerate()[at]))}

    @property
    def out_of_time(self) -> bool:
        """Whether `stop_after_s` has passed."""
        limit = self.options.stop_after_s
        return limit is not None and time.perf_counter() - self._began > limit

    def _progress(self, phase: str, done: int, total: int) -> None:
        elapsed = time.perf_counter() - self._began
        self._report(Progress(phase, done, total, elapsed, None, 0))
