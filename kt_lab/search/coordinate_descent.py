"""Coordinate descent: what users of torch.compile run after a kernel's default config.

Reproduces `CoordescTuner.autotune` of PyTorch 2.13 (`torch/_inductor/runtime/
coordinate_descent_tuner.py`):

- `tunable_fields`: blocks, then num_warps, then num_stages (here by role; parameters without a
  role, of which Inductor knows none, come last, each role in the space's order);
- `get_neighbour_values`: the larger values nearest first, then the smaller ones. Inductor doubles
  and halves, and moves num_stages by 1: one step of a `PowerOfTwo`, respectively of an `Integer`.
  Every other value of an unordered parameter is a neighbour;
- `has_improvement`: t_new < t_best * (1 - 0.001);
- `autotune`: sweep over the fields; all neighbours of a field are those of the config that the
  field was entered with, and an improvement is adopted at once, so that the next field starts
  from it (Gauss-Seidel); sweep again while anything improved;
- `check_all_tuning_directions`: after a sweep without improvement, the product of the neighbours
  of all fields, the values themselves included; if one improves, sweep on.

In Inductor the radius holds for the product only (`coordinate_descent_search_radius`), a sweep
goes one step; here `radius` is the sweep's and `directions_radius` the product's. Inductor would
stop at a failing default; here it counts as infinitely slow. The neighbours of one field are
proposed together, and the trajectory is the serial one. `restart` is not Inductor's.
"""

import itertools
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kt_lab.search.base import Options, option
from kt_lab.search.chains import Chain, ChainSearcher
from kt_lab.trial import Config

_ORDER = ("tile", "warps", "stages", None)  # of the fields, by role
_BLOCK = 64  # configs of the product that are proposed together


@dataclass(frozen=True)
class CoordinateDescentOptions(Options):
    """Options of `coordinate_descent`; every default is Inductor's."""

    min_improvement: float = option(
        0.001, "Share by which a config must be faster to be adopted.", low=0.0, high=1.0
    )
    radius: int = option(
        1, "Steps that a field may move in a sweep.", unit="steps", low=1, high=100
    )
    check_all_directions: bool = option(
        False, "Once no single field improves, try all combinations of steps of all fields."
    )
    directions_radius: int = option(
        1, "Steps that each field may move in such a combination.", unit="steps", low=1, high=10
    )
    restart: bool = option(
        False,
        "Once converged, descend again from the prior's configs, then from random ones, until "
        "the budget is spent. False: done, as Inductor is.",
    )


class CoordinateDescent(ChainSearcher):
    """Descends from the default config, one parameter at a time, until none improves.

    Without `restart` the seed changes nothing, and a prior is ignored.
    """

    name: ClassVar[str] = "coordinate_descent"
    Options: ClassVar[type] = CoordinateDescentOptions
    needs: ClassVar[str] = "ParameterSpace"

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        self.seeded = self.options.restart
        roles = [_ORDER.index(p.role) for p in space.parameters]
        self._fields = sorted(range(len(roles)), key=roles.__getitem__)

    def _chain(self, rng: np.random.Generator) -> Chain:  # noqa: ARG002 - starts have their own
        while (config := self._start()) is not None:
            [value] = yield "start", [config]
            yield from self._descend(self.space.row(config), value)
            if not self.options.restart:
                return

    def _descend(self, best: np.ndarray, value: float) -> Chain:
        """Runs `autotune` from a row whose reading is `value` microseconds."""
        options, improved = self.options, True
        while improved:
            improved = False
            for slot in self._fields:
                rows = _along(best, slot, self._values_of(best, slot, options.radius))
                best, value, better = yield from self._adopt("field", rows, best, value)
                improved |= better
            if not improved and options.check_all_directions:
                product = itertools.product(
                    *(
                        [*self._values_of(best, slot, options.directions_radius), best[slot]]
                        for slot in self._fields
                    )
                )
                while block := list(itertools.islice(product, _BLOCK)):
                    rows = np.asarray(block)[:, np.argsort(self._fields)]
                    best, value, better = yield from self._adopt("directions", rows, best, value)
                    improved |= better

    def _adopt(
        self, origin: str, rows: np.ndarray, best: np.ndarray, value: float
    ) -> Generator[tuple[str, list[Config]], list[float], tuple[np.ndarray, float, bool]]:
        """Measures the valid rows and adopts improvements in order, each over the last."""
        better = False
        rows = rows[self.space.valid(rows)] if len(rows) else rows
        if len(rows):
            readings = yield origin, self.space.configs(rows)
            for row, reading in zip(rows, readings, strict=True):
                if reading < value * (1 - self.options.min_improvement):
                    best, value, better = row, reading, True
        return best, value, better

    def _values_of(self, row: np.ndarray, slot: int, radius: int) -> list[int]:
        """Returns the value indices near a row's: larger ones, then smaller, nearest first."""
        at, parameter = int(row[slot]), self.space.parameters[slot]
        near = parameter.neighbours(at, radius)
        if not parameter.ordered:
            return list(near)
        return [v for v in near if v > at] + [v for v in near[::-1] if v < at]


def _along(row: np.ndarray, slot: int, values: list[int]) -> np.ndarray:
    rows = np.repeat(row[None, :], len(values), axis=0)
    rows[:, slot] = values
    return rows
