"""Parameter kinds: each owns its values, its neighbours and its encoding as floats."""

import math
from collections.abc import Iterable, Set
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from kt_lab.errors import SpaceError

_MOST = 1 << 20  # values of an axis, which are listed
_POWERS = {2**e for e in range(63)}
_STORED = bool | int | float | str | None  # what a file gives back as it was
ROLES = ("tile", "warps", "stages", None)


@dataclass(frozen=True)
class Parameter:
    """One tunable axis; use one of its kinds.

    Attributes:
        name: A Python identifier, the kernel's argument name.
        role: What the axis means to algorithms that know Triton: "tile" (a block extent),
            "warps", "stages", or None.
    """

    name: str
    values: tuple = field(init=False, default=())
    ordered: ClassVar[bool] = True

    def _finish(self, values: tuple, role: str | None) -> None:
        if not str(self.name).isidentifier():
            raise SpaceError(f"a parameter's name must be an identifier, got {self.name!r}")
        if role not in ROLES:
            raise SpaceError(f"role must be one of {ROLES}, got role={role!r} in {self.name!r}")
        if not values:
            raise SpaceError(f"parameter {self.name!r} must have at least one value, got none")
        law = f"parameter {self.name!r} must have"
        if not all(map(_is_stored, values)):
            kinds = "numbers, texts, flags, None or tuples of these as values"
            raise SpaceError(f"{law} {kinds}, got {values}; let a text name what is none of these")
        if len({value for value in values if value == value}) != len(values):  # as configs count
            ones = "1, 1.0 and True are one, NaN is none: leave one out, or write it as text"
            raise SpaceError(f"{law} distinct values, got {values}; {ones}")
        object.__setattr__(self, "values", values)

    @property
    def cardinality(self) -> int:
        """Number of values."""
        return len(self.values)

    @property
    def width(self) -> int:
        """Number of floats that encode one value."""
        return 1

    def index(self, value: Any) -> int:
        """Returns the position of a value, or raises SpaceError."""
        for i, known in enumerate(self.values):
            if known == value and isinstance(known, bool) == isinstance(value, bool | np.bool_):
                return i
        raise SpaceError(f"{self.name} must be one of {self.values}, got {self.name}={value!r}")

    def neighbours(self, index: int, radius: int = 1) -> tuple[int, ...]:
        """Returns the value indices within `radius` steps, ascending, without the index itself."""
        low, high = max(0, index - radius), min(self.cardinality - 1, index + radius)
        return tuple(i for i in range(low, high + 1) if i != index)

    def encode(self, indices: np.ndarray) -> np.ndarray:
        """Returns floats of shape (n, width) for value indices of shape (n,)."""
        return np.asarray(self.values, dtype=np.float64)[indices][:, None]

    def describe(self) -> dict[str, Any]:
        """Returns the arguments that make the axis again, with its kind, as JSON-ready data."""
        facts = {f.name: plain(getattr(self, f.name)) for f in fields(self) if f.init}
        return {"kind": type(self).__name__} | facts


@dataclass(frozen=True)
class PowerOfTwo(Parameter):
    """The powers of two from low to high, both included; one step doubles or halves."""

    low: int = 1
    high: int = 1
    role: str | None = None

    def __post_init__(self):
        """Checks the bounds and lists the values."""
        for bound in (self.low, self.high):
            if bound not in _POWERS:
                law = f"{self.name} must be bounded by powers of two"
                raise SpaceError(f"{law}, got low={self.low}, high={self.high}")
        exponents = range(int(math.log2(self.low)), int(math.log2(self.high)) + 1)
        self._finish(tuple(2**e for e in exponents), self.role)

    def encode(self, indices: np.ndarray) -> np.ndarray:
        """Encodes as log2 of the value."""
        return np.log2(np.asarray(self.values, dtype=np.float64))[indices][:, None]


@dataclass(frozen=True)
class Integer(Parameter):
    """The integers from low to high in steps, both ends included when the step divides."""

    low: int = 0
    high: int = 0
    step: int = 1
    role: str | None = None

    def __post_init__(self):
        """Checks the bounds and lists the values."""
        for bound in ("low", "high", "step"):
            if not isinstance(value := plain(getattr(self, bound)), int):
                raise SpaceError(f"{self.name} must have integer bounds, got {bound}={value!r}")
            object.__setattr__(self, bound, value)
        if self.step < 1:
            raise SpaceError(f"{self.name} must have step >= 1, got step={self.step}")
        if (self.high - self.low) // self.step >= _MOST:
            given = f"got low={self.low}, high={self.high}, step={self.step}"
            raise SpaceError(f"{self.name} must have at most {_MOST:,} values, {given}")
        self._finish(tuple(range(self.low, self.high + 1, self.step)), self.role)


@dataclass(frozen=True)
class Ordered(Parameter):
    """Listed numbers in ascending order, evenly spaced or not; one step goes to the next."""

    numbers: tuple[float, ...] = ()
    role: str | None = None

    def __post_init__(self):
        """Copies the numbers and checks their order."""
        object.__setattr__(self, "numbers", _listed(self.name, self.numbers))
        numbers = all(isinstance(number, int | float) for number in self.numbers)
        if not numbers or any(not a < b for a, b in pairwise(self.numbers)):
            raise SpaceError(f"{self.name} must list ascending numbers, got {self.numbers}")
        self._finish(self.numbers, self.role)


@dataclass(frozen=True)
class Choice(Parameter):
    """Unordered alternatives; every other value is a neighbour at any radius."""

    choices: tuple[_STORED | tuple, ...] = ()
    role: str | None = None
    ordered: ClassVar[bool] = False

    def __post_init__(self):
        """Copies the alternatives."""
        object.__setattr__(self, "choices", _listed(self.name, self.choices))
        self._finish(self.choices, self.role)

    @property
    def width(self) -> int:
        """One float per alternative."""
        return self.cardinality

    def neighbours(self, index: int, radius: int = 1) -> tuple[int, ...]:  # noqa: ARG002
        """Returns every other value's index, whatever the radius: there is no order."""
        return tuple(i for i in range(self.cardinality) if i != index)

    def encode(self, indices: np.ndarray) -> np.ndarray:
        """Encodes one-hot."""
        return np.eye(self.cardinality)[indices]


@dataclass(frozen=True)
class Flag(Parameter):
    """Off or on."""

    role: str | None = None

    def __post_init__(self):
        """Sets both values."""
        self._finish((False, True), self.role)


def plain(value: Any) -> Any:
    """Returns a value as before a file made text of numpy's numbers, or lists of tuples."""
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    return value.item() if isinstance(value, np.generic) else value


def _is_stored(value: Any) -> bool:
    return all(map(_is_stored, value)) if isinstance(value, tuple) else isinstance(value, _STORED)


def _listed(name: str, values: Any) -> tuple:
    """Returns plain values in the order they were listed: a text or a set lists none."""
    if isinstance(values, str | bytes | Set) or not isinstance(values, Iterable):
        raise SpaceError(f"{name} must list its values in their order, as (1, 2), got {values!r}")
    return tuple(map(plain, values))


_KINDS = {kind.__name__: kind for kind in (PowerOfTwo, Integer, Ordered, Choice, Flag)}


def parameter_from(description: dict[str, Any]) -> Parameter:
    """Returns the parameter that `describe` described."""
    facts = dict(description)
    kind = facts.pop("kind", None)
    if kind not in _KINDS:
        raise SpaceError(f"a parameter's kind must be one of {sorted(_KINDS)}, got {kind!r}")
    return _KINDS[kind](**facts)
