"""LFBOTreeSearch: LFBO pattern search whose neighbours are proposed by the forest's own trees.

Reproduces Helion's LFBOTreeSearch (helion 1.5.1, `lfbo_version` 3), its default autotuner. It is
LFBOPatternSearch in everything (`lfbo_pattern`: labels, weights, forest, selection, stops, polish)
but where a step's neighbours come from:

1. While there is no forest, and in the first two generations, they are random draws. (Helion
   counts a generation once it is measured, and grows trees once the count is above one.)
2. Then each of `num_neighbors` trials picks one tree t of the forest uniformly and follows the
   incumbent's decision path in it. The parameters that the path splits on, from the root on and
   each once, are the trial's coordinates; a random tile and num_warps are appended if absent.
3. Coordinate by coordinate, x_i <- argmax over {x_i} and its neighbours within `radius` of
   p_t(good | x), by that single tree, the other coordinates as they stand; ties are broken
   uniformly. A trial that ends where it began proposes nothing.

Misic, "Optimization of Tree Ensembles", Operations Research 68.5 (2020), is the idea; Song et al.,
"A General Recipe for Likelihood-free Bayesian Optimization" (2022), the method around it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kt_lab.search.base import option
from kt_lab.search.lfbo_pattern import LFBOPatternOptions, LFBOPatternSearch
from kt_lab.search.neighbourhood import Row, slots
from kt_lab.space import ParameterSpace


@dataclass(frozen=True)
class LFBOTreeOptions(LFBOPatternOptions):
    """Options of `lfbo_tree`; every default is Helion's."""

    num_neighbors: int = option(
        200, "Proposals tried per descent and step.", unit="configs", low=1, high=100_000
    )
    random_generations: int = option(
        2,
        "First generations whose neighbours are drawn at random, before trees propose.",
        unit="generations",
        low=0,
        high=1000,
    )


class LFBOTreeSearch(LFBOPatternSearch):
    """Measures tree-guided neighbours that the whole forest finds promising and unlike."""

    name: ClassVar[str] = "lfbo_tree"
    Options: ClassVar[type] = LFBOTreeOptions

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        self._code = Code(space)
        self._tiles, self._warps = slots(space, "tile"), slots(space, "warps")[:1]
        self._walks: dict[int, Walk] = {}  # of this generation's forest, made when picked

    def _learn(self) -> None:
        super()._learn()
        self._walks = {}

    def _draws(self, row: Row) -> list[Row]:
        """Returns the trees' proposals in order of trial, doubles and invalid ones included."""
        if self._forest is None or self._generation <= self.options.random_generations:
            return super()._draws(row)
        trees = len(self._forest.trees)
        x = self._code.encode(row)
        found = []
        for _ in range(self.options.num_neighbors):
            tree = self._random.randrange(trees)
            walk = self._walks.get(tree)
            if walk is None:
                walk = self._walks[tree] = Walk(self._forest.trees[tree], self._forest.good[tree])
            moved = self._climb(walk, row, x)
            if moved != row:
                found.append(moved)
        return self._capped(found)

    def _climb(self, walk: "Walk", row: Row, x: Sequence[float]) -> Row:
        """Returns where the greedy pass of one tree ends that begins at `row`, encoded as x."""
        code, rng = self._code, self._random
        path = list(dict.fromkeys(code.slot_of[f] for f in walk.features(x)))
        extra = ([rng.choice(self._tiles)] if self._tiles else []) + self._warps
        moved, here = list(row), list(x)
        for slot in path + [s for s in extra if s not in path]:
            near = self.space.parameters[slot].neighbours(moved[slot], self.options.radius)
            if not near:
                continue
            columns, codes = code.columns[slot], code.codes[slot]
            values = (moved[slot], *near)
            chances = []
            for value in values:
                here[columns] = codes[value]
                chances.append(walk.chance(here))
            top = max(chances)
            best = [v for v, chance in zip(values, chances, strict=True) if chance == top]
            moved[slot] = rng.choice(best)
            here[columns] = codes[moved[slot]]
        return tuple(moved)


class Code:
    """The encoding of a space, parameter by parameter, as the trees compare it.

    Attributes:
        columns: For each parameter, the slice of the encoding that it fills.
        codes: For each parameter and value index, what it is filled with (float32 numbers).
        slot_of: For each column of the encoding, its parameter's position.
    """

    def __init__(self, space: ParameterSpace):
        """Encodes every value of every parameter once."""
        ends = np.cumsum([p.width for p in space.parameters]).tolist()
        starts = [0, *ends[:-1]]
        self.columns = [slice(*ends) for ends in zip(starts, ends, strict=True)]
        self.codes: list[list[list[float]]] = [
            p.encode(np.arange(p.cardinality)).astype(np.float32).tolist()
            for p in space.parameters
        ]
        self.slot_of = [i for i, p in enumerate(space.parameters) for _ in range(p.width)]

    def encode(self, row: Row) -> list[float]:
        """Returns a row's encoding."""
        return [x for codes, value in zip(self.codes, row, strict=True) for x in codes[value]]


class Walk:
    """One tree as plain lists: for one config at a time much faster than arrays."""

    __slots__ = ("_feature", "_good", "_left", "_right", "_threshold")

    def __init__(self, tree: Any, good: np.ndarray):
        """Copies scikit-learn's tree and the probability of being good in each node."""
        self._feature = tree.feature.tolist()
        self._threshold = tree.threshold.tolist()
        self._left = tree.children_left.tolist()
        self._right = tree.children_right.tolist()
        self._good = good.tolist()

    def features(self, x: Sequence[float]) -> list[int]:
        """Returns the columns that x is compared in, from the root on; doubles included."""
        left, node, found = self._left, 0, []
        while left[node] >= 0:
            column = self._feature[node]
            found.append(column)
            lower = x[column] <= self._threshold[node]
            node = left[node] if lower else self._right[node]
        return found

    def chance(self, x: Sequence[float]) -> float:
        """Returns the probability of being good in the leaf of x."""
        feature, threshold = self._feature, self._threshold
        left, right, node = self._left, self._right, 0
        while (child := left[node]) >= 0:
            node = child if x[feature[node]] <= threshold[node] else right[node]
        return self._good[node]
