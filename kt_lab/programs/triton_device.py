"""The half of an emitted kernel that needs torch: inputs, reference and launch of a config."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kt_lab.kernels.device import Launch
from kt_lab.kernels.row_space import next_power_of_two
from kt_lab.programs.operators import get_operator
from kt_lab.workload import Workload

_EPS = 1e-5
_nn = torch.nn.functional
# What PyTorch calls an operator: inputs in the program's order.
_TORCH: dict[str, Callable] = {
    "multiply": torch.mul,
    "add_relu": lambda x, y: torch.relu(x + y),
    "bias_gelu": lambda x, b: _nn.gelu(x + b),
    "row_sum": lambda x: x.sum(1),
    "matmul": torch.mm,
    "linear_relu": lambda x, w, b: torch.relu(_nn.linear(x, w, b)),
    "softmax": lambda x: torch.softmax(x, 1),
    "attention_scores": lambda x, mask: torch.softmax(torch.add(mask, x, alpha=0.125), -1),
    "layer_norm": lambda x, g, b: _nn.layer_norm(x, g.shape, g, b, _EPS),
    "rms_norm": lambda x, g: _nn.rms_norm(x, g.shape, g, _EPS),
    "batch_norm": lambda x, mean, var, g, b: _nn.batch_norm(x, mean, var, g, b, False, 0.0, _EPS),
    "batch_norm_training": lambda x, g, b: _in_order(
        *torch.native_batch_norm(x, g, b, None, None, True, 0.1, _EPS)
    ),
}


def _in_order(z, mean, rstd):
    return mean, rstd, z


@dataclass(frozen=True, slots=True)
class Variant:
    """A `triton.jit` function made from a program; otherwise as `emit_triton.Lowered`."""

    fn: Any
    arguments: tuple[str, ...]
    rows: int
    tiles: tuple[int, ...]
    looped: bool


class Half:
    """What a device module defines (see `kt_lab.kernels.device`), for a dojo operator."""

    def __init__(self, operator: str, variants: Mapping[str, Variant]):
        """Takes the operator's name and its kernels, one for each schedule."""
        self._operator, self._variants = get_operator(operator), dict(variants)

    def _buffers(self, workload: Workload, kind: str) -> tuple:
        return self._operator.program(workload.extents).of_kind(kind)

    def make_inputs(
        self, workload: Workload, *, device: str, seed: int
    ) -> dict[str, torch.Tensor]:
        """Returns the operator's random inputs, and outputs of NaN."""
        made = self._operator.inputs(workload.extents, seed=seed)
        inputs = {name: torch.from_numpy(value).to(device) for name, value in made.items()}
        for b in self._buffers(workload, "out"):
            inputs[f"out {b.name}"] = torch.full(b.shape, float("nan"), device=device)
        return inputs

    def fake_inputs(self, workload: Workload) -> dict[str, torch.dtype]:
        """Returns the dtypes of `make_inputs`, to compile without tensors."""
        names = [b.name for b in self._buffers(workload, "in")]
        names += [f"out {b.name}" for b in self._buffers(workload, "out")]
        return dict.fromkeys(names, torch.float32)

    def reference(self, inputs: Mapping[str, torch.Tensor], workload: Workload) -> tuple:
        """Returns the outputs, computed in float64 and rounded to float32."""
        names = [b.name for b in self._buffers(workload, "in")]
        found = self._operator.expected({name: inputs[name].cpu().numpy() for name in names})
        device = inputs[names[0]].device
        outputs = self._buffers(workload, "out")
        return tuple(torch.from_numpy(found[b.name]).float().to(device) for b in outputs)

    def output(self, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Returns the tensors that the kernel writes."""
        return tuple(value for name, value in inputs.items() if name.startswith("out "))

    def plan(self, inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG002
        """Returns the launch of one config."""
        variant = self._variants[config.get("SCHEDULE", next(iter(self._variants)))]
        block = config.get("BLOCK", 1)
        constexprs = {"ROWS": config["ROWS"], "num_warps": config["num_warps"]}
        constexprs |= {f"B{e}": min(block, next_power_of_two(e)) for e in variant.tiles}
        if variant.looped:
            constexprs |= {"STAGES": config["num_stages"], "num_stages": config["num_stages"]}
        taken = [inputs[n] if n in inputs else inputs[f"out {n}"] for n in variant.arguments]
        return Launch(variant.fn, (-(-variant.rows // config["ROWS"]),), tuple(taken), constexprs)

    def baseline(self, inputs: Mapping, workload: Workload) -> tuple[Callable[[], Any], str]:
        """Returns PyTorch's own code for the operator on the same inputs."""
        given = [inputs[b.name] for b in self._buffers(workload, "in")]
        call = _TORCH[self._operator.name]
        return lambda: call(*given), f"torch {self._operator.name}"
