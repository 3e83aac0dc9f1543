"""The expert pass: rules of thumb that take any start program to a form that is hard to beat.

What an engineer does by habit, in this order: fuse what shares data, write short sums out, and two
rows of them side by side where they share what they read, hold tiles of contractions in registers,
give long reductions several accumulators, keep temporaries close or compute them again, bring
inwards what shares a large input and innermost what are neighbours in memory, divide once what is
divided by one number all along, run in vectors, use threads where the work is worth it, stream
results past caches that they do not fit, and fetch inputs ahead of what is computed or streamed.
Only legal moves are played, no operator is known by name, and nothing is measured.
"""

import math

from kt_lab.programs.draft import Draft
from kt_lab.programs.ir import Address, Expr, Op, Program, Ref, Scope, refs_of
from kt_lab.programs.moves.base import scopes
from kt_lab.programs.moves.division import is_division
from kt_lab.programs.moves.inlining import parts_of
from kt_lab.programs.register_tiles import LANES, VECTORS, contractions, divisor, tile
from kt_lab.programs.storage_plan import (
    compute_again,
    cost,
    is_heavy,
    share,
    store,
    stream,
)
from kt_lab.programs.surgery import extents_above, node_at, ops, walk
from kt_lab.programs.taps import share_taps, spine, write_out

ACCUMULATORS = 4  # vectors of partial sums of a long reduction
_LONG = 256  # iterations of a reduction that are worth them
_CHUNK = 8192  # iterations of a flat loop that a thread takes at a time
_UNROLLED = 64  # operations, and lanes of a vector, that are repeated in place of a loop
# Microseconds of one thread's work from which on it is worth to call the others, by how they wait.
ASLEEP_US, AWAKE_US = 50.0, 10.0
# Nanoseconds of one operation and one access in a vector loop, roughly.
_OPERATION_NS, _ACCESS_NS = 0.03, 0.05


def expert_schedule(
    program: Program, *, threads: int, region_us: float = ASLEEP_US, vectors: int = VECTORS
) -> str:
    """Returns the schedule that the expert pass makes of a start program.

    Args:
        program: Legal, without marks: a start program.
        threads: That the program will have, >= 1.
        region_us: Microseconds of estimated work from which on a scope is run by all threads:
            ASLEEP_US, or AWAKE_US where threads spin while they wait.
        vectors: How many vectors of 16 f32 elements the processor's registers hold, >= 4; see
            `kt_lab.runners.c.Toolchain.vectors`.
    """
    draft = Draft(program)
    fuse_all(draft)
    write_out(draft)
    share_taps(draft)
    _tile(draft, threads, vectors)
    compute_again(draft)
    _accumulate(draft)
    store(draft, threads)
    share(draft)
    if threads > 1:
        _chunk(draft, threads, region_us)
    _turn_inwards(draft)
    _divide_once(draft)
    _vectorise(draft)
    _unroll(draft)
    if threads > 1:
        _parallelise(draft, (), threads, region_us)
    stream(draft)
    return draft.schedule


def work_us(program: Program, at: Address = ()) -> float:
    """Estimates the microseconds that one thread spends at or below an address, vectorised."""
    total = 0.0
    for where, op in ops(program, at):
        runs = math.prod(extents_above(program, where))
        accessed = 1 + sum(1 for _ in refs_of(op.expr))
        steps = cost(op.expr) + (op.kind != "=")
        total += runs * (_OPERATION_NS * steps + _ACCESS_NS * accessed)
    return total / 1000


# -- the order of scopes ----------------------------------------------------------------------


def fuse_all(draft: Draft, above: Address = ()) -> None:
    """Joins scopes that share a buffer, neighbours or not, from the outside in."""
    while _fuse_one(draft, above):
        pass
    for k, node in enumerate(draft.body(above)):
        if isinstance(node, Scope):
            fuse_all(draft, (*above, k))


def _fuse_one(draft: Draft, above: Address) -> bool:
    nodes = draft.body(above)
    for first, node in enumerate(nodes):
        for second in range(first + 1, len(nodes)):
            other = nodes[second]
            alike = isinstance(node, Scope) and isinstance(other, Scope)
            if not alike or node.extent != other.extent:
                continue
            shared = _touched(draft, (*above, first)) & _touched(draft, (*above, second))
            if shared and _join(draft, above, first, second):
                return True
    return False


def _join(draft: Draft, above: Address, first: int, second: int) -> bool:
    """Fuses two scopes: what stands between goes before the first, or else behind the second."""

    def before() -> bool:
        met = all(draft.play("swap", (*above, k)) for k in range(first, second - 1))
        return met and draft.play("fuse", (*above, second - 1))

    def behind() -> bool:
        met = all(draft.play("swap", (*above, k)) for k in range(second - 1, first, -1))
        return met and draft.play("fuse", (*above, first))

    return draft.attempt(before) or (second > first + 1 and draft.attempt(behind))


def _touched(draft: Draft, at: Address) -> set[str]:
    found = ops(draft.program, at)
    return {ref.buffer for _, op in found for ref in (op.target, *refs_of(op.expr))}


def _tile(draft: Draft, threads: int, vectors: int) -> None:
    done = set()
    while left := [c for c in contractions(draft.program) if c.op not in done]:
        done.add(left[0].op)
        if tile(draft, left[0], threads=threads, vectors=vectors):
            return  # addresses have changed; programs of two contractions are not known here


def _turn_inwards(draft: Draft) -> None:
    """Brings the iterator along neighbours in memory innermost where scopes may change places."""
    for at, node in list(scopes(draft.program)):
        nest = spine(node)
        nested = len(at) == 1 or len(draft.body(at[:-1])) > 1
        flat = all(isinstance(op, Op) for op in nest[-1].body)
        if not nested or not flat or len(nest) < 2 or any(s.mark for s in nest):
            continue
        depth = len(at) - 1
        worth = [_neighbours(draft.program, nest[-1], depth + k) for k in range(len(nest))]
        best = max(range(len(nest)), key=lambda k: (worth[k], k))
        if worth[best] > worth[-1]:
            names = list(map(str, range(len(nest))))
            wanted = [*names[:best], *names[best + 1 :], names[best]]
            draft.attempt(lambda at=at, n=names, w=wanted: draft.permute(at, n, w))


def _neighbours(program: Program, scope: Scope, depth: int) -> int:
    """Returns how well the operations of a scope would run along an iterator."""

    def points(ref: Ref, written: str) -> int:
        step = abs(program.buffer(ref.buffer).offset(ref.indices).coefficient(depth))
        good = step == 1 or (step == 0 and written not in ("", "="))
        return (4 if written else 1) * good - (8 if written else 2) * (step > 1)

    return sum(
        points(op.target, op.kind) + sum(points(ref, "") for ref in refs_of(op.expr))
        for op in scope.body
    )


def _divide_once(draft: Draft) -> None:
    """Multiplies by the reciprocal of what does not move with the innermost iterator."""
    for at, op in list(ops(draft.program)):
        depth = len(at) - 2
        for path, part in reversed(list(parts_of(op.expr))):
            if is_division(part) and any(refs_of(part.right)) and not _moves(part.right, depth):
                draft.play("reciprocal", at, *path)


def _moves(expr: Expr, depth: int) -> bool:
    return any(i.coefficient(depth) for ref in refs_of(expr) for i in ref.indices)


# -- reductions -------------------------------------------------------------------------------


def _accumulate(draft: Draft) -> None:
    """Gives long reductions several vectors of partial results: no step waits for another."""
    width = ACCUMULATORS * LANES
    for at, node in reversed(list(scopes(draft.program))):
        flat = all(isinstance(op, Op) for op in node.body)
        if not flat or node.extent < _LONG or node.extent % width or is_heavy(node):
            continue
        sums = [k for k, op in enumerate(node.body) if _is_reduced(op, len(at) - 1)]
        if sums:
            draft.attempt(lambda at=at, sums=sums: _partial(draft, at, sums))


def _partial(draft: Draft, at: Address, sums: list[int]) -> bool:
    if not (
        draft.play("split", at, ACCUMULATORS * LANES) and draft.play("split", (*at, 0), LANES)
    ):
        return False
    for k in sums:
        if not _split_sum(draft, (*at, 0, 0, k), 2):
            return False
        at = (*at[:-1], at[-1] + 1)
        # behind it the vectors are added to one, whose lanes are added last
        draft.attempt(lambda at=at: _split_sum(draft, (*at[:-1], at[-1] + 1, 0, 0), 1))
    return True


def _split_sum(draft: Draft, at: Address, kept: int) -> bool:
    """Plays split_reduction, its partial results in registers."""
    if not draft.play("split_reduction", at, kept):
        return False
    outer = at[: -1 - kept]  # where it starts them now, and reduces behind
    step = node_at(draft.program, (*outer[:-1], outer[-1] + 1, *at[len(outer) :]))
    return draft.play("place", (), step.target.buffer, "reg")


def _is_reduced(op: Op, depth: int) -> bool:
    return op.kind != "=" and not any(i.coefficient(depth) for i in op.target.indices)


# -- marks ------------------------------------------------------------------------------------


def _vectorise(draft: Draft) -> None:
    for at, node in list(scopes(draft.program)):
        if node.extent > 1 and all(isinstance(child, Op) for child in node.body):
            draft.play("vectorise", at)


def _unroll(draft: Draft) -> None:
    """Repeats the loops of tiles: what then moves with no iterator can stay in registers."""
    for at, node in reversed(list(scopes(draft.program))):
        inner = [n for _, n in walk(draft.program, at) if isinstance(n, Scope)]
        small = all(n.extent <= _UNROLLED for n in inner)
        sums = any(_is_reduced(op, len(at) - 1) for _, op in ops(draft.program, at))
        if inner and small and not sums and node.extent <= LANES:
            draft.play("unroll", at)


def _chunk(draft: Draft, threads: int, region_us: float) -> None:
    """Cuts flat loops in two, so that threads can run outside of vectors."""
    for at, node in list(scopes(draft.program)):
        flat = all(isinstance(op, Op) for op in node.body)
        shallow = all(node_at(draft.program, at[:n]).extent == 1 for n in range(1, len(at)))
        wide = node.extent >= threads
        if flat and shallow and wide and work_us(draft.program, at) > region_us:
            part = divisor(node.extent, min(_CHUNK, node.extent // threads))
            if part >= LANES:
                draft.play("split", at, part)


def _parallelise(draft: Draft, above: Address, threads: int, region_us: float) -> bool:
    """Runs the outermost scopes that are worth it by all threads; tells whether one is."""
    found = False
    for k, node in enumerate(draft.body(above)):
        at = (*above, k)
        if isinstance(node, Op) or work_us(draft.program, at) < region_us:
            continue
        found |= (
            (node.extent >= threads and draft.play("parallelise", at))
            or _parallelise(draft, at, threads, region_us)
            or draft.play("parallelise", at)
        )
    return found
