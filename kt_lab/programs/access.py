"""What a program touches: accesses, their ranges, coverage and the life of temporaries.

Every answer errs on the safe side: `True` is proven from the affine indices, `False` may only mean
that no proof was found. How two accesses depend on each other is in `dependence`.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kt_lab.programs.affine import Affine
from kt_lab.programs.facts import fact
from kt_lab.programs.ir import Address, Buffer, Program, Ref, refs_of
from kt_lab.programs.surgery import extents_above, ops, scopes_above

KEPT = 1 << 13  # answers about two accesses, which most programs one move away share

# Per dimension the least index, affine in the scopes above a nest, and the extent.
Box = tuple[tuple[Affine, int], ...]


@dataclass(frozen=True, slots=True)
class Access:
    """One element access of one operation.

    Attributes:
        address: Of the operation.
        ref: What it touches.
        kind: "" for a read, the operation's update (=, +=, max=, min=) for its target.
        extents: Extents of the scopes that enclose the operation, outermost first.
    """

    address: Address
    ref: Ref
    kind: str
    extents: tuple[int, ...]

    @property
    def is_write(self) -> bool:
        """Whether it changes the element; a reduction both reads and writes it."""
        return bool(self.kind)

    @property
    def is_read(self) -> bool:
        """Whether it needs the element's value."""
        return self.kind != "="

    @property
    def is_reduction(self) -> bool:
        """Whether it is the target of a reduction."""
        return self.kind not in ("", "=")


@fact
def accesses(program: Program, address: Address = ()) -> tuple[Access, ...]:
    """Returns the accesses at or below an address in execution order: reads, then the target."""
    found = []
    for at, op in ops(program, address):
        extents = extents_above(program, at)
        found += [Access(at, ref, "", extents) for ref in refs_of(op.expr)]
        found.append(Access(at, op.target, op.kind, extents))
    return tuple(found)


@fact
def accesses_to(program: Program, name: str, address: Address = ()) -> tuple[Access, ...]:
    """Returns the accesses to one buffer at or below an address, in execution order."""
    if not address:
        return _by_name(program).get(name, ())
    size = len(address)
    return tuple(a for a in accesses_to(program, name) if a.address[:size] == address)


@fact
def _by_name(program: Program) -> dict[str, tuple[Access, ...]]:
    found: dict[str, list[Access]] = {}
    for access in accesses(program):
        found.setdefault(access.ref.buffer, []).append(access)
    return {name: tuple(of) for name, of in found.items()}


def written_names(program: Program, address: Address = ()) -> frozenset[str]:
    """Returns the buffers that a subtree writes."""
    return frozenset(a.ref.buffer for a in accesses(program, address) if a.is_write)


def ranges(ref: Ref, extents: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Returns the least and greatest index per dimension, both inclusive."""
    return tuple(index.bounds(extents) for index in ref.indices)


def apart(first: Access, second: Access) -> bool:
    """Tells whether two accesses never touch the same logical element, by their ranges alone."""
    return first.ref.buffer != second.ref.buffer or any(
        a[1] < b[0] or b[1] < a[0]
        for a, b in zip(
            ranges(first.ref, first.extents), ranges(second.ref, second.extents), strict=True
        )
    )


def is_distinct(
    ref: Ref, depths: Iterable[int], extents: Sequence[int], buffer: Buffer | None = None
) -> bool:
    """Tells whether different values of some iterators always give different elements.

    An index determines its iterators when their factors form a mixed radix (8*{0}+{1} with {1} of
    extent <= 8); determined iterators are then taken as known in the other indices.

    Args:
        ref: The access.
        depths: The iterators that vary; all others are held fixed.
        extents: Extents of the enclosing scopes, outermost first.
        buffer: Its buffer, to judge places in storage: a reused dimension tells nothing apart.
            None: logical elements.
    """
    open_depths = {d for d in depths if extents[d] > 1}
    indices = [
        index
        for position, index in enumerate(ref.indices)
        if buffer is None or not buffer.dims[position].reused
    ]
    progress = True
    while open_depths and progress:
        progress = False
        for index in indices:
            left = [d for d in index.depths if d in open_depths]
            if left and is_radix(index, left, extents):
                open_depths.difference_update(left)
                progress = True
    return not open_depths


def is_radix(form: Affine, depths: Iterable[int], extents: Sequence[int]) -> bool:
    """Tells whether the factors of some iterators form a mixed radix: each value comes once."""
    reach = 0
    for factor, depth in sorted((abs(form.coefficient(d)), d) for d in depths):
        if factor <= reach:
            return False
        reach += factor * (extents[depth] - 1)
    return True


def touching(program: Program, name: str) -> tuple[Address, ...]:
    """Returns the operations that touch a buffer, in order: its life is from first to last."""
    return tuple(dict.fromkeys(a.address for a in accesses_to(program, name)))


@fact
def home(program: Program, name: str) -> Address:
    """Returns the address of the innermost scope that holds every access to a buffer.

    () is the program itself, also for a buffer that nothing touches.
    """
    return functools.reduce(common_prefix, [at[:-1] for at in touching(program, name)] or [()])


def common_prefix(first: Address, second: Address) -> Address:
    """Returns the longest address that both start with."""
    size = 0
    while size < min(len(first), len(second)) and first[size] == second[size]:
        size += 1
    return first[:size]


def is_private(program: Program, name: str, address: Address) -> bool:
    """Tells whether every iteration of a scope owns a separate copy of a temporary."""
    buffer = program.buffer(name)
    return buffer.place in ("stack", "reg") and home(program, name)[: len(address)] == address


def is_local(program: Program, name: str, address: Address) -> bool:
    """Tells whether no value of a temporary crosses iterations of a scope, or leaves or enters it.

    The order of the iterations then does not matter to it; for them to run at once each needs its
    own copy besides: see `is_private`.
    """
    within = program.buffer(name).kind == "tmp" and home(program, name)[: len(address)] == address
    return within and is_covered(program, name, address)


def footprint(touched: Sequence[Access], above: int) -> Box | None:
    """Returns the box of a buffer that accesses touch while some scopes stand still.

    Args:
        touched: Accesses to one buffer.
        above: How many scopes, outermost first, stand still; all of the accesses share them.

    Returns:
        Per dimension the least index, affine in the iterators of these scopes, and the box's
        extent; None when there is no access or they move apart as these iterators run.
    """
    box = []
    for column in zip(*(a.ref.indices for a in touched), strict=True):
        if len({Affine(0, index.coefficients[:above]) for index in column}) != 1:
            return None
        ends = [_without(i, above).bounds(a.extents) for i, a in zip(column, touched, strict=True)]
        low, high = min(e[0] for e in ends), max(e[1] for e in ends)
        box.append((Affine(low, column[0].coefficients[:above]), high - low + 1))
    return tuple(box) or None


@fact
def is_covered(program: Program, name: str, address: Address = ()) -> bool:
    """Tells whether each iteration of a scope writes, by =, what it then reads of a buffer.

    Then no value enters an iteration from outside: the buffer may be made anew in each, provided
    that nothing outside the scope touches it. With () for the address: no read comes before a
    write in the whole program.

    Args:
        program: The program.
        name: The buffer.
        address: The scope; accesses outside of it are not looked at.
    """
    touched = accesses_to(program, name, address)
    plain = [a for a in touched if a.kind == "="]
    return all(
        any(_covers(write, read, len(address)) for write in plain)
        for read in touched
        if read.is_read
    )


def is_reusable(program: Program, name: str, position: int) -> bool:
    """Tells whether the elements along one dimension of a temporary can share one place.

    They can when every access has the same index there, so that the scopes down to its deepest
    iterator fix the element, all accesses lie below the innermost of these scopes, and each of its
    iterations writes what it reads. It stays true of a dimension that is already reused as long as
    the reuse is sound. A parallel scope asks for privacy besides: see `is_private`.
    """
    if program.buffer(name).kind != "tmp":
        return False
    indices = {a.ref.indices[position] for a in accesses_to(program, name)}
    if len(indices) != 1:
        return False
    depth = max(indices.pop().depths, default=-1)
    here = home(program, name)
    return len(here) > depth and is_covered(program, name, here[: depth + 1])


def unsound(program: Program) -> tuple[str, ...]:
    """Returns the temporaries whose storage is not proven to keep what is read of it.

    A temporary is sound when it is written before it is read, every reused dimension may be
    reused, and a stack or reg one needs nothing from another iteration of its home; and when no
    parallel or vector scope that a reused index names runs over one place. That iterations of
    different scopes meet in none is for `moves.base.carries` to prove.
    """
    return tuple(b.name for b in program.of_kind("tmp") if not _is_sound(program, b))


def _is_sound(program: Program, buffer: Buffer) -> bool:
    name, here = buffer.name, home(program, buffer.name)
    if not is_covered(program, name, here if buffer.place != "heap" else ()):
        return False
    reused = [k for k, dim in enumerate(buffer.dims) if dim.reused]
    if not all(is_reusable(program, name, k) for k in reused):
        return False
    path = scopes_above(program, (*here, 0))
    marked = {d for d, scope in enumerate(path) if scope.mark in ("p", "v")}
    return buffer.place != "heap" or all(
        is_distinct(a.ref, [d], a.extents, buffer)
        for k in reused
        for a in accesses_to(program, name)
        for d in marked.intersection(a.ref.indices[k].depths)
    )


@functools.lru_cache(maxsize=KEPT)
def _covers(write: Access, read: Access, inside: int) -> bool:
    """Whether a write has filled what a later read needs, within the scopes that both share."""
    shared = len(common_prefix(write.address, read.address))
    if shared < inside or write.address[shared:] >= read.address[shared:]:
        return False
    spent: set[int] = set()
    for given, asked in zip(write.ref.indices, read.ref.indices, strict=True):
        if any(given.coefficient(d) != asked.coefficient(d) for d in range(shared)):
            return False
        free = [d for d in given.depths if d >= shared]
        # an iterator that moves two indices at once fills a diagonal, not a box
        if spent.intersection(free) or not _is_dense(given, free, write.extents):
            return False
        spent.update(free)
        low, high = _without(given, shared).bounds(write.extents)
        least, most = _without(asked, shared).bounds(read.extents)
        if least < low or most > high:
            return False
    return True


def _without(form: Affine, shared: int) -> Affine:
    return Affine(form.constant, (0,) * shared + form.coefficients[shared:])


def _is_dense(form: Affine, depths: Iterable[int], extents: Sequence[int]) -> bool:
    """Whether the values of an index leave no gap as some iterators run."""
    reach = 0
    for factor, depth in sorted((abs(form.coefficient(d)), d) for d in depths):
        if factor > reach + 1:
            return False
        reach += factor * (extents[depth] - 1)
    return True
