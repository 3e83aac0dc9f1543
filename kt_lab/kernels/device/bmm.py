"""The device half of bmm: that of every matrix product."""

from kt_lab.kernels.device.gemm import (
    baseline,
    fake_inputs,
    make_inputs,
    output,
    plan,
    reference,
)
from kt_lab.kernels.device.gemm_tiles import gemm

__all__ = ["baseline", "fake_inputs", "gemm", "make_inputs", "output", "plan", "reference"]
