"""Memory that a compiled program runs in: guard bands round each buffer, poison in outputs."""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

BAND = 4096  # bytes before and after a buffer that must not change
_CANARY = 0xA5
_POISON = 0xFF  # a float made of such bytes is NaN
_PAGE = 4096
_STAGGER = 17 * 64  # bytes: buffers at equal offsets in their pages would look alike to the CPU


@dataclass(frozen=True, slots=True)
class Block:
    """What a worker must know of a parameter; picklable.

    Attributes:
        name: Of the buffer.
        kind: in, out or tmp.
        dtype: f32 or f64.
        shape: Logical extents.
        elements: How many are in storage.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    elements: int


class Memory:
    """The buffers of one program, allocated once.

    Attributes:
        pointers: What the program's `_call` function takes.
    """

    def __init__(self, blocks: Sequence[Block], *, beside: Sequence["Memory"] = ()):
        """Allocates; nothing is poisoned yet.

        Args:
            blocks: The program's parameters.
            beside: Memory of other programs; a buffer that is the same there is used, not made
                anew. Where the last cache is as large as a few buffers, it would else serve one
                program alone better than programs that are timed in turn.
        """
        self._blocks = tuple(blocks)
        self._raw: dict[str, np.ndarray] = {}
        self._arrays: dict[str, np.ndarray] = {}
        known = {block: memory._raw[block.name] for memory in beside for block in memory._blocks}
        for k, block in enumerate(blocks):
            dtype = np.dtype({"f32": np.float32, "f64": np.float64}[block.dtype])
            size = block.elements * dtype.itemsize
            raw = known[block] if block in known else _allocated(size, k * _STAGGER % _PAGE)
            self._raw[block.name] = raw
            self._arrays[block.name] = raw[BAND : BAND + size].view(dtype)
        addresses = [array.ctypes.data for array in self._arrays.values()]
        self.pointers = (ctypes.c_void_p * len(addresses))(*addresses)

    def fill(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Sets the inputs, poisons everything else and the bands."""
        for block in self._blocks:
            raw = self._raw[block.name]
            raw[:BAND] = raw[-BAND:] = _CANARY
            if block.kind == "in":
                self._arrays[block.name][:] = inputs[block.name].ravel()
            else:
                raw[BAND:-BAND] = _POISON

    def outputs(self) -> dict[str, np.ndarray]:
        """Returns the outputs in their shape; views, which the next run overwrites."""
        found = (block for block in self._blocks if block.kind == "out")
        return {block.name: self._arrays[block.name].reshape(block.shape) for block in found}

    def damage(self, inputs: Mapping[str, np.ndarray]) -> str:
        """Returns what a run changed that it must not, in one sentence; "" when nothing."""
        for block in self._blocks:
            raw = self._raw[block.name]
            for band, side in ((raw[:BAND], "before"), (raw[-BAND:], "after")):
                if (band != _CANARY).any():
                    return f"it wrote {side} the buffer {block.name}"
            if block.kind == "in":
                kept, given = self._arrays[block.name], inputs[block.name].ravel()
                if not np.array_equal(kept, given.astype(kept.dtype), equal_nan=True):
                    return f"it changed the input {block.name}"
        return ""


def _allocated(size: int, stagger: int) -> np.ndarray:
    """Returns bytes for a buffer and its bands; the buffer starts `stagger` bytes into a page."""
    room = np.empty(size + 2 * BAND + 2 * _PAGE, np.uint8)
    start = -(room.ctypes.data + BAND) % _PAGE + stagger
    return room[start : start + size + 2 * BAND]
