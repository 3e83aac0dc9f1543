"""Where the expert pass keeps temporaries: as near and as small as is legal."""

from kt_lab.programs.draft import Draft
from kt_lab.programs.ir import Binary, Call, Expr, refs_of
from kt_lab.programs.schedule import possible_moves
from kt_lab.programs.surgery import ops

# Of all local variables together: half of what C may have, `emit_c.STACK_BYTES`.
_LOCAL_BYTES = 1 << 19
_CHEAP = 2  # operations that computing something again may cost


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
