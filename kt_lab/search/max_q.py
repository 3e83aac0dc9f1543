"""Max-Q: max-reward Q-learning over single moves, as PerfDojo plays programs.

PerfDojo (Ivanov et al., SC '25, arXiv 2511.03586) learns by the max-Bellman rule of Gottipati et
al. (arXiv 2010.03744), whose equations are in `kt_lab.search.max_reward`. What is published of its
game is followed; what is not (the reward's formula, the model, the schedules, where episodes begin
and end) is this module's.

- State: a config. Move: to one of `Space.neighbours`, deterministic; or to stop.
- Reward: r(s, a, s') = T_ref / T(s'), speed-up over the default config, never over the step
  before (which PerfDojo found unstable); 0 if s' fails, which ends the episode. Where the default
  fails, T_ref is the first reading that does not. A reading is kept, so r is deterministic too.
- Stopping is moving to s itself: Q(s, stop) = r(s), known without learning.
- r depends on s' only, hence so does Q*(s, a) = max(r(s'), gamma * max_{a'} Q*(s', a')): the
  features of a move are the encoding of s' (an afterstate), standardised over random configs.
- Behaviour: measured configs teach by replay, walking to them again brings nothing; so a move
  leads to an unmeasured neighbour. With probability epsilon it is a random one, else the one of
  the highest Q, or to stop when that is below Q(s, stop). Each episode's first move is made;
  arriving at its start counts as a move too, from nowhere in particular.

Nothing is predicted of a config: Q is the best that a path through it may bring, so a slow config
next to a fast one has a high Q, and no latency follows from it.

Any Space will do. Several actors play at once, each its own episode, and share what they learn.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kt_lab.search.approximators import KernelRidge, Network
from kt_lab.search.base import Options, option
from kt_lab.search.chains import Chain, ChainSearcher
from kt_lab.search.max_reward import Episode, Epsilon, MaxQLearner, Table
from kt_lab.trial import Config

_SAMPLE = 256  # random configs that features are standardised over
_DIGITS = 6  # of a value that moves are compared by
_TRIALS = 200  # that epsilon's descent is fitted to without a budget of trials


def epsilon_share() -> Any:
    """Returns the option that tells how long moves at random become rarer."""
    doc = "Share of the budget's trials (of 200 without one) over which it falls."
    return option(0.6, doc, low=0.0, high=1.0)


@dataclass(frozen=True)
class MaxQOptions(Options):
    """Options of `max_q`."""

    actors: int = option(
        4, "Episodes side by side, each on a compile lane.", unit="episodes", low=1, high=1000
    )
    moves: int = option(3, "Moves per episode at most.", unit="moves", low=1, high=10_000)
    start: str = option(
        "mixed",
        "Where episodes begin: at the default config, at the fastest one (while they have an "
        "unmeasured neighbour, then at the next fastest that has), at a random unmeasured one; "
        'mixed: at random with probability epsilon, else "incumbent".',
        choices=("mixed", "default", "incumbent", "random"),
    )
    gamma: float = option(
        0.9, "Discount per move; 0 learns the next reward alone.", low=0.0, high=0.9999
    )
    steps: int = option(
        1, "Played steps per target before it bootstraps.", unit="moves", low=1, high=1000
    )
    learner: str = option(
        "kernel",
        "kernel: regression refitted after every move, which learns most from few readings; "
        "network: by gradient steps, as PerfDojo's; table: no generalisation, all unmeasured "
        "moves are alike.",
        choices=("kernel", "network", "table"),
    )
    batch: int = option(
        256, "Transitions per update, or all there are.", unit="transitions", low=1, high=10_000
    )
    updates: int = option(1, "Updates per move.", unit="updates", low=1, high=1000)
    scale: float = option(
        0.5,
        "Kernel: length scale, in standard deviations of a feature.",
        unit="standard deviations",
        low=0.001,
        high=1000.0,
    )
    ridge: float = option(
        0.1, "Kernel: noise, as a share of the signal's variance.", low=1e-6, high=1000.0
    )
    hidden: int = option(
        32, "Network: units in each of two layers.", unit="units", low=1, high=1000
    )
    learning_rate: float = option(0.01, "Network: step size of Adam.", low=0.0, high=1.0)
    target_rate: float = option(
        0.05, "Network: share by which its slow copy follows per update.", low=0.0001, high=1.0
    )
    double: bool = option(True, "Network: let it choose what its slow copy values.")
    epsilon_start: float = option(
        0.3, "Share of random moves at the beginning.", low=0.0, high=1.0
    )
    epsilon_end: float = option(0.05, "Share of random moves in the end.", low=0.0, high=1.0)
    epsilon_share: float = epsilon_share()
    reward: str = option(
        "speedup",
        "speedup: T_ref / T; log: log2(1 + T_ref / T), for spaces that span more than a factor "
        "of 30.",
        choices=("speedup", "log"),
    )


class MaxQSearch(ChainSearcher):
    """Plays episodes of single moves and learns where the fastest reachable config lies."""

    name: ClassVar[str] = "max_q"
    Options: ClassVar[type] = MaxQOptions

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a space of any kind; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        options = self.options
        trials = budget.trials if budget and budget.trials else _TRIALS
        self._epsilon = Epsilon(
            options.epsilon_start, options.epsilon_end, options.epsilon_share * trials
        )
        self._reference = math.inf  # microseconds: T_ref
        self._offers: dict[Config, tuple[list[Config], np.ndarray]] = {}
        self._closed: set[Config] = set()  # known without unmeasured neighbours
        self._learned: set[Config] = set()
        self._learner: MaxQLearner | None = None  # made at the first ask

    # -- episodes -----------------------------------------------------------------------------

    def _chains(self) -> int:
        return self.options.actors

    def _chain(self, rng: np.random.Generator) -> Chain:
        if self._learner is None:
            self._prepare()
            yield from self._play(self.space.default, rng)
        yield "start", [self.space.default]
        while (start := self._begin(rng)) is not None:
            yield from self._play(start, rng)

    def _begin(self, rng: np.random.Generator) -> Config | None:
        """Returns where the next episode starts; None when every config was seen."""
        rule = self.options.start
        if rule == "mixed":
            rule = "random" if rng.random() < self._epsilon(len(self._values)) else "incumbent"
        begins = rule == "default" and math.isfinite(self._values[self._same(self.space.default)])
        default = [self.space.default] if begins else []
        ok = (c for c, value in self._values.items() if math.isfinite(value))
        ranked = [] if rule == "random" else sorted(ok, key=self._values.get)
        return self._first_open(default + ranked)

    def _first_open(self, configs: list[Config]) -> Config | None:
        """Returns the first with a neighbour to ask for, else a new start; None: none is left."""
        for config in configs:
            if config not in self._closed:
                if self._fresh(config):
                    return config
                if all(c in self._values for c in self._offer(config)[0]):
                    self._closed.add(config)
        return self._start()

    def _play(self, config: Config, rng: np.random.Generator) -> Chain:
        """Plays one episode and learns from it."""
        options, origin = self.options, "start"
        episode = Episode(n=options.steps, gamma=options.gamma)
        for moved in range(options.moves + 1):
            [value] = yield origin, [config]
            ok = math.isfinite(value)
            offered = self._offer(config)[1] if ok else self._features([])
            if config not in self._learned:
                self._learned.add(config)
                [x] = self._features([config])
                self._learner.remember(episode.step(x, self._reward(value), offered))
                for _ in range(options.updates):
                    self._learner.learn()
            may_move = ok and moved < options.moves
            move = self._choose(config, rng, may_stop=moved > 0) if may_move else None
            if move is None:
                break
            config, origin = move, "move"
        self._learner.remember(episode.end())

    def _choose(self, config: Config, rng: np.random.Generator, *, may_stop: bool):
        """Returns the next config, epsilon-greedily; None to stop."""
        fresh = self._fresh(config)
        configs, features = self._offer(config)
        if fresh and rng.random() >= self._epsilon(len(self._values)):
            # Rounded, so that the last bits, which differ between machines, decide nothing.
            values = np.round(self._learner.values(features[fresh]), _DIGITS)
            if may_stop and values.max() < self._reward(self._values[self._same(config)]):
                return None
            fresh = [fresh[i] for i in np.flatnonzero(values == values.max())]
        return configs[fresh[rng.integers(len(fresh))]] if fresh else None

    # -- the game -----------------------------------------------------------------------------

    def _offer(self, config: Config) -> tuple[list[Config], np.ndarray]:
        """Returns the neighbours of a config and their features, shape (k, width)."""
        if config not in self._offers:
            near = list(dict.fromkeys(map(self._same, self.space.neighbours(config))))
            self._offers[config] = near, self._features(near)
        return self._offers[config]

    def _fresh(self, config: Config) -> list[int]:
        """Returns which of a config's neighbours nobody measured or is measuring."""
        known, pending = self._values, self._pending
        offered = enumerate(self._offer(config)[0])
        return [i for i, c in offered if c not in known and c not in pending]

    def _reward(self, value: float) -> float:
        """Returns the reward of a reading in microseconds: 0 for a failure."""
        if math.isinf(self._reference):
            default = self._values[self._same(self.space.default)]
            self._reference = default if math.isfinite(default) else value
        if math.isinf(value):
            return 0.0
        speedup = self._reference / value
        return math.log2(1 + speedup) if self.options.reward == "log" else speedup

    def _features(self, configs: list[Config]) -> np.ndarray:
        if not configs:
            return np.zeros((0, len(self._center)))
        return (self.space.encode(configs) - self._center) / self._spread

    def _prepare(self) -> None:
        """Makes the learner."""
        options = self.options
        # Streams of their own: how many actors there are does not change the learner.
        draws, weights, replay = np.random.default_rng((self.seed, 1)).spawn(3)
        sample = self.space.encode(self.space.sample(_SAMPLE, rng=draws))
        spread = sample.std(axis=0)
        self._center, self._spread = sample.mean(axis=0), np.where(spread > 0, spread, 1.0)
        model, rate = Table(), 1.0
        if options.learner == "kernel":
            model = KernelRidge(scale=options.scale, ridge=options.ridge)
        elif options.learner == "network":
            hidden, rate = (options.hidden, options.hidden), options.target_rate
            model = Network(
                sample.shape[1], hidden=hidden, rate=options.learning_rate, rng=weights
            )
        self._learner = MaxQLearner(
            model, rng=replay, double=options.double, rate=rate, batch=options.batch
        )
