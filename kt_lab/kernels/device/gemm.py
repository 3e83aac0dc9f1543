"""The device half of every matrix product: inputs, launch and reference."""

import math
from collections.abc import Callable, Mapping

import torch
import triton

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.gemm_tiles import gemm
from kt_lab.kernels.gemm import cdiv, max_split
from kt_lab.workload import Workload


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns standard normal A and B, an output of NaN, and what splits share.

    The workspace holds the splits' partial sums where a space splits the reduction at all.
    `counters` must be zero before a launch, and every launch leaves them so.
    """
    m, k, n = (workload.extents[name] for name in "MKN")
    batch = (workload.extents["B"],) if "B" in workload.extents else ()
    dtype = getattr(torch, workload.dtype)
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*batch, *shape, generator=generator, device=device, dtype=dtype)

    out = torch.full((*batch, m, n), float("nan"), device=device, dtype=dtype)
    parts = max_split(workload)
    shared = (parts, *out.shape) if parts > 1 else (1,)
    return {
        "a": normal(m, k),
        "b": normal(k, n),
        "out": out,
        "workspace": torch.full(shared, float("nan"), device=device),
        # One per output tile; the smallest tile that is ever split is 16 x 16.
        "counters": torch.zeros(
            sum(batch or (1,)) * cdiv(m, 16) * cdiv(n, 16), device=device, dtype=torch.int32
        ),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    dtype = getattr(torch, workload.dtype)
    return {
        "a": dtype,
        "b": dtype,
        "out": dtype,
        "workspace": torch.float32,
        "counters": torch.int32,
    }


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns the product in float64 on a CPU, in float32 elsewhere."""
    a, b = inputs["a"], inputs["b"]
    dtype = torch.float64 if a.device.type == "cpu" else torch.float32
    return torch.matmul(a.to(dtype), b.to(dtype))


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:  # noqa: ARG001
    """Allocates where descriptors are made; torch aligns to 512 bytes, descriptors need 128."""
    return torch.empty(size, device="cuda", dtype=torch.int8)


def _align(extent: int) -> int:
    """Returns the power of two up to 8 that divides an extent; 1 where Triton finds it itself."""
    return 1 if extent % 16 == 0 else math.gcd(extent, 8)


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:
    """Returns the launch of one config on a GPU with `sms` multiprocessors.

    Parameters that a workload's space lacks take the value that they have there.
    """
    m, k, n = (workload.extents[name] for name in "MKN")
    batch = workload.extents.get("B", 1)
    block_m, block_n, block_k = (config.get(f"BLOCK_{name}", 16) for name in "MNK")
    loads, split = config.get("LOADS", "pointers"), config.get("SPLIT_K", 1)
    schedule = config.get("SCHEDULE", "tiles")
    constexprs = {
        "LOADS": loads,
        "SWAP": config.get("ORDER", "ab") == "ba",
        "SCHEDULE": schedule,
        "BATCHED": "B" in workload.extents,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
        "SPLIT_K": split,
        "GROUP_M": config.get("GROUP_M", 1),
        "EPILOGUE": config.get("EPILOGUE", "whole"),
        "EVEN_M": m % block_m == 0,
        "EVEN_N": n % block_n == 0,
        "EVEN_K": k % block_k == 0,
        "ALIGN_K": _align(k),
        "ALIGN_N": _align(n),
        "INTERPRET": triton.knobs.runtime.interpret,
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    if loads == "descriptors" and getattr(inputs["a"], "is_cuda", False):
        triton.set_allocator(_scratch)  # descriptors made on the device live in global memory
    tiles = batch * cdiv(m, block_m) * cdiv(n, block_n)
    grid = (tiles if schedule == "tiles" else min(tiles, sms), split)
    tensors = (inputs[name] for name in ("a", "b", "out", "workspace", "counters"))
    return Launch(gemm, grid, (*tensors, batch, m, n, k), constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's own product of the same tensors: cuBLAS."""
    a, b, out = inputs["a"], inputs["b"], torch.empty_like(inputs["out"])
    return lambda: torch.matmul(a, b, out=out), "torch.matmul bf16"
