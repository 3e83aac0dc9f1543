"""Products of tensors in registers: the part of the expert pass that knows about reuse.

A contraction is a sum of products in which two iterators of the result each miss from what the
other one is read with: m and n in c[m,n] += a[m,k] * b[k,n]. A tile of both, held in registers
across the sum, loads rows + columns for rows * columns products. One of the two runs along the
lanes of vectors. Where its operand is not side by side in memory either the summed iterator is,
and runs along the lanes (partial sums, joined at the end), or the operand is packed so that it is.

A large operand that few rows share is read only as fast as it is walked in the order of memory:
down a column of tiles every row of it lies on another page. There the sum is cut into short parts
and the parts go outermost: tile after tile takes its partial sums from a few rows of the operand,
and adds them to a stripe of the result that stays in the second cache.
"""

import math
from dataclasses import dataclass

from kt_lab.programs.draft import Draft
from kt_lab.programs.ir import Address, Op, Program, Ref, Scope, refs_of
from kt_lab.programs.storage_plan import keep_close, put_last
from kt_lab.programs.surgery import extents_above, node_at, ops

LANES = 16  # f32 elements of the widest vectors of today
VECTORS = 32  # of them in registers, of AVX-512; half as long and half as many are a quarter
_DOTS = ((4, 4), (4, 2), (2, 2), (1, 1))  # rows and columns of a tile of partial sums
_REUSED = 4  # a panel is packed when it is read at least so often
_PANEL_BYTES = 1 << 17
_WORTH_PACKING = 32  # times that an element is read, for a copy that turns rows into columns
_FAR_BYTES = 1 << 22  # of an operand that the second cache does not hold
_PAGE_BYTES = 1 << 12  # the length of a stripe's rows; prefetchers stop at its end
_PART = 16  # rows of a large operand that are walked side by side, where registers are many
_FEW_PART = 8  # elsewhere: on a Zen 2 sixteen took a third longer
_STRIPE_BYTES = 1 << 18  # of a result that the second cache holds


@dataclass(frozen=True, slots=True)
class Contraction:
    """Where a contraction stands.

    Attributes:
        root: Address of its outermost scope that holds nothing but the next one.
        op: Address of the operation.
        outer: Depths of the iterators of the result from the root on, outermost first.
        summed: Depths of the summed iterators, all of them deeper.
        lane: Depth of the one that runs along vectors.
        row: Depth of the one that shares what the lanes load.
    """

    root: Address
    op: Address
    outer: tuple[int, ...]
    summed: tuple[int, ...]
    lane: int
    row: int


def divisor(extent: int, most: int) -> int:
    """Returns the largest divisor of an extent that is at most `most`, >= 1."""
    return next(n for n in range(min(extent, most), 0, -1) if extent % n == 0)


def lanes(extent: int) -> int:
    """Returns how many lanes an extent fills without a rest: 16, 8, 4, or its largest divisor."""
    return next((n for n in (16, 8, 4) if extent % n == 0), divisor(extent, LANES))


def contractions(program: Program) -> list[Contraction]:
    """Returns the contractions of a program, in order."""
    found = (_contraction(program, at, op) for at, op in ops(program) if op.kind == "+=")
    return [c for c in found if c is not None]


def tile(draft: Draft, found: Contraction, *, threads: int = 1, vectors: int = VECTORS) -> bool:
    """Puts a contraction in registers; leaves everything as it is where it cannot.

    Args:
        draft: The draft.
        found: The contraction.
        threads: That the program will have, >= 1: there are as many stripes, where there are any.
        vectors: How many vectors of LANES elements the registers hold, >= 4.
    """
    striped = draft.attempt(lambda: _striped(draft, found, threads, vectors))
    return striped or draft.attempt(lambda: _tiled(draft, found, vectors))


def _contraction(program: Program, at: Address, op: Op) -> Contraction | None:
    extents = extents_above(program, at)
    kept = {d for index in op.target.indices for d in index.depths}
    summed = [d for d in range(len(extents)) if d not in kept]
    first = summed[0] if summed else 0
    if not summed or summed != list(range(first, len(extents))) or not first:
        return None
    top = first - 1
    while top and len(node_at(program, at[:top]).body) == 1:
        top -= 1
    outer = tuple(range(top, first))
    reads = [{d for i in ref.indices for d in i.depths} for ref in set(refs_of(op.expr))]
    pairs = [
        (lane, row)
        for lane in outer
        for row in outer
        if lane != row
        and min(extents[lane], extents[row]) > 1
        and any(lane in read for read in reads)
        and any(row in read for read in reads)
        and not any({lane, row} <= read for read in reads)
    ]
    if not pairs:
        return None

    def worth(pair: tuple[int, int]) -> tuple[int, bool, int]:
        unit = all(_step(program, r, pair[0]) < 2 for r in (op.target, *refs_of(op.expr)))
        return lanes(extents[pair[0]]), unit, pair[1]

    lane, row = max(pairs, key=worth)
    return Contraction(at[: top + 1], at, outer, tuple(summed), lane, row)


def _step(program: Program, ref: Ref, depth: int) -> int:
    """Returns by how many elements an access moves with an iterator."""
    return abs(program.buffer(ref.buffer).offset(ref.indices).coefficient(depth))


def _tiled(draft: Draft, c: Contraction, vectors: int) -> bool:
    program, op = draft.program, node_at(draft.program, c.op)
    extents = extents_above(program, c.op)
    shared = [r for r in refs_of(op.expr) if _step(program, r, c.lane)]
    strided = [r for r in shared if _step(program, r, c.lane) != 1]
    last = c.summed[-1]
    rows = math.prod(extents[d] for d in c.outer if not _step(program, shared[0], d))
    dot = bool(strided) and extents[last] % LANES == 0 and rows < _WORTH_PACKING
    dot = dot and all(_step(program, r, last) < 2 for r in refs_of(op.expr))
    if dot:
        rows, columns = next((n for n in _DOTS if math.prod(n) <= vectors), _DOTS[-1])
        sizes = {d: (divisor(extents[d], n), 1) for d, n in ((c.row, rows), (c.lane, columns))}
    else:
        sizes = _sizes(c, extents, vectors)
    cut = _cut(draft, c, extents, sizes)
    if cut is None:
        return False
    outer, inner = cut
    last_of_tile = (*c.root, *(0,) * (len(outer) + len(inner) - 1))
    nest = _isolated(draft, last_of_tile, len(inner))
    if nest is None or not _sum_outside(draft, nest, c, inner, dot=dot):
        return False
    keep_close(draft, op.target.buffer)
    if dot:
        return True
    put_last(draft, op.target.buffer, _lane_of(draft, nest, op.target.buffer))
    panel = outer[:1] == [f"i{c.lane}."] and len(outer) > 1
    if panel and _panel(draft, (*c.root, 0), shared[0].buffer):
        return True
    return not strided or _pack(draft, nest[:1], strided[0].buffer)


def _sizes(c: Contraction, extents, vectors: int) -> dict[int, tuple[int, int]]:
    """Returns by depth how long a tile is, and its vectors: rows, and columns along the lanes."""
    sums = max(1, vectors - max(2, vectors // 8))  # the others hold operands
    wide = lanes(extents[c.lane])
    width = wide * (2 if extents[c.lane] % (2 * wide) == 0 and sums > 2 else 1)
    rows = divisor(extents[c.row], sums // (width // wide))
    return {c.row: (rows, 1), c.lane: (width, wide)}


def _is_far(program: Program, c: Contraction, ref: Ref, *, rows: int) -> bool:
    """Whether lanes read an operand that comes from memory, from another page for each summand."""
    buffer, summand = program.buffer(ref.buffer), c.summed[-1]
    step_bytes = _step(program, ref, summand) * buffer.bytes // buffer.elements
    return (
        _step(program, ref, c.lane) == 1
        and step_bytes >= _PAGE_BYTES
        and buffer.bytes >= _FAR_BYTES
        and rows * _PAGE_BYTES <= _STRIPE_BYTES
    )


def _striped(draft: Draft, c: Contraction, threads: int, vectors: int) -> bool:
    """Tiles with short parts of the sum outermost, for a large operand that few rows share."""
    program, op = draft.program, node_at(draft.program, c.op)
    extents = extents_above(program, c.op)
    sizes = _sizes(c, extents, vectors)
    read = [r for r in refs_of(op.expr) if _step(program, r, c.lane)]
    plain = len(c.outer) == 2 and len(c.summed) == len(read) == 1
    if not plain or not _is_far(program, c, read[0], rows=extents[c.row]):
        return False
    long = _PAGE_BYTES * program.buffer(read[0].buffer).elements
    long //= program.buffer(read[0].buffer).bytes * sizes[c.lane][0]
    tiles = extents[c.lane] // sizes[c.lane][0]
    stripe = divisor(tiles, max(1, min(long, tiles // max(2, threads))))
    cut = _cut(draft, c, extents, sizes)
    if cut is None or stripe == 1 or not draft.play("split", c.root, stripe):
        return False
    outer, inner = cut
    nest = _isolated(draft, (*c.root, *(0,) * (len(outer) + len(inner))), len(outer) + len(inner))
    labels, op_depth = [*outer, *inner, "sum"], len(outer) + len(inner)
    part = _PART if vectors >= VECTORS else _FEW_PART
    if nest is None or not draft.play("split", (*nest, *(0,) * op_depth), part):
        return False
    if not draft.permute(nest, [*labels, "part"], ["sum", *outer, "part", *inner]):
        return False
    before = {b.name for b in draft.program.buffers}
    if not draft.play("split_reduction", (*nest, *(0,) * (op_depth + 2)), len(inner)):
        return False
    made = {b.name for b in draft.program.of_kind("tmp")} - before
    keep_close(draft, op.target.buffer)
    return all(draft.play("place", (), name, "reg") for name in made)


def _cut(draft: Draft, c: Contraction, extents, sizes) -> tuple[list[str], list[str]] | None:
    """Splits the result's iterators and brings the tile's scopes innermost.

    Returns:
        Labels of the scopes outside of the tile, and of the tile, each outermost first.
    """
    labels, tiles = [], {}
    for depth in c.outer:
        label, (size, wide) = f"i{depth}", sizes.get(depth, (1, 1))
        if depth not in sizes:
            labels.append(label)
            continue
        at, parts = (*c.root, *(0,) * len(labels)), [label]
        if 1 < size < extents[depth]:
            if not draft.play("split", at, size):
                return None
            parts, at = [f"{label}.", label], (*at, 0)
        elif size == 1:
            parts = [f"{label}."]
        if 1 < wide < size:
            if not draft.play("split", at, wide):
                return None
            parts.append(f"{label}v")
        labels += parts
        tiles[depth] = [p for p in parts if not p.endswith(".")]
    inner = [*tiles[c.row], *tiles[c.lane]]
    outer = [label for label in labels if label not in inner]
    outer.sort(key=lambda label: label != f"i{c.lane}.")  # so that its panels are used again
    return (outer, inner) if draft.permute(c.root, labels, [*outer, *inner]) else None


def _isolated(draft: Draft, at: Address, levels: int) -> Address | None:
    """Gives a sum a nest of its own below some scopes of the tile; returns the nest's address.

    Args:
        draft: The draft.
        at: Of the tile's innermost scope.
        levels: How many scopes the tile has.
    """
    part = next((k for k, node in enumerate(draft.body(at)) if isinstance(node, Scope)), None)
    if part is None:
        return None
    for _ in range(levels):
        if part + 1 < len(draft.body(at)) and not draft.play("fission", at, part + 1):
            return None
        if part > 0 and not draft.play("fission", at, part):
            return None
        part, at = at[-1] + (part > 0), at[:-1]
    return (*at, part)


def _sum_outside(draft: Draft, nest: Address, c: Contraction, inner: list[str], *, dot) -> bool:
    """Brings the summed iterators outside of the tile."""
    sums = [f"s{d}" for d in c.summed]
    labels = [*inner, *sums]
    if not dot:
        return draft.permute(nest, labels, [*sums, *inner])
    deepest = (*nest, *(0,) * (len(labels) - 1))
    extent = node_at(draft.program, deepest).extent
    if extent > LANES and not draft.play("split", deepest, LANES):
        return False
    if extent == LANES:
        return True
    wanted = [*sums, *inner, "lane"]
    if not draft.permute(nest, [*labels, "lane"], wanted):
        return False
    kept = len(inner) + 1
    partial = {b.name for b in draft.program.buffers}
    at = (*nest, *(0,) * len(wanted))
    if not draft.play("split_reduction", at, kept):
        return False
    made = {b.name for b in draft.program.of_kind("tmp")} - partial
    return all(draft.play("place", (), name, "reg") for name in made)


def _lane_of(draft: Draft, nest: Address, name: str) -> int:
    """Returns the depth of the innermost iterator of a nest that writes a buffer."""
    return next(len(at) - 2 for at, op in ops(draft.program, nest) if op.target.buffer == name)


def _pack(draft: Draft, at: Address, name: str) -> bool:
    """Copies an operand in front of a nest, so that lanes read it side by side."""
    before = {b.name for b in draft.program.buffers}
    if not draft.play("pack", at, name):
        return False
    made = next(b.name for b in draft.program.of_kind("tmp") if b.name not in before)
    reader = (*at[:-1], at[-1] + 1)
    where = next(
        where
        for where, op in ops(draft.program, reader)
        if any(ref.buffer == made for ref in refs_of(op.expr))
    )
    return put_last(draft, made, len(where) - 2)


def _panel(draft: Draft, at: Address, name: str) -> bool:
    """Copies what the lanes read in front of a scope that reads it again and again."""

    def steps() -> bool:
        before = {b.name for b in draft.program.buffers}
        if not _pack(draft, at, name):
            return False
        made = next(b for b in draft.program.of_kind("tmp") if b.name not in before)
        return made.bytes <= _PANEL_BYTES and draft.play("place", (), made.name, "stack")

    return node_at(draft.program, at).extent >= _REUSED and draft.attempt(steps)
