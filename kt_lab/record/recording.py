"""Recording: measure every config of some workloads into landscapes, resumably.

A pool of processes compiles each specialisation once; one process owns a GPU and times one config
at a time on it, and several GPUs of one kind share the work. The first visit follows the
compilations (shuffled), every later visit is a pass of its own in a new order. Everything goes
through a journal, so a kill loses at most one reading of each GPU.
"""

import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.landscape import COMPILED
from kt_lab.record.lanes import CONTROL, Lane, Reading, ask, compiled, lane_of, opened
from kt_lab.record.state import Progress, RecordOptions, State
from kt_lab.record.table import assemble, require_own
from kt_lab.record.works import works_of
from kt_lab.runners.controls import require_one_kind
from kt_lab.runners.gpu.compiling import ENVIRONMENT
from kt_lab.runners.gpu.facts import require_gpu
from kt_lab.runners.gpu.planning import launches
from kt_lab.runners.gpu.runner import SERVICES
from kt_lab.runners.workers import Outcome, Workers, usable_cores, wait_any
from kt_lab.store import Journal
from kt_lab.workload import Kernel, Workload

COMPILE_TIMEOUT_S = 120.0
TIMING_TIMEOUT_S = 60.0
_LOOK_S = 0.2  # how often time is looked at while nothing happens


class Recording:
    """One resumable recording of some workloads."""

    def __init__(
        self,
        workloads: Sequence[str | Workload],
        *,
        directory: Path,
        options: RecordOptions,
        kernel: Kernel | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        services: Mapping[str, str] = SERVICES,
        journal: str = "journal.jsonl",
    ):
        """Reads the journal in `directory`, if any; nothing is measured before `run`.

        Args:
            workloads: Workloads, or keys: any shapes of kernels.
            directory: Journal, Triton's cache and the finished landscapes.
            options: How to measure.
            kernel: That they are of, such as a captured one; None: the registered ones.
            on_progress: Called after every step.
            services: The worker services "compile" and "timing" as module:function.
            journal: Name of the journal in `directory`, of one recording at a time.
        """
        self._services = services
        self._works = works_of(workloads, kernel)
        self.workloads = tuple(self._works)
        self.options = options
        self.directory = Path(directory)
        self._journal = Journal(self.directory / journal)
        self._state = State()
        for record in self._journal.records:
            if record.get("workload") in (None, *self.workloads):  # it may hold others' too
                self._state.take(record)
        self._report = on_progress or (lambda _: None)
        self._began = self._phase_began = time.perf_counter()
        self._phase = ""
        self._rng = np.random.default_rng(options.seed)

    # -- the run --------------------------------------------------------------------------------

    def run(self) -> list[Path]:
        """Measures what is missing; returns the landscapes that are complete and saved."""
        require_gpu(*self.options.lanes, timing=self._services["timing"])
        cores = usable_cores()
        workers = self.options.compile_workers or max(1, cores - 1)
        start = partial(self._workers, "timing", 1)
        gpus = opened(self.options.lanes, start, what="kt-lab record")
        with self._journal, gpus as self._lanes:
            facts = self._take_facts()
            major, minor = facts["capability"].split(".")
            target = {"arch": int(major) * 10 + int(minor), "nice": 5}
            with self._workers("compile", workers, target) as compiling:  # they start meanwhile
                for lane in self._lanes:
                    for key in self.workloads:
                        lane.load(self._works[key].subject)
                self._jobs = self._state.jobs = self._plan(facts["sms"])
                self._first_visit(compiling, facts["sms"])
                for visit in range(1, self.options.visits + 1):  # the last of disturbed ones
                    self._later_visit(visit)
            self._compare()
            if self.options.contention and not self._state.curved and not self.out_of_time:
                with self._workers("compile", max(workers, cores), target) as compiling:
                    self._recompile(compiling, facts["sms"], counts={1, 4, max(workers, cores)})
            self._take_facts()
        return assemble(self._state, self._works.values(), self.directory, self.options)

    def _take_facts(self) -> dict[str, Any]:
        """Journals what every GPU says of itself; returns the first one's answer."""
        task = {"do": "facts", "protocol": self.options.protocol}
        found = {lane.device: ask(lane.timing, task) for lane in self._lanes}
        require_one_kind({device: facts["slug"] for device, facts in found.items()})
        first = next(iter(found.values()))
        works = self._works.values()
        require_own(self._state, works, self.directory, self.options, first["slug"])
        self._write(self._state.about_to(works, first, self.options.protocol))
        for device, facts in found.items():
            self._write({"kind": "facts", "device": device, "facts": facts})
        return first

    def _workers(
        self, service: str, count: int, settings: Mapping[str, Any], more: Mapping[str, str] = {}
    ) -> Workers:
        own = {"TRITON_CACHE_DIR": str(self.directory / COMPILED), "OMP_NUM_THREADS": "1"}
        env = ENVIRONMENT | own | dict(more)
        return Workers(count, service=self._services[service], settings=settings, env=env)

    @property
    def out_of_time(self) -> bool:
        """Whether `stop_after_s` has passed."""
        limit = self.options.stop_after_s
        return limit is not None and time.perf_counter() - self._began > limit

    def _plan(self, sms: int) -> dict[str, list[tuple[str, int]]]:
        """Returns specialisation -> the (workload, config index) pairs that share it."""
        jobs: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for key, work in self._works.items():
            space = work.space
            planned = list(launches(work.subject, space, sms=sms))
            self._state.grids[key] = [grid for _, grid in planned]
            chosen = np.arange(space.size)
            if self.options.limit is not None and self.options.limit < space.size:
                chosen = np.random.default_rng(0).permutation(space.size)[: self.options.limit]
            for at in chosen.tolist():
                jobs[planned[at][0]].append((key, at))
        return dict(jobs)

    def _first_visit(self, compiling: Workers, sms: int) -> None:
        order = list(self._jobs)
        self._rng.shuffle(order)
        todo = [k for k in order if self._missing_visits(k)]
        total = len(todo) + sum(len(self._missing_visits(k)) for k in todo)
        for name in todo:  # a binary that others left in the cache was not compiled at once
            self._submit(compiling, name, sms, fresh=name not in self._state.compiled)
        self._visit("compile and visit 1", total, compiling)

    def _later_visit(self, visit: int) -> None:
        visits, last = self._state.visits, self.options.visits
        pairs = [
            pair
            for specialisation, sharing in self._jobs.items()
            for pair in (self._missing_visits(specialisation) if visit < last else sharing)
            if (*pair, 0) in visits and (*pair, visit) not in visits
            if visit < last or self._state.disturbed(*pair, last)
        ]
        self._rng.shuffle(pairs)
        for pair in pairs:
            self._lane_of(pair).queue.append((*pair, visit))
        self._visit(f"visit {visit + 1}", len(pairs))

    def _visit(self, phase: str, total: int, compiling: Workers | None = None) -> None:
        """Takes the readings that are queued, and those of what is being compiled."""
        pools, done = [lane.timing for lane in self._lanes], 0
        pools += [compiling] if compiling else []
        while not self.out_of_time:
            for lane in self._lanes:
                # One at a time, because what counts as slow follows from the readings so far.
                if reading := lane.due(self._state.control, self.options.control_every):
                    self._submit_visit(lane, reading)
            if not any(lane.busy for lane in self._lanes) and not (
                compiling and compiling.pending
            ):
                return
            wait_any(pools, timeout_s=_LOOK_S)
            for lane in self._lanes:
                for found in lane.timing.poll():
                    done += self._take_visit(lane, *found)
            for found in compiling.poll() if compiling else ():
                done += 1 + self._take_compilation(*found)
            self._progress(phase, done, total)
        for lane in self._lanes:
            lane.queue.clear()
            while found := lane.timing.next():
                self._take_visit(lane, *found)

    def _lane_of(self, pair: tuple[str, int]) -> Lane:
        return lane_of(self._lanes, self.workloads, pair, self.options.slices)

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

    def _take_compilation(self, specialisation: str, outcome: Outcome) -> int:
        """Journals a compilation and queues its first visits; returns how many it made moot."""
        pairs = self._missing_visits(specialisation)  # as counted: none of what fails to compile
        if specialisation not in self._state.compiled:
            record = {"kind": "compile", "specialisation": specialisation} | compiled(outcome)
            self._write(record | {"workers": outcome.active})
        if self._state.compiled[specialisation]["status"] != "ok":
            return len(pairs)
        firsts = [pair for pair in pairs if (*pair, 0) not in self._state.visits]
        for pair in firsts:
            self._lane_of(pair).queue.append((*pair, 0))
        return len(pairs) - len(firsts)

    def _submit_visit(self, lane: Lane, reading: Reading) -> None:
        key, at, visit = reading
        lane.load(self._works[key].subject)
        task = self._task(key, at) | {
            "do": "measure",
            "protocol": self.options.protocol,
            "rule": self.options.rule,
            "asked": None,
            "best_us": self._state.best_us.get(key),
            "cutoff_us": None,
            "check": visit == 0,
        }
        lane.timing.submit(reading, task, timeout_s=TIMING_TIMEOUT_S)

    def _take_visit(self, lane: Lane, tag: Reading, outcome: Outcome) -> int:
        """Journals a reading; returns how many of those that were asked for it is."""
        key, at, visit = tag
        lane.took(outcome)
        answer = outcome.value or {
            "status": {"error": "launch_error"}.get(outcome.kind, outcome.kind),
            "error": outcome.error,
            "seconds": outcome.seconds,
        }
        what = {"kind": "control"} if visit == CONTROL else {"kind": "visit", "visit": visit}
        self._write(what | {"workload": key, "config": at, "device": lane.device} | answer)
        return visit != CONTROL

    # -- what is measured once ------------------------------------------------------------------

    def _recompile(self, compiling: Workers, sms: int, *, counts: set[int]) -> None:
        """Compiles some configs again at several worker counts, for the contention curve."""
        known = self._state.compiled
        good = sorted(s for s in self._jobs if known.get(s, {}).get("status") == "ok")
        picked = np.random.default_rng(1).permutation(len(good))[: self.options.contention]
        if not good:
            return  # without a word: another workload of the journal may yet have a curve
        # A process' first compilations load half of Triton: they would pass for contention.
        for i in list(picked) * max(1, 3 * compiling.limit // len(picked)):
            self._submit(compiling, good[i], sms, fresh=True)
        while compiling.next():
            pass
        self._write({"kind": "recompiling"})
        for workers in sorted(n for n in counts if n <= compiling.limit):
            full, compiling.limit = compiling.limit, workers
            for i in picked:
                self._submit(compiling, good[i], sms, fresh=True)
            done = 0
            while found := compiling.next():
                specialisation, outcome = found
                facts = {"workers": workers, "active": outcome.active} | compiled(outcome)
                self._write({"kind": "contention", "specialisation": specialisation} | facts)
                done += 1
                self._progress(f"contention at {workers} workers", done, len(picked))
            compiling.limit = full
        self._write({"kind": "recompiled"})

    def _submit(self, compiling: Workers, specialisation: str, sms: int, *, fresh: bool) -> None:
        key, at = self._jobs[specialisation][0]
        task = self._task(key, at) | {"sms": sms, "fresh": fresh}
        compiling.submit(specialisation, task, timeout_s=COMPILE_TIMEOUT_S)

    def _compare(self) -> None:
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
            outcome = self._lane_of((key, best)).tried(self._task(key, best) | task)
            if outcome.kind == "ok":
                self._write({"kind": "compare", "workload": key, "config": best} | outcome.value)
            else:  # what was recorded is whole without it
                told = f"{key}: no reading beside the vendor's path, {outcome.error}"
                warnings.warn(told, stacklevel=3)

    # -- small steps ----------------------------------------------------------------------------

    def _task(self, key: str, at: int) -> dict[str, Any]:
        work, space = self._works[key], self._works[key].space
        return {"subject": work.subject, "config": dict(space.config(space.enumerate()[at]))}

    def _write(self, record: dict[str, Any]) -> None:
        self._state.take(record)
        self._journal.append(record)

    def _progress(self, phase: str, done: int, total: int) -> None:
        now = time.perf_counter()
        if phase != self._phase:
            self._phase, self._phase_began = phase, now
        eta = (now - self._phase_began) / done * (total - done) if done > 1 else None
        self._report(Progress(phase, done, total, now - self._began, eta, self._state.failures))
