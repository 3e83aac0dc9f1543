"""Search spaces: the valid configs of a workload, as rows of value indices."""

import base64
import hashlib
import json
import zlib
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property
from itertools import islice
from typing import Any, Protocol

import numpy as np

from kt_lab.constraints import Constraint
from kt_lab.errors import SpaceError
from kt_lab.parameters import Choice, Flag, Integer, Parameter, PowerOfTwo, parameter_from
from kt_lab.rows import RowSpace
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

_MOST_MEMBERS = 10**7  # that are unpacked
_DRAWS = 10**6  # before sampling a huge space may give up
_PATIENCE = 1000  # times as many that it may take


class Space(Protocol):
    """What every searcher may rely on; ParameterSpace and schedule spaces provide it.

    A space may also have, and searchers then use:
        key(config)             something hashable; configs of one key stand for the same thing, so
                                that one of them is measured
        mutate(config, *, rng)  a member that differs a little, at random
        cross(a, b, *, rng)     a member that takes after both
    """

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


class ParameterSpace(RowSpace):
    """A product of parameters under constraints; only valid configs are members."""

    _restricted = False  # whether `only` made it: members are listed, not computed

    # -- restricting --------------------------------------------------------------------------

    def only(self, rows: np.ndarray) -> "ParameterSpace":
        """Returns the space restricted to some of its valid rows; all of them: the space itself.

        Whatever the space does stays within these rows: sampling, moves, repairs. Its default
        stays the default if it is among them; else the nearest of them takes its place.

        Args:
            rows: Value indices, shape (n, parameters), n >= 1; repeated rows count once.

        Raises:
            SpaceError: There is no row, or one is no valid member.
        """
        rows = np.asarray(rows)
        if rows.ndim != 2 or rows.shape[1] != len(self.names) or not len(rows):
            raise SpaceError(
                f"a space must be restricted to at least one row of {len(self.names)} value "
                f"indices, got an array of shape {rows.shape}"
            )
        cards = [p.cardinality for p in self.parameters]
        foreign = ((rows < 0) | (rows >= cards)).any(axis=1)
        foreign[~foreign] = ~self.valid(rows[~foreign])
        if foreign.any():
            raise SpaceError(
                f"a space must be restricted to valid members, got {int(foreign.sum()):,} of "
                f"{len(rows):,} rows outside it, first {rows[foreign][0].tolist()}"
            )
        codes, first = np.unique(rows @ self._strides, return_index=True)
        if self.enumerable and len(codes) == self.size:
            return self
        facts = {"constraints": self.constraints, "constants": self.constants}
        space = ParameterSpace(self.parameters, default=self.default, **facts)
        space._restricted = True
        space._codes = codes
        space._valid_rows = np.ascontiguousarray(rows[first], dtype=np.int64)
        space._valid_rows.setflags(write=False)
        space.default = space.config(space.repair(self.row(self.default)))
        return space

    @property
    def enumerable(self) -> bool:
        """Whether the members can be listed: <= 10**6 combinations, or made by `only`."""
        return self._restricted or super().enumerable

    def check(self, config: Mapping[str, Any]) -> Config:
        """Returns the config as a member, or raises SpaceError naming the law it breaks."""
        found = super().check(config)
        if self._restricted and not self.contains(found):
            raise SpaceError(
                f"a config must be one of the {self.size:,} that the space was restricted to, "
                f"got {found!r}"
            )
        return found

    # -- moving about -------------------------------------------------------------------------

    def sample_rows(self, n: int, *, rng: np.random.Generator, most=float("inf")) -> np.ndarray:
        """Returns n valid rows drawn uniformly with replacement, shape (n, parameters).

        Args:
            n: How many.
            rng: Draws.
            most: Draws, valid or not, after which fewer rows must do, one at least; of a space
                that is listed, none is in vain.
        """
        if self.enumerable:
            return self.enumerate()[rng.integers(self.size, size=n)]
        cards = np.asarray([p.cardinality for p in self.parameters])
        kept: list[np.ndarray] = []
        count = drawn = 0
        while not kept or (count < n and (drawn < most or not count)):
            rows = rng.integers(cards, size=(max(4 * n, 256), len(cards)))
            rows = rows[self._obeys(rows)]
            drawn += max(4 * n, 256)
            kept.append(rows)
            count += len(rows)
            if drawn > _DRAWS and count * _PATIENCE * _DRAWS < n * drawn:
                raise SpaceError(
                    f"sampling must find valid configs, got {count} of {n:,} in {drawn:,} uniform "
                    "draws; tighten the parameters' bounds so that fewer configs are invalid"
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
        """Returns the nearest valid row; ties go to the lexicographically first.

        Near is by `distances`, or by the number of steps where the space is too large to list.
        """
        row = np.asarray(row)
        if self.valid(row[None, :])[0]:
            return row
        if self.enumerable:
            rows = self.enumerate()
            return rows[np.argmin(self.distances(row, rows))]
        return next(self._around(row))

    def nearest_unseen(self, config: Mapping[str, Any], seen: Collection[Config]) -> Config | None:
        """Returns the valid config nearest to `config` that is not in `seen`; None if none is.

        Where the space is too large to list, also None once 65,536 rows around were met in vain.

        Args:
            config: Values of every parameter; the combination itself may be invalid.
            seen: Configs to leave out; membership tests should be fast (a set or a dict).
        """
        row = self.row(config)
        if not self.enumerable:
            near = map(self.config, self._around(row, most=2**16))
            return next((c for c in near if c not in seen), None)
        rows = self.enumerate()
        order = np.argsort(self.distances(row, rows), kind="stable")
        return next((c for i in order if (c := self.config(rows[i])) not in seen), None)

    def _around(self, row: np.ndarray, **limits):
        """Yields the valid ones of `_outward`'s rows; they are tried in ever larger blocks."""
        rows, size = self._outward(row, **limits), 4
        while block := list(islice(rows, size := min(2 * size, 1024))):
            yield from (found := np.asarray(block))[self.valid(found)]

    def _outward(self, row: np.ndarray, *, most: float = float("inf")):
        """Yields rows in breadth-first order of single steps, valid or not, from `row` on.

        Ends once `most` were met, yielded or still to come.
        """
        queue, met = deque([tuple(row.tolist())]), {tuple(row.tolist())}
        steps = [cache(p.neighbours) for p in self.parameters]
        while queue and len(met) < most:
            yield np.asarray(here := queue.popleft())
            for slot, at in enumerate(here):
                for value in steps[slot](at):
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
        members = {"members": _pack(self.enumerate())} if self._restricted else {}
        return members | {
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
            space = cls(
                [parameter_from(d) for d in description["parameters"]],
                constraints=[Constraint(**d) for d in description["constraints"]],
                default=description["default"],
                constants=description["constants"],
            )
        except SpaceError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise SpaceError(
                f"a space description must hold parameters, constraints, constants and a default; "
                f"got {description!r:.200}: {type(error).__name__}: {error}"
            ) from None
        packed = description.get("members")
        return space if packed is None else space.only(_unpack(packed, len(space.names)))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of parameters, values, constraints, constants and restriction (16 hex digits)."""
        facts = {
            "parameters": [[type(p).__name__, p.name, list(p.values)] for p in self.parameters],
            "constraints": sorted(c.canonical for c in self.constraints),
            "constants": self.constants,
        }
        if self._restricted:
            facts["members"] = hashlib.sha256(_column_bytes(self.enumerate())).hexdigest()
        text = json.dumps(facts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _column_bytes(rows: np.ndarray) -> bytes:
    return rows.T.astype("<u4").tobytes()


def _pack(rows: np.ndarray) -> str:
    """Returns rows as text: about a byte a row, because sorted columns repeat themselves."""
    return base64.b85encode(zlib.compress(_column_bytes(rows), 9)).decode()


def _unpack(text: str, parameters: int) -> np.ndarray:
    try:
        unpack, most = zlib.decompressobj(), 4 * parameters * _MOST_MEMBERS
        flat = np.frombuffer(unpack.decompress(base64.b85decode(text), most), dtype="<u4")
        if not unpack.eof:
            raise ValueError(f"none that end, or more than {_MOST_MEMBERS:,}")
        return flat.reshape(parameters, -1).T.astype(np.int64)
    except (TypeError, ValueError, zlib.error) as error:
        raise SpaceError(f"a space's members must be packed value indices, got {error}") from None
