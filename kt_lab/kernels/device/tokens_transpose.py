"""Copy of tokens to column-major, in Triton: launch, inputs, reference."""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.workload import Workload


@triton.jit
def _copy(
    x, out, token0, feature0, TOKENS, WIDTH,
    BLOCK_T: tl.constexpr, BLOCK_W: tl.constexpr, EVICTION: tl.constexpr,
):  # fmt: skip
    tokens, features = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_W)
    source = x + (token0.to(tl.int64) * WIDTH + feature0)
    inside = (tokens[:, None] < TOKENS - token0) & (features[None, :] < WIDTH - feature0)
    at = tokens[:, None] * WIDTH + features[None, :]
    tile = tl.load(source + at, mask=inside, other=0.0, eviction_policy=EVICTION)
    target = out + (feature0.to(tl.int64) * TOKENS + token0)
    inside = (features[:, None] < WIDTH - feature0) & (tokens[None, :] < TOKENS - token0)
    at = features[:, None] * TOKENS + tokens[None, :]
    tl.store(target + at, tl.trans(tile), mask=inside, eviction_policy=EVICTION)


@triton.jit
def transpose(
    x, out, TOKENS, WIDTH, trips,
    BLOCK_T: tl.constexpr, BLOCK_W: tl.constexpr, LOOP: tl.constexpr, FEATURES_FIRST: tl.constexpr,
    EVICTION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Writes `trips` tiles of x[TOKENS, WIDTH], one after the other along the tokens."""
    blocks, chunks = tl.cdiv(WIDTH, BLOCK_W), tl.cdiv(tl.cdiv(TOKENS, BLOCK_T), trips)
    program = tl.program_id(0)
    feature0 = (program % blocks if FEATURES_FIRST else program // chunks) * BLOCK_W
    chunk = program // blocks if FEATURES_FIRST else program % chunks
    first = chunk * trips
    if LOOP:
        steps = tl.minimum(trips, tl.cdiv(TOKENS, BLOCK_T) - first)
        for i in tl.range(0, steps, num_stages=STAGES):
            token0 = (first + i) * BLOCK_T
            _copy(x, out, token0, feature0, TOKENS, WIDTH, BLOCK_T, BLOCK_W, EVICTION)
    else:
        _copy(x, out, chunk * BLOCK_T, feature0, TOKENS, WIDTH, BLOCK_T, BLOCK_W, EVICTION)


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns x[TOKENS, WIDTH], standard normal, and an output of NaN."""
    tokens, width = workload.extents["TOKENS"], workload.extents["WIDTH"]
    known = {"generator": torch.Generator(device=device).manual_seed(seed), "device": device}
    x = torch.randn(tokens, width, dtype=getattr(torch, workload.dtype), **known)
    return {"x": x, "out": torch.full((width, tokens), float("nan"), dtype=x.dtype, device=device)}


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return dict.fromkeys(("x", "out"), getattr(torch, workload.dtype))


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns the transposed copy."""
    return inputs["x"].T.contiguous()


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; the grid does not depend on `sms`."""
    tokens, width = workload.extents["TOKENS"], workload.extents["WIDTH"]
    trips = config["TRIPS"]
    constexprs = {
        "BLOCK_T": config["BLOCK_T"],
        "BLOCK_W": config["BLOCK_W"],
        "LOOP": trips > 1,
        "FEATURES_FIRST": config["FIRST"] == "features",
        "EVICTION": config["EVICTION"],
        "STAGES": config["num_stages"],
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    chunks = triton.cdiv(triton.cdiv(tokens, config["BLOCK_T"]), trips)
    grid = (triton.cdiv(width, config["BLOCK_W"]) * chunks,)
    return Launch(transpose, grid, (inputs["x"], inputs["out"], tokens, width, trips), constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's copy of the transposed view."""
    return lambda: inputs["out"].copy_(inputs["x"].T), "out.copy_(x.T)"
