"""FP8 matrix product with one scale per operand, in Triton: launch, inputs, reference."""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.fp8_tiles import (
    corner,
    grid_and_constexprs,
    load_tile,
    multiply,
    operand,
    quantise,
    result,
    store_tile,
    workspace,
)
from kt_lab.kernels.fp8_gemm import max_split
from kt_lab.workload import Workload


@triton.jit
def _tile(
    tile, a, b, scale, out, space, counters, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SPLIT_K: tl.constexpr, SWAP: tl.constexpr, HALVES: tl.constexpr, DESCRIPTORS: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    row0, col0 = corner(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    blocks = tl.cdiv(K, BLOCK_K)
    share = tl.cdiv(blocks, SPLIT_K)
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, blocks)
    acc = tl.zeros([BLOCK_N, BLOCK_M] if SWAP else [BLOCK_M, BLOCK_N], tl.float32)
    for block in range(first, last):
        x = load_tile(a, row0, block * BLOCK_K, M, K, BLOCK_M, BLOCK_K, DESCRIPTORS, EVEN_K)
        w = load_tile(b, col0, block * BLOCK_K, N, K, BLOCK_N, BLOCK_K, DESCRIPTORS, EVEN_K)
        acc = multiply(x, w, acc, SWAP)
    store_tile(
        acc * scale, out, space, counters, tile, row0, col0, M, N, BLOCK_M, BLOCK_N, SWAP, HALVES,
        SPLIT_K, DESCRIPTORS,
    )  # fmt: skip


@triton.jit
def fp8_gemm(
    a, b, scale_a, scale_b, out, space, counters, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SPLIT_K: tl.constexpr, SWAP: tl.constexpr, HALVES: tl.constexpr, DESCRIPTORS: tl.constexpr,
    PERSISTENT: tl.constexpr, FLATTEN: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Writes a[M, K] @ b[N, K]^T times both scales; programs (tiles or multiprocessors, splits).

    Sums stay in the tensor core's own accumulator over the whole of K, about 14 bits wide on
    Hopper: Triton's default there, and what cuBLAS calls fast accumulation.
    """
    scale = tl.load(scale_a) * tl.load(scale_b)
    x = operand(a, M, K, BLOCK_M, BLOCK_K, DESCRIPTORS)
    w = operand(b, N, K, BLOCK_N, BLOCK_K, DESCRIPTORS)
    y = result(out, M, N, BLOCK_M, BLOCK_N, HALVES, SPLIT_K, DESCRIPTORS)
    if PERSISTENT:
        tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
            _tile(
                tile, x, w, scale, y, space, counters, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K,
                GROUP_M, SPLIT_K, SWAP, HALVES, DESCRIPTORS, EVEN_K,
            )  # fmt: skip
    else:
        _tile(
            tl.program_id(0), x, w, scale, y, space, counters, M, N, K, BLOCK_M, BLOCK_N,
            BLOCK_K, GROUP_M, SPLIT_K, SWAP, HALVES, DESCRIPTORS, EVEN_K,
        )  # fmt: skip


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns quantised A and B with their scales, an output of NaN, and workspace.

    A is standard normal and B normal with a variance of 1 / K, both scaled so that their largest
    element becomes the largest of e4m3: the product is about standard normal for every K.
    """
    m, n, k = (workload.extents[name] for name in "MNK")
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(m, k, generator=generator, device=device)
    w = torch.randn(n, k, generator=generator, device=device) * k**-0.5
    a, scale_a = quantise(x, (0, 1))
    b, scale_b = quantise(w, (0, 1))
    operands = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}
    return operands | workspace(workload, parts=max_split(workload), device=device)


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return {
        "a": torch.float8_e4m3fn,
        "b": torch.float8_e4m3fn,
        "scale_a": torch.float32,
        "scale_b": torch.float32,
        "out": torch.bfloat16,
        "workspace": torch.float32,
        "counters": torch.int32,
    }


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns the product in float64 on a CPU, in float32 elsewhere."""
    a, b = inputs["a"], inputs["b"]
    dtype = torch.float64 if a.device.type == "cpu" else torch.float32
    product = a.to(dtype) @ b.to(dtype).T
    return product * (inputs["scale_a"] * inputs["scale_b"]).to(dtype)


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:
    """Returns the launch of one config on a GPU with `sms` multiprocessors."""
    grid, constexprs = grid_and_constexprs(inputs, workload, config, sms=sms)
    tensors = ("a", "b", "scale_a", "scale_b", "out", "workspace", "counters")
    args = (*(inputs[name] for name in tensors), *(workload.extents[name] for name in "MNK"))
    return Launch(fp8_gemm, grid, args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns cuBLAS through torch, accumulating as the kernel does; K and N multiples of 16."""
    a, b, scale_a, scale_b = (inputs[name] for name in ("a", "b", "scale_a", "scale_b"))

    def multiply_scaled() -> torch.Tensor:
        return torch._scaled_mm(
            a, b.T, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    return multiply_scaled, "torch._scaled_mm (per tensor, fast accumulation)"
