"""The pipeline of a live run: compile processes feed the one process that times.

A thread of its own moves the work along, so that neither a searcher that thinks nor a notebook
that draws leaves the GPU idle, and so that an interrupt finds every finished measurement already
handed over.
"""

import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from kt_lab.runners.gpu.jobs import Job, Limits, Tally
from kt_lab.runners.gpu.planning import Plan
from kt_lab.runners.repetitions import Repetitions
from kt_lab.runners.workers import COMPILER, Outcome, Workers, served, wait_any
from kt_lab.trial import OK, Measurement, Proposal
from kt_lab.workload import Subject

_SEEN_ENOUGH = 20  # compilations before the limit follows what was seen
_CACHED_S = 0.05  # a binary in the cache is there in less, which says nothing of a compilation
_SLOWER = 8.0  # times the slowest tenth seen: beyond that it will not come back
_LAUNCHES = 2000  # of the best config's latency: what a timing task may take beside `timing_s`
_LOAD = "load"  # tag of the task with which a fresh timing process makes inputs and reference
_LOADS = 3  # attempts in a row; after that the measurements tell what is wrong
_FAILED = {"error": "launch_error"}  # Outcome.kind -> status, where the words differ
_SLOW = "; if its launches take so long, open GpuRunner(..., limits=Limits(timing_s=60))"
# What is true of one config is true of its twin; a crash may have been somebody else's doing.
_SHARED = (OK, "wrong_result", "launch_error")


@dataclass
class Pipeline:
    """Moves jobs through compiling and timing in a thread.

    Attributes:
        subject: What is measured.
        plan: Config -> Plan; called in the pump thread.
        compiling: The compile pool.
        timing: The timing process, with its spare.
        sms: Multiprocessors of the GPU, which some grids depend on.
        protocol: Short name of the timing protocol.
        protocol_name: The name that is stored with every sample.
        rule: Adaptive repetitions.
        share: Whether identical launches are timed once.
        limits: How long a task may take.
        done: Called in the pump thread with every finished (Proposal, Measurement).
        failed: Called in the pump thread when it ends by an error of its own.
    """

    subject: Subject
    plan: Callable[[Any], Plan]
    compiling: Workers
    timing: Workers
    sms: int
    protocol: str
    protocol_name: str
    rule: Repetitions
    share: bool
    limits: Limits
    done: Callable[[Proposal, Measurement], None]
    failed: Callable[[BaseException], None]
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self):
        """Starts the thread."""
        self._inbox: deque[Job | tuple[dict, float, Future]] = deque()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_out, False)
        self._closing = False
        self._asked: set[Future] = set()  # not answered yet
        self._facts: dict[str, dict] = {}  # specialisation -> what compiling it gave
        self._waiting: dict[str, list[Job]] = defaultdict(list)
        self._compile_s: list[float] = []
        self._ready: deque[Job | tuple[dict, float, Future]] = deque()
        self._timed: dict[tuple[str, str], tuple[Any, Measurement]] = {}
        self._best_us: float | None = None
        self._fresh = False  # the timing process was lost; at first whoever opens this loads
        self._loads = 0
        self._taken = self._left = 0  # jobs; each is written by one thread only
        self._thread = threading.Thread(target=self._run, name="kt_lab-pipeline", daemon=True)
        self._thread.start()

    # -- from other threads ---------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Takes up a job; its measurement comes through `done`."""
        self.tally.first_at = self.tally.first_at or perf_counter()
        self._taken += 1
        self._inbox.append(job)
        self._wake()

    def ask(self, task: Mapping[str, Any], *, timeout_s: float) -> Future:
        """Sends the timing process a task of another kind; the future holds its Outcome."""
        future: Future = Future()
        self._asked.add(future)
        future.add_done_callback(self._asked.discard)
        if self._closing or not self._thread.is_alive():
            future.set_exception(RuntimeError("the pipeline has ended; open another runner"))
            return future
        self._inbox.append((dict(task), timeout_s, future))
        self._wake()
        return future

    def recall(self, config: Any, measurement: Measurement) -> None:
        """Takes in what an earlier part of the run measured, before the first job."""
        if measurement.status == OK:
            latency = measurement.latency_us
            self._best_us = min(latency, self._best_us or latency)
        launch = measurement.info.get("code_hash"), measurement.info.get("grid")
        if measurement.status in _SHARED and "twin" not in measurement.info and all(launch):
            self._timed.setdefault(launch, (config, measurement))

    def close(self) -> None:
        """Stops the thread; what is in flight is dropped."""
        self._closing = True
        self._wake()
        self._thread.join(timeout=30)
        for fd in (self._wake_out, self._wake_in):
            with suppress(OSError):
                os.close(fd)

    @property
    def waits(self) -> int:
        """Jobs that have not reached the GPU yet."""
        return self._taken - self._left

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._wake_in, b"x")

    # -- the pump thread ------------------------------------------------------------------------

    def _run(self) -> None:
        error: BaseException = RuntimeError("the pipeline was closed; open another runner")
        try:
            while not self._closing:
                self._turn()
        except BaseException as found:
            error = found
            self.failed(error)
        for future in tuple(self._asked):  # whoever waits for a result must learn of it
            future.set_exception(error)

    def _turn(self) -> None:
        wait_any([self.compiling, self.timing], also=[self._wake_out])
        with suppress(BlockingIOError):
            os.read(self._wake_out, 4096)
        while self._inbox:
            self._admit(self._inbox.popleft())
        for tag, outcome in self.compiling.poll():
            self._take_compilation(tag, outcome)
        for tag, outcome in self.timing.poll():
            self._take_timing(tag, outcome)
        self._feed()

    def _admit(self, job) -> None:
        if not isinstance(job, Job):
            self._ready.append(job)
            return
        try:
            job.plan = self.plan(job.proposal.config)
        except Exception as error:
            told = f"the launch could not be planned: {type(error).__name__}: {error}"
            self._finish(job, Measurement("launch_error", error=told[:200]))
            return
        name = job.plan.specialisation
        if name in self._facts:
            self._route(job)
            return
        self._waiting[name].append(job)
        if len(self._waiting[name]) == 1:
            task = {"subject": self.subject, "config": dict(job.proposal.config), "sms": self.sms}
            self.compiling.submit(name, task, timeout_s=self._compile_limit_s())

    def _compile_limit_s(self) -> float:
        """Returns how long a compilation may take: it follows from those seen so far."""
        low, high = self.limits.compile_least_s, self.limits.compile_most_s
        if len(self._compile_s) < _SEEN_ENOUGH:
            return high
        slow = sorted(self._compile_s)[int(0.9 * len(self._compile_s))]
        return min(high, max(low, _SLOWER * slow))

    def _take_compilation(self, name: str, outcome: Outcome) -> None:
        facts = served(outcome, COMPILER).value or {
            "status": outcome.kind if outcome.kind != "error" else "compile_error",
            "error": outcome.error,
        }
        self._facts[name] = facts
        seconds = facts.get("wall_s", outcome.seconds)
        if facts["status"] == OK and seconds > _CACHED_S:
            self._compile_s.append(seconds)
        self.tally.compiled += 1
        self.tally.compile_busy_s += outcome.seconds
        for at, job in enumerate(self._waiting.pop(name, [])):
            job.compile_s = 0.0 if at else seconds
            self._route(job)

    def _route(self, job: Job) -> None:
        facts = self._facts[job.plan.specialisation]
        if facts["status"] == OK:
            self._ready.append(job)
        else:
            self._finish(job, Measurement(facts["status"], error=facts["error"]))

    def _feed(self) -> None:
        """Gives the idle timing process its next task; answers twins on the way."""
        if self._fresh and self._loads < _LOADS and not self.timing.pending:
            self._loads += 1
            task = {"do": _LOAD, "subject": self.subject}
            self.timing.submit(_LOAD, task, timeout_s=self.limits.loading_s)
        while self._ready and not self.timing.pending:
            job = self._ready.popleft()
            if not isinstance(job, Job):
                task, timeout_s, _ = job
                self.timing.submit(job, task, timeout_s=timeout_s)
            elif (twin := self._twin(job)) is not None:
                self._share(job, *twin)
            else:
                seconds = self.limits.timing_s + _LAUNCHES * (self._best_us or 0.0) * 1e-6
                job.sent = True
                self._left += 1
                self.timing.submit(job, self._task(job), timeout_s=seconds)

    def _task(self, job: Job) -> dict[str, Any]:
        proposal = job.proposal
        return {
            "do": "measure",
            "subject": self.subject,
            "config": dict(proposal.config),
            "protocol": self.protocol,
            "rule": self.rule,
            "asked": proposal.repetitions,
            "best_us": self._best_us,
            "cutoff_us": proposal.cutoff_us,
            "check": job.check,
        }

    def _launch(self, job: Job) -> tuple[str, str]:
        return self._facts[job.plan.specialisation]["code_hash"], job.plan.grid

    def _twin(self, job: Job) -> tuple[Any, Measurement] | None:
        """Returns another config whose launch is identical and was measured, if any."""
        found = self._timed.get(self._launch(job)) if self.share and job.check else None
        if found is None or found[0] == job.proposal.config:
            return None
        asked = job.proposal.repetitions or 0
        return found if not found[1].samples_us or asked <= len(found[1].samples_us) else None

    def _share(self, job: Job, twin, measured: Measurement) -> None:
        self.tally.shared += 1
        info = dict(measured.info) | {"twin": dict(twin)}
        self._finish(job, replace(measured, check_s=0.0, measure_s=0.0, info=info))

    def _take_timing(self, job, outcome: Outcome) -> None:
        lost = served(outcome).kind in ("timeout", "crashed")
        self._fresh = lost
        self.tally.lost += lost
        if job is _LOAD:
            self._loads = self._loads if lost else 0
            return
        self.tally.timing_busy_s += outcome.seconds
        if not isinstance(job, Job):
            with suppress(InvalidStateError):  # a pipeline before this one gave it up
                job[2].set_result(outcome)
            return
        answer = outcome.value or {
            "status": _FAILED.get(outcome.kind, outcome.kind),
            "error": outcome.error + (_SLOW if outcome.kind == "timeout" else ""),
            "seconds": outcome.seconds,
        }
        self.tally.timed += 1
        for name in ("load_s", "check_s", "timing_s"):
            setattr(self.tally, name, getattr(self.tally, name) + answer.get(name, 0.0))
        measurement = Measurement(
            answer["status"],
            samples_us=tuple(answer.get("samples_us", ())),
            check_s=answer.get("check_s", 0.0),
            measure_s=answer["seconds"],
            info={k: answer[k] for k in ("registers", "spills", "shared_bytes") if k in answer},
            error=answer["error"],
        )
        if measurement.status == OK:
            latency = measurement.latency_us
            self._best_us = latency if self._best_us is None else min(self._best_us, latency)
        if measurement.status in _SHARED:
            self._timed.setdefault(self._launch(job), (job.proposal.config, measurement))
        self._finish(job, measurement)

    def _finish(self, job: Job, measurement: Measurement) -> None:
        facts = self._facts.get(job.plan.specialisation, {}) if job.plan else {}
        info = {k: facts[k] for k in ("registers", "spills", "shared_bytes") if k in facts}
        info |= {k: v for k, v in measurement.info.items() if v is not None}
        if job.plan:
            info |= {"specialisation": job.plan.specialisation, "grid": job.plan.grid}
            info |= {"config": job.plan.index, "code_hash": facts.get("code_hash", "")}
        if measurement.samples_us:
            info["protocol"] = self.protocol_name
        self.tally.last_at = perf_counter()
        self._left += not job.sent
        self.done(job.proposal, replace(measurement, compile_s=job.compile_s, info=info))
