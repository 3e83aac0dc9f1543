"""What rules with and without confirmation make of the same readings and of searches."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy

from kt_lab.budget import Budget
from kt_lab.confirm import Confirmation, Rule, confirm
from kt_lab.landscape import Landscape
from kt_lab.runners.racing import Racer, ReplayRacer
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import make_searcher
from kt_lab.trial import Config, Proposal
from kt_lab.tune import tune_whole

RULES = ("confirmation", "one pass", "one reading")
FINALISTS = 8
TRIALS = 100  # of a replayed search
_TRUTH = 1000  # rounds that stand for the truth
_SLOWER = 0.001  # log ratio from which a config counts as slower; the truth is known to 0.0005


class _Tape:
    """A racer that keeps the first readings of all configs, for rules that need no more."""

    def __init__(self, racer: Racer):
        self.racer, self.first = racer, None

    def race(self, configs: Sequence[Config], *, rounds: int, repetitions: int) -> np.ndarray:
        blocks = self.racer.race(configs, rounds=rounds, repetitions=repetitions)
        if self.first is None:
            self.first = blocks
        return blocks

    def picks(self) -> dict[str, int]:
        """Returns what is picked without confirmation, as positions; the incumbent is 0."""
        if self.first is None:
            return dict.fromkeys(RULES[1:], 0)
        passed = np.median(self.first, axis=0)
        count = len(passed)  # one reading: every config in another round, as in a search
        reading = self.first[np.arange(count) % len(self.first), np.arange(count)]
        return {"one pass": int(np.argmin(passed)), "one reading": int(np.argmin(reading))}


def confirm_and_pick(
    racer: Racer,
    incumbent: Config,
    finalists: Sequence[Config],
    *,
    rule: Rule,
    apparent_us: Mapping[Config, float] | None = None,
) -> tuple[Confirmation, dict[str, int]]:
    """Returns a confirmation, and what each of RULES picks from the same readings.

    "one pass" takes the lowest median over the rounds up to the first look, all configs in
    alternation; "one reading" the lowest single block. Positions are those of the
    confirmation's table: 0 is the incumbent, to which ties go.
    """
    tape = _Tape(racer)
    found = confirm(
        tape, incumbent=incumbent, finalists=finalists, apparent_us=apparent_us or {}, rule=rule
    )
    winner = [record.config for record in found.table].index(found.winner)
    return found, {"confirmation": winner, **tape.picks()}


def true_logs(racer: Racer, configs: Sequence[Config]) -> np.ndarray:
    """Returns log latencies relative to the first config, from many rounds, shape (configs,)."""
    logs = np.log(racer.race(configs, rounds=_TRUTH, repetitions=Rule().repetitions))
    return scipy.stats.trim_mean(logs - logs[:, :1], 0.25, axis=0)


def after_searches(
    tables: Sequence[Landscape], count: int, rule: Rule, seed: int
) -> dict[str, dict[str, Any]]:
    """Returns what every rule makes of the finalists of random searches, by incumbent.

    The incumbent is the default config, then the best of another search of the same size. The
    confirmations read the visits that no search read.
    """
    rows: dict[str, list[dict]] = {"the default": [], "another search's best": []}
    for number in range(count):
        landscape = tables[number % len(tables)]
        best, default, visits = _search(landscape, seed + number)
        other, _, _ = _search(landscape, seed + number + 1000 * landscape.visits)  # same visit
        stored = dict([next(iter(other.items()))])
        for held, incumbent in zip((default, stored), rows, strict=True):
            rows[incumbent].append(_after(landscape, held, best, visits, rule, seed + number))
    return {incumbent: _outcome(found) for incumbent, found in rows.items() if found}


def _search(landscape: Landscape, seed: int) -> tuple[dict, dict, list[int]]:
    """Returns readings of the finalists, best first, and of the default; the unread visits."""
    runner = ReplayRunner(landscape, seed=seed)
    searcher = make_searcher("random", landscape.space, seed=seed)
    readings = tune_whole(searcher, runner, budget=Budget(trials=TRIALS)).readings
    default = landscape.space.default
    runner.submit([Proposal(TRIALS, default)])
    default_us = runner.next()[1].latency_us
    ranked = sorted(readings.values(), key=lambda trial: trial.latency_us)[:FINALISTS]
    visits = [v for v in range(landscape.visits) if v != runner.visit] or [runner.visit]
    return {trial.config: trial.latency_us for trial in ranked}, {default: default_us}, visits


def _after(
    landscape: Landscape,
    held: Mapping[Config, float],
    best: Mapping[Config, float],
    visits: Sequence[int],
    rule: Rule,
    seed: int,
) -> dict[str, Any]:
    """Returns one search's outcome against one incumbent."""
    (incumbent,), first = held, next(iter(best))
    apparent = {**best, **held}
    racers = [ReplayRacer(landscape, seed=3 * seed + i, visits=visits) for i in range(3)]
    found, picks = confirm_and_pick(
        racers[0], incumbent, list(best), rule=rule, apparent_us=apparent
    )
    alone, _ = confirm_and_pick(racers[1], incumbent, [first], rule=rule, apparent_us=apparent)
    configs = [record.config for record in found.table]
    true = true_logs(racers[2], configs)
    return {
        "picks": picks,
        "regret": {rule: float(true[pick] - true.min()) for rule, pick in picks.items()},
        "loss": {rule: float(true[pick]) for rule, pick in picks.items()},
        "p_best": found.p_best,
        "was_best": bool(true[picks["confirmation"]] == true.min()),
        "apparent": math.log(apparent[incumbent] / apparent[first]),
        "confirmed": -math.log(alone.ratio or 1.0),  # no duel: the same config
        "true": -float(true[configs.index(first)]),
    }


def _outcome(rows: list[dict]) -> dict[str, Any]:
    """Returns means over searches; of logarithms where it is about ratios."""
    mean = {
        name: float(np.mean([row[name] for row in rows]))
        for name in ("apparent", "confirmed", "true", "p_best", "was_best")
    }
    rules = {}
    for rule in RULES:
        regret = np.array([row["regret"][rule] for row in rows])
        loss = np.array([row["loss"][rule] for row in rows])
        rules[rule] = {
            "replaced": float(np.mean([row["picks"][rule] > 0 for row in rows])),
            "regret": math.expm1(float(regret.mean())),
            "worst_regret": math.expm1(float(regret.max())),
            "slower": float((loss > _SLOWER).mean()),
        }
    return {
        "searches": len(rows),
        "trials": TRIALS,
        "finalists": FINALISTS,
        **{f"{name}_gain": math.expm1(mean[name]) for name in ("apparent", "confirmed", "true")},
        "overstated": math.exp(mean["apparent"] - mean["true"]),
        "confirmed_over_true": math.exp(mean["confirmed"] - mean["true"]),
        "p_best": mean["p_best"],
        "was_best": mean["was_best"],
        "rules": rules,
    }
