"""Max-reward Q-learning: the learner, for any game whose moves are deterministic.

The objective is the best reward on the way, not the sum: G_t = max_k gamma^k r_{t+k} (Gottipati
et al., "Maximum Reward Formulation in Reinforcement Learning", arXiv 2010.03744). With rewards
>= 0 and gamma in [0, 1):

(1) optimality       Q*(s, a) = max( r, gamma * max_{a'} Q*(s', a') ),
(2) tabular          Q(s, a) <- (1 - alpha) Q(s, a) + alpha * y,
(3) one-step target  y = r at the end, else max( r, gamma * max_{a'} Q-(s', a') ),
(4) double           a* = argmax_{a'} Q(s', a');  y = max( r, gamma * Q-(s', a*) ),
(5) n-step           y = max( r_t, gamma r_{t+1}, ..., gamma^{n-1} r_{t+n-1},
                              gamma^n max_a Q-(s_{t+n}, a) ).

(1) is a contraction by gamma, so its fixed point is unique; where moves are random, expectation
and maximum do not commute and it is not the expected maximum (Veviurko et al., "To the Max",
arXiv 2402.01361), which is why moves must be deterministic here. Every value is a discounted
reward, so none exceeds the largest reward seen; targets are clamped to that. In (5) the rewards of
any played path bound Q* from below, but regression on such bounds is biased towards what was
played: after a poor second move y is below what a better one would bring, and only n = 1 learns
(1) from any play. `max_q_dqn` has n = 3 all the same, as when its published curves were played.

With rule "sum" the same code learns the discounted sum of rewards, as ordinary Q-learning does:
max is + in (1) to (5), and the ceiling is that of a sum.

A state is known by the features of the moves that it offers: a move's features are all that the
learner ever sees, so configs and programs are learned alike. Q- is a copy of the model that
follows it slowly, or the model itself.
"""

import copy
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kt_lab.errors import UsageError

RULES = {"max": np.maximum, "sum": np.add}  # what joins a reward and what comes after it


class Model(Protocol):
    """A function from a move's features to its value that learns by regression."""

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Returns values, shape (n,), of moves with features of shape (n, width)."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Moves the values of `x` towards targets `y`, shape (n,)."""

    def follow(self, other: "Model", rate: float) -> None:
        """Moves its state by a share of the way towards another's (Polyak); if Q- is a copy."""


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """What a move led to, n steps on.

    Attributes:
        x: Features of the move, shape (width,).
        best: max(r_t, gamma r_{t+1}, ...) over the steps played (or their sum), >= 0.
        discount: gamma to the power of their number.
        choices: Features of the moves on offer then, shape (k, width); k = 0 at the end.
    """

    x: np.ndarray
    best: float
    discount: float
    choices: np.ndarray


class Episode:
    """Turns the steps of one episode into transitions of n steps, and of fewer at its end."""

    def __init__(self, *, n: int = 1, gamma: float, rule: str = "max"):
        """Starts before the first move.

        Args:
            n: Steps per transition, >= 1.
            gamma: Discount per step, in [0, 1].
            rule: A name of RULES.
        """
        self._n, self._gamma, self._join = n, gamma, RULES[rule]
        self._open: deque[list] = deque()  # features, best so far, discount of the next reward
        self._choices = np.zeros((0, 0))

    def step(self, x: np.ndarray, reward: float, choices: np.ndarray) -> list[Transition]:
        """Returns the transitions that this step completes.

        Args:
            x: Features of the move played, shape (width,).
            reward: What it brought, >= 0.
            choices: Features of the moves on offer after it, shape (k, width); none at the end.
        """
        self._choices = choices
        self._open.append([x, 0.0, 1.0])
        for entry in self._open:
            entry[1] = float(self._join(entry[1], entry[2] * reward))
            entry[2] *= self._gamma
        return self._complete(len(self._open) - self._n + 1) if len(choices) else self.end()

    def end(self) -> list[Transition]:
        """Returns what is left over: the shorter transitions to where the episode broke off."""
        return self._complete(len(self._open))

    def _complete(self, count: int) -> list[Transition]:
        return [Transition(*self._open.popleft(), self._choices) for _ in range(count)]


class MaxQLearner:
    """Learns (1) from transitions, by replay.

    Attributes:
        model: The online model, Q.
        ceiling: No value exceeds it: `margin` times the largest reward seen; 0 before any.
        transitions: How many are held for replay.
    """

    def __init__(
        self,
        model: Model,
        *,
        rng: np.random.Generator,
        double: bool = True,
        rate: float = 0.01,
        batch: int = 64,
        capacity: int = 20_000,
        margin: float = 1.1,
        rule: str = "max",
    ):
        """Holds no transition yet.

        Args:
            model: Q, untrained.
            rng: Source of the replayed batches.
            double: Whether Q chooses the move that Q- values: rule (4) instead of (3).
            rate: Share by which Q- follows Q per update, in (0, 1]; 1: Q- is Q.
            batch: Transitions per update.
            capacity: Transitions held; the oldest go first.
            margin: Of the ceiling above the largest reward seen, >= 1.
            rule: A name of RULES.
        """
        if not (0 < rate <= 1 and margin >= 1 and batch >= 1 and capacity >= 1):
            raise UsageError(
                "a learner needs 0 < rate <= 1, margin >= 1, batch >= 1 and capacity >= 1, got "
                f"rate={rate}, margin={margin}, batch={batch}, capacity={capacity}"
            )
        self.model = model
        self.ceiling = 0.0
        self._frozen = model if rate == 1 else copy.deepcopy(model)
        self._rng, self._double, self._rate = rng, double, rate
        self._batch, self._margin, self._capacity = batch, margin, capacity
        self._join = RULES[rule]
        self._memory: list[Transition] = []
        self._oldest = 0

    @property
    def transitions(self) -> int:
        """How many transitions are held."""
        return len(self._memory)

    def values(self, x: np.ndarray) -> np.ndarray:
        """Returns Q of moves with features of shape (n, width), within [0, ceiling]."""
        return np.clip(self.model.predict(x), 0.0, self.ceiling) if len(x) else np.zeros(0)

    def remember(self, transitions: Iterable[Transition]) -> None:
        """Keeps transitions for replay.

        Raises:
            UsageError: A reward is negative: with a maximum, idling would then look good.
        """
        for transition in transitions:
            if not transition.best >= 0:
                raise UsageError(f"rewards must be >= 0, got {transition.best}")
            self.ceiling = max(self.ceiling, self._margin * transition.best)
            if len(self._memory) < self._capacity:
                self._memory.append(transition)
            else:
                self._memory[self._oldest] = transition
                self._oldest = (self._oldest + 1) % self._capacity

    def learn(self) -> None:
        """Does one update on a random batch, on everything while that is no more than one."""
        if 0 < len(self._memory) <= self._batch:
            self.update(self._memory)
        elif self._memory:
            drawn = self._rng.choice(len(self._memory), self._batch, replace=False)
            self.update([self._memory[i] for i in drawn])

    def update(self, batch: list[Transition]) -> None:
        """Moves Q towards the targets of a batch, and Q- towards Q."""
        self.model.fit(np.stack([t.x for t in batch]), self.targets(batch))
        if self._frozen is not self.model:
            self._frozen.follow(self.model, self._rate)

    def targets(self, batch: list[Transition]) -> np.ndarray:
        """Returns y of rules (3) to (5), shape (n,)."""
        best = np.asarray([t.best for t in batch])
        sizes = np.asarray([len(t.choices) for t in batch])
        going = np.flatnonzero(sizes)
        if not len(going):
            return best
        x = np.concatenate([batch[i].choices for i in going])
        starts = np.concatenate([[0], np.cumsum(sizes[going])[:-1]])
        frozen = self._frozen.predict(x)
        if self._double and self._frozen is not self.model:
            online = self.model.predict(x)
            tail = np.asarray(
                [
                    frozen[a + np.argmax(online[a : a + n])]
                    for a, n in zip(starts, sizes[going], strict=True)
                ]
            )
        else:
            tail = np.maximum.reduceat(frozen, starts)
        targets = best.copy()
        discount = np.asarray([batch[i].discount for i in going])
        targets[going] = self._join(best[going], discount * np.clip(tail, 0.0, self.ceiling))
        return targets


@dataclass(frozen=True, slots=True)
class Epsilon:
    """A linear schedule of the share of random moves.

    Attributes:
        start: Share at the beginning, in [0, 1].
        end: Share from `steps` on, in [0, 1].
        steps: Length of the descent, >= 1.
    """

    start: float
    end: float
    steps: float

    def __call__(self, step: float) -> float:
        """Returns the share after `step` steps."""
        return self.start + (self.end - self.start) * min(1.0, step / max(self.steps, 1.0))


class Table:
    """A value of its own for every move: rule (2)."""

    def __init__(self, *, alpha: float = 1.0, initial: float = 0.0):
        """Knows nothing.

        Args:
            alpha: Learning rate, in (0, 1].
            initial: Value of a move never fitted.
        """
        self._alpha, self._initial = alpha, initial
        self._values: dict[bytes, float] = {}

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Returns values, shape (n,); moves with equal features are the same move."""
        return np.asarray([self._values.get(row.tobytes(), self._initial) for row in x])

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Applies rule (2), row by row."""
        for row, target in zip(x, y, strict=True):
            key = row.tobytes()
            old = self._values.get(key, self._initial)
            self._values[key] = (1 - self._alpha) * old + self._alpha * float(target)

    def follow(self, other: "Table", rate: float) -> None:
        """Moves every value of `other` in by a share of the way."""
        for key, value in other._values.items():
            old = self._values.get(key, self._initial)
            self._values[key] = (1 - rate) * old + rate * value
