"""Search spaces: the valid configs of a workload, as rows of value indices."""

import hashlib
import json
import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from kt_lab.constraints import Constraint
from kt_lab.errors import SpaceError
from kt_lab.parameters import Choice, Flag, Integer, Parameter, PowerOfTwo, parameter_from
from kt_lab.trial import Config

__all__ = [
    "Choice",
    "Config",
    "Constraint",
    "Flag",
    "Integer",
    "Parameter",
    "ParameterSpace",
    "PowerOfTwo",
    "Space",
]

ENUMERABLE = 10**6  # largest cartesian product that a space will list
_DRAWS = 10**6  # rejected draws before sampling a huge space gives up


class Space(Protocol):
    """What every searcher may rely on; ParameterSpace and schedule spaces provide it."""

    default: Config
    fingerprint: str

    def contains(self, config: Mapping[str, Any]) -> bool:
        """Whether the config is a valid member."""

    def sample(self, n: int, *, rng: np.random.Generator) -> list[Config]:
        """Returns n valid configs drawn uniformly, with replacement."""

    def neighbours(self, config: Config, *, radius: int = 1) -> list[Config]:
        """Returns the valid configs one move away."""

    def encode(self, configs: Sequence[Config]) -> np.ndarray:
        """Returns floats of shape (n, d), one row per config."""


class ParameterSpace:
    """A product of parameters under constraints; only valid configs are members."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        *,
        constraints: Sequence[Constraint] = (),
        default: Mapping[str, Any],
        constants: Mapping[str, int | float | str | bool] | None = None,
    ):
        """Checks that the parts fit together; nothing is enumerated yet.

        Args:
            parameters: At least one, with distinct names.
            constraints: Over parameter names and constants.
            default: A valid config: what the kernel runs without tuning.
            constants: Named values that constraints may use (the workload's extents).

        Raises:
            SpaceError: A parameter is missing or doubled, a constraint names something unknown,
                the default is no member, or no config is valid.
        """
        self.parameters = tuple(parameters)
        self.constraints = tuple(constraints)
        self.constants = dict(constants or {})
        self.names = tuple(p.name for p in self.parameters)
        self._check_names()
        cards = [p.cardinality for p in self.parameters]
        self.cartesian_size = math.prod(cards)
        strides = [math.prod(cards[i + 1 :]) for i in range(len(cards))]
        self._strides = np.asarray(strides, dtype=np.int64 if self.enumerable else object)
        self._columns = tuple(_column(p.values) for p in self.parameters)
        self.default = self._check_default(default)

    def _check_names(self) -> None:
        if not self.parameters:
            raise SpaceError("a space must have at least one parameter, got none")
        for kind, names in (
            ("parameters", self.names),
            ("constraints", [c.name for c in self.constraints]),
        ):
            doubled = sorted({n for n in names if list(names).count(n) > 1})
            if doubled:
                raise SpaceError(f"{kind} must have distinct names, got {doubled} more than once")
        known = set(self.names) | set(self.constants)
        for constraint in self.constraints:
            if unknown := constraint.names - known:
                raise SpaceError(
                    f"constraint {constraint.name!r} must use parameters and constants only, "
                    f"got {sorted(unknown)}; known: {', '.join(sorted(known))}"
                )

    def _check_default(self, default: Mapping[str, Any]) -> Config:
        try:
            return self.check(default)
        except SpaceError as error:
            if self.enumerable and self.size == 0:
                raise SpaceError(
                    "constraints must leave at least one config, got none of "
                    f"{self.cartesian_size:,}; relax one of: "
                    + "; ".join(f"{c.name} ({c.canonical})" for c in self.constraints)
                ) from None
            raise SpaceError(f"the default must be a valid config: {error}") from None

    # -- membership ---------------------------------------------------------------------------

    @property
    def enumerable(self) -> bool:
        """Whether the cartesian product is small enough to list (<= 10**6)."""
        return self.cartesian_size <= ENUMERABLE

    @property
    def size(self) -> int:
        """Number of valid configs; only known when the space is enumerable."""
        return len(self.enumerate())

    def check(self, config: Mapping[str, Any]) -> Config:
        """Returns the config as a member, or raises SpaceError naming the law it breaks."""
        row = self.row(config)
        columns = self._named(row[None, :])
        for constraint in self.constraints:
            if not constraint.evaluate(columns).all():
                used = {n: config[n] for n in self.names if n in constraint.names}
                law = constraint.sentence or constraint.canonical
                raise SpaceError(
                    f"{law} ({constraint.name}: {constraint.canonical}), got "
                    + ", ".join(f"{k}={v!r}" for k, v in used.items())
                )
        return self.config(row)

    def contains(self, config: Mapping[str, Any]) -> bool:
        """Whether the config is a valid member."""
        try:
            return bool(self.valid(self.row(config)[None, :])[0])
        except SpaceError:
            return False

    def valid(self, rows: np.ndarray) -> np.ndarray:
        """Returns which rows obey every constraint, shape (n,)."""
        rows = np.asarray(rows)
        if self.enumerable and "_codes" in self.__dict__:
            codes = rows @ self._strides
            found = np.searchsorted(self._codes, codes)
            inside = found < len(self._codes)
            return inside & (self._codes[np.where(inside, found, 0)] == codes)
        return self._obeys(rows)

    def _obeys(self, rows: np.ndarray) -> np.ndarray:
        columns = self._named(rows)
        good = np.ones(len(rows), dtype=bool)
        for constraint in self.constraints:
            good &= constraint.evaluate(columns)
        return good

    def _named(self, rows: np.ndarray) -> dict[str, Any]:
        named: dict[str, Any] = dict(self.constants)
        for i, name in enumerate(self.names):
            named[name] = self._columns[i][rows[:, i]]
        return named

    # -- rows ---------------------------------------------------------------------------------

    def row(self, config: Mapping[str, Any]) -> np.ndarray:
        """Returns value indices, shape (parameters,); raises SpaceError on a foreign value."""
        if set(config) != set(self.names):
            missing, extra = set(self.names) - set(config), set(config) - set(self.names)
            raise SpaceError(
                f"a config must assign exactly {', '.join(self.names)}; "
                f"missing {sorted(missing)}, unknown {sorted(extra)}"
            )
        return np.asarray([p.index(config[p.name]) for p in self.parameters], dtype=np.int64)

    def rows(self, configs: Iterable[Mapping[str, Any]]) -> np.ndarray:
        """Returns value indices, shape (n, parameters)."""
        rows = [self.row(c) for c in configs]
        return np.asarray(rows, dtype=np.int64).reshape(-1, len(self.names))

    def config(self, row: Sequence[int]) -> Config:
        """Returns the config of one row."""
        return Config({p.name: p.values[i] for p, i in zip(self.parameters, row, strict=True)})

    def configs(self, rows: np.ndarray) -> list[Config]:
        """Returns the configs of rows of shape (n, parameters)."""
        return [self.config(row) for row in np.asarray(rows).tolist()]

    def enumerate(self) -> np.ndarray:
        """Returns all valid rows in lexicographic order, shape (size, parameters), read-only."""
        return self._valid_rows

    @cached_property
    def _valid_rows(self) -> np.ndarray:
        if not self.enumerable:
            raise SpaceError(
                f"a space must have at most {ENUMERABLE:,} points to be enumerated, got "
                f"{self.cartesian_size:,}; sample it instead"
            )
        shape = tuple(p.cardinality for p in self.parameters)
        rows = np.indices(shape, dtype=np.int64).reshape(len(shape), -1).T
        rows = np.ascontiguousarray(rows[self._obeys(rows)])
        rows.setflags(write=False)
        return rows

    @cached_property
    def _codes(self) -> np.ndarray:
        return self.enumerate() @ self._strides

    def index(self, config: Mapping[str, Any]) -> int:
        """Returns a member's position in `enumerate()`."""
        return int(self.indices(self.check(config) and self.row(config)[None, :])[0])

    def indices(self, rows: np.ndarray) -> np.ndarray:
        """Returns positions in `enumerate()` of valid rows, shape (n,)."""
        return np.searchsorted(self._codes, np.asarray(rows) @ self._strides)

    # -- moving about -------------------------------------------------------------------------

    def sample_rows(self, n: int, *, rng: np.random.Generator) -> np.ndarray:
        """Returns n valid rows drawn uniformly with replacement, shape (n, parameters)."""
        if self.enumerable:
            return self.enumerate()[rng.integers(self.size, size=n)]
        cards = np.asarray([p.cardinality for p in self.parameters])
        kept: list[np.ndarray] = []
        count = drawn = 0
        while count < n:
            rows = rng.integers(cards, size=(max(4 * n, 256), len(cards)))
            rows = rows[self._obeys(rows)]
            drawn += max(4 * n, 256)
            kept.append(rows)
            count += len(rows)
            if count == 0 and drawn > _DRAWS:
                raise SpaceError(
                    f"sampling must find a valid config, got none in {drawn:,} uniform draws; "
                    "tighten the parameters' bounds so that fewer configs are invalid"
                )
        return np.concatenate(kept)[:n]

    def sample(self, n: int, *, rng: np.random.Generator) -> list[Config]:
        """Returns n valid configs drawn uniformly, with replacement."""
        return self.configs(self.sample_rows(n, rng=rng))

    def neighbour_rows(self, row: Sequence[int], *, radius: int = 1) -> np.ndarray:
        """Returns the valid rows that differ from `row` in one parameter, in slot order."""
        row = np.asarray(row)
        moves = [
            (slot, value)
            for slot, p in enumerate(self.parameters)
            for value in p.neighbours(int(row[slot]), radius)
        ]
        rows = np.repeat(row[None, :], len(moves), axis=0)
        for i, (slot, value) in enumerate(moves):
            rows[i, slot] = value
        return rows[self.valid(rows)] if len(rows) else rows

    def neighbours(self, config: Mapping[str, Any], *, radius: int = 1) -> list[Config]:
        """Returns the valid configs that differ in one parameter by at most `radius` steps."""
        return self.configs(self.neighbour_rows(self.row(config), radius=radius))

    def distances(self, row: Sequence[int], rows: np.ndarray) -> np.ndarray:
        """Returns how far rows are from `row`: steps over the axis' length, or 1 if unordered."""
        apart = np.abs(rows - np.asarray(row))
        scale = [max(1, p.cardinality - 1) if p.ordered else 0 for p in self.parameters]
        parts = np.where(np.asarray(scale) > 0, apart / np.maximum(scale, 1), apart > 0)
        return parts.sum(axis=1)

    def repair(self, row: Sequence[int]) -> np.ndarray:
        """Returns the nearest valid row; ties go to the lexicographically first."""
        row = np.asarray(row)
        if self.valid(row[None, :])[0]:
            return row
        if self.enumerable:
            rows = self.enumerate()
            return rows[np.argmin(self.distances(row, rows))]
        return next(r for r in self._outward(row) if self.valid(r[None, :])[0])

    def nearest_unseen(self, config: Mapping[str, Any], seen: Collection[Config]) -> Config | None:
        """Returns the valid config nearest to `config` that is not in `seen`; None if none is.

        Args:
            config: Values of every parameter; the combination itself may be invalid.
            seen: Configs to leave out; membership tests should be fast (a set or a dict).
        """
        row = self.row(config)
        if not self.enumerable:
            outward = (self.config(r) for r in self._outward(row) if self.valid(r[None, :])[0])
            return next((c for c in outward if c not in seen), None)
        rows = self.enumerate()
        order = np.argsort(self.distances(row, rows), kind="stable")
        return next((c for i in order if (c := self.config(rows[i])) not in seen), None)

    def _outward(self, row: np.ndarray):
        """Yields rows in breadth-first order of single steps, valid or not, from `row` on."""
        queue, met = deque([tuple(row.tolist())]), {tuple(row.tolist())}
        while queue:
            here = queue.popleft()
            yield np.asarray(here)
            for slot, p in enumerate(self.parameters):
                for value in p.neighbours(here[slot], 1):
                    step = (*here[:slot], value, *here[slot + 1 :])
                    if step not in met:
                        met.add(step)
                        queue.append(step)

    # -- facts --------------------------------------------------------------------------------

    def encode_rows(self, rows: np.ndarray) -> np.ndarray:
        """Returns floats of shape (n, sum of widths) for rows of shape (n, parameters)."""
        rows = np.asarray(rows)
        return np.hstack([p.encode(rows[:, i]) for i, p in enumerate(self.parameters)])

    def encode(self, configs: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Returns floats of shape (n, sum of widths): log2, numbers, one-hot."""
        return self.encode_rows(self.rows(configs))

    def describe(self) -> dict[str, Any]:
        """Returns everything that `from_description` needs, as JSON-ready data."""
        return {
            "default": dict(self.default),
            "parameters": [p.describe() for p in self.parameters],
            "constraints": [
                {"name": c.name, "expression": c.canonical, "sentence": c.sentence}
                for c in self.constraints
            ],
            "constants": self.constants,
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "ParameterSpace":
        """Builds the space that `describe` described."""
        try:
            return cls(
                [parameter_from(d) for d in description["parameters"]],
                constraints=[Constraint(**d) for d in description["constraints"]],
                default=description["default"],
                constants=description["constants"],
            )
        except (KeyError, TypeError) as error:
            raise SpaceError(
                f"a space description must hold parameters, constraints, constants and a default; "
                f"got {sorted(description)}: {error}"
            ) from None

    @cached_property
    def fingerprint(self) -> str:
        """Hash of parameters, values, constraint expressions and constants (16 hex digits)."""
        facts = {
            "parameters": [[type(p).__name__, p.name, list(p.values)] for p in self.parameters],
            "constraints": sorted(c.canonical for c in self.constraints),
            "constants": self.constants,
        }
        text = json.dumps(facts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _column(values: tuple) -> np.ndarray:
    """Returns values as a column that constraints compute on: int64, or objects as they are."""
    if all(isinstance(v, int | np.integer) for v in values):
        return np.asarray(values, dtype=np.int64)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
