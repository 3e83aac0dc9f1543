"""Attention in Triton: how tiles are read and written, and how scores become weights."""

import triton
import triton.language as tl


@triton.jit
def _cubic_power(x):
    """Returns 2^x by additions and multiplications, off by 7.5e-5 of it; at least 2^-125.

    2^x is 2^n * 2^f, n being the nearest integer and |f| <= 1/2. Adding 1.5 * 2^23 rounds x and
    leaves n in the low bits, from where a shift moves it into an exponent. The cubic is that of
    the least relative error (Remez).
    """
    x = tl.maximum(x, -125.0)
    rounded = x + 12582912.0
    f = x - (rounded - 12582912.0)
    power = ((0.05517167 * f + 0.24261113) * f + 0.69326097) * f + 0.99992806
    bits = power.to(tl.int32, bitcast=True) + (rounded.to(tl.int32, bitcast=True) << 23)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _pairs_power(x, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Returns 2^x of [ROWS, COLS], of odd columns by polynomial: a thread has pairs of them."""
    even, odd = tl.split(tl.reshape(x, [ROWS, COLS // 2, 2]))
    return tl.reshape(tl.join(tl.exp2(even), _cubic_power(odd)), [ROWS, COLS])


@triton.jit
def power_of_two(x, POLYNOMIAL: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Returns 2^x of [ROWS, COLS], for POLYNOMIAL of every four elements by polynomial."""
    if POLYNOMIAL == 0:
        y = tl.exp2(x)
    elif POLYNOMIAL == 2:
        y = _pairs_power(x, ROWS, COLS)
    else:
        HALF: tl.constexpr = COLS // 2
        left, right = tl.split(tl.permute(tl.reshape(x, [ROWS, 2, HALF]), [0, 2, 1]))
        both = tl.join(tl.exp2(left), _pairs_power(right, ROWS, HALF))
        y = tl.reshape(tl.permute(both, [0, 2, 1]), [ROWS, COLS])
    return y


@triton.jit
def describe(
    base, B, S, HEADS: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """Returns what `load_tile` reads [B, S, HEADS, D] from: a descriptor, or the pointer."""
    if DESCRIPTORS:
        plane = tl.cast(S, tl.int64) * (HEADS * D)
        source = tl.make_tensor_descriptor(
            base, [B, S, HEADS, D], [plane, HEADS * D, D, 1], [1, ROWS, 1, COLS]
        )
    else:
        source = base
    return source


@triton.jit
def _offsets(batch, row0, head, rows, cols, S, HEADS: tl.constexpr, D: tl.constexpr):
    """Returns where a tile's elements are; 64 bits within it only where it may need them."""
    corner = ((tl.cast(batch, tl.int64) * S + row0) * HEADS + head) * D
    if rows.shape[0] * HEADS * D + D >= 2**31:
        rows = rows.to(tl.int64)
    return corner + (rows * (HEADS * D) + cols)


@triton.jit
def load_tile(
    source, batch, row0, head, col0, S, HEADS: tl.constexpr, D: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DESCRIPTORS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Returns [ROWS, COLS] of a head; zero past D, and past S unless WHOLE."""
    if DESCRIPTORS:
        tile = tl.reshape(source.load([batch, row0, head, col0]), [ROWS, COLS])
    else:
        rows, cols = tl.arange(0, ROWS)[:, None], col0 + tl.arange(0, COLS)[None, :]
        pointers = source + _offsets(batch, row0, head, rows, cols, S, HEADS, D)
        EVEN_D: tl.constexpr = D % COLS == 0
        if WHOLE and EVEN_D:
            tile = tl.load(pointers)
        elif WHOLE:
            tile = tl.load(pointers, mask=cols < D, other=0.0)
        elif EVEN_D:
            tile = tl.load(pointers, mask=rows < S - row0, other=0.0)
        else:
            tile = tl.load(pointers, mask=(rows < S - row0) & (cols < D), other=0.0)
    return tile


@triton.jit
def store_tile(
    value, target, batch, row0, head, col0, S, HEADS: tl.constexpr, D: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DESCRIPTORS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Writes [ROWS, COLS] of a head, rounded once; nothing past S or D."""
    if DESCRIPTORS:
        whole = tl.reshape(value.to(target.dtype), [1, ROWS, 1, COLS])
        target.store([batch, row0, head, col0], whole)
    else:
        rows, cols = tl.arange(0, ROWS)[:, None], col0 + tl.arange(0, COLS)[None, :]
        pointers = target + _offsets(batch, row0, head, rows, cols, S, HEADS, D)
        EVEN_D: tl.constexpr = D % COLS == 0
        if WHOLE and EVEN_D:
            tl.store(pointers, value.to(target.dtype.element_ty))
        else:
            inside = (rows < S - row0) & (cols < D)
            tl.store(pointers, value.to(target.dtype.element_ty), mask=inside)


@triton.jit
def multiply(x, y, acc, INTERPRET: tl.constexpr):
    """Returns acc + x @ y."""
    if INTERPRET:  # the interpreter multiplies the raw bits of bfloat16
        x, y = x.to(tl.float32), y.to(tl.float32)
    return tl.dot(x, y, acc)
