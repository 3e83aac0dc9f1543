"""Likelihood-free Bayesian optimisation over any Space, from its encodings alone.

Song et al., "A General Recipe for Likelihood-free Bayesian Optimization" (2022), with the labels,
weights, forest and choice of unlike configs of `kt_lab.search.lfbo_pattern`, but nothing of
parameters: a batch is chosen by the forest from the neighbours and some mutations of the fastest
configs that have unmeasured ones. Without a forest (all readings good, or all failed) it is drawn.
"""

import importlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kt_lab.search import surrogate
from kt_lab.search.base import Options, option
from kt_lab.search.chains import Chain, ChainSearcher
from kt_lab.trial import Config


@dataclass(frozen=True)
class LFBOOptions(Options):
    """Options of `lfbo`; those of the forest have the defaults of `lfbo_pattern`."""

    initial: int = option(16, "Configs before the first forest.", unit="configs", low=1)
    batch: int = option(8, "Configs per forest.", unit="configs", low=1)
    parents: int = option(3, "Fast configs whose surroundings are scored.", low=1)
    mutants: int = option(16, "Mutations of each of them that are scored as well.", low=0)
    quantile: float = option(0.10, "Share of readings learnt as good.", low=0.0, high=1.0)
    similarity_penalty: float = option(1.0, "Weight of unlikeness in a batch.", low=0.0)
    n_estimators: int = option(100, "Trees of the forest.", unit="trees", low=1)


class LFBOSearch(ChainSearcher):
    """Measures what a forest over encodings finds promising near the fastest configs."""

    name: ClassVar[str] = "lfbo"
    Options: ClassVar[type] = LFBOOptions

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a space; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        importlib.import_module("sklearn.ensemble")  # here, so that no ask is charged for it

    def _chain(self, rng: np.random.Generator) -> Chain:
        fresh, origin = self._starting(self.options.initial), "start"
        while fresh:
            yield origin, fresh
            pool, origin = self._pool(rng), "model"
            fresh = self._chosen(pool, rng) if pool else self._starting(1)

    def _pool(self, rng: np.random.Generator) -> list[Config]:
        """Returns the new configs round the fastest ones that have any."""
        found, parents = {}, 0
        for config in sorted(self._values, key=self._values.get):
            mutants = [self._varied(config, rng) for _ in range(self.options.mutants)]
            around = [self._same(c) for c in (*self._near(config), *mutants) if self._is_new(c)]
            found |= dict.fromkeys(around)
            parents += bool(around)
            if parents == self.options.parents:
                break
        return list(found)

    def _chosen(self, pool: list[Config], rng: np.random.Generator) -> list[Config]:
        """Returns a batch of the pool: the forest's, or at random where there is none."""
        options = self.options
        forest = surrogate.fit(
            self.space.encode(list(self._values)),
            np.asarray(list(self._values.values())),
            quantile=options.quantile,
            n_estimators=options.n_estimators,
            criterion="log_loss",
            random_state=int(rng.integers(2**31)),
        )
        if forest is None:
            return [pool[i] for i in rng.permutation(len(pool))[: options.batch]]
        good, leaves = surrogate.score(forest, self.space.encode(pool))
        penalty = options.similarity_penalty
        return [pool[i] for i in surrogate.select(good, leaves, options.batch, penalty=penalty)]
