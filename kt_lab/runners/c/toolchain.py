"""The C compiler, its flags, and what identifies the processor that they compile for."""

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kt_lab.errors import UsageError

# No flag here lets a compiler re-associate; without the last two neither a square root nor a
# branch-free choice would be vectorised.
_OPTIMISE = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math")
# Vector scopes are vectorised all the same. Left to itself gcc 12.2 vectorises some loops wrongly:
# for 4 by 5 iterations of a[6*i+j+7] = a[6*i+j] it reads ahead of what the last i has written.
_MARKED_ONLY = "-fno-tree-vectorize"
_WIDE = "-mprefer-vector-width=512"  # otherwise half of an AVX-512 register stays unused
_SHARED = ("-shared", "-fPIC", "-w")
_OPENMP_PROBE = "#include <omp.h>\nint kt_probe(void)\n{\n    return omp_get_max_threads();\n}\n"
_PROBE_S = 60.0
# vectors of 16 f32 elements in registers, by macro
_HELD = {"__AVX512F__": 32, "__AVX__": 8, "__aarch64__": 8, "__SSE2__": 4}


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A C compiler.

    Attributes:
        command: How it is called.
        version: The first line of what it says of itself.
        automatic: Whether it may vectorise what no mark asks for. For baselines only: gcc 12.2
            gets some legal programs wrong, which the check then finds.
    """

    command: tuple[str, ...]
    version: str
    automatic: bool = False

    def flags(self, threads: int = 1) -> tuple[str, ...]:
        """Returns the flags for a number of threads, >= 1; with 1 OpenMP is for lanes only."""
        wide = (_WIDE,) if platform.machine() in ("x86_64", "AMD64") else ()
        openmp = ("-fopenmp-simd",)
        if threads > 1:
            openmp = ("-fopenmp", f"-DKT_THREADS={threads}")
        marked = () if self.automatic else (_MARKED_ONLY,)
        return (*_OPTIMISE, *marked, *wide, *openmp)

    def line(self, target: Path | str, *sources: Path | str, threads: int = 1) -> tuple[str, ...]:
        """Returns the command that makes a shared object of C files; none: of its stdin."""
        given = ("-x", "c", *(map(str, sources) if sources else "-"))
        flags = (*self.flags(threads), *_SHARED)
        # what follows -lm must not be read as C again
        return (*self.command, *flags, "-o", str(target), *given, "-x", "none", "-lm")

    def vectors(self) -> int:
        """Returns how many vectors of 16 f32 elements the registers hold that it compiles for.

        AVX-512 has 32 of them, AVX 16 of 8 elements, 64-bit Arm 32 of 4, and all else counts as
        SSE, 16 of 4.
        """
        return _vectors((*self.command, *self.flags()))

    def require(self, threads: int) -> None:
        """Raises UsageError unless it makes shared objects for so many threads."""
        source = _OPENMP_PROBE if threads > 1 else "int kt_probe(void)\n{\n    return 0;\n}\n"
        with tempfile.TemporaryDirectory() as folder:
            error = build(self.line(Path(folder) / "probe.so", threads=threads), source, _PROBE_S)
        if error:
            raise UsageError(
                f"{' '.join(self.command)} must make a shared object with threads={threads}, got "
                f"{error}; set CC to another compiler{' or threads=1' if threads > 1 else ''}"
            )


@functools.cache
def _vectors(command: tuple[str, ...]) -> int:
    """Returns what `Toolchain.vectors` does, by the macros that a compiler defines."""
    line = (*command, "-dM", "-E", "-x", "c", "-")
    try:
        done = subprocess.run(
            line, input="", capture_output=True, text=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return min(_HELD.values())
    defined = {line.split()[1] for line in done.stdout.splitlines() if line.count(" ") > 0}
    return next((held for macro, held in _HELD.items() if macro in defined), min(_HELD.values()))


def find_toolchain(command: str | Sequence[str] | None = None) -> Toolchain:
    """Returns a C compiler of this machine.

    Args:
        command: How it is called; None: the first that answers of $CC, gcc, clang and the one
            that the package ziglang brings.

    Raises:
        UsageError: There is none, or the given one does not answer.
    """
    if command is None:
        zig = (sys.executable, "-m", "ziglang", "cc")
        given = os.environ.get("CC", "")
        tried = [tuple(shlex.split(given))] if given else [("gcc",), ("clang",), zig]
    else:
        tried = [tuple(shlex.split(command) if isinstance(command, str) else command)]
    for words in tried:
        version = _version(words)
        if version:
            return Toolchain(words, version)
    shown = ", ".join(" ".join(words) for words in tried)
    raise UsageError(
        f"a C compiler must answer to --version, got none of {shown}; install gcc or the "
        "package ziglang, or set CC"
    )


def build(line: Sequence[str], source: str, timeout_s: float | None = None) -> str:
    """Compiles C from a string; returns what was wrong in one line, "" when nothing was."""
    try:
        done = subprocess.run(
            line, input=source, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    if done.returncode == 0:
        return ""
    lines = [text.strip() for text in done.stderr.splitlines() if text.strip()]
    errors = [text for text in lines if "error" in text.lower()]
    return (errors or lines or [f"exit code {done.returncode}"])[0]


def processor() -> str:
    """Returns 16 hex digits that differ between processors that -march=native tells apart."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        text = platform.processor() or platform.machine()
    # what changes from one moment or core to the next says nothing of the kind
    fixed = [
        line
        for line in text.splitlines()
        if not line.startswith(
            ("processor", "cpu MHz", "bogomips", "core id", "apicid", "initial")
        )
    ]
    return hashlib.sha256("\n".join(fixed).encode()).hexdigest()[:16]


def _version(command: tuple[str, ...]) -> str:
    if not command or not shutil.which(command[0]):
        return ""
    try:
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""
