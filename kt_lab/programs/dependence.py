"""How two accesses to one buffer depend on each other, as distances between iterations.

A distance vector holds, per shared scope, by how many iterations the second access is later than
the first when both touch the same place in storage: an integer where the indices force it, None
where they leave it open. Reused dimensions take no storage, so they force nothing.
"""

import functools
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from kt_lab.programs.access import KEPT, Access, accesses, common_prefix
from kt_lab.programs.ir import Address, Buffer, Program

Distance = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses to one buffer that may touch the same place, one of them a write.

    Attributes:
        first: The one that is earlier in the text (or the same).
        second: The other.
        distance: Iterations by which `second` is later, per scope that encloses both.
    """

    first: Access
    second: Access
    distance: Distance

    @property
    def is_reduction(self) -> bool:
        """Whether both are updates by the same reduction, whose order does not matter."""
        return self.first.is_reduction and self.first.kind == self.second.kind


@dataclass(frozen=True, slots=True)
class _Equation:
    """sum(factors * distance) = constant + a multiple of step between low and high."""

    factors: dict[int, int]
    constant: int
    low: int
    high: int
    step: int


@functools.lru_cache(maxsize=KEPT)
def distance(first: Access, second: Access, common: int, buffer: Buffer) -> Distance | None:
    """Returns by how many iterations `second` is later where both touch the same storage.

    Args:
        first: An access.
        second: Another, or the same one: then it tells which iterations touch the same place.
        common: How many scopes, outermost first, count as shared; they need equal extents. Scopes
            at the same depth of two siblings may count too: so they would be after a fusion.
        buffer: The buffer of both.

    Returns:
        One entry per shared scope, None where open; or None when they never touch the same place.
    """
    extents = first.extents[:common]
    equations = [
        _equation(a, b, first, second, common)
        for a, b, dim in zip(first.ref.indices, second.ref.indices, buffer.dims, strict=True)
        if not dim.reused
    ]
    solved: dict[int, int] = {d: 0 for d in range(common) if extents[d] == 1}
    before = -1
    while before != len(solved):
        before = len(solved)
        for equation in equations:
            if not _solve(equation, solved, extents):
                return None
    return tuple(solved.get(d) for d in range(common))


def conflicts(
    program: Program, address: Address, *, ignore: Container[str] = ()
) -> Iterator[Conflict]:
    """Yields the conflicts below a scope, pairs of one access with itself included.

    Args:
        program: The program.
        address: The scope; () for the whole program.
        ignore: Buffers to leave out, such as those private to an iteration.
    """
    touched = [a for a in accesses(program, address) if a.ref.buffer not in ignore]
    for at, first in enumerate(touched):
        for second in touched[at:]:
            if first.ref.buffer == second.ref.buffer and (first.is_write or second.is_write):
                found = conflict(program, first, second)
                if found:
                    yield found


def conflict(program: Program, first: Access, second: Access) -> Conflict | None:
    """Returns the conflict of two accesses to one buffer, or None when they never meet."""
    common = len(common_prefix(first.address[:-1], second.address[:-1]))
    found = distance(first, second, common, program.buffer(first.ref.buffer))
    return None if found is None else Conflict(first, second, found)


def may_coincide(found: Distance) -> bool:
    """Tells whether both accesses may happen while all of some shared scopes stand still."""
    return all(d in (0, None) for d in found)


def may_carry(found: Distance, depth: int) -> bool:
    """Tells whether iterations of the scope at a depth may depend on each other.

    That is: outer scopes may be at the same iteration while the one at `depth` is at another.
    """
    return may_coincide(found[:depth]) and found[depth] != 0


def may_cross(found: Distance, outer: int) -> bool:
    """Tells whether exchanging the scopes at `outer` and `outer + 1` may turn a dependence round.

    That is: one scope may be at a later and the other at an earlier iteration (a direction of
    <,> or >,<) while the scopes outside are at the same.
    """
    if not may_coincide(found[:outer]):
        return False
    first, second = found[outer], found[outer + 1]
    if first == 0 or second == 0:
        return False
    return first is None or second is None or (first > 0) != (second > 0)


def may_precede(found: Distance, depth: int) -> bool:
    """Tells whether `second` may be at an earlier iteration of the scope at a depth than `first`.

    For accesses of two adjacent scopes, with the scopes at `depth` counted as shared: fusing them
    would run `second` before `first`.
    """
    if not may_coincide(found[:depth]):
        return False
    return found[depth] is None or found[depth] < 0


def _equation(a, b, first: Access, second: Access, common: int) -> _Equation:
    """Writes index a at iteration i equal to index b at iteration i + distance.

    sum(c * distance) = (a - b) over what is not shared, where the shared factors c agree; where
    they do not, both iterators count as free.
    """
    constant = a.constant - b.constant
    low = high = step = 0
    factors = {}
    free = []
    for d in range(max(len(a.coefficients), len(b.coefficients))):
        p, q = a.coefficient(d), b.coefficient(d)
        if d < common and p == q:
            if p:
                factors[d] = p
        else:
            free += [(p, first.extents[d])] if p else []
            free += [(-q, second.extents[d])] if q else []
    for factor, extent in free:
        if extent > 1:
            low += min(0, factor * (extent - 1))
            high += max(0, factor * (extent - 1))
            step = gcd(step, factor)
    return _Equation(factors, constant, low, high, step)


def _solve(equation: _Equation, solved: dict[int, int], extents: Sequence[int]) -> bool:
    """Adds what the equation forces to `solved`; False when it has no solution."""
    value = equation.constant - sum(
        factor * solved[d] for d, factor in equation.factors.items() if d in solved
    )
    left = {d: factor for d, factor in equation.factors.items() if d not in solved}
    reach = sum(abs(factor) * (extents[d] - 1) for d, factor in left.items())
    step = gcd(equation.step, *left.values())
    if value + equation.low > reach or value + equation.high < -reach:
        return False
    if value % step if step else value:
        return False
    for d, factor in left.items():
        # what the other terms can add leaves an interval for this one
        others = reach - abs(factor) * (extents[d] - 1)
        low, high = value + equation.low - others, value + equation.high + others
        if factor < 0:
            low, high = -high, -low
        least = max(-(-low // abs(factor)), 1 - extents[d])
        most = min(high // abs(factor), extents[d] - 1)
        if least > most:
            return False
        if least == most:
            solved[d] = least
    return True
