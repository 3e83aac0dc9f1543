"""Cross entropy in Triton: rows of logits, whole or in shares that the last to come joins."""

import math
from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from kt_lab.kernels.cross_entropy import max_split
from kt_lab.kernels.device import Launch
from kt_lab.kernels.device.cross_entropy_rows import LOG2E, LOWEST, share_of_rows
from kt_lab.workload import Workload

IGNORED = -100  # torch's default
_IGNORED = tl.constexpr(IGNORED)
_LN2 = tl.constexpr(0.6931471805599453)
_AT_ONCE = 2**26  # logits whose float64 copies fit beside the rest


@triton.jit
def _join(
    shift, total, logit, workspace, counters, block, rows, inside, M, PICK: tl.constexpr
):  # fmt: skip
    """Leaves a share's numbers in the workspace; the last to come joins all in share order.

    Returns what belongs to the whole rows, and True, in the program that came last; else
    something and False. A launch must find the counters at zero, and leaves them so.
    """
    shares = tl.num_programs(1)
    size = tl.cast(M, tl.int64)
    mine = workspace + tl.program_id(1) * 3 * size + rows
    tl.store(mine, shift, mask=inside)
    tl.store(mine + size, total, mask=inside)
    if PICK:
        tl.store(mine + 2 * size, logit, mask=inside)
    tl.debug_barrier()  # every thread has stored before one of them announces it
    is_last = tl.atomic_add(counters + block, 1, sem="acq_rel", scope="gpu") == shares - 1
    if is_last:
        shift = tl.zeros_like(shift) + LOWEST
        total = tl.zeros_like(total)
        if PICK:
            logit = tl.zeros_like(logit)
        part = workspace + rows
        for _ in range(shares):
            # Other multiprocessors wrote these: read them from L2, past the L1 cache.
            other = tl.load(part, mask=inside, other=0.0, cache_modifier=".cg")
            more = tl.load(part + size, mask=inside, other=0.0, cache_modifier=".cg")
            higher = tl.maximum(shift, other)
            total = total * tl.exp2((shift - higher) * LOG2E)
            total += more * tl.exp2((other - higher) * LOG2E)
            shift = higher
            if PICK:
                logit += tl.load(part + 2 * size, mask=inside, other=0.0, cache_modifier=".cg")
            part += 3 * size
        tl.store(counters + block, 0)  # ready for the next launch
    return shift, total, logit, is_last


@triton.jit
def _row_block(
    x, targets, out, workspace, counters, block, M, V, BLOCK_M: tl.constexpr,
    BLOCK_V: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr, METHOD: tl.constexpr,
    PICK: tl.constexpr, SHARED: tl.constexpr, ONE_TILE: tl.constexpr, EVEN_V: tl.constexpr,
    ALIGNED: tl.constexpr, EVICTION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = rows < M
    # Rows past the end read the last row again, so that loads need no row mask.
    source = tl.minimum(rows, M - 1).to(tl.int64)
    target = tl.load(targets + source)
    column = tl.maximum(target, 0)
    starts = source * V
    if PICK:
        logit = tl.zeros([BLOCK_M], tl.float32)
    else:
        logit = tl.load(x + starts + column).to(tl.float32)
    low = tl.zeros([BLOCK_M], tl.int32)
    if ALIGNED:
        low = (starts % 8).to(tl.int32)
        starts = starts // 8 * 8
    blocks = tl.cdiv(V + 7, BLOCK_V) if ALIGNED else tl.cdiv(V, BLOCK_V)
    first, last = 0, blocks
    if SHARED:
        each = tl.cdiv(blocks, tl.num_programs(1))
        first = tl.program_id(1) * each
        last = tl.minimum(first + each, blocks)
    shift, total, logit = share_of_rows(
        x, starts, low, first, last, V, column.to(tl.int32), logit, BLOCK_M, BLOCK_V, LANES,
        VECTOR, METHOD, PICK, ONE_TILE, EVEN_V, ALIGNED, EVICTION, STAGES,
    )  # fmt: skip
    is_last = True
    if SHARED:
        shift, total, logit, is_last = _join(
            shift, total, logit, workspace, counters, block, rows, inside, M, PICK
        )
    if is_last:
        # The difference first: what is left of two large logits is exact.
        loss = tl.log2(total) * _LN2 + (shift - logit)
        tl.store(out + rows, tl.where(target == _IGNORED, 0.0, loss), mask=inside)


@triton.jit
def cross_entropy(
    x, targets, out, workspace, counters, M, V, BLOCK_M: tl.constexpr, BLOCK_V: tl.constexpr,
    LANES: tl.constexpr, VECTOR: tl.constexpr, METHOD: tl.constexpr, PICK: tl.constexpr,
    SHARED: tl.constexpr, PERSISTENT: tl.constexpr, ONE_TILE: tl.constexpr,
    EVEN_V: tl.constexpr, ALIGNED: tl.constexpr, DIVISOR: tl.constexpr, EVICTION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Writes logsumexp(x[m, :]) - x[m, targets[m]] of the contiguous x[M, V]."""
    # Triton itself only asks whether 16 divides an extent. Smaller divisors widen loads too, if
    # the compiler sees the extent as a product.
    if DIVISOR > 1:
        V = V // DIVISOR * DIVISOR
    if PERSISTENT:
        blocks = tl.cdiv(M, BLOCK_M)
        # Where a row is one tile, the next row block is what can be prefetched.
        DEPTH: tl.constexpr = STAGES if ONE_TILE else 1
        for block in tl.range(tl.program_id(0), blocks, tl.num_programs(0), num_stages=DEPTH):
            _row_block(
                x, targets, out, workspace, counters, block, M, V, BLOCK_M, BLOCK_V, LANES,
                VECTOR, METHOD, PICK, SHARED, ONE_TILE, EVEN_V, ALIGNED, EVICTION, STAGES,
            )  # fmt: skip
    else:
        _row_block(
            x, targets, out, workspace, counters, tl.program_id(0), M, V, BLOCK_M, BLOCK_V,
            LANES, VECTOR, METHOD, PICK, SHARED, ONE_TILE, EVEN_V, ALIGNED, EVICTION, STAGES,
        )  # fmt: skip


def make_inputs(workload: Workload, *, device: str, seed: int) -> dict[str, torch.Tensor]:
    """Returns logits of standard deviation 3, targets, an output of NaN, and what shares need.

    Every eighth row has one or two logits of 24, as of tokens that are almost certain; every
    sixteenth is ignored. `counters` must be zero before a launch, and every launch leaves them so.
    """
    m, v = workload.extents["M"], workload.extents["V"]
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(m, v, generator=generator, device=device, dtype=torch.bfloat16).mul_(3)
    x[::8, v // 3] = 24
    x[::16, v - 1] = 24
    targets = torch.randint(v, (m,), generator=generator, device=device)
    targets[2::16] = IGNORED
    split = max_split(workload)
    return {
        "x": x,
        "targets": targets,
        "out": torch.full((m,), float("nan"), device=device),
        "workspace": torch.full((split, 3, m) if split > 1 else (1,), math.nan, device=device),
        "counters": torch.zeros(m, device=device, dtype=torch.int32),
    }


def fake_inputs(workload: Workload) -> dict[str, torch.dtype]:  # noqa: ARG001
    """Returns the dtypes of `make_inputs`, to compile without tensors."""
    numbers = dict.fromkeys(("out", "workspace"), torch.float32)
    return numbers | {"x": torch.bfloat16, "targets": torch.int64, "counters": torch.int32}


def reference(inputs: Mapping[str, torch.Tensor], workload: Workload) -> torch.Tensor:
    """Returns the losses in float64, computed a part of the rows at a time."""
    step = max(1, _AT_ONCE // workload.extents["V"])
    parts = zip(inputs["x"].split(step), inputs["targets"].split(step), strict=True)
    call = torch.nn.functional.cross_entropy
    return torch.cat([call(x.double(), t, reduction="none") for x, t in parts])


def output(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the tensor that the kernel writes."""
    return inputs["out"]


def plan(inputs: Mapping, workload: Workload, config: Mapping, *, sms: int) -> Launch:
    """Returns the launch of one config on a GPU with `sms` multiprocessors.

    Parameters that a workload's space lacks take the value that they have there.
    """
    m, v = workload.extents["M"], workload.extents["V"]
    block_m, block_v = config.get("BLOCK_M", 1), config["BLOCK_V"]
    split, waves = config.get("SPLIT", 1), config.get("WAVES", 0)
    aligned = config.get("READ", "plain") == "aligned"
    divisor = math.gcd(v, 8)
    vector = 8 if aligned else divisor
    blocks = -(-m // block_m)
    constexprs = {
        "BLOCK_M": block_m,
        "BLOCK_V": block_v,
        # One lane a thread, where the tile is wide enough for a vector each.
        "LANES": min(block_v // vector, 32 * config["num_warps"]),
        "VECTOR": vector,
        "METHOD": config["METHOD"],
        "PICK": config["TARGET"] == "pick",
        "SHARED": split > 1,
        "PERSISTENT": waves > 0,
        "ONE_TILE": block_v >= v + 7 * aligned,
        "EVEN_V": v % block_v == 0,
        "ALIGNED": aligned,
        "DIVISOR": 1 if v % 16 == 0 else divisor,
        "EVICTION": config["EVICTION"],
        "STAGES": config["num_stages"],
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }
    grid = (min(blocks, waves * sms) if waves else blocks, split)
    names = ("x", "targets", "out", "workspace", "counters")
    return Launch(cross_entropy, grid, (*(inputs[name] for name in names), m, v), constexprs)


def baseline(
    inputs: Mapping[str, torch.Tensor],
    workload: Workload,  # noqa: ARG001
) -> tuple[Callable[[], torch.Tensor], str]:
    """Returns torch's own cross entropy of the same logits, in their dtype.

    It writes and reads back their log-softmax and rounds losses to bfloat16; in float32, which
    would keep the digits, it moves more than three times as many bytes.
    """
    x, targets = inputs["x"], inputs["targets"]
    call = torch.nn.functional.cross_entropy
    return lambda: call(x, targets, reduction="none"), "torch.nn.functional.cross_entropy bf16"
