"""GroupNorm in Triton: the programs that share a group tell each other what they have summed.

A program that has stored its part's moments waits for those of the group's other programs. That
ends because GPUs start programs in the order of their numbers, which those of a group have in a
row, and as long as so many run at once; where they do not, and in the interpreter, which runs one
after the other, every program reads the whole group. Counters are zero before a launch, and every
launch leaves them so.
"""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.row_tiles import merge
from kt_lab.kernels.group_norm import MOST_PROGRAMS
from kt_lab.workload import Workload

EPS = 1e-5  # torch's default
_EPS = tl.constexpr(EPS)


@triton.jit
def _place(block, D, S, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr, EVEN: tl.constexpr):
    """Returns channels, offsets within the group and what is inside, of one block."""
    across = tl.cdiv(S, BLOCK_S)
    first = block // across * BLOCK_D
    start = block % across * BLOCK_S
    channels = first + tl.arange(0, BLOCK_D)
    pixels = start + tl.arange(0, BLOCK_S)
    offsets = channels.to(tl.int64)[:, None] * S + pixels[None, :]
    if EVEN:
        inside = tl.full([BLOCK_D, BLOCK_S], True, tl.int1)
    else:
        inside = (channels[:, None] < D) & (pixels[None, :] < S)
    count = tl.minimum(D - first, BLOCK_D) * tl.minimum(S - start, BLOCK_S)
    return channels, offsets, inside, count.to(tl.float32)


@triton.jit
def _load(x, offsets, inside, EVEN: tl.constexpr, EVICTION: tl.constexpr):
    if EVEN:
        tile = tl.load(x + offsets, eviction_policy=EVICTION)
    else:
        tile = tl.load(x + offsets, mask=inside, other=0.0, eviction_policy=EVICTION)
    return tile.to(tl.float32)


@triton.jit
def _tile_moments(tile, inside, count, CENTRED: tl.constexpr):
    """Returns mean and sum of squared deviations of a tile that is zero outside."""
    mean = tl.sum(tile) / count
    if CENTRED:
        centred = tl.where(inside, tile - mean, 0.0)
        spread = tl.sum(centred * centred)
    else:
        spread = tl.maximum(tl.sum(tile * tile) - mean * mean * count, 0.0)
    return mean, spread


@triton.jit
def _moments(
    x, first, last, D, S, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr, CENTRED: tl.constexpr,
    EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Returns count, mean and sum of squared deviations of the blocks first..last - 1."""
    count = 0.0
    if CENTRED:
        mean = 0.0
        spread = 0.0
        for block in tl.range(first, last, num_stages=STAGES):
            _, offsets, inside, more = _place(block, D, S, BLOCK_D, BLOCK_S, EVEN)
            tile = _load(x, offsets, inside, EVEN, "")
            apart, wider = _tile_moments(tile, inside, more, CENTRED)
            count, mean, spread = merge(count, mean, spread, more, apart, wider)
    else:
        total = tl.zeros([BLOCK_D, BLOCK_S], tl.float32)
        squares = tl.zeros([BLOCK_D, BLOCK_S], tl.float32)
        for block in tl.range(first, last, num_stages=STAGES):
            _, offsets, inside, more = _place(block, D, S, BLOCK_D, BLOCK_S, EVEN)
            tile = _load(x, offsets, inside, EVEN, "")
            total += tile
            squares += tile * tile
            count += more
        mean = tl.sum(total) / count
        spread = tl.maximum(tl.sum(squares) - mean * mean * count, 0.0)
    return count, mean, spread


@triton.jit
def _exchange(
    workspace, counters, row, part, count, mean, spread, SPLIT: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """Returns the moments of the whole group, once all of its programs have told theirs."""
    mine = workspace + (row * SPLIT + part) * 3
    tl.store(mine, count)
    tl.store(mine + 1, mean)
    tl.store(mine + 2, spread)
    tl.debug_barrier()  # all is stored before one thread announces it
    here = counters + 2 * row
    seen = tl.atomic_add(here, 1, sem="acq_rel", scope="gpu") + 1
    while seen < SPLIT:
        seen = tl.atomic_add(here, 0, sem="acquire", scope="gpu")
    tl.debug_barrier()
    parts = tl.arange(0, WIDTH)
    # Other multiprocessors wrote these: read them from L2, past the L1 cache.
    theirs = workspace + (row * SPLIT + parts) * 3
    counts = tl.load(theirs, mask=parts < SPLIT, other=0.0, cache_modifier=".cg")
    means = tl.load(theirs + 1, mask=parts < SPLIT, other=0.0, cache_modifier=".cg")
    spreads = tl.load(theirs + 2, mask=parts < SPLIT, other=0.0, cache_modifier=".cg")
    if tl.atomic_add(here + 1, 1, sem="acq_rel", scope="gpu") == SPLIT - 1:
        tl.store(here, 0)  # all have seen it: ready for the next launch
        tl.store(here + 1, 0)
    count = tl.sum(counts)
    mean = tl.sum(counts * means) / count
    apart = means - mean
    return count, mean, tl.sum(spreads + counts * apart * apart)


@triton.jit
def _finish(
    tile, weight, bias, out, channels, offsets, inside, D, mean, inverse, EVEN: tl.constexpr
):  # fmt: skip
    """Scales a tile and writes it."""
    scale = tl.load(weight + channels, mask=channels < D, other=0.0).to(tl.float32) * inverse
    shift = tl.load(bias + channels, mask=channels < D, other=0.0).to(tl.float32) - mean * scale
    values = (tile * scale[:, None] + shift[:, None]).to(out.dtype.element_ty)
    if EVEN:
        tl.store(out + offsets, values)
    else:
        tl.store(out + offsets, values, mask=inside)


@triton.jit
def group_norm(
    x, weight, bias, out, workspace, counters, groups, D, S, BLOCK_D: tl.constexpr,
    BLOCK_S: tl.constexpr, TRIPS: tl.constexpr, SPLIT: tl.constexpr, WIDTH: tl.constexpr,
    CENTRED: tl.constexpr, BACKWARDS: tl.constexpr, MEET: tl.constexpr,
    EVEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Normalises groups of D channels of S pixels; programs (image, group, part) in a row."""
    row, part = tl.program_id(0) // SPLIT, tl.program_id(0) % SPLIT
    blocks = tl.cdiv(D, BLOCK_D) * tl.cdiv(S, BLOCK_S)
    first = part * TRIPS
    last = tl.minimum(first + TRIPS, blocks)
    base = row.to(tl.int64) * D * S
    x += base
    out += base
    weight += row % groups * D
    bias += row % groups * D
    if TRIPS == 1:  # the part is one tile and stays in registers
        channels, offsets, inside, count = _place(first, D, S, BLOCK_D, BLOCK_S, EVEN)
        tile = _load(x, offsets, inside, EVEN, "")
        if MEET or SPLIT == 1:
            mean, spread = _tile_moments(tile, inside, count, CENTRED)
    elif MEET or SPLIT == 1:
        count, mean, spread = _moments(
            x, first, last, D, S, BLOCK_D, BLOCK_S, CENTRED, EVEN, STAGES
        )  # fmt: skip
    if MEET:
        count, mean, spread = _exchange(
            workspace, counters, row, part, count, mean, spread, SPLIT, WIDTH
        )  # fmt: skip
    elif SPLIT > 1:
        count, mean, spread = _moments(
            x, 0, blocks, D, S, BLOCK_D, BLOCK_S, CENTRED, EVEN, STAGES
        )  # fmt: skip
    inverse = tl.rsqrt(spread / count + _EPS)
    if TRIPS == 1:
        _finish(tile, weight, bias, out, channels, offsets, inside, D, mean, inverse, EVEN)
    else:
        for step in tl.range(first, last, num_stages=STAGES):
            # What was read last is the likeliest to be cached.
            block = first + last - 1 - step if BACKWARDS else step
            channels, offsets, inside, _ = _place(block, D, S, BLOCK_D, BLOCK_S, EVEN)
            tile = _load(x, offsets, inside, EVEN, "evict_first")
            _finish(tile, weight, bias, out, channels, offsets, inside, D, mean, inverse, EVEN)


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns x[B, G * D, H, W] of mean 1/2 and variance 1, weights around 1, biases."""
    b, g, d, h, w = (workload.extents[name] for name in "BGDHW")
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(b, g * d, h, w, generator=generator, device=device).add_(0.5)
    weight = 1 + torch.randn(g * d, generator=generator, device=device) / 4
    bias = torch.randn(g * d, generator=generator, device=device) / 4
    x = x.to(torch.float16)
    return {
        "x": x,
        "weight": weight.to(torch.float16),
        "bias": bias.to(torch.float16),
        "out": torch.full_like(x, float("nan")),
        "workspace": torch.full((b * g, MOST_PROGRAMS, 3), float("nan"), device=device),
        "counters": torch.zeros(b * g, 2, device=device, dtype=torch.int32),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    halves = dict.fromkeys(("x", "weight", "bias", "out"), torch.float16)
    return halves | {"workspace": torch.float32, "counters": torch.int32}


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:
    """Returns the normalised groups in float32."""
    x, weight, bias = (inputs[name].float() for name in ("x", "weight", "bias"))
    return torch.nn.functional.group_norm(x, workload.extents["G"], weight, bias, EPS)


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:
    """Returns the launch of one config on a GPU with `sms` multiprocessors."""
    b, g, d, h, w = (workload.extents[name] for name in "BGDHW")
    block_d, block_s, trips = config["BLOCK_D"], config["BLOCK_S"], config["TRIPS"]
    split = -(-(-(-d // block_d) * -(-(h * w) // block_s)) // trips)
    constexprs = {
        "BLOCK_D": block_d,
        "BLOCK_S": block_s,
        "TRIPS": trips,
        "SPLIT": split,
        "WIDTH": 1 << (split - 1).bit_length(),
        "CENTRED": config["VARIANCE"] == "centred",
        "BACKWARDS": config["ORDER"] == "backwards",
        "MEET": 1 < split <= sms and not triton.knobs.runtime.interpret,
        "EVEN": d % block_d == 0 and h * w % block_s == 0,
        "STAGES": config["num_stages"],
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    names = ("x", "weight", "bias", "out", "workspace", "counters")
    args = (*(inputs[name] for name in names), g, d, h * w)
    return Launch(group_norm, (b * g * split,), args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor], workload: Workload
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's own GroupNorm on the same input."""
    x, weight, bias = (inputs[name] for name in ("x", "weight", "bias"))
    groups, call = workload.extents["G"], torch.nn.functional.group_norm
    return lambda: call(x, groups, weight, bias, EPS), "torch.nn.functional.group_norm"
