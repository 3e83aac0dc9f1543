"""Simulated annealing as Kernel Tuner runs it, with restarts and several chains.

Reproduces `strategies/simulated_annealing.py` of Kernel Tuner 1.5.0, constraint-aware:

- `neighbor`: as many times as there are parameters, with probability 0.2, a random neighbour at
  Hamming distance 1; then one random "adjacent" neighbour; both drawn with Kernel Tuner's cache,
  which makes walks return (`kt_lab.search.moves.Returning`);
- `acceptance_prob`: 1 if the old config failed; else 0 if the new one failed; else 1 if it is
  faster; else exp(((t_old - t_new) / |t_old|) / T). The difference is relative, so T has no unit
  and 0.1 means the same for a kernel of 5 us and one of 5 ms;
- the schedule: T = T_start * alpha^(c * N / L) after c new configs, until T <= T_min, where
  N = ceil(ln(T_min) / ln(alpha)) and L is the number of configs that the schedule is fitted to:
  the budget in trials, at most N, at most the size of the space. With the defaults (Kernel
  Tuner's: tuned for it) a chain freezes when 75 % of L is spent. Kernel Tuner has no such "at
  most N" where there is a budget: with an alpha whose N is below it (0.95: 180) its chains go on
  for longer;
- more than 100 steps in a row to known configs, which are free: on from a random config.

Kernel Tuner runs one chain and stops when it is frozen (`chains=1, restart=False`). Here `chains`
share the budget equally, and the cache; one that is frozen starts again from a config that nobody
measured, with a schedule fitted to what is left of its share (to L again once that is spent, or
without a budget of trials). The first chain starts from the default config (Kernel Tuner: from
`x0`, else at random).
"""

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kt_lab.errors import UsageError
from kt_lab.search.base import Options, option
from kt_lab.search.chains import Chain, ChainSearcher
from kt_lab.search.moves import Returning, adjacent, hamming
from kt_lab.trial import Config

_MUTATION = 0.2  # chance of a Hamming step, once per parameter
_STUCK = 100  # steps in a row to known configs


@dataclass(frozen=True)
class SimulatedAnnealingOptions(Options):
    """Options of `simulated_annealing`; the defaults of the schedule are Kernel Tuner's."""

    start_temperature: float = option(
        0.1,
        "Relative slow-down that is accepted with probability 1/e at the start.",
        low=1e-9,
        high=1e9,
    )
    min_temperature: float = option(
        1e-4, "Temperature at which a chain is frozen.", low=1e-12, high=0.999
    )
    alpha: float = option(
        0.9975,
        "Factor of the temperature per new config, before the schedule is fitted to the budget.",
        low=0.0001,
        high=0.999999,
    )
    chains: int = option(
        4,
        "Chains side by side, each with its share of the budget; as many compile lanes are busy.",
        unit="chains",
        low=1,
        high=1000,
    )
    restart: bool = option(True, "Start again once frozen. False: done, as Kernel Tuner is.")


class SimulatedAnnealing(ChainSearcher):
    """Walks at random, accepting slow-downs ever more rarely.

    Further chains, and restarts, begin at the prior's configs, then at random ones.
    """

    name: ClassVar[str] = "simulated_annealing"
    Options: ClassVar[type] = SimulatedAnnealingOptions
    needs: ClassVar[str] = "ParameterSpace"

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        options = self.options
        if options.start_temperature <= options.min_temperature:
            raise UsageError(
                "start_temperature must be above min_temperature, got "
                f"{options.start_temperature} and {options.min_temperature}"
            )
        self._hamming, self._adjacent = (Returning(d, space) for d in (hamming, adjacent))
        self._steps = math.ceil(math.log(options.min_temperature) / math.log(options.alpha))

    def _chains(self) -> int:
        return self.options.chains

    def _chain(self, rng: np.random.Generator) -> Chain:
        trials = self.budget.trials if self.budget and self.budget.trials else math.inf
        share = max(1.0, min(self._steps, min(trials, self._size) / self.options.chains))
        left = share
        while (spent := (yield from self._anneal(left, rng))) and self.options.restart:
            left = left - spent if left > spent else share

    def _anneal(
        self, length: float, rng: np.random.Generator
    ) -> Generator[tuple[str, list[Config]], list[float], int]:
        """Walks until frozen; returns how many new configs it took, 0 when none is left.

        Args:
            length: L, the number of new configs that the schedule is fitted to.
            rng: The chain's.
        """
        options = self.options
        temperature, spent = options.start_temperature, 0
        while temperature > options.min_temperature:
            start = self._start()
            if start is None:
                return 0
            [value] = yield "start", [start]
            row, spent, stuck = self.space.row(start), spent + 1, 0
            while stuck <= _STUCK and temperature > options.min_temperature:
                moved = self._neighbour(row, rng)
                config = self.space.config(moved)
                known = config in self._values
                [reading] = yield "walk", [config]
                if acceptance(value, reading, temperature) > rng.random():
                    row, value = moved, reading
                spent, stuck = (spent, stuck + 1) if known else (spent + 1, 0)
                cooled = options.alpha ** (spent * self._steps / length)
                temperature = options.start_temperature * cooled
        return spent

    def _neighbour(self, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        for _ in range(len(row)):
            if rng.random() < _MUTATION:
                row = self._hamming(row, rng)
        return self._adjacent(row, rng)


def acceptance(old: float, new: float, temperature: float) -> float:
    """Returns the probability of moving from a reading to another.

    Args:
        old: Microseconds; inf for a failure.
        new: Microseconds; inf for a failure.
        temperature: Relative to `old`; > 0.
    """
    if math.isinf(old) or new < old:
        return 1.0
    return math.exp((old - new) / old / temperature)  # of a failure exp(-inf), 0
