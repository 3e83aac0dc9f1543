"""The kernels that ship with kt_lab: a registry of names, without torch or triton."""

import importlib
from types import ModuleType

from kt_lab.errors import UnknownName
from kt_lab.workload import Kernel, Workload

# A new kernel is one line here, kernels/<module>.py and kernels/device/<module>.py.
REGISTRY = {
    "int4_gemm": "int4_gemm",
    "softmax": "softmax",
}


def _module(name: str) -> str:
    if name not in REGISTRY:
        raise UnknownName("kernel", name, REGISTRY)
    return REGISTRY[name]


def get_kernel(name: str) -> Kernel:
    """Returns a kernel by its registry name, or raises UnknownName."""
    return importlib.import_module(f"{__name__}.{_module(name)}").KERNEL


def kernels() -> tuple[Kernel, ...]:
    """Returns every registered kernel, by name."""
    return tuple(get_kernel(name) for name in sorted(REGISTRY))


def workloads(kernel: str | None = None) -> tuple[Workload, ...]:
    """Returns the workloads of one kernel, or of all, in the order in which they are declared."""
    chosen = kernels() if kernel is None else (get_kernel(kernel),)
    return tuple(workload for k in chosen for workload in k.workloads)


def get_workload(key: str) -> Workload:
    """Returns a workload by its key `kernel/name`, or raises UnknownName."""
    known = {workload.key: workload for workload in workloads()}
    if key not in known:
        raise UnknownName("workload", key, known)
    return known[key]


def device_module(kernel: str) -> ModuleType:
    """Imports the half of a kernel that needs torch and triton: code, inputs and reference."""
    return importlib.import_module(f"{__name__}.device.{_module(kernel)}")
