"""Cast of expert weights to transposed FP8, in Triton: launch, inputs, reference."""

from collections.abc import Callable, Mapping
from functools import partial

import torch

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.fp8_scales import interpreting
from kt_lab.kernels.device.moe_weights import (
    dtype_of,
    expert_cast,
    make_outputs,
    make_weights,
    right_cast,
    right_scales,
    sizes,
    tiles,
    torch_cast,
)
from kt_lab.workload import Workload


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns the weights w[E, N, K], their scales, and an output of NaN."""
    w = make_weights(workload, device=device, seed=seed)
    out = make_outputs(workload, device=device)["out"]
    return {"w": w, "scales": right_scales(w, workload), "out": out}


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return {"w": dtype_of(workload), "scales": torch.float32, "out": torch.float8_e4m3fn}


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns out[E, K, N], exactly."""
    return right_cast(inputs["w"], inputs["scales"])


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; the grid does not depend on `sms`."""
    e, n, k = sizes(workload)
    trips, (tiles_n, tiles_k) = config["TRIPS"], tiles(workload, config)
    constexprs = {
        "BLOCK_N": config["BLOCK_N"],
        "BLOCK_K": config["BLOCK_K"],
        "LOOP": trips > 1,
        "FIRST": config["FIRST"],
        "EVICTION": config["EVICTION"],
        "STAGES": config["num_stages"] if trips > 1 else 1,
        "INTERPRET": interpreting(),
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    args = (inputs["w"], inputs["scales"], inputs["out"], e, n, k, trips)
    return Launch(expert_cast, (e * tiles_k * -(-tiles_n // trips),), args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's product, clamp, cast and transposition."""
    return partial(torch_cast, inputs["w"], inputs["scales"]), "(w * scales).clamp().to(e4m3)"
