"""Races: several configs timed in alternation, and the race that a recorded landscape answers."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from kt_lab.errors import UsageError
from kt_lab.landscape import Landscape
from kt_lab.trial import OK, Config


class Racer(Protocol):
    """What `confirm` needs: fresh readings of a few configs, in alternation."""

    def race(self, configs: Sequence[Config], *, rounds: int, repetitions: int) -> np.ndarray:
        """Times every config once per round.

        Args:
            configs: What to time; a config may stand there more than once.
            rounds: How many rounds, >= 1.
            repetitions: Launches of a config in one round, >= 1: one block.

        Returns:
            Block medians in microseconds, shape (rounds, len(configs)); NaN where a config
            failed. The order within a round alternates, see `alternating`.
        """


def alternating(rounds: int, count: int, *, start: int = 0) -> np.ndarray:
    """Returns in which order rounds time their configs, shape (rounds, count), of positions.

    Forwards in even rounds, backwards in odd ones, so that over two rounds every config stands
    as early as late: what warms up or drifts within a round favours nobody.

    Args:
        rounds: How many rounds.
        count: Configs in each.
        start: Number of the first round, so that a race goes on where it stopped.
    """
    order = np.tile(np.arange(count), (rounds, 1))
    backwards = (start + np.arange(rounds)) % 2 == 1
    order[backwards] = order[backwards, ::-1]
    return order


class ReplayRacer:
    """Races configs of a recorded landscape.

    A round draws one recorded visit for all its configs, so that what differs between visits is
    paired, as it is between rounds of a live race. A config's block is the median of
    `repetitions` samples drawn with replacement from one recorded block of its launch in that
    visit: its own, or that of a twin, a config with the same launch (the same binary on the same
    grid). Twins of one round get different blocks while there are enough.

    Why twins: one config has only as many blocks as visits, and each block is off by about a
    percent of its own (the offsets of twins do not correlate between visits). Raced for long over
    three fixed blocks, two names of one program would differ by the luck of the recording, which
    no rule could tell from a real difference. A live race meets a new offset in every round, and
    so does this one; what remains is that a launch without twins has as few blocks as visits.

    Attributes:
        order: Positions in the order of timing of the latest race, shape (rounds, configs).
    """

    def __init__(
        self,
        landscape: Landscape,
        *,
        seed: int,
        visits: Sequence[int] | None = None,
        names: Mapping[Config, tuple[Config, float]] | None = None,
    ):
        """Sets up a race that repeats exactly for the same seed and calls.

        Args:
            landscape: What to replay.
            seed: Fixes every draw.
            visits: Recorded visits to draw from; None: all. After a replayed search, those that
                its runner did not read are the fresh ones.
            names: Configs that stand for a recorded one whose latency is multiplied by a factor,
                for experiments with a known truth; they need not be in the space.
        """
        self._visits = list(range(landscape.visits)) if visits is None else list(visits)
        if not self._visits or not set(self._visits) <= set(range(landscape.visits)):
            raise UsageError(
                f"visits must be some of 0..{landscape.visits - 1} (what {landscape.workload} on "
                f"{landscape.gpu} recorded), got visits={self._visits}"
            )
        self._landscape = landscape
        self._names = dict(names or {})
        self._rng = np.random.default_rng(seed)
        self._rounds = 0
        self.order = np.empty((0, 0), dtype=np.int64)

    def race(self, configs: Sequence[Config], *, rounds: int, repetitions: int) -> np.ndarray:
        """Draws block medians in microseconds, shape (rounds, len(configs)); see Racer."""
        if rounds < 1 or repetitions < 1:
            raise UsageError(
                f"rounds and repetitions must be >= 1, got rounds={rounds}, "
                f"repetitions={repetitions}"
            )
        self.order = alternating(rounds, len(configs), start=self._rounds)
        self._rounds += rounds
        visit = self._rng.integers(len(self._visits), size=rounds)
        dealt: dict[int, tuple[np.ndarray, int]] = {}  # launch -> its blocks shuffled, next one
        blocks = np.full((rounds, len(configs)), np.nan)
        for column, config in enumerate(configs):
            recorded, factor = self._names.get(config, (config, 1.0))
            at = self._landscape.index(recorded)
            if self._landscape.status[at] != OK:
                continue
            samples, counts = self._recorded(twins := _twins(self._landscape, at))
            if twins[0] not in dealt:
                dealt[twins[0]] = self._rng.random((rounds, len(twins))).argsort(axis=1), 0
            shuffled, seat = dealt[twins[0]]
            dealt[twins[0]] = shuffled, seat + 1
            twin = shuffled[:, seat % len(twins)]
            picks = self._rng.random((rounds, repetitions)) * counts[twin, visit][:, None]
            drawn = samples[twin[:, None], visit[:, None], picks.astype(np.int64)]
            blocks[:, column] = np.median(drawn, axis=1) * factor
        return blocks

    def _recorded(self, twins: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Returns samples (twins, visits, most) padded with NaN, and counts (twins, visits).

        Where a config was not timed in a visit, all its samples stand for that visit.
        """
        cache = self._landscape.__dict__.setdefault("_racing", {})
        key = (twins[0], *self._visits)
        if key not in cache:
            blocks = [[self._landscape.samples[v][at] for v in self._visits] for at in twins]
            whole = [np.concatenate([s[at] for s in self._landscape.samples]) for at in twins]
            blocks = [
                [block if len(block) else rest for block in row]
                for row, rest in zip(blocks, whole, strict=True)
            ]
            counts = np.array([[len(block) for block in row] for row in blocks])
            samples = np.full((*counts.shape, counts.max()), np.nan)
            for (i, j), count in np.ndenumerate(counts):
                samples[i, j, :count] = blocks[i][j]
            cache[key] = samples, counts
        return cache[key]


def _twins(landscape: Landscape, at: int) -> tuple[int, ...]:
    """Returns the positions of all ok configs with the launch of config `at`, ascending."""
    cache = landscape.__dict__.setdefault("_twins", {})
    if not cache:
        groups: dict[tuple, list[int]] = {}
        for position in np.flatnonzero(landscape.status == OK).tolist():
            launch = landscape.launches[position]
            key = launch if launch[0] else (position,)  # without a hash, nothing is a twin
            groups.setdefault(key, []).append(position)
        for group in groups.values():
            cache.update(dict.fromkeys(group, tuple(group)))
    return cache[at]
