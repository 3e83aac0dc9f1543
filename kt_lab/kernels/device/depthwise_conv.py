"""Depthwise convolution in Triton: strips of pixels and channels, marched down row by row."""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch
from kt_lab.workload import Workload


@triton.jit
def _pixels(image, row, pixels, channels, inside, H, W, C):
    """Loads pixels of one row as float32; zeros where the image ends."""
    rows = row + tl.zeros([1, 1], tl.int32)  # interpreted, a loop counts in Python's numbers
    within = inside & (pixels >= 0) & (pixels < W) & (rows >= 0) & (rows < H)
    offsets = (row * W + pixels) * C + channels
    return tl.load(image + offsets, mask=within, other=0.0).to(tl.float32)


@triton.jit
def _filters(weights, channels, inside, C, TAPS: tl.constexpr):
    """Loads all taps of the channels' filters, to be kept in registers."""
    taps = ()
    for tap in tl.static_range(TAPS):
        taps += (tl.load(weights + tap * C + channels, mask=inside, other=0.0),)
    return taps


@triton.jit
def _march(
    image, weights, target, row0, pixels, channels, inside, H, W, C, ROWS, R: tl.constexpr,
    BLOCK_W: tl.constexpr, BLOCK_C: tl.constexpr, KEEP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Writes ROWS rows; every input row is read once and added to the R rows that it is part of.

    Before input row i, sums[d] is what output row i - R // 2 + R - 1 - d has of the rows above.
    """
    taps = _filters(weights, channels, inside, C, R * R) if KEEP else ()
    sums = ()
    for _ in tl.static_range(R):
        sums += (tl.zeros([BLOCK_W, BLOCK_C], tl.float32),)
    last = tl.minimum(row0 + ROWS, H)
    for row in tl.range(row0 - R // 2, last + R // 2, num_stages=STAGES):
        for dx in tl.static_range(R):
            tile = _pixels(image, row, pixels + (dx - R // 2), channels, inside, H, W, C)
            added = ()
            for dy in tl.static_range(R):
                if KEEP:
                    tap = taps[dy * R + dx]
                else:
                    tap = tl.load(weights + (dy * R + dx) * C + channels, mask=inside, other=0.0)
                added += (sums[dy] + tile * tap.to(tl.float32),)
            sums = added
        done = row - R // 2 + tl.zeros([1, 1], tl.int32)
        out = sums[R - 1].to(target.dtype.element_ty)
        offsets = (done * W + pixels) * C + channels
        tl.store(target + offsets, out, mask=inside & (pixels < W) & (done >= row0))
        shifted = (tl.zeros([BLOCK_W, BLOCK_C], tl.float32),)
        for dy in tl.static_range(R - 1):
            shifted += (sums[dy],)
        sums = shifted


@triton.jit
def _gather(
    image, weights, target, row0, pixels, channels, inside, H, W, C, ROWS, R: tl.constexpr,
    BLOCK_W: tl.constexpr, BLOCK_C: tl.constexpr, KEEP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Writes ROWS rows, each from the R rows around it, which are read again for every row.

    With the filter in registers, all of R x R reads are unrolled and the next row's are in
    flight; else they are unrolled along a row only, and the next of the R rows is in flight.
    """
    taps = _filters(weights, channels, inside, C, R * R) if KEEP else ()
    for row in tl.range(row0, tl.minimum(row0 + ROWS, H), num_stages=STAGES if KEEP else 1):
        total = tl.zeros([BLOCK_W, BLOCK_C], tl.float32)
        if KEEP:
            for dy in tl.static_range(R):
                for dx in tl.static_range(R):
                    above, left = row + (dy - R // 2), pixels + (dx - R // 2)
                    tile = _pixels(image, above, left, channels, inside, H, W, C)
                    total += tile * taps[dy * R + dx].to(tl.float32)
        else:
            for dy in tl.range(0, R, num_stages=STAGES):
                for dx in tl.static_range(R):
                    above, left = row + (dy - R // 2), pixels + (dx - R // 2)
                    tile = _pixels(image, above, left, channels, inside, H, W, C)
                    tap = tl.load(weights + (dy * R + dx) * C + channels, mask=inside, other=0.0)
                    total += tile * tap.to(tl.float32)
        offsets = (row * W + pixels) * C + channels
        tl.store(target + offsets, total.to(target.dtype.element_ty), mask=inside & (pixels < W))


@triton.jit
def depthwise_conv(
    x, weights, out, H, W, C, rows, R: tl.constexpr, BLOCK_W: tl.constexpr,
    BLOCK_C: tl.constexpr, MARCH: tl.constexpr, KEEP: tl.constexpr, EVEN_C: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Writes `rows` rows of BLOCK_W pixels and BLOCK_C channels of one image of x[B, H, W, C]."""
    strips_c, strips_w, strips_h = tl.cdiv(C, BLOCK_C), tl.cdiv(W, BLOCK_W), tl.cdiv(H, rows)
    program = tl.program_id(0)
    channels = program % strips_c * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    pixels = program // strips_c % strips_w * BLOCK_W + tl.arange(0, BLOCK_W)[:, None]
    row0 = program // (strips_c * strips_w) % strips_h * rows
    start = (program // (strips_c * strips_w * strips_h)).to(tl.int64) * H * W * C
    inside = tl.full([1, BLOCK_C], True, tl.int1) if EVEN_C else channels < C
    if MARCH:
        _march(
            x + start, weights, out + start, row0, pixels, channels, inside, H, W, C, rows, R,
            BLOCK_W, BLOCK_C, KEEP, STAGES,
        )  # fmt: skip
    else:
        _gather(
            x + start, weights, out + start, row0, pixels, channels, inside, H, W, C, rows, R,
            BLOCK_W, BLOCK_C, KEEP, STAGES,
        )  # fmt: skip


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns images x[B, H, W, C] and filters [R, R, C], standard normal; an output of NaN.

    R must be odd.
    """
    b, h, w, c, r = (workload.extents[name] for name in "BHWCR")
    known = {"generator": torch.Generator(device=device).manual_seed(seed), "device": device}
    x = torch.randn(b, h, w, c, dtype=torch.float16, **known)
    weights = torch.randn(r, r, c, dtype=torch.float16, **known)
    return {"x": x, "weights": weights, "out": torch.full_like(x, float("nan"))}


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return dict.fromkeys(("x", "weights", "out"), torch.float16)


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:
    """Returns the convolution in float32, tap by tap: torch's own may round to TF32."""
    h, w, r = (workload.extents[name] for name in "HWR")
    x, weights = inputs["x"].float(), inputs["weights"].float()
    padded = torch.nn.functional.pad(x, (0, 0, r // 2, r // 2, r // 2, r // 2))
    total = torch.zeros_like(x)
    for dy in range(r):
        for dx in range(r):
            total += padded[:, dy : dy + h, dx : dx + w] * weights[dy, dx]
    return total


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; the grid does not depend on `sms`."""
    b, h, w, c, r = (workload.extents[name] for name in "BHWCR")
    block_w, block_c, rows = config["BLOCK_W"], config["BLOCK_C"], config["ROWS"]
    constexprs = {
        "R": r,
        "BLOCK_W": block_w,
        "BLOCK_C": block_c,
        "MARCH": config["READ"] == "march",
        "KEEP": config.get("FILTER") == "registers",
        "EVEN_C": c % block_c == 0,
        "STAGES": config["num_stages"],
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    strips = triton.cdiv(c, block_c) * triton.cdiv(w, block_w) * triton.cdiv(h, rows)
    args = (inputs["x"], inputs["weights"], inputs["out"], h, w, c, rows)
    return Launch(depthwise_conv, (b * strips,), args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's convolution with a group per channel, channels last as here."""
    c, r = workload.extents["C"], workload.extents["R"]
    x, weights = inputs["x"].permute(0, 3, 1, 2), inputs["weights"].permute(2, 0, 1)[:, None]
    weights, conv = weights.contiguous(), torch.nn.functional.conv2d
    return lambda: conv(x, weights, padding=r // 2, groups=c), "conv2d, channels last"
