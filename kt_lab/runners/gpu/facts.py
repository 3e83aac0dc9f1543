"""Facts about a GPU: name, driver, clocks; null where they cannot be read, never an error."""

import ctypes
import os
import re
import statistics
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kt_lab.errors import UsageError
from kt_lab.runners.gpu.protocols import EVENTS_L2, Protocol

TIMING = "kt_lab.runners.gpu.timing:timing_service"  # the service that needs a GPU


def cuda_device(index: int) -> Any:
    """Returns the GPU that torch uses from here on; raises UsageError where there is none."""
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            f"timing needs a GPU that torch can use, got none with torch {torch.__version__}; "
            "kt-lab doctor says what is missing"
        )
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def require_gpu(*indices: int, timing: str = TIMING) -> None:
    """Raises UsageError where a service is to time on a GPU that is not there.

    Before anything is started, which takes seconds and tells it less plainly. Where NVML is
    silent, as in some virtual machines, CUDA's driver is asked.

    Args:
        indices: GPUs as CUDA counts them.
        timing: The service as module:function; one that stands in for a GPU needs none.
    """
    for index in indices if timing == TIMING else ():
        if gpu_arch(index) is None and not 0 <= index < _counted():
            raise UsageError(
                f"measuring needs a GPU, got no GPU with index {index}; kt-lab doctor says what "
                "is missing, and kt-lab compare replays what is recorded"
            )


def _counted() -> int:
    """Returns how many GPUs CUDA's driver knows; 0 where there is none."""
    count = ctypes.c_int(0)
    with suppress(OSError):
        cuda = ctypes.CDLL("libcuda.so.1")
        _ = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    return count.value


def gpu_slug(name: str) -> str:
    """Returns a folder name for a GPU: "NVIDIA H100 80GB HBM3" becomes "h100".

    Maker and memory size are dropped; a word that tells variants apart (PCIe, NVL) stays.
    """
    words = re.findall(r"[a-z0-9]+", name.lower())
    makers = {"nvidia", "geforce", "amd", "instinct", "tesla", "sxm"}
    kept = [w for w in words if w not in makers and not re.fullmatch(r"\d+gb|hbm\w*|sxm\d*", w)]
    return "-".join(kept) or "gpu"


def gpu_uuid(index: int = 0) -> str | None:
    """Returns the identity of the GPU that CUDA calls `index`, without a CUDA context.

    None where NVML does not say. CUDA_VISIBLE_DEVICES may name GPUs by number or by identity.
    """
    return _told(index, lambda nvml, gpu: _text(nvml.nvmlDeviceGetUUID(gpu)))


def lock_name(index: int = 0) -> str:
    """Returns what the lock of the GPU that CUDA calls `index` goes by: its identity.

    Where NVML tells none, CUDA_VISIBLE_DEVICES still tells apart the GPUs of processes that each
    see one, all of them as index 0.
    """
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[index:]
    return gpu_uuid(index) or f"index-{names[0].strip() if names and names[0] else index}"


def gpu_name(index: int = 0) -> str | None:
    """Returns what the GPU that CUDA calls `index` is sold as; None where NVML does not say."""
    return _told(index, lambda nvml, gpu: _text(nvml.nvmlDeviceGetName(gpu)))


def gpu_arch(index: int = 0) -> str | None:
    """Returns the architecture of the GPU that CUDA calls `index`, "sm_90"; None as above."""
    found = _told(index, lambda nvml, gpu: nvml.nvmlDeviceGetCudaComputeCapability(gpu))
    return found and "sm_{}{}".format(*found)


def triton_version() -> str | None:
    """Returns the version that Triton tells here, as live runners do; None without it.

    The package of a build from source has a version of its own.
    """
    try:
        from triton import __version__
    except ImportError:
        return None
    return __version__


def _told(index: int, ask: Callable[[Any, Any], Any]) -> Any:
    """Returns what NVML answers on the GPU that CUDA calls `index`; None where it does not."""
    with suppress(Exception):  # no package, no driver, no such GPU: timing processes say which
        import pynvml

        return ask(pynvml, _handle(index))


def _handle(index: int) -> Any:
    """Returns NVML's handle of the GPU that CUDA calls `index`."""
    import pynvml

    pynvml.nvmlInit()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    name = visible.split(",")[index].strip() if visible else str(index)
    if name.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(name))
    return pynvml.nvmlDeviceGetHandleByUUID(name)


def read_sensors(index: int = 0) -> dict[str, Any]:
    """Returns clocks in MHz, temperature in C, power in W and the driver version of one GPU."""
    readers = {
        "driver": lambda nvml, _: _text(nvml.nvmlSystemGetDriverVersion()),
        "sm_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "memory_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(
            gpu, nvml.NVML_TEMPERATURE_GPU
        ),
        "power_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
        "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    }
    # one sensor that a virtual machine hides must not hide the others
    return {name: _told(index, read) for name, read in readers.items()}


def ceilings(device: Any, flush: Any, protocol: Protocol) -> dict[str, Any]:
    """Measures what a GPU can do at most, and what timing itself costs.

    Args:
        device: The torch device.
        flush: The buffer that flushes the L2.
        protocol: How `timer_floor_us`, the reading of an empty kernel, is taken.

    Returns:
        copy_bytes_per_s (read and written), timer_floor_us, flush_us, protocol and sensors.
    """
    import torch

    source = torch.empty(2**30, dtype=torch.int8, device=device).random_(0, 100)
    target = torch.empty_like(source)
    small = torch.zeros(32, device=device)

    def time_us(launch, repetitions, flush=flush, by=EVENTS_L2):
        return statistics.median(by.time(launch, repetitions=repetitions, flush=flush))

    return {
        "copy_bytes_per_s": 2 * 2**30 / (time_us(lambda: target.copy_(source), 20) * 1e-6),
        "timer_floor_us": time_us(lambda: small.add_(1), 50, by=protocol),
        "flush_us": time_us(lambda: flush.zero_(), 20, flush=small),
        "protocol": protocol.name,
        "sensors": read_sensors(device.index),
    }


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
