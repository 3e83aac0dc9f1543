"""Flash attention forward in Triton: a block of queries against all keys that it may see."""

import itertools
import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
import triton
import triton.language as tl

from kt_lab.kernels.attention import CAUSAL, cdiv, extents, head_width
from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.attention_tiles import (
    describe,
    load_tile,
    multiply,
    power_of_two,
    store_tile,
)
from kt_lab.workload import Workload

_LOG2_E = 1.4426950408889634
_MOST_SCORES = 2**26  # that the reference holds at once


@triton.jit
def _scores(
    query, q, k, batch, head, kv, row0, key0, S, H: tl.constexpr, HK: tl.constexpr,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDTH: tl.constexpr,
    LOADS: tl.constexpr, EVEN_M: tl.constexpr, WHOLE: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Returns Q K^T of a tile, unscaled; `query` is the tile of Q, unless heads are wider."""
    BY_KEYS: tl.constexpr = LOADS != "pointers"
    BY_QUERIES: tl.constexpr = LOADS == "descriptors"
    scores = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    if D <= WIDTH:
        key = load_tile(k, batch, key0, kv, 0, S, HK, D, BLOCK_N, WIDTH, BY_KEYS, WHOLE)
        scores = multiply(query, tl.trans(key), scores, INTERPRET)
    else:
        for col in tl.range(0, D, WIDTH):
            part = load_tile(
                q, batch, row0, head, col, S, H, D, BLOCK_M, WIDTH, BY_QUERIES, EVEN_M
            )
            key = load_tile(k, batch, key0, kv, col, S, HK, D, BLOCK_N, WIDTH, BY_KEYS, WHOLE)
            scores = multiply(part, tl.trans(key), scores, INTERPRET)
    return scores


@triton.jit
def _attend(
    acc, top, total, query, q, k, v, batch, head, kv, row0, col0, first, last, S, scale,
    H: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, WIDTH: tl.constexpr, LOADS: tl.constexpr, CAUSAL: tl.constexpr,
    MASKED: tl.constexpr, POLYNOMIAL: tl.constexpr, EVEN_M: tl.constexpr, EVEN_N: tl.constexpr,
    INTERPRET: tl.constexpr,
):  # fmt: skip
    """Takes blocks first..last of keys into the sums of a block of queries.

    total and acc are sums of weights 2^(score * scale - top), alone and with V; top is a row's
    maximum of score * scale so far.
    """
    BY_KEYS: tl.constexpr = LOADS != "pointers"
    WHOLE: tl.constexpr = EVEN_N or not MASKED
    for block in tl.range(first, last):
        key0 = block * BLOCK_N
        scores = _scores(
            query, q, k, batch, head, kv, row0, key0, S, H, HK, D, BLOCK_M, BLOCK_N, WIDTH,
            LOADS, EVEN_M, WHOLE, INTERPRET,
        )  # fmt: skip
        if MASKED:
            keys = key0 + tl.arange(0, BLOCK_N)[None, :]
            end = row0 + 1 + tl.arange(0, BLOCK_M)[:, None] if CAUSAL else S
            scores = tl.where(keys < end, scores, float("-inf"))
        # Key 0 is seen by every query, so that a maximum is finite from the first block on.
        higher = tl.maximum(top, tl.max(scores, 1) * scale)
        fade = tl.exp2(top - higher)
        weights = power_of_two(scores * scale - higher[:, None], POLYNOMIAL, BLOCK_M, BLOCK_N)
        total = total * fade + tl.sum(weights, 1)
        value = load_tile(v, batch, key0, kv, col0, S, HK, D, BLOCK_N, WIDTH, BY_KEYS, WHOLE)
        if not INTERPRET:
            weights = weights.to(value.dtype)
        acc = multiply(weights, value, acc * fade[:, None], INTERPRET)
        top = higher
    return acc, top, total


@triton.jit
def _place(
    tile, blocks, B, H: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, ORDER: tl.constexpr
):
    """Returns batch, head, block of queries and first column of a tile's output."""
    CHUNKS: tl.constexpr = (D + WIDTH - 1) // WIDTH
    col0 = 0
    if CHUNKS > 1:
        col0 = tile % CHUNKS * WIDTH
        tile = tile // CHUNKS
    if ORDER == "heaviest":
        block = blocks - 1 - tile // (B * H)
        pair = tile % (B * H)
    else:
        block = tile % blocks
        pair = tile // blocks
        if ORDER == "reversed":
            block = blocks - 1 - block
    return pair // H, pair % H, block, col0


@triton.jit
def _tile(
    tile, q, k, v, out, B, S, scale, H: tl.constexpr, HK: tl.constexpr, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDTH: tl.constexpr, LOADS: tl.constexpr,
    ORDER: tl.constexpr, CAUSAL: tl.constexpr, SPLIT: tl.constexpr, POLYNOMIAL: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Computes BLOCK_M rows of a head, or WIDTH columns of them where D is more."""
    BY_QUERIES: tl.constexpr = LOADS == "descriptors"
    batch, head, block, col0 = _place(tile, tl.cdiv(S, BLOCK_M), B, H, D, WIDTH, ORDER)
    kv = (tl.cast(head, tl.int64) * HK // H).to(tl.int32) if H != HK else head
    row0 = block * BLOCK_M
    query = 0
    if D <= WIDTH:
        query = load_tile(q, batch, row0, head, 0, S, H, D, BLOCK_M, WIDTH, BY_QUERIES, EVEN_M)
    acc = tl.zeros([BLOCK_M, WIDTH], tl.float32)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    # All rows see the keys up to the first row's, none sees those past the last row's.
    last = tl.cdiv(tl.minimum(S, row0 + BLOCK_M) if CAUSAL else S, BLOCK_N)
    MASKED: tl.constexpr = CAUSAL or not EVEN_N
    first = 0
    if SPLIT or not MASKED:
        first = (row0 + 1 if CAUSAL else S) // BLOCK_N
        acc, top, total = _attend(
            acc, top, total, query, q, k, v, batch, head, kv, row0, col0, 0, first, S, scale,
            H, HK, D, BLOCK_M, BLOCK_N, WIDTH, LOADS, CAUSAL, False, POLYNOMIAL, EVEN_M, EVEN_N,
            INTERPRET,
        )  # fmt: skip
    if MASKED:
        acc, top, total = _attend(
            acc, top, total, query, q, k, v, batch, head, kv, row0, col0, first, last, S, scale,
            H, HK, D, BLOCK_M, BLOCK_N, WIDTH, LOADS, CAUSAL, True, POLYNOMIAL, EVEN_M, EVEN_N,
            INTERPRET,
        )  # fmt: skip
    acc = acc * (1.0 / total)[:, None]
    store_tile(acc, out, batch, row0, head, col0, S, H, D, BLOCK_M, WIDTH, BY_QUERIES, EVEN_M)


@triton.jit
def attention(
    q, k, v, out, B, S, scale, H: tl.constexpr, HK: tl.constexpr, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDTH: tl.constexpr, LOADS: tl.constexpr,
    ORDER: tl.constexpr, PERSISTENT: tl.constexpr, CAUSAL: tl.constexpr, SPLIT: tl.constexpr,
    POLYNOMIAL: tl.constexpr, EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Writes softmax(Q K^T scale / log2(e)) V of every head.

    q and out are [B, S, H, D], k and v are [B, S, HK, D], all contiguous; query head h reads
    kv head h * HK // H. Programs are tiles of out, or stride over them.
    """
    q = describe(q, B, S, H, D, BLOCK_M, WIDTH, LOADS == "descriptors")
    k = describe(k, B, S, HK, D, BLOCK_N, WIDTH, LOADS != "pointers")
    v = describe(v, B, S, HK, D, BLOCK_N, WIDTH, LOADS != "pointers")
    out = describe(out, B, S, H, D, BLOCK_M, WIDTH, LOADS == "descriptors")
    if PERSISTENT:
        tiles = B * H * tl.cdiv(S, BLOCK_M) * tl.cdiv(D, WIDTH)
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
            _tile(
                tile, q, k, v, out, B, S, scale, H, HK, D, BLOCK_M, BLOCK_N, WIDTH, LOADS,
                ORDER, CAUSAL, SPLIT, POLYNOMIAL, EVEN_M, EVEN_N, INTERPRET,
            )  # fmt: skip
    else:
        _tile(
            tl.program_id(0), q, k, v, out, B, S, scale, H, HK, D, BLOCK_M, BLOCK_N, WIDTH, LOADS,
            ORDER, CAUSAL, SPLIT, POLYNOMIAL, EVEN_M, EVEN_N, INTERPRET,
        )  # fmt: skip


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns standard normal q[B, S, H, D], k and v[B, S, HK, D], and an output of NaN."""
    b, h, hk, s, d, _ = extents(workload)
    generator = torch.Generator(device=device).manual_seed(seed)
    known = {"device": device, "dtype": getattr(torch, workload.dtype)}
    tensors = {
        name: torch.randn(b, s, heads, d, generator=generator, **known)
        for name, heads in (("q", h), ("k", hk), ("v", hk))
    }
    return tensors | {"out": torch.full((b, s, h, d), float("nan"), **known)}


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return dict.fromkeys(("q", "k", "v", "out"), getattr(torch, workload.dtype))


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:
    """Returns attention in float64 on a CPU, in float32 elsewhere, head by head."""
    b, h, hk, s, d, causal = extents(workload)
    dtype = torch.float64 if inputs["q"].device.type == "cpu" else torch.float32
    out = torch.empty_like(inputs["out"], dtype=dtype)
    rows = max(1, _MOST_SCORES // s)
    at = torch.arange(s, device=out.device)
    for batch, head, start in itertools.product(range(b), range(h), range(0, s, rows)):
        kv, here = head * hk // h, slice(start, start + rows)
        key, value = (inputs[name][batch, :, kv].to(dtype) for name in ("k", "v"))
        scores = inputs["q"][batch, here, head].to(dtype) @ key.T / math.sqrt(d)
        if causal == CAUSAL:
            scores.masked_fill_(at > at[here, None], -math.inf)
        out[batch, here, head] = scores.softmax(-1) @ value
    return out


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:  # noqa: ARG001
    """Allocates where descriptors are made; torch aligns to 512 bytes, descriptors need 128."""
    return torch.empty(size, device="cuda", dtype=torch.int8)


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:
    """Returns the launch of one config on a GPU with `sms` multiprocessors.

    Parameters that a workload's space lacks take the value that they have there.
    """
    b, h, hk, s, d, causal = extents(workload)
    block_m, block_n, width = config["BLOCK_M"], config["BLOCK_N"], head_width(workload)
    schedule, loads = config.get("SCHEDULE", "natural"), config.get("LOADS", "pointers")
    persistent = schedule == "persistent"
    if persistent:
        schedule = "heaviest" if causal == CAUSAL else "natural"
    constexprs = {
        "H": h,
        "HK": hk,
        "D": d,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "WIDTH": width,
        "LOADS": loads,
        "ORDER": schedule,
        "PERSISTENT": persistent,
        "CAUSAL": causal == CAUSAL,
        "SPLIT": config.get("MASK", "split") == "split",
        "POLYNOMIAL": config.get("POLYNOMIAL", 0),
        "EVEN_M": s % block_m == 0,
        "EVEN_N": s % block_n == 0,
        "INTERPRET": triton.knobs.runtime.interpret,
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    if loads != "pointers" and getattr(inputs["q"], "is_cuda", False):
        triton.set_allocator(_scratch)  # descriptors made on the device live in global memory
    tiles = b * h * cdiv(s, block_m) * cdiv(d, width)
    programs = sms * max(8 // config["num_warps"], 1) if persistent else tiles
    tensors = (inputs[name] for name in ("q", "k", "v", "out"))
    args = (*tensors, b, s, _LOG2_E / math.sqrt(d))
    return Launch(attention, (min(tiles, programs),), args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor], workload: Workload
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's own attention on views of the same tensors, heads before tokens."""
    _, h, hk, _, _, causal = extents(workload)
    q, k, v = (inputs[name].transpose(1, 2) for name in ("q", "k", "v"))
    if h % hk:  # no whole groups: torch asks for a head of keys per query head
        own = torch.arange(h, device=q.device) * hk // h
        k, v = k[:, own], v[:, own]
    call = partial(
        torch.nn.functional.scaled_dot_product_attention, q, k, v,
        is_causal=causal == CAUSAL, enable_gqa=k.shape[1] != h,
    )  # fmt: skip
    return call, "torch scaled_dot_product_attention"
