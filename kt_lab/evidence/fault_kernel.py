"""A kernel that goes wrong on demand: one config per fault, for the fault matrix.

It adds 1 to x[N], unless FAULT says otherwise. Faults that the GPU cannot have are played where
they happen: in the process that compiles, or in the one that times.
"""

import os
import signal
from collections.abc import Callable, Mapping

import numpy as np
import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.runners.gpu.compiling import ENVIRONMENT
from kt_lab.runners.workers import WorkerLost
from kt_lab.workload import Workload

_BLOCK = 1024


@triton.jit
def fault_kernel(
    x, out, state, N, FAULT: tl.constexpr, VARIANT: tl.constexpr, BLOCK: tl.constexpr
):
    """Writes x + 1, or goes wrong as FAULT says; VARIANT only makes the binary another one."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    value = tl.load(x + at, mask=inside, other=0.0)
    if FAULT == "illegal_access":
        value += tl.load(x + at.to(tl.int64) + 2**44)
    elif FAULT == "misaligned_access":
        odd = (x.to(tl.int64) + 2).to(tl.pointer_type(tl.float32))
        value += tl.load(odd + at, mask=inside, other=0.0)
    elif FAULT == "device_assert":
        tl.device_assert(value > 1e30, "planted")
    elif FAULT == "endless_loop":
        while tl.load(state + 1, volatile=True) == 0:
            value += 1.0
    elif FAULT == "ptxas_hangs":  # a wrapper around ptxas sleeps when it reads this
        value = tl.inline_asm_elementwise(
            "mov.b32 $0, $1; // kt_lab_ptxas_hangs", "=r,r", [value], dtype=tl.float32,
            is_pure=True, pack=1,
        )  # fmt: skip
    elif FAULT == "wrong_result":
        value += 1.0
    elif FAULT == "nan":
        value = value * float("nan")
    elif FAULT == "differs":
        # Right in the first launches, wrong in some later one: as a race would be.
        arrived = tl.atomic_add(state, 1)
        value += tl.where(arrived > 4 * tl.num_programs(0), 1.0, 0.0)
    elif FAULT == "writes_after":
        tl.store(out + N + at % BLOCK, value)
    elif FAULT == "writes_before":
        tl.store(out - 1 - at % BLOCK, value)
    elif FAULT == "unwritten":
        inside = inside & (at % 1000 != 7)
    tl.store(out + at, value + (1.0 + VARIANT * 1e-6), mask=inside)


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns x, an output of NaN, and two integers of state."""
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(workload.extents["N"], generator=generator, device=device)
    return {"x": x, "out": torch.full_like(x, float("nan")), "state": _zeros(device)}


def _zeros(device) -> torch.Tensor:
    return torch.zeros(2, device=device, dtype=torch.int32)


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`."""
    return {"x": torch.float32, "out": torch.float32, "state": torch.int32}


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns x + 1."""
    return inputs["x"] + 1


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch; where the fault is a process' own, plays it there."""
    timing = isinstance(inputs["x"], torch.Tensor)
    compiling = not timing and all(os.environ.get(k) == v for k, v in ENVIRONMENT.items())
    state = inputs["state"]
    if timing:
        _play_while_timing(config["FAULT"])
        state = _zeros(inputs["x"].device)  # a fault's state is its own
    elif compiling:
        _play_while_compiling(config["FAULT"])
    constexprs = {
        "FAULT": config["FAULT"],
        "VARIANT": config["VARIANT"],
        "BLOCK": _BLOCK,
        "num_warps": 4,
        "debug": config["FAULT"] == "device_assert",
    }
    n = workload.extents["N"]
    return Launch(
        fault_kernel, (-(-n // _BLOCK),), (inputs["x"], inputs["out"], state, n), constexprs
    )


def _play_while_timing(fault: str) -> None:
    if fault == "timing_killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "restart":
        raise WorkerLost("asked to")
    elif fault == "out_of_gpu_memory":
        torch.empty(2**50, dtype=torch.int8, device="cuda")
    elif fault == "out_of_host_memory":
        bytearray(2**60)


def _play_while_compiling(fault: str) -> None:
    if fault == "compile_killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "compiler_out_of_memory":
        held = []
        while True:  # until the limit of the process' memory says no
            held.append(np.empty(2**28, dtype=np.int8))  # reserved, never touched


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's own addition."""
    x = inputs["x"]
    return lambda: x + 1, "torch.add"
