"""How many warps of a kernel a multiprocessor holds at a time, and what limits them."""

from dataclasses import dataclass

from kt_lab.errors import UnknownName, UsageError

_WARP = 32  # threads
_REGISTERS = 65536  # of a multiprocessor, 32 bits each, the same on every capability below
_PARTITIONS = 4  # of a multiprocessor; each has its own registers and schedules its own warps
_REGISTER_UNIT = 256  # registers are handed out to warps in multiples of this
_SHARED_UNIT = 128  # bytes
_SHARED_RESERVED = 1024  # bytes that the system takes of every block
_MOST_REGISTERS = 255  # of a thread

# Warps, blocks and bytes of shared memory of a multiprocessor, by compute capability. CUDA C++
# Programming Guide, "Technical Specifications per Compute Capability".
LIMITS = {
    "8.0": (64, 32, 164 * 1024),
    "8.6": (48, 16, 100 * 1024),
    "8.9": (48, 24, 100 * 1024),
    "9.0": (64, 32, 228 * 1024),
    "10.0": (64, 32, 228 * 1024),
    "12.0": (48, 24, 100 * 1024),
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What of one kernel fits a multiprocessor at a time.

    Attributes:
        blocks: Blocks (Triton's programs) per multiprocessor; 0: not even one fits.
        warps: Active warps per multiprocessor.
        most_warps: The most that the multiprocessor can hold.
        limits: Blocks that each resource alone allows: registers, shared memory, warps, blocks.
    """

    blocks: int
    warps: int
    most_warps: int
    limits: dict[str, int]

    @property
    def share(self) -> float:
        """Active warps over the most possible, 0..1."""
        return self.warps / self.most_warps

    @property
    def limited_by(self) -> tuple[str, ...]:
        """The resources that allow the fewest blocks."""
        return tuple(name for name, blocks in self.limits.items() if blocks == self.blocks)


def occupancy(
    *, registers: int, shared_bytes: int, warps: int, capability: str = "9.0"
) -> Occupancy:
    """Returns the theoretical occupancy of a kernel, with all shared memory carved out for it.

    Args:
        registers: Of a thread, 0..255.
        shared_bytes: Static and dynamic shared memory of a block, >= 0.
        warps: Of a block, 1..32.
        capability: Compute capability of the GPU ("9.0").

    Raises:
        UnknownName: The capability is not known.
        UsageError: A number is outside its range.

    Source:
        NVIDIA's occupancy calculator, cuda_occupancy.h: registers are allocated to whole warps
        in units of 256 within each of four partitions; shared memory in units of 128 bytes, and
        1 KiB of each block is reserved by the system (capability 8.0 and later).
    """
    if capability not in LIMITS:
        raise UnknownName("compute capability", capability, LIMITS)
    if not (0 <= registers <= _MOST_REGISTERS and 1 <= warps <= 32 and shared_bytes >= 0):
        raise UsageError(
            "a kernel must have 0..255 registers a thread, 1..32 warps and >= 0 bytes of shared "
            f"memory, got registers={registers}, warps={warps}, shared_bytes={shared_bytes}"
        )
    most_warps, most_blocks, shared = LIMITS[capability]
    per_warp = _rounded(registers * _WARP, _REGISTER_UNIT)
    resident = _REGISTERS // _PARTITIONS // per_warp * _PARTITIONS if per_warp else most_warps
    limits = {
        "registers": resident // warps,
        "shared memory": shared // _rounded(shared_bytes + _SHARED_RESERVED, _SHARED_UNIT),
        "warps": most_warps // warps,
        "blocks": most_blocks,
    }
    blocks = min(limits.values())
    return Occupancy(blocks, blocks * warps, most_warps, limits)


def _rounded(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
