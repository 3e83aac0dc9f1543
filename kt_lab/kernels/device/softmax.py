"""Row softmax in Triton: one pass over rows that fit a tile, two passes over longer ones."""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.workload import Workload

_LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x * log2(e)); exp2 is one instruction


@triton.jit
def _load(x, rows, cols, N, EVEN_N: tl.constexpr, EVICTION: tl.constexpr):
    offsets = rows.to(tl.int64)[:, None] * N + cols[None, :]
    if EVEN_N:
        tile = tl.load(x + offsets, eviction_policy=EVICTION)
    else:
        inside = cols[None, :] < N
        tile = tl.load(x + offsets, mask=inside, other=-float("inf"), eviction_policy=EVICTION)
    return tile.to(tl.float32)


@triton.jit
def _store(out, rows, cols, values, M, N, EVEN_M: tl.constexpr, EVEN_N: tl.constexpr):
    offsets = rows.to(tl.int64)[:, None] * N + cols[None, :]
    values = values.to(out.dtype.element_ty)
    if EVEN_M and EVEN_N:
        tl.store(out + offsets, values)
    elif EVEN_M:
        tl.store(out + offsets, values, mask=cols[None, :] < N)
    elif EVEN_N:
        tl.store(out + offsets, values, mask=rows[:, None] < M)
    else:
        tl.store(out + offsets, values, mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def _row_block(
    x,
    out,
    block,
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ONE_PASS: tl.constexpr,
    EVICTION: tl.constexpr,
    EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    STAGES: tl.constexpr,
):
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    # Rows past the end read the last row again, so that loads need no row mask.
    source = rows if EVEN_M else tl.minimum(rows, M - 1)
    cols = tl.arange(0, BLOCK_N)
    if ONE_PASS:
        tile = _load(x, source, cols, N, EVEN_N, EVICTION) * _LOG2E
        powers = tl.exp2(tile - tl.max(tile, 1)[:, None])
        scale = 1.0 / tl.sum(powers, 1)
        _store(out, rows, cols, powers * scale[:, None], M, N, EVEN_M, EVEN_N)
    else:
        # Online softmax (Milakov and Gimelshein, arXiv:1805.02867): the running sum is rescaled
        # whenever the running maximum grows.
        high = tl.full([BLOCK_M], -float("inf"), tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
            tile = _load(x, source, start + cols, N, EVEN_N, EVICTION) * _LOG2E
            higher = tl.maximum(high, tl.max(tile, 1))
            powers = tl.exp2(tile - higher[:, None])
            total = total * tl.exp2(high - higher) + tl.sum(powers, 1)
            high = higher
        scale = 1.0 / total
        for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
            tile = _load(x, source, start + cols, N, EVEN_N, "evict_first") * _LOG2E
            powers = tl.exp2(tile - high[:, None])
            _store(out, rows, start + cols, powers * scale[:, None], M, N, EVEN_M, EVEN_N)


@triton.jit
def softmax(
    x,
    out,
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PERSISTENT: tl.constexpr,
    ONE_PASS: tl.constexpr,
    EVICTION: tl.constexpr,
    EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Writes the softmax of every row of the contiguous x[M, N] to out[M, N]."""
    if PERSISTENT:
        # Where a row is read in one pass, the next row block is what can be prefetched.
        DEPTH: tl.constexpr = STAGES if ONE_PASS else 1
        blocks = tl.cdiv(M, BLOCK_M)
        for block in tl.range(tl.program_id(0), blocks, tl.num_programs(0), num_stages=DEPTH):
            _row_block(
                x, out, block, M, N, BLOCK_M, BLOCK_N, ONE_PASS, EVICTION, EVEN_M, EVEN_N, STAGES
            )  # fmt: skip
    else:
        block = tl.program_id(0)
        _row_block(
            x, out, block, M, N, BLOCK_M, BLOCK_N, ONE_PASS, EVICTION, EVEN_M, EVEN_N, STAGES
        )  # fmt: skip


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns x, standard normal, and an output of NaN.

    A wider distribution would push most outputs of a long row under float16's smallest step.
    """
    m, n = workload.extents["M"], workload.extents["N"]
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(m, n, generator=generator, device=device).to(torch.float16)
    return {"x": x, "out": torch.full_like(x, float("nan"))}


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return {"x": torch.float16, "out": torch.float16}


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns the softmax in float32."""
    return torch.softmax(inputs["x"].float(), -1)


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:
    """Returns the launch of one config on a GPU with `sms` multiprocessors."""
    m, n = workload.extents["M"], workload.extents["N"]
    block_m, block_n, waves = config["BLOCK_M"], config["BLOCK_N"], config["WAVES"]
    blocks = -(-m // block_m)
    constexprs = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "PERSISTENT": waves > 0,
        "ONE_PASS": block_n >= n,
        "EVICTION": config["EVICTION"],
        "EVEN_M": m % block_m == 0,
        "EVEN_N": n % block_n == 0,
        "STAGES": config["num_stages"],
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    grid = (min(blocks, waves * sms) if waves else blocks,)
    return Launch(softmax, grid, (inputs["x"], inputs["out"], m, n), constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's own softmax on the same input."""
    x = inputs["x"]
    return lambda: torch.softmax(x, -1), "torch.softmax"
