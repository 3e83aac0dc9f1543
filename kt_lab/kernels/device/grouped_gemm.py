"""Grouped matrix product in Triton: how a program finds its expert and tile, launch, reference."""

from collections.abc import Callable, Mapping
from itertools import pairwise

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.gemm import _align, _scratch
from kt_lab.kernels.device.gemm_tiles import _multiply, _place
from kt_lab.kernels.gemm import cdiv
from kt_lab.kernels.grouped_gemm import ends
from kt_lab.workload import Workload

_MOST_AT_ONCE = 1024  # experts whose row tiles one vector counts
_ONE_GROUP = 16  # row tiles of an expert visited before the next columns, where it is no axis


@triton.jit
def _counted(offsets, expert0, E, BLOCK_M: tl.constexpr, BLOCK_E: tl.constexpr):
    """Returns the row tiles of BLOCK_E experts from expert0 on, each with those before it."""
    experts = expert0 + tl.arange(0, BLOCK_E)
    start = tl.load(offsets + experts, mask=experts < E, other=0)
    end = tl.load(offsets + experts + 1, mask=experts < E, other=0)
    return tl.cumsum(tl.cdiv(end - start, BLOCK_M), 0)


@triton.jit
def _all_counted(
    offsets, counted, E, BLOCK_M: tl.constexpr, BLOCK_E: tl.constexpr, AT_ONCE: tl.constexpr
):  # fmt: skip
    """Returns the row tiles of all experts."""
    total = tl.max(counted, 0)
    if not AT_ONCE:
        for expert0 in range(BLOCK_E, E, BLOCK_E):
            total += tl.max(_counted(offsets, expert0, E, BLOCK_M, BLOCK_E), 0)
    return total


@triton.jit
def _find(
    row_tile, counted, offsets, E, BLOCK_M: tl.constexpr, BLOCK_E: tl.constexpr,
    AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Returns the expert that has a row tile, counted over all, and how many come before it.

    Experts without tokens are passed over: they end where the one before them ends.
    """
    passed = counted <= row_tile
    expert = tl.sum(passed.to(tl.int32), 0)
    before = tl.max(tl.where(passed, counted, 0), 0)
    if not AT_ONCE:
        total = tl.max(counted, 0)
        for expert0 in range(BLOCK_E, E, BLOCK_E):
            upto = total + _counted(offsets, expert0, E, BLOCK_M, BLOCK_E)
            further = upto <= row_tile
            expert += tl.sum(further.to(tl.int32), 0)
            before = tl.maximum(before, tl.max(tl.where(further, upto, 0), 0))
            total = tl.max(upto, 0)
    return expert, before


@triton.jit
def _product(
    a, b, expert, row0, col0, end, N, K, LOADS: tl.constexpr, SWAP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Returns an expert's tile at row0, col0, transposed if SWAP.

    Rows from `end` on and columns from N on are the next expert's or repeat the last: they are
    never stored.
    """
    if SWAP:
        acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    else:
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    # Never empty, and told so: else what to store for no blocks at all shares the accumulators'
    # registers, and ptxas makes every tensor core instruction wait for the one before.
    blocks = tl.maximum(tl.cdiv(K, BLOCK_K), 1)
    if LOADS == "descriptors":
        line0 = expert * N + col0
        for block in tl.range(0, blocks):
            x = a.load([row0, block * BLOCK_K])
            w = b.load([line0, block * BLOCK_K])
            acc = _multiply(acc, x, tl.trans(w), SWAP, INTERPRET)
    else:
        rows, cols, steps = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
        rows = tl.minimum(rows, end - 1 - row0)
        cols = cols if EVEN_N else tl.minimum(cols, N - 1 - col0)
        x_offsets = rows[:, None].to(tl.int64) * K + steps[None, :]
        w_offsets = cols[:, None].to(tl.int64) * K + steps[None, :]
        a += tl.cast(row0, tl.int64) * K
        b += (tl.cast(expert, tl.int64) * N + col0) * K
        for block in tl.range(0, blocks):
            k0 = block * BLOCK_K
            if EVEN_K:
                x = tl.load(a + k0 + x_offsets)
                w = tl.load(b + k0 + w_offsets)
            else:
                inside = steps[None, :] < K - k0
                x = tl.load(a + k0 + x_offsets, mask=inside, other=0.0)
                w = tl.load(b + k0 + w_offsets, mask=inside, other=0.0)
            acc = _multiply(acc, x, tl.trans(w), SWAP, INTERPRET)
    return acc


@triton.jit
def _tile(
    a, b, offsets, out, tile, counted, N, K, E, LOADS: tl.constexpr, SWAP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_E: tl.constexpr, AT_ONCE: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
    INTERPRET: tl.constexpr,
):  # fmt: skip
    """Computes one tile: tiles are numbered expert by expert."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    expert, before = _find(tile // tiles_n, counted, offsets, E, BLOCK_M, BLOCK_E, AT_ONCE)
    start, end = tl.load(offsets + expert), tl.load(offsets + expert + 1)
    _, tile_m, tile_n = _place(
        tile - before * tiles_n, tl.cdiv(end - start, BLOCK_M), tiles_n, GROUP_M, False
    )
    row0, col0 = start + tile_m * BLOCK_M, tile_n * BLOCK_N
    total = _product(
        a, b, expert, row0, col0, end, N, K, LOADS, SWAP, BLOCK_M, BLOCK_N, BLOCK_K,
        EVEN_N, EVEN_K, INTERPRET,
    )  # fmt: skip
    if SWAP:
        total = tl.trans(total)
    rows, cols = row0 + tl.arange(0, BLOCK_M)[:, None], col0 + tl.arange(0, BLOCK_N)[None, :]
    inside = rows < end if EVEN_N else (rows < end) & (cols < N)
    tl.store(out + rows.to(tl.int64) * N + cols, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def grouped_gemm(
    a, b, offsets, out, T, N, K, E, LOADS: tl.constexpr, SWAP: tl.constexpr,
    SCHEDULE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, BLOCK_E: tl.constexpr, AT_ONCE: tl.constexpr, EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr, ALIGN_K: tl.constexpr, ALIGN_N: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Writes a[rows of e] @ b[e]^T for each expert e, whose rows are offsets[e]..offsets[e + 1].

    a[T, K], b[E, N, K] and out[T, N] are contiguous; offsets[E + 1] ascend from 0 to T. Programs
    beyond the last tile do nothing.
    """
    # Triton itself only asks whether 16 divides an extent. Smaller divisors widen loads too, if
    # the compiler sees the extent as a product.
    if ALIGN_K > 1:
        K = K // ALIGN_K * ALIGN_K
    if ALIGN_N > 1:
        N = N // ALIGN_N * ALIGN_N
    counted = _counted(offsets, 0, E, BLOCK_M, BLOCK_E)
    tiles = _all_counted(offsets, counted, E, BLOCK_M, BLOCK_E, AT_ONCE) * tl.cdiv(N, BLOCK_N)
    if LOADS == "descriptors":
        a = tl.make_tensor_descriptor(a, [T, K], [K, 1], [BLOCK_M, BLOCK_K])
        b = tl.make_tensor_descriptor(b, [E * N, K], [K, 1], [BLOCK_N, BLOCK_K])
    if SCHEDULE == "tiles":
        tile = tl.program_id(0)
        if tile < tiles:
            _tile(
                a, b, offsets, out, tile, counted, N, K, E, LOADS, SWAP, BLOCK_M, BLOCK_N,
                BLOCK_K, GROUP_M, BLOCK_E, AT_ONCE, EVEN_N, EVEN_K, INTERPRET,
            )  # fmt: skip
    else:
        # Flattened, the loops over tiles and over K become one: the next tile's first loads are
        # under way while this tile is being written.
        FLAT: tl.constexpr = SCHEDULE == "flattened"
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLAT):
            _tile(
                a, b, offsets, out, tile, counted, N, K, E, LOADS, SWAP, BLOCK_M, BLOCK_N,
                BLOCK_K, GROUP_M, BLOCK_E, AT_ONCE, EVEN_N, EVEN_K, INTERPRET,
            )  # fmt: skip


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns standard normal tokens and weights, offsets int32, and an output of NaN."""
    t, k, n, experts, _ = workload.extents.values()
    dtype = getattr(torch, workload.dtype)
    known = {"generator": torch.Generator(device=device).manual_seed(seed), "device": device}
    return {
        "a": torch.randn(t, k, dtype=dtype, **known),
        "b": torch.randn(experts, n, k, dtype=dtype, **known),
        "offsets": torch.tensor((0, *ends(workload)), dtype=torch.int32, device=device),
        "out": torch.full((t, n), float("nan"), dtype=dtype, device=device),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    dtype = getattr(torch, workload.dtype)
    return {"a": dtype, "b": dtype, "offsets": torch.int32, "out": dtype}


def _shares(workload: Workload) -> list[tuple[int, int, int]]:
    """Returns expert, first row and end of those that have tokens."""
    shares = enumerate(pairwise((0, *ends(workload))))
    return [(expert, start, end) for expert, (start, end) in shares if end > start]


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:
    """Returns the products, expert by expert, in float64 on a CPU, in float32 elsewhere."""
    a, b = inputs["a"], inputs["b"]
    dtype = torch.float64 if a.device.type == "cpu" else torch.float32
    out = torch.empty(inputs["out"].shape, device=a.device, dtype=dtype)
    for expert, start, end in _shares(workload):
        torch.mm(a[start:end].to(dtype), b[expert].to(dtype).T, out=out[start:end])
    return out


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def _most_row_tiles(workload: Workload, block_m: int) -> int:
    """Returns as many row tiles as there may be, however the tokens are shared."""
    t, experts = workload.extents["T"], workload.extents["E"]
    return (t + min(t, experts) * (block_m - 1)) // block_m


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:
    """Returns the launch of one config on a GPU with `sms` multiprocessors.

    The grid does not depend on how tokens are shared, which only the device knows. Parameters
    that a workload's space lacks take the value that they have there.
    """
    t, k, n, experts, _ = workload.extents.values()
    block_m, block_n, block_k = (config.get(f"BLOCK_{name}", 16) for name in "MNK")
    loads, schedule = config.get("LOADS", "pointers"), config.get("SCHEDULE", "tiles")
    block_e = min(max(triton.next_power_of_2(experts), 16), _MOST_AT_ONCE)
    constexprs = {
        "LOADS": loads,
        "SWAP": config.get("ORDER", "ab") == "ba",
        "SCHEDULE": schedule,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
        "GROUP_M": config.get("GROUP_M", _ONE_GROUP),
        "BLOCK_E": block_e,
        "AT_ONCE": experts <= block_e,
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
    tiles = _most_row_tiles(workload, block_m) * cdiv(n, block_n)
    grid = (tiles if schedule == "tiles" else min(tiles, sms),)
    tensors = (inputs[name] for name in ("a", "b", "offsets", "out"))
    return Launch(grouped_gemm, grid, (*tensors, t, n, k, experts), constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor], workload: Workload
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's grouped product of the same tensors, or a loop of cuBLAS over experts.

    The former needs a torch that has it and rows in multiples of 16 bytes; the latter knows on
    the host where groups end. The name says which it is.
    """
    a, b, upto = inputs["a"], inputs["b"], inputs["offsets"][1:]
    grouped = getattr(torch, "_grouped_mm", None)
    try:
        grouped(a, b.mT, offs=upto)
    except (TypeError, RuntimeError, ValueError, NotImplementedError):  # not in this torch
        shares, out = _shares(workload), torch.empty_like(inputs["out"])

        def loop() -> torch.Tensor:
            for expert, start, end in shares:
                torch.mm(a[start:end], b[expert].T, out=out[start:end])
            return out

        return loop, "torch.mm bf16 of each expert"
    return lambda: grouped(a, b.mT, offs=upto), "torch._grouped_mm bf16"
