"""The live runner: measures configs of one workload on this machine's GPU."""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.clock import RealClock
from kt_lab.closing import Closing
from kt_lab.errors import UsageError, whole
from kt_lab.kernels import device_module, get_kernel, subject, workload_of_shape
from kt_lab.runners.gpu.compiling import ENVIRONMENT
from kt_lab.runners.gpu.facts import TIMING, lock_name, read_sensors, require_gpu
from kt_lab.runners.gpu.jobs import Job, Limits, Tally
from kt_lab.runners.gpu.lock import GpuLock
from kt_lab.runners.gpu.pipeline import Pipeline
from kt_lab.runners.gpu.planning import planner
from kt_lab.runners.gpu.protocols import get_protocol
from kt_lab.runners.repetitions import Repetitions
from kt_lab.runners.workers import Workers, answered, usable_cores
from kt_lab.runners.zygote import Zygote
from kt_lab.space import ParameterSpace
from kt_lab.trial import CENSORED, OK, Config, Measurement, Proposal
from kt_lab.workload import Kernel, Workload

SERVICES = {"compile": "kt_lab.runners.gpu.compiling:compile_service", "timing": TIMING}
_SETUP_S = 300.0
_BLOCK_S = 0.05  # a launch of a race beyond twice its latency: loading, a noisy neighbour
_COMPILER_GIB = 16.0  # beyond that a compiler has run away


class GpuRunner(Closing):
    """Compiles in a pool of processes and times in one, isolated from the caller.

    The calling process never touches the GPU: a kernel that faults, hangs or writes where it
    should not costs a worker process, its config gets a status, and the run goes on. The GPU is
    locked for as long as the runner is open, across processes.

    Args:
        workload: A workload, or its key: any shape of the kernel.
        kernel: The workload's kernel, where it is not registered.
        space: What may be measured; None: all of the kernel's space. An inspection prunes it
            (`kt_lab.inspect`).
        device: Index of the GPU as CUDA counts them.
        protocol: Short name of the timing protocol: "events" or "graph".
        rule: Adaptive repetitions.
        compile_workers: Compile processes; None: one per core that may be used.
        share_duplicates: Time identical launches (same binary, same grid) once.
        limits: How long a compilation or a timing task may take.
        wait_s: How long to wait for a GPU that another run holds.
        cache: Folder of Triton's compile cache; None: Triton's own.
        services: The worker services as module:function.

    Raises:
        GpuBusy: Another run holds the GPU.
        UsageError: There is no working GPU, or its memory cannot hold the workload.
    """

    live = True  # its clock is the wall's: the searcher's own seconds are in it already

    def __init__(
        self,
        workload: Workload | str,
        *,
        kernel: Kernel | None = None,
        space: ParameterSpace | None = None,
        device: int = 0,
        protocol: str = "events",
        rule: Repetitions | None = None,
        compile_workers: int | None = None,
        share_duplicates: bool = True,
        limits: Limits | None = None,
        wait_s: float = 0.0,
        cache: Path | str | None = None,
        services: Mapping[str, str] = SERVICES,
    ):
        """Locks the GPU, starts the workers and waits until the GPU has said what it is."""
        self._clock = RealClock()
        workload = workload_of_shape(workload, kernel) if isinstance(workload, str) else workload
        kernel = kernel or get_kernel(workload.kernel)
        self.lanes = whole("compile_workers", compile_workers or usable_cores(), low=1)
        device = whole("device", device, low=0)
        require_gpu(device, timing=services["timing"])
        self.workload, self.kernel = workload, kernel
        self.space = space or kernel.space(workload)
        self.protocol = get_protocol(protocol)
        self.on_measurement: Callable[[Proposal, Measurement, float], None] | None = None
        self._device, self._subject = device, subject(workload, kernel)
        self._right: dict[Config, float | None] = {}  # microseconds; None: it failed
        self._results: queue.SimpleQueue = queue.SimpleQueue()
        self.pending = self._rounds = 0  # raced so far: races go forth and back in turns
        self._protocol = protocol
        # Planning needs torch and triton here too: import them while the workers start.
        threading.Thread(target=_imported, args=(self._subject.device,), daemon=True).start()
        self._limits = limits or Limits()
        settings = {
            "rule": rule or Repetitions(),
            "share": share_duplicates,
            "limits": self._limits,
            "protocol": protocol,
            "protocol_name": self.protocol.name,
        }
        with ExitStack() as stack:
            lock = GpuLock(lock_name(device), what=f"measuring {workload.key}", wait_s=wait_s)
            stack.enter_context(lock)
            self._start(stack, services, cache, settings)
            self._require_room(workload)
            self._load()
            self._stack = stack.pop_all()
        self.startup_s = self._clock.now
        self.sensors: list[dict[str, Any]] = []
        self.sense()

    def _start(self, stack: ExitStack, services, cache, settings: Mapping[str, Any]) -> None:
        """Starts the workers and the pipeline, which end with the stack."""
        env = ENVIRONMENT | ({"TRITON_CACHE_DIR": str(cache)} if cache else {})
        preload = [service.partition(":")[0] for service in services.values()]
        zygote = stack.enter_context(Zygote(preload=preload, env=env))
        how, device = {"env": env, "zygote": zygote}, {"device": self._device}
        timing = Workers(1, service=services["timing"], settings=device, spares=1, **how)
        stack.callback(timing.close)
        self.facts = self._identify(timing)
        major, minor = self.facts["capability"].split(".")
        compiling = Workers(
            self.lanes,
            service=services["compile"],
            settings={"arch": int(major) * 10 + int(minor), "nice": 5},
            memory_gib=_COMPILER_GIB,
            **how,
        )
        stack.callback(compiling.close)
        pools = {"compiling": compiling, "timing": timing, "sms": self.facts["sms"]}
        self._open = partial(Pipeline, **pools, **settings)
        self._pipeline = self._begun()
        stack.callback(lambda: self._pipeline.close())  # that of the last workload

    def _begun(self) -> Pipeline:
        """Returns a pipeline of the workload, at work."""
        return self._open(
            subject=self._subject,
            plan=planner(self._subject, self.space, sms=self.facts["sms"]),
            done=self._done,
            failed=self._results.put,
        )

    def _require_room(self, workload: Workload) -> None:
        """Raises UsageError if the GPU cannot hold what the kernel reads and writes."""
        needed, there = self.kernel.bytes_moved(workload), self.facts.get("memory_bytes")
        if there and needed > there:
            raise UsageError(
                f"inputs and output must fit the GPU's memory of {there / 1e9:.0f} GB, got "
                f"{needed / 1e9:,.0f} GB for {workload.key}; choose a smaller shape"
            )

    def _load(self) -> None:
        """Waits until the timing process has its inputs, or raises UsageError: it is start-up."""
        task, limits = {"do": "load", "subject": self._subject, "alone": True}, self._limits
        law = f"inputs of {self.workload.key} must be made within loading_s={limits.loading_s:g} s"
        told = answered(self._pipeline.ask(task, timeout_s=limits.loading_s).result(), law)
        # where a result is wrong all of it is made once more, within the task's limit
        self._pipeline.limits = replace(limits, timing_s=limits.timing_s + 2 * told["seconds"])

    def _identify(self, timing: Workers) -> dict[str, Any]:
        timing.submit("identify", {"do": "identify"}, timeout_s=_SETUP_S)
        return answered(timing.next()[1])

    # -- what `tune` needs ----------------------------------------------------------------------

    @property
    def free(self) -> int:
        """Compile lanes without work; a job that waits for the GPU still holds its lane."""
        return max(0, self.lanes - self._pipeline.waits)

    @property
    def now(self) -> float:
        """Seconds of the wall since the runner was made, the start of its workers included."""
        return self._clock.now

    def submit(self, proposals: Sequence[Proposal]) -> None:
        """Queues proposals; raises SpaceError before queueing any."""
        for proposal in proposals:
            self.space.check(proposal.config)
        for proposal in proposals:
            self.pending += 1
            self._pipeline.submit(Job(proposal, check=self._right.get(proposal.config) is None))

    def next(self) -> tuple[Proposal, Measurement]:
        """Waits for the next finished measurement."""
        if not self.pending:
            raise UsageError("GpuRunner.next needs a pending proposal, got none")
        found = self._results.get()
        if isinstance(found, BaseException):
            self._results.put(found)  # nothing will come any more, whoever asks
            raise found
        self.pending -= 1
        return found

    def close(self) -> None:
        """Stops the workers and frees the GPU; may be called twice."""
        if self._stack is not None:
            self.sense()
            self._stack.close()
            self._stack = None
            closed = "a runner must be open to measure, got a closed one; open another"
            self._results.put(UsageError(closed))  # to whoever still waits in another thread

    def _done(self, proposal: Proposal, measurement: Measurement) -> None:
        """Runs in the pump thread: what was measured is handed over before anyone asks."""
        self._know(proposal, measurement)
        if self.on_measurement:
            self.on_measurement(proposal, measurement, self._clock.now)
        self._results.put((proposal, measurement))

    # -- beyond `tune` --------------------------------------------------------------------------

    @property
    def tally(self) -> Tally:
        """Where the pipeline's seconds went so far."""
        return self._pipeline.tally

    def sense(self) -> None:
        """Notes clocks, temperature and power in `sensors`; null where they cannot be read."""
        self.sensors.append({"at_s": self._clock.now} | read_sensors(self._device))

    def turn_to(self, workload: Workload | str, *, space: ParameterSpace | None = None) -> None:
        """Goes on with another workload of the kernel, in all of its space or this: no start-up.

        Raises:
            UsageError: Another kernel's workload, one that the GPU's memory cannot hold, or
                measurements are pending.
        """
        workload = workload_of_shape(workload) if isinstance(workload, str) else workload
        if self.pending or workload.kernel != self.kernel.name:
            raise UsageError(
                f"a runner turns to another workload of {self.kernel.name} when nothing is "
                f"pending, got {workload.key} with {self.pending} pending; open another runner"
            )
        self._require_room(workload)
        self.workload, self.space = workload, space or self.kernel.space(workload)
        self._subject, self._right = subject(workload, self.kernel), {}
        used = self._pipeline.tally.first_at
        self._pipeline.close()
        self._pipeline = self._begun()
        self._pipeline.tally.first_at = used  # the start-up is paid for, whoever comes next
        self._load()

    def recall(self, readings: Sequence[tuple[Proposal, Measurement]]) -> None:
        """Takes in what an earlier part of the same run measured, before anything is submitted."""
        for proposal, measurement in readings:
            self._know(proposal, measurement)
            self._pipeline.recall(proposal.config, measurement)

    def _know(self, proposal: Proposal, measurement: Measurement) -> None:
        read = measurement.latency_us or measurement.bound_us or 0.0
        right = measurement.status in (OK, CENSORED)
        self._right[proposal.config] = read if right else None

    def race(self, configs: Sequence[Config], *, rounds: int, repetitions: int) -> np.ndarray:
        """Times configs in alternation, their order reversed in every other round.

        No launch of a race is checked, so that only what was right may take part: a config outside
        the space, or that failed when it was measured last, fails here too.

        Args:
            configs: Configs measured before, here or in what was recalled.
            rounds: How often each is timed.
            repetitions: Launches per block.

        Returns:
            Medians of the blocks in microseconds, shape (rounds, len(configs)); NaN for a config
            that fails.
        """
        how, self._rounds = (rounds, repetitions, self._rounds), self._rounds + rounds
        out = np.full((rounds, len(configs)), np.nan)
        read, held = self._right, self.space.contains
        alive = [i for i, c in enumerate(configs) if read.get(c, 0.0) is not None and held(c)]
        blocks = self._race([configs[at] for at in alive], *how)
        if blocks is None:  # somebody fails, maybe rarely: find out who, and race the others
            alive = [at for at in alive if self._race([configs[at]], *how) is not None]
            blocks = self._race([configs[at] for at in alive], *how)
        if blocks is not None:
            out[:, alive] = blocks
        return out

    def _race(self, configs, rounds, repetitions, first) -> np.ndarray | None:
        if not configs:
            return None
        task = {"do": "race", "subject": self._subject, "protocol": self._protocol}
        task |= {"configs": [dict(c) for c in configs], "rounds": rounds}
        task |= {"repetitions": repetitions, "first": first}
        slowest = max(filter(None, self._right.values()), default=0.0)  # another GPU's may be so
        each = sum(_BLOCK_S + 2e-6 * self._right.get(c, slowest) for c in configs)
        seconds = 60.0 + each * rounds * (repetitions + 1)  # a block warms up
        outcome = self._pipeline.ask(task, timeout_s=seconds).result()
        return np.asarray(outcome.value["blocks_us"]) if outcome.kind == "ok" else None


def _imported(device: str) -> None:
    with suppress(Exception):  # whoever needs the module will say what is wrong with it
        device_module(device)
