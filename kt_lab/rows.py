"""The valid configs of a product of parameters, as integer rows of value indices."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from kt_lab.constraints import Constraint
from kt_lab.errors import SpaceError
from kt_lab.parameters import Parameter, plain
from kt_lab.trial import Config

_LARGE = 1 << 20
ENUMERABLE = 10**6  # largest cartesian product that a space will list


class RowSpace:
    """Parameters under constraints: which configs are members, and where they stand."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        *,
        constraints: Sequence[Constraint] = (),
        default: Mapping[str, Any] | None = None,
        constants: Mapping[str, int | float | str | bool] | None = None,
    ):
        """Checks that the parts fit together; nothing is enumerated yet.

        Args:
            parameters: At least one, with distinct names.
            constraints: Over parameter names and constants.
            default: A valid config: what the kernel runs without tuning; never left out.
            constants: Named values that constraints may use (the workload's extents).

        Raises:
            SpaceError: A parameter is missing or doubled, a constraint names something unknown,
                the default is no member, or no config is valid.
        """
        self.parameters = tuple(parameters if isinstance(parameters, Iterable) else (parameters,))
        if not isinstance(parameters, Iterable) or not all(
            isinstance(p, Parameter) for p in self.parameters
        ):
            law = "parameters must be a list of Parameter"
            raise SpaceError(f"{law}, got {parameters!r}; write [PowerOfTwo('BLOCK', 16, 128)]")
        one = isinstance(constraints, str) or not isinstance(constraints, Iterable)
        self.constraints = (constraints,) if one else tuple(constraints)
        self.constants = {name: plain(value) for name, value in dict(constants or {}).items()}
        self.names = tuple(p.name for p in self.parameters)
        self._check_names()
        cards = [p.cardinality for p in self.parameters]
        self.cartesian_size = math.prod(cards)
        strides = [math.prod(cards[i + 1 :]) for i in range(len(cards))]
        small = self.cartesian_size < 2**63
        self._strides = np.asarray(strides, dtype=np.int64 if small else object)
        self._columns = tuple(_column(p.values) for p in self.parameters)
        self.default = self._check_default(default or {})

    def _check_names(self) -> None:
        if not self.parameters:
            raise SpaceError("a space must have at least one parameter, got none")
        for given in self.constraints:
            if not isinstance(given, Constraint):
                raise SpaceError("constraints must be a list of Constraint(name, expression), got "
                                 f"{given!r}; write [Constraint('fits', 'M*N < 64')]")  # fmt: skip
        if both := sorted(set(self.names) & self.constants.keys()):
            law = "a constant must not have a parameter's name"
            raise SpaceError(f"{law}, got {both}; rename one of the two")
        named = {"parameters": self.names, "constraints": [c.name for c in self.constraints]}
        for kind, names in named.items():
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


def distinct(rows: np.ndarray) -> np.ndarray:
    """Returns the different rows in lexicographic order, shape (n, parameters).

    What `np.unique` returns of axis 0, sooner: value indices as bytes, the highest first, sort as
    the numbers do.
    """
    whole = np.ascontiguousarray(rows, dtype=">u4").view(f"S{4 * rows.shape[1]}")[:, 0]
    return rows[np.unique(whole, return_index=True)[1]]


def _column(values: tuple) -> np.ndarray:
    """Returns values as a column that constraints compute on: int64, or objects as they are.

    Python's own integers hold what the product of three large ones comes to.
    """
    if all(isinstance(v, int | np.integer) and abs(v) < _LARGE for v in values):
        return np.asarray(values, dtype=np.int64)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
