"""Where the expert pass keeps what a program touches: as near and as small as is legal."""

from kt_lab.programs.c_scopes import further_on, next_rows, streamed, tiles_ahead
from kt_lab.programs.draft import Draft
from kt_lab.programs.ir import Address, Binary, Call, Expr, Op, Program, Scope, refs_of
from kt_lab.programs.moves.base import scopes
from kt_lab.programs.schedule import possible_moves
from kt_lab.programs.surgery import ops

# Of all local variables together: half of what C may have, `emit_c.STACK_BYTES`.
_LOCAL_BYTES = 1 << 19
_CHEAP = 2  # operations that computing something again may cost
_FAR = 1 << 20  # bytes of an input that are gone from a core's cache before they are read again
_STREAMED = 16 << 20  # bytes of a result from which on it passes the caches by
_FETCHED = 8192  # elements of a row at most that is fetched while the one before is written
_HEAVY = 16  # operations that a function counts as


def compute_again(draft: Draft) -> None:
    """Computes cheap temporaries again that would not stay close, while their nests are whole."""
    for name in _on_heap(draft):
        if not draft.would(lambda name=name: keep_close(draft, name)):
            recompute(draft, name)


def store(draft: Draft, threads: int) -> None:
    """Settles every temporary on the heap: close, or computed again, or at least small."""
    for name in _on_heap(draft):
        if name not in {b.name for b in draft.program.buffers}:
            continue
        settled = keep_close(draft, name) or recompute(draft, name)
        if not settled and threads == 1:  # threads could not share it any more
            reuse(draft, name)


def share(draft: Draft) -> None:
    """Brings the iterator inwards along which a large input is read again and again."""
    for at, node in list(scopes(draft.program)):
        inner = node.body[0]
        nested = len(node.body) == 1 and isinstance(inner, Scope)
        if nested and any(isinstance(child, Scope) for child in inner.body):
            outer, own = _read_again(draft.program, at)
            if outer >= _FAR and not own:
                draft.play("interchange", at)


def _read_again(program: Program, at: Address) -> tuple[int, int]:
    """Returns the bytes of the inputs that move with one alone of a scope and its only child.

    Those that the scope does not move, and those that the child does not.
    """
    pair, again = (len(at) - 1, len(at)), {}
    for ref in (ref for _, op in ops(program, at) for ref in refs_of(op.expr)):
        moves = tuple(any(i.coefficient(d) for i in ref.indices) for d in pair)
        if program.buffer(ref.buffer).kind == "in":
            again[ref.buffer, moves] = program.buffer(ref.buffer).bytes
    return tuple(
        sum(size for (_, moves), size in again.items() if moves == wanted)
        for wanted in ((False, True), (True, False))
    )


def stream(draft: Draft) -> None:
    """Writes large results past the caches; fetches the next rows of large inputs meanwhile."""
    for buffer in draft.program.of_kind("out"):
        if buffer.bytes >= _STREAMED:
            draft.play("place", (), buffer.name, "nt")
    for buffer in draft.program.of_kind("in"):
        if buffer.bytes >= _STREAMED:
            draft.attempt(lambda name=buffer.name: _fetch(draft, name))


def _fetch(draft: Draft, name: str) -> bool:
    """Fetches an input ahead; tells whether it is worth it.

    It is for tiles that are used several times, for rows that fit the first cache, and where much
    is computed of what is read but once: other streams the hardware keeps up with.
    """
    if not draft.play("place", (), name, "ahead"):
        return False
    for at, node in scopes(draft.program):
        if any(fetch.buffer == name for fetch in tiles_ahead(draft.program, at)):
            return True
        if streamed(draft.program, at):
            if name in next_rows(draft.program, at):
                return node.extent <= _FETCHED
            if name in further_on(draft.program, at):
                return is_heavy(node)
    return False


def _on_heap(draft: Draft) -> list[str]:
    return [b.name for b in draft.program.of_kind("tmp") if b.place == "heap"]


def keep_close(draft: Draft, name: str) -> bool:
    """Shrinks a temporary to what one iteration needs and puts it in registers or on the stack.

    Returns:
        Whether it went there; if not, nothing has changed.
    """

    def steps(place: str, split: bool) -> bool:
        while split and _split_one(draft, name):
            pass
        reuse(draft, name)
        size = sum(b.bytes for b in draft.program.of_kind("tmp") if b.place != "heap")
        fits = size + draft.program.buffer(name).bytes <= _LOCAL_BYTES
        placed = draft.program.buffer(name).place == place
        return fits and (placed or draft.play("place", (), name, place))

    return any(
        draft.attempt(lambda place=place, split=split: steps(place, split))
        for place in ("reg", "stack")
        for split in (False, True)
    )


def recompute(draft: Draft, name: str) -> bool:
    """Computes a temporary again where it is read, if that is cheaper than to store it."""
    made = [(at, op) for at, op in ops(draft.program) if op.target.buffer == name]
    cheap = len(made) == 1 and made[0][1].kind == "=" and cost(made[0][1].expr) <= _CHEAP
    return cheap and draft.play("inline", made[0][0])


def put_last(draft: Draft, name: str, depth: int) -> bool:
    """Makes neighbours along an iterator neighbours in a temporary's storage.

    Args:
        draft: The draft.
        name: The temporary.
        depth: Of the iterator, in the operation that updates it, or else reads it.
    """

    def position() -> int | None:
        for _, op in ops(draft.program):
            for ref in (op.target, *refs_of(op.expr)):
                if ref.buffer == name:
                    for k, index in enumerate(ref.indices):
                        if index.coefficient(depth) == 1 and op.kind == "+=":
                            return k
        return None

    while (k := position()) is not None and draft.play("swap_dims", (), name, k):
        pass
    return k is not None


def cost(expr: Expr) -> float:
    """Returns the operations of an expression; a function counts as 16."""
    if isinstance(expr, Binary):
        return 1 + cost(expr.left) + cost(expr.right)
    if isinstance(expr, Call):
        own = 1 if expr.fn in ("max", "min", "abs", "neg", "select") else 16
        return own + sum(map(cost, expr.args))
    return 0


def is_heavy(scope: Scope) -> bool:
    """Tells whether an operation of a scope takes as long as a function, longer than waits do."""
    return any(isinstance(op, Op) and cost(op.expr) >= _HEAVY for op in scope.body)


def reuse(draft: Draft, name: str) -> None:
    """Lets iterations share the place of a temporary, wherever that is legal."""
    for position in range(len(draft.program.buffer(name).dims)):
        draft.play("reuse_dim", (), name, position)


def _split_one(draft: Draft, name: str) -> bool:
    found = [m for m in possible_moves(draft.program, "split_dim") if m.arguments[0] == name]
    # the largest inner part first, so that what is split twice is split in order
    return any(
        draft.play("split_dim", (), *m.arguments)
        for m in sorted(found, key=lambda m: -m.arguments[2])
    )
