"""The learner of `kt_lab.search.max_reward`, with batches that hold more of the best episodes."""

from collections.abc import Sequence

from kt_lab.search.max_reward import MaxQLearner, Transition

_BEST = 0.05  # share of the episodes that are replayed more often


class EpisodeLearner(MaxQLearner):
    """Replays random transitions, and besides them those of the best episodes."""

    def __init__(self, model, *, best_share: float, **more):
        """Holds no transition yet.

        Args:
            model: Q, untrained.
            best_share: Of a batch, drawn from the best twentieth of the episodes (at least one).
            more: Of `MaxQLearner`.
        """
        super().__init__(model, **more)
        self._best_share = best_share
        self._episodes = 0
        self._best: list[tuple[float, Sequence[Transition]]] = []

    def ended(self, transitions: Sequence[Transition], best: float) -> None:
        """Ranks an episode, whose transitions are remembered already, by its largest reward."""
        if transitions:
            self._episodes += 1
            self._best.append((best, transitions))
            self._best.sort(key=lambda pair: -pair[0])
            del self._best[max(1, round(_BEST * self._episodes)) :]

    def learn(self) -> None:
        """Does one update on a random batch."""
        if not self._memory:
            return
        best = [t for _, episode in self._best for t in episode]
        size = min(self._batch, len(self._memory))
        more = int(self._best_share * size) if best else 0
        drawn = self._rng.choice(len(self._memory), size - more, replace=False)
        again = self._rng.choice(len(best), more) if more else ()
        self.update([*(self._memory[i] for i in drawn), *(best[i] for i in again)])
