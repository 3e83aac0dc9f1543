"""Programs as numbers, for models that learn which of them are fast: structure, and hashed text.

The structure is what a compiler and a cache would look at: how much is computed, where it is
stored, with which strides the innermost loops go, and what runs in parallel, in vectors, unrolled.
The text is counted as n-grams of its tokens, hashed into a fixed number of columns, so that a
model can also see what the structure does not say.
"""

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator

import numpy as np

from kt_lab.programs.affine import Affine
from kt_lab.programs.ir import Buffer, Op, Program, Ref, Scope, refs_of
from kt_lab.programs.surgery import scopes_above, walk
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
    counts = Counter(
        " ".join(tokens[at : at + n]) for n in GRAMS for at in range(len(tokens) - n + 1)
    )
    hashed = np.zeros(COLUMNS)
    for gram, count in counts.items():
        code = zlib.crc32(gram.encode())
        hashed[(code >> 1) % COLUMNS] += (1 if code & 1 else -1) * math.log1p(count)
    return hashed


def features(program: Program) -> np.ndarray:
    """Returns structure and n-grams of a program, shape (len(STRUCTURE) + COLUMNS,)."""
    return np.concatenate([structure(program), n_grams(program)])


def _work(program: Program) -> dict[str, float]:
    """Returns the features that weigh every operation by how often it runs."""
    total, inner, traffic = 0, 0.0, 0
    shares: Counter[str] = Counter()
    strides: Counter[str] = Counter()
    for at, op in walk(program):
        if not isinstance(op, Op):
            continue
        above = scopes_above(program, at)
        runs = math.prod(scope.extent for scope in above)
        total += runs
        for mark in _MARKS:
            shares[f"{mark}_share"] += runs * any(s.mark.startswith(mark) for s in above)
        last = above[-1] if above else Scope(1, "", (op,))
        inner += runs * _log(last.extent)
        vector = last.mark == "v"
        shares["wide_vector_share"] += runs * (vector and last.extent % _WIDE == 0)
        shares["reduction_share"] += runs * (op.kind != "=")
        shares["scalar_reduction_share"] += runs * (op.kind != "=" and not vector)
        for buffer, offset in _offsets(program, op):
            step = abs(offset.coefficient(len(above) - 1)) if above else 0
            strides[("fixed", "unit")[step] if step < 2 else "strided"] += runs
            traffic += runs * (buffer.place in ("heap", "nt") and step > 0)
    accesses = sum(strides.values())
    return {
        "work": _log(total),
        "inner_extent": inner / total,
        "touched_bytes": _log(4 * traffic),
        **{name: shares[name] / total for name in STRUCTURE if name in shares},
        **{f"{name}_share": strides[name] / accesses for name in ("fixed", "unit", "strided")},
    }


def _offsets(program: Program, op: Op) -> Iterator[tuple[Buffer, Affine]]:
    refs: tuple[Ref, ...] = (op.target, *refs_of(op.expr))
    for ref in refs:
        buffer = program.buffer(ref.buffer)
        yield buffer, buffer.offset(ref.indices)


def _log(number: float) -> float:
    return math.log2(1 + number)
