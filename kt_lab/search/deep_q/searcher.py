"""The players `max_q_dqn` and `dqn`: deep Q-learning with afterstates, as PerfLLM plays programs.

PerfDojo (Ivanov et al., SC '25, arXiv 2511.03586) tells of its agent that it is a DQN with the
max-reward rule, a target network and a replay buffer, over encoded programs; layers, rates and
schedules are not published and are this module's. The game is that of `kt_lab.search.max_q`:
states are configs, a move leads to a neighbour or stops, and r = T_ref / T(s'), 0 for a failure,
which ends the episode. What differs:

- Q(s, s') sees both ends of a move and how late in the episode it is; nothing is refitted.
- Episodes begin at the default config, or at the fastest one, and lead through known configs too,
  for a reading is kept and costs nothing; never twice through one. After an episode that
  measured nothing, the next leads to a new config with its first move.
- A random move is drawn by its kind first, where the space tells kinds (`Space.kind`).
- Stopping: under the max rule Q(s, stop) = r(s) as in `max_q`. Under the sum it brings nothing,
  all rewards are >= 0, and so it is never the best.
- Batches hold more of the best episodes of every workload (`kt_lab.search.deep_q.replay`).

A trained policy (`kt_lab.search.deep_q.policy`) plays on with the small share of random moves,
with or without learning.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kt_lab.search.base import Options, option
from kt_lab.search.chains import Chain
from kt_lab.search.deep_q.network import MoveNetwork, Offer, pairs
from kt_lab.search.deep_q.policy import Policy, encoder_of
from kt_lab.search.deep_q.replay import EpisodeLearner
from kt_lab.search.max_q import MaxQSearch, epsilon_share
from kt_lab.search.max_reward import Episode, Epsilon, Transition
from kt_lab.trial import Config

_SAMPLE = 32  # random configs that features are standardised over
_DIGITS = 5  # of a value that moves are compared by


def _rule(default: str) -> Any:
    doc = "What a move is worth: the best reward to come, or their sum."
    return option(default, doc, choices=("max", "sum"))


@dataclass(frozen=True)
class DeepQOptions(Options):
    """Options of `max_q_dqn`, and of `dqn`, whose rule is the sum."""

    rule: str = _rule("max")
    actors: int = option(2, "Episodes played side by side.", unit="episodes", low=1, high=1000)
    moves: int = option(24, "Moves per episode at most.", unit="moves", low=1, high=10_000)
    start: str = option(
        "mixed",
        "Where episodes begin: at the default config, at the fastest one that has an unmeasured "
        "neighbour, or evenly at either.",
        choices=("mixed", "default", "incumbent"),
    )
    gamma: float = option(0.98, "Discount per move.", low=0.0, high=0.9999)
    steps: int = option(3, "Played steps per target.", unit="moves", low=1, high=1000)
    double: bool = option(True, "Let the network choose what its slow copy values.")
    hidden: int = option(128, "Units of a hidden layer.", unit="units", low=1, high=4096)
    layers: int = option(3, "Hidden layers.", unit="layers", low=1, high=10)
    learning_rate: float = option(1e-3, "Step size of Adam.", low=0.0, high=1.0)
    target_rate: float = option(
        0.02, "Share by which the slow copy follows per update.", low=0.0001, high=1.0
    )
    batch: int = option(32, "Transitions per update.", unit="transitions", low=1, high=10_000)
    updates: int = option(2, "Updates per move.", unit="updates", low=1, high=1000)
    best_share: float = option(
        0.25, "Share of a batch from the best twentieth of the episodes.", low=0.0, high=1.0
    )
    epsilon_start: float = option(
        1.0, "Share of random moves at the beginning, without a policy.", low=0.0, high=1.0
    )
    epsilon_end: float = option(0.05, "Share of random moves in the end.", low=0.0, high=1.0)
    epsilon_share: float = epsilon_share()
    reward: str = option(
        "speedup", "speedup: T_ref / T; log: log2(1 + T_ref / T).", choices=("speedup", "log")
    )
    policy: str = option("", "Path of a trained policy's file; empty: begin with nothing.")
    learning: bool = option(True, "Go on learning; without it a policy plays as it is.")


@dataclass(frozen=True)
class SumOptions(DeepQOptions):
    """Options of `dqn`."""

    rule: str = _rule("sum")


class MaxQDQNSearch(MaxQSearch):
    """Deep Q-learning by the max-reward rule; see the module.

    Attributes:
        learner: What learns, made when the default config was measured; several searchers may
            be given one, before they are asked.
    """

    name: ClassVar[str] = "max_q_dqn"
    Options: ClassVar[type] = DeepQOptions

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a space of any kind; see `Searcher`.

        Raises:
            StoreError: The policy's file is not one.
            UsageError: The policy was trained with other features or by another rule.
        """
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        options = self.options
        self.learner: EpisodeLearner | None = None
        self._policy = Policy.load(options.policy) if options.policy else None
        if self._policy:
            self._policy.check(space, **self._rules())
            self._epsilon = Epsilon(options.epsilon_end, options.epsilon_end, 1.0)
        self._stale = False

    def trained(self, **facts: Any) -> Policy:
        """Returns what was learned so far as a policy; `facts` are told in it."""
        told = {"encoder": encoder_of(self.space), "width": self._center.size, **self._rules()}
        ceiling = {"ceiling": self.learner.ceiling, "hidden": self.options.hidden}
        return Policy(self.learner.model.weights(), told | ceiling | facts)

    def _rules(self) -> dict[str, Any]:
        return {name: getattr(self.options, name) for name in ("rule", "gamma", "reward", "moves")}

    # -- episodes -----------------------------------------------------------------------------

    def _chain(self, rng: np.random.Generator) -> Chain:
        yield "start", [self.space.default]
        self._prepare()
        while (start := self._begin(rng)) is not None:
            yield from self._play(start, rng)

    def _begin(self, rng: np.random.Generator) -> Config | None:
        """Returns where the next episode starts; None when every config was seen."""
        rule, default = self.options.start, self._same(self.space.default)
        at_default = rule == "default" or (rule == "mixed" and rng.random() < 0.5)
        if at_default and not self._stale and math.isfinite(self._values[default]):
            return default
        ok = [c for c, value in self._values.items() if math.isfinite(value)]
        return self._first_open(sorted(ok, key=self._values.get))

    def _play(self, config: Config, rng: np.random.Generator) -> Chain:
        """Plays one episode and learns from it."""
        options, learner = self.options, self.learner
        episode = Episode(n=options.steps, gamma=options.gamma, rule=options.rule)
        played: list[Transition] = []
        seen, best, is_new = {config}, 0.0, config not in self._values
        [value] = yield "start", [config]
        for moved in range(options.moves):
            after = self._choose_from(config, moved, seen, rng) if math.isfinite(value) else None
            if after is None:
                break
            is_new |= after not in self._values
            [value] = yield "move", [after]
            seen.add(after)
            if options.learning:
                reward, share = self._reward(value), (moved + 1) / options.moves
                best, [state, left] = max(best, reward), self._features([after, config])
                goes_on = math.isfinite(value) and moved + 1 < options.moves
                offered = self._offer(after)[1] if goes_on else self._features([])
                x = pairs(left, state[None], moved / options.moves)[0]
                found = episode.step(x, reward, Offer(state, offered, share))
                played += found
                learner.remember(found)
                for _ in range(options.updates):
                    learner.learn()
            config = after
        if options.learning:
            played += (rest := episode.end())
            learner.remember(rest)
            learner.ended(played, best, workload=self.space.fingerprint)
        self._stale = not is_new

    def _choose_from(self, config: Config, moved: int, seen: set[Config], rng) -> Config | None:
        """Returns the next config, epsilon-greedily; None to stop."""
        near, features = self._offer(config)
        known, pending = self._values, self._pending
        able = [
            i
            for i, c in enumerate(near)
            if c not in seen and c not in pending and math.isfinite(known.get(c, 0.0))
        ]
        if self._stale:
            able = [i for i in able if near[i] not in known] or able
        if not able:
            return None
        if rng.random() < self._epsilon(len(known)):
            return near[self._drawn(config, [near[i] for i in able], able, rng)]
        [state] = self._features([config])
        share = moved / self.options.moves
        values = self.learner.model.predict(pairs(state, features[able], share))
        # Rounded, so that the last bits, which differ between machines, decide nothing.
        values = np.round(values, _DIGITS)
        stops = self.options.rule == "max" and moved > 0
        if stops and values.max() < self._reward(known[config]):
            return None
        best = np.flatnonzero(values == values.max())
        return near[able[best[rng.integers(len(best))]]]

    def _drawn(self, config: Config, near: list[Config], able: list[int], rng) -> int:
        """Returns a random one of some moves: of a random kind, where the space tells kinds."""
        if hasattr(self.space, "kind"):
            kinds = [self.space.kind(config, c) for c in near]
            named = list(dict.fromkeys(kinds))
            kind = named[rng.integers(len(named))]
            able = [i for i, k in zip(able, kinds, strict=True) if k == kind]
        return able[rng.integers(len(able))]

    # -- the network --------------------------------------------------------------------------

    def _features(self, configs: list[Config]) -> np.ndarray:
        if not configs:
            return np.zeros((0, self._center.size), dtype=np.float32)
        return self.space.encode(configs).astype(np.float32)

    def _prepare(self) -> None:
        """Makes the learner, where none was given."""
        options = self.options
        draws, weights, replay = np.random.default_rng((self.seed, 1)).spawn(3)
        if self.learner is not None:
            self._center = self.learner.model.weights()["center"]
            return
        if self._policy:
            network = MoveNetwork.of(self._policy.weights, rate=options.learning_rate)
            self._center = self._policy.weights["center"]
        else:
            sample = self.space.encode(self.space.sample(_SAMPLE, rng=draws))
            spread = sample.std(axis=0)
            self._center, spread = sample.mean(axis=0), np.where(spread > 0, spread, 1.0)
            network = MoveNetwork(
                self._center,
                spread,
                hidden=options.hidden,
                layers=options.layers,
                rate=options.learning_rate,
                rng=weights,
            )
        total = 1.0 if options.rule == "max" else 1 / (1 - options.gamma)
        self.learner = EpisodeLearner(
            network,
            best_share=options.best_share,
            rng=replay,
            double=options.double,
            rate=options.target_rate,
            batch=options.batch,
            margin=1.1 * total,
            rule=options.rule,
        )
        if self._policy:
            self.learner.ceiling = self._policy.facts["ceiling"]


class DQNSearch(MaxQDQNSearch):
    """Ordinary deep Q-learning, of the discounted sum of rewards; otherwise as `max_q_dqn`."""

    name: ClassVar[str] = "dqn"
    Options: ClassVar[type] = SumOptions
