"""Tree surgery: reach, replace and rewrite parts of a program; every function makes a new tree.

Depths and addresses: the node at address (a0, .., an) stands under n scopes; if it is a scope,
its iterator is {n}. Scopes on the way to it have the iterators {0} .. {n-1}.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from kt_lab.errors import ProgramError
from kt_lab.programs.affine import Affine
from kt_lab.programs.facts import PARTS, Same, fact
from kt_lab.programs.ir import (
    Address,
    Binary,
    Buffer,
    Call,
    Expr,
    Node,
    Op,
    Program,
    Ref,
    Scope,
    refs_of,
)

_MADE = re.compile(r"t\d+")  # the names of temporaries that moves make


def children(program: Program, address: Address) -> tuple[Node, ...]:
    """Returns the nodes in a scope, or those of the program's body for ()."""
    if not address:
        return program.body
    node = node_at(program, address)
    return node.body if isinstance(node, Scope) else ()


def node_at(program: Program, address: Address) -> Node:
    """Returns the node at an address of length >= 1, or raises ProgramError."""
    body, node = program.body, None
    for step in address:
        if not 0 <= step < len(body):
            break
        node = body[step]
        body = node.body if isinstance(node, Scope) else ()
    else:
        if node is not None:
            return node
    raise ProgramError(f"an address leads to a node of the program; got {address}")


def walk(program: Program, address: Address = ()) -> Iterator[tuple[Address, Node]]:
    """Yields every node below an address with its own address, parents first, in order."""
    return iter(_below(program, address))


@fact
def _below(program: Program, address: Address) -> list[tuple[Address, Node]]:
    return _listed(children(program, address), address)


def _listed(body: tuple[Node, ...], address: Address) -> list[tuple[Address, Node]]:
    found = []
    for position, node in enumerate(body):
        found.append((here := (*address, position), node))
        if isinstance(node, Scope):
            found += _listed(node.body, here)
    return found


@fact
def ops(program: Program, address: Address = ()) -> tuple[tuple[Address, Op], ...]:
    """Returns the operations at or below an address with their own addresses, in order."""
    here = ((address, node_at(program, address)),) if address else ()
    return tuple((at, n) for at, n in (*here, *_below(program, address)) if isinstance(n, Op))


@fact
def scopes_above(program: Program, address: Address) -> tuple[Scope, ...]:
    """Returns the scopes that enclose a node (itself excluded), outermost first."""
    if len(address) < 2:
        return ()
    return (*scopes_above(program, address[:-1]), node_at(program, address[:-1]))


@fact
def extents_above(program: Program, address: Address) -> tuple[int, ...]:
    """Returns the extents of the scopes that enclose a node, outermost first."""
    return tuple(scope.extent for scope in scopes_above(program, address))


def replaced(program: Program, address: Address, *nodes: Node, count: int = 1) -> Program:
    """Returns the program with nodes in the place of `count` siblings from an address on.

    Scopes that this leaves empty go too.

    Args:
        program: The program.
        address: Of the first sibling replaced; with count 0 nodes are inserted before it, and it
            may be one past the last sibling.
        nodes: What takes their place, possibly nothing.
        count: How many siblings are replaced.
    """
    siblings = children(program, address[:-1])
    at = address[-1]
    if not 0 <= at <= len(siblings) - count:
        raise ProgramError(f"an address leads to a node of the program; got {address}")
    body = (*siblings[:at], *nodes, *siblings[at + count :])
    if len(address) == 1:
        return replace(program, body=body)
    if not body:
        return replaced(program, address[:-1])
    parent = node_at(program, address[:-1])
    return replaced(program, address[:-1], replace(parent, body=body))


def with_refs(node: Node, change: Callable[[Ref], Ref]) -> Node:
    """Returns the subtree with every element accessed, read or written, replaced."""
    return _rebuilt(node, lambda op: Op(change(op.target), op.kind, with_reads(op.expr, change)))


def with_reads(expr: Expr, change: Callable[[Ref], Expr]) -> Expr:
    """Returns an expression with every element read replaced, by any expression."""
    if isinstance(expr, Ref):
        return change(expr)
    if isinstance(expr, Binary):
        return Binary(expr.op, with_reads(expr.left, change), with_reads(expr.right, change))
    if isinstance(expr, Call):
        return Call(expr.fn, tuple(with_reads(arg, change) for arg in expr.args))
    return expr


def with_iterators(node: Node, form: Callable[[int], Affine]) -> Node:
    """Returns the subtree with every iterator {d} in every index replaced by `form(d)`."""
    return with_refs(
        node, lambda ref: Ref(ref.buffer, tuple(index.rewritten(form) for index in ref.indices))
    )


def shifted(node: Node, depth: int, by: int = 1) -> Node:
    """Returns the subtree with iterators from {depth} on renamed {d+by}.

    With by = 1 the subtree fits below one more scope inserted at that depth; with by = -1 one
    scope above it, whose iterator it must not use, may go.
    """
    return with_iterators(node, lambda d: Affine.iterator(d + by if d >= depth else d))


def substituted(node: Node, depth: int, form: Affine) -> Node:
    """Returns the subtree with {depth} replaced by a form; other iterators keep their depth."""
    return with_iterators(node, lambda d: form if d == depth else Affine.iterator(d))


def split_level(node: Node, depth: int, inner: int) -> Node:
    """Rewrites a subtree for a split: {depth} becomes inner*{depth}+{depth+1}, deeper ones +1."""
    whole = Affine.iterator(depth, inner).plus(Affine.iterator(depth + 1))
    return with_iterators(
        node, lambda d: whole if d == depth else Affine.iterator(d + 1 if d > depth else d)
    )


def merged_level(node: Node, depth: int, inner: int) -> Node | None:
    """Rewrites a subtree for a merge, the reverse of split_level; None where it does not fit."""
    fits = True

    def join(ref: Ref) -> Ref:
        nonlocal fits
        indices = [index.merged(depth, inner) for index in ref.indices]
        fits = fits and None not in indices
        return Ref(ref.buffer, tuple(indices)) if fits else ref

    joined = with_refs(node, join)
    return joined if fits else None


def exchanged_levels(node: Node, first: int, second: int) -> Node:
    """Returns the subtree with the iterators of two depths exchanged."""
    other = {first: second, second: first}
    return with_iterators(node, lambda d: Affine.iterator(other.get(d, d)))


def with_buffers(program: Program, changed: Mapping[str, Buffer | None]) -> Program:
    """Returns the program with buffers replaced, dropped (None) or added, and the same body.

    Added temporaries stand before the outputs. Building it checks the laws, so a change of
    buffers and body at once goes through `dataclasses.replace`.
    """
    return replace(program, buffers=buffers_with(program, changed))


def buffers_with(program: Program, changed: Mapping[str, Buffer | None]) -> tuple[Buffer, ...]:
    """Returns the header with buffers replaced, dropped (None) or added before the outputs."""
    kept = [changed.get(b.name, b) for b in program.buffers]
    known = {b.name for b in program.buffers}
    added = [b for name, b in changed.items() if name not in known]
    found = [b for b in (*kept, *added) if b is not None]
    return tuple(sorted(found, key=lambda b: ("in", "tmp", "out").index(b.kind)))


def split_dim(program: Program, name: str, position: int, inner: int) -> Program | None:
    """Cuts one dimension of a temporary in two, of extent/inner and inner; storage stays the same.

    Where a scope was split, each part of an index then has a dimension of its own, which can be
    reused by itself: so an accumulator shrinks to a tile.

    Returns:
        The program, or None when inner does not divide the extent or an index has no such parts.
    """
    buffer = program.buffer(name)
    dim = buffer.dims[position]
    if buffer.kind != "tmp" or dim.extent % inner:
        return None
    body = list(program.body)
    for k, node in enumerate(program.body):
        changed = _with_split_index(node, name, position, inner, ())
        if changed is None:
            return None
        body[k] = changed
    parts = (replace(dim, extent=dim.extent // inner), replace(dim, extent=inner))
    dims = (*buffer.dims[:position], *parts, *buffer.dims[position + 1 :])
    header = buffers_with(program, {name: replace(buffer, dims=dims)})
    return Program(program.name, header, tuple(body))


def is_made(name: str) -> bool:
    """Tells whether a name is one of t0, t1, .., which moves give to the temporaries they make."""
    return bool(_MADE.fullmatch(name))


def fresh_name(program: Program) -> str:
    """Returns the first of t0, t1, .. that no buffer bears."""
    taken = {buffer.name for buffer in program.buffers}
    return next(name for n in itertools.count() if (name := f"t{n}") not in taken)


def canonical(program: Program) -> Program:
    """Returns the program with its temporaries in canonical order and under canonical names.

    Temporaries stand in the order of their first use, unused ones go, and those that moves made
    (named t0, t1, ..) are renumbered in that order. Every move ends with this, so that equal
    programs reached on different ways have equal text.
    """
    used = {name: None for node in program.body for name in _used(Same(node))}
    temporaries = [b for n in used if (b := program.buffer(n)).kind == "tmp"]
    made = [b.name for b in temporaries if is_made(b.name)]
    fixed = {b.name for b in program.buffers if b.kind != "tmp"} | used.keys() - set(made)
    free = (name for n in itertools.count() if (name := f"t{n}") not in fixed)
    names = {old: new for old in made if (new := next(free)) != old}
    header = (
        *program.of_kind("in"),
        *(replace(b, name=names[b.name]) if b.name in names else b for b in temporaries),
        *program.of_kind("out"),
    )
    body = program.body
    if names:
        body = tuple(
            with_refs(node, lambda r: Ref(names.get(r.buffer, r.buffer), r.indices))
            for node in body
        )
    if header == program.buffers and body is program.body:
        return program
    return Program(program.name, header, body)


@fact
def plain(program: Program) -> Program:
    """Returns the program without marks, reused dimensions and places: what it means.

    A program is legal when it computes what its plain form computes.
    """

    def unmarked(node: Node) -> Node:
        if isinstance(node, Op):
            return node
        return Scope(node.extent, "", tuple(map(unmarked, node.body)))

    header = tuple(
        replace(b, place="heap", dims=tuple(replace(dim, reused=False) for dim in b.dims))
        for b in program.buffers
    )
    return Program(program.name, header, tuple(map(unmarked, program.body)))


@functools.lru_cache(maxsize=PARTS)
def _used(same: Same) -> tuple[str, ...]:
    """Returns the names of the buffers below a node, each once, in the order of their use."""
    node = same.of
    if isinstance(node, Op):
        return tuple(dict.fromkeys(ref.buffer for ref in (*refs_of(node.expr), node.target)))
    return tuple(dict.fromkeys(name for child in node.body for name in _used(Same(child))))


def _rebuilt(node: Node, change: Callable[[Op], Op]) -> Node:
    if isinstance(node, Op):
        return change(node)
    return replace(node, body=tuple(_rebuilt(child, change) for child in node.body))


def _with_split_index(
    node: Node, name: str, position: int, inner: int, extents: tuple[int, ...]
) -> Node | None:
    if isinstance(node, Scope):
        below = (*extents, node.extent)
        body = tuple(_with_split_index(n, name, position, inner, below) for n in node.body)
        return None if None in body else replace(node, body=body)
    fits = True

    def cut(ref: Ref) -> Ref:
        nonlocal fits
        if ref.buffer != name:
            return ref
        parts = ref.indices[position].divided(inner, extents)
        fits = fits and parts is not None
        return Ref(name, (*ref.indices[:position], *(parts or ()), *ref.indices[position + 1 :]))

    changed = with_refs(node, cut)
    return changed if fits else None
