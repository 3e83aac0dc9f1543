"""Programs as C: compiled, checked and timed on this machine's processor.

toolchain   the compiler and its flags
bench       compile and run programs in processes that may die: Bench, compile_program, run_program
memory      guard bands and poison round what a program touches
tasks       what the timing process is asked and answers: Protocol, Reading
timing      what it does: check against the reference, time in batches
cache       readings by canonical text, kept across runs
runner      CRunner, the kt_lab runner of schedules
bundle      tuned operators as a C library with a header and a Python wrapper
"""

from kt_lab.runners.c.bench import Bench, compile_program, run_program
from kt_lab.runners.c.runner import CRunner
from kt_lab.runners.c.tasks import Protocol
from kt_lab.runners.c.toolchain import Toolchain, find_toolchain

__all__ = [
    "Bench",
    "CRunner",
    "Protocol",
    "Toolchain",
    "compile_program",
    "find_toolchain",
    "run_program",
]
