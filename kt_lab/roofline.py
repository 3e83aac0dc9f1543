"""The roofline of a workload on a GPU: how fast memory and arithmetic allow it to be at best."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Dense peak of the fastest units for an element type, operations per second, by the GPU's short
# name. Source: NVIDIA's data sheets of A100, H100 SXM and H200 SXM (half of what they print "with
# sparsity"); TF32 stands for float32, and packed integers are unpacked to bfloat16.
_HOPPER = {
    "float16": 989.4e12,
    "bfloat16": 989.4e12,
    "int4": 989.4e12,
    "float32": 494.7e12,
    "float8_e4m3fn": 1978.9e12,
}
PEAK_FLOPS = {
    "a100": {"float16": 312e12, "bfloat16": 312e12, "int4": 312e12, "float32": 156e12},
    "h100": _HOPPER,
    "h200": _HOPPER,
}


@dataclass(frozen=True, slots=True)
class Roofline:
    """What a workload costs a GPU: two floors, of which the higher is hard to beat.

    Arithmetic has no way round its floor. That of memory is at the speed of a copy, which a kernel
    that mostly reads may pass by a tenth, and one whose data stay in the cache by more.

    Attributes:
        bytes_moved: Bytes that must cross device memory; nan, as everything else: not known.
        flops: Operations of the textbook algorithm.
        bytes_per_s: The GPU's measured copy speed.
        flops_per_s: Its dense peak at the workload's dtype (`PEAK_FLOPS`); None: unknown.
    """

    bytes_moved: float
    flops: float
    bytes_per_s: float
    flops_per_s: float | None

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes_moved

    @property
    def bytes_us(self) -> float:
        """Microseconds to move each byte once."""
        return self.bytes_moved / self.bytes_per_s * 1e6

    @property
    def flops_us(self) -> float | None:
        """Microseconds to compute at peak; None: the peak is unknown."""
        return self.flops / self.flops_per_s * 1e6 if self.flops_per_s else None

    @property
    def floor_us(self) -> float:
        """The higher of the known floors, in microseconds."""
        return max(self.bytes_us, self.flops_us or 0.0)

    @property
    def bound(self) -> str:
        """Which floor is the higher: "memory" or "arithmetic"."""
        return "memory" if self.floor_us == self.bytes_us else "arithmetic"

    def share(self, latency_us: float) -> float:
        """Returns floor / latency: 1 is a kernel at its roofline."""
        return self.floor_us / latency_us


def roofline(manifest: Mapping[str, Any]) -> Roofline:
    """Returns the floors of a recorded workload on its GPU, at its measured copy speed.

    Args:
        manifest: A landscape's: bytes_moved, bytes_floor_us, flops, dtype and gpu. What another
            tuner recorded has none of the first three.
    """
    known = [manifest.get(n, math.nan) for n in ("bytes_moved", "bytes_floor_us", "flops")]
    peak = PEAK_FLOPS.get(manifest["gpu"], {}).get(manifest["dtype"])
    return Roofline(known[0], known[2], known[0] / known[1] * 1e6, peak)
