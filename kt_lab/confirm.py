"""Confirmation: does what a search found really beat the config in use, on fresh readings?

A search reports the lowest of many noisy readings, which is low by luck as much as by merit. Two
stages, both on readings that the search never saw, tell the two apart:

1. Race: the finalists and the incumbent are timed in alternation. The clearly slower drop out,
   the fastest finalist left becomes the challenger. Only the choice comes from these readings.
2. Duel: challenger against incumbent, in new rounds. The incumbent is replaced only when the
   whole interval of the latency ratio lies beyond the floor.

The duel judges the log ratio of the block medians of each round by the interval of Wilcoxon's
signed-rank test. For identical programs the two readings of a round may be swapped, so that the
log ratio is symmetric around 0 and the test exact at any number of rounds, whatever the noise: an
outlier counts as one rank, and readings that tie on the timer's tick widen the interval instead
of giving a variance of zero. An interval from means and variances, sequential or not, promises
that only for many rounds. Looks are few and doubling, and share the error equally, which holds
however they depend on each other.

What it cannot see: rounds must not depend on each other. A state of the machine that favours one
config throughout a duel is a real difference to it.

Source: Jennison and Turnbull, 1989 (intervals of repeated looks); otherwise see `paired`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kt_lab.errors import UsageError, whole_fields
from kt_lab.paired import leader, probability_of_best, signed_rank
from kt_lab.runners.racing import Racer
from kt_lab.trial import Config


@dataclass(frozen=True, slots=True)
class Rule:
    """How a confirmation spends launches and when it decides.

    Attributes:
        level: 1 - confidence of the interval of the ratio, in (0, 1), over all looks together. An
            incumbent that is no worse than the floor allows is replaced with a probability of at
            most level / 2.
        floor: Gain that must be exceeded to replace the incumbent, >= 0: 0.002 is 0.2 %.
        rounds: Most rounds of the duel.
        race: Most rounds of the race before it.
        first: Rounds before the first look; the next come after twice as many, and so on. Fewer
            than 8 cannot decide at the default level.
        repetitions: Launches of one config in one round, >= 1; their median is one reading.
    """

    level: float = 0.05
    floor: float = 0.002
    rounds: int = 64
    race: int = 16
    first: int = 8
    repetitions: int = 10

    def __post_init__(self):
        """Refuses a rule that could never be applied."""
        if not (0 < self.level < 1 and self.floor >= 0):
            raise UsageError(
                "level must lie between 0 and 1 and floor must be >= 0, got "
                f"level={self.level}, floor={self.floor}"
            )
        whole_fields(self, rounds=1, race=1, first=1, repetitions=1)
        if self.first > min(self.rounds, self.race):
            raise UsageError(
                "a rule needs first <= rounds and first <= race, got "
                f"first={self.first}, rounds={self.rounds}, race={self.race}"
            )

    def looks(self, rounds: int) -> list[int]:
        """Returns after how many rounds to look, of at most `rounds`."""
        found = [self.first]
        while found[-1] < rounds:
            found.append(min(2 * found[-1], rounds))
        return found


@dataclass(frozen=True, slots=True)
class Raced:
    """What became of one config.

    Attributes:
        config: The config.
        median_us: Median of its block medians, race and duel, microseconds; None: no reading.
        rounds: Rounds in which it gave a reading.
        eliminated_at: Rounds of the race after which it dropped out; None: it stayed.
        failed: Whether it missed a reading.
    """

    config: Config
    median_us: float | None
    rounds: int
    eliminated_at: int | None
    failed: bool


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The outcome of a confirmation.

    Attributes:
        winner: The config to use from now on.
        replaced: Whether that is another than the incumbent.
        reason: Why, in a clause.
        incumbent: The config in use before.
        challenger: The finalist that the race sent to the duel; None: none did.
        apparent_gain: What the search saw: incumbent's reading / challenger's - 1; None: unknown.
        ratio: Latency challenger / incumbent in the duel, < 1 is better; None: no duel. A duel
            that ends early leans away from 1, by less than 0.001 on the recorded noise.
        low: Lower end of the interval of the ratio, of confidence 1 - level.
        high: Upper end.
        p_best: Probability that the winner is the fastest of all that were raced: the share of
            1,000 Bayesian bootstrap resamples of the rounds in which it is, ties shared. The
            duel's rounds count for its two configs. None: nothing was compared.
        race_rounds: Rounds of the race.
        duel_rounds: Rounds of the duel.
        launches: Timed launches of both.
        table: One record per config, the incumbent first.
        rule: The rule that was followed.
    """

    winner: Config
    replaced: bool
    reason: str
    incumbent: Config
    challenger: Config | None
    apparent_gain: float | None
    ratio: float | None
    low: float | None
    high: float | None
    p_best: float | None
    race_rounds: int
    duel_rounds: int
    launches: int
    table: tuple[Raced, ...]
    rule: Rule

    @property
    def gain(self) -> float | None:
        """The confirmed gain of the challenger, incumbent / challenger - 1, > 0 is better."""
        return None if self.ratio is None else 1 / self.ratio - 1

    def describe(self, incumbent: str = "the incumbent") -> str:
        """Returns one sentence for people; `incumbent` is what they know that one as."""
        stays = f"{incumbent[:1].upper()}{incumbent[1:]} stays"
        head = f"{self.winner} replaces {incumbent}" if self.replaced else stays
        if self.ratio is None:
            return f"{head}: {self.reason}."
        ends = [1 / end - 1 if end else math.inf for end in (self.high, self.low)]
        seen = "" if self.apparent_gain is None else f"; the search saw {self.apparent_gain:+.2%}"
        return (
            f"{head}: {self.reason}; gain {self.gain:+.2%} ({1 - self.rule.level:.0%} interval "
            f"{ends[0]:+.2%} to {ends[1]:+.2%}) in {self.duel_rounds} fresh paired rounds{seen}."
        )


def confirm(
    racer: Racer,
    *,
    incumbent: Config,
    finalists: Sequence[Config],
    apparent_us: Mapping[Config, float],
    rule: Rule | None = None,
) -> Confirmation:
    """Races finalists against each other, then the best of them against the incumbent.

    A config that misses one reading is out. If that is the incumbent, the challenger replaces it.

    Args:
        racer: Takes the fresh readings.
        incumbent: The config in use; usually the kernel's default.
        finalists: Candidates, best first (ties go to the earlier); the incumbent among them and
            repeats are ignored. May be empty.
        apparent_us: What the search read, microseconds, by config; may lack any.
        rule: When to decide; None: Rule().
    """
    rule = rule or Rule()
    field = _Field(racer, list(dict.fromkeys([incumbent, *finalists])), rule)
    challenger, replaced, reason, bounds = field.decide()
    winner = challenger if replaced else 0
    chosen = None if challenger is None else field.configs[challenger]
    seen = [apparent_us.get(c) for c in (incumbent, chosen) if c is not None]
    low, ratio, high = (None,) * 3 if bounds is None else map(math.exp, bounds)
    return Confirmation(
        winner=field.configs[winner],
        replaced=replaced,
        reason=reason,
        incumbent=incumbent,
        challenger=chosen,
        apparent_gain=seen[0] / seen[1] - 1 if len(seen) == 2 and all(seen) else None,
        ratio=ratio,
        low=low,
        high=high,
        p_best=probability_of_best(field.logs, winner, failed=field.failed),
        race_rounds=field.race_rounds,
        duel_rounds=len(field.logs) - field.race_rounds,
        launches=int(np.isfinite(field.logs).sum()) * rule.repetitions,
        table=field.table(),
        rule=rule,
    )


class _Field:
    """The configs of one confirmation, the incumbent at 0, and all that was read of them.

    `logs` holds log block medians, shape (rounds, configs), NaN where a config was not timed.
    """

    def __init__(self, racer: Racer, configs: list[Config], rule: Rule):
        self.racer, self.configs, self.rule = racer, configs, rule
        self.logs = np.empty((0, len(configs)))
        self.failed = np.zeros(len(configs), dtype=bool)
        self.eliminated: dict[int, int] = {}
        self.race_rounds = 0

    def read(self, chosen: list[int], rounds: int) -> None:
        """Adds rounds in which the chosen configs were timed."""
        names = [self.configs[i] for i in chosen]
        got = self.racer.race(names, rounds=rounds, repetitions=self.rule.repetitions)
        got = np.asarray(got, dtype=float)
        if got.shape != (rounds, len(chosen)) or (got <= 0).any() or np.isinf(got).any():
            raise UsageError(
                f"a race must give positive finite block medians (NaN: failed) of shape "
                f"({rounds}, {len(chosen)}), got shape {got.shape}; correct the racer"
            )
        rows = np.full((rounds, len(self.configs)), np.nan)
        rows[:, chosen] = np.log(got)
        self.logs = np.vstack([self.logs, rows])
        self.failed[chosen] |= np.isnan(got).any(axis=0)

    def decide(self) -> tuple[int | None, bool, str, tuple[float, float, float] | None]:
        """Returns the challenger, whether it wins, why, and the log ratio with its interval."""
        challenger = self.race()
        if challenger is None:
            reason = "no finalist was as fast in the race"
            if self.failed[1:].all():
                reason = (
                    "every finalist failed" if self.failed.size > 1 else "nothing else to race"
                )
            return None, False, reason, None
        if not self.failed[0]:
            bounds, replaced, reason = self.duel(challenger)
        if self.failed[challenger]:
            return challenger, False, "the challenger failed in the duel", None
        if self.failed[0]:
            return challenger, True, "the incumbent failed", None
        return challenger, replaced, reason, bounds

    def race(self) -> int | None:
        """Returns the finalist that may challenge the incumbent; None: none is left.

        A single finalist needs no race. An elimination is a choice, not a claim, so that its
        tests are not corrected for their number: a mistake costs a slightly slower challenger.
        """
        left = list(range(1, len(self.configs)))
        if len(left) < 2:
            return left[0] if left else None
        for look in self.rule.looks(self.rule.race):
            self.read([i for i in (0, *left) if not self.failed[i]], look - len(self.logs))
            self.race_rounds = look
            working = [i for i in (0, *left) if not self.failed[i]]
            fastest = leader(self.logs, working) if working else 0
            for i in left:
                behind = self.logs[:, i] - self.logs[:, fastest]
                if self.failed[i] or signed_rank(behind, tail=self.rule.level / 2)[0] > 0:
                    self.eliminated[i] = look
            left = [i for i in left if i not in self.eliminated]
            if len(left) < 2:
                break
        return leader(self.logs, left) if left else None

    def duel(self, challenger: int) -> tuple[tuple[float, float, float], bool, str]:
        """Returns the log ratio's low, estimate and high, whether to replace, and why."""
        looks, bar = self.rule.looks(self.rule.rounds), -math.log1p(self.rule.floor)
        bounds = (-math.inf, math.nan, math.inf)
        for look in looks:
            self.read([0, challenger], look - len(self.logs) + self.race_rounds)
            if self.failed[[0, challenger]].any():
                break
            ratios = (self.logs[:, challenger] - self.logs[:, 0])[self.race_rounds :]
            bounds = signed_rank(ratios, tail=self.rule.level / 2 / len(looks))
            if bounds[2] < bar:
                return bounds, True, f"faster by more than {100 * self.rule.floor:g}%"
            if bounds[0] > bar:
                return bounds, False, f"there is no gain of {100 * self.rule.floor:g}%"
        return bounds, False, f"no gain of more than {100 * self.rule.floor:g}% was shown"

    def table(self) -> tuple[Raced, ...]:
        """Returns the records of all configs."""
        records = []
        for i, config in enumerate(self.configs):
            read = self.logs[np.isfinite(self.logs[:, i]), i]
            median_us = float(np.exp(np.median(read))) if read.size else None
            dropped = self.eliminated.get(i)
            records.append(Raced(config, median_us, read.size, dropped, bool(self.failed[i])))
        return tuple(records)
