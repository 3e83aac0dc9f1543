"""Simulated annealing on the logarithm of latency, over any Space.

A step goes to a mutation of the config (a random neighbour where the space mutates nothing). From
t to a slower t' it is taken with probability exp(-(ln t' - ln t) / T), so T = 0.5 takes a config
of 1.65 times the latency with probability 1/e whatever the unit. T falls geometrically from
`start_temperature` to `end_temperature` over the chain's share of the budget. (`kt_lab.search.
simulated_annealing` is Kernel Tuner's, for parameters.)

Before the first step the default and the first 16 of the prior's configs are measured, and every
chain starts from the fastest of them: a prior that holds an expert's config makes this "expert,
then annealing".
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kt_lab.search.base import Options, option, prior_configs
from kt_lab.search.chains import Chain, ChainSearcher

_KNOWN = 16  # configs of a prior that are measured before the first step
_STUCK = 100  # steps in a row to known configs, after which the chain starts elsewhere


@dataclass(frozen=True)
class AnnealingOptions(Options):
    """Options of `annealing`."""

    start_temperature: float = option(
        0.5, "Logarithm of the slow-down accepted with probability 1/e at first.", low=1e-6
    )
    end_temperature: float = option(0.02, "The same at the end.", low=1e-9)
    steps: int = option(200, "New configs until the end, without a budget of trials.", low=1)
    chains: int = option(1, "Chains side by side, each with its share of the budget.", low=1)


class Annealing(ChainSearcher):
    """Walks at random, accepting slow-downs ever more rarely; once cold, again from elsewhere."""

    name: ClassVar[str] = "annealing"
    Options: ClassVar[type] = AnnealingOptions

    def _chains(self) -> int:
        return self.options.chains

    def _chain(self, rng: np.random.Generator) -> Chain:
        options = self.options
        trials = (self.budget and self.budget.trials) or options.steps
        length = max(1.0, trials / options.chains)
        ratio = options.end_temperature / options.start_temperature
        known = prior_configs(self.space, self.prior)[:_KNOWN]
        first = list(dict.fromkeys([self.space.default, *known]))
        values = yield "start", first
        here, value = min(zip(first, values, strict=True), key=lambda pair: pair[1])
        while here is not None:
            spent = stuck = 0
            while spent < length and stuck < _STUCK:
                moved = self._varied(here, rng)
                known = not self._is_new(moved)
                [reading] = yield "walk", [moved]
                temperature = options.start_temperature * ratio ** (spent / length)
                if acceptance(value, reading, temperature) > rng.random():
                    here, value = moved, reading
                spent, stuck = (spent, stuck + 1) if known else (spent + 1, 0)
            here = self._start()
            if here is not None:
                [value] = yield "restart", [here]


def acceptance(old: float, new: float, temperature: float) -> float:
    """Returns the probability of moving from one reading to another.

    Args:
        old: Microseconds; inf for a failure.
        new: Microseconds; inf for a failure.
        temperature: Of the logarithm; > 0.
    """
    if new <= old:
        return 1.0
    return 0.0 if math.isinf(new) else math.exp(-math.log(new / old) / temperature)
