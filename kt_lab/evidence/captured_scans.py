"""Recurrences: a selective state space, and running sums.

Written as their users would, and captured as they stand; `kt_lab.evidence.captured` records them.
Imports torch and Triton.
"""

import torch
import triton
import triton.language as tl

from kt_lab.capture import capture
from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo


@triton.jit
def selective_scan(
    x, dt, a, b, c, out, D, L, N: tl.constexpr, BLOCK_D: tl.constexpr, UNROLL: tl.constexpr,
    EVICTION: tl.constexpr, BASE2: tl.constexpr
):  # fmt: skip
    """The recurrence of a selective state space: h = exp(dt a) h + dt b x, y = c h."""
    d = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)
    batch = tl.program_id(1)
    n = tl.arange(0, N)
    rate = tl.load(a + d[:, None] * N + n[None, :], d[:, None] < D, 0.0)
    if BASE2:
        rate *= 1.4426950408889634
    state = tl.zeros((BLOCK_D, N), tl.float32)
    for t in tl.range(0, L, 1, loop_unroll_factor=UNROLL):
        at = (batch * L + t) * D + d
        xs = tl.load(x + at, d < D, 0.0, eviction_policy=EVICTION).to(tl.float32)
        step = tl.load(dt + at, d < D, 0.0, eviction_policy=EVICTION).to(tl.float32)
        bs = tl.load(b + (batch * L + t) * N + n).to(tl.float32)
        cs = tl.load(c + (batch * L + t) * N + n).to(tl.float32)
        if BASE2:  # noqa: SIM108 (as it was recorded)
            decay = tl.exp2(step[:, None] * rate)
        else:
            decay = tl.exp(step[:, None] * rate)
        state = decay * state + (step * xs)[:, None] * bs[None, :]
        tl.store(out + at, tl.sum(state * cs[None, :], 1).to(tl.float16), d < D)


def _scan_inputs(device, B, L, D, N):
    def make(*shape):
        return torch.randn(*shape, device=device, dtype=torch.float16)

    return {
        "x": make(B, L, D),
        "dt": make(B, L, D).abs() * 0.1,
        "a": -torch.rand(D, N, device=device) - 0.1,
        "b": make(B, L, N),
        "c": make(B, L, N),
        "out": make(B, L, D),
        "B": B,
        "L": L,
        "D": D,
        "N": N,
    }


def _scan_grid(meta):
    return (triton.cdiv(meta["D"], meta["BLOCK_D"]), meta["B"])


def _scan_reference(args):
    x, dt, a, b, c = (args[name].float() for name in ("x", "dt", "a", "b", "c"))
    state = torch.zeros(x.shape[0], x.shape[2], a.shape[1], device=x.device)
    rows = []
    for t in range(x.shape[1]):
        state = (
            torch.exp(dt[:, t, :, None] * a) * state
            + (dt[:, t] * x[:, t])[..., None] * b[:, t, None, :]
        )
        rows.append((state * c[:, t, None, :]).sum(-1))
    return torch.stack(rows, 1).to(torch.float16)


scan = capture(
    selective_scan,
    space=ParameterSpace(
        [
            PowerOfTwo("BLOCK_D", 2, 128),
            Choice("UNROLL", (1, 2, 4, 8)),
            Choice("EVICTION", ("", "evict_first")),
            Choice("BASE2", (False, True)),
            PowerOfTwo("num_warps", 1, 4),
            Integer("num_stages", 1, 4),
        ],
        constraints=[
            Constraint("work", "BLOCK_D * 16 >= 32 * num_warps", "a thread needs work"),
            Constraint(
                "most",
                "BLOCK_D * 16 <= 64 * 32 * num_warps",
                "a tile must fit registers",
            ),
        ],
        default={
            "BLOCK_D": 32,
            "UNROLL": 1,
            "EVICTION": "",
            "BASE2": False,
            "num_warps": 1,
            "num_stages": 2,
        },
    ),
    inputs=_scan_inputs,
    grid=_scan_grid,
    reference=_scan_reference,
    output="out",
    extents=[{"B": 8, "L": 512, "D": 2048, "N": 16}],
    rtol=2e-2,
    atol=2e-2,
    flops=6 * 8 * 512 * 2048 * 16,
)


@triton.jit
def row_cumsum(
    x, out, M, N, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, CARRY: tl.constexpr,
    EVICTION: tl.constexpr
):  # fmt: skip
    """Running sums along rows of float32, block after block."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    before = tl.zeros((ROWS,), tl.float32)
    for n0 in range(0, N, BLOCK_N):
        n = n0 + tl.arange(0, BLOCK_N)
        inside = (r[:, None] < M) & (n[None, :] < N)
        v = tl.load(x + r[:, None] * N + n[None, :], inside, 0.0, eviction_policy=EVICTION)
        y = tl.cumsum(v, 1) + before[:, None]
        tl.store(out + r[:, None] * N + n[None, :], y, inside)
        if CARRY == "sum":
            before += tl.sum(v, 1)
        else:
            before = tl.max(tl.where(n[None, :] == n0 + BLOCK_N - 1, y, -float("inf")), 1)


def _cumsum_inputs(device, M, N):
    x = torch.randn(M, N, device=device)
    return {"x": x, "out": torch.empty_like(x), "M": M, "N": N}


def _cumsum_grid(meta):
    return (triton.cdiv(meta["M"], meta["ROWS"]),)


def _cumsum_reference(args):
    return torch.cumsum(args["x"], 1)


running = capture(
    row_cumsum,
    space=ParameterSpace(
        [
            PowerOfTwo("ROWS", 1, 16),
            PowerOfTwo("BLOCK_N", 64, 8192),
            Choice("CARRY", ("sum", "last")),
            Choice("EVICTION", ("", "evict_first")),
            PowerOfTwo("num_warps", 1, 16),
            Integer("num_stages", 1, 3),
        ],
        constraints=[
            Constraint(
                "most",
                "ROWS * BLOCK_N <= 64 * 32 * num_warps",
                "a tile must fit registers",
            ),
            Constraint("work", "ROWS * BLOCK_N >= 64 * num_warps", "a thread needs work"),
        ],
        default={
            "ROWS": 1,
            "BLOCK_N": 1024,
            "CARRY": "sum",
            "EVICTION": "",
            "num_warps": 4,
            "num_stages": 1,
        },
    ),
    inputs=_cumsum_inputs,
    grid=_cumsum_grid,
    reference=_cumsum_reference,
    output="out",
    extents=[{"M": 4096, "N": 6144}],
    rtol=1e-3,
    atol=1e-2,
)


KERNELS = (scan, running)
