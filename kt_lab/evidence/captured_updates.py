"""A number at a time: a step of AdamW, weights out of 4 bits, the pull of all bodies on each.

Written as their users would, and captured as they stand; `kt_lab.evidence.captured` records them.
Imports torch and Triton.
"""

import torch
import triton
import triton.language as tl

from kt_lab.capture import capture
from kt_lab.space import Choice, Constraint, ParameterSpace, PowerOfTwo


@triton.jit
def adamw_step(
    p, g, m, v, SIZE, BLOCK: tl.constexpr, NEAR: tl.constexpr, STREAM: tl.constexpr,
    ROOT: tl.constexpr
):  # fmt: skip
    """One step of AdamW in place: float32 weights and moments, bfloat16 gradients."""
    pid = tl.program_id(0)
    share = tl.cdiv(tl.cdiv(SIZE, BLOCK), tl.num_programs(0))
    for i in range(share):
        block = pid * share + i if NEAR else i * tl.num_programs(0) + pid
        at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < SIZE
        grad = tl.load(g + at, inside, 0.0, eviction_policy=STREAM).to(tl.float32)
        weight = tl.load(p + at, inside, 0.0)
        first = 0.9 * tl.load(m + at, inside, 0.0) + 0.1 * grad
        second = 0.999 * tl.load(v + at, inside, 0.0) + 0.001 * grad * grad
        if ROOT == "sqrt":
            step = first / (tl.sqrt(second * 10.0) + 1e-8)
        else:
            step = first * tl.rsqrt(second * 10.0 + 1e-16)
        tl.store(p + at, weight * 0.9999 - 0.01 * step, inside, eviction_policy=STREAM)
        tl.store(m + at, first, inside, eviction_policy=STREAM)
        tl.store(v + at, second, inside, eviction_policy=STREAM)


def _adamw_inputs(device, SIZE):
    return {
        "p": torch.randn(SIZE, device=device),
        "g": torch.randn(SIZE, device=device, dtype=torch.bfloat16),
        "m": torch.randn(SIZE, device=device),
        "v": torch.rand(SIZE, device=device) + 0.1,
        "SIZE": SIZE,
    }


def _adamw_grid(meta):
    return (meta["PROGRAMS"] or triton.cdiv(meta["SIZE"], meta["BLOCK"]),)


def _adamw_reference(args):
    g = args["g"].float()
    m = 0.9 * args["m"] + 0.1 * g
    v = 0.999 * args["v"] + 0.001 * g * g
    return {"p": args["p"] * 0.9999 - 0.01 * m / ((v * 10).sqrt() + 1e-8), "m": m, "v": v}


adamw = capture(
    adamw_step,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK", 128, 8192),
            Choice("PROGRAMS", (0, 132, 264, 528, 1056)),
            Choice("NEAR", (False, True)),
            Choice("STREAM", ("", "evict_first")),
            Choice("ROOT", ("sqrt", "rsqrt")),
            PowerOfTwo("num_warps", 1, 16),
        ],
        constraints=[
            Constraint("most", "BLOCK <= 16 * 32 * num_warps", "a tile must fit registers"),
            Constraint("work", "BLOCK >= 32 * num_warps", "a thread needs work"),
            Constraint("one", "PROGRAMS > 0 or not NEAR", "one block has no neighbour"),
        ],
        default={
            "BLOCK": 1024,
            "PROGRAMS": 0,
            "NEAR": False,
            "STREAM": "",
            "ROOT": "sqrt",
            "num_warps": 4,
        },
    ),
    inputs=_adamw_inputs,
    grid=_adamw_grid,
    reference=_adamw_reference,
    output=["p", "m", "v"],
    extents=[{"SIZE": 2**24}],
    rtol=1e-4,
    atol=1e-4,
    bytes_moved=2**24 * (6 * 4 + 2),
    flops=16 * 2**24,
)


@triton.jit
def nf4_dequantise(
    packed, table, scales, out, SIZE, BLOCK: tl.constexpr, WAY: tl.constexpr, JOIN: tl.constexpr,
    STEPS: tl.constexpr, EVICTION: tl.constexpr
):  # fmt: skip
    """Two bfloat16 numbers out of each byte, by a table of 16 and a scale for every 64."""
    for step in range(STEPS):
        at = (tl.program_id(0) * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        inside = at < SIZE
        both = tl.load(packed + at, inside, 0).to(tl.int32)
        scale = tl.load(scales + at // 32, inside, 0.0)
        high, low = both >> 4, both & 15
        if WAY == "load":
            first, second = tl.load(table + high), tl.load(table + low)
        elif WAY == "gather":
            values = tl.load(table + tl.arange(0, 16))
            first, second = tl.gather(values, high, 0), tl.gather(values, low, 0)
        else:
            first = tl.zeros((BLOCK,), tl.float32)
            second = tl.zeros((BLOCK,), tl.float32)
            for i in tl.static_range(16):
                value = tl.load(table + i)
                first = tl.where(high == i, value, first)
                second = tl.where(low == i, value, second)
        first, second = (first * scale).to(tl.bfloat16), (second * scale).to(tl.bfloat16)
        if JOIN:
            pair = tl.reshape(tl.join(first, second), (2 * BLOCK,))
            to = (tl.program_id(0) * STEPS + step) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
            tl.store(out + to, pair, to < 2 * SIZE, eviction_policy=EVICTION)
        else:
            tl.store(out + 2 * at, first, inside, eviction_policy=EVICTION)
            tl.store(out + 2 * at + 1, second, inside, eviction_policy=EVICTION)


def _nf4_inputs(device, SIZE):
    return {
        "packed": torch.randint(0, 256, (SIZE,), device=device, dtype=torch.uint8),
        "table": torch.linspace(-1, 1, 16, device=device),
        "scales": torch.rand((SIZE + 31) // 32, device=device),
        "out": torch.empty(2 * SIZE, device=device, dtype=torch.bfloat16),
        "SIZE": SIZE,
    }


def _nf4_grid(meta):
    return (triton.cdiv(meta["SIZE"], meta["BLOCK"] * meta["STEPS"]),)


def _nf4_reference(args):
    packed = args["packed"].int()
    both = torch.stack([args["table"][packed >> 4], args["table"][packed & 15]], 1)
    scale = args["scales"].repeat_interleave(32)[: len(packed)]
    return (both * scale[:, None]).flatten().to(torch.bfloat16)


nf4 = capture(
    nf4_dequantise,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK", 128, 8192),
            Choice("WAY", ("load", "gather", "where")),
            Choice("JOIN", (False, True)),
            Choice("STEPS", (1, 2, 4, 8)),
            Choice("EVICTION", ("", "evict_first")),
            PowerOfTwo("num_warps", 1, 8),
        ],
        constraints=[
            Constraint("most", "BLOCK <= 64 * 32 * num_warps", "a tile must fit registers"),
            Constraint("work", "BLOCK >= 64 * num_warps", "a thread needs work"),
        ],
        default={
            "BLOCK": 1024,
            "WAY": "load",
            "JOIN": False,
            "STEPS": 1,
            "EVICTION": "",
            "num_warps": 4,
        },
    ),
    inputs=_nf4_inputs,
    grid=_nf4_grid,
    reference=_nf4_reference,
    output="out",
    extents=[{"SIZE": 2**25}],
    rtol=1e-2,
    atol=1e-3,
    flops=2 * 2**25,
)


@triton.jit
def all_pairs(
    x, y, z, mass, ax, ay, az, N, BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr,
    SPLIT: tl.constexpr, ROOT: tl.constexpr, LATE: tl.constexpr
):  # fmt: skip
    """The pull of all bodies on each, in float32; programs may share the bodies that pull."""
    i = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)
    xi, yi, zi = tl.load(x + i, i < N, 0.0), tl.load(y + i, i < N, 0.0), tl.load(z + i, i < N, 0.0)
    if LATE:
        fx = tl.zeros((BLOCK_I, BLOCK_J), tl.float32)
        fy, fz = fx, fx
    else:
        fx = tl.zeros((BLOCK_I,), tl.float32)
        fy, fz = fx, fx
    for j0 in range(tl.program_id(1) * BLOCK_J, N, BLOCK_J * SPLIT):
        j = j0 + tl.arange(0, BLOCK_J)
        dx = tl.load(x + j, j < N, 0.0)[None, :] - xi[:, None]
        dy = tl.load(y + j, j < N, 0.0)[None, :] - yi[:, None]
        dz = tl.load(z + j, j < N, 0.0)[None, :] - zi[:, None]
        square = dx * dx + dy * dy + dz * dz + 0.01
        near = tl.rsqrt(square) if ROOT == "rsqrt" else 1.0 / tl.sqrt(square)
        pull = tl.load(mass + j, j < N, 0.0)[None, :] * near * near * near
        if LATE:
            fx += pull * dx
            fy += pull * dy
            fz += pull * dz
        else:
            fx += tl.sum(pull * dx, 1)
            fy += tl.sum(pull * dy, 1)
            fz += tl.sum(pull * dz, 1)
    if LATE:
        fx, fy, fz = tl.sum(fx, 1), tl.sum(fy, 1), tl.sum(fz, 1)
    if SPLIT == 1:
        tl.store(ax + i, fx, i < N)
        tl.store(ay + i, fy, i < N)
        tl.store(az + i, fz, i < N)
    else:
        tl.atomic_add(ax + i, fx, i < N, sem="relaxed")
        tl.atomic_add(ay + i, fy, i < N, sem="relaxed")
        tl.atomic_add(az + i, fz, i < N, sem="relaxed")


def _pairs_inputs(device, N):
    where = {name: torch.randn(N, device=device) for name in "xyz"}
    force = {name: torch.zeros(N, device=device) for name in ("ax", "ay", "az")}
    return {**where, "mass": torch.rand(N, device=device) / N, **force, "N": N}


def _pairs_grid(meta):
    return (triton.cdiv(meta["N"], meta["BLOCK_I"]), meta["SPLIT"])


def _pairs_reference(args):
    at = torch.stack([args[name] for name in "xyz"], 1).double()
    mass, parts = args["mass"].double(), []
    for some in at.split(1024):
        away = at[None] - some[:, None]
        pull = mass / (away.square().sum(-1) + 0.01) ** 1.5
        parts.append((pull[..., None] * away).sum(1))
    return tuple(torch.cat(parts).float().unbind(1))


pairs = capture(
    all_pairs,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_I", 8, 256),
            PowerOfTwo("BLOCK_J", 8, 256),
            Choice("SPLIT", (1, 2, 4, 8)),
            Choice("ROOT", ("rsqrt", "sqrt")),
            Choice("LATE", (False, True)),
            PowerOfTwo("num_warps", 1, 8),
        ],
        constraints=[
            Constraint(
                "most",
                "BLOCK_I * BLOCK_J <= 32 * 32 * num_warps",
                "a tile must fit registers",
            ),
            Constraint("work", "BLOCK_I * BLOCK_J >= 64 * num_warps", "a thread needs work"),
        ],
        default={
            "BLOCK_I": 32,
            "BLOCK_J": 64,
            "SPLIT": 1,
            "ROOT": "sqrt",
            "LATE": False,
            "num_warps": 4,
        },
    ),
    inputs=_pairs_inputs,
    grid=_pairs_grid,
    reference=_pairs_reference,
    output=["ax", "ay", "az"],
    restore=["ax", "ay", "az"],
    extents=[{"N": 16384}],
    rtol=1e-3,
    atol=1e-4,
    flops=20 * 16384**2,
)


KERNELS = (adamw, nf4, pairs)
