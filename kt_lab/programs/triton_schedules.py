"""Schedules for a GPU: what an engineer would try on any start program, as far as it lowers."""

from collections.abc import Iterator

from kt_lab.errors import ProgramError
from kt_lab.programs.access import home
from kt_lab.programs.draft import Draft
from kt_lab.programs.emit_triton import emit_triton
from kt_lab.programs.expert import fuse_all
from kt_lab.programs.ir import Program, Scope
from kt_lab.programs.moves.base import inner_extents
from kt_lab.programs.storage_plan import keep_close
from kt_lab.programs.surgery import children, node_at, ops
from kt_lab.programs.text import to_text

_BLOCK = 1024  # iterations that become lanes where a loop is cut for more programs


def triton_schedules(program: Program) -> dict[str, str]:
    """Returns schedules that `emit_triton` takes, by name; programs that are equal count once.

    Args:
        program: A start program, without marks.

    Returns:
        Some of: kept (rows stay in registers), recomputed (what is as long as a row is computed
        where it is read, so that blocks of a row suffice), turned (kept, with another outermost
        scope), split (the innermost loop of a perfect nest in blocks). Empty where none lowers.
    """
    found: dict[str, tuple[str, str]] = {}
    for name, draft in _drafts(program):
        try:
            emit_triton(draft.program)
        except ProgramError:
            continue
        text = to_text(draft.program)
        if text not in [known for known, _ in found.values()]:
            found[name] = text, draft.schedule
    return {name: schedule for name, (_, schedule) in found.items()}


def _drafts(program: Program) -> Iterator[tuple[str, Draft]]:
    for name in ("kept", "recomputed"):
        draft = Draft(program)
        fuse_all(draft)
        _store(draft, longest=None if name == "kept" else 1)
        yield name, draft
    draft = Draft(program)
    _turn(draft)
    fuse_all(draft)
    _store(draft, longest=None)
    yield "turned", draft
    draft = Draft(program)
    fuse_all(draft)
    _store(draft, longest=1)
    spine = (0,)
    while len(body := draft.body(spine)) == 1 and isinstance(body[0], Scope):
        spine = (*spine, 0)
    if len(draft.body(())) == 1 and not any(isinstance(node, Scope) for node in body):
        parts = [p for p in inner_extents(node_at(draft.program, spine).extent) if p <= _BLOCK]
        if parts and draft.play("split", spine, parts[-1]):
            yield "split", draft


def _turn(draft: Draft) -> None:
    """Brings scopes of the first nest's extent outermost in the others, where that is legal."""
    first = draft.body(())[0]
    for k, node in enumerate(draft.body(())):
        inner = children(draft.program, (k,)) if isinstance(node, Scope) else ()
        nested = len(inner) == 1 and isinstance(inner[0], Scope) and isinstance(first, Scope)
        if nested and inner[0].extent == first.extent != node.extent:
            draft.play("interchange", (k,))


def _store(draft: Draft, *, longest: int | None) -> None:
    """Keeps temporaries in registers, those of at most `longest` elements, and inlines others."""
    for name in [b.name for b in draft.program.of_kind("tmp") if b.place == "heap"]:

        def kept(name=name) -> bool:
            near = keep_close(draft, name) and bool(home(draft.program, name))
            return near and (not longest or draft.program.buffer(name).elements <= longest)

        if name in {b.name for b in draft.program.buffers} and not draft.attempt(kept):
            made = [(at, op) for at, op in ops(draft.program) if op.target.buffer == name]
            if len(made) == 1 and made[0][1].kind == "=":
                draft.play("inline", made[0][0])
