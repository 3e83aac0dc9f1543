"""LayerNorm in Triton: a row in registers where it fits its tile, otherwise read twice."""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.row_tiles import load_columns, load_rows, merge, store_rows
from kt_lab.workload import Workload

EPS = 1e-5  # torch's default
_EPS = tl.constexpr(EPS)


@triton.jit
def _tile_moments(tile, cols, N, count, CENTRED: tl.constexpr, EVEN_N: tl.constexpr):
    """Returns mean and sum of squared deviations of a tile's rows; zero where cols >= N."""
    mean = tl.sum(tile, 1) / count
    if CENTRED:
        centred = tile - mean[:, None]
        if not EVEN_N:
            centred = tl.where(cols[None, :] < N, centred, 0.0)
        spread = tl.sum(centred * centred, 1)
    else:
        spread = tl.maximum(tl.sum(tile * tile, 1) - mean * mean * count, 0.0)
    return mean, spread


@triton.jit
def _row_moments(
    x, source, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CENTRED: tl.constexpr,
    EVICTION: tl.constexpr, EVEN_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Returns the same of rows longer than a tile: block by block, or by sums of whole tiles."""
    cols = tl.arange(0, BLOCK_N)
    if CENTRED:
        count = 0.0
        mean = tl.zeros([BLOCK_M], tl.float32)
        spread = tl.zeros([BLOCK_M], tl.float32)
        for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
            tile = load_rows(x, source, start + cols, N, EVEN_N, EVICTION)
            more = tl.minimum(N - start, BLOCK_N).to(tl.float32)
            apart, wider = _tile_moments(tile, start + cols, N, more, CENTRED, EVEN_N)
            count, mean, spread = merge(count, mean, spread, more, apart, wider)
    else:
        total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        squares = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
            tile = load_rows(x, source, start + cols, N, EVEN_N, EVICTION)
            total += tile
            squares += tile * tile
        mean = tl.sum(total, 1) / N
        spread = tl.maximum(tl.sum(squares, 1) - mean * mean * N, 0.0)
    return mean, spread


@triton.jit
def _row_block(
    x, weight, bias, scale, shift, out, block, M, N, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, WEIGHT: tl.constexpr, CENTRED: tl.constexpr, EVICTION: tl.constexpr,
    ONE_PASS: tl.constexpr, EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    # Rows past the end read the last row again, so that loads need no row mask.
    source = rows if EVEN_M else tl.minimum(rows, M - 1)
    cols = tl.arange(0, BLOCK_N)
    if ONE_PASS:
        if WEIGHT == "early":
            scale = load_columns(weight, cols, N, EVEN_N)
            shift = load_columns(bias, cols, N, EVEN_N)
        tile = load_rows(x, source, cols, N, EVEN_N, EVICTION)
        mean, spread = _tile_moments(tile, cols, N, N, CENTRED, EVEN_N)
        inverse = tl.rsqrt(spread / N + _EPS)
        if WEIGHT == "late":
            scale = load_columns(weight, cols, N, EVEN_N)
            shift = load_columns(bias, cols, N, EVEN_N)
        values = (tile - mean[:, None]) * inverse[:, None] * scale[None, :] + shift[None, :]
        store_rows(out, rows, cols, values, M, N, EVEN_M, EVEN_N, "")
    else:
        mean, spread = _row_moments(
            x, source, N, BLOCK_M, BLOCK_N, CENTRED, EVICTION, EVEN_N, STAGES
        )  # fmt: skip
        inverse = tl.rsqrt(spread / N + _EPS)
        for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
            here = start + cols
            # Names of their own: Triton 3.6 takes `scale` and `shift` as carried by the loop.
            if WEIGHT == "early":
                gain = load_columns(weight, here, N, EVEN_N)
                lift = load_columns(bias, here, N, EVEN_N)
                tile = load_rows(x, source, here, N, EVEN_N, "evict_first")
            else:
                tile = load_rows(x, source, here, N, EVEN_N, "evict_first")
                gain = load_columns(weight, here, N, EVEN_N)
                lift = load_columns(bias, here, N, EVEN_N)
            values = (tile - mean[:, None]) * inverse[:, None] * gain[None, :] + lift[None, :]
            store_rows(out, rows, here, values, M, N, EVEN_M, EVEN_N, "")


@triton.jit
def layer_norm(
    x, weight, bias, out, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    PERSISTENT: tl.constexpr, WEIGHT: tl.constexpr, CENTRED: tl.constexpr,
    EVICTION: tl.constexpr, ONE_PASS: tl.constexpr, EVEN_M: tl.constexpr, EVEN_N: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Writes (x - mean) / sqrt(variance + eps) * weight + bias, row by row, of x[M, N]."""
    scale = 0.0
    shift = 0.0
    if WEIGHT == "kept":
        cols = tl.arange(0, BLOCK_N)
        scale = load_columns(weight, cols, N, EVEN_N)
        shift = load_columns(bias, cols, N, EVEN_N)
    if PERSISTENT:
        # Where a row is read in one pass, the next row block is what can be prefetched.
        DEPTH: tl.constexpr = STAGES if ONE_PASS else 1
        blocks = tl.cdiv(M, BLOCK_M)
        for block in tl.range(tl.program_id(0), blocks, tl.num_programs(0), num_stages=DEPTH):
            _row_block(
                x, weight, bias, scale, shift, out, block, M, N, BLOCK_M, BLOCK_N, WEIGHT,
                CENTRED, EVICTION, ONE_PASS, EVEN_M, EVEN_N, STAGES,
            )  # fmt: skip
    else:
        _row_block(
            x, weight, bias, scale, shift, out, tl.program_id(0), M, N, BLOCK_M, BLOCK_N,
            WEIGHT, CENTRED, EVICTION, ONE_PASS, EVEN_M, EVEN_N, STAGES,
        )  # fmt: skip


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns x of mean 1/2 and variance 1, weights around 1, biases, and an output of NaN."""
    m, n = workload.extents["M"], workload.extents["N"]
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(m, n, generator=generator, device=device).add_(0.5).to(torch.float16)
    weight = 1 + torch.randn(n, generator=generator, device=device) / 4
    bias = torch.randn(n, generator=generator, device=device) / 4
    return {
        "x": x,
        "weight": weight.to(torch.float16),
        "bias": bias.to(torch.float16),
        "out": torch.full_like(x, float("nan")),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return dict.fromkeys(("x", "weight", "bias", "out"), torch.float16)


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns the normalised rows in float32."""
    x, weight, bias = (inputs[name].float() for name in ("x", "weight", "bias"))
    return torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, EPS)


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
        "WEIGHT": config["WEIGHT"],
        "CENTRED": config["VARIANCE"] == "centred",
        "EVICTION": config["EVICTION"],
        "ONE_PASS": block_n >= n,
        "EVEN_M": m % block_m == 0,
        "EVEN_N": n % block_n == 0,
        "STAGES": config["num_stages"],
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    grid = (min(blocks, waves * sms) if waves else blocks,)
    args = (*(inputs[name] for name in ("x", "weight", "bias", "out")), m, n)
    return Launch(layer_norm, grid, args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's own LayerNorm on the same input."""
    x, weight, bias = (inputs[name] for name in ("x", "weight", "bias"))
    call = torch.nn.functional.layer_norm
    return lambda: call(x, x.shape[1:], weight, bias, EPS), "torch.nn.functional.layer_norm"
