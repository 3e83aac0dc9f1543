"""Products whose sum is shared by programs: of float16 matrices, of 8-bit weights.

Written as their users would, and captured as they stand; `kt_lab.evidence.captured` records them.
Imports torch and Triton.
"""

import torch
import triton
import triton.language as tl

from kt_lab.capture import capture
from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo


@triton.jit
def splitk_matmul(
    a, b, out, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, SPLIT_K: tl.constexpr
):  # fmt: skip
    """Multiplies float16 matrices; programs share the sum over k and add it atomically."""
    pid, part = tl.program_id(0), tl.program_id(1)
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * columns)
    first = group * GROUP_M
    height = tl.minimum(rows - first, GROUP_M)
    row = first + (pid % (GROUP_M * columns)) % height
    column = (pid % (GROUP_M * columns)) // height
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    k = part * BLOCK_K + tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(tl.cdiv(K, BLOCK_K * SPLIT_K)):
        left = tl.load(a + m[:, None] * K + k[None, :], (m[:, None] < M) & (k[None, :] < K), 0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], (k[:, None] < K) & (n[None, :] < N), 0.0)
        total = tl.dot(left, right, total)
        k += BLOCK_K * SPLIT_K
    inside = (m[:, None] < M) & (n[None, :] < N)
    if SPLIT_K == 1:
        tl.store(out + m[:, None] * N + n[None, :], total, inside)
    else:
        tl.atomic_add(out + m[:, None] * N + n[None, :], total, inside, sem="relaxed")


def _splitk_inputs(device, M, N, K):
    a = torch.randn(M, K, device=device, dtype=torch.float16)
    b = torch.randn(K, N, device=device, dtype=torch.float16)
    return {"a": a, "b": b, "out": torch.zeros(M, N, device=device), "M": M, "N": N, "K": K}


def _splitk_grid(meta):
    tiles = triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"])
    return (tiles, meta["SPLIT_K"])


def _splitk_reference(args):
    return args["a"].float() @ args["b"].float()


splitk = capture(
    splitk_matmul,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_M", 16, 128),
            PowerOfTwo("BLOCK_N", 32, 256),
            PowerOfTwo("BLOCK_K", 32, 128),
            PowerOfTwo("SPLIT_K", 1, 16),
            PowerOfTwo("num_warps", 2, 8),
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
            Constraint("work", "BLOCK_M * BLOCK_N >= 512 * num_warps", "a warp needs work"),
        ],
        default={
            "BLOCK_M": 64,
            "BLOCK_N": 128,
            "BLOCK_K": 64,
            "SPLIT_K": 1,
            "num_warps": 4,
            "num_stages": 3,
        },
    ),
    inputs=_splitk_inputs,
    grid=_splitk_grid,
    reference=_splitk_reference,
    output="out",
    restore="out",
    constexprs={"GROUP_M": 4},
    extents=[{"M": 128, "N": 512, "K": 16384}],
    rtol=1e-2,
    atol=0.5,
    flops=2 * 128 * 512 * 16384,
)


@triton.jit
def w8_gemv(
    x, w, scale, out, N, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    CACHE: tl.constexpr, UNROLL: tl.constexpr
):  # fmt: skip
    """One row of float16 by int8 weights with a scale a row, in shares of k."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    share = tl.cdiv(tl.cdiv(K, SPLIT_K), BLOCK_K) * BLOCK_K
    begin = tl.program_id(1) * share
    total = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    for k0 in tl.range(begin, begin + share, BLOCK_K, loop_unroll_factor=UNROLL):
        k = k0 + tl.arange(0, BLOCK_K)
        q = tl.load(
            w + n[:, None] * K + k[None, :],
            (n[:, None] < N) & (k[None, :] < K),
            0,
            eviction_policy=CACHE,
        )
        v = tl.load(x + k, k < K, 0.0).to(tl.float32)
        total += q.to(tl.float32) * v[None, :]
    y = tl.sum(total, 1) * tl.load(scale + n, n < N, 0.0)
    if SPLIT_K == 1:
        tl.store(out + n, y, n < N)
    else:
        tl.atomic_add(out + n, y, n < N, sem="relaxed")


def _gemv_inputs(device, N, K):
    w = torch.randint(-127, 128, (N, K), device=device, dtype=torch.int8)
    return {
        "x": torch.randn(K, device=device, dtype=torch.float16),
        "w": w,
        "scale": torch.rand(N, device=device) / 127,
        "out": torch.zeros(N, device=device),
        "N": N,
        "K": K,
    }


def _gemv_grid(meta):
    return (triton.cdiv(meta["N"], meta["BLOCK_N"]), meta["SPLIT_K"])


def _gemv_reference(args):
    return (args["w"].float() @ args["x"].float()) * args["scale"]


gemv = capture(
    w8_gemv,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_N", 1, 32),
            PowerOfTwo("BLOCK_K", 128, 4096),
            PowerOfTwo("SPLIT_K", 1, 8),
            Choice("CACHE", ("", "evict_first")),
            Choice("UNROLL", (1, 2, 4)),
            PowerOfTwo("num_warps", 1, 8),
        ],
        constraints=[
            Constraint(
                "tile",
                "BLOCK_N * BLOCK_K <= 64 * 32 * num_warps",
                "a tile must fit registers",
            ),
            Constraint(
                "work",
                "BLOCK_N * BLOCK_K >= 8 * 32 * num_warps",
                "a thread needs work",
            ),
            Constraint("share", "SPLIT_K * BLOCK_K * UNROLL <= 8192", "a share needs a step"),
        ],
        default={
            "BLOCK_N": 4,
            "BLOCK_K": 1024,
            "SPLIT_K": 1,
            "CACHE": "",
            "UNROLL": 1,
            "num_warps": 4,
        },
    ),
    inputs=_gemv_inputs,
    grid=_gemv_grid,
    reference=_gemv_reference,
    output="out",
    restore="out",
    extents=[{"N": 8192, "K": 8192}],
    rtol=1e-2,
    atol=1e-1,
    flops=2 * 8192 * 8192,
)


KERNELS = (splitk, gemv)
