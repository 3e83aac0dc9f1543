"""The learner of `kt_lab.search.max_reward`, with batches that hold more of the best episodes."""

from collections import Counter
from collections.abc import Sequence

from kt_lab.search.max_reward import MaxQLearner, Transition

_BEST = 0.05  # share of the episodes that are replayed more often


class EpisodeLearner(MaxQLearner):
    """Replays random transitions, and besides them those of the best episodes."""

    def __init__(self, model, *, best_share: float, **more):
        """Holds no transition yet.

        Args:
            model: Q, untrained.
            best_share: Of a batch, drawn from the best twentieth of the episodes of every
                workload (at least one of each).
            more: Of `MaxQLearner`.
        """
        super().__init__(model, **more)
        self._best_share = best_share
        self._episodes: Counter[str] = Counter()
        self._best: dict[str, list[tuple[float, Sequence[Transition]]]] = {}

    def ended(self, transitions: Sequence[Transition], best: float, *, workload: str = "") -> None:
        """Ranks an episode, whose transitions are remembered already, by its largest reward.

        Args:
            transitions: Of the episode.
            best: Its largest reward: a speed-up, which says little beside another workload's.
            workload: Among whose episodes it is ranked, such as the fingerprint of its space.
        """
        if transitions:
            self._episodes[workload] += 1
            ranked = self._best.setdefault(workload, [])
            ranked.append((best, transitions))
            ranked.sort(key=lambda pair: -pair[0])
            del ranked[max(1, round(_BEST * self._episodes[workload])) :]

    def learn(self) -> None:
        """Does one update on a random batch."""
        if not self._memory:
            return
        best = [t for ranked in self._best.values() for _, episode in ranked for t in episode]
        size = min(self._batch, len(self._memory))
        more = int(self._best_share * size) if best else 0
        drawn = self._rng.choice(len(self._memory), size - more, replace=False)
        again = self._rng.choice(len(best), more) if more else ()
        self.update([*(self._memory[i] for i in drawn), *(best[i] for i in again)])
