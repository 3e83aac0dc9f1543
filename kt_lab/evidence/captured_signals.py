"""Windows that slide: a causal convolution, the largest of nine pixels, pixels between pixels.

Written as their users would, and captured as they stand; `kt_lab.evidence.captured` records them.
Imports torch and Triton.
"""

import torch
import triton
import triton.language as tl

from kt_lab.capture import capture
from kt_lab.space import Choice, Constraint, ParameterSpace, PowerOfTwo


@triton.jit
def causal_conv1d(
    x, w, out, T, C, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr, WAY: tl.constexpr,
    UNROLL: tl.constexpr, EVICTION: tl.constexpr
):  # fmt: skip
    """Four steps of each bfloat16 channel by four weights, none later than itself, then silu."""
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    t0 = tl.program_id(1) * BLOCK_T
    base = tl.program_id(2) * T
    if WAY == "tile":
        t = t0 + tl.arange(0, BLOCK_T)
        total = tl.zeros((BLOCK_T, BLOCK_C), tl.float32)
        for back in tl.static_range(4):
            s = t - back
            inside = (s[:, None] >= 0) & (s[:, None] < T) & (c[None, :] < C)
            old = tl.load(x + (base + s[:, None]) * C + c[None, :], inside, 0.0)
            weight = tl.load(w + (3 - back) * C + c, c < C, 0.0).to(tl.float32)
            total += old.to(tl.float32) * weight[None, :]
        y = total * tl.sigmoid(total)
        inside = (t[:, None] < T) & (c[None, :] < C)
        to = out + (base + t[:, None]) * C + c[None, :]
        tl.store(to, y.to(tl.bfloat16), inside, eviction_policy=EVICTION)
    else:
        w0 = tl.load(w + c, c < C, 0.0).to(tl.float32)
        w1 = tl.load(w + C + c, c < C, 0.0).to(tl.float32)
        w2 = tl.load(w + 2 * C + c, c < C, 0.0).to(tl.float32)
        w3 = tl.load(w + 3 * C + c, c < C, 0.0).to(tl.float32)
        x0 = tl.load(x + (base + t0 - 3) * C + c, (c < C) & (t0 >= 3), 0.0).to(tl.float32)
        x1 = tl.load(x + (base + t0 - 2) * C + c, (c < C) & (t0 >= 2), 0.0).to(tl.float32)
        x2 = tl.load(x + (base + t0 - 1) * C + c, (c < C) & (t0 >= 1), 0.0).to(tl.float32)
        for i in tl.range(0, BLOCK_T, 1, loop_unroll_factor=UNROLL):
            inside = (c < C) & (t0 + i < T)
            x3 = tl.load(x + (base + t0 + i) * C + c, inside, 0.0).to(tl.float32)
            total = x0 * w0 + x1 * w1 + x2 * w2 + x3 * w3
            y = (total * tl.sigmoid(total)).to(tl.bfloat16)
            tl.store(out + (base + t0 + i) * C + c, y, inside, eviction_policy=EVICTION)
            x0, x1, x2 = x1, x2, x3


def _conv1d_inputs(device, B, T, C):
    x = torch.randn(B, T, C, device=device, dtype=torch.bfloat16)
    w = torch.randn(4, C, device=device, dtype=torch.bfloat16)
    return {"x": x, "w": w, "out": torch.empty_like(x), "B": B, "T": T, "C": C}


def _conv1d_grid(meta):
    across = triton.cdiv(meta["C"], meta["BLOCK_C"])
    return (across, triton.cdiv(meta["T"], meta["BLOCK_T"]), meta["B"])


def _conv1d_reference(args):
    x, w = args["x"].float(), args["w"].float()
    y = torch.nn.functional.conv1d(
        torch.nn.functional.pad(x.transpose(1, 2), (3, 0)), w.T[:, None], groups=w.shape[1]
    )
    return torch.nn.functional.silu(y.transpose(1, 2)).to(torch.bfloat16)


conv1d = capture(
    causal_conv1d,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_T", 1, 128),
            PowerOfTwo("BLOCK_C", 32, 1024),
            Choice("WAY", ("tile", "walk")),
            Choice("UNROLL", (1, 2, 4, 8)),
            Choice("EVICTION", ("", "evict_first")),
            PowerOfTwo("num_warps", 1, 8),
        ],
        constraints=[
            Constraint(
                "most",
                "WAY == 'walk' or BLOCK_T * BLOCK_C <= 64 * 32 * num_warps",
                "a tile must fit registers",
            ),
            Constraint(
                "work",
                "BLOCK_C * (BLOCK_T if WAY == 'tile' else 1) >= 32 * num_warps",
                "a thread needs work",
            ),
            Constraint("steps", "WAY == 'tile' or BLOCK_T >= 8", "a walk needs steps"),
            Constraint("once", "WAY == 'walk' or UNROLL == 1", "only a walk unrolls"),
        ],
        default={
            "BLOCK_T": 16,
            "BLOCK_C": 128,
            "WAY": "tile",
            "UNROLL": 1,
            "EVICTION": "",
            "num_warps": 4,
        },
    ),
    inputs=_conv1d_inputs,
    grid=_conv1d_grid,
    reference=_conv1d_reference,
    output="out",
    extents=[{"B": 4, "T": 4096, "C": 4096}],
    rtol=2e-2,
    atol=2e-2,
    flops=12 * 4 * 4096 * 4096,
)


@triton.jit
def max_pool2d(
    x, out, PLANES, H, W, P, Q, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr, DEEP: tl.constexpr,
    ROW_FIRST: tl.constexpr, EVICTION: tl.constexpr
):  # fmt: skip
    """The largest of 3 x 3 pixels of float16 planes, every second of them."""
    across = tl.cdiv(Q, BLOCK_X)
    by, bx = tl.program_id(0) // across, tl.program_id(0) % across
    y = by * BLOCK_Y + tl.arange(0, BLOCK_Y)
    z = bx * BLOCK_X + tl.arange(0, BLOCK_X)
    for i in range(DEEP):
        plane = tl.program_id(1) * DEEP + i
        most = tl.full((BLOCK_Y, BLOCK_X), -float("inf"), tl.float16)
        for step in tl.static_range(9):
            dy = step // 3 if ROW_FIRST else step % 3
            dx = step % 3 if ROW_FIRST else step // 3
            r, c = 2 * y[:, None] + dy - 1, 2 * z[None, :] + dx - 1
            inside = (r >= 0) & (r < H) & (c >= 0) & (c < W) & (plane < PLANES)
            seen = tl.load(x + (plane * H + r) * W + c, inside, -float("inf"))
            most = tl.maximum(most, seen)
        inside = (y[:, None] < P) & (z[None, :] < Q) & (plane < PLANES)
        to = out + (plane * P + y[:, None]) * Q + z[None, :]
        tl.store(to, most, inside, eviction_policy=EVICTION)


def _pool_inputs(device, N, C, H, W):
    x = torch.randn(N, C, H, W, device=device, dtype=torch.float16)
    p, q = (H - 1) // 2 + 1, (W - 1) // 2 + 1
    out = torch.empty(N, C, p, q, device=device, dtype=torch.float16)
    return {"x": x, "out": out, "PLANES": N * C, "H": H, "W": W, "P": p, "Q": q, "N": N, "C": C}


def _pool_grid(meta):
    tiles = triton.cdiv(meta["P"], meta["BLOCK_Y"]) * triton.cdiv(meta["Q"], meta["BLOCK_X"])
    return (tiles, triton.cdiv(meta["PLANES"], meta["DEEP"]))


def _pool_reference(args):
    return torch.nn.functional.max_pool2d(args["x"].float(), 3, 2, 1).to(torch.float16)


pool = capture(
    max_pool2d,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_Y", 1, 64),
            PowerOfTwo("BLOCK_X", 16, 128),
            Choice("DEEP", (1, 2, 4, 8)),
            Choice("ROW_FIRST", (False, True)),
            Choice("EVICTION", ("", "evict_first")),
            PowerOfTwo("num_warps", 1, 8),
        ],
        constraints=[
            Constraint(
                "most",
                "BLOCK_Y * BLOCK_X <= 32 * 32 * num_warps",
                "a tile must fit registers",
            ),
            Constraint("work", "BLOCK_Y * BLOCK_X >= 32 * num_warps", "a thread needs work"),
        ],
        default={
            "BLOCK_Y": 8,
            "BLOCK_X": 64,
            "DEEP": 1,
            "ROW_FIRST": True,
            "EVICTION": "",
            "num_warps": 4,
        },
    ),
    inputs=_pool_inputs,
    grid=_pool_grid,
    reference=_pool_reference,
    output="out",
    extents=[{"N": 64, "C": 64, "H": 112, "W": 112}],
    rtol=0,
    atol=0,
    flops=9 * 64 * 64 * 56 * 56,
)


@triton.jit
def upsample_bilinear(
    x, out, N, H, W, C, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, STEPS: tl.constexpr,
    FIRST: tl.constexpr, CACHE: tl.constexpr
):  # fmt: skip
    """Twice as many rows and columns of float16 pixels, each between its four neighbours."""
    pixels, parts = N * 4 * H * W, tl.cdiv(C, BLOCK_C)
    pid = tl.program_id(0)
    groups = tl.cdiv(pixels, BLOCK_P * STEPS)
    if FIRST == "channels":
        group, part = pid // parts, pid % parts
    else:
        group, part = pid % groups, pid // groups
    c = part * BLOCK_C + tl.arange(0, BLOCK_C)
    for step in range(STEPS):
        p = (group * STEPS + step) * BLOCK_P + tl.arange(0, BLOCK_P)
        n, rest = p // (4 * H * W), p % (4 * H * W)
        v = tl.maximum((rest // (2 * W)).to(tl.float32) * 0.5 - 0.25, 0.0)
        u = tl.maximum((rest % (2 * W)).to(tl.float32) * 0.5 - 0.25, 0.0)
        top, left = v.to(tl.int32), u.to(tl.int32)
        below, right = tl.minimum(top + 1, H - 1), tl.minimum(left + 1, W - 1)
        v, u = (v - top)[:, None], (u - left)[:, None]
        inside = (p[:, None] < pixels) & (c[None, :] < C)
        upper = x + ((n * H + top) * W)[:, None] * C + c[None, :]
        lower = x + ((n * H + below) * W)[:, None] * C + c[None, :]
        left, right = left[:, None] * C, right[:, None] * C
        a = tl.load(upper + left, inside, 0.0, eviction_policy=CACHE)
        b = tl.load(upper + right, inside, 0.0, eviction_policy=CACHE)
        d = tl.load(lower + left, inside, 0.0, eviction_policy=CACHE)
        e = tl.load(lower + right, inside, 0.0, eviction_policy=CACHE)
        y = (1.0 - v) * ((1.0 - u) * a + u * b) + v * ((1.0 - u) * d + u * e)
        tl.store(out + p[:, None] * C + c[None, :], y.to(tl.float16), inside)


def _upsample_inputs(device, N, H, W, C):
    x = torch.randn(N, H, W, C, device=device, dtype=torch.float16)
    out = torch.empty(N, 2 * H, 2 * W, C, device=device, dtype=torch.float16)
    return {"x": x, "out": out, "N": N, "H": H, "W": W, "C": C}


def _upsample_grid(meta):
    pixels = meta["N"] * 4 * meta["H"] * meta["W"]
    parts = triton.cdiv(meta["C"], meta["BLOCK_C"])
    return (triton.cdiv(pixels, meta["BLOCK_P"] * meta["STEPS"]) * parts,)


def _upsample_reference(args):
    x = args["x"].permute(0, 3, 1, 2).float()
    y = torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear")
    return y.permute(0, 2, 3, 1).to(torch.float16)


upsample = capture(
    upsample_bilinear,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_P", 1, 128),
            PowerOfTwo("BLOCK_C", 16, 128),
            Choice("STEPS", (1, 2, 4)),
            Choice("FIRST", ("channels", "pixels")),
            Choice("CACHE", ("", "evict_last")),
            PowerOfTwo("num_warps", 1, 8),
        ],
        constraints=[
            Constraint(
                "most",
                "BLOCK_P * BLOCK_C <= 32 * 32 * num_warps",
                "a tile must fit registers",
            ),
            Constraint("work", "BLOCK_P * BLOCK_C >= 32 * num_warps", "a thread needs work"),
        ],
        default={
            "BLOCK_P": 16,
            "BLOCK_C": 64,
            "STEPS": 1,
            "FIRST": "channels",
            "CACHE": "",
            "num_warps": 4,
        },
    ),
    inputs=_upsample_inputs,
    grid=_upsample_grid,
    reference=_upsample_reference,
    output="out",
    extents=[{"N": 8, "H": 64, "W": 64, "C": 128}],
    rtol=1e-2,
    atol=1e-2,
    flops=12 * 8 * 4 * 64 * 64 * 128,
)


KERNELS = (conv1d, pool, upsample)
