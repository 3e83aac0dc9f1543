"""Short sums, side by side: the taps of a filter, and rows of results that share what they read.

Written out, nine taps are nine operations of one innermost scope. Two rows of results at a time
then read two thirds of what they would read one after the other.
"""

import math

from kt_lab.programs.affine import Affine
from kt_lab.programs.draft import Draft
from kt_lab.programs.ir import Address, Op, Scope, refs_of
from kt_lab.programs.moves.base import scopes
from kt_lab.programs.moves.expansion import EXPANDED
from kt_lab.programs.register_tiles import contractions
from kt_lab.programs.surgery import node_at

_TAPS = 16  # operations that a sum is written out to
_ROWS = 2  # of results at a time


def write_out(draft: Draft) -> None:
    """Writes short nests of a sum out, from the inside: then what is around them is innermost."""
    inside = {c.op[: len(c.root)] for c in contractions(draft.program)}
    for at, node in reversed(list(scopes(draft.program))):
        size = math.prod(s.extent for s in spine(node)) * len(spine(node)[-1].body)
        within = any(at[: len(root)] == root for root in inside)
        if not within and size <= _TAPS and len(at) > 1 and _is_sum(node, len(at) - 1):
            _write_out(draft, at)


def _write_out(draft: Draft, at: Address) -> None:
    def steps() -> bool:
        deep = (*at, *(0,) * (len(spine(node_at(draft.program, at))) - 1))
        return all(draft.play("expand", deep[:n]) for n in range(len(deep), len(at) - 1, -1))

    draft.attempt(steps)


def _is_sum(scope: Scope, depth: int) -> bool:
    """Whether a scope holds reductions into what does not move with it, and nothing else."""
    leaves = spine(scope)[-1].body
    return all(
        isinstance(op, Op)
        and op.kind != "="
        and not any(i.coefficient(depth) for i in op.target.indices)
        for op in leaves
    )


def spine(scope: Scope) -> list[Scope]:
    """Returns a scope and those below it that are their parent's only child."""
    found = [scope]
    while len(found[-1].body) == 1 and isinstance(found[-1].body[0], Scope):
        found.append(found[-1].body[0])
    return found


def share_taps(draft: Draft) -> None:
    """Computes two rows at a time where they share half of what they read, or more."""
    for at, node in list(scopes(draft.program)):
        inner = spine(node)[-1]
        flat = all(isinstance(op, Op) for op in inner.body)
        if len(spine(node)) != 2 or not flat or _ROWS * len(inner.body) > EXPANDED:
            continue
        read = _read(draft, inner, len(at) - 1)
        following = {(name, form.plus(step)) for name, form, step in read}
        own = {(name, form) for name, form, _ in read}
        if 2 * len(own & following) >= len(own) > 0:
            draft.attempt(lambda at=at, inner=inner: _side_by_side(draft, at, inner))


def _read(draft: Draft, inner: Scope, rows: int) -> set[tuple[str, Affine, int]]:
    """Returns what moves with the rows and along them, where it is, and the step to the next."""
    found = set()
    for ref in (ref for op in inner.body for ref in refs_of(op.expr)):
        form = draft.program.buffer(ref.buffer).offset(ref.indices)
        if form.coefficient(rows) and form.coefficient(rows + 1):
            found.add((ref.buffer, form, form.coefficient(rows)))
    return found


def _side_by_side(draft: Draft, at: Address, inner: Scope) -> bool:
    """Writes two rows out in one scope; what they keep for themselves stays apart."""
    rows = len(at) - 1
    kept = {
        (op.target.buffer, k)
        for op in inner.body
        for k, index in enumerate(op.target.indices)
        if draft.program.buffer(op.target.buffer).kind == "tmp" and index.coefficient(rows)
    }
    return (
        draft.play("split", at, _ROWS)
        and draft.play("interchange", (*at, 0))
        and draft.play("expand", (*at, 0, 0))
        and all(draft.play("split_dim", (), name, k, _ROWS) for name, k in sorted(kept))
    )
