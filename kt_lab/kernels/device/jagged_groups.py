"""FP8 with a scale per line and group of tokens, in Triton: rowwise and colwise are one kernel.

A line is a feature, over all tokens. Rowwise, lines are the rows of a matrix whose columns are
tokens; colwise, the columns of one whose rows are tokens. In memory either is x[TOKENS, WIDTH],
features first, or x[WIDTH, TOKENS], tokens first (colwise only, where somebody copied it). What
is written is out[WIDTH, TOKENS], tokens first, and scales[GROUPS, WIDTH].
"""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.errors import UsageError
from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.fp8_scales import (
    cast,
    interpreting,
    powers,
    scale_of,
    scales,
    to_e4m3,
    unwritten,
)
from kt_lab.kernels.jagged_groups import TOKENS_FIRST
from kt_lab.kernels.moe_groups import aligned, group_ends
from kt_lab.workload import Workload


@triton.jit
def load_lines(
    x, line0, token0, end, WIDTH, TOKENS,
    BLOCK: tl.constexpr, BLOCK_ITER: tl.constexpr, TOKENS_ARE_FIRST: tl.constexpr,
):  # fmt: skip
    """Returns the tile [BLOCK, BLOCK_ITER] of lines and tokens in float32; zero past the ends."""
    lines, tokens = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK_ITER)[None, :]
    if TOKENS_ARE_FIRST:
        source = x + (line0.to(tl.int64) * TOKENS + token0) + (lines * TOKENS + tokens)
    else:
        source = x + (token0.to(tl.int64) * WIDTH + line0) + (tokens * WIDTH + lines)
    inside = (line0 + lines < WIDTH) & (token0 + tokens < end)
    return tl.load(source, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def scale_lines(
    x, ends, scales, out, WIDTH, TOKENS, GROUPS,
    BLOCK: tl.constexpr, BLOCK_ITER: tl.constexpr, TOKENS_ARE_FIRST: tl.constexpr,
    ASSUME: tl.constexpr, ONCE: tl.constexpr, BACKWARD: tl.constexpr, LINES_FIRST: tl.constexpr,
    POWERS: tl.constexpr, STAGES: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Writes the scales of BLOCK lines in one group, then those lines times them."""
    blocks, program = tl.cdiv(WIDTH, BLOCK), tl.program_id(0)
    line0 = (program % blocks if LINES_FIRST else program // GROUPS) * BLOCK
    group = program // blocks if LINES_FIRST else program % GROUPS
    start = tl.load(ends + group - 1, mask=group > 0, other=0)
    end = tl.load(ends + group)
    if ASSUME > 1:
        start, end = tl.multiple_of(start, ASSUME), tl.multiple_of(end, ASSUME)
    largest = tl.zeros([BLOCK, BLOCK_ITER] if ONCE else [BLOCK], tl.float32)
    steps = tl.cdiv(end - start, BLOCK_ITER)
    for i in tl.range(0, steps, num_stages=STAGES):
        at = start + i * BLOCK_ITER
        tile = load_lines(
            x, line0, at, end, WIDTH, TOKENS, BLOCK, BLOCK_ITER, TOKENS_ARE_FIRST
        )  # fmt: skip
        largest = tl.maximum(largest, tl.abs(tile) if ONCE else tl.max(tl.abs(tile), 1))
    scale = scale_of(tl.max(largest, 1) if ONCE else largest, POWERS)
    lines = line0 + tl.arange(0, BLOCK)
    # What exists is told by the line, not by its place in the tile: the last tile may be ragged.
    tl.store(scales + group.to(tl.int64) * WIDTH + lines, scale, mask=lines < WIDTH)
    ids, tokens = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK_ITER)[None, :]
    for i in tl.range(0, steps, num_stages=STAGES):
        at = start + (steps - 1 - i if BACKWARD else i) * BLOCK_ITER
        tile = load_lines(
            x, line0, at, end, WIDTH, TOKENS, BLOCK, BLOCK_ITER, TOKENS_ARE_FIRST
        )  # fmt: skip
        values = to_e4m3(tile * scale[:, None], INTERPRET)
        target = out + (line0.to(tl.int64) * TOKENS + at) + (ids * TOKENS + tokens)
        inside = (line0 + ids < WIDTH) & (at + tokens < end)
        tl.store(target, values, mask=inside)


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns standard normal tokens but for a line of zeros, ends of groups, outputs of NaN."""
    tokens, width, groups = (workload.extents[n] for n in ("TOKENS", "WIDTH", "GROUPS"))
    known = {"generator": torch.Generator(device=device).manual_seed(seed), "device": device}
    x = torch.randn(tokens, width, dtype=getattr(torch, workload.dtype), **known)
    x[:, -1] = 0.0
    return {
        "x": x.T.contiguous() if _tokens_first(workload) else x,
        "ends": torch.tensor(group_ends(workload), dtype=torch.int32, device=device),
        "scales": unwritten(groups, width, dtype=torch.float32, device=device),
        "out": unwritten(width, tokens, dtype=torch.float8_e4m3fn, device=device),
    }


def _tokens_first(workload: Workload) -> bool:
    return workload.extents["LAYOUT"] == TOKENS_FIRST


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    return {
        "x": getattr(torch, workload.dtype),
        "ends": torch.int32,
        "scales": torch.float32,
        "out": torch.float8_e4m3fn,
    }


def _lines(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:
    return inputs["x"] if _tokens_first(workload) else inputs["x"].T


def reference(
    inputs: Mapping[str, torch.Tensor], workload: Workload
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns out[WIDTH, TOKENS] and the scales (GROUPS, WIDTH), group by group, exactly."""
    x, start = _lines(inputs, workload), 0
    out, found = torch.empty_like(inputs["out"]), []
    for end in group_ends(workload):
        of_group = x[:, start:end]
        amax = of_group.abs().amax(1) if end > start else torch.zeros_like(x[:, 0])
        found.append(scales(amax, workload))
        out[:, start:end] = cast(of_group, found[-1][:, None])
        start = end
    return out, torch.stack(found)


def output(inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the tensors that the kernel writes."""
    return inputs["out"], inputs["scales"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:  # noqa: ARG001
    """Returns the launch of one config; the grid does not depend on `sms`.

    Raises:
        UsageError: The config takes the ends of groups to be multiples that they are not.
    """
    tokens, width, groups = (workload.extents[n] for n in ("TOKENS", "WIDTH", "GROUPS"))
    if config["ASSUME"] > 1 and not aligned(workload):
        raise UsageError(
            f"ASSUME={config['ASSUME']} needs groups that end at such multiples, got "
            f"{group_ends(workload)}; take ASSUME=1"
        )
    constexprs = {
        "BLOCK": config["BLOCK"],
        "BLOCK_ITER": config["BLOCK_ITER"],
        "TOKENS_ARE_FIRST": _tokens_first(workload),
        "ASSUME": config["ASSUME"],
        "ONCE": config["ONCE"],
        "BACKWARD": config["BACKWARD"],
        "LINES_FIRST": config["FIRST"] == "lines",
        "POWERS": powers(workload),
        "STAGES": config["num_stages"] if config["PIPELINED"] else 1,
        "INTERPRET": interpreting(),
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    args = (inputs["x"], inputs["ends"], inputs["scales"], inputs["out"], width, tokens, groups)
    return Launch(scale_lines, (triton.cdiv(width, config["BLOCK"]) * groups,), args, constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor], workload: Workload
) -> tuple[Callable[[], tuple[torch.Tensor, torch.Tensor]], str]:
    """Returns torch's way, a loop over groups whose ends the host knows."""
    return lambda: reference(inputs, workload), "amax, scale and cast of each group"
