"""Tiles of the matrix product with packed 4-bit weights, in Triton.

Byte (i, n) of the packed weights [K // 2, N] holds W[2i, n] in its low nibble and W[2i + 1, n]
in its high one. A is viewed as int32 pairs, so that one contiguous load gives the even elements
(low half) and the odd ones (high half): the reduction never interleaves anything. The weights
are viewed as words of several columns, so that nibbles are cut out of whole registers.
"""

import triton
import triton.language as tl


@triton.jit
def _load(pointers, inside, EVEN: tl.constexpr, EVICTION: tl.constexpr):
    if EVEN:
        values = tl.load(pointers, eviction_policy=EVICTION)
    else:
        values = tl.load(pointers, mask=inside, other=0, eviction_policy=EVICTION)
    return values


@triton.jit
def _nibble_f32(words, mask, SHIFT: tl.constexpr, UNPACK: tl.constexpr):
    """Turns bits SHIFT..SHIFT + 3 into the signed weight, or into 136 + weight if magic."""
    if UNPACK == "magic":
        # 0x43000000 is 128.0, whose mantissa counts ones from bit 16; the ^ 8 makes v into v + 8.
        placed = (words << (16 - SHIFT)) if SHIFT < 16 else (words >> (SHIFT - 16))
        weights = ((placed & mask) ^ 0x43080000).to(tl.float32, bitcast=True)
    else:
        weights = ((words << (28 - SHIFT)) >> 28).to(tl.float32)
    return weights


@triton.jit
def _column(acc, even, odd, words, mask, BYTE: tl.constexpr, UNPACK: tl.constexpr):
    acc += even * _nibble_f32(words, mask, 8 * BYTE, UNPACK)
    return acc + odd * _nibble_f32(words, mask, 8 * BYTE + 4, UNPACK)


@triton.jit
def fma_tile(
    a32, packed32, row, col0, first, last, K, N,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, UNPACK: tl.constexpr, EVICTION: tl.constexpr,
    STAGES: tl.constexpr, EVEN_K: tl.constexpr, EVEN_N: tl.constexpr,
):  # fmt: skip
    """Returns row `row` of the product, BLOCK_N columns from col0, over blocks first..last."""
    HALF: tl.constexpr = BLOCK_K // 2
    WORDS: tl.constexpr = BLOCK_N // 4  # four columns of bytes are one 32-bit word
    pairs = tl.arange(0, HALF)[:, None]
    words = col0 // 4 + tl.arange(0, WORDS)[None, :]
    # Words past the end read the last one again; their columns are never stored.
    words = words if EVEN_N else tl.minimum(words, N // 4 - 1)
    offsets = pairs * (N // 4) + words
    # Partial sums stay apart by packed row, so that nothing is exchanged inside the loop.
    c0 = tl.zeros([HALF, WORDS], tl.float32)
    c1, c2, c3 = c0, c0, c0
    sum_a = tl.zeros([HALF, 1], tl.float32)
    # program_id(2) is always 0 but the assembler cannot know: it keeps the mask in a register
    # instead of loading the constant anew for one use in two.
    mask = 0x000F0000 + tl.program_id(2)
    for block in tl.range(first, last, num_stages=STAGES):
        base = block * HALF
        x_ptrs = a32 + row.to(tl.int64) * (K // 2) + base + pairs
        w_ptrs = packed32 + base.to(tl.int64) * (N // 4) + offsets
        x = _load(x_ptrs, base + pairs < K // 2, EVEN_K, "")
        w = _load(w_ptrs, base + pairs < K // 2, EVEN_K, EVICTION)
        even = (x << 16).to(tl.float32, bitcast=True)
        odd = (x & -65536).to(tl.float32, bitcast=True)  # 0xFFFF0000
        c0 = _column(c0, even, odd, w, mask, 0, UNPACK)
        c1 = _column(c1, even, odd, w, mask, 1, UNPACK)
        c2 = _column(c2, even, odd, w, mask, 2, UNPACK)
        c3 = _column(c3, even, odd, w, mask, 3, UNPACK)
        if UNPACK == "magic":
            sum_a += even + odd
    # [HALF, WORDS] each -> [HALF, WORDS, 2, 2]: column 4 * word + 2 * first + second
    columns = tl.join(tl.join(c0, c2), tl.join(c1, c3))
    total = tl.sum(tl.reshape(columns, [HALF, BLOCK_N]), 0)
    return total - 136.0 * tl.sum(sum_a, 0) if UNPACK == "magic" else total


@triton.jit
def _nibble_bf16(pairs, SHIFT: tl.constexpr, UNPACK: tl.constexpr, INTERPRET: tl.constexpr):
    """Turns bits SHIFT..SHIFT + 3 of int16 into bfloat16 (float32 when interpreting)."""
    if UNPACK == "magic":
        # 0x4300 is 128.0 in bfloat16, whose last mantissa bit counts ones: 136 + v is exact.
        bits = ((pairs >> SHIFT) & 0x000F) ^ 0x4308
        if INTERPRET:
            weights = (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True) - 136.0
        else:
            weights = bits.to(tl.bfloat16, bitcast=True) - tl.full([1, 1], 136.0, tl.bfloat16)
    else:
        signed = (pairs << (12 - SHIFT)) >> 12
        weights = signed.to(tl.float32 if INTERPRET else tl.bfloat16)
    return weights


@triton.jit
def _halves_bf16(x, INTERPRET: tl.constexpr):
    """Splits int32 pairs into even and odd elements, bfloat16 (float32 when interpreting)."""
    if INTERPRET:  # the interpreter multiplies the raw bits of bfloat16
        even = (x << 16).to(tl.float32, bitcast=True)
        odd = (x & -65536).to(tl.float32, bitcast=True)  # 0xFFFF0000
    else:
        even = x.to(tl.int16).to(tl.bfloat16, bitcast=True)
        odd = (x >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return even, odd


@triton.jit
def dot_tile(
    a32, packed16, row0, col0, first, last, M, K, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, UNPACK: tl.constexpr,
    EVICTION: tl.constexpr, STAGES: tl.constexpr, EVEN_M: tl.constexpr, EVEN_K: tl.constexpr,
    EVEN_N: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Returns a [BLOCK_M, BLOCK_N] tile of the product over blocks first..last."""
    HALF: tl.constexpr = BLOCK_K // 2
    WIDE: tl.constexpr = BLOCK_N // 2  # two columns of bytes are one 16-bit element
    rows = row0 + tl.arange(0, BLOCK_M)
    cols = col0 // 2 + tl.arange(0, WIDE)
    # Rows past the end read the last one again; they are never stored. Columns past the end are
    # masked instead: clamped, they would hide that columns are contiguous, and for such a B
    # Triton 3.6 finds no shared memory layout.
    rows = rows if EVEN_M else tl.minimum(rows, M - 1)
    pairs = tl.arange(0, HALF)
    x_offsets = rows[:, None] * (K // 2) + pairs[None, :]
    w_offsets = pairs[:, None] * (N // 2) + cols[None, :]
    # Tensor cores that read B from shared memory (wgmma) want it whole; those that read it from
    # registers take even and odd columns apart, straight from the packed tile.
    WHOLE: tl.constexpr = BLOCK_M >= 64
    if WHOLE:
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    else:
        acc0 = tl.zeros([BLOCK_M, WIDE], tl.float32)
        acc1 = tl.zeros([BLOCK_M, WIDE], tl.float32)
    for block in tl.range(first, last, num_stages=STAGES):
        base = block * HALF
        x_ptrs = a32 + base + x_offsets
        w_ptrs = packed16 + base.to(tl.int64) * (N // 2) + w_offsets
        x = _load(x_ptrs, pairs[None, :] < K // 2 - base, EVEN_K, "")
        inside = pairs[:, None] < K // 2 - base
        if not EVEN_N:
            inside = inside & (cols[None, :] < N // 2)
        w = _load(w_ptrs, inside, EVEN_K and EVEN_N, EVICTION)
        even, odd = _halves_bf16(x, INTERPRET)
        w0, w1 = _nibble_bf16(w, 0, UNPACK, INTERPRET), _nibble_bf16(w, 4, UNPACK, INTERPRET)
        w2, w3 = _nibble_bf16(w, 8, UNPACK, INTERPRET), _nibble_bf16(w, 12, UNPACK, INTERPRET)
        if WHOLE:
            low = tl.reshape(tl.join(w0, w2), [HALF, BLOCK_N])
            acc = tl.dot(even, low, acc, input_precision="ieee")
            high = tl.reshape(tl.join(w1, w3), [HALF, BLOCK_N])
            acc = tl.dot(odd, high, acc, input_precision="ieee")
        else:
            acc0 = tl.dot(even, w0, acc0, input_precision="ieee")
            acc1 = tl.dot(even, w2, acc1, input_precision="ieee")
            acc0 = tl.dot(odd, w1, acc0, input_precision="ieee")
            acc1 = tl.dot(odd, w3, acc1, input_precision="ieee")
    if not WHOLE:
        acc = tl.reshape(tl.join(acc0, acc1), [BLOCK_M, BLOCK_N])
    return acc
