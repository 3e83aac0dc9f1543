"""CRunner: measures schedules of an operator as compiled C on this machine's processor."""

import hashlib
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.clock import RealClock
from kt_lab.closing import Closing
from kt_lab.errors import ProgramError, UsageError
from kt_lab.programs.ir import Program
from kt_lab.programs.operators import CASES, Operator, get_operator, get_workload
from kt_lab.programs.schedule import replay
from kt_lab.programs.text import to_text
from kt_lab.runners.c.bench import Bench, Done
from kt_lab.runners.c.cache import Cache, cache_key, emitter_digest
from kt_lab.runners.c.tasks import Binary, Measure, Protocol, Race, Reading, store_case
from kt_lab.runners.c.toolchain import Toolchain, processor
from kt_lab.trial import CENSORED, OK, Config, Measurement, Proposal
from kt_lab.workload import Workload

_LARGE = 32 << 20  # bytes moved, from which on only some cases are checked
_LARGE_CASES = ("random", "large")


@dataclass(slots=True)
class _Job:
    """A program on the bench, and everybody who waits for its reading."""

    key: str
    text: str
    protocol: Protocol
    cutoff_us: float | None
    waiting: list[Proposal] = field(default_factory=list)


class CRunner(Closing):
    """Compiles, checks and times the programs that schedules make of an operator's start program.

    Compiling and timing happen in processes that are killed when they hang or crash. Every program
    is compared with the operator's float64 reference on random and on adverse inputs (all of
    `operators.CASES`; two of them where more than 32 MiB move), between guard bands, on poisoned
    memory. Programs with equal text are measured once, now and, with a cache, ever: a reading
    answers until somebody asks for more samples than it has.

    Attributes:
        workload: What is tuned.
        operator: Its operator.
        start: The program of the empty schedule.
        protocol: How programs are timed.
        lanes: Compilations at a time.
        pending: Proposals submitted and not yet returned.
        awake: Whether threads that wait spin.
        compiled: Programs compiled so far; all other readings came from the cache.
        on_measurement: Called with proposal, measurement and clock once a result is handed out.
    """

    live = True  # its clock is the wall's

    def __init__(
        self,
        workload: Workload | str,
        *,
        operator: Operator | None = None,
        threads: int = 1,
        cache: Path | str | None = None,
        toolchain: Toolchain | None = None,
        protocol: Protocol | None = None,
        lanes: int | None = None,
        timeout_s: float = 60.0,
        awake: bool = False,
    ):
        """Starts the processes and computes the reference.

        Args:
            workload: A workload of an operator, or the key of a registered one.
            operator: The workload's operator, where it is not registered.
            threads: Of every program, >= 1.
            cache: SQLite file of readings to share with other runs; None: this run's only.
            toolchain: The C compiler; None: the one found first.
            protocol: How to time; None: 30 batches of 200 us.
            lanes: Compilations at a time; None: one for each core that no program uses.
            timeout_s: After which a compilation, or a check with its timing, is killed.
            awake: How threads wait: see `Bench`.
        """
        self._clock = RealClock()
        self.workload = get_workload(workload) if isinstance(workload, str) else workload
        self.operator = operator or get_operator(self.workload.kernel)
        self.start = self.operator.program(self.workload.extents)
        self.protocol = protocol or Protocol()
        self.awake = awake
        self.pending = self.compiled = 0
        self.on_measurement: Callable[[Proposal, Measurement, float], None] | None = None
        self._tolerance = self.operator.tolerance(self.workload.extents)
        self._cache = Cache(cache)
        self._bench = Bench(
            threads=threads, toolchain=toolchain, lanes=lanes, timeout_s=timeout_s, awake=awake
        )
        self.lanes = self._bench.lanes
        self._jobs: dict[str, _Job] = {}
        self._done: deque[tuple[Proposal, Measurement]] = deque()
        self._raced = 0
        try:
            self._cases = self._store_cases()
        except BaseException:
            self._bench.close()
            raise
        self.facts = {
            "compiler": self._bench.toolchain.version,
            "flags": " ".join(self._bench.toolchain.flags(threads)),
            "threads": threads,
            "processor": processor(),
            "protocol": self.protocol.name + ("-awake" if awake else ""),
        }

    @property
    def now(self) -> float:
        """Seconds of the wall since the runner was made."""
        return self._clock.now

    @property
    def vectors(self) -> int:
        """How many vectors of 16 f32 elements the processor's registers hold."""
        return self._bench.toolchain.vectors()

    @property
    def free(self) -> int:
        """How many proposals keep every lane and the timing lane at work."""
        return max(0, self.lanes + 1 - self.pending)

    def require_space(self, space: Any) -> None:
        """Raises UsageError where a space's schedules are those of another program."""
        if getattr(space, "program", self.start) != self.start:
            both = (space.program, self.start)
            told = [f"{p.name} { ({b.name: b.shape for b in p.buffers}) }" for p in both]
            law = "a space must hold the schedules of the runner's program; ScheduleSpace("
            raise UsageError(f"{law}runner.start) does, got {told[0]} for {told[1]}")

    def program(self, config: Mapping[str, str]) -> Program:
        """Returns the program of a config, or raises ProgramError."""
        return replay(self.start, config["schedule"])

    def submit(self, proposals: Sequence[Proposal]) -> None:
        """Takes up proposals; known programs are answered at once."""
        for proposal in proposals:
            self.pending += 1
            try:
                program = self.program(proposal.config)
            except ProgramError as error:
                self._done.append((proposal, Measurement("invalid", error=str(error))))
                continue
            self._take(proposal, program)

    def next(self) -> tuple[Proposal, Measurement]:
        """Waits for the next finished measurement."""
        if not self.pending:
            raise UsageError("a runner must have a proposal to wait for, got none; submit one")
        while not self._done:
            job, done = self._bench.next()
            self._finish(job, done)
        self.pending -= 1
        proposal, measurement = self._done.popleft()
        if self.on_measurement:
            self.on_measurement(proposal, measurement, self.now)
        return proposal, measurement

    def race(self, configs: Sequence[Config], *, rounds: int, repetitions: int) -> np.ndarray:
        """Times configs in alternation: `kt_lab.runners.racing.Racer`, with batches as launches.

        Raises:
            UsageError: Proposals are pending.
        """
        from kt_lab.runners.racing import alternating  # pandas, which the workers do without

        found = [self.program(config) for config in configs]
        texts = list(map(to_text, found))
        programs = dict(zip(texts, found, strict=True))
        binaries: dict[str, Binary] = {}
        for text, program in programs.items():
            self._bench.submit(text, program)
        for _ in programs:
            text, done = self._bench.next()
            if done.status == OK:
                binaries[text] = done.value
        first, self._raced = self._raced, self._raced + rounds
        alive = [k for k, text in enumerate(texts) if text in binaries]
        limit_s = 60.0 + len(configs) * rounds * (1.0 + repetitions * self.protocol.limit_s)
        out = np.full((rounds, len(configs)), np.nan)
        if alive:
            outcome = self._bench.call(
                Race(
                    tuple(binaries[texts[k]] for k in alive),
                    str(self._bench.folder),
                    self._cases[0],
                    alternating(rounds, len(alive), start=first),
                    repetitions,
                    self.protocol.batch_us,
                ),
                timeout_s=limit_s,
            )
            if outcome.kind == "ok":
                out[:, alive] = outcome.value
        for binary in binaries.values():
            Path(binary.path).unlink(missing_ok=True)
        return out

    def close(self) -> None:
        """Ends the processes; may be called twice."""
        self._bench.close()

    # -- one program ------------------------------------------------------------------------

    def _take(self, proposal: Proposal, program: Program) -> None:
        text = to_text(program)
        facts = (*self.facts.values(), asdict(self.protocol), self._tolerance, emitter_digest())
        facts += (self._checked,)
        key = cache_key(text, *map(str, facts))
        wanted = proposal.repetitions or 1
        known = self._cache.get(key)
        if known and _answers(known, wanted, proposal.cutoff_us):
            self._answer(proposal, known)
            return
        protocol = self.protocol
        if proposal.repetitions:
            protocol = replace(protocol, samples=proposal.repetitions)
        running = self._jobs.get(key)
        same = running and running.cutoff_us in (None, proposal.cutoff_us)
        if same and running.protocol.samples >= wanted:
            running.waiting.append(proposal)
            return
        job = _Job(key, text, protocol, proposal.cutoff_us, [proposal])
        self._jobs[key] = job
        self.compiled += 1

        def task(binary: Binary) -> Measure:
            folder, cases = str(self._bench.folder), self._cases
            return Measure(binary, folder, cases, self._tolerance, protocol, proposal.cutoff_us)

        self._bench.submit(job, program, task)

    def _finish(self, job: _Job, done: Done) -> None:
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]
        measurement = self._measurement(job, done)
        self._cache.put(job.key, measurement)
        first, *others = job.waiting
        self._done.append((first, measurement))
        for proposal in others:
            self._answer(proposal, measurement)

    def _answer(self, proposal: Proposal, known: Measurement) -> None:
        info = dict(known.info) | {"cached": True}
        found = replace(known, compile_s=0.0, check_s=0.0, measure_s=0.0, info=info)
        self._done.append((proposal, found))

    def _measurement(self, job: _Job, done: Done) -> Measurement:
        digest = hashlib.sha256(job.text.encode()).hexdigest()[:16]
        info = self.facts | {"program": digest, "cached": False}
        if done.status != OK:
            return Measurement(
                done.status,
                compile_s=done.compile_s,
                measure_s=done.run_s,
                info=info,
                error=done.error,
            )
        reading: Reading = done.value
        info |= {"deviation": reading.deviation}
        if reading.samples_us:
            samples = np.asarray(reading.samples_us)
            info |= {
                "min_us": float(samples.min()),
                "median_us": float(np.median(samples)),
                "p90_us": float(np.percentile(samples, 90)),
                "calls": reading.calls,
                "rounds": reading.rounds,
                "load": reading.load,
            }
        return Measurement(
            reading.status,
            reading.samples_us,
            done.compile_s,
            reading.check_s,
            done.run_s,
            info,
            reading.error,
        )

    def _store_cases(self) -> tuple[str, ...]:
        extents = self.workload.extents
        large = self.operator.bytes_moved(extents) > _LARGE
        cases = _LARGE_CASES if large else tuple(CASES)
        checked = hashlib.sha256()  # what outputs are right by is a part of a reading
        for case in cases:
            inputs, expected = self.operator.checked(extents, case=case)
            store_case(self._bench.folder, case, inputs | expected)
            for name, array in (inputs | expected).items():
                checked.update(f"{case} {name} {array.dtype} {array.shape}".encode())
                checked.update(np.ascontiguousarray(array).data)
        self._checked = checked.hexdigest()
        free = shutil.disk_usage(self._bench.folder).free
        if free < _LARGE:
            raise UsageError(
                f"a runner must have {_LARGE >> 20} MiB free for compiled programs, got "
                f"{free >> 20} MiB in the folder of temporary files; set TMPDIR"
            )
        return cases


def _answers(known: Measurement, wanted: int, cutoff_us: float | None) -> bool:
    """Whether a reading is as good as a new one."""
    if known.status == CENSORED:
        return cutoff_us is not None and known.bound_us > cutoff_us
    return known.status != OK or len(known.samples_us) >= wanted
