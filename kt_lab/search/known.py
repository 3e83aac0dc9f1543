"""What other workloads say of a space's configs, for a model that may trust them or not."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from kt_lab.prior import Prior, PriorReading
from kt_lab.space import ParameterSpace
from kt_lab.trial import Config

_ENOUGH = 8  # readings that make a source a function
_NEAREST = 3  # readings that stand for a config that was not read
_OCTAVE = 0.5  # distance of a value and its double; two alternatives are 1 apart
_ALONE = 0.1  # weight of what a config is worth without those chosen before it
_HALVED = 2.0  # octaves from the searched shape that halve a source's weight
_DEFAULT = 10.0  # octaves that the default config counts as, a source that knows only itself
_MOST = 20.0  # logarithm of a prediction over the best
_FAILED = 0.9  # quantile of a source's values that a failure counts as


def bent(t: np.ndarray, bend: float) -> np.ndarray:
    """Returns values with what is above the bend m taken to m (1 + log(t / m))."""
    return np.where(t > bend, bend * (1.0 + np.log(np.maximum(t, bend) / bend)), t)


def unbent(t: float, bend: float) -> float:
    """Returns what `bent` makes t; 20 at most, 5e8 times the best latency: nobody read more."""
    return t if t <= bend else bend * math.exp(min(t / bend - 1.0, math.log(_MOST / bend)))


class Known:
    """The sources of a prior, one per workload and GPU, as functions of a config.

    The spaces of a kernel differ from workload to workload. So a source is asked for the configs
    nearest in the parameters that both have; of those that agree in these the fastest counts. It
    weighs the more the nearer its shape is to the searched one, and as the furthest where nobody
    knows that.

    Attributes:
        others: The fastest configs of sources that are no functions: too few, or all alike. Of
            one that read nothing, whose configs are hints then, the first.
        bend: The median over sources of the median logarithm of latency over the best; 0 without.
        scale: The root mean square deviation of the sources' values; 0 without.
    """

    def __init__(self, space: ParameterSpace, prior: Prior | None):
        """Takes a prior's readings.

        Args:
            space: Whose configs are asked about.
            prior: With readings of any number of sources; None: of none.
        """
        self.bend, self.scale, self._weights = 0.0, 0.0, []
        self._default = space.row(space.default)
        apart: dict[tuple[str, str], list[PriorReading]] = {}
        for reading in prior.readings if prior else ():
            apart.setdefault((reading.workload, reading.gpu), []).append(reading)
        told = [(readings, _logarithms(readings)) for readings in apart.values()]
        rich = [(readings, t) for readings, t in told if _is_rich(t)]
        if rich:
            self.bend = float(np.median([np.median(t[np.isfinite(t)]) for _, t in rich]))
        made = [_source(space, readings, t, self.bend) for readings, t in rich]
        self._sources = [source for source in made if source is not None]
        if self._sources:
            octaves = np.array([source.octaves for source in self._sources])
            furthest = octaves[np.isfinite(octaves)].max(initial=0.0)
            weights = 2.0 ** (-np.append(np.minimum(octaves, furthest), _DEFAULT) / _HALVED)
            *self._weights, self._far = weights / weights[:-1].mean()
            self.scale = float(np.sqrt(np.mean([s.y.var() for s in self._sources])))
        else:
            self.bend = 0.0
        poor = [best for readings, t in told if not _is_rich(t) for best in _fastest(readings, t)]
        kept = space.rows([config for config in dict.fromkeys(poor) if space.contains(config)])
        self.others: list[tuple[int, ...]] = list(map(tuple, kept.tolist()))

    def __bool__(self) -> bool:
        """Whether anything that was read says something of the space."""
        return bool(self._sources or self.others)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Returns what every source says of rows, shape (n, sources).

        Logarithms over `scale`, times the source's weight; the weights' mean is 1.
        """
        found = [source.of(rows)[:, None] / self.scale for source in self._sources]
        return np.hstack([np.empty((len(rows), 0)), *found]) * self._weights

    def first(self, rows: np.ndarray, *, count: int) -> list[tuple[int, ...]]:
        """Returns rows that serve the sources best, each the one that adds most to those before.

        Greedy choice: see `kt_lab.covering`. Among equals the one most like the default, which is
        what somebody chose for all shapes: it counts as the best of a source that is far away.

        Args:
            rows: Members of the space to choose from, shape (n, parameters).
            count: How many, at most; none where there is no source.
        """
        if not self._sources:
            return []
        rows = rows[np.argsort((rows != self._default).sum(axis=1), kind="stable")]
        other = (rows != self._default).any(axis=1) * self._far
        costs = np.column_stack([self(rows), other])
        chosen, best = [], np.full(costs.shape[1], costs.max())
        while len(chosen) < min(count, len(rows)):
            served = np.minimum(costs, best) + _ALONE * costs
            served[chosen] = np.inf
            chosen.append(int(np.argmin(served.sum(axis=1))))
            best = np.minimum(best, costs[chosen[-1]])
        return [tuple(rows[at].tolist()) for at in chosen]


@dataclass(frozen=True, eq=False, slots=True)
class _Source:
    """One workload's readings.

    Attributes:
        tables: Per parameter of the space where its values lie, shape (values, axes).
        fixed: Where what is constant in the space lies.
        tree: Where the readings lie.
        y: Their values, shape (n,).
        octaves: How far its shape is from the searched one; infinite: nobody knows.
    """

    tables: list[np.ndarray]
    fixed: np.ndarray
    tree: cKDTree
    y: np.ndarray
    octaves: float

    def of(self, rows: np.ndarray) -> np.ndarray:
        parts = [table[rows[:, i]] for i, table in enumerate(self.tables)]
        x = np.hstack([*parts, np.repeat(self.fixed[None], len(rows), axis=0)])
        apart, near = self.tree.query(x, k=range(1, min(_NEAREST, len(self.y)) + 1))
        return np.where(apart[:, 0] < 1e-9, self.y[near[:, 0]], self.y[near].mean(axis=1))


def _source(
    space: ParameterSpace, readings: Sequence[PriorReading], t: np.ndarray, bend: float
) -> _Source | None:
    """Returns a source; None where it says nothing: no parameter of the space, or all alike."""
    columns = {n: [r.config.get(n) for r in readings] for n in readings[0].config}
    shared = [p.name for p in space.parameters if _fits(p, columns.get(p.name))]
    fixed = [
        n for n, v in space.constants.items() if n in columns and _are_numbers([v, *columns[n]])
    ]
    if not shared:
        return None
    tables, places = [], []
    for p in space.parameters:
        words = None if p.ordered else list(p.values)
        known = p.name in shared
        tables.append(_placed(p.values, words) if known else np.empty((p.cardinality, 0)))
        places += [_placed(columns[p.name], words)] if known else []
    places += [_placed(columns[name], None) for name in fixed]
    ok = np.isfinite(t)
    y = bent(np.where(ok, t, 0.0), bend)
    y[~ok] = np.quantile(y[ok], _FAILED)
    x, which = np.unique(np.hstack(places), axis=0, return_inverse=True)
    least = np.full(len(x), np.inf)
    np.minimum.at(least, which.ravel(), y)
    if np.ptp(least) == 0.0:
        return None
    at = _placed([space.constants[name] for name in fixed], None)[:, 0] if fixed else np.empty(0)
    return _Source(tables, at, cKDTree(x), least, readings[0].octaves)


def _placed(values: Sequence[Any], words: Sequence[Any] | None) -> np.ndarray:
    """Returns where values lie: in octaves, or on an axis per word, shape (n, axes).

    Rounded, so that a value lies in the same place whoever asks.
    """
    if words is None:
        v = np.asarray(values, dtype=float)
        return np.round(_OCTAVE * np.copysign(np.log2(1.0 + np.abs(v)), v), 9)[:, None]
    return np.array([[value == word for word in words] for value in values]) / np.sqrt(2.0)


def _fits(parameter, values: Sequence[Any] | None) -> bool:
    return values is not None and (not parameter.ordered or _are_numbers(values))


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, Real) for value in values)


def _logarithms(readings: Iterable[PriorReading]) -> np.ndarray:
    """Returns the logarithms of latencies over the least, inf for failures."""
    t = np.log(np.array([r.latency_us for r in readings], dtype=float))  # None: not a number
    t = np.where(np.isnan(t), np.inf, t)
    return t - t.min() if np.isfinite(t).any() else t


def _fastest(readings: Sequence[PriorReading], t: np.ndarray) -> list[Config]:
    """Returns the configs of few or equal readings, the fastest first; hints where none worked."""
    order, worked = np.argsort(t, kind="stable")[:_ENOUGH].tolist(), np.isfinite(t)
    return [readings[at].config for at in order if worked[at] or not worked.any()]


def _is_rich(t: np.ndarray) -> bool:
    return np.isfinite(t).sum() >= _ENOUGH and np.median(t[np.isfinite(t)]) > 0
