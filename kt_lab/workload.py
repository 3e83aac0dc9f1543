"""What is tuned: a kernel with its search space, and the workloads that it is tuned for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kt_lab.errors import UsageError
from kt_lab.space import ParameterSpace
from kt_lab.trial import Config


@dataclass(frozen=True)
class Workload:
    """A kernel at one shape and dtype: what one landscape and one run are about.

    Attributes:
        kernel: Name of the kernel in the registry.
        name: Unique within the kernel, the extents joined by x ("4096x640").
        extents: Named extents of the shape, integers >= 1; copied and immutable.
        dtype: Element type of the main operand, as torch names it ("float16").
        source: Who benchmarks or runs this shape.
    """

    kernel: str
    name: str
    extents: Mapping[str, int]
    dtype: str
    source: str = ""

    def __post_init__(self):
        """Copies the extents into an immutable mapping that can be hashed and pickled."""
        for extent, value in self.extents.items():
            if not isinstance(value, int) or value < 1:
                raise UsageError(
                    f"an extent must be an integer >= 1, got {extent}={value!r} in "
                    f"{self.kernel}/{self.name}"
                )
        object.__setattr__(self, "extents", Config(self.extents))

    @property
    def key(self) -> str:
        """The name under which tables and registries know it: `kernel/name`."""
        return f"{self.kernel}/{self.name}"


@dataclass(frozen=True)
class Kernel:
    """A Triton program family with tunable parameters.

    Attributes:
        name: Name in the registry.
        description: What it computes, in one sentence.
        workloads: The shapes that ship with it.
        space: Builds the search space of a workload; any positive extents are accepted.
        bytes_moved: Bytes that must cross device memory at least: every input read once, the
            output written once, and what the algorithm has to read twice, twice.
        flops: Arithmetic operations of the textbook algorithm.
        rtol: Relative tolerance of the correctness check against the reference, unitless.
        atol: Absolute tolerance of the correctness check, in units of the output.
        device: Importable name or file (*.py) of the device half; empty: the module of the
            registry.
    """

    name: str
    description: str
    workloads: tuple[Workload, ...]
    space: Callable[[Workload], ParameterSpace]
    bytes_moved: Callable[[Workload], int]
    flops: Callable[[Workload], int]
    rtol: float
    atol: float
    device: str = ""


@dataclass(frozen=True)
class Subject:
    """What a worker process must know of a kernel to compile, launch and check it; picklable.

    Attributes:
        workload: The shape and dtype.
        device: Importable name or file (*.py) of the device half.
        rtol: Relative tolerance of the correctness check, unitless.
        atol: Absolute tolerance, in units of the output.
    """

    workload: Workload
    device: str
    rtol: float
    atol: float
