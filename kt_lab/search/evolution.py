"""An evolutionary search over any Space that keeps its best, by crossing and mutating.

Parents are drawn by tournament from the fastest configs so far; a child is a cross of two of them
or a copy of one, and then, for certain if it is a copy, mutated. Spaces that cross nothing leave
the mutation; spaces that mutate nothing, a random neighbour. The next generation is the fastest of
parents and children ("plus" selection), so a good config is never lost, as it may be in
`kt_lab.search.genetic`, which is Kernel Tuner's and for parameters.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kt_lab.search.base import Options, option
from kt_lab.search.chains import Chain, ChainSearcher
from kt_lab.trial import Config

_TRIES = 20  # children per missing one before a generation stays smaller


@dataclass(frozen=True)
class EvolutionOptions(Options):
    """Options of `evolution`."""

    population: int = option(16, "Configs that live on.", unit="configs", low=2)
    children: int = option(12, "New configs per generation.", unit="configs", low=1)
    tournament: int = option(3, "Configs whose fastest is a parent.", unit="configs", low=1)
    crossover: float = option(0.5, "Share of children with two parents.", low=0.0, high=1.0)
    mutation: float = option(0.5, "Share of those that are mutated too.", low=0.0, high=1.0)


class Evolution(ChainSearcher):
    """Breeds from the fastest; where nothing new can be bred, it takes a random config."""

    name: ClassVar[str] = "evolution"
    Options: ClassVar[type] = EvolutionOptions

    def _chain(self, rng: np.random.Generator) -> Chain:
        size, known, self._generation = self.options.population, {}, 0
        fresh, origin = self._starting(size), "start"
        while fresh:
            known |= zip(fresh, (yield origin, fresh), strict=True)
            known = {config: known[config] for config in sorted(known, key=known.get)[:size]}
            fresh = self._breed(list(known), rng) or self._starting(1)
            self._generation, origin = self._generation + 1, "generation"

    def _breed(self, ranked: list[Config], rng: np.random.Generator) -> list[Config]:
        """Returns up to `children` new configs bred from these, the fastest first."""
        options, found = self.options, {}
        for _ in range(_TRIES * options.children):
            if len(found) == options.children:
                break
            ranks = rng.integers(len(ranked), size=(2, options.tournament)).min(axis=1)
            a, b = (ranked[rank] for rank in ranks)
            child = self._crossed(a, b, rng) if rng.random() < options.crossover else a
            if child in (a, b) or rng.random() < options.mutation:
                child = self._varied(child, rng)
            if self._is_new(child):
                found[self._same(child)] = None
        return list(found)
