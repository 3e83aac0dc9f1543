"""Matrix products in Triton: how a tile is found, multiplied, joined with other splits, stored."""

import triton
import triton.language as tl


@triton.jit
def _place(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr, BATCHED: tl.constexpr):
    """Returns a tile's product, row and column: GROUP_M rows together, column by column."""
    batch = tile // (tiles_m * tiles_n) if BATCHED else 0
    if BATCHED:
        tile = tile % (tiles_m * tiles_n)
    first_m = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tiles_m - first_m, GROUP_M)
    inside = tile % (GROUP_M * tiles_n)
    return batch, first_m + inside % height, inside // height


@triton.jit
def _descriptor(
    base, BATCH, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr, BATCHED: tl.constexpr
):  # fmt: skip
    """Describes a contiguous [rows, cols], or [BATCH, rows, cols], read by [ROWS, COLS]."""
    if BATCHED:
        plane = tl.cast(rows, tl.int64) * cols
        made = tl.make_tensor_descriptor(
            base, [BATCH, rows, cols], [plane, cols, 1], [1, ROWS, COLS]
        )
    else:
        made = tl.make_tensor_descriptor(base, [rows, cols], [cols, 1], [ROWS, COLS])
    return made


@triton.jit
def _read(
    source, batch, row, col, ROWS: tl.constexpr, COLS: tl.constexpr, BATCHED: tl.constexpr
):  # fmt: skip
    if BATCHED:
        block = tl.reshape(source.load([batch, row, col]), [ROWS, COLS])
    else:
        block = source.load([row, col])
    return block


@triton.jit
def _multiply(acc, x, w, SWAP: tl.constexpr, INTERPRET: tl.constexpr):
    if INTERPRET:  # the interpreter multiplies the raw bits of bfloat16
        x, w = x.to(tl.float32), w.to(tl.float32)
    return tl.dot(tl.trans(w), tl.trans(x), acc) if SWAP else tl.dot(x, w, acc)


@triton.jit
def _product(
    a, b, batch, row0, col0, first, last, M, N, K, LOADS: tl.constexpr, SWAP: tl.constexpr,
    BATCHED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Returns the tile at row0, col0 over blocks first..last, transposed if SWAP."""
    if SWAP:
        acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    else:
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    if LOADS == "descriptors":
        for block in tl.range(first, last):
            x = _read(a, batch, row0, block * BLOCK_K, BLOCK_M, BLOCK_K, BATCHED)
            w = _read(b, batch, block * BLOCK_K, col0, BLOCK_K, BLOCK_N, BATCHED)
            acc = _multiply(acc, x, w, SWAP, INTERPRET)
    else:
        rows, cols, steps = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
        # Rows past the end read the last one again; they are never stored. Columns past the end
        # are masked instead: clamped, they would hide that columns are contiguous.
        rows = rows if EVEN_M else tl.minimum(rows, M - 1 - row0)
        x_offsets = rows[:, None].to(tl.int64) * K + steps[None, :]
        w_offsets = steps[:, None].to(tl.int64) * N + cols[None, :]
        a += tl.cast(batch, tl.int64) * M * K + tl.cast(row0, tl.int64) * K
        b += tl.cast(batch, tl.int64) * K * N + col0
        for block in tl.range(first, last):
            start = block * BLOCK_K
            x_pointers = a + start + x_offsets
            w_pointers = b + tl.cast(start, tl.int64) * N + w_offsets
            if EVEN_K:
                x = tl.load(x_pointers)
            else:
                x = tl.load(x_pointers, mask=steps[None, :] < K - start, other=0.0)
            if EVEN_K and EVEN_N:
                w = tl.load(w_pointers)
            elif EVEN_N:
                w = tl.load(w_pointers, mask=steps[:, None] < K - start, other=0.0)
            else:
                inside = (steps[:, None] < K - start) & (cols[None, :] < N - col0)
                w = tl.load(w_pointers, mask=inside, other=0.0)
            acc = _multiply(acc, x, w, SWAP, INTERPRET)
    return acc


@triton.jit
def _write(
    total, out, batch, row0, col0, M, N, LOADS: tl.constexpr, BATCHED: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Writes a block [ROWS, COLS] of the output, rounded once."""
    if LOADS == "descriptors":
        if BATCHED:
            value = tl.reshape(total.to(out.dtype), [1, ROWS, COLS])
            out.store([batch, row0, col0], value)
        else:
            out.store([row0, col0], total.to(out.dtype))
    else:
        rows, cols = row0 + tl.arange(0, ROWS)[:, None], col0 + tl.arange(0, COLS)[None, :]
        pointers = out + tl.cast(batch, tl.int64) * M * N + rows.to(tl.int64) * N + cols
        if EVEN:
            tl.store(pointers, total.to(out.dtype.element_ty))
        else:
            tl.store(pointers, total.to(out.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def _join(
    total, out, workspace, counters, tile, batch, row0, col0, BATCH, M, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """Leaves a split's tile in the workspace; the last to come adds all up in split order."""
    rows, cols = row0 + tl.arange(0, BLOCK_M)[:, None], col0 + tl.arange(0, BLOCK_N)[None, :]
    inside = (rows < M) & (cols < N)
    offsets = tl.cast(batch, tl.int64) * M * N + rows.to(tl.int64) * N + cols
    size = tl.cast(BATCH, tl.int64) * M * N
    tl.store(workspace + tl.program_id(1) * size + offsets, total, mask=inside)
    tl.debug_barrier()  # every thread has stored before one of them announces it
    arrived = tl.atomic_add(counters + tile, 1, sem="acq_rel", scope="gpu")
    if arrived == SPLIT_K - 1:
        total = tl.zeros_like(total)
        for split in range(SPLIT_K):
            # Other multiprocessors wrote these: read them from L2, past the L1 cache.
            part = workspace + split * size + offsets
            total += tl.load(part, mask=inside, other=0.0, cache_modifier=".cg")
        tl.store(out + offsets, total.to(out.dtype.element_ty), mask=inside)
        tl.store(counters + tile, 0)  # ready for the next launch


@triton.jit
def _tile(
    a, b, out, workspace, counters, tile, BATCH, M, N, K, LOADS: tl.constexpr, SWAP: tl.constexpr,
    BATCHED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr, GROUP_M: tl.constexpr, EPILOGUE: tl.constexpr, EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr, EVEN_K: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Computes one tile, or a split's share of it."""
    batch, tile_m, tile_n = _place(
        tile, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M, BATCHED
    )
    row0, col0 = tile_m * BLOCK_M, tile_n * BLOCK_N
    blocks = tl.cdiv(K, BLOCK_K)
    if SPLIT_K == 1:
        first, last = 0, blocks
    else:
        share = tl.cdiv(blocks, SPLIT_K)
        first = tl.program_id(1) * share
        last = tl.minimum(first + share, blocks)
    total = _product(
        a, b, batch, row0, col0, first, last, M, N, K, LOADS, SWAP, BATCHED,
        BLOCK_M, BLOCK_N, BLOCK_K, EVEN_M, EVEN_N, EVEN_K, INTERPRET,
    )  # fmt: skip
    if SWAP:
        total = tl.trans(total)
    EVEN: tl.constexpr = EVEN_M and EVEN_N
    if SPLIT_K > 1:
        _join(
            total, out, workspace, counters, tile, batch, row0, col0, BATCH, M, N,
            BLOCK_M, BLOCK_N, SPLIT_K,
        )  # fmt: skip
    elif EPILOGUE == "halves":
        HALF: tl.constexpr = BLOCK_N // 2
        pair = tl.permute(tl.reshape(total, [BLOCK_M, 2, HALF]), [0, 2, 1])
        left, right = tl.split(pair)
        _write(left, out, batch, row0, col0, M, N, LOADS, BATCHED, BLOCK_M, HALF, EVEN)
        _write(right, out, batch, row0, col0 + HALF, M, N, LOADS, BATCHED, BLOCK_M, HALF, EVEN)
    else:
        _write(total, out, batch, row0, col0, M, N, LOADS, BATCHED, BLOCK_M, BLOCK_N, EVEN)


@triton.jit
def gemm(
    a, b, out, workspace, counters, BATCH, M, N, K, LOADS: tl.constexpr, SWAP: tl.constexpr,
    SCHEDULE: tl.constexpr, BATCHED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr, GROUP_M: tl.constexpr, EPILOGUE: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr, ALIGN_K: tl.constexpr,
    ALIGN_N: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Writes A[BATCH, M, K] @ B[BATCH, K, N]; programs (tile, split), all operands contiguous."""
    # Triton itself only asks whether 16 divides an extent. Smaller divisors widen loads too, if
    # the compiler sees the extent as a product.
    if ALIGN_K > 1:
        K = K // ALIGN_K * ALIGN_K
    if ALIGN_N > 1:
        N = N // ALIGN_N * ALIGN_N
    if LOADS == "descriptors":
        a = _descriptor(a, BATCH, M, K, BLOCK_M, BLOCK_K, BATCHED)
        b = _descriptor(b, BATCH, K, N, BLOCK_K, BLOCK_N, BATCHED)
        if SPLIT_K == 1:
            WIDTH: tl.constexpr = BLOCK_N // 2 if EPILOGUE == "halves" else BLOCK_N
            out = _descriptor(out, BATCH, M, N, BLOCK_M, WIDTH, BATCHED)
    if SCHEDULE == "tiles":
        _tile(
            a, b, out, workspace, counters, tl.program_id(0), BATCH, M, N, K, LOADS, SWAP,
            BATCHED, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT_K, GROUP_M, EPILOGUE, EVEN_M, EVEN_N,
            EVEN_K, INTERPRET,
        )  # fmt: skip
    else:
        tiles = BATCH * tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        # Flattened, the loops over tiles and over K become one: the next tile's first loads are
        # under way while this tile is being written.
        FLAT: tl.constexpr = SCHEDULE == "flattened"
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLAT):
            _tile(
                a, b, out, workspace, counters, tile, BATCH, M, N, K, LOADS, SWAP,
                BATCHED, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT_K, GROUP_M, EPILOGUE, EVEN_M, EVEN_N,
                EVEN_K, INTERPRET,
            )  # fmt: skip
