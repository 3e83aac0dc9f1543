"""Expert weights to transposed FP8 with a scale per row, in Triton: maxima, casts, and both.

Weights are w[E, N, K], K contiguous: the view (E, K, N) whose rows, K of them, get a scale each
over all N. What is written is out[E, K, N], N contiguous: transposed in memory.
"""

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device.fp8_scales import cast, scale_of, scales, to_e4m3, unwritten
from kt_lab.workload import Workload


@triton.jit
def load_weights(w, expert, n0, k0, N, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Returns the tile [BLOCK_N, BLOCK_K] of an expert in float32; zero past its ends."""
    ns, ks = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    # An expert may hold more than 2^31 weights, a tile cannot.
    first = w + (expert.to(tl.int64) * N + n0) * K + k0
    inside = (ns[:, None] < N - n0) & (ks[None, :] < K - k0)
    tile = tl.load(first + (ns[:, None] * K + ks[None, :]), mask=inside, other=0.0)
    return tile.to(tl.float32)


@triton.jit
def store_weights(
    out, tile, scale, expert, n0, k0, N, K,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVICTION: tl.constexpr,
    INTERPRET: tl.constexpr,
):  # fmt: skip
    """Writes a tile [BLOCK_N, BLOCK_K] to out[E, K, N], multiplied by its rows' scales."""
    ns, ks = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    first = out + (expert.to(tl.int64) * K + k0) * N + n0
    inside = (ks[:, None] < K - k0) & (ns[None, :] < N - n0)
    values = to_e4m3(tile * scale[None, :], INTERPRET)
    target = first + (ks[:, None] * N + ns[None, :])
    tl.store(target, tl.trans(values), mask=inside, eviction_policy=EVICTION)


@triton.jit
def share(E, N, K, trips, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FIRST: tl.constexpr):
    """Returns a program's expert, first k, first n, and the n past its `trips` tiles.

    FIRST is what neighbouring programs differ in: "experts", as on a grid (E, tiles of K, tiles
    of N), or "columns" (k), or "rows" (n) of one expert.
    """
    blocks_k, chunks_n = tl.cdiv(K, BLOCK_K), tl.cdiv(tl.cdiv(N, BLOCK_N), trips)
    program = tl.program_id(0)
    if FIRST == "experts":
        expert, rest = program % E, program // E
        block_k, chunk_n = rest % blocks_k, rest // blocks_k
    elif FIRST == "columns":
        block_k, rest = program % blocks_k, program // blocks_k
        chunk_n, expert = rest % chunks_n, rest // chunks_n
    else:
        chunk_n, rest = program % chunks_n, program // chunks_n
        block_k, expert = rest % blocks_k, rest // blocks_k
    n0 = chunk_n * trips * BLOCK_N
    return expert, block_k * BLOCK_K, n0, tl.minimum(n0 + trips * BLOCK_N, N)


@triton.jit
def expert_scales(
    w, scales, E, N, K, trips,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, LOOP: tl.constexpr, FIRST: tl.constexpr,
    SEM: tl.constexpr, POWERS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Lowers scales[E, K], infinite at first, to those of w[E, N, K] over N.

    The scale falls with the maximum, and so does its rounding: the least of the scales of parts
    is the scale of the whole, bit for bit.
    """
    expert, k0, n0, last = share(E, N, K, trips, BLOCK_N, BLOCK_K, FIRST)
    if LOOP:
        amax = tl.zeros([BLOCK_K], tl.float32)
        for at in tl.range(n0, last, BLOCK_N, num_stages=STAGES):
            tile = load_weights(w, expert, at, k0, N, K, BLOCK_N, BLOCK_K)
            amax = tl.maximum(amax, tl.max(tl.abs(tile), 0))
    else:
        tile = load_weights(w, expert, n0, k0, N, K, BLOCK_N, BLOCK_K)
        amax = tl.max(tl.abs(tile), 0)
    ks = k0 + tl.arange(0, BLOCK_K)
    target = scales + expert.to(tl.int64) * K + ks
    tl.atomic_min(target, scale_of(amax, POWERS), mask=ks < K, sem=SEM)


@triton.jit
def expert_cast(
    w, scales, out, E, N, K, trips,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, LOOP: tl.constexpr, FIRST: tl.constexpr,
    EVICTION: tl.constexpr, STAGES: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Writes w[E, N, K] * scales[E, K] transposed to out[E, K, N] in e4m3."""
    expert, k0, n0, last = share(E, N, K, trips, BLOCK_N, BLOCK_K, FIRST)
    ks = k0 + tl.arange(0, BLOCK_K)
    scale = tl.load(scales + expert.to(tl.int64) * K + ks, mask=ks < K, other=0.0)
    if LOOP:
        for at in tl.range(n0, last, BLOCK_N, num_stages=STAGES):
            tile = load_weights(w, expert, at, k0, N, K, BLOCK_N, BLOCK_K)
            store_weights(
                out, tile, scale, expert, at, k0, N, K, BLOCK_N, BLOCK_K, EVICTION, INTERPRET
            )
    else:
        tile = load_weights(w, expert, n0, k0, N, K, BLOCK_N, BLOCK_K)
        store_weights(
            out, tile, scale, expert, n0, k0, N, K, BLOCK_N, BLOCK_K, EVICTION, INTERPRET
        )


@triton.jit
def expert_scales_and_cast(
    w, scales, out, E, N, K,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FIRST: tl.constexpr, ONCE: tl.constexpr,
    BACKWARD: tl.constexpr, POWERS: tl.constexpr, STAGES: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Does both in one launch: a program reads BLOCK_K columns twice.

    If ONCE, maxima are kept for each element of a tile and joined once, at the end. If BACKWARD,
    the second reading begins with what was read last.
    """
    expert, k0, _, _ = share(E, N, K, tl.cdiv(N, BLOCK_N), BLOCK_N, BLOCK_K, FIRST)
    largest = tl.zeros([BLOCK_N, BLOCK_K] if ONCE else [BLOCK_K], tl.float32)
    for at in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        tile = tl.abs(load_weights(w, expert, at, k0, N, K, BLOCK_N, BLOCK_K))
        largest = tl.maximum(largest, tile if ONCE else tl.max(tile, 0))
    scale = scale_of(tl.max(largest, 0) if ONCE else largest, POWERS)
    ks = k0 + tl.arange(0, BLOCK_K)
    tl.store(scales + expert.to(tl.int64) * K + ks, scale, mask=ks < K)
    blocks = tl.cdiv(N, BLOCK_N)
    for i in tl.range(0, blocks, num_stages=STAGES):
        at = (blocks - 1 - i if BACKWARD else i) * BLOCK_N
        tile = load_weights(w, expert, at, k0, N, K, BLOCK_N, BLOCK_K)
        store_weights(out, tile, scale, expert, at, k0, N, K, BLOCK_N, BLOCK_K, "", INTERPRET)


def sizes(workload: Workload) -> tuple[int, int, int]:
    """Returns the experts E and the extents N and K of each."""
    return tuple(workload.extents[name] for name in "ENK")


def dtype_of(workload: Workload) -> torch.dtype:
    """Returns the dtype of the weights."""
    return getattr(torch, workload.dtype)


def make_weights(workload: Workload, *, device: Any, seed: int) -> torch.Tensor:
    """Returns w[E, N, K], standard normal but for a row of zeros of each expert, its last k."""
    e, n, k = sizes(workload)
    generator = torch.Generator(device=device).manual_seed(seed)
    w = torch.randn(e, n, k, generator=generator, device=device, dtype=dtype_of(workload))
    w[:, :, -1] = 0.0
    return w


def make_outputs(workload: Workload, *, device: Any, cast: bool = True) -> dict[str, torch.Tensor]:
    """Returns scales[E, K] and, unless only those are written, out[E, K, N]; all are NaN."""
    e, n, k = sizes(workload)
    made = {"scales": unwritten(e, k, dtype=torch.float32, device=device)}
    if cast:
        made["out"] = unwritten(e, k, n, dtype=torch.float8_e4m3fn, device=device)
    return made


def right_scales(w: torch.Tensor, workload: Workload) -> torch.Tensor:
    """Returns the scales (E, K) of w[E, N, K]."""
    return scales(w.abs().amax(1), workload)


def right_cast(w: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Returns w * by[:, None], transposed to (E, K, N), in e4m3; an expert at a time."""
    e, n, k = w.shape
    out = torch.empty(e, k, n, device=w.device, dtype=torch.float8_e4m3fn)
    for expert in range(e):
        out[expert].copy_(cast(w[expert], by[expert]).T)
    return out


def torch_cast(w: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Returns what `right_cast` does, all experts at once: what torch users write."""
    return cast(w, by[:, None]).transpose(1, 2).contiguous()


def tiles(workload: Workload, config: Mapping[str, Any]) -> tuple[int, int]:
    """Returns how many tiles an expert has along N and along K."""
    _, n, k = sizes(workload)
    return triton.cdiv(n, config["BLOCK_N"]), triton.cdiv(k, config["BLOCK_K"])
