"""The operations of the comparison in Helion's language, on the inputs of kt_lab's own kernels.

Written as an author of Helion would: the mathematics is fixed, everything else is left to
Helion's autotuner. Both sum in float32 and round once, like kt_lab's kernels, and are held to the
same tolerance against the same reference. Imports Helion and torch.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import helion
import helion.language as hl
import torch


@helion.kernel(static_shapes=True)
def softmax(x: torch.Tensor) -> torch.Tensor:
    """Returns the softmax of every row of x[M, N].

    Helion decides whether a program keeps its rows (a reduction in one step) or reads them again.
    """
    m, _ = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        scaled = x[rows, :].to(torch.float32) * 1.4426950408889634  # exp(v) = exp2(v * log2(e))
        powers = torch.exp2(scaled - torch.amax(scaled, dim=1, keepdim=True))
        out[rows, :] = (powers / torch.sum(powers, dim=1, keepdim=True)).to(x.dtype)
    return out


@helion.kernel(static_shapes=True)
def int4_gemm(a: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """Returns a[M, K] @ W; a byte of packed[K // 2, N] holds W[2i] (low nibble) and W[2i + 1].

    Partial sums stay apart by packed row until the end, so that nothing is exchanged in the loop.
    """
    m, _ = a.size()
    half, n = packed.size()
    pairs = a.view(m, half, 2)
    out = torch.empty([m, n], dtype=a.dtype, device=a.device)
    block = hl.register_block_size(half)
    for rows, cols in hl.tile([m, n]):
        sums = hl.zeros([rows, block, cols], dtype=torch.float32)
        for at in hl.tile(half, block_size=block):
            even = pairs[rows, at, 0].to(torch.float32)
            odd = pairs[rows, at, 1].to(torch.float32)
            both = packed[at, cols]
            low = ((both << 4) >> 4).to(torch.float32)
            high = (both >> 4).to(torch.float32)
            sums = sums + even[:, :, None] * low[None, :, :]
            sums = sums + odd[:, :, None] * high[None, :, :]
        out[rows, cols] = torch.sum(sums, dim=1).to(a.dtype)
    return out


# kernel of kt_lab -> the same operation here, and which of its inputs it takes
OPERATIONS: dict[str, tuple[Any, Sequence[str]]] = {
    "softmax": (softmax, ("x",)),
    "int4_gemm": (int4_gemm, ("a", "packed")),
}


def arguments(kernel: str, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Returns the arguments of an operation out of the inputs of kt_lab's device module."""
    return tuple(inputs[name] for name in OPERATIONS[kernel][1])


def bound(kernel: str, inputs: Mapping[str, torch.Tensor]) -> Any:
    """Returns Helion's BoundKernel of an operation for these inputs."""
    return OPERATIONS[kernel][0].bind(arguments(kernel, inputs))


def launcher(
    kernel: str, inputs: Mapping[str, torch.Tensor], config: Mapping[str, Any]
) -> Callable[[], torch.Tensor]:
    """Returns what launches an operation at one of Helion's configs and returns its output."""
    compiled = bound(kernel, inputs).compile_config(
        helion.Config.from_dict(config), allow_print=False
    )
    return partial(compiled, *arguments(kernel, inputs))
