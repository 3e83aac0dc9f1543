"""Compiling one specialisation in a process of its own, without a GPU."""

import contextlib
import hashlib
import os
import re
import resource
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from kt_lab.kernels import device_module
from kt_lab.runners.gpu.resources import amd_resources, cuda_resources
from kt_lab.trial import Config

# What workers of this module share, see Workers; the last makes their first compilation quick.
PRELOAD = ("torch", "triton", "kt_lab.runners.gpu.warmed")
ENVIRONMENT = {  # part of Triton's cache key: the timing process must set the same
    "TRITON_DISABLE_LINE_INFO": "1",  # otherwise identical code hashes differently
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML's, by which locks, sensors and panels name a GPU
    "TRITON_INTERPRET": "0",  # whoever sets it debugs a kernel; what is interpreted has no binary
}


class StubDriver:
    """Stands in for the GPU driver so that compiling needs neither a GPU nor its context."""

    def __init__(self, *, arch: int | str, backend: str, warp_size: int):
        """Fixes the target, for example ("cuda", 90, 32) or ("hip", "gfx942", 64)."""
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget(backend, arch, warp_size)

    def get_current_target(self):
        """The target to compile for."""
        return self._target

    def get_current_device(self) -> int:
        """Always device 0."""
        return 0

    def get_current_stream(self, device: int = 0) -> int:  # noqa: ARG002
        """The default stream."""
        return 0

    def get_active_torch_device(self):
        """Where Triton would allocate; nothing is allocated while compiling."""
        import torch

        return torch.device("cpu")


def compile_service(*, arch: int | str, backend: str = "cuda", warp_size: int = 32, nice: int = 0):
    """Starts a compile worker; returns its handler, `compile_one`.

    Args:
        arch: Compute capability as an integer (90) or an AMD architecture ("gfx942").
        backend: "cuda" or "hip".
        warp_size: Threads of a warp or wavefront.
        nice: Added to the process' niceness, so that the timing process goes first.
    """
    from triton.runtime import driver

    if nice:
        os.nice(nice)
    # Triton prints pages of PTX when ptxas refuses it; the exception says what matters.
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    driver.set_active(StubDriver(arch=arch, backend=backend, warp_size=warp_size))
    return compile_one


def compile_one(task: dict[str, Any]) -> dict[str, Any]:
    """Compiles one config and returns its costs and facts.

    Args:
        task: `subject`, `config` (values by name), `sms` (of the GPU), `fresh` (compile even when
            the cache has it), `asm` (whether to return the texts).

    Returns:
        status ("ok" or "compile_error"), error, wall_s and cpu_s (children included); if ok,
        code_hash (of the binary without debug information), shared_bytes and threads of a
        program, registers, spills (32-bit words) and stack_bytes of a thread, on AMD agprs,
        sgprs and sgpr_spills too, and asm, the texts by kind: ttir, ttgir, llir, and ptx and
        sass (if its disassembler is there) or amdgcn.
    """
    import triton

    workload = task["subject"].workload
    device = device_module(task["subject"].device)
    launch = device.plan(
        device.fake_inputs(workload), workload, Config(task["config"]), sms=task["sms"]
    )
    launch.fn.device_caches.clear()  # one config is asked for once; do not hoard binaries
    triton.knobs.compilation.always_compile = bool(task.get("fresh"))
    wall, cpu = time.perf_counter(), _cpu_s()
    try:
        kernel = launch.fn.warmup(*launch.args, grid=launch.grid, **launch.constexprs)
    except Exception as error:
        facts: dict[str, Any] = {"status": "compile_error", "error": one_line(error)}
    else:
        facts = {"status": "ok", "error": ""} | _facts(kernel)
        if _lost_assembly(kernel.asm):
            why = f"inline assembly that {kernel.metadata.target.arch} does not know was left out"
            facts = {"status": "compile_error", "error": why}
    facts |= {"wall_s": time.perf_counter() - wall, "cpu_s": _cpu_s() - cpu}
    if task.get("asm") and facts["status"] == "ok":
        facts["asm"] = _texts(kernel)
    return facts


def _facts(kernel: Any) -> dict[str, Any]:
    binary = kernel.asm.get("cubin") or kernel.asm.get("hsaco") or b""
    if "cubin" in kernel.asm:
        resources = cuda_resources(binary)
    else:
        resources = amd_resources(kernel.asm.get("amdgcn", ""))
    metadata = kernel.metadata
    return resources | {
        "code_hash": hashlib.sha256(binary).hexdigest()[:16],
        "shared_bytes": int(metadata.shared),
        "threads": metadata.num_warps * metadata.target.warp_size,
    }


def _lost_assembly(asm: Mapping[str, Any]) -> bool:
    """Whether inline assembly did not make it into AMD's code.

    The code generator leaves out assembly with operands that it does not know, such as PTX's, and
    goes on; all that it says is a line on stderr.
    """
    code = asm.get("amdgcn", "#ASMSTART")
    return "#ASMSTART" not in code and bool(re.search(r"\bcall\b.* asm ", asm.get("llir", "")))


def _texts(kernel: Any) -> dict[str, str]:
    kinds = ("ttir", "ttgir", "llir", "ptx", "amdgcn")
    texts = {kind: kernel.asm[kind] for kind in kinds if kind in kernel.asm}
    if "cubin" in kernel.asm:
        # Triton's wheels ship the disassembler; other builds may not.
        with contextlib.suppress(RuntimeError, OSError, subprocess.CalledProcessError):
            texts["sass"] = kernel.asm["sass"]
    return texts


def one_line(error: BaseException, *, limit: int = 200) -> str:
    """Returns an exception as one line: its type, and the first and last line of its message.

    Triton begins with where it was ("at 49:16:") and ends with why; where it only points ("^"),
    the exception that caused it says why.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    if lines[-1].strip("^") == "" and error.__cause__ is not None:
        lines[-1] = one_line(error.__cause__)
    # ptxas errors end with a command line full of paths, which say nothing about the config
    lines = [line for line in lines if not line.startswith("Repro command")]
    told = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
    return f"{type(error).__name__}: {told}"[:limit]


def _cpu_s() -> float:
    me, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return me.ru_utime + me.ru_stime + children.ru_utime + children.ru_stime
