"""Products of selected experts' matrices with a vector, in Triton: rows in steps of columns."""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.split_sums import join_parts
from kt_lab.kernels.gather_gemv import max_split
from kt_lab.workload import Workload


@triton.jit
def _share(
    weights, x, starts, first, last, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    LATE: tl.constexpr, EVICTION: tl.constexpr, EVEN_K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Returns the products of BLOCK_N rows with x over column blocks first..last."""
    cols = tl.arange(0, BLOCK_K)[None, :]
    total = tl.zeros([BLOCK_N, BLOCK_K] if LATE else [BLOCK_N], tl.float32)
    for block in tl.range(first, last, num_stages=STAGES):
        at = block * BLOCK_K + cols
        if EVEN_K:
            vector = tl.load(x + at)
            tile = tl.load(weights + (starts + at), eviction_policy=EVICTION)
        else:
            vector = tl.load(x + at, mask=at < K, other=0.0)
            source = weights + (starts + at)
            tile = tl.load(source, mask=at < K, other=0, eviction_policy=EVICTION)
        products = tile.to(tl.float32) * vector.to(tl.float32)
        total += products if LATE else tl.sum(products, 1)
    return tl.sum(total, 1) if LATE else total


@triton.jit
def gather_gemv(
    weights, experts, x, out, workspace, counters, T, N, K,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr, LATE: tl.constexpr,
    EVICTION: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Writes BLOCK_N rows of weights[experts[t]] @ x; programs (row block of a t, share)."""
    tile, share, shares = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    row_blocks = tl.cdiv(N, BLOCK_N)
    chosen, row0 = tile // row_blocks, tile % row_blocks * BLOCK_N
    rows = tl.arange(0, BLOCK_N)
    inside = row0 + rows < N
    # Rows past the end read the last row again, so that loads need no row mask.
    starts = (rows if EVEN_N else tl.minimum(rows, N - 1 - row0))[:, None] * K
    expert = tl.load(experts + chosen)
    blocks = tl.cdiv(K, BLOCK_K)
    each = tl.cdiv(blocks, shares)
    last = tl.minimum((share + 1) * each, blocks)
    total = _share(
        weights + (expert * N + row0) * K, x, starts, share * each, last, K,
        BLOCK_N, BLOCK_K, LATE, EVICTION, EVEN_K, STAGES,
    )  # fmt: skip
    target = chosen * N + row0 + rows
    if SPLIT:
        whole, is_last = join_parts(
            total, workspace, counters, target, inside, tile, share, shares, T * N
        )
        if is_last:
            tl.store(out + target, whole.to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(out + target, total.to(out.dtype.element_ty), mask=inside)


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns uniform weights, different experts (where T <= E), normal x, an output of NaN.

    `counters` must be zero before a launch, and every launch leaves them so.
    """
    e, t, n, k = (workload.extents[name] for name in "ETNK")
    known = {"generator": torch.Generator(device=device).manual_seed(seed), "device": device}
    weights = torch.randint(-128, 128, (e, n, k), dtype=torch.int8, **known)
    experts = torch.randperm(e, **known)[torch.arange(t, device=device) % e]
    return {
        "weights": weights,
        "experts": experts,
        "x": torch.randn(k, dtype=torch.bfloat16, **known),
        "out": torch.full((t, n), float("nan"), device=device, dtype=torch.bfloat16),
        "workspace": torch.full((max_split(workload), t, n), float("nan"), device=device),
        "counters": torch.zeros(t * n, device=device, dtype=torch.int32),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return {
        "weights": torch.int8,
        "experts": torch.int64,
        "x": torch.bfloat16,
        "out": torch.bfloat16,
        "workspace": torch.float32,
        "counters": torch.int32,
    }


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns the products in float64 on a CPU, in float32 elsewhere."""
    dtype = torch.float64 if inputs["x"].device.type == "cpu" else torch.float32
    return inputs["weights"][inputs["experts"]].to(dtype) @ inputs["x"].to(dtype)


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; the grid does not depend on `sms`."""
    _, t, n, k = (workload.extents[name] for name in "ETNK")
    block_n, block_k, split = config["BLOCK_N"], config["BLOCK_K"], config["SPLIT_K"]
    constexprs = {
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
        "SPLIT": split > 1,
        "LATE": config["SUM"] == "late",
        "EVICTION": config.get("EVICTION", "evict_first"),
        "EVEN_N": n % block_n == 0,
        "EVEN_K": k % block_k == 0,
        "STAGES": config["num_stages"],
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    tensors = ("weights", "experts", "x", "out", "workspace", "counters")
    args = (*(inputs[name] for name in tensors), t, n, k)
    return Launch(gather_gemv, (t * -(-n // block_n), split), args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's gather, conversion and product, as TritonBench has it."""
    weights, experts, x = inputs["weights"], inputs["experts"], inputs["x"]
    return lambda: weights[experts].to(x.dtype) @ x, "W[idx].to(bfloat16) @ x"
