"""What is recorded: workloads, each with the kernel that it is of, shipped or captured."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kt_lab.errors import UsageError
from kt_lab.kernels import get_kernel, subject, workload_of_shape
from kt_lab.space import ParameterSpace
from kt_lab.workload import Kernel, Subject, Workload


@dataclass(frozen=True)
class Work:
    """A workload, its kernel, and what follows from both."""

    workload: Workload
    kernel: Kernel

    @cached_property
    def space(self) -> ParameterSpace:
        """The search space."""
        return self.kernel.space(self.workload)

    @property
    def subject(self) -> Subject:
        """What worker processes need."""
        return subject(self.workload, self.kernel)


def works_of(workloads: Sequence[str | Workload], kernel: Kernel | None) -> dict[str, Work]:
    """Returns what is to be recorded, by key.

    Args:
        workloads: Workloads, or keys as `kt_lab.kernels.workload_of_shape` takes them.
        kernel: That all of them are of, such as a captured one; None: each the registered one
            that it names.

    Raises:
        UnknownName: There is no such kernel.
        UsageError: A key is no shape of its kernel, a workload is another kernel's, or there is
            one twice.
    """
    works: dict[str, Work] = {}
    for each in workloads:
        work = workload_of_shape(each, kernel) if isinstance(each, str) else each
        own = kernel or get_kernel(work.kernel)
        if work.kernel != own.name or work.key in works:
            raise UsageError(
                f"a recording takes each workload once, and those of the kernel {own.name} only "
                f"where that is given, got {work.key}; leave it out"
            )
        works[work.key] = Work(work, own)
    return works
