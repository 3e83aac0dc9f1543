"""Gradient of an embedding table in Triton: rows of gradients are added to those of tokens.

The table must be zero before a launch: `Launch.prepare` zeroes it, which is never timed.
"""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.kernels.embedding_backward import frequencies
from kt_lab.workload import Workload


@triton.jit
def embedding_backward(
    gradients, tokens, out, T, D, trips,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, COMBINE: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr, EVEN_T: tl.constexpr, EVEN_D: tl.constexpr, LOOP: tl.constexpr,
    STAGES: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Adds gradients[T, D] to rows tokens[T] of out; a program for BLOCK_T rows, `trips` steps."""
    chunks, blocks = tl.cdiv(tl.cdiv(D, BLOCK_D), trips), tl.cdiv(T, BLOCK_T)
    program = tl.program_id(0)
    chunk = program % chunks if COLUMNS_FIRST else program // blocks
    block = program // chunks if COLUMNS_FIRST else program % blocks
    ids = tl.arange(0, BLOCK_T)
    rows = block * BLOCK_T + ids
    token = tl.load(tokens + rows, mask=None if EVEN_T else rows < T, other=None if EVEN_T else -1)
    adds = tl.full([BLOCK_T], True, tl.int1) if EVEN_T else rows < T
    if COMBINE:
        equal = token[:, None] == token[None, :]
        # Of equal tokens, the first one's row takes the sum.
        adds = adds & (tl.min(tl.where(equal, ids[None, :], BLOCK_T), 1) == ids)
        # The interpreter multiplies the raw bits of bfloat16: there, float32.
        picks = equal.to(tl.float32 if INTERPRET else gradients.dtype.element_ty)
    source = gradients + rows.to(tl.int64)[:, None] * D
    target = out + token[:, None] * D
    first = chunk * trips if LOOP else chunk
    last = tl.minimum(first + trips, tl.cdiv(D, BLOCK_D)) if LOOP else chunk + 1
    for step in tl.range(first, last, num_stages=STAGES):
        cols = step * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]
        if EVEN_T and EVEN_D:
            tile = tl.load(source + cols)
        else:
            tile = tl.load(source + cols, mask=(rows[:, None] < T) & (cols < D), other=0.0)
        values = tl.dot(picks, tile.to(picks.dtype)) if COMBINE else tile.to(tl.float32)
        inside = adds[:, None] if EVEN_D else adds[:, None] & (cols < D)
        tl.atomic_add(target + cols, values, mask=inside, sem="relaxed")


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns standard normal gradients, tokens drawn by their frequency, an output of NaN."""
    v, t, d = (workload.extents[name] for name in "VTD")
    known = {"generator": torch.Generator(device=device).manual_seed(seed), "device": device}
    upto = torch.from_numpy(frequencies(v).cumsum()).to(device)
    tokens = torch.searchsorted(upto, torch.rand(t, dtype=torch.float64, **known))
    return {
        "gradients": torch.randn(t, d, dtype=torch.bfloat16, **known),
        "tokens": tokens.clamp_(max=v - 1),
        "out": torch.full((v, d), float("nan"), device=device),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return {"gradients": torch.bfloat16, "tokens": torch.int64, "out": torch.float32}


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns the sums in float32."""
    table = torch.zeros_like(inputs["out"])
    return table.index_add_(0, inputs["tokens"], inputs["gradients"].float())


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; the table is zeroed before it, which is never timed."""
    t, d = workload.extents["T"], workload.extents["D"]
    block_t, block_d, trips = config["BLOCK_T"], config["BLOCK_D"], config["TRIPS"]
    constexprs = {
        "BLOCK_T": block_t,
        "BLOCK_D": block_d,
        "COMBINE": config["COMBINE"] == "tile",
        "COLUMNS_FIRST": config["FIRST"] == "columns",
        "EVEN_T": t % block_t == 0,
        "EVEN_D": d % block_d == 0,
        "LOOP": trips > 1,
        "STAGES": config["num_stages"],
        "INTERPRET": triton.knobs.runtime.interpret,
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    programs = triton.cdiv(triton.cdiv(d, block_d), trips) * triton.cdiv(t, block_t)
    args = (inputs["gradients"], inputs["tokens"], inputs["out"], t, d, trips)
    # When only compiling, the output is a dtype and nothing is prepared.
    prepare = getattr(inputs["out"], "zero_", None)
    return Launch(embedding_backward, (programs,), args, constexprs, prepare)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's gradient from gradients that were made float32 beforehand: twice the bytes.

    It sorts the tokens and zeroes its table, both timed.
    """
    gradients, tokens, v = inputs["gradients"].float(), inputs["tokens"], workload.extents["V"]
    backward = torch.ops.aten.embedding_dense_backward
    return lambda: backward(gradients, tokens, v, -1, False), "aten.embedding_dense_backward"
