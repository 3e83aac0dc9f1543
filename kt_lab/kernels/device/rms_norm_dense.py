"""The device code of `rms_norm`, all of it, under the name of its dense space."""

from kt_lab.kernels.device.rms_norm import (
    baseline,
    fake_inputs,
    make_inputs,
    output,
    plan,
    reference,
)
from kt_lab.kernels.device.row_tiles import load_rows  # what the source hash must cover too

__all__ = [
    "baseline",
    "fake_inputs",
    "load_rows",
    "make_inputs",
    "output",
    "plan",
    "reference",
]
