"""Patterns of memory: counts, neighbours, sums of chosen rows.

Written as their users would, and captured as they stand; `kt_lab.evidence.captured` records them.
Imports torch and Triton.
"""

import torch
import triton
import triton.language as tl

from kt_lab.capture import capture
from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo


@triton.jit
def histogram(
    x, out, SIZE, BINS: tl.constexpr, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr,
    WAY: tl.constexpr, NEAR: tl.constexpr
):  # fmt: skip
    """Counts of int32 values below BINS, by PROGRAMS programs that walk over the values."""
    pid = tl.program_id(0)
    counts = tl.zeros((BINS,), tl.int32)
    share = tl.cdiv(tl.cdiv(SIZE, BLOCK), PROGRAMS)
    for i in range(share):
        block = pid * share + i if NEAR else i * PROGRAMS + pid
        at = block * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + at, at < SIZE, 0)
        if WAY == "direct":
            tl.atomic_add(out + value, 1, at < SIZE, sem="relaxed")
        elif WAY == "late":
            counts += tl.histogram(value, BINS, mask=at < SIZE)
        else:
            tl.atomic_add(
                out + tl.arange(0, BINS), tl.histogram(value, BINS, mask=at < SIZE), sem="relaxed"
            )
    if WAY == "late":
        tl.atomic_add(out + tl.arange(0, BINS), counts, sem="relaxed")


def _histogram_inputs(device, SIZE, BINS):
    values = torch.randint(0, BINS, (SIZE,), device=device, dtype=torch.int32)
    return {
        "x": values,
        "out": torch.zeros(BINS, device=device, dtype=torch.int32),
        "SIZE": SIZE,
        "BINS": BINS,
    }


def _histogram_grid(meta):
    return (meta["PROGRAMS"],)


def _histogram_reference(args):
    return torch.bincount(args["x"], minlength=args["out"].shape[0]).to(torch.int32)


counts = capture(
    histogram,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK", 256, 8192),
            Choice("PROGRAMS", (132, 264, 528, 1056, 2112)),
            Choice("WAY", ("direct", "early", "late")),
            Choice("NEAR", (False, True)),
            PowerOfTwo("num_warps", 1, 16),
            Integer("num_stages", 1, 2),
        ],
        constraints=[
            Constraint(
                "most",
                "BLOCK <= 64 * 32 * num_warps",
                "a tile must fit registers",
            ),
            Constraint("work", "BLOCK >= 32 * num_warps", "a thread needs work"),
            Constraint(
                "direct",
                "WAY != 'direct' or PROGRAMS in (132, 1056)",
                "others contend alike",
            ),
        ],
        default={
            "BLOCK": 1024,
            "PROGRAMS": 528,
            "WAY": "late",
            "NEAR": False,
            "num_warps": 4,
            "num_stages": 1,
        },
    ),
    inputs=_histogram_inputs,
    grid=_histogram_grid,
    reference=_histogram_reference,
    output="out",
    restore="out",
    extents=[{"SIZE": 2**23, "BINS": 256}],
)


@triton.jit
def stencil(
    x, out, H, W, BLOCK_Y: tl.constexpr, BLOCK_X: tl.constexpr, STEPS: tl.constexpr,
    ORDER: tl.constexpr, EVICTION: tl.constexpr
):  # fmt: skip
    """Five points of a float32 plane; a program walks STEPS blocks down."""
    across, down = tl.cdiv(W, BLOCK_X), tl.cdiv(H, BLOCK_Y * STEPS)
    pid = tl.program_id(0)
    if ORDER == "rows":
        bx, by = pid % across, pid // across
    else:
        bx, by = pid // down, pid % down
    c = bx * BLOCK_X + tl.arange(0, BLOCK_X)
    for s in range(STEPS):
        r = (by * STEPS + s) * BLOCK_Y + tl.arange(0, BLOCK_Y)
        inside = (r[:, None] < H) & (c[None, :] < W)
        at = x + r[:, None] * W + c[None, :]
        mid = tl.load(at, inside, 0.0)
        up = tl.load(at - W, inside & (r[:, None] > 0), 0.0)
        below = tl.load(at + W, inside & (r[:, None] < H - 1), 0.0)
        left = tl.load(at - 1, inside & (c[None, :] > 0), 0.0)
        right = tl.load(at + 1, inside & (c[None, :] < W - 1), 0.0)
        y = 0.5 * mid + 0.125 * (up + below + left + right)
        tl.store(out + r[:, None] * W + c[None, :], y, inside, eviction_policy=EVICTION)


def _stencil_inputs(device, H, W):
    x = torch.randn(H, W, device=device)
    return {"x": x, "out": torch.empty_like(x), "H": H, "W": W}


def _stencil_grid(meta):
    return (
        triton.cdiv(meta["W"], meta["BLOCK_X"])
        * triton.cdiv(meta["H"], meta["BLOCK_Y"] * meta["STEPS"]),
    )


def _stencil_reference(args):
    p = torch.nn.functional.pad(args["x"], (1, 1, 1, 1))
    return 0.5 * args["x"] + 0.125 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])


five = capture(
    stencil,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_Y", 1, 64),
            PowerOfTwo("BLOCK_X", 32, 2048),
            Choice("STEPS", (1, 2, 4, 8)),
            Choice("ORDER", ("rows", "columns")),
            Choice("EVICTION", ("", "evict_first")),
            PowerOfTwo("num_warps", 1, 8),
        ],
        constraints=[
            Constraint(
                "most",
                "BLOCK_Y * BLOCK_X <= 32 * 32 * num_warps",
                "a tile must fit registers",
            ),
            Constraint("work", "BLOCK_Y * BLOCK_X >= 64 * num_warps", "a thread needs work"),
        ],
        default={
            "BLOCK_Y": 4,
            "BLOCK_X": 256,
            "STEPS": 1,
            "ORDER": "rows",
            "EVICTION": "",
            "num_warps": 4,
        },
    ),
    inputs=_stencil_inputs,
    grid=_stencil_grid,
    reference=_stencil_reference,
    output="out",
    extents=[{"H": 4096, "W": 6000}],
    rtol=1e-4,
    atol=1e-4,
    flops=6 * 4096 * 6000,
)


@triton.jit
def embedding_bag(
    table, index, out, BAGS, E, LENGTH: tl.constexpr, PER: tl.constexpr, BLOCK_E: tl.constexpr,
    UNROLL: tl.constexpr, CACHE: tl.constexpr
):  # fmt: skip
    """Sums of LENGTH rows of a float16 table for each bag."""
    bag = tl.program_id(0) * PER + tl.arange(0, PER)
    e = tl.program_id(1) * BLOCK_E + tl.arange(0, BLOCK_E)
    total = tl.zeros((PER, BLOCK_E), tl.float32)
    for i in tl.range(0, LENGTH, 1, loop_unroll_factor=UNROLL):
        row = tl.load(index + bag * LENGTH + i, bag < BAGS, 0)
        total += tl.load(
            table + row[:, None] * E + e[None, :],
            (bag[:, None] < BAGS) & (e[None, :] < E),
            0.0,
            eviction_policy=CACHE,
        ).to(tl.float32)
    tl.store(
        out + bag[:, None] * E + e[None, :],
        total.to(tl.float16),
        (bag[:, None] < BAGS) & (e[None, :] < E),
    )


def _bag_inputs(device, ROWS, BAGS, E, LENGTH):
    return {
        "table": torch.randn(ROWS, E, device=device, dtype=torch.float16),
        "index": torch.randint(0, ROWS, (BAGS, LENGTH), device=device),
        "out": torch.empty(BAGS, E, device=device, dtype=torch.float16),
        "ROWS": ROWS,
        "BAGS": BAGS,
        "E": E,
        "LENGTH": LENGTH,
    }


def _bag_grid(meta):
    return (triton.cdiv(meta["BAGS"], meta["PER"]), triton.cdiv(meta["E"], meta["BLOCK_E"]))


def _bag_reference(args):
    return args["table"].float()[args["index"]].sum(1).to(torch.float16)


bag = capture(
    embedding_bag,
    space=ParameterSpace(
        [
            PowerOfTwo("PER", 1, 32),
            PowerOfTwo("BLOCK_E", 32, 256),
            Choice("UNROLL", (1, 2, 4, 8)),
            Choice("CACHE", ("", "evict_last")),
            PowerOfTwo("num_warps", 1, 8),
            Integer("num_stages", 1, 3),
        ],
        constraints=[
            Constraint(
                "most",
                "PER * BLOCK_E <= 64 * 32 * num_warps",
                "a tile must fit registers",
            ),
            Constraint("work", "PER * BLOCK_E >= 64 * num_warps", "a thread needs work"),
        ],
        default={
            "PER": 1,
            "BLOCK_E": 256,
            "UNROLL": 1,
            "CACHE": "",
            "num_warps": 2,
            "num_stages": 2,
        },
    ),
    inputs=_bag_inputs,
    grid=_bag_grid,
    reference=_bag_reference,
    output="out",
    extents=[{"ROWS": 500000, "BAGS": 8192, "E": 256, "LENGTH": 32}],
    rtol=1e-2,
    atol=5e-2,
    bytes_moved=8192 * (32 * (2 * 256 + 8) + 2 * 256),
    flops=8192 * 256 * 32,
)


KERNELS = (counts, five, bag)
