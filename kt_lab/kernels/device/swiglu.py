"""Gated activation in Triton: tiles of both halves, one after the other."""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.workload import Workload

_LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x * log2(e)); exp2 is one instruction


@triton.jit
def _tile(
    x, out, tile, M, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, EVICTION: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr,
):  # fmt: skip
    columns = tl.cdiv(N, BLOCK_N)
    rows = (tile // columns * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    cols = (tile % columns * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    source = x + rows * (2 * N) + cols
    if EVEN_M and EVEN_N:
        inside = None
    elif EVEN_M:
        inside = cols < N
    elif EVEN_N:
        inside = rows < M
    else:
        inside = (rows < M) & (cols < N)
    gate = tl.load(source, mask=inside, eviction_policy=EVICTION).to(tl.float32)
    up = tl.load(source + N, mask=inside, eviction_policy=EVICTION).to(tl.float32)
    value = gate / (1.0 + tl.exp2(-(gate * _LOG2E))) * up
    target = out + rows * N + cols
    tl.store(target, value.to(out.dtype.element_ty), mask=inside, eviction_policy=EVICTION)


@triton.jit
def swiglu(
    x, out, M, N, trips,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, LOOP: tl.constexpr, STRIDED: tl.constexpr,
    EVICTION: tl.constexpr, EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Writes silu(x[:, :N]) * x[:, N:] of the contiguous x[M, 2N] to out[M, N]."""
    program = tl.program_id(0)
    if not LOOP:
        _tile(x, out, program, M, N, BLOCK_M, BLOCK_N, EVICTION, EVEN_M, EVEN_N)
    else:
        tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        first = program if STRIDED else program * trips
        last = tiles if STRIDED else tl.minimum(first + trips, tiles)
        step = tl.num_programs(0) if STRIDED else 1
        for tile in tl.range(first, last, step, num_stages=STAGES):
            _tile(x, out, tile, M, N, BLOCK_M, BLOCK_N, EVICTION, EVEN_M, EVEN_N)


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns x[M, 2N], standard normal, and an output of NaN."""
    m, n = workload.extents["M"], workload.extents["N"]
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(m, 2 * n, generator=generator, device=device, dtype=torch.bfloat16)
    out = torch.full((m, n), float("nan"), device=device, dtype=torch.bfloat16)
    return {"x": x, "out": out}


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return {"x": torch.bfloat16, "out": torch.bfloat16}


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns silu(gate) * up in float32."""
    gate, up = inputs["x"].float().chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; the grid does not depend on `sms`."""
    m, n = workload.extents["M"], workload.extents["N"]
    block_m, block_n, trips = config["BLOCK_M"], config["BLOCK_N"], config["TRIPS"]
    constexprs = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "LOOP": trips > 1,
        "STRIDED": config["ORDER"] == "strided",
        "EVICTION": config["EVICTION"],
        "EVEN_M": m % block_m == 0,
        "EVEN_N": n % block_n == 0,
        "STAGES": config["num_stages"],
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    tiles = -(-m // block_m) * -(-n // block_n)
    args = (inputs["x"], inputs["out"], m, n, trips)
    return Launch(swiglu, (-(-tiles // trips),), args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's silu and product, two kernels, on the same halves."""
    gate, up = inputs["x"].chunk(2, -1)
    out = torch.empty_like(inputs["out"])
    return lambda: torch.mul(torch.nn.functional.silu(gate), up, out=out), "silu(gate) * up"
