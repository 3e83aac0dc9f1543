"""Where a GPU keeps the temporaries of a program: one tensor per element, or per row of lanes."""

from collections.abc import Sequence
from dataclasses import dataclass

from kt_lab.programs.access import Access, accesses, home
from kt_lab.programs.ir import Address, Buffer, Program, Ref
from kt_lab.programs.surgery import node_at
from kt_lab.programs.triton_scopes import LARGEST, Roles, refuse


@dataclass(frozen=True, slots=True)
class Register:
    """A tensor of one program.

    Attributes:
        buffer: Name of the temporary.
        element: Its element, where single elements are used; else 0.
        home: The innermost scope that holds all its accesses.
        first: The first operation that touches it.
        has_lanes: Whether lanes have a value each; rows always do.
        kept: Extent of the tiles that hand it on to each other, which therefore must hold whole
            rows; 0: none.
    """

    buffer: str
    element: int
    home: Address
    first: Address
    has_lanes: bool
    kept: int


class Registers:
    """The tensors of a program's temporaries."""

    def __init__(self, program: Program, roles: Roles):
        """Finds them, or raises ProgramError: a temporary needs memory, or an address."""
        self._program, self._roles = program, roles
        self._found: dict[tuple[str, int], Register] = {}
        for buffer in program.of_kind("tmp"):
            touched = [a for a in accesses(program) if a.ref.buffer == buffer.name]
            if touched:
                self._admit(buffer, touched)

    def of(self, ref: Ref) -> Register:
        """Returns the tensor that an access to a temporary touches."""
        offset = self._program.buffer(ref.buffer).offset(ref.indices)
        lanes = self._found.get((ref.buffer, -1))
        return lanes or self._found[ref.buffer, offset.constant]

    @property
    def all(self) -> tuple[Register, ...]:
        """All of them, in the order of the header."""
        return tuple(self._found.values())

    @property
    def kept(self) -> frozenset[int]:
        """Extents of the tiles that must hold whole rows."""
        return frozenset(register.kept for register in self.all) - {0}

    def _admit(self, buffer: Buffer, touched: Sequence[Access]) -> None:
        name, here = buffer.name, home(self._program, buffer.name)
        if buffer.place == "heap":
            step = f"reuse_dim {name} along the rows, then place {name} reg or stack"
            refuse("a temporary lives in registers", f"{name} on the heap", step)
        patterns = {self._pattern(access, len(here)) for access in touched}
        lanes = any(step for _, step, _, _ in patterns)
        if len({outer for *_, outer in patterns}) > 1 or (lanes and len(patterns) > 1):
            refuse("lanes hand on their own element", name, f"inline {name}, or fuse its scopes")
        inside = self._roles.of[here] == "tile"
        for constant, _, extent, _ in patterns:
            same = [a for a in touched if lanes or self._pattern(a, len(here))[0] == constant]
            key = (name, -1 if lanes else constant)
            first = min(a.address for a in same)
            self._found[key] = Register(name, max(0, key[1]), here, first, lanes or inside, extent)

    def _pattern(self, access: Access, depth: int) -> tuple[int, int, int, tuple[int, ...]]:
        """Returns element, step and extent of the lanes, and the factors outside of the home."""
        buffer = self._program.buffer(access.ref.buffer)
        form = buffer.offset(access.ref.indices)
        step = extent = 0
        for d in form.depths:
            role = self._roles.of[access.address[: d + 1]]
            if d < depth or role == "once":
                continue
            if role != "tile":
                law = "an element in a register is fixed, or chosen by the lane"
                refuse(law, buffer.name, f"inline {buffer.name}, or expand the scope around it")
            step, extent = form.coefficient(d), node_at(self._program, access.address[:-1]).extent
        if extent > LARGEST:
            step = f"inline {buffer.name}"
            refuse(f"a row in registers has <= {LARGEST:,} elements", extent, step)
        outer = tuple(form.coefficient(d) for d in range(depth))
        return form.constant, step, extent, outer
