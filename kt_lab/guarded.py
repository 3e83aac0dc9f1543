"""Guarded tuning: the incumbent is replaced by what fresh paired readings show to be faster.

1. Screen: the readings of a search, or of a list of configs, name a field: one config for each
   launch, none that is the incumbent's own launch under another name.
2. Heats: the field is timed in alternation with the incumbent. Whatever is shown to lose too much
   to the fastest drops out; a shortlist stays.
3. Race: the shortlist is timed afresh, in a floor of rounds whatever a launch takes, and in more
   while it is open who is to be picked. A config passes when its signed-rank interval lies beyond
   the floor of the rule, at a level that Holm's procedure shares among the shortlist and the
   looks share equally.
4. Confirmation: the pick meets the incumbent once more in the duel of `kt_lab.confirm`, on
   readings that chose nobody, so that whatever the stages before did, an incumbent that is no
   worse than the floor is replaced as rarely as promised. Its ratio is the one to report.

Who is picked: ties go to the incumbent. Of those that passed and keep 95 % of the fastest one's
gain, the one that changes the fewest parameters of the incumbent, then in a fixed order. So
tunings that differ by noise alone agree, and a simple change is preferred to a better lottery
ticket. The same order decides who is raced when too many read alike.

What it cannot see is what `kt_lab.confirm` cannot: rounds of one process share its state. A pick
confirmed in one recorded visit may still lose in another (`kt_lab.evidence.repeated` counts how
often, with `held_out`); a racer that spans processes shows it what else there is.

Sources: Holm, Scandinavian Journal of Statistics 6 (1979); Maron and Moore, Artificial
Intelligence Review 11 (1997), of races that drop the losers.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kt_lab.confirm import Confirmation, Rule, confirm
from kt_lab.errors import UsageError
from kt_lab.paired import leader, signed_rank
from kt_lab.runners.racing import Racer
from kt_lab.trial import Config

RULE = Rule(rounds=256)
"""A duel may be longer than that of `kt_lab.confirm`: gains of half a percent take so many."""
_BLOCK_US = 2000.0  # what a block aims at, in 1 to 10 launches
_AUTOTUNER_US = 100_000.0  # for which triton.autotune times each config
_HEATS = (8, 16, 32)  # rounds after which the field is looked at
_BLUR = 0.02  # log ratio by which a screening may be off


@dataclass(frozen=True, slots=True)
class Guarded:
    """What a guarded tuning came to.

    Attributes:
        shortlist: What was raced against the incumbent after the heats, the nearest to it first.
        passed: What Holm's procedure let pass, in the same order.
        confirmation: The duel of the one that was put forward; without a rival if none passed.
        launches: Timed launches of heats, race and duel, those of the incumbent included.
    """

    shortlist: tuple[Config, ...]
    passed: tuple[Config, ...]
    confirmation: Confirmation
    launches: int

    @property
    def config(self) -> Config:
        """The config to use."""
        return self.confirmation.winner


def guarded_pick(
    racer: Racer,
    *,
    incumbent: Config,
    apparent_us: Mapping[Config, float],
    launch: Callable[[Config], Hashable] | None = None,
    field: int = 128,
    shortlist: int = 16,
    rounds: int = 20,
    launches: int | None = None,
    keep: float = 0.95,
    rule: Rule | None = None,
) -> Guarded:
    """Returns the config to use after a screening, which is the incumbent unless one is faster.

    Args:
        racer: Takes the fresh readings.
        incumbent: The config in use; always in the race. If it fails, the fastest of the
            shortlist replaces it.
        apparent_us: What the screening read, microseconds, of configs that ran.
        launch: What the GPU executes for a config (hash of the binary, grid); equal ones are one
            program. None: all differ.
        field: How many configs are raced at all, at most.
        shortlist: How many of them after the heats, at most.
        rounds: Least rounds of the race, each of `rule.repetitions` launches; at most 16 times as
            many. A floor, not a budget of time: too few to let any config pass are refused.
        launches: Timed launches from which race and duel are not prolonged beyond their floors
            (`rounds`, and 64 rounds of the duel); None: no such end.
        keep: Share of the fastest one's log gain that a simpler change must keep to be preferred
            to it, in [0, 1].
        rule: Level, floor and launches of race and duel; None: `RULE`.
    """
    rule, launch = rule or RULE, launch or (lambda config: config)
    _require_sizes(field, shortlist, keep)
    looks = _looks(rounds, shortlist, rule.level)
    race = _Race(racer, _field(incumbent, apparent_us, launch, field, keep), rule, keep)
    race.heats(shortlist)
    raced = race.left
    passed, pick = race.run(looks, math.inf if launches is None else launches)
    if launches is not None:
        left = (launches - race.launches) // (2 * rule.repetitions)
        most = min(rule.rounds, max(left, Rule().rounds))
        rule = replace(rule, rounds=most)
    finalists = [] if pick is None else [race.configs[pick]]
    found = confirm(
        racer, incumbent=incumbent, finalists=finalists, apparent_us=apparent_us, rule=rule
    )
    told = [tuple(race.configs[i] for i in chosen) for chosen in (raced, passed)]
    return Guarded(*told, found, race.launches + found.launches)


def _require_sizes(field: int, shortlist: int, keep: float) -> None:
    """Raises UsageError where there is nobody to race, or no share to keep."""
    if not (field >= 4 and shortlist >= 1 and 0 <= keep <= 1):
        raise UsageError(
            "a guarded pick needs field >= 4, shortlist >= 1 and keep in [0, 1], got "
            f"field={field}, shortlist={shortlist}, keep={keep}"
        )


def _looks(rounds: int, shortlist: int, level: float) -> list[int]:
    """Returns after how many rounds a race is looked at, if these let anybody pass."""
    looks = [rounds * 2**i for i in range(5)]
    if not 0.5**rounds <= level / 2 / shortlist / len(looks):
        raise UsageError(
            f"a race must have rounds enough for one of the shortlist to pass, got {rounds} for "
            f"{shortlist} at level {level}; take 20 or more"
        )
    return looks


def spending(latency_us: float, configs: int) -> tuple[Rule, int]:
    """Returns rule and launches with which a guarded tuning costs no more than `triton.autotune`.

    Below a few milliseconds a launch; beyond, the floors of rounds cost more.

    Args:
        latency_us: Of the incumbent, about.
        configs: How many the autotuner would time.

    Returns:
        `rule` with blocks of about 2 ms, and `launches`, for `guarded_pick`.
    """
    repetitions = min(max(int(_BLOCK_US // latency_us), 1), 10)
    return replace(RULE, repetitions=repetitions), int(configs * _AUTOTUNER_US / latency_us)


def _field(incumbent, apparent_us, launch, field: int, keep: float) -> list[Config]:
    """Returns the incumbent and whom it meets, one name a launch, the nearest to it first.

    Of too many, a quarter are the fastest, and the rest the nearest of those that may be as good.
    """

    def changes(config: Config) -> tuple[int, str]:
        return sum(incumbent.get(n) != v for n, v in config.items()), repr(config)

    distinct: dict[Hashable, Config] = {launch(incumbent): incumbent}
    for config in sorted(apparent_us, key=changes):
        distinct.setdefault(launch(config), config)
    near = list(distinct.values())[1:]
    if len(near) > field:
        fast = sorted(near, key=apparent_us.get)[: field // 4]
        best_us = apparent_us[fast[0]]
        gain = math.log(apparent_us.get(incumbent, best_us) / best_us)
        worth_us = best_us * math.exp(_BLUR + 2 * (1 - keep) * max(gain, 0.0))
        good = [c for c in near if c not in fast and apparent_us[c] <= worth_us]
        chosen = {*fast, *good[: field - len(fast)]}
        near = [c for c in near if c in chosen]
    return [incumbent, *near]


class _Race:
    """Rounds of the incumbent, at 0, and of those that are left, the nearest to it first.

    `logs` holds log block medians, shape (rounds, configs), whole for those that are left.
    """

    def __init__(self, racer: Racer, configs: Sequence[Config], rule: Rule, keep: float):
        self.racer, self.configs, self.rule, self.keep = racer, configs, rule, keep
        self.floor = math.log1p(rule.floor)
        self.left = list(range(1, len(configs)))
        self.logs = np.empty((0, len(configs)))
        self.launches, self.down = 0, False  # down: the incumbent failed

    def read(self, until: int) -> None:
        """Times all that are left up to a number of rounds; who fails is out."""
        chosen = [0, *self.left]
        rows = np.full((until - len(self.logs), len(self.configs)), np.nan)
        each = self.rule.repetitions
        names = [self.configs[i] for i in chosen]
        rows[:, chosen] = np.log(self.racer.race(names, rounds=len(rows), repetitions=each))
        self.launches += int(np.isfinite(rows).sum()) * each
        self.logs = np.vstack([self.logs, rows])
        self.left = [i for i in self.left if np.isfinite(rows[:, i]).all()]
        self.down |= not np.isfinite(rows[:, 0]).all()

    def behind(self, tail: float) -> dict[int, np.ndarray]:
        """Returns by how much each loses more than it may: low, estimate and high, logarithms."""
        if not self.left:
            return {}
        first = leader(self.logs, self.left)
        gain = 0.0 if self.down else -self.ahead(first, tail)[1]
        band = max(self.floor, (1 - self.keep) * gain)
        return {
            i: np.subtract(signed_rank(self.logs[:, i] - self.logs[:, first], tail=tail), band)
            for i in self.left
        }

    def ahead(self, at: int, tail: float) -> tuple[float, float, float]:
        """Returns the log ratio to the incumbent: low, estimate and high."""
        return signed_rank(self.logs[:, at] - self.logs[:, 0], tail=tail)

    def heats(self, shortlist: int) -> None:
        """Drops whoever loses too much, until a shortlist is left; its rounds are forgotten.

        To drop out is no claim, so that the tests are not corrected for their number.
        """
        behind: dict[int, np.ndarray] = {}
        for look in _HEATS:
            if len(self.left) <= shortlist:
                break
            self.read(look)
            behind = self.behind(self.rule.level / 2)
            self.left = [i for i in self.left if behind[i][0] <= 0]
        if len(self.left) > shortlist:
            fastest = min(self.left, key=lambda i: behind[i][1])
            order = {i: (i != fastest, max(behind[i][1], 0.0)) for i in self.left}
            self.left = sorted(sorted(self.left, key=order.get)[:shortlist])
        self.logs = self.logs[:0]

    def run(self, looks: Sequence[int], launches: float) -> tuple[list[int], int | None]:
        """Returns who passed, and the pick: the nearest to the incumbent that is good enough."""
        passed: list[int] = []
        tail = self.rule.level / 2 / len(looks)
        for look, following in zip(looks, [*looks[1:], math.inf], strict=True):
            if not self.left:
                break
            self.read(look)
            behind = self.behind(tail)
            passed = self.left if self.down else self._holm(tail)
            good = [i for i in self.left if behind[i][0] <= 0]
            if not self.down:
                good = [i for i in good if self.ahead(i, tail)[0] <= -self.floor]
            spent = self.launches + (following - look) * (len(good) + 1) * self.rule.repetitions
            settled = not good or (good[0] in passed and behind[good[0]][2] <= 0)
            if settled or self.down or spent > launches or following == math.inf:
                picks = [i for i in good if i in passed and behind[i][1] <= 0]
                return passed, picks[0] if picks else None
            self.left = good
        return passed, None

    def _holm(self, tail: float) -> list[int]:
        """Returns those that are shown to be below the floor, together.

        One after the other: as long as some pass at the level divided by how many are left.
        """
        left = self.left
        while left:
            ends = {i: self.ahead(i, tail / len(left))[2] for i in left}
            kept = [i for i in left if ends[i] >= -self.floor]
            if len(kept) == len(left):
                break
            left = kept
        return [i for i in self.left if i not in left]
