"""Activations to FP8 by blocks of 128 columns, in Triton: launch, inputs, reference."""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.fp8_scales import (
    cast,
    interpreting,
    powers,
    scale_of,
    scales,
    to_e4m3,
    unwritten,
)
from kt_lab.workload import Workload


@triton.jit
def _block(
    x, scales, out, row0, block, M, K,
    BLOCK_M: tl.constexpr, EVICTION: tl.constexpr, POWERS: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    ids, cols = tl.arange(0, BLOCK_M), block * 128 + tl.arange(0, 128)[None, :]
    rows = row0 + ids
    offset = row0.to(tl.int64) * K
    inside = (rows[:, None] < M) & (cols < K)
    source = x + offset + (ids[:, None] * K + cols)
    tile = tl.load(source, mask=inside, other=0.0, eviction_policy=EVICTION).to(tl.float32)
    scale = scale_of(tl.max(tl.abs(tile), 1), POWERS)
    tl.store(scales + block.to(tl.int64) * M + rows, scale, mask=rows < M)
    values = to_e4m3(tile * scale[:, None], INTERPRET)
    target = out + offset + (ids[:, None] * K + cols)
    tl.store(target, values, mask=inside, eviction_policy=EVICTION)


@triton.jit
def quantise_blocks(
    x, scales, out, M, K, trips,
    BLOCK_M: tl.constexpr, LOOP: tl.constexpr, ROWS_FIRST: tl.constexpr, EVICTION: tl.constexpr,
    POWERS: tl.constexpr, STAGES: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Writes BLOCK_M rows of `trips` blocks of 128 columns, and their scales."""
    program = tl.program_id(0)
    chunks, tiles = tl.cdiv(tl.cdiv(K, 128), trips), tl.cdiv(M, BLOCK_M)
    row0 = (program % tiles if ROWS_FIRST else program // chunks) * BLOCK_M
    chunk = program // tiles if ROWS_FIRST else program % chunks
    if LOOP:
        first = chunk * trips
        for i in tl.range(0, tl.minimum(trips, tl.cdiv(K, 128) - first), num_stages=STAGES):
            _block(
                x, scales, out, row0, first + i, M, K, BLOCK_M, EVICTION, POWERS, INTERPRET
            )  # fmt: skip
    else:
        _block(x, scales, out, row0, chunk, M, K, BLOCK_M, EVICTION, POWERS, INTERPRET)


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns x[M, K], standard normal but for a row of zeros, and outputs of NaN."""
    m, k = workload.extents["M"], workload.extents["K"]
    known = {"generator": torch.Generator(device=device).manual_seed(seed), "device": device}
    x = torch.randn(m, k, dtype=getattr(torch, workload.dtype), **known)
    x[-1] = 0.0
    return {
        "x": x,
        "scales": unwritten(triton.cdiv(k, 128), m, dtype=torch.float32, device=device),
        "out": unwritten(m, k, dtype=torch.float8_e4m3fn, device=device),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    x = getattr(torch, workload.dtype)
    return {"x": x, "scales": torch.float32, "out": torch.float8_e4m3fn}


def reference(
    inputs: Mapping[str, torch.Tensor], workload: Workload
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns out[M, K] and the scales (blocks, M), exactly."""
    x = inputs["x"]
    m, k = x.shape
    blocks = torch.nn.functional.pad(x, (0, -k % 128)).view(m, -1, 128)
    by = scales(blocks.abs().amax(2), workload)
    out = cast(blocks, by[:, :, None]).view(m, -1)[:, :k]
    return out.contiguous(), by.T.contiguous()


def output(inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the tensors that the kernel writes."""
    return inputs["out"], inputs["scales"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; the grid does not depend on `sms`."""
    m, k, trips = workload.extents["M"], workload.extents["K"], config["TRIPS"]
    constexprs = {
        "BLOCK_M": config["BLOCK_M"],
        "LOOP": trips > 1,
        "ROWS_FIRST": config["FIRST"] == "rows",
        "EVICTION": config["EVICTION"],
        "POWERS": powers(workload),
        "STAGES": config["num_stages"] if trips > 1 else 1,
        "INTERPRET": interpreting(),
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    chunks = triton.cdiv(triton.cdiv(k, 128), trips)
    args = (inputs["x"], inputs["scales"], inputs["out"], m, k, trips)
    grid = (triton.cdiv(m, config["BLOCK_M"]) * chunks,)
    return Launch(quantise_blocks, grid, args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor], workload: Workload
) -> tuple[Callable[[], tuple[torch.Tensor, torch.Tensor]], str]:
    """Returns torch's maxima, product, clamp and cast of the blocks."""
    return lambda: reference(inputs, workload), "amax, scale and cast of blocks"
