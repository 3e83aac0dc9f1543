"""Lanes of a recording: one GPU each, timed by one process of its own and by nobody else."""

import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from kt_lab.runners.gpu.facts import gpu_uuid
from kt_lab.runners.gpu.lock import GpuLock
from kt_lab.runners.workers import COMPILER, Outcome, Workers, answered, served
from kt_lab.workload import Subject

_SETUP_TIMEOUT_S = 300.0
CONTROL = -1
"""What stands for the visit of a control's reading."""
Reading = tuple[str, int, int]  # workload, config, visit


@dataclass
class Lane:
    """One GPU at work.

    Attributes:
        device: Its UUID; "index-0" and so on where NVML tells none.
        timing: Its timing process.
        queue: Readings to take.
        since: Readings since its last control; None before the first.
        loaded: Workloads whose inputs its timing process has.
    """

    device: str
    timing: Workers
    queue: deque[Reading] = field(default_factory=deque)
    since: int | None = None
    loaded: set[str] = field(default_factory=set)

    @property
    def busy(self) -> bool:
        """Whether anything is left to do."""
        return bool(self.queue or self.timing.pending)

    def due(self, control: tuple[str, int] | None, every: int) -> Reading | None:
        """Returns what to time now: the control once every so many readings, else the next.

        None while a reading is under way, or nothing is left.
        """
        if self.timing.pending or not self.queue:
            return None
        if control and (self.since is None or self.since >= every):
            self.since = 0
            return *control, CONTROL
        self.since = None if self.since is None else self.since + 1
        return self.queue.popleft()

    def load(self, subject: Subject) -> None:
        """Loads a workload where that is not done: its first config would be charged for it."""
        if subject.workload.key not in self.loaded:
            ask(self.timing, {"do": "load", "subject": subject})
            self.loaded.add(subject.workload.key)

    def tried(self, task: Mapping[str, Any]) -> Outcome:
        """Returns how a task ended that is no reading."""
        self.timing.submit("try", dict(task), timeout_s=_SETUP_TIMEOUT_S)
        self.took(outcome := self.timing.next()[1])
        return outcome

    def took(self, outcome: Outcome) -> None:
        """Notes whether the timing process is lost, or raises UsageError if no other starts."""
        if served(outcome).kind in ("timeout", "crashed"):
            self.loaded.clear()


@contextmanager
def opened(
    indices: Sequence[int],
    start: Callable[[dict[str, Any], dict[str, str]], Workers],
    *,
    what: str,
) -> Iterator[list[Lane]]:
    """Locks GPUs and starts their timing processes, until the end of the block.

    Each of several processes sees its own GPU and no other, so that nothing can time on a
    neighbour's.

    Args:
        indices: GPUs as CUDA counts them.
        start: (settings, environment) -> the timing process.
        what: What the GPUs are locked for.
    """
    with ExitStack() as stack:
        lanes = []
        for index in indices:
            uuid = gpu_uuid(index)
            stack.enter_context(locked(index, what=what))
            alone = uuid is not None and len(indices) > 1
            seen = {"CUDA_VISIBLE_DEVICES": uuid} if alone else {}
            timing = stack.enter_context(start({"device": 0 if alone else index}, seen))
            lanes.append(Lane(uuid or f"index-{index}", timing))
        yield lanes


def lane_of(lanes: Sequence[Lane], workloads: Sequence[str], pair: tuple[str, int], slices: bool):
    """Returns the lane that times a config: whole workloads go to one, or each config its own way.

    Configs are spread without regard to their parameters, and the same way when a recording is
    resumed: a GPU that is slower shows in no parameter.
    """
    key, at = pair
    place = zlib.crc32(f"{key}/{at}".encode()) if slices else workloads.index(key)
    return lanes[place % len(lanes)]


def locked(device: int, *, what: str) -> AbstractContextManager:
    """Returns the lock of the GPU with this index; nothing where NVML knows no such GPU."""
    uuid = gpu_uuid(device)
    return GpuLock(uuid, what=what) if uuid else nullcontext()


def ask(timing: Workers, task: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the timing process' answer to a task that must not fail, or raises UsageError."""
    timing.submit("ask", dict(task), timeout_s=_SETUP_TIMEOUT_S)
    return answered(timing.next()[1])


def compiled(outcome: Outcome) -> dict[str, Any]:
    """Returns what became of a compilation; raises UsageError if no compiler could start."""
    served(outcome, COMPILER)
    status = "compile_error" if outcome.kind == "error" else outcome.kind
    costs = {"wall_s": outcome.seconds, "cpu_s": None}
    return outcome.value or {"status": status, "error": outcome.error} | costs
