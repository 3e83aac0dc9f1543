"""The operations of the comparison in Helion's language, on the inputs of kt_lab's own kernels.

Written as an author of Helion would: the mathematics is fixed, everything else is left to
Helion's autotuner. All sum in float32 and round once, like kt_lab's kernels, and are held to the
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


@helion.kernel(static_shapes=True)
def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Returns x / sqrt(mean(x^2) + eps) * weight over every row of x[M, N]."""
    m, _ = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        values = x[rows, :].to(torch.float32)
        inverse = torch.rsqrt(torch.mean(values * values, dim=1, keepdim=True) + 1e-5)
        out[rows, :] = (values * inverse * weight[:].to(torch.float32)).to(x.dtype)
    return out


@helion.kernel(static_shapes=True)
def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Returns (x - mean) / sqrt(variance + eps) * weight + bias over every row of x[M, N]."""
    m, _ = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        values = x[rows, :].to(torch.float32)
        centred = values - torch.mean(values, dim=1, keepdim=True)
        inverse = torch.rsqrt(torch.mean(centred * centred, dim=1, keepdim=True) + 1e-5)
        scaled = centred * inverse * weight[:].to(torch.float32)
        out[rows, :] = (scaled + bias[:].to(torch.float32)).to(x.dtype)
    return out


@helion.kernel(static_shapes=True)
def row_sum(x: torch.Tensor) -> torch.Tensor:
    """Returns the float32 sum of every row of x[M, N]."""
    m, _ = x.size()
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        out[rows] = torch.sum(x[rows, :].to(torch.float32), dim=1)
    return out


@helion.kernel(static_shapes=True)
def swiglu(x: torch.Tensor) -> torch.Tensor:
    """Returns silu(gate) * up, the halves of x[M, 2N]."""
    m, both = x.size()
    n = both // 2
    halves = x.view(m, 2, n)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows, cols in hl.tile([m, n]):
        gate = halves[rows, 0, cols].to(torch.float32)
        up = halves[rows, 1, cols].to(torch.float32)
        out[rows, cols] = (gate * torch.sigmoid(gate) * up).to(x.dtype)
    return out


@helion.kernel(static_shapes=True)
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns a[M, K] @ b[K, N]."""
    m, k = a.size()
    _, n = b.size()
    out = torch.empty([m, n], dtype=a.dtype, device=a.device)
    for rows, cols in hl.tile([m, n]):
        sums = hl.zeros([rows, cols], dtype=torch.float32)
        for at in hl.tile(k):
            sums = hl.dot(a[rows, at], b[at, cols], acc=sums)
        out[rows, cols] = sums.to(a.dtype)
    return out


@helion.kernel(static_shapes=True)
def bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns a[B, M, K] @ b[B, K, N], each matrix of a batch by itself."""
    batch, m, k = a.size()
    n = b.size(2)
    out = torch.empty([batch, m, n], dtype=a.dtype, device=a.device)
    for each, rows, cols in hl.tile([batch, m, n]):
        sums = hl.zeros([each, rows, cols], dtype=torch.float32)
        for at in hl.tile(k):
            sums = hl.dot(a[each, rows, at], b[each, at, cols], acc=sums)
        out[each, rows, cols] = sums.to(a.dtype)
    return out


@helion.kernel(static_shapes=True)
def fp8_gemm(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> torch.Tensor:
    """Returns a[M, K] @ b[N, K]^T of FP8 operands times a scale for each, in bfloat16."""
    m, k = a.size()
    n, _ = b.size()
    out = torch.empty([m, n], dtype=torch.bfloat16, device=a.device)
    for rows, cols in hl.tile([m, n]):
        sums = hl.zeros([rows, cols], dtype=torch.float32)
        for at in hl.tile(k):
            sums = hl.dot(a[rows, at], b[cols, at].T, acc=sums)
        out[rows, cols] = (sums * scale_a[0, 0] * scale_b[0, 0]).to(torch.bfloat16)
    return out


@helion.kernel(static_shapes=True)
def rope(
    x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    """Returns the heads of x[T, H, D] turned by the angles of each token's place."""
    tokens, heads, width = x.size()
    half = width // 2
    out = torch.empty([tokens, heads, width], dtype=x.dtype, device=x.device)
    source, target = x.view(tokens, heads, 2, half), out.view(tokens, heads, 2, half)
    for rows, each in hl.tile([tokens, heads]):
        at = places[rows]
        cosine = cosines[at, :].to(torch.float32)[:, None, :]
        sine = sines[at, :].to(torch.float32)[:, None, :]
        low = source[rows, each, 0, :].to(torch.float32)
        high = source[rows, each, 1, :].to(torch.float32)
        target[rows, each, 0, :] = (low * cosine - high * sine).to(x.dtype)
        target[rows, each, 1, :] = (high * cosine + low * sine).to(x.dtype)
    return out


# kernel of kt_lab -> the same operation here, and which of its inputs it takes
OPERATIONS: dict[str, tuple[Any, Sequence[str]]] = {
    "softmax": (softmax, ("x",)),
    "int4_gemm": (int4_gemm, ("a", "packed")),
    "rms_norm": (rms_norm, ("x", "weight")),
    "layer_norm": (layer_norm, ("x", "weight", "bias")),
    "swiglu": (swiglu, ("x",)),
    "matmul": (matmul, ("a", "b")),
    "bmm": (bmm, ("a", "b")),
    "row_sum": (row_sum, ("x",)),
    "rope": (rope, ("x", "cosines", "sines", "places")),
    "fp8_gemm": (fp8_gemm, ("a", "b", "scale_a", "scale_b")),
}


def arguments(kernel: str, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Returns the arguments of an operation out of the inputs of kt_lab's device module."""
    found = dict(inputs)
    if kernel == "rope":  # the value heads, which are not turned, come last
        found["x"] = found["x"].narrow(1, 0, found["out"].shape[1])
    return tuple(found[name] for name in OPERATIONS[kernel][1])


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
