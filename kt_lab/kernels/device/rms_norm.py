"""RMSNorm in Triton: a row in registers where it fits its tile, otherwise read twice."""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.row_tiles import load_columns, load_rows, store_rows
from kt_lab.workload import Workload

EPS = 1e-5  # as in Llama 3; next to a mean square near 1 it is lost in rounding
_EPS = tl.constexpr(EPS)


@triton.jit
def _row_block(
    x, weight, kept, out, block, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    WEIGHT: tl.constexpr, PARTIAL: tl.constexpr, EVICTION: tl.constexpr, STORE: tl.constexpr,
    ONE_PASS: tl.constexpr, EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    # Rows past the end read the last row again, so that loads need no row mask.
    source = rows if EVEN_M else tl.minimum(rows, M - 1)
    cols = tl.arange(0, BLOCK_N)
    if ONE_PASS:
        scale = kept
        if WEIGHT == "early":
            scale = load_columns(weight, cols, N, EVEN_N)
        tile = load_rows(x, source, cols, N, EVEN_N, EVICTION)
        inverse = tl.rsqrt(tl.sum(tile * tile, 1) / N + _EPS)
        if WEIGHT == "late":
            scale = load_columns(weight, cols, N, EVEN_N)
        values = tile * inverse[:, None] * scale[None, :]
        store_rows(out, rows, cols, values, M, N, EVEN_M, EVEN_N, STORE)
    else:
        if PARTIAL == "tile":
            squares = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        else:
            squares = tl.zeros([BLOCK_M], tl.float32)
        for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
            tile = load_rows(x, source, start + cols, N, EVEN_N, EVICTION)
            squares += tile * tile if PARTIAL == "tile" else tl.sum(tile * tile, 1)
        if PARTIAL == "tile":
            squares = tl.sum(squares, 1)
        inverse = tl.rsqrt(squares / N + _EPS)
        for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
            if WEIGHT == "early":
                scale = load_columns(weight, start + cols, N, EVEN_N)
                tile = load_rows(x, source, start + cols, N, EVEN_N, "evict_first")
            else:
                tile = load_rows(x, source, start + cols, N, EVEN_N, "evict_first")
                scale = load_columns(weight, start + cols, N, EVEN_N)
            values = tile * inverse[:, None] * scale[None, :]
            store_rows(out, rows, start + cols, values, M, N, EVEN_M, EVEN_N, STORE)


@triton.jit
def rms_norm(
    x, weight, out, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    PERSISTENT: tl.constexpr, WEIGHT: tl.constexpr, PARTIAL: tl.constexpr,
    EVICTION: tl.constexpr, STORE: tl.constexpr, ONE_PASS: tl.constexpr, EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Writes x / sqrt(mean(x^2) + eps) * weight, row by row, of the contiguous x[M, N]."""
    kept = 0.0
    if WEIGHT == "kept":
        kept = load_columns(weight, tl.arange(0, BLOCK_N), N, EVEN_N)
    if PERSISTENT:
        # Where a row is read in one pass, the next row block is what can be prefetched.
        DEPTH: tl.constexpr = STAGES if ONE_PASS else 1
        blocks = tl.cdiv(M, BLOCK_M)
        for block in tl.range(tl.program_id(0), blocks, tl.num_programs(0), num_stages=DEPTH):
            _row_block(
                x, weight, kept, out, block, M, N, BLOCK_M, BLOCK_N, WEIGHT, PARTIAL, EVICTION,
                STORE, ONE_PASS, EVEN_M, EVEN_N, STAGES,
            )  # fmt: skip
    else:
        _row_block(
            x, weight, kept, out, tl.program_id(0), M, N, BLOCK_M, BLOCK_N, WEIGHT, PARTIAL,
            EVICTION, STORE, ONE_PASS, EVEN_M, EVEN_N, STAGES,
        )  # fmt: skip


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns x, standard normal, weights around 1, and an output of NaN."""
    m, n = workload.extents["M"], workload.extents["N"]
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(m, n, generator=generator, device=device).to(torch.bfloat16)
    weight = 1 + torch.randn(n, generator=generator, device=device) / 4
    return {
        "x": x,
        "weight": weight.to(torch.bfloat16),
        "out": torch.full_like(x, float("nan")),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return dict.fromkeys(("x", "weight", "out"), torch.bfloat16)


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns the normalised rows in float32."""
    x, weight = inputs["x"].float(), inputs["weight"].float()
    return torch.nn.functional.rms_norm(x, x.shape[1:], weight, EPS)


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
        "PARTIAL": config["PARTIAL"],
        "EVICTION": config["EVICTION"],
        "STORE": config.get("STORE", ""),
        "ONE_PASS": block_n >= n,
        "EVEN_M": m % block_m == 0,
        "EVEN_N": n % block_n == 0,
        "STAGES": config["num_stages"],
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    grid = (min(blocks, waves * sms) if waves else blocks,)
    return Launch(rms_norm, grid, (inputs["x"], inputs["weight"], inputs["out"], m, n), constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's own RMSNorm on the same input."""
    x, weight = inputs["x"], inputs["weight"]
    call = torch.nn.functional.rms_norm
    return lambda: call(x, x.shape[1:], weight, EPS), "torch.nn.functional.rms_norm"
