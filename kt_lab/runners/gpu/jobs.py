"""What goes through the pipeline of a live run: limits, jobs, and the tally of its seconds."""

from dataclasses import dataclass

from kt_lab.runners.gpu.planning import Plan
from kt_lab.trial import Proposal


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a task may take before its process is killed, seconds.

    Attributes:
        compile_least_s: A compilation may always take this long...
        compile_most_s: ... and never longer than this. Between them the limit is a multiple of
            the slowest tenth of the compilations seen.
        timing_s: A timing task, beside the launches that it stands for. The first config of a
            kernel must be loaded, checked and timed within it: more than twice its latency.
        loading_s: Making the inputs and the reference in a fresh timing process.
    """

    compile_least_s: float = 10.0
    compile_most_s: float = 60.0
    timing_s: float = 10.0
    loading_s: float = 300.0


@dataclass(slots=True)
class Job:
    """One proposal on its way through the pipeline."""

    proposal: Proposal
    plan: Plan | None = None
    check: bool = True
    compile_s: float = 0.0
    sent: bool = False  # to the timing process


@dataclass(slots=True)
class Tally:
    """Where the pipeline's seconds went, and what it did.

    Attributes:
        compiled: Specialisations compiled, failures included.
        timed: Jobs that reached the GPU.
        shared: Jobs answered by the identical launch of another config.
        lost: Timing processes that had to be replaced.
        compile_busy_s: Seconds of all compile processes together.
        timing_busy_s: Seconds of the timing lane from sending a task to its answer.
        load_s: Of these: loading binaries and first launches.
        check_s: Of these: comparing with the reference.
        timing_s: Of these: timed launches, flushes included.
        first_at: When the first job came in, seconds of perf_counter.
        last_at: When the last one was done.
    """

    compiled: int = 0
    timed: int = 0
    shared: int = 0
    lost: int = 0
    compile_busy_s: float = 0.0
    timing_busy_s: float = 0.0
    load_s: float = 0.0
    check_s: float = 0.0
    timing_s: float = 0.0
    first_at: float | None = None
    last_at: float | None = None
