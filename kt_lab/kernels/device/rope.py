"""Rotary position embedding in Triton: heads of a few tokens, tile after tile."""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.kernels.rope import positions
from kt_lab.workload import Workload


@triton.jit
def _tables(cosines, sines, places, at, inside, HALF: tl.constexpr):
    """Loads the cosines and sines of tokens at columns `at` of the tables; both broadcast."""
    place = tl.load(places)
    offsets = place * HALF + at
    cosine = tl.load(cosines + offsets, mask=inside, other=0.0).to(tl.float32)
    return cosine, tl.load(sines + offsets, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _rotate_halves(source, target, inside, cosine, sine, HALF: tl.constexpr):  # fmt: skip
    low = tl.load(source, mask=inside).to(tl.float32)
    high = tl.load(source + HALF, mask=inside).to(tl.float32)
    turned = (low * cosine - high * sine).to(target.dtype.element_ty)
    tl.store(target, turned, mask=inside)
    turned = (high * cosine + low * sine).to(target.dtype.element_ty)
    tl.store(target + HALF, turned, mask=inside)


@triton.jit
def _rotate_whole(source, partner, target, inside, cosine, sine):
    value = tl.load(source, mask=inside).to(tl.float32)
    other = tl.load(partner, mask=inside).to(tl.float32)
    turned = (value * cosine + other * sine).to(target.dtype.element_ty)
    tl.store(target, turned, mask=inside)


@triton.jit
def rope(
    x, cosines, sines, places, out, tokens, heads, stride, trips,
    BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr, HALF: tl.constexpr, COLS: tl.constexpr,
    PARTNER: tl.constexpr, HEADS_FIRST: tl.constexpr,
    EVEN_T: tl.constexpr, EVEN_H: tl.constexpr, EVEN_D: tl.constexpr, LOOP: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Turns the first `heads` heads of every token of x[tokens, stride] by the token's angles.

    A program for `trips` tiles of heads and a block of tokens; COLS is 2 * HALF, or HALF if
    halves are read apart, rounded up to a power of two.
    """
    chunks, blocks = tl.cdiv(tl.cdiv(heads, BLOCK_H), trips), tl.cdiv(tokens, BLOCK_T)
    program = tl.program_id(0)
    chunk = program % chunks if HEADS_FIRST else program // blocks
    block = program // chunks if HEADS_FIRST else program % blocks
    token = (block * BLOCK_T + tl.arange(0, BLOCK_T))[:, None, None]
    # Tokens past the end read the last one again, so that loads of places need no mask.
    read = token if EVEN_T else tl.minimum(token, tokens - 1)
    cols = tl.arange(0, COLS)[None, None, :]
    within = (
        tl.full([1, 1, COLS], True, tl.int1) if EVEN_D else cols < (2 if PARTNER else 1) * HALF
    )
    at = cols % HALF if PARTNER else cols
    cosine, sine = _tables(cosines, sines, places + read, at, within, HALF)
    if PARTNER:
        sine = tl.where(cols < HALF, -sine, sine)
    other = tl.where(cols < HALF, HALF, -HALF)
    row = token.to(tl.int64)
    first = chunk * trips if LOOP else chunk
    last = tl.minimum(first + trips, tl.cdiv(heads, BLOCK_H)) if LOOP else chunk + 1
    for tile in tl.range(first, last, num_stages=STAGES):
        head = (tile * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]
        if EVEN_T and EVEN_H and EVEN_D:
            inside = None
        else:
            inside = within & (token < tokens) & (head < heads)
        source = x + row * stride + (head * (2 * HALF) + cols)
        target = out + row * (heads * (2 * HALF)) + (head * (2 * HALF) + cols)
        if PARTNER:
            _rotate_whole(source, source + other, target, inside, cosine, sine)
        else:
            _rotate_halves(source, target, inside, cosine, sine, HALF)


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns fused projections, tables, places of the tokens and an output of NaN.

    x[B * S, H + 2 * HK, D] holds query, key and value heads, standard normal; the value heads are
    not read. Every sequence starts at a random place of its context, base 500,000 as Llama-3's.
    D must be even.
    """
    b, s, h, hk, d = (workload.extents[name] for name in ("B", "S", "H", "HK", "D"))
    generator = torch.Generator(device=device).manual_seed(seed)
    known = {"generator": generator, "device": device}
    x = torch.randn(b * s, h + 2 * hk, d, dtype=torch.bfloat16, **known)
    longest = positions(workload)
    starts = torch.randint(0, longest - s + 1, (b, 1), **known)
    places = (starts + torch.arange(s, device=device)).reshape(-1)
    exponents = torch.arange(0, d, 2, device=device, dtype=torch.float64) / d
    angles = torch.arange(longest, device=device)[:, None] * 500_000.0**-exponents
    return {
        "x": x,
        "cosines": angles.cos().to(torch.bfloat16),
        "sines": angles.sin().to(torch.bfloat16),
        "places": places,
        "out": torch.full((b * s, h + hk, d), float("nan"), device=device, dtype=torch.bfloat16),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    half = dict.fromkeys(("x", "cosines", "sines", "out"), torch.bfloat16)
    return half | {"places": torch.int64}


def _turned(inputs: Mapping[str, torch.Tensor], dtype: torch.dtype) -> Callable[[], torch.Tensor]:
    """Returns what computes the embedding in torch, in one dtype; angles are looked up before."""
    x, places = inputs["x"].to(dtype), inputs["places"]
    cosine, sine = (
        inputs[name][places].to(dtype).repeat(1, 2)[:, None] for name in ("cosines", "sines")
    )
    heads, half = inputs["out"].shape[1], x.shape[2] // 2

    def turn() -> torch.Tensor:
        turning = x[:, :heads]
        swapped = torch.cat((-turning[..., half:], turning[..., :half]), -1)
        return turning * cosine + swapped * sine

    return turn


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:  # noqa: ARG001
    """Returns the embedding in float32."""
    return _turned(inputs, torch.float32)()


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; the grid does not depend on `sms`."""
    b, s, h, hk, d = (workload.extents[name] for name in ("B", "S", "H", "HK", "D"))
    block_t, block_h, trips = config["BLOCK_T"], config["BLOCK_H"], config["TRIPS"]
    partner = config["ROTATE"] == "partner"
    cols = d if partner else d // 2
    constexprs = {
        "BLOCK_T": block_t,
        "BLOCK_H": block_h,
        "HALF": d // 2,
        "COLS": triton.next_power_of_2(cols),
        "PARTNER": partner,
        "HEADS_FIRST": config["FIRST"] == "heads",
        "EVEN_T": b * s % block_t == 0,
        "EVEN_H": (h + hk) % block_h == 0,
        "EVEN_D": triton.next_power_of_2(cols) == cols,
        "LOOP": trips > 1,
        "STAGES": config["num_stages"],
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    chunks = triton.cdiv(triton.cdiv(h + hk, block_h), trips)
    blocks = triton.cdiv(b * s, block_t)
    tensors = (inputs[name] for name in ("x", "cosines", "sines", "places", "out"))
    args = (*tensors, b * s, h + hk, (h + 2 * hk) * d, trips)
    return Launch(rope, (chunks * blocks,), args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's products and sum, as in the Llama of Hugging Face, in bfloat16."""
    return _turned(inputs, torch.bfloat16), "x * cos + rotate_half(x) * sin"
