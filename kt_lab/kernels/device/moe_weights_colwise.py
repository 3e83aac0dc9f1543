"""Expert weights to FP8 with a scale per column, in Triton: launch, inputs, reference."""

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
from kt_lab.kernels.device.moe_weights import dtype_of, load_weights, make_weights, sizes
from kt_lab.workload import Workload


@triton.jit
def scale_columns(
    w, scales, out, E, N, K,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EXPERTS_FIRST: tl.constexpr, ONCE: tl.constexpr,
    BACKWARD: tl.constexpr, POWERS: tl.constexpr, STAGES: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Writes the scales of BLOCK_N columns of an expert over K, then the columns times them."""
    blocks, program = tl.cdiv(N, BLOCK_N), tl.program_id(0)
    expert = program % E if EXPERTS_FIRST else program // blocks
    n0 = (program // E if EXPERTS_FIRST else program % blocks) * BLOCK_N
    largest = tl.zeros([BLOCK_N, BLOCK_K] if ONCE else [BLOCK_N], tl.float32)
    for at in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        tile = tl.abs(load_weights(w, expert, n0, at, N, K, BLOCK_N, BLOCK_K))
        largest = tl.maximum(largest, tile if ONCE else tl.max(tile, 1))
    scale = scale_of(tl.max(largest, 1) if ONCE else largest, POWERS)
    ids = tl.arange(0, BLOCK_N)
    tl.store(scales + expert.to(tl.int64) * N + n0 + ids, scale, mask=ids < N - n0)
    steps = tl.cdiv(K, BLOCK_K)
    for i in tl.range(0, steps, num_stages=STAGES):
        at = (steps - 1 - i if BACKWARD else i) * BLOCK_K
        tile = load_weights(w, expert, n0, at, N, K, BLOCK_N, BLOCK_K)
        ks = tl.arange(0, BLOCK_K)
        target = out + (expert.to(tl.int64) * N + n0) * K + at
        inside = (ids[:, None] < N - n0) & (ks[None, :] < K - at)
        values = to_e4m3(tile * scale[:, None], INTERPRET)
        tl.store(target + (ids[:, None] * K + ks[None, :]), values, mask=inside)


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns the weights w[E, N, K], a column of zeros in each expert, and outputs of NaN."""
    e, n, k = sizes(workload)
    w = make_weights(workload, device=device, seed=seed)
    w[:, -1] = 0.0
    return {
        "w": w,
        "scales": unwritten(e, n, dtype=torch.float32, device=device),
        "out": unwritten(e, n, k, dtype=torch.float8_e4m3fn, device=device),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return {"w": dtype_of(workload), "scales": torch.float32, "out": torch.float8_e4m3fn}


def reference(
    inputs: Mapping[str, torch.Tensor], workload: Workload
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns out[E, N, K] and the scales (E, N), an expert at a time, exactly."""
    w, out = inputs["w"], torch.empty_like(inputs["out"])
    by = scales(w.abs().amax(2), workload)
    for expert in range(len(w)):
        out[expert] = cast(w[expert], by[expert][:, None])
    return out, by


def output(inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the tensors that the kernel writes."""
    return inputs["out"], inputs["scales"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; the grid does not depend on `sms`."""
    e, n, k = sizes(workload)
    constexprs = {
        "BLOCK_N": config["BLOCK_N"],
        "BLOCK_K": config["BLOCK_K"],
        "EXPERTS_FIRST": config["FIRST"] == "experts",
        "ONCE": config["ONCE"],
        "BACKWARD": config["BACKWARD"],
        "POWERS": powers(workload),
        "STAGES": config["num_stages"] if config["PIPELINED"] else 1,
        "INTERPRET": interpreting(),
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    args = (inputs["w"], inputs["scales"], inputs["out"], e, n, k)
    return Launch(scale_columns, (e * triton.cdiv(n, config["BLOCK_N"]),), args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor], workload: Workload
) -> tuple[Callable[[], tuple[torch.Tensor, torch.Tensor]], str]:
    """Returns torch's maxima, product, clamp and cast."""

    def run() -> tuple[torch.Tensor, torch.Tensor]:
        by = scales(inputs["w"].abs().amax(2), workload)
        return cast(inputs["w"], by[:, :, None]), by

    return run, "w.abs().amax(2), (w * scales).clamp().to(e4m3)"
