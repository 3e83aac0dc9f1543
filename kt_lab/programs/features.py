"""Programs as numbers, for models that learn which of them are fast: structure, and hashed text.

The structure is what a compiler and a cache would look at: how much is computed, where it is
stored, with which strides the innermost loops go, and what runs in parallel, in vectors, unrolled.
The text is counted as n-grams of its tokens, hashed into a fixed number of columns, so that a
model can also see what the structure does not say.
"""

import functools
import itertools
import math
import re
import zlib
from collections import Counter

import numpy as np

from kt_lab.programs.facts import PARTS, Same
from kt_lab.programs.ir import Program, Scope, refs_of
from kt_lab.programs.surgery import ops, scopes_above, walk
from kt_lab.programs.text import to_text

COLUMNS = 64  # that n-grams are hashed into
GRAMS = (1, 2, 3)
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|[^\s\w]")
_MARKS = ("p", "v", "u")
_WIDE = 16  # lanes of f32 in the widest vectors of today

STRUCTURE = (
    "operations",
    "scopes",
    "depth",
    "work",
    "temporaries",
    *(f"{place}_bytes" for place in ("heap", "stack", "reg")),
    "reused_dims",
    "streamed_outputs",
    *(f"{mark}_scopes" for mark in _MARKS),
    *(f"{mark}_share" for mark in _MARKS),
    *(f"{mark}_extent" for mark in _MARKS),
    "wide_vector_share",
    "reduction_share",
    "scalar_reduction_share",
    "inner_extent",
    *(f"{kind}_share" for kind in ("fixed", "unit", "strided")),
    "touched_bytes",
)
"""Names of the first columns; extents, work and bytes are base-2 logarithms of 1 + the number."""


def structure(program: Program) -> np.ndarray:
    """Returns the structural features of a program, shape (len(STRUCTURE),).

    Work counts operations as often as they run; shares are shares of it (those of strides, of
    all its accesses).
    """
    nodes = list(walk(program))
    scopes = [node for _, node in nodes if isinstance(node, Scope)]
    found = {
        "operations": len(nodes) - len(scopes),
        "scopes": len(scopes),
        "depth": max(len(at) for at, _ in nodes) - 1,
        "temporaries": len(program.of_kind("tmp")),
        "reused_dims": sum(dim.reused for b in program.buffers for dim in b.dims),
        "streamed_outputs": sum(b.place == "nt" for b in program.buffers),
    }
    for place in ("heap", "stack", "reg"):
        sizes = (b.bytes for b in program.of_kind("tmp") if b.place == place)
        found[f"{place}_bytes"] = _log(sum(sizes))
    for mark in _MARKS:
        marked = [scope.extent for scope in scopes if scope.mark.startswith(mark)]
        found[f"{mark}_scopes"] = len(marked)
        found[f"{mark}_extent"] = np.mean([_log(e) for e in marked]) if marked else 0.0
    found |= _work(program)
    return np.asarray([found[name] for name in STRUCTURE], dtype=float)


def n_grams(program: Program) -> np.ndarray:
    """Returns how often n-grams of the text's tokens occur, hashed, shape (COLUMNS,).

    Counts are ln(1 + n) with a sign that is hashed too, so that n-grams which share a column do
    not all add up.
    """
    tokens = _TOKEN.findall(to_text(program).partition("\n")[2])
    runs = (zip(*(tokens[k:] for k in range(n)), strict=False) for n in GRAMS)
    counts = Counter(itertools.chain.from_iterable(runs))
    columns, signs = zip(*map(_column, counts), strict=True)
    weights = [s * math.log1p(n) for s, n in zip(signs, counts.values(), strict=True)]
    return np.bincount(columns, weights=weights, minlength=COLUMNS)


@functools.lru_cache(maxsize=PARTS)
def _column(gram: tuple[str, ...]) -> tuple[int, int]:
    """Returns the column that an n-gram is hashed into, and its sign."""
    code = zlib.crc32(" ".join(gram).encode())
    return (code >> 1) % COLUMNS, 1 if code & 1 else -1


def features(program: Program) -> np.ndarray:
    """Returns structure and n-grams of a program, shape (len(STRUCTURE) + COLUMNS,)."""
    return np.concatenate([structure(program), n_grams(program)])


def _work(program: Program) -> dict[str, float]:
    """Returns the features that weigh every operation by how often it runs."""
    total, inner, traffic = 0, 0.0, 0
    shares: Counter[str] = Counter()
    strides: Counter[str] = Counter()
    for at, op in ops(program):
        above = tuple((scope.extent, scope.mark) for scope in scopes_above(program, at))
        runs, log, ours, stepped, moved = _work_of(Same(op), Same(program.buffers), above)
        total += runs
        inner += log
        traffic += moved
        shares.update(ours)
        strides.update(stepped)
    accesses = sum(strides.values())
    return {
        "work": _log(total),
        "inner_extent": inner / total,
        "touched_bytes": _log(4 * traffic),
        **{name: shares[name] / total for name in STRUCTURE if name in shares},
        **{f"{name}_share": strides[name] / accesses for name in ("fixed", "unit", "strided")},
    }


@functools.lru_cache(maxsize=PARTS)
def _work_of(op: Same, buffers: Same, above: tuple[tuple[int, str], ...]) -> tuple:
    """Returns what one operation under some scopes adds to these features."""
    op, named = op.of, {buffer.name: buffer for buffer in buffers.of}
    runs, traffic = math.prod(extent for extent, _ in above), 0
    extent, mark = above[-1] if above else (1, "")
    shares = {f"{m}_share": runs * any(a.startswith(m) for _, a in above) for m in _MARKS}
    shares["wide_vector_share"] = runs * (mark == "v" and extent % _WIDE == 0)
    shares["reduction_share"] = runs * (op.kind != "=")
    shares["scalar_reduction_share"] = runs * (op.kind != "=" and mark != "v")
    strides: Counter[str] = Counter()
    for ref in (op.target, *refs_of(op.expr)):
        buffer = named[ref.buffer]
        step = abs(buffer.offset(ref.indices).coefficient(len(above) - 1)) if above else 0
        strides[("fixed", "unit")[step] if step < 2 else "strided"] += runs
        traffic += runs * (buffer.place in ("heap", "nt", "ahead") and step > 0)
    return runs, runs * _log(extent), shares, strides, traffic


def _log(number: float) -> float:
    return math.log2(1 + number)
