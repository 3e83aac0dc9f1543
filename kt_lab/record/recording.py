"""Recording: measure every config of some workloads on one GPU into landscapes, resumably.

A pool of processes compiles each specialisation once; one process owns the GPU and times one
config at a time. The first visit follows the compilations (shuffled), every later visit is a pass
of its own in a new order. Everything goes through a journal, so a kill loses at most one reading.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.errors import UsageError
from kt_lab.kernels import get_kernel, get_workload, subject
from kt_lab.record.state import Progress, RecordOptions, State
from kt_lab.record.table import assemble
from kt_lab.runners.gpu.compiling import ENVIRONMENT
from kt_lab.runners.gpu.facts import gpu_uuid
from kt_lab.runners.gpu.lock import GpuLock
from kt_lab.runners.gpu.planning import launches
from kt_lab.runners.workers import Outcome, Workers, usable_cores
from kt_lab.store import Journal

COMPILE_TIMEOUT_S = 120.0
TIMING_TIMEOUT_S = 60.0
_SETUP_TIMEOUT_S = 300.0
SERVICES = {
    "compile": "kt_lab.runners.gpu.compiling:compile_service",
    "timing": "kt_lab.runners.gpu.timing:timing_service",
}


class Recording:
    """One resumable recording of some workloads."""

    def __init__(
        self,
        workloads: Sequence[str],
        *,
        directory: Path,
        options: RecordOptions,
        on_progress: Callable[[Progress], None] | None = None,
        services: Mapping[str, str] = SERVICES,
    ):
        """Reads the journal in `directory`, if any; nothing is measured before `run`.

        Args:
            workloads: Keys of registered workloads.
            directory: Journal, Triton's cache and the finished landscapes.
            options: How to measure.
            on_progress: Called after every step.
            services: The worker services "compile" and "timing" as module:function.
        """
        self._services = services
        self.workloads = tuple(get_workload(key).key for key in workloads)  # unknown ones raise
        self.options = options
        self.directory = Path(directory)
        self._journal = Journal(self.directory / "journal.jsonl")
        self._state = State()
        for record in self._journal.records:
            self._state.take(record)
        self._report = on_progress or (lambda _: None)
        self._began = self._phase_began = time.perf_counter()
        self._phase = ""
        self._rng = np.random.default_rng(options.seed)

    # -- the run --------------------------------------------------------------------------------

    def run(self) -> list[Path]:
        """Measures what is missing; returns the landscapes that are complete and saved."""
        cores = usable_cores()
        workers = self.options.compile_workers or max(1, cores - 1)
        timing = self._workers("timing", 1, {"device": self.options.device})
        with locked(self.options.device, what="kt-lab record"), timing:
            facts = self._take_facts(timing)
            major, minor = facts["capability"].split(".")
            target = {"arch": int(major) * 10 + int(minor), "nice": 5}
            for key in self.workloads:  # or its first config would be charged for the inputs
                ask(timing, {"do": "load", "subject": subject(key)})
            with self._workers("compile", workers, target) as compiling:
                self._jobs = self._state.jobs = self._plan(facts["sms"])
                self._first_visit(compiling, timing, facts["sms"])
                for visit in range(1, self.options.visits):
                    self._later_visit(timing, visit)
            self._compare(timing)
            if self.options.contention and not self._state.contention and not self.out_of_time:
                with self._workers("compile", max(workers, cores), target) as compiling:
                    self._recompile(compiling, facts["sms"], counts={1, 4, max(workers, cores)})
            self._take_facts(timing)
        self._journal.close()
        return assemble(self._state, self.workloads, self.directory, self.options)

    def _take_facts(self, timing: Workers) -> dict[str, Any]:
        facts = ask(timing, {"do": "facts", "protocol": self.options.protocol})
        self._write({"kind": "facts", "facts": facts})
        return facts

    def _workers(self, service: str, count: int, settings: Mapping[str, Any]) -> Workers:
        env = ENVIRONMENT | {
            "TRITON_CACHE_DIR": str(self.directory / "triton_cache"),
            "OMP_NUM_THREADS": "1",
        }
        return Workers(count, service=self._services[service], settings=settings, env=env)

    @property
    def out_of_time(self) -> bool:
        """Whether `stop_after_s` has passed."""
        limit = self.options.stop_after_s
        return limit is not None and time.perf_counter() - self._began > limit

    def _plan(self, sms: int) -> dict[str, list[tuple[str, int]]]:
        """Returns specialisation -> the (workload, config index) pairs that share it."""
        jobs: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self._spaces = {}
        for key in self.workloads:
            space = self._spaces[key] = get_kernel(get_workload(key).kernel).space(
                get_workload(key)
            )
            planned = list(launches(subject(key), space, sms=sms))
            self._state.grids[key] = [grid for _, grid in planned]
            chosen = np.arange(space.size)
            if self.options.limit is not None and self.options.limit < space.size:
                chosen = np.random.default_rng(0).permutation(space.size)[: self.options.limit]
            for at in chosen.tolist():
                jobs[planned[at][0]].append((key, at))
        return dict(jobs)

    def _first_visit(self, compiling: Workers, timing: Workers, sms: int) -> None:
        order = list(self._jobs)
        self._rng.shuffle(order)
        todo = [k for k in order if self._missing_visits(k)]
        total = len(todo) + sum(len(self._missing_visits(k)) for k in todo)
        for specialisation in todo:
            key, at = self._jobs[specialisation][0]
            task = self._task(key, at) | {"sms": sms}
            compiling.submit(specialisation, task, timeout_s=COMPILE_TIMEOUT_S)
        done = 0
        while (compiling.pending or timing.pending) and not self.out_of_time:
            if timing.pending and (found := timing.next(timeout_s=0.02)):
                self._take_visit(*found)
                done += 1
            quick = 0.0 if timing.pending else 0.05
            while compiling.pending and (found := compiling.next(timeout_s=quick)):
                done += 1 + self._take_compilation(*found, timing=timing)
                quick = 0.0
            self._progress("compile and visit 1", done, total)

    def _missing_visits(self, specialisation: str) -> list[tuple[str, int]]:
        """Returns pairs that lack any visit: their binary must be at hand on this machine."""
        wanted = range(self.options.visits)
        return [
            pair
            for pair in self._jobs[specialisation]
            if not self._failed(specialisation, pair)
            and any((*pair, v) not in self._state.visits for v in wanted)
        ]

    def _failed(self, specialisation: str, pair: tuple[str, int]) -> bool:
        compiled = self._state.compiled.get(specialisation, {"status": "ok"})
        readings = [self._state.visits.get((*pair, v)) for v in range(self.options.visits)]
        return compiled["status"] != "ok" or any(r and r["status"] != "ok" for r in readings)

    def _take_compilation(self, specialisation: str, outcome: Outcome, *, timing: Workers) -> int:
        """Journals a compilation and queues its first visits; returns how many it made moot."""
        if specialisation not in self._state.compiled:
            facts = outcome.value or {
                "status": outcome.kind if outcome.kind != "error" else "compile_error",
                "error": outcome.error,
                "wall_s": outcome.seconds,
                "cpu_s": None,
            }
            record = {"kind": "compile", "specialisation": specialisation} | facts
            self._write(record | {"workers": outcome.active})
        pairs = self._jobs[specialisation]
        if self._state.compiled[specialisation]["status"] != "ok":
            return len(pairs)
        queued = 0
        for key, at in pairs:
            if (key, at, 0) not in self._state.visits:
                self._submit_visit(timing, key, at, visit=0)
                queued += 1
        return len(pairs) - queued

    def _later_visit(self, timing: Workers, visit: int) -> None:
        pairs = [
            pair
            for specialisation in self._jobs
            for pair in self._missing_visits(specialisation)
            if (*pair, 0) in self._state.visits and (*pair, visit) not in self._state.visits
        ]
        self._rng.shuffle(pairs)
        for done, (key, at) in enumerate(pairs):
            if self.out_of_time:
                return
            # One at a time, because what counts as slow follows from the readings so far.
            self._submit_visit(timing, str(key), int(at), visit=visit)
            self._take_visit(*timing.next())
            self._progress(f"visit {visit + 1}", done + 1, len(pairs))

    def _submit_visit(self, timing: Workers, key: str, at: int, *, visit: int) -> None:
        task = self._task(key, at) | {
            "do": "measure",
            "protocol": self.options.protocol,
            "rule": self.options.rule,
            "asked": None,
            "best_us": self._state.best_us.get(key),
            "cutoff_us": None,
            "check": visit == 0,
        }
        timing.submit((key, at, visit), task, timeout_s=TIMING_TIMEOUT_S)

    def _take_visit(self, tag: tuple[str, int, int], outcome: Outcome) -> None:
        key, at, visit = tag
        answer = outcome.value or {
            "status": {"error": "launch_error"}.get(outcome.kind, outcome.kind),
            "error": outcome.error,
            "seconds": outcome.seconds,
        }
        self._write({"kind": "visit", "workload": key, "config": at, "visit": visit} | answer)

    # -- what is measured once ------------------------------------------------------------------

    def _recompile(self, compiling: Workers, sms: int, *, counts: set[int]) -> None:
        """Compiles some configs again at several worker counts, for the contention curve."""
        good = sorted(s for s in self._jobs if self._state.compiled.get(s, {}).get("cpu_s"))
        picked = np.random.default_rng(1).permutation(len(good))[: self.options.contention]
        # A process' first compilations load half of Triton: they would pass for contention.
        for i in list(picked) * max(1, 3 * compiling.limit // len(picked)):
            self._submit_again(compiling, good[i], sms)
        while compiling.next():
            pass
        for workers in sorted(n for n in counts if n <= compiling.limit):
            full, compiling.limit = compiling.limit, workers
            for i in picked:
                self._submit_again(compiling, good[i], sms)
            done = 0
            while found := compiling.next():
                specialisation, outcome = found
                value = outcome.value or {}
                facts = {"workers": workers, "active": outcome.active} | value
                self._write({"kind": "contention", "specialisation": specialisation} | facts)
                done += 1
                self._progress(f"contention at {workers} workers", done, len(picked))
            compiling.limit = full

    def _submit_again(self, compiling: Workers, specialisation: str, sms: int) -> None:
        key, at = self._jobs[specialisation][0]
        task = self._task(key, at) | {"sms": sms, "fresh": True}
        compiling.submit(specialisation, task, timeout_s=COMPILE_TIMEOUT_S)

    def _compare(self, timing: Workers) -> None:
        """Times the best config of each workload beside the vendor path, in alternation."""
        for key in self.workloads:
            medians = {
                at: float(np.median(r["samples_us"]))
                for (name, at, visit), r in self._state.visits.items()
                if name == key and visit == self.options.visits - 1 and r["status"] == "ok"
            }
            if not medians or key in self._state.compared or self.out_of_time:
                continue
            best = min(medians, key=medians.get)
            task = {"do": "compare", "rounds": 10, "protocol": self.options.protocol}
            answer = ask(timing, self._task(key, best) | task)
            self._write({"kind": "compare", "workload": key, "config": best} | answer)

    # -- small steps ----------------------------------------------------------------------------

    def _task(self, key: str, at: int) -> dict[str, Any]:
        space = self._spaces[key]
        return {"subject": subject(key), "config": dict(space.config(space.enumerate()[at]))}

    def _write(self, record: dict[str, Any]) -> None:
        self._state.take(record)
        self._journal.append(record)

    def _progress(self, phase: str, done: int, total: int) -> None:
        elapsed = time.perf_counter() - self._began
        if phase != self._phase:
            self._phase, self._phase_began = phase, time.perf_counter()
        spent = time.perf_counter() - self._phase_began
        eta = spent / done * (total - done) if done > 1 else None
        self._report(Progress(phase, done, total, elapsed, eta, self._state.failures))


def locked(device: int, *, what: str) -> AbstractContextManager:
    """Returns the lock of the GPU with this index; nothing where NVML knows no such GPU."""
    uuid = gpu_uuid(device)
    return GpuLock(uuid, what=what) if uuid else nullcontext()


def ask(timing: Workers, task: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the timing process' answer to a task that must not fail, or raises UsageError."""
    timing.submit("ask", dict(task), timeout_s=_SETUP_TIMEOUT_S)
    _, outcome = timing.next()
    if outcome.kind != "ok":
        raise UsageError(
            f"the timing process must reach a working GPU, got {outcome.kind}: "
            f"{outcome.error}; see kt-lab doctor"
        )
    return outcome.value
