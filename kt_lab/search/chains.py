"""Searches written as loops: chains that wait for readings, driven by ask and tell.

A chain is a Python generator that yields the configs whose readings it needs and goes on when all
of them are there, so it reads like the algorithm that it reproduces. Several chains run side by
side, each at its own pace, which keeps as many lanes busy as there are chains. What one chain
measured is known to all: a config is proposed once, and a step to a known config is free (known
by the space's optional `key`, where two configs may stand for the same program). A fresh searcher
pickles; one that has been asked does not.
"""

import itertools
import math
from abc import abstractmethod
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kt_lab.search.base import Searcher, count, prior_configs
from kt_lab.search.starts import uniform
from kt_lab.space import ParameterSpace
from kt_lab.trial import Config, Proposal, Trial

# What a chain yields, an origin and the configs that it waits for; it is sent their values.
Chain = Generator[tuple[str, Sequence[Config]], list[float], None]

_FREE = 10_000  # rounds of free steps in a row after which a search counts as stuck


@dataclass(eq=False, slots=True)
class _Waiting:
    chain: Chain
    configs: Sequence[Config]
    origin: str


class ChainSearcher(Searcher):
    """A searcher that runs chains side by side; subclasses write the chain.

    A config's value is its latest reading in microseconds; inf when it failed; a censored
    reading counts as its bound.
    """

    needs: ClassVar[str] = "Space"

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a space; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        self._values: dict[Config, float] = {}
        self._pending: set[Config] = set()  # queued or being measured
        self._queue: deque[tuple[Config, str]] = deque()
        self._waiting: list[_Waiting] | None = None
        self._starts: Iterator[Config] = iter(())
        self._size = math.inf
        self._generation: int | None = None  # of a single chain that has generations
        self._met: dict[object, Config] = {}  # the first config of every key
        self._listed: dict[Config, list[Config]] = {}

    # -- ask and tell -------------------------------------------------------------------------

    def ask(self, n: int) -> list[Proposal]:
        """Returns up to n proposals; fewer or none while every chain waits for results."""
        proposals: list[Proposal] = []
        wanted = count(n)
        while len(proposals) < wanted and (self._queue or self._advance()):
            config, origin = self._queue.popleft()
            if config not in self._values:  # nobody else measured it while it waited
                proposals.append(self.propose(config, origin=origin, generation=self._generation))
        return proposals

    def tell(self, trials: Iterable[Trial]) -> None:
        """Takes readings; configs that are no members of the space are ignored."""
        for trial in trials:
            config = trial.config
            if config in self._pending or config in self._values or self.space.contains(config):
                config = self._same(config)
                self._pending.discard(config)
                self._values[config] = _value(trial)

    def _advance(self) -> bool:
        """Resumes the chains whose readings are there until something new is queued."""
        if self._waiting is None:
            self._open()
        for _ in range(_FREE):
            if self.done or self._queue:
                break
            ready = [w for w in self._waiting if all(c in self._values for c in w.configs)]
            if self._waiting and not ready:
                return False
            for waiting in ready:
                self._resume(waiting)
            if not self._waiting or len(self._values) >= self._size:
                break
        self.done = not self._queue
        return not self.done

    def _open(self) -> None:
        space, streams = self.space, np.random.SeedSequence(self.seed).spawn(self._chains() + 1)
        if isinstance(space, ParameterSpace) and space.enumerable:
            self._size = space.size
        rng = np.random.default_rng(streams.pop())
        first = dict.fromkeys([space.default, *prior_configs(space, self.prior)])
        others = (c for c in uniform(space, rng=rng) if c not in first)
        self._starts = itertools.chain(first, others)
        chains = [self._chain(np.random.default_rng(stream)) for stream in streams]
        self._waiting = [_Waiting(chain, (), "") for chain in chains]

    def _resume(self, waiting: _Waiting) -> None:
        """Lets a chain go on to what it needs next, and queues the part that nobody has."""
        values = [self._values[c] for c in waiting.configs]
        try:
            # A generator that was just made accepts nothing but None.
            waiting.origin, configs = waiting.chain.send(values or None)
        except StopIteration:
            self._waiting.remove(waiting)
            return
        waiting.configs = [self._same(config) for config in configs]
        for config in waiting.configs:
            if self._is_new(config):
                self._pending.add(config)
                self._queue.append((config, waiting.origin))

    # -- what subclasses write ----------------------------------------------------------------

    @abstractmethod
    def _chain(self, rng: np.random.Generator) -> Chain:
        """Runs one chain: yields (origin, configs), each time at least one, gets their values.

        Args:
            rng: The chain's own source of random numbers.
        """

    def _chains(self) -> int:
        """Returns how many chains run side by side."""
        return 1

    # -- what they write it with --------------------------------------------------------------

    def _start(self) -> Config | None:
        """Returns a config nobody has: the default, the prior's, then uniform; None at the end."""
        return next((c for c in self._starts if self._is_new(c)), None)

    def _starting(self, n: int) -> list[Config]:
        """Returns n of these, fewer at the end."""
        return list(itertools.islice(iter(self._start, None), n))

    def _same(self, config: Config) -> Config:
        """Returns the first config met that has this one's key; without keys, itself."""
        key = getattr(self.space, "key", None)
        return config if key is None else self._met.setdefault(key(config), config)

    def _is_new(self, config: Config) -> bool:
        """Whether nobody measured the config, or waits for it."""
        config = self._same(config)
        return config not in self._values and config not in self._pending

    def _near(self, config: Config) -> list[Config]:
        """Returns the config's neighbours; they are listed once."""
        if config not in self._listed:
            self._listed[config] = self.space.neighbours(config)
        return self._listed[config]

    def _varied(self, config: Config, rng: np.random.Generator) -> Config:
        """Returns the space's mutation of a config, else a random neighbour, else the config."""
        if hasattr(self.space, "mutate"):
            return self.space.mutate(config, rng=rng)
        near = self._near(config)
        return near[rng.integers(len(near))] if near else config

    def _crossed(self, a: Config, b: Config, rng: np.random.Generator) -> Config:
        """Returns the space's child of two configs; `a` where the space crosses nothing."""
        return self.space.cross(a, b, rng=rng) if hasattr(self.space, "cross") else a


def _value(trial: Trial) -> float:
    if trial.latency_us is not None:
        return trial.latency_us
    bound = trial.measurement.bound_us
    return math.inf if bound is None else bound
