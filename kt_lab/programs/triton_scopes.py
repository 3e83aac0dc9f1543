"""What the scopes of a program become on a GPU, and which programs it can run as one launch.

grid     the outermost scopes, down to the one marked p or else all whose iterations may run at
         once, the innermost left to lanes: their iterations are rows, some per program
tile     a scope of operations only, of which each may run for all lanes at once
unroll   a scope marked u that is no tile: repeated
once     an extent of 1
loop     every other scope
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NoReturn

from kt_lab.errors import ProgramError
from kt_lab.programs.access import accesses, is_distinct, unsound
from kt_lab.programs.dependence import conflict
from kt_lab.programs.ir import DTYPES, Address, Op, Program, Scope
from kt_lab.programs.moves.base import carries, scopes

LARGEST = 65_536  # lanes of a tile: 64 elements for each of the 1,024 threads of a program
_INDEXED = 2**31  # elements that 32 bits count


@dataclass(frozen=True, slots=True)
class Roles:
    """What each scope of a program becomes.

    Attributes:
        grid: Extents of the scopes whose iterations are rows, outermost first.
        of: grid, tile, unroll, once or loop, by address.
    """

    grid: tuple[int, ...]
    of: Mapping[Address, str]

    @property
    def has_tiles(self) -> bool:
        """Whether a program has lanes beside its rows."""
        return "tile" in self.of.values()


def refuse(law: str, found: object, step: str) -> NoReturn:
    """Raises ProgramError: the law, what was found, and what to do."""
    raise ProgramError(f"{law}; got {found}; {step}")


def roles(program: Program) -> Roles:
    """Returns what the scopes of a legal program become.

    Raises:
        ProgramError: It is not proven sound, is more than one nest, has several dtypes or too
            many elements, its outermost iterations depend on each other, or its results are read
            or written more than once.
    """
    if lost := unsound(program):
        refuse("every temporary keeps what is read of it", lost, "play legal moves only")
    if len(program.body) != 1 or isinstance(program.body[0], Op):
        step = "fuse the nests, or inline what they hand on"
        refuse("a launch is one outermost scope", f"{len(program.body)} nests", step)
    if len({buffer.dtype for buffer in program.buffers}) != 1:
        refuse("all buffers have one dtype", sorted(DTYPES), "write the program in one")
    if max(buffer.elements for buffer in program.buffers) >= _INDEXED:
        refuse(f"a buffer has < {_INDEXED:,} elements", "more", "cut the workload in parts")
    _check_results(program)
    depth = _grid_depth(program)
    of = {at: "grid" if len(at) <= depth else _inner(program, at, s) for at, s in scopes(program)}
    grid = tuple(s.extent for at, s in scopes(program) if len(at) <= depth)
    return Roles(grid, MappingProxyType(of))


def _grid_depth(program: Program) -> int:
    """Returns how many of the outermost scopes give the rows."""
    spine: list[Scope] = []
    body, at = program.body, ()
    while len(body) == 1 and isinstance(body[0], Scope) and not carries(program, (*at, 0), "p"):
        spine.append(body[0])
        body, at = body[0].body, (*at, 0)
    if not spine:
        step = "place temporaries reg, or interchange, until `parallelise 0` is legal"
        refuse("iterations of the outermost scope do not depend on each other", "some", step)
    marked = [k for k, scope in enumerate(spine) if scope.mark == "p"]
    if marked:
        return marked[0] + 1
    flat = all(isinstance(node, Op) for node in spine[-1].body)
    return len(spine) - (flat and len(spine) > 1)


def _inner(program: Program, at: Address, scope: Scope) -> str:
    if scope.extent == 1:
        return "once"
    flat = all(isinstance(node, Op) for node in scope.body) and scope.mark != "u"
    if flat and not carries(program, at, "v"):
        return "tile"
    return "unroll" if scope.mark == "u" else "loop"


def _check_results(program: Program) -> None:
    """Results are memory: what one thread writes, another of the program may not see."""
    for buffer in program.of_kind("out"):
        touched = [a for a in accesses(program) if a.ref.buffer == buffer.name]
        if any(a.is_read for a in touched):
            step = "accumulate in a temporary and write it at the end"
            refuse("a result is never read", buffer.name, step)
        twice = any(
            conflict(program, a, b) for k, a in enumerate(touched) for b in touched[k + 1 :]
        )
        for a in touched:
            moving = [d for d, extent in enumerate(a.extents) if extent > 1]
            twice |= not is_distinct(a.ref, moving, a.extents)
        if twice:
            refuse("each element of a result is written once", buffer.name, "write it at the end")
