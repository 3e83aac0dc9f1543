"""Naive and guarded tuning of the same list of configs, many times over, by replay.

The naive tuner is that of `triton.autotune`: one reading of every config, as many launches as fit
100 ms, the lowest median wins. The guarded tuner is `kt_lab.guarded` after two short readings of
every launch. Both draw from the recorded blocks of a landscape, as `ReplayRacer` does: a naive
tuning meets one visit, each reading or round of the guarded one meets any. So the truth is known:
what very many rounds come to. How far that carries to another day is another question, which
`held_out` asks.

Seconds are of the timing lane, by recorded latencies and flushes; both compile the whole list.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd
import scipy

from kt_lab.confirm import Rule
from kt_lab.errors import UsageError
from kt_lab.evidence.blocks import blocks_of, program
from kt_lab.evidence.finalists import true_logs
from kt_lab.guarded import guarded_pick, spending
from kt_lab.landscape import Landscape
from kt_lab.runners.racing import ReplayRacer
from kt_lab.trial import OK, Config

NAIVE, GUARDED = "naive", "guarded"
LOSS = 0.01  # from which a slower pick counts as a regression
_WARMUP_MS, _BUDGET_MS, _ESTIMATE = 25.0, 100.0, 6  # of triton.testing.do_bench
_MOST = 64  # samples of a naive reading: beyond that the block's own offset is all that is left
_SCREENS, _SCREEN = 2, 5  # readings of a launch by the guarded tuner, and launches of each
_ORACLE = 32  # how many of the fastest by recorded medians may be the truly fastest


def tuner_list(landscape: Landscape, count: int, *, seed: int) -> list[Config]:
    """Returns a list as a kernel's author might write it: the default and others, at random.

    Args:
        landscape: Of what.
        count: How many configs, the default first.
        seed: Fixes the others; they may fail, or be one program under several names.
    """
    space = landscape.space
    others = landscape.table.index.to_numpy()
    others = others[others != space.index(space.default)]
    drawn = np.random.default_rng(seed).permutation(others)[: count - 1]
    return [space.default, *space.configs(space.enumerate()[drawn])]


def distinct(landscape: Landscape, configs: Sequence[Config]) -> list[Config]:
    """Returns those of a list that ran, the first name of each launch."""
    kept: dict = {}
    for config in configs:
        at = landscape.index(config)
        if landscape.status[at] == OK:
            kept.setdefault(program(landscape, at), config)
    return list(kept.values())


def repeat_tunings(
    landscape: Landscape,
    configs: Sequence[Config],
    *,
    repeats: int = 40,
    seed: int = 0,
    rule: Rule | None = None,
    incumbent: Config | None = None,
    launches: int | None = None,
    held_out: bool = False,
) -> pd.DataFrame:
    """Tunes a list of configs again and again, naively and guarded.

    Args:
        landscape: What is replayed.
        configs: The list, without repetition; those that failed are read as such. The naive
            tuner knows no other.
        repeats: Tunings by each of the two.
        seed: Fixes every draw.
        rule: Of the guarded tuner; None: that of `kt_lab.guarded.spending`.
        incumbent: What is in use; None: the default. The guarded tuner has it in the race.
        launches: Timed launches of a naive reading; None: what fits its 100 ms. A kernel of 37
            ms gets 2.
        held_out: Whether one visit after the other is kept from both tuners and is the truth of
            that tuning: what tuning on one day (of two visits, in one process) is worth on
            another. Otherwise all visits are read, and the truth is known without error.

    Returns:
        One row per tuning and tuner: tuning, tuner ("naive" or "guarded"), config, launch
        (number; identical programs have the same), replaced, apparent_gain (what the tuner read,
        incumbent / pick - 1; null if the naive tuner's list lacks the incumbent), confirmed_gain
        (by the duel; 0 if the incumbent stays; null for the naive), true_gain, oracle_gain (true
        gain of what very many readings of the visits that tuners may read put first, the
        incumbent included), timing_s.
    """
    incumbent = incumbent or landscape.space.default
    names = [c for c in dict.fromkeys([incumbent, *configs]) if _runs(landscape, c)]
    if names[:1] != [incumbent] or not any(_runs(landscape, c) for c in configs):
        raise UsageError(
            f"the incumbent must run, and one of the list, got {dict(incumbent)}; pass incumbent="
        )
    one_us = float(landscape.latency_us[landscape.index(incumbent)])
    rule = rule or spending(one_us, len(names))[0]
    visits = list(range(landscape.visits))
    splits = [([v for v in visits if v != out], [out]) for out in visits]
    splits = splits if held_out else [(visits, visits)]
    listed = set(configs)
    lists = [_List(landscape, names, listed, launches, *split) for split in splits]
    rows = []
    for tuning in range(repeats):
        known = lists[tuning % len(splits)]
        drawn = (seed + 1) * 1_000_003 + tuning
        rows.append({"tuning": tuning, "tuner": NAIVE, **known.naive(drawn)})
        rows.append({"tuning": tuning, "tuner": GUARDED, **known.guarded(drawn, rule)})
    return pd.DataFrame(rows).astype({"apparent_gain": float, "confirmed_gain": float})


def _runs(landscape: Landscape, config: Config) -> bool:
    return landscape.status[landscape.index(config)] == OK


class _List:
    """A list of configs that ran, the incumbent first, and the truth about it."""

    def __init__(
        self,
        landscape: Landscape,
        names: list[Config],
        listed: set[Config],
        launches: int | None,
        read: Sequence[int],
        truth: Sequence[int],
    ):
        self.landscape, self.names, self.visits = landscape, names, read
        at = [landscape.index(c) for c in names]
        found = [program(landscape, i) for i in at]
        self.programs = [found.index(one) for one in found]  # the first of its names
        self.blocks, self.rows = blocks_of(landscape), blocks_of(landscape).seats[at]
        self.latency_us = landscape.latency_us[at]
        self.each_s = (self.latency_us + float(landscape.manifest["flush_us"])) * 1e-6
        self.own = [i for i, name in enumerate(names) if name in listed]
        samples = launches or max(1, int(_BUDGET_MS * 1e3 / self.latency_us[0]))
        self.samples, self.most = min(samples, _MOST), samples * len(self.own)
        spent = ((self.latency_us[i], self.each_s[i]) for i in self.own)
        self.naive_s = sum(_do_bench_s(us, s, launches) for us, s in spent)
        self.gain = cache(lambda i: self._gain(i, truth))
        fast = np.argsort([self.blocks.median_us(row, read) for row in self.rows])[:_ORACLE]
        best = max([0, *(self.programs[i] for i in fast)], key=lambda i: self._gain(i, read))
        self.oracle = self.gain(best)

    def _gain(self, at: int, visits: Sequence[int]) -> float:
        """Returns the true gain of a program in some visits; known once per landscape."""
        known = self.landscape.__dict__.setdefault("_true_gains", {})
        pair = (self.names[0], self.names[at], *visits)
        if pair not in known:
            racer = ReplayRacer(self.landscape, seed=0, visits=visits)
            known[pair] = math.expm1(-true_logs(racer, pair[:2])[1]) if at else 0.0
        return known[pair]

    def row(self, pick: int, read: np.ndarray, confirmed: float | None, timing_s: float) -> dict:
        """Returns what is known of a pick, given what the tuner read of all."""
        known = 0 in self.own or confirmed is not None
        return {
            "config": self.names[pick],
            "launch": self.programs[pick],
            "replaced": self.programs[pick] != 0,
            "apparent_gain": read[0] / read[pick] - 1 if known else None,
            "confirmed_gain": confirmed,
            "true_gain": self.gain(self.programs[pick]),
            "oracle_gain": self.oracle,
            "timing_s": timing_s,
        }

    def naive(self, seed: int) -> dict:
        """Returns the row of one naive tuning: the lowest of one reading of each."""
        rng = np.random.default_rng((seed, 0))
        read = self.blocks.read(self.rows, self.visits, self.samples, rng)
        return self.row(self.own[int(np.argmin(read[self.own]))], read, None, self.naive_s)

    def guarded(self, seed: int, rule: Rule) -> dict:
        """Returns the row of one guarded tuning, every program screened twice."""
        rng = np.random.default_rng((seed, 1))
        reads = [self.blocks.read(self.rows, self.visits, _SCREEN, rng) for _ in range(_SCREENS)]
        read = np.exp(np.log(reads).mean(axis=0))
        found = guarded_pick(
            ReplayRacer(self.landscape, seed=seed, visits=self.visits),
            incumbent=self.names[0],
            apparent_us=dict(zip(self.names, read.tolist(), strict=True)),
            launch=dict(zip(self.names, self.programs, strict=True)).get,
            launches=self.most,
            rule=rule,
        )
        confirmed = found.confirmation.gain if found.confirmation.replaced else 0.0
        spent_s = _SCREENS * _SCREEN * self.each_s[list(set(self.programs))].sum()
        spent_s += found.launches * self.each_s[0]
        return self.row(self.names.index(found.config), read, confirmed, float(spent_s))


def _do_bench_s(latency_us: float, each_s: float, launches: int | None) -> float:
    warm, timed = (max(1, int(ms * 1e3 / latency_us)) for ms in (_WARMUP_MS, _BUDGET_MS))
    return ((launches or timed) + _ESTIMATE) * each_s + warm * latency_us * 1e-6


def compare_tuners(tunings: pd.DataFrame, *, loss: float = LOSS) -> pd.DataFrame:
    """Returns what tuners come to over their tunings, one row each.

    Args:
        tunings: From `repeat_tunings`, of one list on one landscape.
        loss: From which a pick that is slower than the incumbent is a regression, > 0.

    Returns:
        tuner, tunings, replaced (share), agreement (share that picks the most frequent launch),
        entropy_bits (of the launches picked), apparent_gain, confirmed_gain, true_gain,
        oracle_gain (geometric means of 1 + gain, minus 1), kept (log true gain / that of the
        oracle; null without one), regressions (count), rate, rate_high (exact one-sided upper
        95 % limit), worst (largest true loss, >= 0), worst_share (with 95 % confidence, at least
        this share of all tunings loses no more than `worst`), timing_s (mean), timing_ratio (to
        the naive tuner's).
    """
    rows, naive_s = [], tunings.loc[tunings["tuner"] == NAIVE, "timing_s"].mean()
    for tuner, table in tunings.groupby("tuner", sort=False):
        share = table["launch"].value_counts(normalize=True).to_numpy()
        gains = {n: math.expm1(np.log1p(table[n]).mean()) for n in _GAINS}
        oracle, losses = math.log1p(gains["oracle_gain"]), 1 / (1 + table["true_gain"]) - 1
        count, of = int((losses > loss).sum()), len(table)
        rows.append(
            {
                "tuner": tuner,
                "tunings": of,
                "replaced": table["replaced"].mean(),
                "agreement": share.max(),
                "entropy_bits": abs(float(-(share * np.log2(share)).sum())),
                **gains,
                "kept": math.log1p(gains["true_gain"]) / oracle if oracle > 0 else math.nan,
                "regressions": count,
                "rate": count / of,
                "rate_high": rate_high(count, of),
                "worst": max(0.0, float(losses.max())),
                "worst_share": 0.05 ** (1 / of),
                "timing_s": table["timing_s"].mean(),
                "timing_ratio": table["timing_s"].mean() / naive_s,
            }
        )
    return pd.DataFrame(rows)


@cache  # most lists of a report count the same
def rate_high(count: int, of: int) -> float:
    """Returns the exact one-sided upper 95 % limit of a rate."""
    interval = scipy.stats.binomtest(count, of, alternative="less").proportion_ci(0.95, "exact")
    return float(interval.high)


_GAINS = ("apparent_gain", "confirmed_gain", "true_gain", "oracle_gain")
