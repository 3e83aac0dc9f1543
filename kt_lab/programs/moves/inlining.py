"""Moves that trade temporaries for recomputation: inline and extract."""

from collections.abc import Iterator
from dataclasses import replace

from kt_lab.errors import ProgramError
from kt_lab.programs.access import common_prefix
from kt_lab.programs.affine import Affine
from kt_lab.programs.c_ops import computing_dtype
from kt_lab.programs.ir import (
    Address,
    Binary,
    Buffer,
    Call,
    Dim,
    Expr,
    Op,
    Program,
    Ref,
    refs_of,
)
from kt_lab.programs.moves.base import Kind, Move, Rule
from kt_lab.programs.surgery import (
    buffers_with,
    canonical,
    extents_above,
    fresh_name,
    node_at,
    ops,
    replaced,
    with_reads,
)

LARGEST = 48  # nodes of an expression that inlining may come to


def parts_of(expr: Expr, path: Address = ()) -> Iterator[tuple[Address, Expr]]:
    """Yields every part of an expression with the child positions that lead to it."""
    yield path, expr
    inner = (expr.left, expr.right) if isinstance(expr, Binary) else ()
    for position, part in enumerate(expr.args if isinstance(expr, Call) else inner):
        yield from parts_of(part, (*path, position))


def _exchanged(expr: Expr, old: Expr, new: Expr) -> Expr:
    """Returns an expression with every part that equals another replaced."""
    if expr == old:
        return new
    if isinstance(expr, Binary):
        left, right = (_exchanged(part, old, new) for part in (expr.left, expr.right))
        return Binary(expr.op, left, right)
    if isinstance(expr, Call):
        return Call(expr.fn, tuple(_exchanged(arg, old, new) for arg in expr.args))
    return expr


def _readers(program: Program, name: str) -> list[tuple[Address, Op]]:
    return [(at, op) for at, op in ops(program) if any(r.buffer == name for r in refs_of(op.expr))]


def _recomputed(producer: Op, read: Ref, shared: int) -> Expr | None:
    """Returns the producer's expression for the element that is read, or None.

    Args:
        producer: The operation that wrote it.
        read: An access with the same buffer.
        shared: How many scopes enclose both; deeper iterators of the producer are solved for.
    """
    forms = {d: Affine.iterator(d) for d in range(shared)}
    pairs = list(zip(producer.target.indices, read.indices, strict=True))
    for given, asked in pairs:
        own = [d for d in given.depths if d >= shared]
        if len(own) == 1 and given.coefficient(own[0]) == 1:
            rest = given.plus(Affine.iterator(own[0], -1))
            forms.setdefault(own[0], asked.plus(rest.times(-1)))
    used = {d for index, _ in pairs for d in index.depths}
    used |= {d for ref in refs_of(producer.expr) for i in ref.indices for d in i.depths}
    if not used <= forms.keys():
        return None
    if any(given.rewritten(forms.__getitem__) != asked for given, asked in pairs):
        return None
    return with_reads(
        producer.expr,
        lambda ref: Ref(ref.buffer, tuple(i.rewritten(forms.__getitem__) for i in ref.indices)),
    )


def _inlined(program: Program, at: Address) -> dict[Address, Op] | None:
    """Returns every reader of a producer's temporary without it; None where that cannot be."""
    producer = node_at(program, at)
    name, changed = producer.target.buffer, {}
    for reader, op in _readers(program, name):
        shared = len(common_prefix(at[:-1], reader[:-1]))
        forms = {
            ref: _recomputed(producer, ref, shared)
            for ref in refs_of(op.expr)
            if ref.buffer == name
        }
        if reader == at or None in forms.values():
            return None
        expr = with_reads(op.expr, lambda ref, forms=forms: forms.get(ref, ref))
        changed[reader] = replace(op, expr=expr)
    return changed or None


def _find_inlines(program: Program) -> Iterator[Move]:
    temporaries = {b.name for b in program.of_kind("tmp")}
    for at, op in ops(program):
        if op.kind == "=" and op.target.buffer in temporaries and _inlined(program, at):
            yield Move("inline", at)


def _inline(program: Program, move: Move) -> Program:
    # the consumers first: taking the producer out may move them
    for reader, op in _inlined(program, move.at).items():
        program = replaced(program, reader, op)
    return canonical(replaced(program, move.at))


def _is_single(program: Program, move: Move) -> bool:
    name = node_at(program, move.at).target.buffer
    return not any(at != move.at and op.target.buffer == name for at, op in ops(program))


def _operands_stay(program: Program, move: Move) -> bool:
    producer = node_at(program, move.at)
    operands = {ref.buffer for ref in refs_of(producer.expr)}
    writers = [at for at, op in ops(program) if op.target.buffer in operands]
    for reader, _ in _readers(program, producer.target.buffer):
        level = len(common_prefix(move.at, reader))
        # a reader beside the producer writes only after it has read
        others = (w for w in writers if w[:level] == reader[:level] and w != reader[: level + 1])
        if any(move.at[level] <= writer[level] <= reader[level] for writer in others):
            return False
    return True


def _rounds_alike(program: Program, move: Move) -> bool:
    """Whether the temporary, its operation and all readers, before and after, share a dtype."""
    if len({buffer.dtype for buffer in program.buffers}) == 1:
        return True
    producer = node_at(program, move.at)
    readers = (op for _, op in _readers(program, producer.target.buffer))
    parts = (producer, *readers, *_inlined(program, move.at).values())
    dtypes = {computing_dtype(program, op) for op in parts}
    return dtypes == {program.buffer(producer.target.buffer).dtype}


def _is_small(program: Program, _: Move) -> bool:
    return all(sum(1 for _ in parts_of(op.expr)) <= LARGEST for _, op in ops(program))


def _extract_of(program: Program, move: Move) -> Move | None:
    """Returns the extract that undoes an inline, where one does.

    That is where the temporary is one that extract makes: a register beside its only reader, with
    a dimension, reused, for every iterator of its value.
    """
    result, producer = _inline(program, move), node_at(program, move.at)
    try:
        reader = node_at(result, move.at)
    except ProgramError:
        return None
    for path, part in parts_of(reader.expr) if isinstance(reader, Op) else ():
        if part == producer.expr:
            found = Move("extract", move.at, path)
            same = found in _find_extracts(result) and _extract(result, found) == program
            return found if same else None
    return None


def _find_extracts(program: Program) -> Iterator[Move]:
    for at, op in ops(program):
        seen: list[Expr] = []
        for path, part in parts_of(op.expr):
            works = isinstance(part, Binary | Call) and any(refs_of(part))
            if works and part not in seen and (path or op.kind != "="):
                seen.append(part)
                yield Move("extract", at, path)


def _extract(program: Program, move: Move) -> Program:
    op, name = node_at(program, move.at), fresh_name(program)
    part = dict(parts_of(op.expr))[move.arguments]
    used = sorted({d for ref in refs_of(part) for index in ref.indices for d in index.depths})
    extents = extents_above(program, move.at)
    dims = tuple(Dim(extents[d], True) for d in used) or (Dim(1),)
    read = Ref(name, tuple(Affine.iterator(d) for d in used) or (Affine(),))
    kept = Buffer(name, "tmp", computing_dtype(program, op), dims, "reg")
    header = buffers_with(program, {name: kept})
    longer = replace(program, buffers=header)
    reader = replace(op, expr=_exchanged(op.expr, part, read))
    return canonical(replaced(longer, move.at, Op(read, "=", part), reader))


# A law of the result of any move that makes expressions longer.
SIZE = Rule(
    "size", f"an expression has at most {LARGEST} parts", _is_small, after=True, limit=True
)

KINDS = (
    Kind(
        "inline",
        "Computes a temporary where it is read, in place of the operation that wrote it.",
        (
            Rule("single", "no other operation writes the temporary", _is_single),
            Rule(
                "operands",
                "nothing between the operation and the reads writes what it computes from",
                _operands_stay,
            ),
            Rule(
                "dtype",
                "the temporary is of the one dtype that is computed in, before and after",
                _rounds_alike,
                limit=True,
            ),
            SIZE,
        ),
        _find_inlines,
        _inline,
        _extract_of,
    ),
    Kind(
        "extract",
        "Keeps a part of an expression in a register; the arguments lead to the part.",
        (),
        _find_extracts,
        _extract,
        lambda _, move: Move("inline", move.at),
    ),
)
