"""Kernels that take the L2 back from lines that were loaded under an `evict_last` policy.

Ordinary traffic evicts such lines last (PTX ISA, cache eviction priorities), so a flush that
writes a buffer may leave them where they are. Here a buffer of several times the L2 is loaded
under the same policy, which displaces them, and then given back its ordinary priority.
"""

import torch
import triton
import triton.language as tl

LINE_BYTES = 128
_BLOCK = 1024


@triton.jit
def _claim(words, sums, lines, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    read = tl.load(
        words + at.to(tl.int64) * 32, mask=at < lines, other=0, eviction_policy="evict_last"
    )
    tl.store(sums + tl.program_id(0), tl.sum(read))  # or the loads would go


@triton.jit
def _give_back(words, lines, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    line = words + tl.minimum(at, lines - 1).to(tl.int64) * 32
    tl.inline_asm_elementwise(
        "{ .reg .u64 line; cvta.to.global.u64 line, $1; "
        "applypriority.global.L2::evict_normal [line], 128; mov.u32 $0, 0; }",
        "=r,l",
        [line.to(tl.int64, bitcast=True)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


class Reclaimer:
    """Displaces what an `evict_last` policy holds in the L2 of one GPU."""

    def __init__(self, device: torch.device, *, size: int):
        """Allocates a buffer of `size` bytes, several times the L2."""
        self._words = torch.zeros(size // 4, dtype=torch.int32, device=device)
        self._lines = size // LINE_BYTES
        self._grid = (triton.cdiv(self._lines, _BLOCK),)
        self._sums = torch.zeros(self._grid, dtype=torch.int32, device=device)

    def __call__(self) -> None:
        """Enqueues both steps on the current stream."""
        _claim[self._grid](self._words, self._sums, self._lines, BLOCK=_BLOCK)
        _give_back[self._grid](self._words, self._lines, BLOCK=_BLOCK)
