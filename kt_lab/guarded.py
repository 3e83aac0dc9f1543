"""Guarded tuning: the incumbent is replaced by what fresh paired readings show to be faster.

1. Screen: the readings of a search, or of a list of configs, name a shortlist: one config for
   each launch, none that is the incumbent's own launch under another name.
2. Shortlist: all of it is timed in alternation with the incumbent, in a fixed number of rounds
   whatever a launch takes. A config passes when its signed-rank interval lies beyond the floor,
   at a level that Holm's procedure shares among the shortlist.
3. Confirmation: the fastest that passed meets the incumbent once more in the duel of
   `kt_lab.confirm`, on readings that chose nobody. Its ratio is the one to report.

Ties go to the incumbent; among those that passed and cannot be told from their fastest, to the
one that changes the fewest parameters of the incumbent, then in a fixed order, so that tunings
that differ by noise alone agree.

What it cannot see is what `kt_lab.confirm` cannot: rounds of one process share its state. A pick
confirmed in one recorded visit may still lose in another (`kt_lab.evidence.repeated` counts how
often, with `held_out`); a racer that spans processes shows it what else there is.

Source: Holm, Scandinavian Journal of Statistics 6 (1979).
"""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from kt_lab.confirm import Confirmation, Rule, confirm
from kt_lab.errors import UsageError
from kt_lab.paired import leader, signed_rank
from kt_lab.runners.racing import Racer
from kt_lab.trial import Config


@dataclass(frozen=True, slots=True)
class Guarded:
    """What a guarded tuning came to.

    Attributes:
        shortlist: What was raced against the incumbent, fastest screened first.
        passed: What Holm's procedure let pass.
        confirmation: The duel of the one that was put forward; without a rival if none passed.
        launches: Timed launches of shortlist and duel, those of the incumbent included.
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
    shortlist: int = 4,
    rounds: int = 20,
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
        shortlist: How many configs are raced, at most.
        rounds: Rounds of the race, each of `rule.repetitions` launches: a floor, not a budget of
            time. Too few to let any config pass are refused.
        rule: Level, floor and launches of race and duel; None: `Rule()`.
    """
    rule, launch = rule or Rule(), launch or (lambda config: config)
    if not 0.5**rounds <= rule.level / 2 / shortlist:
        raise UsageError(
            f"a race must have rounds enough for one of the shortlist to pass, got {rounds} for "
            f"{shortlist} at level {rule.level}; take 20 or more"
        )
    distinct: dict[Hashable, Config] = {launch(incumbent): incumbent}
    for config in sorted(apparent_us, key=apparent_us.get):
        distinct.setdefault(launch(config), config)
    raced = list(distinct.values())[: shortlist + 1]
    logs = np.empty((0, len(raced)))
    if len(raced) > 1:
        logs = np.log(racer.race(raced, rounds=rounds, repetitions=rule.repetitions))
    passed = [i for i in range(1, len(raced)) if np.isfinite(logs[:, i]).all()]
    if np.isfinite(logs[:, 0]).all():
        passed = _holm(logs - logs[:, :1], passed, rule)
    finalists = [raced[_settled(logs, passed, raced, rule)]] if passed else []
    found = confirm(
        racer, incumbent=incumbent, finalists=finalists, apparent_us=apparent_us, rule=rule
    )
    spent = found.launches + int(np.isfinite(logs).sum()) * rule.repetitions
    return Guarded(tuple(raced[1:]), tuple(raced[i] for i in passed), found, spent)


def _holm(ratios: np.ndarray, left: list[int], rule: Rule) -> list[int]:
    """Returns the columns of log ratios that are shown to be below the floor, together.

    One after the other: as long as some column passes at the level divided by how many are left.
    """
    passed: list[int] = []
    while left := [i for i in left if i not in passed]:
        tail = rule.level / 2 / len(left)
        ends = {i: signed_rank(ratios[:, i], tail=tail)[2] for i in left}
        if min(ends.values()) >= -math.log1p(rule.floor):
            break
        passed += [i for i in left if ends[i] < -math.log1p(rule.floor)]
    return passed


def _settled(logs: np.ndarray, passed: list[int], raced: list[Config], rule: Rule) -> int:
    """Returns the fastest that passed, or of its equals the nearest to the incumbent."""
    behind = logs - logs[:, [leader(logs, passed)]]
    slower = {i: signed_rank(behind[:, i], tail=rule.level / 2)[0] for i in passed}
    equals = [i for i in passed if slower[i] <= math.log1p(rule.floor)]
    changed = [sum(raced[0].get(n) != v for n, v in config.items()) for config in raced]
    return min(equals, key=lambda i: (changed[i], repr(raced[i])))
