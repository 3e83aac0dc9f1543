"""Matrix product with packed 4-bit weights in Triton: the launch, its inputs and reference."""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.int4_tiles import dot_tile, fma_tile
from kt_lab.kernels.int4_gemm import max_split
from kt_lab.workload import Workload


@triton.jit
def _finish(
    total, out, workspace, counters, offsets, inside, tile, size, SPLIT_K: tl.constexpr
):  # fmt: skip
    """Writes a tile, or joins it with the other splits' in split order if it comes last."""
    if SPLIT_K == 1:
        tl.store(out + offsets, total.to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(workspace + tl.program_id(1) * size + offsets, total, mask=inside)
        tl.debug_barrier()  # every thread has stored before one of them announces it
        arrived = tl.atomic_add(counters + tile, 1, sem="acq_rel", scope="gpu")
        if arrived == SPLIT_K - 1:
            total = tl.zeros_like(total)
            for split in range(SPLIT_K):
                # Other multiprocessors wrote these: read them from L2, past the L1 cache.
                part = workspace + split * size + offsets
                total += tl.load(part, mask=inside, other=0.0, cache_modifier=".cg")
            tl.store(out + offsets, total.to(out.dtype.element_ty), mask=inside)
            tl.store(counters + tile, 0)  # ready for the next launch


@triton.jit
def _place(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Returns a tile's row and column: row by row, or GROUP_M rows together column by column."""
    if GROUP_M == 1:
        tile_m, tile_n = tile // tiles_n, tile % tiles_n
    else:
        in_group = GROUP_M * tiles_n
        first_m = tile // in_group * GROUP_M
        height = tl.minimum(tiles_m - first_m, GROUP_M)
        tile_m = first_m + tile % in_group % height
        tile_n = tile % in_group // height
    return tile_m, tile_n


@triton.jit
def int4_gemm(
    a32, packed16, packed32, out, workspace, counters, M, K, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    UNPACK: tl.constexpr, EVICTION: tl.constexpr, GROUP_M: tl.constexpr, EVEN_M: tl.constexpr,
    EVEN_K: tl.constexpr, EVEN_N: tl.constexpr, STAGES: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Writes one tile of A @ W; programs (tile, split), all operands contiguous."""
    tile = tl.program_id(0)
    tile_m, tile_n = _place(tile, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    blocks = tl.cdiv(K, BLOCK_K)
    share = tl.cdiv(blocks, SPLIT_K)
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, blocks)
    row0, col0 = tile_m * BLOCK_M, tile_n * BLOCK_N
    cols = col0 + tl.arange(0, BLOCK_N)
    if BLOCK_M == 1:
        total = fma_tile(
            a32, packed32, row0, col0, first, last, K, N,
            BLOCK_N, BLOCK_K, UNPACK, EVICTION, STAGES, EVEN_K, EVEN_N,
        )  # fmt: skip
        offsets = row0 * N + cols
        inside = tl.full([BLOCK_N], True, tl.int1) if EVEN_N else cols < N
    else:
        total = dot_tile(
            a32, packed16, row0, col0, first, last, M, K, N, BLOCK_M, BLOCK_N, BLOCK_K,
            UNPACK, EVICTION, STAGES, EVEN_M, EVEN_K, EVEN_N, INTERPRET,
        )  # fmt: skip
        rows = row0 + tl.arange(0, BLOCK_M)[:, None]
        offsets = rows * N + cols[None, :]
        if EVEN_M and EVEN_N:
            inside = tl.full([BLOCK_M, BLOCK_N], True, tl.int1)
        else:
            inside = (rows < M) & (cols[None, :] < N)
    _finish(total, out, workspace, counters, offsets, inside, tile, M * N, SPLIT_K)


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns standard normal A, uniform random nibbles, an output of NaN, and workspace.

    `a32`, `packed16` and `packed32` are views of `a` and `packed`. `counters` must be zero before
    a launch, and every launch leaves them so. K must be even and N a multiple of 4.
    """
    m, k, n = (workload.extents[name] for name in "MKN")
    generator = torch.Generator(device=device).manual_seed(seed)
    a = torch.randn(m, k, generator=generator, device=device).to(torch.bfloat16)
    packed = torch.randint(
        -128, 128, (k // 2, n), generator=generator, device=device, dtype=torch.int8
    )
    parts = max_split(workload)
    return {
        "a": a,
        "a32": a.view(torch.int32),
        "packed": packed,
        "packed16": packed.view(torch.int16),
        "packed32": packed.view(torch.int32),
        "out": torch.full((m, n), float("nan"), device=device, dtype=torch.bfloat16),
        "workspace": torch.full((parts, m, n), float("nan"), device=device),
        # One per output tile; the smallest tile of any space is 1 x 32.
        "counters": torch.zeros(m * -(-n // 32), device=device, dtype=torch.int32),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return {
        "a": torch.bfloat16,
        "a32": torch.int32,
        "packed": torch.int8,
        "packed16": torch.int16,
        "packed32": torch.int32,
        "out": torch.bfloat16,
        "workspace": torch.float32,
        "counters": torch.int32,
    }


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """Returns the weights [K, N] as int8 in -8..7."""
    low, high = (packed << 4) >> 4, packed >> 4
    return torch.stack((low, high), 1).reshape(-1, packed.shape[1])


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns the product in float64 on a CPU, in float32 elsewhere."""
    a, packed = inputs["a"], inputs["packed"]
    dtype = torch.float64 if a.device.type == "cpu" else torch.float32
    return a.to(dtype) @ unpack(packed).to(dtype)


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; the grid does not depend on `sms`."""
    m, k, n = (workload.extents[name] for name in "MKN")
    block_m, block_n = config.get("BLOCK_M", 16), config["BLOCK_N"]
    split = config["SPLIT_K"]
    constexprs = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": config["BLOCK_K"],
        "SPLIT_K": split,
        "UNPACK": config["UNPACK"],
        "EVICTION": config.get("EVICTION", ""),
        "GROUP_M": config.get("GROUP_M", 1),
        "EVEN_M": m % block_m == 0,
        "EVEN_K": k % config["BLOCK_K"] == 0,
        "EVEN_N": n % block_n == 0,
        "STAGES": config["num_stages"],
        "INTERPRET": triton.knobs.runtime.interpret,
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    tensors = ("a32", "packed16", "packed32", "out", "workspace", "counters")
    args = (*(inputs[name] for name in tensors), m, k, n)
    return Launch(int4_gemm, (-(-m // block_m) * -(-n // block_n), split), args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's product with weights that were dequantised beforehand: 4x the bytes."""
    a, weights = inputs["a"], unpack(inputs["packed"]).to(torch.bfloat16)
    return lambda: torch.matmul(a, weights), "torch.matmul bf16 (dequantised weights)"
