"""A genetic algorithm: Kernel Tuner's, constraint-aware.

Reproduces `strategies/genetic_algorithm.py` of Kernel Tuner 1.5.0; its defaults come from a tuning
of its hyperparameters (Willemsen et al., "Tuning the Tuner", arXiv 2509.26300):

- `generate_population`: `population` distinct random configs, the first replaced by the start
  (here the default config; the prior's configs follow it). More than half of the space becomes
  round(3 * size / generations), at least 2;
- `weighted_choice`: parents are ranked by latency, and rank floor(B * n) is drawn with
  B ~ Beta(1, 2.5) until two ranks differ;
- `crossover`: both children of the chosen method, each repaired: an invalid one is replaced by a
  random valid row at most one step away in every parameter ("strictly-adjacent"), else by one at
  Hamming distance 1, else dropped;
- `mutate`: with a chance of 1 in `mutation_chance`, per child, a random neighbour at Hamming
  distance 1;
- a child that its generation holds already is dropped; the next generation consists of children
  only; a run ends after `generations`.

Children that were measured before are free, as in Kernel Tuner. A generation is proposed at once.

One thing is added: in a space so small that the population shrank, two parents or three bring only
a few configs, and of configs with no neighbours nothing else. What the generations left there
follows in random order, until the budget is spent.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kt_lab.search.base import Options, option
from kt_lab.search.chains import Chain, ChainSearcher
from kt_lab.search.moves import adjacent, hamming

_TRIES = 50  # pairs per missing child before a generation stays smaller: no new child is likely
_ALPHA, _BETA = 1.0, 2.5  # of the distribution of parents' ranks


@dataclass(frozen=True)
class GeneticOptions(Options):
    """Options of `genetic`; every default is Kernel Tuner's."""

    population: int = option(26, "Configs per generation.", unit="configs", low=2, high=10_000)
    generations: int = option(90, "Generations in all.", unit="generations", low=1, high=100_000)
    crossover: str = option(
        "single_point",
        "What a child takes from its first parent: the head, all but a slice, each parameter with "
        "probability 1/2, or, of the parameters in which the parents differ, half.",
        choices=("single_point", "two_point", "uniform", "disruptive_uniform"),
    )
    mutation_chance: int = option(
        55, "One child in this many is moved to a random neighbour.", low=1, high=10**6
    )


class Genetic(ChainSearcher):
    """Breeds each generation from the faster half of the last one, mostly."""

    name: ClassVar[str] = "genetic"
    Options: ClassVar[type] = GeneticOptions
    needs: ClassVar[str] = "ParameterSpace"

    def _chain(self, rng: np.random.Generator) -> Chain:
        size, evaluated = self._population(), 0
        rows = [self.space.row(c) for c in self._starting(size)]
        for generation in range(self.options.generations):
            if not rows:
                break
            self._generation, origin = generation, "generation" if generation else "start"
            values = yield origin, [self.space.config(row) for row in rows]
            evaluated += len(rows)
            ranked = [rows[i] for i in np.argsort(values, kind="stable")]
            rows = self._breed(ranked, min(size, self._size - evaluated), rng)
        while size < self.options.population and (rest := self._starting(size)):
            yield "random", rest

    def _population(self) -> int:
        asked = self.options.population
        if asked <= self._size / 2:
            return asked
        return min(max(round(3 * self._size / self.options.generations), 2), asked)

    def _breed(self, ranked: list[np.ndarray], size: float, rng) -> list[np.ndarray]:
        """Returns up to `size` distinct valid children of rows that are sorted by latency."""
        children: dict[tuple, np.ndarray] = {}
        for _ in range(_TRIES * self.options.population):
            for child in self._pair(ranked, rng):
                if len(children) < size and self.space.valid(child[None, :])[0]:
                    children.setdefault(tuple(child.tolist()), child)
            if len(children) >= size:
                break
        return list(children.values())

    def _pair(self, ranked: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
        """Returns two repaired, perhaps mutated children; one that cannot be repaired is invalid.

        Args:
            ranked: Rows of the last generation, the fastest first; at least one.
            rng: Source of the draws.
        """
        one = other = rank(len(ranked), rng)
        while other == one and len(ranked) > 1:
            other = rank(len(ranked), rng)
        a, b = ranked[one], ranked[other]
        keep = kept(self.options.crossover, a, b, rng)
        children = [np.where(keep, a, b), np.where(keep, b, a)]
        for i, child in enumerate(children):
            if not self.space.valid(child[None, :])[0]:
                child = adjacent(self.space, child, rng)
            if rng.random() * self.options.mutation_chance < 1:
                child = hamming(self.space, child, rng)
            children[i] = child
        return children


def rank(n: int, rng: np.random.Generator) -> int:
    """Returns a parent's rank in 0..n-1; low ranks, the fast ones, are the likelier."""
    return int(rng.beta(_ALPHA, _BETA) * n)


def kept(method: str, a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns which parameters the first child takes from `a`, booleans of shape (parameters,).

    Args:
        method: A choice of `GeneticOptions.crossover`.
        a: Value indices of one parent, shape (parameters,).
        b: Value indices of the other.
        rng: Source of the draws.
    """
    slots, n = np.arange(len(a)), len(a)
    if method == "single_point":
        return slots < int(rng.random() * n)
    if method == "two_point":
        cuts = slots if n < 5 else slots[1:-1]  # Kernel Tuner spares the ends of a longer genome
        first, last = sorted(rng.permutation(cuts)[:2]) if n > 1 else (0, 0)
        return (slots < first) | (slots >= last)
    if method == "uniform":
        return rng.random(n) > 0.5
    differ = np.flatnonzero(a != b)
    return ~np.isin(slots, rng.permutation(differ)[: (len(differ) + 1) // 2])
