"""Attention otherwise: one token to a long cache, and without softmax by chunks.

Written as their users would, and captured as they stand; `kt_lab.evidence.captured` records them.
Imports torch and Triton.
"""

import torch
import triton
import triton.language as tl

from kt_lab.capture import capture
from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo


@triton.jit
def decode_attention(
    q, k, v, out, G, T, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_G: tl.constexpr,
    PREFETCH: tl.constexpr, CACHE: tl.constexpr, UNROLL: tl.constexpr
):  # fmt: skip
    """One token's attention over a cache of T keys, G query heads to a key head."""
    head = tl.program_id(0)
    g = tl.arange(0, BLOCK_G)
    d = tl.arange(0, D)
    query = tl.load(q + (head * G + g[:, None]) * D + d[None, :], g[:, None] < G, 0.0)
    top = tl.full((BLOCK_G,), -float("inf"), tl.float32)
    weight = tl.zeros((BLOCK_G,), tl.float32)
    total = tl.zeros((BLOCK_G, D), tl.float32)
    for t0 in tl.range(0, T, BLOCK_T, loop_unroll_factor=UNROLL):
        t = t0 + tl.arange(0, BLOCK_T)
        keys = tl.load(
            k + (head * T + t[None, :]) * D + d[:, None],
            t[None, :] < T,
            0.0,
            eviction_policy=CACHE,
        )
        if PREFETCH:
            values = tl.load(
                v + (head * T + t[:, None]) * D + d[None, :],
                t[:, None] < T,
                0.0,
                eviction_policy=CACHE,
            )
        score = tl.dot(query, keys) * (1.4426950408889634 / (D**0.5))
        score = tl.where(t[None, :] < T, score, -float("inf"))
        now = tl.maximum(top, tl.max(score, 1))
        share = tl.exp2(score - now[:, None])
        decay = tl.exp2(top - now)
        weight = weight * decay + tl.sum(share, 1)
        if not PREFETCH:
            values = tl.load(
                v + (head * T + t[:, None]) * D + d[None, :],
                t[:, None] < T,
                0.0,
                eviction_policy=CACHE,
            )
        total = tl.dot(share.to(tl.float16), values, total * decay[:, None])
        top = now
    tl.store(
        out + (head * G + g[:, None]) * D + d[None, :],
        (total / weight[:, None]).to(tl.float16),
        g[:, None] < G,
    )


def _decode_inputs(device, B, H, G, T, D):
    def make(*shape):
        return torch.randn(*shape, device=device, dtype=torch.float16)

    return {
        "q": make(B * H, G, D),
        "k": make(B * H, T, D),
        "v": make(B * H, T, D),
        "out": make(B * H, G, D),
        "B": B,
        "H": H,
        "G": G,
        "T": T,
        "D": D,
    }


def _decode_grid(meta):
    return (meta["B"] * meta["H"],)


def _decode_reference(args):
    q, k, v = (args[name].float() for name in "qkv")
    p = torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, -1)
    return (p @ v).to(torch.float16)


decode = capture(
    decode_attention,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_T", 16, 256),
            PowerOfTwo("BLOCK_G", 16, 32),
            Choice("PREFETCH", (False, True)),
            Choice("CACHE", ("", "evict_first")),
            Integer("UNROLL", 1, 2),
            PowerOfTwo("num_warps", 1, 8),
            Integer("num_stages", 1, 4),
        ],
        constraints=[
            Constraint(
                "fits",
                "num_stages * BLOCK_T * 128 * 2 * 2 <= 227 * 1024 * 2",
                "stages must fit shared memory",
            )
        ],
        default={
            "BLOCK_T": 64,
            "BLOCK_G": 16,
            "PREFETCH": False,
            "CACHE": "",
            "UNROLL": 1,
            "num_warps": 4,
            "num_stages": 2,
        },
    ),
    inputs=_decode_inputs,
    grid=_decode_grid,
    reference=_decode_reference,
    output="out",
    extents=[{"B": 32, "H": 8, "G": 4, "T": 2048, "D": 128}],
    rtol=1e-2,
    atol=1e-2,
    flops=4 * 32 * 8 * 4 * 2048 * 128,
)


@triton.jit
def linear_attention(
    q, k, v, out, L, D: tl.constexpr, E, CHUNK: tl.constexpr, BLOCK_E: tl.constexpr,
    FIRST: tl.constexpr, KEEP: tl.constexpr
):  # fmt: skip
    """Causal attention without softmax, a chunk at a time, the state in registers."""
    head = tl.program_id(1)
    d = tl.arange(0, D)
    e = tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)
    state = tl.zeros((D, BLOCK_E), tl.float32)
    c = tl.arange(0, CHUNK)
    for t0 in range(0, L, CHUNK):
        t = t0 + c
        qs = tl.load(q + (head * L + t[:, None]) * D + d[None, :], t[:, None] < L, 0.0)
        ks = tl.load(k + (head * L + t[None, :]) * D + d[:, None], t[None, :] < L, 0.0)
        vs = tl.load(v + (head * L + t[:, None]) * E + e[None, :], t[:, None] < L, 0.0)
        score = tl.where(c[:, None] >= c[None, :], tl.dot(qs, ks), 0.0).to(tl.bfloat16)
        if FIRST == "state":
            y = tl.dot(qs, state.to(tl.bfloat16))
            y = tl.dot(score, vs, y)
        else:
            y = tl.dot(score, vs)
            y = tl.dot(qs, state.to(tl.bfloat16), y)
        if KEEP:
            state = tl.dot(ks, vs, state)
        else:
            state += tl.dot(ks, vs)
        tl.store(out + (head * L + t[:, None]) * E + e[None, :], y.to(tl.bfloat16), t[:, None] < L)


def _linear_inputs(device, B, L, D, E):
    def make(*shape):
        return torch.randn(*shape, device=device, dtype=torch.bfloat16)

    return {
        "q": make(B, L, D) / D,
        "k": make(B, L, D) / 8,
        "v": make(B, L, E) / 8,
        "out": make(B, L, E),
        "B": B,
        "L": L,
        "D": D,
        "E": E,
    }


def _linear_grid(meta):
    return (meta["E"] // meta["BLOCK_E"], meta["B"])


def _linear_reference(args):
    q, k, v = (args[name].float() for name in "qkv")
    return (torch.tril(q @ k.transpose(1, 2)) @ v).to(torch.bfloat16)


linear = capture(
    linear_attention,
    space=ParameterSpace(
        [
            PowerOfTwo("CHUNK", 16, 256),
            PowerOfTwo("BLOCK_E", 16, 128),
            Choice("FIRST", ("state", "chunk")),
            Choice("KEEP", (False, True)),
            PowerOfTwo("num_warps", 1, 8),
            Integer("num_stages", 1, 4),
        ],
        constraints=[
            Constraint(
                "most",
                "CHUNK * CHUNK <= 128 * 32 * num_warps",
                "a tile must fit registers",
            )
        ],
        default={
            "CHUNK": 64,
            "BLOCK_E": 64,
            "FIRST": "state",
            "KEEP": False,
            "num_warps": 4,
            "num_stages": 2,
        },
    ),
    inputs=_linear_inputs,
    grid=_linear_grid,
    reference=_linear_reference,
    output="out",
    extents=[{"B": 64, "L": 2048, "D": 64, "E": 128}],
    rtol=3e-2,
    atol=3e-2,
    flops=64 * 2048 * (2 * 64 * 64 + 4 * 64 * 128),
)


KERNELS = (decode, linear)
