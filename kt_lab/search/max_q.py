"""Max-Q: max-reward Q-learning over single moves, as PerfDojo plays programs.

The game (Ivanov et al., "PerfDojo", SC '25, arXiv 2511.03586, as far as it is published; the update
rule is Gottipati et al.'s, see `kt_lab.search.max_reward`): a state is a config, a move changes
it to a neighbour (`Space.neighbours`: one parameter, one step), and
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kt_lab.search.base import Options, option
from kt_lab.search.chains import Chain, ChainSearcher
from kt_lab.search.max_reward import Episode, Epsilon, MaxQLearner, Table
from kt_lab.search.network import Network
from kt_lab.trial import Config

_SAMPLE = 256


@dataclass(frozen=True)
class MaxQOptions(Options):
    actors: int = option(4, "a.", low=1, high=1000)
    episode: int = option(16, "a.", low=1, high=10_000)
    gamma: float = option(0.9, "a.", low=0.0, high=0.9999)
    n_step: int = option(1, "a.", low=1, high=1000)
    double: bool = option(True, "a.")
    learner: str = option("network", "a.", choices=("network", "table"))
    epsilon_start: float = option(1.0, "a.", low=0.0, high=1.0)
    epsilon_end: float = option(0.05, "a.", low=0.0, high=1.0)
    epsilon_share: float = option(0.6, "a.", low=0.0, high=1.0)
    updates: int = option(2, "a.", low=1, high=100)
    batch: int = option(64, "a.", low=1, high=10_000)
    hidden: int = option(32, "a.", low=1, high=1000)
    rate: float = option(3e-3, "a.", low=0.0, high=1.0)
    target_rate: float = option(0.05, "a.", low=0.0, high=1.0)
    start: str = option("mixed", "a.", choices=("mixed", "default", "incumbent", "random"))
    stopk: float = option(1.0, "a.")
    reward: str = option("speedup", "a.", choices=("speedup", "log"))


class MaxQSearch(ChainSearcher):
    name: ClassVar[str] = "max_q"
    Options: ClassVar[type] = MaxQOptions

    def _chains(self) -> int:
        return self.options.actors

    def _open(self) -> None:
        options = self.options
        streams = [np.random.default_rng(s) for s in np.random.SeedSequence((self.seed, 1)).spawn(3)]
        sample = self.space.encode(self.space.sample(_SAMPLE, rng=streams[0]))
        self._center, spread = sample.mean(axis=0), sample.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        if options.learner == "network":
            model = Network(
                sample.shape[1], hidden=(options.hidden,) * 2, rate=options.rate, rng=streams[1]
            )
        else:
            model = Table(alpha=0.5)
        self._learner = MaxQLearner(
            model, rng=streams[2], double=options.double, batch=options.batch,
            rate=options.target_rate if options.learner == "network" else 1.0,
        )
        trials = self.budget.trials if self.budget and self.budget.trials else 200
        self._epsilon = Epsilon(
            options.epsilon_start, options.epsilon_end, options.epsilon_share * trials
        )
        self._reference = math.inf
        self._spent = set()
        self._offers: dict[Config, tuple[list[Config], np.ndarray]] = {}
        super()._open()

    def _chain(self, rng):
        default = self.space.default
        yield "start", [default]
        start = default
        first = True
        while True:
            if not first or self.first_taken:
                start = self._begin(rng)
            self.first_taken = True; first = False
            if start is None: return
            yield from self._play(start, rng)

    first_taken = False

    def _begin(self, rng):
        rule = self.options.start
        if rule == "mixed":
            rule = "random" if rng.random() < self._epsilon(len(self._values)) else "incumbent"
        if rule == "random":
            return self._start()
        if rule == "default" and self._fresh(self.space.default):
            return self.space.default
        for c in sorted((c for c, v in self._values.items() if c not in self._spent and math.isfinite(v)), key=self._values.get):
            if self._fresh(c): return c
            if all(m in self._values for m in self._offer(c)[0]): self._spent.add(c)
        return self._start()

    def _fresh(self, config):
        return [i for i, c in enumerate(self._offer(config)[0]) if c not in self._values and c not in self._pending]

    def _play(self, config, rng):
        options = self.options
        [value] = yield "start", [config]
        if not math.isfinite(value):
            return
        episode, path = Episode(n=options.n_step, gamma=options.gamma), {config}
        for _ in range(options.episode):
            move = self._choose(config, path, rng)
            if move is None:
                break
            [value] = yield "move", [move]
            config = move
            path.add(config)
            alive = math.isfinite(value)
            offered = self._offer(config)[1] if alive else np.zeros((0, len(self._center)))
            self._learner.remember(episode.step(self._features([config])[0], self._reward(value), offered))
            for _ in range(options.updates):
                self._learner.learn()
            if not alive:
                break
        self._learner.remember(episode.end())

    def _choose(self, config, path, rng):
        configs, features = self._offer(config)
        pool = self._fresh(config)
        if not pool:
            return None
        if rng.random() < self._epsilon(len(self._values)):
            return configs[pool[rng.integers(len(pool))]]
        q = self._learner.values(features[pool])
        if len(path) > 1 and q.max() < self.options.stopk * self._reward(self._values[config]):
            return None
        best = np.flatnonzero(q == q.max())
        return configs[pool[best[rng.integers(len(best))]]]

    def _offer(self, config):
        if config not in self._offers:
            near = self.space.neighbours(config)
            self._offers[config] = near, self._features(near)
        return self._offers[config]

    def _features(self, configs):
        if not configs: return np.zeros((0, len(self._center)))
        return (self.space.encode(configs) - self._center) / self._spread

    def _reward(self, value):
        if not math.isfinite(self._reference):
            d = self._values[self.space.default]
            self._reference = d if math.isfinite(d) else value
        if not math.isfinite(value): return 0.0
        r = self._reference / value
        return math.log2(1 + r) if self.options.reward == "log" else r
