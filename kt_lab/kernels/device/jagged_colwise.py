"""FP8 with a scale per column and group: the device half, shared with jagged_rowwise."""

from kt_lab.kernels.device.jagged_groups import (
    baseline,
    fake_inputs,
    make_inputs,
    output,
    plan,
    reference,
)

__all__ = ["baseline", "fake_inputs", "make_inputs", "output", "plan", "reference"]
