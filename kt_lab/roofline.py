"""The roofline of a workload on a GPU: how fast memory and arithmetic allow it to be at best."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Dense tensor throughput in FLOP/s by compute capability and element type (integers as bfloat16,
# to which they are unpacked). Source: NVIDIA H100 and H200 datasheets, SXM, without sparsity.
_PEAK_FLOPS = {
    "9.0": {
        "bfloat16": 989.4e12,
        "float16": 989.4e12,
        "float8_e4m3fn": 1978.9e12,
        "float32": 494.7e12,  # as TF32
    }
}


@dataclass(frozen=True, slots=True)
class Roofline:
    """What bounds a workload on one GPU.

    Attributes:
        bytes_us: Microseconds to move its bytes once at the copy bandwidth measured there.
        flops_us: Microseconds of its arithmetic at the published tensor throughput; None where
            none is known.
    """

    bytes_us: float
    flops_us: float | None

    @property
    def floor_us(self) -> float:
        """The higher of the two: nothing can be faster, in microseconds."""
        return max(self.bytes_us, self.flops_us or 0.0)

    @property
    def bound(self) -> str:
        """Which of the two is the higher: "memory" or "arithmetic"."""
        return "memory" if self.floor_us == self.bytes_us else "arithmetic"

    def share(self, latency_us: float) -> float:
        """Returns floor / latency, 0..1: 1 is a kernel at its roofline."""
        return self.floor_us / latency_us


def roofline(manifest: Mapping[str, Any]) -> Roofline:
    """Returns the roofline of a recorded workload.

    Args:
        manifest: A landscape's: bytes_floor_us, flops, dtype and the facts of its GPU.
    """
    capability = manifest["facts"][0].get("capability", "")
    peaks = _PEAK_FLOPS.get(capability, {})
    peak = peaks.get(manifest["dtype"], peaks.get("bfloat16"))
    return Roofline(
        bytes_us=float(manifest["bytes_floor_us"]),
        flops_us=None if peak is None else manifest["flops"] / peak * 1e6,
    )
