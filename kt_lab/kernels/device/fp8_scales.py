"""What the FP8 quantisers share, in Triton and in torch: scales and casts.

A scale is float32(448 / float64(max(amax, 1e-12))), rounded down to a power of two if `POWERS`;
it multiplies: q = e4m3(clamp(float32(x) * scale)). The maximum is associative and the rest works
element by element, so every legal config gives the same bits.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from kt_lab.workload import Workload

_E4M3_MAX = 448.0
_SMALLEST_AMAX = 1e-12
_EXPONENT = 0x7F800000  # of a float32: without its mantissa it is a power of two, rounded down


@triton.jit
def scale_of(amax, POWERS: tl.constexpr):
    """Returns the float32 scales of maxima; dividing in float64 makes them the same everywhere."""
    scale = (448.0 / tl.maximum(amax.to(tl.float64), 1e-12)).to(tl.float32)
    if POWERS:
        scale = (scale.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    return scale


@triton.jit
def to_e4m3(values, INTERPRET: tl.constexpr):
    """Returns float32 values in e4m3, to the nearest, ties to even, clamped to +-448."""
    values = tl.clamp(values, -448.0, 448.0)
    if INTERPRET:  # whose own cast loses carries and rounds ties away from even
        bits = values.to(tl.int32, bitcast=True)
        size = bits & 0x7FFFFFFF
        # Three bits of mantissa stay; the exponent's bias goes from 127 to 7.
        normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - 960
        # Below 2^-6 the step is 2^-9, which is what float32 rounds to next to 2^14.
        tiny = (tl.abs(values) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
        code = tl.where(size < 0x3C800000, tiny, normal) | ((bits >> 24) & 0x80)
        result = code.to(tl.uint8).to(tl.float8e4nv, bitcast=True)
    else:
        result = values.to(tl.float8e4nv)
    return result


def powers(workload: Workload) -> bool:
    """Whether scales are rounded down to powers of two: the extent ROUND is 2, or is absent."""
    return workload.extents.get("ROUND", 2) == 2


def scales(amax: torch.Tensor, workload: Workload) -> torch.Tensor:
    """Returns the float32 scales of maxima, of any shape."""
    found = (_E4M3_MAX / amax.double().clamp(min=_SMALLEST_AMAX)).float()
    if powers(workload):
        found = (found.view(torch.int32) & _EXPONENT).view(torch.float32)
    return found


def cast(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Returns x * by in e4m3, saturating; torch's own cast does not before 2.12."""
    scaled = (x.float() * by).clamp_(-_E4M3_MAX, _E4M3_MAX)
    return scaled.to(torch.float8_e4m3fn)


def unwritten(*shape: int, dtype: torch.dtype, device: Any) -> torch.Tensor:
    """Returns NaN everywhere, in e4m3 or float32."""
    return torch.full(shape, float("nan"), device=device).to(dtype)


def interpreting() -> bool:
    """Whether Triton interprets kernels instead of compiling them."""
    return triton.knobs.runtime.interpret
