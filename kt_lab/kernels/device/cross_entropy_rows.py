"""Shares of rows of logits in Triton: a shift of the logits and their sum of exponentials."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x * log2(e)); exp2 is one instruction
LOWEST = tl.constexpr(-3.4028234663852886e38)  # no maximum yet; finite, as inf - inf is not
_MOST = tl.constexpr(2.0**100)  # up to here, the logarithm of an anchored sum has its digits


@triton.jit
def _read(
    x, starts, low, start, V, BLOCK_V: tl.constexpr, EDGE: tl.constexpr, ALIGNED: tl.constexpr,
    EVICTION: tl.constexpr,
):  # fmt: skip
    """Returns BLOCK_V logits of every row in float32; at an EDGE, -inf outside the row."""
    cols = tl.arange(0, BLOCK_V)[None, :]
    pointers = x + (starts + start)[:, None] + cols
    none = -float("inf")
    if not EDGE:
        tile = tl.load(pointers, eviction_policy=EVICTION).to(tl.float32)
    elif ALIGNED:
        end = (V - start + low)[:, None]
        whole = cols // 8 * 8 < end  # vectors are read whole: the tensor ends with one
        tile = tl.load(pointers, mask=whole, other=none, eviction_policy=EVICTION)
        inside = (cols >= (low - start)[:, None]) & (cols < end)
        tile = tl.where(inside, tile.to(tl.float32), none)
    else:
        inside = cols < V - start
        tile = tl.load(pointers, mask=inside, other=none, eviction_policy=EVICTION)
        tile = tile.to(tl.float32)
    return tile


@triton.jit
def _step(
    x, starts, low, start, V, column, high, total, logit, BLOCK_M: tl.constexpr,
    BLOCK_V: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr, STEP: tl.constexpr,
    PICK: tl.constexpr, EDGE: tl.constexpr, ALIGNED: tl.constexpr, EVICTION: tl.constexpr,
):  # fmt: skip
    """Adds a tile to maximum and sum, of a row or of a lane: what one thread reads of it."""
    ROUNDS: tl.constexpr = BLOCK_V // (LANES * VECTOR)
    tile = _read(x, starts, low, start, V, BLOCK_V, EDGE, ALIGNED, EVICTION)
    cells = tl.reshape(tile, [BLOCK_M, ROUNDS, LANES, VECTOR])
    if PICK:
        here = tl.arange(0, BLOCK_V)[None, :] == (column + low - start)[:, None]
        found = tl.reshape(tl.where(here, tile, 0.0), [BLOCK_M, ROUNDS, LANES, VECTOR])
        logit += tl.sum(tl.sum(found, 3), 1)
    # Scaled after the subtraction, which is exact or beyond float32: no finite logit is too large.
    if STEP == "online":  # Milakov and Gimelshein, arXiv:1805.02867
        higher = tl.maximum(high, tl.max(tile, 1))
        powers = tl.exp2((tile - higher[:, None]) * LOG2E)
        total = total * tl.exp2((high - higher) * LOG2E) + tl.sum(powers, 1)
        high = higher
    elif STEP == "lanes":
        higher = tl.maximum(high, tl.max(tl.max(cells, 3), 1))
        powers = tl.exp2((cells - higher[:, None, :, None]) * LOG2E)
        total = total * tl.exp2((high - higher) * LOG2E) + tl.sum(tl.sum(powers, 3), 1)
        high = higher
    elif STEP == "maxima":
        high = tl.maximum(high, tl.max(tl.max(cells, 3), 1))
    else:
        powers = tl.exp2((cells - high[:, None, None, None]) * LOG2E)
        total += tl.sum(tl.sum(powers, 3), 1)
    return high, total, logit


@triton.jit
def _scan(
    x, starts, low, first, last, V, column, high, total, logit, BLOCK_M: tl.constexpr,
    BLOCK_V: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr, STEP: tl.constexpr,
    PICK: tl.constexpr, ONE_TILE: tl.constexpr, EVEN_V: tl.constexpr, ALIGNED: tl.constexpr,
    EVICTION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Adds tiles first..last of the rows; only those at the edges of a row are masked."""
    EDGE: tl.constexpr = not EVEN_V
    if ONE_TILE:
        high, total, logit = _step(
            x, starts, low, 0, V, column, high, total, logit, BLOCK_M, BLOCK_V, LANES, VECTOR,
            STEP, PICK, EDGE, ALIGNED, EVICTION,
        )  # fmt: skip
    else:
        inner = tl.maximum(first, 1) if ALIGNED else first
        full = V // BLOCK_V
        if ALIGNED:
            for block in tl.range(first, tl.minimum(last, 1), num_stages=1):
                high, total, logit = _step(
                    x, starts, low, block * BLOCK_V, V, column, high, total, logit, BLOCK_M,
                    BLOCK_V, LANES, VECTOR, STEP, PICK, EDGE, ALIGNED, EVICTION,
                )  # fmt: skip
        for block in tl.range(inner, tl.minimum(last, full), num_stages=STAGES):
            high, total, logit = _step(
                x, starts, low, block * BLOCK_V, V, column, high, total, logit, BLOCK_M, BLOCK_V,
                LANES, VECTOR, STEP, PICK, False, ALIGNED, EVICTION,
            )  # fmt: skip
        if EDGE:
            for block in tl.range(tl.maximum(inner, full), last, num_stages=1):
                high, total, logit = _step(
                    x, starts, low, block * BLOCK_V, V, column, high, total, logit, BLOCK_M,
                    BLOCK_V, LANES, VECTOR, STEP, PICK, EDGE, ALIGNED, EVICTION,
                )  # fmt: skip
    return high, total, logit


@triton.jit
def share_of_rows(
    x, starts, low, first, last, V, column, logit, BLOCK_M: tl.constexpr, BLOCK_V: tl.constexpr,
    LANES: tl.constexpr, VECTOR: tl.constexpr, METHOD: tl.constexpr, PICK: tl.constexpr,
    ONE_TILE: tl.constexpr, EVEN_V: tl.constexpr, ALIGNED: tl.constexpr, EVICTION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Returns a shift of the logits in tiles first..last, sum of exponentials, target's logit.

    The sum is that of exp(logit - shift). Rows are read in BLOCK_V columns from `starts`; they
    begin `low` columns after it. If PICK, a share without the target returns zero for its logit.
    """
    none = tl.zeros([BLOCK_M, LANES], tl.float32)
    picked = none
    if METHOD == "online":
        shift = tl.full([BLOCK_M], LOWEST, tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        shift, total, picked = _scan(
            x, starts, low, first, last, V, column, shift, total, picked, BLOCK_M, BLOCK_V,
            LANES, VECTOR, "online", PICK, ONE_TILE, EVEN_V, ALIGNED, EVICTION, STAGES,
        )  # fmt: skip
    elif METHOD == "lanes":
        highs, sums, picked = _scan(
            x, starts, low, first, last, V, column, none + LOWEST, none, picked, BLOCK_M, BLOCK_V,
            LANES, VECTOR, "lanes", PICK, ONE_TILE, EVEN_V, ALIGNED, EVICTION, STAGES,
        )  # fmt: skip
        shift = tl.max(highs, 1)
        total = tl.sum(sums * tl.exp2((highs - shift[:, None]) * LOG2E), 1)
    else:
        shift = logit
        if METHOD == "twice":
            highs, _sums, _kept = _scan(
                x, starts, low, first, last, V, column, none + LOWEST, none, none, BLOCK_M,
                BLOCK_V, LANES, VECTOR, "maxima", False, ONE_TILE, EVEN_V, ALIGNED, "", STAGES,
            )  # fmt: skip
            shift = tl.max(highs, 1)
        shift, sums, _kept = _scan(
            x, starts, low, first, last, V, column, shift, none, none, BLOCK_M, BLOCK_V, LANES,
            VECTOR, "sums", False, ONE_TILE, EVEN_V, ALIGNED, EVICTION, STAGES,
        )  # fmt: skip
        total = tl.sum(sums, 1)
        if METHOD == "anchored":  # noqa: SIM102 - one is known when compiled, one when run
            if tl.max(total, 0) > _MOST:
                shift, total, _kept = _scan(
                    x, starts, low, first, last, V, column, tl.zeros_like(shift) + LOWEST,
                    tl.zeros_like(total), none, BLOCK_M, BLOCK_V, LANES, VECTOR, "online", False,
                    ONE_TILE, EVEN_V, ALIGNED, "", 1,
                )  # fmt: skip
    if PICK:
        logit = tl.sum(picked, 1)
    return shift, total, logit
