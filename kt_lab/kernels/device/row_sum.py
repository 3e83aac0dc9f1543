"""Sums of rows in Triton: shares of rows, step by step, joined by atomics or by who comes last."""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.split_sums import join_parts
from kt_lab.kernels.row_sum import max_split
from kt_lab.workload import Workload


@triton.jit
def _share(
    x, rows, first, last, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, LATE: tl.constexpr,
    UNROLL: tl.constexpr, EVEN_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Returns the sums of BLOCK_M rows over column blocks first..last."""
    cols = tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros([BLOCK_M, BLOCK_N] if LATE else [BLOCK_M], tl.float32)
    for block in tl.range(first, last, num_stages=STAGES, loop_unroll_factor=UNROLL):
        at = block * BLOCK_N + cols
        inside = None if EVEN_N else at < N
        tile = tl.load(x + rows + at, mask=inside, other=None if EVEN_N else 0.0)
        total += tile.to(tl.float32) if LATE else tl.sum(tile.to(tl.float32), 1)
    return tl.sum(total, 1) if LATE else total


@triton.jit
def row_sum(
    x, out, workspace, counters, M, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, JOIN: tl.constexpr, LATE: tl.constexpr,
    UNROLL: tl.constexpr, EVEN_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Writes the sums of the rows of the contiguous x[M, N]; programs (row block, share)."""
    share, shares = tl.program_id(1), tl.num_programs(1)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = rows < M
    # Rows past the end read the last row again, so that loads need no row mask.
    starts = tl.minimum(rows, M - 1).to(tl.int64)[:, None] * N
    blocks = tl.cdiv(N, BLOCK_N)
    each = tl.cdiv(blocks, shares)
    last = tl.minimum((share + 1) * each, blocks)
    total = _share(
        x, starts, share * each, last, N, BLOCK_M, BLOCK_N, LATE, UNROLL, EVEN_N, STAGES
    )  # fmt: skip
    if JOIN == "atomic":
        tl.atomic_add(out + rows, total, mask=inside, sem="relaxed")
    elif JOIN == "last":
        whole, is_last = join_parts(
            total, workspace, counters, rows, inside, tl.program_id(0), share, shares, M
        )
        if is_last:
            tl.store(out + rows, whole, mask=inside)
    else:
        tl.store(out + rows, total, mask=inside)


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns x, standard normal, an output of NaN, and workspace.

    `counters` must be zero before a launch, and every launch leaves them so.
    """
    m, n = workload.extents["M"], workload.extents["N"]
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(m, n, generator=generator, device=device, dtype=torch.bfloat16)
    return {
        "x": x,
        "out": torch.full((m,), float("nan"), device=device),
        "workspace": torch.full((max_split(workload), m), float("nan"), device=device),
        "counters": torch.zeros(m, device=device, dtype=torch.int32),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    numbers = dict.fromkeys(("out", "workspace"), torch.float32)
    return numbers | {"x": torch.bfloat16, "counters": torch.int32}


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns the sums in float64."""
    return inputs["x"].sum(-1, dtype=torch.float64)


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; atomics need the sums at zero, which is never timed."""
    m, n = workload.extents["M"], workload.extents["N"]
    block_m, block_n, split = config["BLOCK_M"], config["BLOCK_N"], config["SPLIT"]
    join = config["JOIN"] if split > 1 else ""
    constexprs = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "JOIN": join,
        "LATE": config["SUM"] == "late",
        "UNROLL": config["UNROLL"],
        "EVEN_N": n % block_n == 0,
        "STAGES": config["num_stages"],
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    args = (*(inputs[name] for name in ("x", "out", "workspace", "counters")), m, n)
    # When only compiling, the output is a dtype and nothing is prepared.
    prepare = getattr(inputs["out"], "zero_", None) if join == "atomic" else None
    return Launch(row_sum, (-(-m // block_m), split), args, constexprs, prepare)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's own sum in float32 on the same input."""
    x, out = inputs["x"], torch.empty_like(inputs["out"])
    return lambda: torch.sum(x, -1, dtype=torch.float32, out=out), "torch.sum"
