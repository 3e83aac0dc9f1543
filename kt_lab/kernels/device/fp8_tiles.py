"""What the FP8 matrix products share, in Triton: loads, dots, the walk over tiles, the allocator.

Both operands are stored with K contiguous, as Hopper's FP8 tensor cores read them: A[M, K] and
B[N, K]. A tile of either is [lines, BLOCK_K]; B's is transposed in the dot, which costs nothing.
"""

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device.int4_gemm import _finish, _place
from kt_lab.workload import Workload

SMALLEST_TILE = 16  # of any space, in rows and in columns
_E4M3_MAX = 448.0


@triton.jit
def operand(x, lines, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, DESCRIPTORS: tl.constexpr):
    """Returns what `load_tile` reads from: the pointer, or a descriptor made on the device."""
    if DESCRIPTORS:
        source = tl.make_tensor_descriptor(x, [lines, K], [K, 1], [BLOCK, BLOCK_K])
    else:
        source = x
    return source


@triton.jit
def load_tile(
    source, line0, k0, lines, K,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, DESCRIPTORS: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Returns a [BLOCK, BLOCK_K] tile of x[lines, K]; past the end of K it is zero."""
    if DESCRIPTORS:
        tile = source.load([line0, k0])
    else:
        # Lines past the end read the last one again; what they give is never stored.
        at = tl.minimum(line0 + tl.arange(0, BLOCK), lines - 1).to(tl.int64)
        ks = tl.arange(0, BLOCK_K)
        pointers = source + at[:, None] * K + ks[None, :] + k0
        if EVEN_K:
            tile = tl.load(pointers)
        else:
            tile = tl.load(pointers, mask=ks[None, :] < K - k0, other=0.0)
    return tile


@triton.jit
def multiply(a, b, acc, SWAP: tl.constexpr):
    """Returns acc + a @ b^T, or its transpose acc + b @ a^T if SWAP."""
    return tl.dot(b, a.T, acc) if SWAP else tl.dot(a, b.T, acc)


@triton.jit
def corner(
    tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr
):  # fmt: skip
    """Returns the first row and the first column of a tile."""
    tile_m, tile_n = _place(tile, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    return tile_m * BLOCK_M, tile_n * BLOCK_N


@triton.jit
def result(
    out, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HALVES: tl.constexpr,
    SPLIT_K: tl.constexpr, DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """Returns what `store_tile` writes to: the pointer, or a descriptor if nothing is split."""
    if DESCRIPTORS and SPLIT_K == 1:
        WIDTH: tl.constexpr = BLOCK_N // 2 if HALVES else BLOCK_N
        target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BLOCK_M, WIDTH])
    else:
        target = out
    return target


@triton.jit
def _store_part(
    total, target, space, counters, tile, row0, col0, M, N,
    ROWS: tl.constexpr, COLS: tl.constexpr, SPLIT_K: tl.constexpr, DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    if DESCRIPTORS and SPLIT_K == 1:
        target.store([row0, col0], total.to(target.dtype))
    else:
        rows, cols = row0 + tl.arange(0, ROWS)[:, None], col0 + tl.arange(0, COLS)[None, :]
        offsets, inside = rows.to(tl.int64) * N + cols, (rows < M) & (cols < N)
        _finish(total, target, space, counters, offsets, inside, tile, M * N, SPLIT_K)


@triton.jit
def store_tile(
    total, target, space, counters, tile, row0, col0, M, N, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, SWAP: tl.constexpr, HALVES: tl.constexpr, SPLIT_K: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """Writes a tile that `multiply` summed, or joins it with the other splits'."""
    if SWAP:
        total = total.T
    if HALVES:  # one after the other, through half the shared memory
        HALF: tl.constexpr = BLOCK_N // 2
        left, right = tl.split(tl.permute(tl.reshape(total, [BLOCK_M, 2, HALF]), [0, 2, 1]))
        _store_part(
            left, target, space, counters, tile, row0, col0, M, N, BLOCK_M, HALF, SPLIT_K,
            DESCRIPTORS,
        )  # fmt: skip
        _store_part(
            right, target, space, counters, tile, row0, col0 + HALF, M, N, BLOCK_M, HALF, SPLIT_K,
            DESCRIPTORS,
        )  # fmt: skip
    else:
        _store_part(
            total, target, space, counters, tile, row0, col0, M, N, BLOCK_M, BLOCK_N, SPLIT_K,
            DESCRIPTORS,
        )  # fmt: skip


def quantise(x: torch.Tensor, axes: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns x in e4m3 and the scales that multiply it back, shared along `axes` (length 1)."""
    scales = x.abs().amax(axes, keepdim=True).clamp(min=1e-12) / _E4M3_MAX
    return (x / scales).to(torch.float8_e4m3fn), scales


def workspace(workload: Workload, *, parts: int, device: str) -> dict[str, torch.Tensor]:
    """Returns an output of NaN, and what splits of the reduction meet in.

    `counters` must be zero before a launch, and every launch leaves them so.
    """
    m, n = workload.extents["M"], workload.extents["N"]
    tiles = -(-m // SMALLEST_TILE) * -(-n // SMALLEST_TILE)
    shape = (parts, m, n) if parts > 1 else (1,)
    return {
        "out": torch.full((m, n), float("nan"), device=device, dtype=torch.bfloat16),
        "workspace": torch.full(shape, float("nan"), device=device),
        "counters": torch.zeros(tiles, device=device, dtype=torch.int32),
    }


def grid_and_constexprs(
    inputs: Mapping[str, Any], workload: Workload, config: Mapping[str, Any], *, sms: int
) -> tuple[tuple[int, int], dict[str, Any]]:
    """Returns the grid (tiles or multiprocessors, splits) and what both products are built from.

    Where a config uses tensor descriptors, programs make them in memory that Triton asks for at
    every launch; this sees to it that it gets some.
    """
    m, n, k = (workload.extents[name] for name in "MNK")
    descriptors, schedule = config["LOADS"] == "descriptors", config.get("SCHEDULE", "tiles")
    if descriptors and getattr(inputs["a"], "is_cuda", False):
        device = inputs["a"].device

        def allocate(size: int, alignment: int, stream: int | None) -> torch.Tensor:  # noqa: ARG001
            return torch.empty(size, device=device, dtype=torch.int8)

        triton.set_allocator(allocate)
    block_m = config.get("BLOCK_M", SMALLEST_TILE)
    tiles = -(-m // block_m) * -(-n // config["BLOCK_N"])
    split = config.get("SPLIT_K", 1)
    constexprs = {
        "BLOCK_M": block_m,
        "BLOCK_N": config["BLOCK_N"],
        "BLOCK_K": config["BLOCK_K"],
        "GROUP_M": config.get("GROUP_M", 1),
        "SPLIT_K": split,
        "SWAP": config.get("ORDER", "ab") == "ba",
        "HALVES": config.get("EPILOGUE", "whole") == "halves",
        "DESCRIPTORS": descriptors,
        "PERSISTENT": schedule != "tiles",
        "FLATTEN": schedule == "flattened",
        "EVEN_K": k % config["BLOCK_K"] == 0,
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    return (tiles if schedule == "tiles" else min(tiles, sms), split), constexprs
