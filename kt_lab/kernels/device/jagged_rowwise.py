"""FP8 with a scale per row and group: the device half, shared with jagged_colwise."""

from kt_lab.kernels.device.jagged_groups import (
    baseline,
    fake_inputs,
    make_inputs,
    output,
    plan,
    reference,
)

__all__ = ["baseline", "fake_inputs", "make_inputs", "output", "plan", "reference"]
