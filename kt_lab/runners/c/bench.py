"""A bench: compiles programs in one process and runs them in another, both killable.

A program that does not compile, hangs, crashes or writes where it must not is an outcome, never
the end of the caller. The processes are those of `kt_lab.runners.workers`.
"""

import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.closing import Closing
from kt_lab.errors import ProgramError, UsageError
from kt_lab.programs.emit_c import emit_c, parameters
from kt_lab.programs.interpret import input_of
from kt_lab.programs.ir import Program
from kt_lab.runners.c.memory import Block
from kt_lab.runners.c.tasks import Binary, Run
from kt_lab.runners.c.timing import ENVIRONMENT, TIMER
from kt_lab.runners.c.toolchain import Toolchain, build, find_toolchain
from kt_lab.runners.workers import Outcome, Workers, usable_cores, wait_any
from kt_lab.runners.zygote import Zygote

_COMPILING = "kt_lab.runners.c.bench:compile_service"
_TIMING = "kt_lab.runners.c.timing:timing_service"
_COMPILER_GIB = 8.0  # beyond that a compiler has run away


@dataclass(frozen=True, slots=True)
class Done:
    """How a job on the bench ended.

    Attributes:
        status: ok, invalid, compile_error, launch_error, timeout or crashed.
        value: What its task answered; None unless ok.
        error: What was wrong, in one line.
        compile_s: Wall-clock seconds of the compiler.
        run_s: Wall-clock seconds in the timing process.
    """

    status: str
    value: Any = None
    error: str = ""
    compile_s: float = 0.0
    run_s: float = 0.0


@dataclass(slots=True)
class _Job:
    tag: Any
    source: str
    binary: Binary
    task: Callable[[Binary], Any] | None  # None: it is only compiled, and kept
    compile_s: float = 0.0


class Bench(Closing):
    """Compile lanes and one timing lane; to be used by one thread at a time.

    Attributes:
        threads: Of every program.
        toolchain: The compiler.
        lanes: How many compilations run at a time. They leave the cores of a timed program alone;
            where there are not enough, one job goes through both stages at a time.
        pending: Jobs submitted and not yet handed back.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        toolchain: Toolchain | None = None,
        lanes: int | None = None,
        timeout_s: float = 60.0,
        awake: bool = False,
    ):
        """Starts the processes.

        Args:
            threads: Of every program, >= 1.
            toolchain: The compiler; None: the one that `find_toolchain` finds.
            lanes: Compilations at a time; None: one for each core that no program uses.
            timeout_s: After which a compilation, and a run with its timing, is killed.
            awake: Whether threads that wait do so as OpenMP has them wait when nobody asks, which
                wakes up sooner and disturbs others; else they sleep.

        Raises:
            UsageError: No compiler works, or a number is out of range.
        """
        if threads < 1 or (lanes is not None and lanes < 1):
            raise UsageError(f"threads and lanes must be >= 1, got {threads} and {lanes}")
        self.threads, self.toolchain = threads, toolchain or find_toolchain()
        spare = usable_cores() - threads
        self._alone = lanes is None and spare < 1
        self.lanes = lanes or max(1, spare)
        self.pending = 0
        self._timeout_s = timeout_s
        self._queue: deque[_Job] = deque()
        self._done: deque[tuple[Any, Done]] = deque()
        self._busy = self._count = 0
        self._closed = False
        self.toolchain.require(threads)
        self._scratch = tempfile.TemporaryDirectory(
            prefix="kt_lab-c-", dir=_memory_folder(), ignore_cleanup_errors=True
        )
        self.folder = Path(self._scratch.name)
        timer = self.folder / "timer.so"
        build(self.toolchain.line(timer, threads=threads), TIMER)
        preload = [service.partition(":")[0] for service in (_COMPILING, _TIMING)]
        self._zygote = Zygote(preload=preload)
        self._compiling = Workers(
            self.lanes, service=_COMPILING, zygote=self._zygote, memory_gib=_COMPILER_GIB
        )
        env = ENVIRONMENT | {"OMP_NUM_THREADS": str(threads)}
        if awake:
            del env["OMP_WAIT_POLICY"]
        self._timing = Workers(
            1, service=_TIMING, settings={"timer": str(timer)}, env=env, zygote=self._zygote
        )

    def submit(
        self, tag: Any, program: Program, task: Callable[[Binary], Any] | None = None
    ) -> None:
        """Takes up a program; returns at once.

        Args:
            tag: Comes back with the outcome.
            program: A legal program.
            task: Makes the task of the timing process (`tasks.Run`, `tasks.Measure`) from the
                compiled program, which is deleted afterwards. None: compile and keep; the
                outcome's value is the Binary.

        Raises:
            UsageError: The bench is closed.
        """
        if self._closed:
            raise UsageError("a bench must be open to take a program, got a closed one")
        self.pending += 1
        self._count += 1
        try:
            source = emit_c(program)
        except ProgramError as error:
            self._done.append((tag, Done("invalid", error=str(error))))
            return
        blocks = tuple(
            Block(b.name, b.kind, b.dtype, b.shape, b.elements) for b in parameters(program)
        )
        path = str(self.folder / f"{self._count}.so")
        binary = Binary(path, f"kt_{program.name}_call", blocks)
        self._queue.append(_Job(tag, source, binary, task))
        self._feed()

    def next(self) -> tuple[Any, Done]:
        """Waits for the next finished job, or raises UsageError when none is pending."""
        if not self.pending:
            raise UsageError("a bench must have a job to wait for, got none; submit one")
        while not self._done:
            wait_any([self._compiling, self._timing])
            for job, outcome in self._compiling.poll():
                self._compiled(job, outcome)
            for job, outcome in self._timing.poll():
                self._ran(job, outcome)
        self.pending -= 1
        return self._done.popleft()

    def call(self, task: Any, *, timeout_s: float) -> Outcome:
        """Runs a task of kept binaries in the timing process while nothing else is going on."""
        if self.pending:
            raise UsageError(f"a bench must be idle for this, got {self.pending} pending jobs")
        self._timing.submit(None, task, timeout_s=timeout_s)
        return self._timing.next()[1]

    def close(self) -> None:
        """Ends the processes and deletes what was compiled; may be called twice."""
        if self._closed:
            return
        self._closed = True
        for part in (self._compiling, self._timing, self._zygote):
            part.close()
        self._scratch.cleanup()

    def _feed(self) -> None:
        while self._queue and not (self._alone and self._busy):
            job = self._queue.popleft()
            self._busy += 1
            line = self.toolchain.line(job.binary.path, threads=self.threads)
            self._compiling.submit(job, (line, job.source), timeout_s=self._timeout_s)

    def _compiled(self, job: _Job, outcome: Outcome) -> None:
        job.compile_s = outcome.seconds
        if outcome.kind != "ok" or outcome.value:
            status = outcome.kind if outcome.kind in ("timeout", "crashed") else "compile_error"
            self._end(job, Done(status, error=outcome.value or outcome.error))
        elif job.task is None:
            self._end(job, Done("ok", job.binary))
        else:
            self._timing.submit(job, job.task(job.binary), timeout_s=self._timeout_s)

    def _ran(self, job: _Job, outcome: Outcome) -> None:
        status = "launch_error" if outcome.kind == "error" else outcome.kind
        self._end(job, Done(status, outcome.value, outcome.error, run_s=outcome.seconds))

    def _end(self, job: _Job, done: Done) -> None:
        if job.task is not None:
            Path(job.binary.path).unlink(missing_ok=True)
        self._done.append((job.tag, replace(done, compile_s=job.compile_s)))
        self._busy -= 1
        self._feed()


def compile_program(program: Program, bench: Bench) -> Binary:
    """Compiles a program and keeps it as long as the bench is open.

    Raises:
        ProgramError: It does not compile; the message is the compiler's.
    """
    return _one(program, bench, None)


def run_program(
    program: Program, inputs: Mapping[str, np.ndarray], *, bench: Bench | None = None
) -> dict[str, np.ndarray]:
    """Compiles a program and runs it once, in a process of its own.

    Outputs and heap temporaries hold NaN before, guard bands stand round every buffer.

    Args:
        program: A legal program.
        inputs: One array per `in` buffer, of its shape; cast to its dtype.
        bench: Where; None: one for this call alone, with processes of its own.

    Returns:
        The `out` buffers by name.

    Raises:
        ProgramError: An input is missing or of another shape, or the program does not compile,
            does not end, crashes, or changes memory that is not its own.
    """
    given = {b.name: input_of(b, inputs) for b in program.of_kind("in")}
    if bench is not None:
        return _one(program, bench, lambda binary: Run(binary, given))
    with Bench() as own:
        return _one(program, own, lambda binary: Run(binary, given))


def compile_service() -> Callable[[tuple[Sequence[str], str]], str]:
    """Makes the service of a compile process: (command, C) to what was wrong, "" for nothing."""
    return lambda task: build(*task)


def _one(program: Program, bench: Bench, task: Callable[[Binary], Any] | None) -> Any:
    if bench.pending:
        raise UsageError(f"a bench must be idle for this, got {bench.pending} pending jobs")
    bench.submit(None, program, task)
    _, done = bench.next()
    if done.status != "ok":
        raise ProgramError(f"{program.name} must compile and run, got {done.status}: {done.error}")
    return done.value


def _memory_folder() -> str | None:
    """A folder in memory where there is one with room: compiled programs live for a moment."""
    folder = "/dev/shm"
    try:
        return folder if shutil.disk_usage(folder).free >= 2 << 30 else None
    except OSError:
        return None
