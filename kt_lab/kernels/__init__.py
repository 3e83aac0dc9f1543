"""The kernels that ship with kt_lab: a registry of names, without torch or triton."""

import hashlib
import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

from kt_lab.errors import UnknownName, UsageError
from kt_lab.workload import Kernel, Subject, Workload

# A new kernel is one line here, kernels/<module>.py and kernels/device/<module>.py.
REGISTRY = {
    "attention": "attention",
    "blockwise_quantise": "blockwise_quantise",
    "bmm": "bmm",
    "cross_entropy": "cross_entropy",
    "depthwise_conv": "depthwise_conv",
    "embedding_backward": "embedding_backward",
    "fp8_blockwise_gemm": "fp8_blockwise_gemm",
    "fp8_gemm": "fp8_gemm",
    "gather_gemv": "gather_gemv",
    "group_norm": "group_norm",
    "grouped_gemm": "grouped_gemm",
    "int4_gemm": "int4_gemm",
    "jagged_colwise": "jagged_colwise",
    "jagged_rowwise": "jagged_rowwise",
    "layer_norm": "layer_norm",
    "matmul": "matmul",
    "matmul_nested": "matmul_nested",
    "moe_weights_atomic": "moe_weights_atomic",
    "moe_weights_cast": "moe_weights_cast",
    "moe_weights_colwise": "moe_weights_colwise",
    "moe_weights_reduction": "moe_weights_reduction",
    "rms_norm": "rms_norm",
    "rms_norm_backward": "rms_norm_backward",
    "rms_norm_dense": "rms_norm_dense",
    "rope": "rope",
    "row_sum": "row_sum",
    "softmax": "softmax",
    "swiglu": "swiglu",
    "tokens_transpose": "tokens_transpose",
}

_SHAPE = re.compile(r"[1-9]\d*(x[1-9]\d*)*")


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
    """Returns a registered workload by its key `kernel/name`, or raises UnknownName."""
    known = {workload.key: workload for workload in workloads()}
    if key not in known:
        raise UnknownName("workload", key, known)
    return known[key]


def workload_of_shape(key: str, kernel: Kernel | None = None) -> Workload:
    """Returns a workload of a kernel at any shape.

    Args:
        key: `kernel/name`, a name being the extents in the kernel's order, joined by x
            ("softmax/1000x1000"); a workload that the kernel ships with is returned as it is.
        kernel: That the key names; None: the registered one of that name.

    Raises:
        UnknownName: There is no such kernel.
        UsageError: The name is no shape, or the kernel has another number of extents.
    """
    kernel_name, _, name = key.partition("/")
    own = {each.key: each for each in (kernel or get_kernel(kernel_name)).workloads}
    if key in own:
        return own[key]
    like, lengths = next(iter(own.values())), name.split("x")
    if not _SHAPE.fullmatch(name):
        raise UsageError(
            f"a shape of {kernel_name} is {' x '.join(like.extents)}, whole numbers from 1, such "
            f"as {kernel_name}/{like.name}, got {key!r}"
        )
    if len(lengths) != len(like.extents):
        raise UsageError(
            f"a shape of {kernel_name} must have the extents {' x '.join(like.extents)}, got "
            f"{name}; one that has them: {like.name}"
        )
    extents = dict(zip(like.extents, map(int, lengths), strict=True))
    return Workload(kernel_name, name, extents, like.dtype)


def subject(workload: Workload | str, kernel: Kernel | None = None) -> Subject:
    """Returns what worker processes need of a workload.

    Args:
        workload: A workload, or a key as `workload_of_shape` takes it.
        kernel: The workload's kernel; None: the registered one of that name.
    """
    found = workload_of_shape(workload) if isinstance(workload, str) else workload
    kernel = kernel or get_kernel(found.kernel)
    device = kernel.device or f"{__name__}.device.{_module(kernel.name)}"
    return Subject(found, device, kernel.rtol, kernel.atol)


def device_module(device: str) -> ModuleType:
    """Imports the half of a kernel that needs torch and triton: code, inputs and reference.

    Args:
        device: Name of a registered kernel, an importable module, or a file (*.py); a file is
            loaded once per process and content.
    """
    if device in REGISTRY:
        device = f"{__name__}.device.{_module(device)}"
    if not device.endswith(".py"):
        return importlib.import_module(device)
    name = f"kt_lab_device_{hashlib.sha256(Path(device).read_bytes()).hexdigest()[:16]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, device)
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
