"""Uniform random search without replacement: the baseline that every searcher must beat."""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from kt_lab.search.base import Options, Searcher, count
from kt_lab.search.starts import uniform
from kt_lab.trial import Config, Proposal, Trial


class RandomSearch(Searcher):
    """Proposes every valid config once, in uniformly random order.

    A prior is ignored, so that the exact expectation of the method is known
    (`kt_lab.baseline`). Configs told without having been asked for are skipped.
    """

    name: ClassVar[str] = "random"
    Options: ClassVar[type] = Options
    needs: ClassVar[str] = "Space"

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a space of any kind; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        self._order = None
        self._seen: set[Config] = set()

    def ask(self, n: int) -> list[Proposal]:
        """Returns n configs that were never seen; fewer once the space is exhausted."""
        if self._order is None:  # made here, because a running generator cannot be pickled
            self._order = uniform(self.space, rng=np.random.default_rng(self.seed))
        proposals: list[Proposal] = []
        wanted = count(n)
        while len(proposals) < wanted and not self.done:
            config = next(self._order, None)
            if config is None:
                self.done = True
            elif config not in self._seen:
                self._seen.add(config)
                proposals.append(self.propose(config, origin="random"))
        return proposals

    def tell(self, trials: Iterable[Trial]) -> None:
        """Remembers what was measured, so that it is not proposed again."""
        self._seen.update(trial.config for trial in trials)
