"""Gradients of RMSNorm in one launch: of the input row by row, of the weights over all rows.

Every program adds up the weight gradients of its own rows in float32. Then programs join theirs
in groups, and whoever comes last joins the groups: all of it is timed. Accumulators and counters
are zero before a launch, and every launch leaves them so.
"""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.row_tiles import load_columns, load_rows, store_rows
from kt_lab.kernels.rms_norm_backward import MOST_PROGRAMS
from kt_lab.workload import Workload

_EPS = 1e-5  # of the forward pass, as in Llama 3
_TOGETHER = tl.constexpr(8)  # partial rows in flight where they are added up


@triton.jit
def _input_gradient(
    x, grad, scale, factors, out, rows, cols, M, N, source, EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
):  # fmt: skip
    """Finishes whole rows in one pass; returns grad * x / rms, zero for rows past the end."""
    tile = load_rows(x, source, cols, N, EVEN_N, "") * factors[:, None]
    dy = load_rows(grad, source, cols, N, EVEN_N, "")
    scaled = dy * scale[None, :]
    along = tl.sum(scaled * tile, 1) / N
    values = (scaled - tile * along[:, None]) * factors[:, None]
    store_rows(out, rows, cols, values, M, N, EVEN_M, EVEN_N, "")
    return dy * tile if EVEN_M else tl.where(rows[:, None] < M, dy * tile, 0.0)


@triton.jit
def _add(target, cols, N, values, ATOMIC: tl.constexpr):
    """Adds values to a float32 row that others add to, or writes one's own."""
    if ATOMIC:
        tl.atomic_add(target + cols, values, mask=cols < N, sem="relaxed", scope="gpu")
    else:
        tl.store(target + cols, values, mask=cols < N)


@triton.jit
def _long_rows(
    x, grad, weight, factors, out, target, rows, M, N, source, filled, BLOCK_N: tl.constexpr,
    ATOMIC: tl.constexpr, EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Does rows longer than a tile in two passes; weight gradients go straight to `target`."""
    cols = tl.arange(0, BLOCK_N)
    along = tl.zeros_like(factors)
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        here = start + cols
        tile = load_rows(x, source, here, N, EVEN_N, "")
        dy = load_rows(grad, source, here, N, EVEN_N, "")
        along += tl.sum(dy * tile * load_columns(weight, here, N, EVEN_N)[None, :], 1)
    along = along * factors / N
    if not ATOMIC:
        tl.debug_barrier()  # another thread may have written what is read here
    for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
        here = start + cols
        tile = load_rows(x, source, here, N, EVEN_N, "evict_first") * factors[:, None]
        dy = load_rows(grad, source, here, N, EVEN_N, "evict_first")
        scale = load_columns(weight, here, N, EVEN_N)
        values = (dy * scale[None, :] - tile * along[:, None]) * factors[:, None]
        store_rows(out, rows, here, values, M, N, EVEN_M, EVEN_N, "")
        parts = dy * tile if EVEN_M else tl.where(rows[:, None] < M, dy * tile, 0.0)
        total = tl.sum(parts, 0)
        if not ATOMIC:
            total += tl.load(target + here, mask=here < filled, other=0.0)
        _add(target, here, N, total, ATOMIC)


@triton.jit
def _join(parts, rows, stride, target, N, FOLD: tl.constexpr, CLEAR: tl.constexpr):
    """Writes the sum of `rows` float32 rows to target[N], and zeroes them if CLEAR."""
    for start in range(0, N, FOLD):
        cols = start + tl.arange(0, FOLD)
        total = tl.zeros([FOLD], tl.float32)
        for row in range(0, rows, _TOGETHER):
            these = row + tl.arange(0, _TOGETHER)[:, None]
            inside = (these < rows) & (cols[None, :] < N)
            at = parts + these.to(tl.int64) * stride + cols[None, :]
            # Other multiprocessors wrote these: read them from L2, past the L1 cache.
            total += tl.sum(tl.load(at, mask=inside, other=0.0, cache_modifier=".cg"), 0)
            if CLEAR:
                tl.debug_barrier()  # no thread zeroes what another has yet to read
                tl.store(at, tl.zeros([_TOGETHER, FOLD], tl.float32), mask=inside)
        tl.store(target + cols, total.to(target.dtype.element_ty), mask=cols < N)


@triton.jit
def _arrive(counter, expected):
    """Announces what this program has stored; returns whether it is the last, and resets."""
    tl.debug_barrier()  # every thread has stored before one of them announces it
    last = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == expected - 1
    if last:
        tl.store(counter, 0)  # ready for the next launch
    return last


@triton.jit
def _combine(
    workspace, sums, counters, dw, N, ATOMIC: tl.constexpr, GROUP: tl.constexpr,
    FOLD: tl.constexpr,
):  # fmt: skip
    """Adds up what all programs have left in memory; the last of them writes dw."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    group, groups = program // GROUP, tl.cdiv(programs, GROUP)
    if ATOMIC:
        if _arrive(counters, programs):
            _join(sums, groups, N, dw, N, FOLD, True)
    elif GROUP == 1:
        if _arrive(counters, programs):
            _join(workspace, programs, N, dw, N, FOLD, False)
    else:
        members = tl.minimum(programs - group * GROUP, GROUP)
        if _arrive(counters + 1 + group, members):
            leader = workspace + group.to(tl.int64) * GROUP * N
            _join(leader, members, N, leader, N, FOLD, False)
            if _arrive(counters, groups):
                _join(workspace, groups, GROUP * N, dw, N, FOLD, False)


@triton.jit
def rms_norm_backward(
    x, grad, weight, rstd, out, workspace, sums, counters, M, N, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, WEIGHT: tl.constexpr, ATOMIC: tl.constexpr, GROUP: tl.constexpr,
    PARTIAL: tl.constexpr, ONE_PASS: tl.constexpr, EVEN_M: tl.constexpr, EVEN_N: tl.constexpr,
    STAGES: tl.constexpr, FOLD: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of x to out[:M] and that of the weights to out[M]."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    mine = workspace + program.to(tl.int64) * N
    if ATOMIC:
        mine = sums + (program // GROUP).to(tl.int64) * N
    cols = tl.arange(0, BLOCK_N)
    if ONE_PASS:
        if PARTIAL == "tile":
            total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        else:
            total = tl.zeros([BLOCK_N], tl.float32)
        if WEIGHT == "kept":
            scale = load_columns(weight, cols, N, EVEN_N)
    DEPTH: tl.constexpr = STAGES if ONE_PASS else 1
    for block in tl.range(program, tl.cdiv(M, BLOCK_M), programs, num_stages=DEPTH):
        rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
        # Rows past the end read the last row again, so that loads need no row mask.
        source = rows if EVEN_M else tl.minimum(rows, M - 1)
        factors = tl.load(rstd + source)
        if ONE_PASS:
            if WEIGHT == "early":
                scale = load_columns(weight, cols, N, EVEN_N)
            parts = _input_gradient(
                x, grad, scale, factors, out, rows, cols, M, N, source, EVEN_M, EVEN_N
            )  # fmt: skip
            total += parts if PARTIAL == "tile" else tl.sum(parts, 0)
        else:
            filled = tl.where(block > program, N, 0)  # elements that are in its own row
            _long_rows(
                x, grad, weight, factors, out, mine, rows, M, N, source, filled, BLOCK_N, ATOMIC,
                EVEN_M, EVEN_N, STAGES,
            )  # fmt: skip
    if ONE_PASS:
        if PARTIAL == "tile":
            total = tl.sum(total, 0)
        _add(mine, cols, N, total, ATOMIC)
    dw = out + tl.cast(M, tl.int64) * N
    _combine(workspace, sums, counters, dw, N, ATOMIC, GROUP, FOLD)


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns x and grad, standard normal, the forward pass' 1 / rms, and where sums are made.

    `out` holds the gradient of x, M rows, and that of the weights, one row more.
    """
    m, n = workload.extents["M"], workload.extents["N"]
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(m, n, generator=generator, device=device).to(torch.bfloat16)
    grad = torch.randn(m, n, generator=generator, device=device).to(torch.bfloat16)
    weight = 1 + torch.randn(n, generator=generator, device=device) / 4
    most = min(m, MOST_PROGRAMS)
    return {
        "x": x,
        "grad": grad,
        "weight": weight.to(torch.bfloat16),
        "rstd": torch.rsqrt(x.float().square().mean(1) + _EPS),
        "out": torch.full((m + 1, n), float("nan"), device=device, dtype=torch.bfloat16),
        "workspace": torch.full((most, n), float("nan"), device=device),
        "sums": torch.zeros(most, n, device=device),
        "counters": torch.zeros(1 + most, device=device, dtype=torch.int32),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    halves = dict.fromkeys(("x", "grad", "weight", "out"), torch.bfloat16)
    floats = dict.fromkeys(("rstd", "workspace", "sums"), torch.float32)
    return halves | floats | {"counters": torch.int32}


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns both gradients as `out` holds them, in float32; torch adds the rows in pairs."""
    dy, rstd = inputs["grad"].float(), inputs["rstd"][:, None]
    normal = inputs["x"].float() * rstd
    scaled = dy * inputs["weight"].float()
    dx = (scaled - normal * (scaled * normal).mean(1, keepdim=True)) * rstd
    return torch.cat((dx, (dy * normal).sum(0, keepdim=True)))


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:
    """Returns the launch of one config on a GPU with `sms` multiprocessors."""
    m, n = workload.extents["M"], workload.extents["N"]
    block_m, block_n, warps = config["BLOCK_M"], config["BLOCK_N"], config["num_warps"]
    constexprs = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "WEIGHT": config["WEIGHT"],
        "ATOMIC": config["COMBINE"] == "atomic",
        "GROUP": config["GROUP"],
        "PARTIAL": config["PARTIAL"],
        "ONE_PASS": block_n >= n,
        "EVEN_M": m % block_m == 0,
        "EVEN_N": n % block_n == 0,
        "STAGES": config["num_stages"],
        "FOLD": 128 * warps,  # 16 bytes a thread
        "num_warps": warps,
        "num_stages": config["num_stages"],
    }
    names = ("x", "grad", "weight", "rstd", "out", "workspace", "sums", "counters")
    args = (*(inputs[name] for name in names), m, n)
    programs = min(-(-m // block_m), config["WAVES"] * sms, MOST_PROGRAMS)
    return Launch(rms_norm_backward, (programs,), args, constexprs)


def _composed(dy, x, weight, rstd):
    normal = x.float() * rstd
    scaled = dy.float() * weight.float()
    dx = (scaled - normal * (scaled * normal).mean(1, keepdim=True)) * rstd
    return dx.to(x.dtype), (dy.float() * normal).sum(0).to(weight.dtype)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], tuple[torch.Tensor, ...]], str]:
    """Returns torch's own backward pass, which GPUs have; on a CPU, its operations one by one."""
    dy, x, weight = inputs["grad"], inputs["x"], inputs["weight"]
    rstd = inputs["rstd"][:, None]
    if not x.is_cuda:
        return lambda: _composed(dy, x, weight, rstd), "torch"
    call = torch.ops.aten._fused_rms_norm_backward
    return lambda: call(dy, x, x.shape[1:], rstd, weight, (True, True)), (
        "torch.ops.aten._fused_rms_norm_backward"
    )
