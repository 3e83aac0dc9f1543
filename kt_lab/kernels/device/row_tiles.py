"""Tiles of a row-major tensor in float32, and moments of parts that are put together."""

import triton
import triton.language as tl


@triton.jit
def load_rows(x, rows, cols, N, EVEN_N: tl.constexpr, EVICTION: tl.constexpr):
    """Returns x[rows, cols] in float32, zero where cols >= N; every row must exist."""
    offsets = rows.to(tl.int64)[:, None] * N + cols[None, :]
    if EVEN_N:
        tile = tl.load(x + offsets, eviction_policy=EVICTION)
    else:
        inside = cols[None, :] < N
        tile = tl.load(x + offsets, mask=inside, other=0.0, eviction_policy=EVICTION)
    return tile.to(tl.float32)


@triton.jit
def load_columns(w, cols, N, EVEN_N: tl.constexpr):
    """Returns w[cols] in float32, zero where cols >= N."""
    values = tl.load(w + cols) if EVEN_N else tl.load(w + cols, mask=cols < N, other=0.0)
    return values.to(tl.float32)


@triton.jit
def store_rows(
    out, rows, cols, values, M, N, EVEN_M: tl.constexpr, EVEN_N: tl.constexpr,
    CACHE: tl.constexpr,
):  # fmt: skip
    """Writes out[rows, cols] where both are inside, rounded to the dtype of `out`.

    CACHE is the cache modifier of the store.
    """
    offsets = rows.to(tl.int64)[:, None] * N + cols[None, :]
    values = values.to(out.dtype.element_ty)
    if EVEN_M and EVEN_N:
        tl.store(out + offsets, values, cache_modifier=CACHE)
    elif EVEN_M:
        tl.store(out + offsets, values, mask=cols[None, :] < N, cache_modifier=CACHE)
    elif EVEN_N:
        tl.store(out + offsets, values, mask=rows[:, None] < M, cache_modifier=CACHE)
    else:
        inside = (rows[:, None] < M) & (cols[None, :] < N)
        tl.store(out + offsets, values, mask=inside, cache_modifier=CACHE)


@triton.jit
def merge(count, mean, spread, more, more_mean, more_spread):
    """Returns count, mean and sum of squared deviations of two sets together (Chan et al.)."""
    total = count + more
    share = more / total
    apart = more_mean - mean
    return total, mean + apart * share, spread + more_spread + apart * apart * count * share
