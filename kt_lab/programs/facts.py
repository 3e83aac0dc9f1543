"""What was found out lately about programs and parts of them is kept, because they never change.

Whether a move is legal is asked of programs that hardly differ, and of each by many rules: the
same accesses, homes and coverage again and again. The parts that a move leaves alone are the very
same objects before and after it, so what they were found to be holds too.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

_PROGRAMS = 16  # whose facts are kept; a move is judged by the program before, after, and plain
PARTS = 1 << 12  # of a program, about which an answer is kept
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Same:
    """An object as a key: it equals itself only, which costs nothing to tell."""

    __slots__ = ("of",)

    def __init__(self, of: Any):
        """Keeps the object alive as long as the key."""
        self.of = of

    def __hash__(self) -> int:
        """Returns the object's identity."""
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        """Tells whether both are the same object."""
        return self.of is other.of


@functools.lru_cache(maxsize=_PROGRAMS)
def _facts(_: Same) -> dict[tuple, Any]:
    return {}


def fact(function: _Function) -> _Function:
    """Decorates a function of a program and of hashable arguments: what it returned is kept."""

    @functools.wraps(function)
    def kept(program: Any, *args: Any) -> Any:
        facts, key = _facts(Same(program)), (function, *args)
        if key not in facts:
            facts[key] = function(program, *args)
        return facts[key]

    return kept
