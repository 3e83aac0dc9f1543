"""Products with structure: a matrix beside one of low rank, and one of which most is zero.

Written as their users would, and captured as they stand; `kt_lab.evidence.captured` records them.
Imports torch and Triton.
"""

import torch
import triton
import triton.language as tl

from kt_lab.capture import capture
from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo


@triton.jit
def lora_linear(
    x, w, a, b, out, M, N, K, R: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, WHEN: tl.constexpr
):  # fmt: skip
    """A float16 product beside one of low rank: x @ w + (x @ a) @ b."""
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = pid // (GROUP_M * columns) * GROUP_M
    height = tl.minimum(rows - first, GROUP_M)
    row = first + (pid % (GROUP_M * columns)) % height
    column = (pid % (GROUP_M * columns)) // height
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    r = tl.arange(0, R)
    low = tl.zeros((BLOCK_M, R), tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        left = tl.load(x + m[:, None] * K + k[None, :], (m[:, None] < M) & (k[None, :] < K), 0.0)
        right = tl.load(w + k[:, None] * N + n[None, :], (k[:, None] < K) & (n[None, :] < N), 0.0)
        total = tl.dot(left, right, total)
        if WHEN == "along":
            down = tl.load(a + k[:, None] * R + r[None, :], k[:, None] < K, 0.0)
            low = tl.dot(left, down, low)
    if WHEN == "after":
        for k0 in range(0, K, BLOCK_K):
            k = k0 + tl.arange(0, BLOCK_K)
            left = tl.load(
                x + m[:, None] * K + k[None, :], (m[:, None] < M) & (k[None, :] < K), 0.0
            )
            down = tl.load(a + k[:, None] * R + r[None, :], k[:, None] < K, 0.0)
            low = tl.dot(left, down, low)
    up = tl.load(b + r[:, None] * N + n[None, :], n[None, :] < N, 0.0)
    total = tl.dot(low.to(tl.float16), up, total)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(out + m[:, None] * N + n[None, :], total.to(tl.float16), inside)


def _lora_inputs(device, M, N, K, R):
    def make(*shape):
        return torch.randn(*shape, device=device, dtype=torch.float16)

    return {
        "x": make(M, K),
        "w": make(K, N) / K**0.5,
        "a": make(K, R) / K**0.5,
        "b": make(R, N) / R**0.5,
        "out": make(M, N),
        "M": M,
        "N": N,
        "K": K,
        "R": R,
    }


def _lora_grid(meta):
    return (triton.cdiv(meta["M"], meta["BLOCK_M"]) * triton.cdiv(meta["N"], meta["BLOCK_N"]),)


def _lora_reference(args):
    x, w, a, b = (args[name].float() for name in "xwab")
    return (x @ w + (x @ a) @ b).to(torch.float16)


lora = capture(
    lora_linear,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_M", 16, 256),
            PowerOfTwo("BLOCK_N", 32, 256),
            PowerOfTwo("BLOCK_K", 32, 128),
            Choice("GROUP_M", (1, 8)),
            Choice("WHEN", ("along", "after")),
            PowerOfTwo("num_warps", 4, 8),
            Integer("num_stages", 2, 5),
        ],
        constraints=[
            Constraint(
                "fits",
                "num_stages * (BLOCK_M + BLOCK_N + 16) * BLOCK_K * 2 <= 227 * 1024",
                "stages must fit shared memory",
            ),
            Constraint(
                "tile",
                "BLOCK_M * BLOCK_N <= 64 * 64 * num_warps",
                "a tile must fit registers",
            ),
            Constraint("work", "BLOCK_M * BLOCK_N >= 256 * num_warps", "a warp needs work"),
        ],
        default={
            "BLOCK_M": 64,
            "BLOCK_N": 128,
            "BLOCK_K": 32,
            "GROUP_M": 8,
            "WHEN": "along",
            "num_warps": 4,
            "num_stages": 3,
        },
    ),
    inputs=_lora_inputs,
    grid=_lora_grid,
    reference=_lora_reference,
    output="out",
    extents=[{"M": 1024, "N": 4096, "K": 4096, "R": 16}],
    rtol=1e-2,
    atol=2e-2,
    flops=2 * 1024 * (4096 * 4096 + 4096 * 16 + 16 * 4096),
)


@triton.jit
def block_sparse_matmul(
    values, index, b, out, N, L, SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, FIRST: tl.constexpr, FLAT: tl.constexpr
):  # fmt: skip
    """A float16 matrix with L blocks that are not zero in each row of blocks, by a dense one."""
    if FIRST == "rows":
        part, column = tl.program_id(0), tl.program_id(1)
    else:
        column, part = tl.program_id(0), tl.program_id(1)
    row = part // (SIZE // BLOCK_M)
    within = part % (SIZE // BLOCK_M) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if FLAT:
        for step in range(L * (SIZE // BLOCK_K)):
            which = row * L + step // (SIZE // BLOCK_K)
            k = step % (SIZE // BLOCK_K) * BLOCK_K + tl.arange(0, BLOCK_K)
            at = values + which * SIZE * SIZE + within[:, None] * SIZE + k[None, :]
            below = b + (tl.load(index + which) * SIZE + k[:, None]) * N + n[None, :]
            total = tl.dot(tl.load(at), tl.load(below, n[None, :] < N, 0.0), total)
    else:
        for one in range(L):
            which = row * L + one
            top = tl.load(index + which) * SIZE
            for k0 in tl.static_range(0, SIZE, BLOCK_K):
                k = k0 + tl.arange(0, BLOCK_K)
                at = values + which * SIZE * SIZE + within[:, None] * SIZE + k[None, :]
                below = b + (top + k[:, None]) * N + n[None, :]
                total = tl.dot(tl.load(at), tl.load(below, n[None, :] < N, 0.0), total)
    m = row * SIZE + within
    tl.store(out + m[:, None] * N + n[None, :], total.to(tl.float16), n[None, :] < N)


def _sparse_inputs(device, M, N, K, L, SIZE):
    chosen = torch.rand(M // SIZE, K // SIZE, device=device).argsort(1)[:, :L]
    values = torch.randn(M // SIZE, L, SIZE, SIZE, device=device, dtype=torch.float16)
    return {
        "values": values / (L * SIZE) ** 0.5,
        "index": chosen.sort(1).values.to(torch.int32),
        "b": torch.randn(K, N, device=device, dtype=torch.float16),
        "out": torch.empty(M, N, device=device, dtype=torch.float16),
        "M": M,
        "N": N,
        "K": K,
        "L": L,
        "SIZE": SIZE,
    }


def _sparse_grid(meta):
    rows, columns = meta["M"] // meta["BLOCK_M"], triton.cdiv(meta["N"], meta["BLOCK_N"])
    return (rows, columns) if meta["FIRST"] == "rows" else (columns, rows)


def _sparse_reference(args):
    values, b = args["values"].float(), args["b"].float()
    rows, _, size, _ = values.shape
    below = b.reshape(-1, size, b.shape[1])[args["index"].long()]
    return torch.einsum("rlmk,rlkn->rmn", values, below).reshape(rows * size, -1).half()


sparse = capture(
    block_sparse_matmul,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_M", 16, 64),
            PowerOfTwo("BLOCK_N", 32, 256),
            PowerOfTwo("BLOCK_K", 16, 64),
            Choice("FIRST", ("rows", "columns")),
            Choice("FLAT", (False, True)),
            PowerOfTwo("num_warps", 1, 8),
            Integer("num_stages", 1, 4),
        ],
        constraints=[
            Constraint(
                "tile",
                "BLOCK_M * BLOCK_N <= 64 * 64 * num_warps",
                "a tile must fit registers",
            ),
            Constraint("work", "BLOCK_M * BLOCK_N >= 512 * num_warps", "a warp needs work"),
        ],
        default={
            "BLOCK_M": 64,
            "BLOCK_N": 64,
            "BLOCK_K": 32,
            "FIRST": "rows",
            "FLAT": True,
            "num_warps": 4,
            "num_stages": 3,
        },
    ),
    inputs=_sparse_inputs,
    grid=_sparse_grid,
    reference=_sparse_reference,
    output="out",
    extents=[{"M": 8192, "N": 2048, "K": 8192, "L": 16, "SIZE": 64}],
    rtol=1e-2,
    atol=2e-2,
    flops=2 * 8192 * 2048 * 16 * 64,
)


KERNELS = (lora, sparse)
