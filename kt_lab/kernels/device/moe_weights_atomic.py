"""Scales of expert weights by atomic minimum, in Triton: launch, inputs, reference.

The scales must be infinite before a launch: `Launch.prepare` fills them, which is never timed.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.fp8_scales import powers
from kt_lab.kernels.device.moe_weights import (
    dtype_of,
    expert_scales,
    make_outputs,
    make_weights,
    right_scales,
    sizes,
    tiles,
)
from kt_lab.workload import Workload


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns the weights w[E, N, K], and scales of NaN."""
    scales = make_outputs(workload, device=device, cast=False)
    return {"w": make_weights(workload, device=device, seed=seed)} | scales


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return {"w": dtype_of(workload), "scales": torch.float32}


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:
    """Returns the scales (E, K), exactly."""
    return right_scales(inputs["w"], workload)


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["scales"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; scales become infinite before it, which is never timed."""
    e, n, k = sizes(workload)
    trips, (tiles_n, tiles_k) = config["TRIPS"], tiles(workload, config)
    constexprs = {
        "BLOCK_N": config["BLOCK_N"],
        "BLOCK_K": config["BLOCK_K"],
        "LOOP": trips > 1,
        "FIRST": config["FIRST"],
        "SEM": config["SEM"],
        "POWERS": powers(workload),
        "STAGES": config["num_stages"] if trips > 1 else 1,
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    fill = getattr(inputs["scales"], "fill_", None)  # when only compiling, there is no tensor
    args = (inputs["w"], inputs["scales"], e, n, k, trips)
    grid = (e * tiles_k * -(-tiles_n // trips),)
    return Launch(expert_scales, grid, args, constexprs, fill and partial(fill, float("inf")))


def baseline(
    inputs: Mapping[str, torch.Tensor], workload: Workload
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's maxima and the arithmetic of scales."""
    return partial(right_scales, inputs["w"], workload), "w.abs().amax(1) and scales"
