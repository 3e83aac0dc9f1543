"""What is chosen by indices, and what chooses them: a sparse matrix by a vector, nearest points.

Written as their users would, and captured as they stand; `kt_lab.evidence.captured` records them.
Imports torch and Triton.
"""

import torch
import triton
import triton.language as tl

from kt_lab.capture import capture
from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo


@triton.jit
def ell_spmv(
    values, index, x, out, ROWS, L: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_L: tl.constexpr,
    ROWS_FIRST: tl.constexpr, STREAM: tl.constexpr, KEEP: tl.constexpr, STEPS: tl.constexpr
):  # fmt: skip
    """A sparse float32 matrix with L values in each row, times a vector."""
    for step in range(STEPS):
        r = (tl.program_id(0) * STEPS + step) * BLOCK_R + tl.arange(0, BLOCK_R)
        total = tl.zeros((BLOCK_R,), tl.float32)
        for l0 in tl.static_range(0, L, BLOCK_L):
            at = l0 + tl.arange(0, BLOCK_L)
            if ROWS_FIRST:
                where = r[:, None] * L + at[None, :]
                inside = r[:, None] < ROWS
            else:
                where = r[None, :] * L + at[:, None]
                inside = r[None, :] < ROWS
            which = tl.load(index + where, inside, 0, eviction_policy=STREAM)
            value = tl.load(values + where, inside, 0.0, eviction_policy=STREAM)
            taken = tl.load(x + which, inside, 0.0, eviction_policy=KEEP)
            total += tl.sum(value * taken, 1 if ROWS_FIRST else 0)
        tl.store(out + r, total, r < ROWS)


def _spmv_inputs(device, ROWS, COLUMNS, L):
    return {
        "values": torch.randn(ROWS, L, device=device),
        "index": torch.randint(0, COLUMNS, (ROWS, L), device=device, dtype=torch.int32),
        "x": torch.randn(COLUMNS, device=device),
        "out": torch.empty(ROWS, device=device),
        "ROWS": ROWS,
        "COLUMNS": COLUMNS,
        "L": L,
    }


def _spmv_grid(meta):
    return (triton.cdiv(meta["ROWS"], meta["BLOCK_R"] * meta["STEPS"]),)


def _spmv_reference(args):
    return (args["values"] * args["x"][args["index"].long()]).sum(1)


spmv = capture(
    ell_spmv,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_R", 1, 256),
            PowerOfTwo("BLOCK_L", 4, 32),
            Choice("ROWS_FIRST", (False, True)),
            Choice("STREAM", ("", "evict_first")),
            Choice("KEEP", ("", "evict_last")),
            Choice("STEPS", (1, 4)),
            PowerOfTwo("num_warps", 1, 8),
        ],
        constraints=[
            Constraint(
                "most",
                "BLOCK_R * BLOCK_L <= 32 * 32 * num_warps",
                "a tile must fit registers",
            ),
            Constraint("work", "BLOCK_R * BLOCK_L >= 32 * num_warps", "a thread needs work"),
        ],
        default={
            "BLOCK_R": 16,
            "BLOCK_L": 32,
            "ROWS_FIRST": True,
            "STREAM": "",
            "KEEP": "",
            "STEPS": 1,
            "num_warps": 4,
        },
    ),
    inputs=_spmv_inputs,
    grid=_spmv_grid,
    reference=_spmv_reference,
    output="out",
    extents=[{"ROWS": 2**19, "COLUMNS": 2**20, "L": 32}],
    rtol=1e-4,
    atol=1e-3,
    bytes_moved=2**19 * (32 * 8 + 4) + 2**22,
    flops=2 * 2**19 * 32,
)


@triton.jit
def nearest(
    points, centers, bias, best, at, P, C, D: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_D: tl.constexpr, KEEP: tl.constexpr
):  # fmt: skip
    """The nearest of C centers to each float16 point, and how far it is."""
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    least = tl.full((BLOCK_P,), float("inf"), tl.float32)
    where = tl.zeros((BLOCK_P,), tl.int32)
    if KEEP:
        leasts = tl.full((BLOCK_P, BLOCK_C), float("inf"), tl.float32)
        wheres = tl.zeros((BLOCK_P, BLOCK_C), tl.int32)
    for c0 in range(0, C, BLOCK_C):
        c = c0 + tl.arange(0, BLOCK_C)
        score = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
        for d0 in tl.static_range(0, D, BLOCK_D):
            d = d0 + tl.arange(0, BLOCK_D)
            left = tl.load(points + p[:, None] * D + d[None, :], p[:, None] < P, 0.0)
            right = tl.load(centers + c[None, :] * D + d[:, None], c[None, :] < C, 0.0)
            score = tl.dot(left, right, score)
        far = tl.load(bias + c, c < C, float("inf"))[None, :] - 2.0 * score
        if KEEP:
            wheres = tl.where(far < leasts, c[None, :], wheres)
            leasts = tl.minimum(far, leasts)
        else:
            new, which = tl.min(far, 1, return_indices=True)
            where = tl.where(new < least, c0 + which, where)
            least = tl.minimum(new, least)
    if KEEP:
        least, which = tl.min(leasts, 1, return_indices=True)
        where = tl.sum(tl.where(tl.arange(0, BLOCK_C)[None, :] == which[:, None], wheres, 0), 1)
    tl.store(best + p, least, p < P)
    tl.store(at + p, where, p < P)


def _nearest_inputs(device, P, C, D):
    # Small integers, and biases of which no two give one distance: exact, and without ties.
    points = torch.randint(-4, 5, (P, D), device=device).half()
    centers = torch.randint(-4, 5, (C, D), device=device).half()
    bias = centers.float().square().sum(1) + torch.arange(C, device=device) / C
    return {
        "points": points,
        "centers": centers,
        "bias": bias,
        "best": torch.empty(P, device=device),
        "at": torch.empty(P, device=device, dtype=torch.int32),
        "P": P,
        "C": C,
        "D": D,
    }


def _nearest_grid(meta):
    return (triton.cdiv(meta["P"], meta["BLOCK_P"]),)


def _nearest_reference(args):
    far = args["bias"] - 2 * args["points"].float() @ args["centers"].float().T
    best, at = far.min(1)
    return best, at.to(torch.int32)


near = capture(
    nearest,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_P", 16, 256),
            PowerOfTwo("BLOCK_C", 16, 256),
            PowerOfTwo("BLOCK_D", 32, 128),
            Choice("KEEP", (False, True)),
            PowerOfTwo("num_warps", 1, 8),
            Integer("num_stages", 1, 4),
        ],
        constraints=[
            Constraint(
                "fits",
                "num_stages * (BLOCK_P + BLOCK_C) * BLOCK_D * 2 <= 227 * 1024",
                "stages must fit shared memory",
            ),
            Constraint(
                "tile",
                "BLOCK_P * BLOCK_C <= 64 * 64 * num_warps",
                "a tile must fit registers",
            ),
            Constraint("work", "BLOCK_P * BLOCK_C >= 512 * num_warps", "a warp needs work"),
        ],
        default={
            "BLOCK_P": 64,
            "BLOCK_C": 64,
            "BLOCK_D": 128,
            "KEEP": False,
            "num_warps": 4,
            "num_stages": 2,
        },
    ),
    inputs=_nearest_inputs,
    grid=_nearest_grid,
    reference=_nearest_reference,
    output=["best", "at"],
    extents=[{"P": 65536, "C": 1024, "D": 128}],
    rtol=1e-5,
    atol=1e-3,
    flops=2 * 65536 * 1024 * 128,
)


KERNELS = (spmv, near)
