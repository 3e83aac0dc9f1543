"""Products with more to them: a convolution, and a linear layer with its epilogue.

Written as their users would, and captured as they stand; `kt_lab.evidence.captured` records them.
Imports torch and Triton.
"""

import torch
import triton
import triton.language as tl

from kt_lab.capture import capture
from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo


@triton.jit
def conv2d(
    x, w, out, N, H, W, C, K, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_C: tl.constexpr,
    FIRST: tl.constexpr, FUSE: tl.constexpr
):  # fmt: skip
    """3x3 convolution of NHWC float16 as an implicit product, stride 1, padding 1."""
    pixels, channels = tl.cdiv(N * H * W, BLOCK_P), tl.cdiv(K, BLOCK_K)
    pid = tl.program_id(0)
    if FIRST == "pixels":
        at, ch = pid % pixels, pid // pixels
    else:
        at, ch = pid // channels, pid % channels
    p = at * BLOCK_P + tl.arange(0, BLOCK_P)
    ko = ch * BLOCK_K + tl.arange(0, BLOCK_K)
    n, y, z = p // (H * W), (p // W) % H, p % W
    total = tl.zeros((BLOCK_P, BLOCK_K), tl.float32)
    c = tl.arange(0, BLOCK_C)
    if FUSE:
        steps = tl.cdiv(C, BLOCK_C)
        for i in range(9 * steps):
            tap, cc = i // steps, (i % steps) * BLOCK_C + c
            dy, dx = tap // 3 - 1, tap % 3 - 1
            yy, xx = y + dy, z + dx
            inside = (yy >= 0) & (yy < H) & (xx >= 0) & (xx < W) & (n < N)
            at_x = x + ((n * H + yy) * W + xx)[:, None] * C + cc[None, :]
            left = tl.load(at_x, inside[:, None] & (cc[None, :] < C), 0.0)
            at_w = w + (tap * C + cc)[:, None] * K + ko[None, :]
            right = tl.load(at_w, (cc[:, None] < C) & (ko[None, :] < K), 0.0)
            total = tl.dot(left, right, total)
    else:
        for tap in range(9):
            dy, dx = tap // 3 - 1, tap % 3 - 1
            yy, xx = y + dy, z + dx
            inside = (yy >= 0) & (yy < H) & (xx >= 0) & (xx < W) & (n < N)
            for c0 in range(0, C, BLOCK_C):
                cc = c0 + c
                at_x = x + ((n * H + yy) * W + xx)[:, None] * C + cc[None, :]
                left = tl.load(at_x, inside[:, None] & (cc[None, :] < C), 0.0)
                at_w = w + (tap * C + cc)[:, None] * K + ko[None, :]
                right = tl.load(at_w, (cc[:, None] < C) & (ko[None, :] < K), 0.0)
                total = tl.dot(left, right, total)
    tl.store(
        out + p[:, None] * K + ko[None, :],
        total.to(tl.float16),
        (p[:, None] < N * H * W) & (ko[None, :] < K),
    )


def _conv_inputs(device, N, H, W, C, K):
    x = torch.randn(N, H, W, C, device=device, dtype=torch.float16)
    w = torch.randn(9, C, K, device=device, dtype=torch.float16) / (9 * C) ** 0.5
    return {
        "x": x,
        "w": w,
        "out": torch.empty(N, H, W, K, device=device, dtype=torch.float16),
        "N": N,
        "H": H,
        "W": W,
        "C": C,
        "K": K,
    }


def _conv_grid(meta):
    return (
        triton.cdiv(meta["N"] * meta["H"] * meta["W"], meta["BLOCK_P"])
        * triton.cdiv(meta["K"], meta["BLOCK_K"]),
    )


def _conv_reference(args):
    c, k = args["w"].shape[1:]
    weight = args["w"].reshape(3, 3, c, k).permute(3, 2, 0, 1)
    y = torch.nn.functional.conv2d(
        args["x"].permute(0, 3, 1, 2).float(), weight.float(), padding=1
    )
    return y.permute(0, 2, 3, 1).to(torch.float16)


conv = capture(
    conv2d,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_P", 32, 256),
            PowerOfTwo("BLOCK_K", 32, 256),
            PowerOfTwo("BLOCK_C", 16, 64),
            Choice("FIRST", ("pixels", "channels")),
            Choice("FUSE", (False, True)),
            PowerOfTwo("num_warps", 2, 8),
            Integer("num_stages", 2, 5),
        ],
        constraints=[
            Constraint(
                "fits",
                "num_stages * (BLOCK_P + BLOCK_K) * BLOCK_C * 2 <= 227 * 1024",
                "stages must fit shared memory",
            ),
            Constraint(
                "tile",
                "BLOCK_P * BLOCK_K <= 128 * 64 * num_warps",
                "a tile must fit registers",
            ),
            Constraint("work", "BLOCK_P * BLOCK_K >= 512 * num_warps", "a warp needs work"),
        ],
        default={
            "BLOCK_P": 128,
            "BLOCK_K": 64,
            "BLOCK_C": 32,
            "FIRST": "pixels",
            "FUSE": True,
            "num_warps": 4,
            "num_stages": 3,
        },
    ),
    inputs=_conv_inputs,
    grid=_conv_grid,
    reference=_conv_reference,
    output="out",
    extents=[{"N": 16, "H": 56, "W": 56, "C": 64, "K": 128}],
    rtol=1e-2,
    atol=2e-2,
    flops=2 * 9 * 16 * 56 * 56 * 64 * 128,
)


@triton.jit
def gelu_linear(
    x, w, bias, out, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, ORDER: tl.constexpr, PERSISTENT: tl.constexpr, sms,  # noqa: ARG001
):  # fmt: skip
    """gelu(x @ w.T + bias) in bfloat16, by programs that may live for several tiles."""
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    step = tl.num_programs(0)
    for tile in range(tl.program_id(0), rows * columns, step):
        if ORDER == "grouped":
            first = tile // (GROUP_M * columns) * GROUP_M
            height = tl.minimum(rows - first, GROUP_M)
            row = first + (tile % (GROUP_M * columns)) % height
            column = (tile % (GROUP_M * columns)) // height
        else:
            row, column = tile // columns, tile % columns
        m = row * BLOCK_M + tl.arange(0, BLOCK_M)
        n = column * BLOCK_N + tl.arange(0, BLOCK_N)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k0 in range(0, K, BLOCK_K):
            k = k0 + tl.arange(0, BLOCK_K)
            left = tl.load(x + m[:, None] * K + k[None, :], m[:, None] < M, 0.0)
            right = tl.load(w + n[None, :] * K + k[:, None], n[None, :] < N, 0.0)
            total = tl.dot(left, right, total)
        total += tl.load(bias + n, n < N, 0.0).to(tl.float32)[None, :]
        total = total * 0.5 * (1.0 + tl.erf(total * 0.7071067811865476))
        tl.store(
            out + m[:, None] * N + n[None, :],
            total.to(tl.bfloat16),
            (m[:, None] < M) & (n[None, :] < N),
        )


def _gelu_inputs(device, M, N, K):
    x = torch.randn(M, K, device=device, dtype=torch.bfloat16)
    w = torch.randn(N, K, device=device, dtype=torch.bfloat16) / K**0.5
    b = torch.randn(N, device=device, dtype=torch.bfloat16)
    return {
        "x": x,
        "w": w,
        "bias": b,
        "out": torch.empty(M, N, device=device, dtype=torch.bfloat16),
        "M": M,
        "N": N,
        "K": K,
    }


def _gelu_grid(meta):
    tiles = triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"])
    return (min(tiles, meta["sms"]) if meta["PERSISTENT"] else tiles,)


def _gelu_reference(args):
    y = args["x"].float() @ args["w"].float().T + args["bias"].float()
    return torch.nn.functional.gelu(y).to(torch.bfloat16)


gelu = capture(
    gelu_linear,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_M", 64, 256),
            PowerOfTwo("BLOCK_N", 64, 256),
            PowerOfTwo("BLOCK_K", 32, 128),
            Choice("GROUP_M", (2, 8)),
            Choice("ORDER", ("plain", "grouped")),
            Choice("PERSISTENT", (False, True)),
            PowerOfTwo("num_warps", 4, 8),
            Integer("num_stages", 2, 4),
        ],
        constraints=[
            Constraint(
                "fits",
                "num_stages * (BLOCK_M + BLOCK_N) * BLOCK_K * 2 <= 227 * 1024",
                "stages must fit shared memory",
            ),
            Constraint(
                "tile",
                "BLOCK_M * BLOCK_N <= 64 * 128 * num_warps",
                "a tile must fit registers",
            ),
            Constraint("group", "ORDER == 'grouped' or GROUP_M == 2", "plain order has no groups"),
        ],
        default={
            "BLOCK_M": 128,
            "BLOCK_N": 128,
            "BLOCK_K": 64,
            "GROUP_M": 8,
            "ORDER": "grouped",
            "PERSISTENT": False,
            "num_warps": 8,
            "num_stages": 3,
        },
    ),
    inputs=_gelu_inputs,
    grid=_gelu_grid,
    reference=_gelu_reference,
    output="out",
    constexprs={"sms": 132},
    extents=[{"M": 2048, "N": 4096, "K": 1024}],
    rtol=1e-2,
    atol=3e-2,
    flops=2 * 2048 * 4096 * 1024,
)


KERNELS = (conv, gelu)
