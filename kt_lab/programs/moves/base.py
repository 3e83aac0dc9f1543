"""What a move is: a kind, the place where it applies, and the laws that make it legal.

A move may change nothing of what a program computes. The argument has two halves, and every rule
belongs to one: the *plain* form of the result (see `surgery.plain`) means the same as the plain
form before, and the result computes what its own plain form means (`STORAGE`, `MARKS`). Rules are
named one by one so that a test can switch each off and show that it is needed.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from kt_lab.errors import ProgramError
from kt_lab.programs.access import is_private, unsound
from kt_lab.programs.dependence import Conflict, conflicts, may_carry
from kt_lab.programs.facts import PARTS
from kt_lab.programs.ir import Address, Program, Scope
from kt_lab.programs.surgery import node_at, walk

_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"-?\d{1,18}")
_ADDRESS = re.compile(r"\d{1,9}(?:\.\d{1,9})*")


@dataclass(frozen=True, slots=True)
class Move:
    """One rewriting of a program; `str(move)` is its record, such as `split 1.0 8`.

    Attributes:
        kind: A name of `KINDS`.
        at: Address of the node that it rewrites; () for moves of buffers, whose first argument is
            then a name.
        arguments: Integers and names, with the meaning that the kind gives them.
    """

    kind: str
    at: Address
    arguments: tuple[int | str, ...] = ()
    _record: str = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        """Writes the record; refuses what it could not hold."""
        named = all(isinstance(a, int) or _NAME.fullmatch(a) for a in self.arguments)
        if not named or not (self.at or isinstance((*self.arguments, 0)[0], str)):
            law = "a move has an address, or arguments that start with a name"
            raise ProgramError(f"{law}; got {self.kind} {self.at} {self.arguments}")
        at = (".".join(map(str, self.at)),) if self.at else ()
        record = " ".join((self.kind, *at, *map(str, self.arguments)))
        object.__setattr__(self, "_record", record)

    def __str__(self) -> str:
        """Returns the record: kind, address (positions joined by dots), arguments."""
        return self._record

    def __hash__(self) -> int:
        """Returns the record's hash, which is computed once: schedules are long keys."""
        return hash(self._record)

    @classmethod
    @functools.lru_cache(maxsize=PARTS)
    def parse(cls, record: str) -> "Move":
        """Reads a record, or raises ProgramError; whether the move applies is not looked at."""
        kind, *rest = record.split() or [""]
        at: Address = ()
        if rest and _ADDRESS.fullmatch(rest[0]):
            at = tuple(map(int, rest.pop(0).split(".")))
        fits = all(_NUMBER.fullmatch(word) or _NAME.fullmatch(word) for word in rest)
        if not fits or not _NAME.fullmatch(kind):
            law = "a move is: KIND [ADDRESS] [ARGUMENT ..], such as `split 1.0 8`"
            raise ProgramError(f"{law}; got {record!r}")
        return cls(kind, at, tuple(int(w) if _NUMBER.fullmatch(w) else w for w in rest))


@dataclass(frozen=True, slots=True)
class Rule:
    """One law that a move keeps.

    Attributes:
        name: Unique in its kind; `fuse.dependence` names it among all.
        law: A sentence.
        holds: Asked of (program, move) where the move applies; must not rely on other rules.
        after: Whether `holds` gets the program after the move in place of the one before.
        limit: Whether its absence changes no result, so that no test of results can miss it: it
            bounds size or form (for memory, code size, code generation), keeps the dtype that
            results are rounded to, or keeps provable what would be true all the same (`PROVEN`).
    """

    name: str
    law: str
    holds: Callable[[Program, Move], bool]
    after: bool = False
    limit: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of moves that rewrite in the same way.

    Attributes:
        name: First word of the records.
        doc: What it does, in one sentence.
        rules: All must hold.
        find: Yields the moves that fit a program's shape, without repetition; legal or not.
        apply: Rewrites a program by a move that `find` yields; ends with `surgery.canonical`. It
            may raise ProgramError, and only where a rule does not hold.
        inverse: Of (program, move): the move that, applied to the result, gives back the same
            text. None only where the kind's module says so.
        exact: False, or False for some moves, where floating-point sums are re-associated.
    """

    name: str
    doc: str
    rules: tuple[Rule, ...]
    find: Callable[[Program], Iterator[Move]]
    apply: Callable[[Program, Move], Program]
    inverse: Callable[[Program, Move], Move | None]
    exact: bool | Callable[[Program, Move], bool] = True

    def is_exact(self, program: Program, move: Move) -> bool:
        """Tells whether a move leaves the order of every floating-point sum as it is."""
        return self.exact if isinstance(self.exact, bool) else self.exact(program, move)

    def attempt(
        self, program: Program, move: Move, *, without: Iterable[str] = ()
    ) -> tuple[Program | None, Rule | None]:
        """Applies a move that `find` yields, if it is legal.

        Args:
            program: The program.
            move: The move.
            without: Full names of rules that are not asked (`fuse.dependence`), for tests.

        Returns:
            The result and None, or None and the first rule that does not hold.

        Raises:
            ProgramError: Rules were left out and what came of it is no program.
        """
        asked = [rule for rule in self.rules if f"{self.name}.{rule.name}" not in without]
        for rule in asked:
            if not rule.after and not rule.holds(program, move):
                return None, rule
        result = self.apply(program, move)
        for rule in asked:
            if rule.after and not rule.holds(result, move):
                return None, rule
        return result, None


def scopes(program: Program) -> Iterator[tuple[Address, Scope]]:
    """Yields every scope with its address, parents first, in order."""
    return ((at, node) for at, node in walk(program) if isinstance(node, Scope))


def carries(program: Program, address: Address, mark: str) -> bool:
    """Tells whether iterations of a scope may depend on each other, given how a mark runs them.

    What is private to an iteration carries nothing. Lanes of a vector scope (v) may share the
    target of a reduction that does not depend on the lane; parallel iterations (p) share nothing.

    Args:
        program: The program; its own mark at the address does not matter.
        address: Of the scope.
        mark: p or v; u and nothing keep the order and carry no obligation.
    """
    if mark not in ("p", "v"):
        return False
    depth = len(address) - 1
    private = {b.name for b in program.of_kind("tmp") if is_private(program, b.name, address)}
    return any(
        may_carry(found.distance, depth) and not (mark == "v" and _combines(found, depth))
        for found in conflicts(program, address, ignore=private)
    )


def _combines(found: Conflict, depth: int) -> bool:
    """Whether the lanes of a vector scope only reduce into one place."""
    refs = (found.first.ref, found.second.ref)
    used = any(index.coefficient(depth) for ref in refs for index in ref.indices)
    return found.is_reduction and not used


def _marks_hold(program: Program, _: Move) -> bool:
    return not any(carries(program, at, scope.mark) for at, scope in scopes(program))


def _marks_fit(program: Program, _: Move) -> bool:
    for at, scope in scopes(program):
        if scope.mark == "v" and any(isinstance(node, Scope) for node in scope.body):
            return False
        above = {node_at(program, at[:n]).mark for n in range(1, len(at))}
        if scope.mark == "p" and above & {"p", "v"}:
            return False
    return True


# Laws of the result of any move; a kind lists those that its moves could break.
STORAGE = Rule(
    "storage",
    "every temporary's storage keeps what is read of it",
    lambda program, _: not unsound(program),
    after=True,
)
MARKS = Rule(
    "marks",
    "iterations of parallel and vector scopes do not depend on each other",
    _marks_hold,
    after=True,
)
FORM = Rule(
    "form",
    "a vector scope holds operations only, and a parallel scope is in no other and in no vector",
    _marks_fit,
    after=True,
    limit=True,
)
# The same where a move cannot make them false, only hide why they are true.
PROVEN_STORAGE, PROVEN_MARKS = PROVEN = tuple(replace(r, limit=True) for r in (STORAGE, MARKS))


@functools.cache
def inner_extents(extent: int) -> tuple[int, ...]:
    """Returns what an extent can be cut into: its divisors but 1 and itself, ascending."""
    low = [n for n in range(2, math.isqrt(extent) + 1) if extent % n == 0]
    return tuple(sorted({*low, *(extent // n for n in low)}))
