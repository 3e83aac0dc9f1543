"""Triton from programs: one readable kernel, the same text for the same program.

Rows are the iterations of the outermost scopes, ROWS of them in a program; lanes are those of a
tile, up to a BLOCK of them at a time (see `triton_scopes`). A tile that hands a temporary on to
another one holds its whole row, so that the row is read once; where temporaries are computed
again instead, each tile is a loop over blocks of its row, of any length. So it is the schedule
that decides between one pass and several.
    =            a tensor is made, or a result is stored
    += max= min= into what the lanes share: over all lanes by tl.sum, tl.max or tl.min; in a loop
                 over blocks lane by lane first, and over the lanes behind the loop
Inputs are read once per block of code; an nt result is stored with the hint that nobody reads it
soon. Comparisons take no notice of NaN, as everywhere in Triton.
"""

import re
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import indent

from kt_lab.programs.ir import IDENTITIES, Address, Node, Op, Program, Ref, Scope, refs_of
from kt_lab.programs.surgery import ops
from kt_lab.programs.text import to_text
from kt_lab.programs.triton_registers import Register
from kt_lab.programs.triton_values import LANE, ROW, Tile, Values, number

VERSION = 1  # of what is emitted: part of a kernel's source hash
PRELUDE = '''@triton.jit
def within(index, EXTENT: tl.constexpr, BLOCK: tl.constexpr):
    """Returns index < EXTENT, known at compile time where blocks divide it."""
    if EXTENT % BLOCK == 0:
        return tl.full(index.shape, True, tl.int1)
    else:
        return index < EXTENT
'''
_UPDATES = {"+=": "{} + {}", "max=": "tl.maximum({}, {})", "min=": "tl.minimum({}, {})"}
_REDUCTIONS = {"+=": "tl.sum", "max=": "tl.max", "min=": "tl.min"}


@dataclass(frozen=True, slots=True)
class Lowered:
    """A Triton kernel and how it is launched: ceil(rows / ROWS) programs.

    Attributes:
        name: Of the function.
        text: Its source; needs triton, tl and PRELUDE.
        arguments: Buffers that it takes, in order; then ROWS, a B<extent> for each of `tiles`,
            and STAGES if it is looped.
        rows: Iterations of the grid.
        tiles: Extents of the tiles, ascending; a block is a power of two.
        kept: Those of which a block must hold all.
        looped: Whether some tile is a loop over blocks, which can be pipelined.
    """

    name: str
    text: str
    arguments: tuple[str, ...]
    rows: int
    tiles: tuple[int, ...]
    kept: tuple[int, ...]
    looped: bool


def emit_triton(program: Program, *, name: str | None = None) -> Lowered:
    """Returns the Triton kernel of a program.

    Args:
        program: A legal program.
        name: Of the function; None: the program's own.

    Raises:
        ProgramError: It is not proven to mean the same as one launch that keeps its temporaries
            in registers; the message names the move that helps.
    """
    return _Emitter(program, name or program.name).lowered()


class _Emitter(Values):
    """The lines of one kernel while they are collected."""

    def lowered(self) -> Lowered:
        self.nodes(self.program.body, ())
        given = tuple(b.name for b in self.program.buffers if b.kind != "tmp")
        tiles = tuple(sorted(self.tiles))
        constants = ["ROWS", *(f"B{e}" for e in tiles), *(["STAGES"] if self.looped else [])]
        taken = [*(self.names[n] for n in given), *(f"{c}: tl.constexpr" for c in constants)]
        text = "\n".join(
            [
                "@triton.jit",
                f"def {self.name}({', '.join(taken)}):",
                f'    """\n{indent(to_text(self.program), "    ")}    """',
                *self.header(),
                *self.lines,
                "",
            ]
        )
        rows = 1
        for extent in self.roles.grid:
            rows *= extent
        kept = tuple(sorted(self.registers.kept))
        return Lowered(self.name, text, given, rows, tiles, kept, self.looped)

    def header(self) -> Iterable[str]:
        grid, body = self.roles.grid, "\n".join(self.lines)
        column = "[:, None]" if self.roles.has_tiles else ""
        yield f"    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS){column}"
        rows = self.strides()[0] * grid[0]
        yield f"    rows = within(row, {rows}, ROWS)"
        for d, (extent, stride) in enumerate(zip(grid, self.strides(), strict=True)):
            if re.search(rf"\bi{d}\b", body):
                index = f"row // {stride}" if stride > 1 else "row"
                yield f"    i{d} = {index}{f' % {extent}' if d else ''}"
        for extent in sorted(self.registers.kept):
            yield f"    lane{extent} = tl.arange(0, B{extent})[None, :]"
            yield f"    inside{extent} = within(lane{extent}, {extent}, B{extent})"

    @contextmanager
    def block(self, head: str):
        """Writes a loop around what is written within; what is read there is known there only."""
        self.line(head)
        self.level += 1
        self.loaded.append({})
        yield
        self.loaded.pop()
        self.level -= 1

    # -- scopes -------------------------------------------------------------------------------

    def nodes(self, nodes: Iterable[Node], address: Address) -> None:
        for k, node in enumerate(nodes):
            here = (*address, k)
            if isinstance(node, Op):
                self.here = here
                self.operation(node)
            elif self.roles.of[here] == "tile":
                self.lanes(node, here)
            else:
                self.scope(node, here)

    def scope(self, scope: Scope, here: Address) -> None:
        role, index = self.roles.of[here], f"i{len(here) - 1}"
        if role in ("grid", "once"):
            self.body(scope, here)
            return
        factor = scope.mark[1:] if scope.mark.startswith("u") else ""
        unrolled = f", loop_unroll_factor={factor}" if factor else ""
        called = "tl.static_range" if role == "unroll" else "tl.range"
        with self.block(f"for {index} in {called}(0, {scope.extent}{unrolled}):"):
            self.body(scope, here)

    def body(self, scope: Scope, here: Address) -> None:
        for register in self.registers.all:
            between = [register.first[:n] for n in range(len(here) + 1, len(register.first))]
            if register.home == here and any(self.roles.of[at] == "loop" for at in between):
                shape = self.shape(register)  # what a loop makes must exist before it
                self.line(f"{self.names[register]} = tl.zeros({shape}, {self.dtype})")
        self.nodes(scope.body, here)

    def lanes(self, scope: Scope, here: Address) -> None:
        extent, depth = scope.extent, len(here) - 1
        self.tiles.add(extent)
        if extent in self.registers.kept:
            self.tile = Tile(depth, extent, f"lane{extent}", f"inside{extent}")
            self.nodes(scope.body, here)
            self.tile = None
            return
        self.looped = True
        for at, op in ops(self.program, here):  # what stays the same is read before the loop
            self.here = at
            for ref in refs_of(op.expr):
                if not any(index.coefficient(depth) for index in ref.indices):
                    self.read(ref)
        self.tile = Tile(depth, extent, self.fresh("lane"), self.fresh("inside"))
        kinds: dict[Register, str] = {}
        for _, op in ops(self.program, here):
            register = self.target(op)
            if register and op.kind != "=" and not register.has_lanes:
                kinds[register] = op.kind
                self.tile.sums[register] = self.fresh(f"{self.names[register]}_lanes")
        shape = f"[ROWS, B{extent}]"
        for register, name in self.tile.sums.items():
            start = number(IDENTITIES[kinds[register]])
            self.line(f"{name} = tl.full({shape}, {start}, {self.dtype})")
        start = self.fresh("start")
        with self.block(f"for {start} in tl.range(0, {extent}, B{extent}, num_stages=STAGES):"):
            self.line(f"{self.tile.index} = {start} + tl.arange(0, B{extent})[None, :]")
            self.line(f"{self.tile.inside} = within({self.tile.index}, {extent}, B{extent})")
            self.nodes(scope.body, here)
        for register, name in self.tile.sums.items():
            kind, whole = kinds[register], self.names[register]
            total = f"{_REDUCTIONS[kind]}({name}, axis=1, keep_dims=True)"
            self.line(f"{whole} = {_UPDATES[kind].format(whole, total)}")
        self.tile = None

    # -- operations ---------------------------------------------------------------------------

    def target(self, op: Op) -> Register | None:
        tmp = self.program.buffer(op.target.buffer).kind == "tmp"
        return self.registers.of(op.target) if tmp else None

    def operation(self, op: Op) -> None:
        register = self.target(op)
        value, along = self.expr(op.expr, 2 if op.kind == "+=" else 0)
        if register is None:
            self.store(op.target, value)
        elif op.kind == "=":
            name = self.names[register]
            self.line(f"{name} = {self.shaped(value, along, register)}")
        else:
            self.update(op.kind, register, value)

    def update(self, kind: str, register: Register, value: str) -> None:
        name = self.names[register]
        if self.tile and not register.has_lanes:
            value = f"tl.where({self.tile.inside}, {value}, {number(IDENTITIES[kind])})"
            if register in self.tile.sums:
                name = self.tile.sums[register]
            else:
                value = f"{_REDUCTIONS[kind]}({value}, axis=1, keep_dims=True)"
        self.line(f"{name} = {_UPDATES[kind].format(name, value)}")

    def shaped(self, value: str, along: int | None, register: Register) -> str:
        """Returns a value in the shape of a register, which must not change as loops run."""
        if along is None:
            return f"tl.full({self.shape(register)}, {value}, {self.dtype})"
        if along == (ROW | LANE if register.has_lanes else ROW):
            return value
        return f"tl.broadcast_to({value}, {self.shape(register)})"

    def shape(self, register: Register) -> str:
        if not self.roles.has_tiles:
            return "[ROWS]"
        extent = register.kept or (self.tile.extent if self.tile else 0)
        return f"[ROWS, B{extent}]" if register.has_lanes else "[ROWS, 1]"

    def store(self, target: Ref, value: str) -> None:
        offset, along = self.offset(target)
        if not along & ROW:  # there is one row
            offset = f"row * 0 + {offset}"
        given = self.mask(along | ROW)
        if self.program.buffer(target.buffer).place == "nt":
            given += ', cache_modifier=".cs"'
        self.line(f"tl.store({self.names[target.buffer]} + {offset}, {value}{given})")
