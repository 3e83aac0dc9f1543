"""FP8 matrix product with scales per block of 128, in Triton: launch, inputs, reference."""

from collections.abc import Callable, Mapping
from functools import partial

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
from kt_lab.kernels.fp8_gemm import cdiv, max_split
from kt_lab.workload import Workload

_GROUP = 128  # elements of K, and columns, that share a scale


@triton.jit
def _scales(scales_a, scales_b, rows, col0, k0, M, N, K, TWO: tl.constexpr):
    """Returns the scales of rows, and of the 128 columns at col0 and of the 128 after them."""
    group, groups = k0 // 128, tl.cdiv(K, 128)
    of_rows = tl.load(scales_a + group * M + rows)
    left = tl.load(scales_b + col0 // 128 * groups + group)
    if TWO:
        after = tl.minimum(col0 // 128 + 1, tl.cdiv(N, 128) - 1)
        right = tl.load(scales_b + after * groups + group)
    else:
        right = left
    return of_rows, left, right


@triton.jit
def _promote(acc, x, w, scale, SWAP: tl.constexpr):
    """Returns acc plus a product of 128 or less of K, summed apart and scaled in float32."""
    part = multiply(x, w, None, SWAP)
    return acc + part * (scale[None, :] if SWAP else scale[:, None])


@triton.jit
def _tile(
    tile, a, b, scales_a, scales_b, out, space, counters, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SPLIT_K: tl.constexpr, SWAP: tl.constexpr, AHEAD: tl.constexpr, DESCRIPTORS: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    # A tile of 256 columns is two of 128 that share A: each has its own scale, and only one
    # unscaled product exists at a time.
    TWO: tl.constexpr = BLOCK_N > 128
    COLS: tl.constexpr = 128 if TWO else BLOCK_N
    row0, col0 = corner(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = tl.minimum(row0 + tl.arange(0, BLOCK_M), M - 1)
    blocks = tl.cdiv(K, BLOCK_K)
    share = tl.cdiv(blocks, SPLIT_K)
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, blocks)
    left = tl.zeros([COLS, BLOCK_M] if SWAP else [BLOCK_M, COLS], tl.float32)
    right = left
    if AHEAD:
        of_rows, of_left, of_right = _scales(
            scales_a, scales_b, rows, col0, first * BLOCK_K, M, N, K, TWO
        )
    for block in range(first, last):
        k0 = block * BLOCK_K
        if not AHEAD:
            of_rows, of_left, of_right = _scales(scales_a, scales_b, rows, col0, k0, M, N, K, TWO)
        x = load_tile(a, row0, k0, M, K, BLOCK_M, BLOCK_K, DESCRIPTORS, EVEN_K)
        w = load_tile(b, col0, k0, N, K, COLS, BLOCK_K, DESCRIPTORS, EVEN_K)
        if AHEAD:
            next_k0 = tl.minimum(block + 1, last - 1) * BLOCK_K
            next_rows, next_left, next_right = _scales(
                scales_a, scales_b, rows, col0, next_k0, M, N, K, TWO
            )
        left = _promote(left, x, w, of_rows * of_left, SWAP)
        if TWO:
            v = load_tile(b, col0 + 128, k0, N, K, COLS, BLOCK_K, DESCRIPTORS, EVEN_K)
            right = _promote(right, x, v, of_rows * of_right, SWAP)
        if AHEAD:
            of_rows, of_left, of_right = next_rows, next_left, next_right
    at = 2 * tile if TWO else tile  # its counter among the splits'
    store_tile(
        left, out, space, counters, at, row0, col0, M, N, BLOCK_M, COLS, SWAP, False,
        SPLIT_K, DESCRIPTORS,
    )  # fmt: skip
    if TWO:
        store_tile(
            right, out, space, counters, at + 1, row0, col0 + 128, M, N, BLOCK_M, COLS,
            SWAP, False, SPLIT_K, DESCRIPTORS,
        )  # fmt: skip


@triton.jit
def fp8_blockwise_gemm(
    a, b, scales_a, scales_b, out, space, counters, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SPLIT_K: tl.constexpr, SWAP: tl.constexpr, AHEAD: tl.constexpr, HALVES: tl.constexpr,
    DESCRIPTORS: tl.constexpr, PERSISTENT: tl.constexpr, FLATTEN: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    """Writes the product of a[M, K] and b[N, K]^T, both scaled per 128 of K, b per 128 of N too.

    scales_a[K / 128, M] and scales_b[N / 128, K / 128], rounded up; programs (tiles or
    multiprocessors, splits). Every BLOCK_K of K is summed by the tensor cores, then added in
    float32.
    """
    COLS: tl.constexpr = BLOCK_N // 2 if HALVES else BLOCK_N
    x = operand(a, M, K, BLOCK_M, BLOCK_K, DESCRIPTORS)
    w = operand(b, N, K, COLS, BLOCK_K, DESCRIPTORS)
    y = result(out, M, N, BLOCK_M, BLOCK_N, HALVES, SPLIT_K, DESCRIPTORS)
    if PERSISTENT:
        tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
            _tile(
                tile, x, w, scales_a, scales_b, y, space, counters, M, N, K, BLOCK_M, BLOCK_N,
                BLOCK_K, GROUP_M, SPLIT_K, SWAP, AHEAD, DESCRIPTORS, EVEN_K,
            )  # fmt: skip
    else:
        _tile(
            tl.program_id(0), x, w, scales_a, scales_b, y, space, counters, M, N, K, BLOCK_M,
            BLOCK_N, BLOCK_K, GROUP_M, SPLIT_K, SWAP, AHEAD, DESCRIPTORS, EVEN_K,
        )  # fmt: skip


def _quantised(
    lines: int, k: int, block: int, *, deviation: float, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns normal e4m3 elements [lines, k], and their scales for `block` lines and 128 of K."""
    blocks, groups, device = cdiv(lines, block), cdiv(k, _GROUP), generator.device
    x = torch.randn(blocks, block, groups, _GROUP, generator=generator, device=device)
    spread = torch.rand(blocks, 1, groups, 1, generator=generator, device=device) * 2 - 1
    values, scales = quantise(x.mul_(deviation * torch.exp2(spread)), (1, 3))
    values = values.view(blocks * block, groups * _GROUP)[:lines, :k].contiguous()
    return values, scales.view(blocks, groups)


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns quantised A and B with their scales, an output of NaN, and workspace.

    A is normal with a deviation of 1, B of K**-0.5; each block that has a scale is 0.5 to 2 times
    as wide, so that no scale may stand in for another. `scales_a` has M contiguous, as cuBLAS
    reads it.
    """
    m, n, k = (workload.extents[name] for name in "MNK")
    generator = torch.Generator(device=device).manual_seed(seed)
    a, scales_a = _quantised(m, k, 1, deviation=1.0, generator=generator)
    b, scales_b = _quantised(n, k, _GROUP, deviation=k**-0.5, generator=generator)
    operands = {"a": a, "b": b, "scales_a": scales_a.T.contiguous(), "scales_b": scales_b}
    return operands | workspace(workload, parts=max_split(workload), device=device)


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return {
        "a": torch.float8_e4m3fn,
        "b": torch.float8_e4m3fn,
        "scales_a": torch.float32,
        "scales_b": torch.float32,
        "out": torch.bfloat16,
        "workspace": torch.float32,
        "counters": torch.int32,
    }


def _dequantised(
    inputs: Mapping[str, torch.Tensor], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns A and B with their scales multiplied in."""
    a, b = inputs["a"], inputs["b"]
    of_a = inputs["scales_a"].T.repeat_interleave(_GROUP, 1)[:, : a.shape[1]]
    of_b = inputs["scales_b"].repeat_interleave(_GROUP, 1)[:, : b.shape[1]]
    of_b = of_b.repeat_interleave(_GROUP, 0)[: b.shape[0]]
    return a.to(dtype) * of_a.to(dtype), b.to(dtype) * of_b.to(dtype)


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns the product in float64 on a CPU, in float32 elsewhere."""
    on_cpu = inputs["a"].device.type == "cpu"
    a, b = _dequantised(inputs, torch.float64 if on_cpu else torch.float32)
    return a @ b.T


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:
    """Returns the launch of one config on a GPU with `sms` multiprocessors."""
    grid, constexprs = grid_and_constexprs(inputs, workload, config, sms=sms)
    constexprs |= {"AHEAD": config["SCALES"] == "ahead", "HALVES": config["BLOCK_N"] > _GROUP}
    tensors = ("a", "b", "scales_a", "scales_b", "out", "workspace", "counters")
    args = (*(inputs[name] for name in tensors), *(workload.extents[name] for name in "MNK"))
    return Launch(fp8_blockwise_gemm, grid, args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns cuBLAS' product with the same scales, or of operands dequantised beforehand.

    The former needs a Hopper, CUDA 12.9 and a torch that offers it; the latter reads and
    multiplies bfloat16. The name says which it is.
    """
    a, b = inputs["a"], inputs["b"]
    try:
        from torch.nn.functional import ScalingType, scaled_mm

        # cuBLAS wants K / 128 contiguous and padded to a multiple of 4.
        groups = inputs["scales_b"].shape[1]
        padded = torch.nn.functional.pad(inputs["scales_b"], (0, -groups % 4))
        scaled = partial(
            scaled_mm, a, b.T, inputs["scales_a"].T, ScalingType.BlockWise1x128, padded.T,
            ScalingType.BlockWise128x128, output_dtype=torch.bfloat16,
        )  # fmt: skip
        scaled()
    except (ImportError, AttributeError, RuntimeError, ValueError):  # not in this torch
        x, w = _dequantised(inputs, torch.bfloat16)
        out = torch.empty_like(inputs["out"])
        return lambda: torch.mm(x, w.T, out=out), "torch.mm bf16 (dequantised operands)"
    return lambda: scaled(), "torch scaled_mm (1x128 by 128x128)"
