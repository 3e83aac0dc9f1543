"""Expert weights to transposed FP8 in one launch, in Triton: launch, inputs, reference."""

from collections.abc import Callable, Mapping

import torch

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.fp8_scales import interpreting, powers
from kt_lab.kernels.device.moe_weights import (
    dtype_of,
    expert_scales_and_cast,
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
    """Returns the weights w[E, N, K], and scales and an output of NaN."""
    outputs = make_outputs(workload, device=device)
    return {"w": make_weights(workload, device=device, seed=seed)} | outputs


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return {"w": dtype_of(workload), "scales": torch.float32, "out": torch.float8_e4m3fn}


def reference(
    inputs: Mapping[str, torch.Tensor], workload: Workload
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns out[E, K, N] and the scales (E, K), exactly."""
    scales = right_scales(inputs["w"], workload)
    return right_cast(inputs["w"], scales), scales


def output(inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the tensors that the kernel writes."""
    return inputs["out"], inputs["scales"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; the grid does not depend on `sms`."""
    e, n, k = sizes(workload)
    constexprs = {
        "BLOCK_N": config["BLOCK_N"],
        "BLOCK_K": config["BLOCK_K"],
        "FIRST": config["FIRST"],
        "ONCE": config["ONCE"],
        "BACKWARD": config["BACKWARD"],
        "POWERS": powers(workload),
        "STAGES": config["num_stages"] if config["PIPELINED"] else 1,
        "INTERPRET": interpreting(),
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    args = (inputs["w"], inputs["scales"], inputs["out"], e, n, k)
    return Launch(expert_scales_and_cast, (e * tiles(workload, config)[1],), args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor], workload: Workload
) -> tuple[Callable[[], tuple[torch.Tensor, torch.Tensor]], str]:
    """Returns torch's maxima, product, clamp, cast and transposition."""

    def run() -> tuple[torch.Tensor, torch.Tensor]:
        scales = right_scales(inputs["w"], workload)
        return torch_cast(inputs["w"], scales), scales

    return run, "w.abs().amax(1), (w * scales).clamp().to(e4m3)"
