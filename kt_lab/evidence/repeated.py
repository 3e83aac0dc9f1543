"""Naive and guarded tuning of the same list of configs, many times over, by replay.

The naive tuner is that of `triton.autotune`: one reading of every config, as many launches as fit
100 ms, the lowest median wins. The guarded tuner is `kt_lab.guarded`. Both draw their readings
from the recorded blocks of a landscape, as `ReplayRacer` does: a naive tuning meets one visit, a
round of the guarded one meets any. So the truth is known: what very many rounds come to. How far
that carries to another day is another question, which `held_out` asks.

Seconds are of the timing lane, by recorded latencies and flushes; both compile the whole list.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from kt_lab.confirm import Rule
from kt_lab.errors import UsageError
from kt_lab.evidence.finalists import true_logs
from kt_lab.guarded import guarded_pick
from kt_lab.landscape import Landscape
from kt_lab.runners.racing import ReplayRacer
from kt_lab.trial import OK, Config

NAIVE, GUARDED = "naive", "guarded"
LOSS = 0.01  # from which a slower pick counts as a regression
_WARMUP_MS, _BUDGET_MS, _ESTIMATE = 25.0, 100.0, 6  # of triton.testing.do_bench
_MOST = 64  # samples of a naive reading: beyond that the block's own offset is all that is left
_SCREEN = 10  # launches of the guarded tuner's first reading of a launch
_BLOCK_MS = 2.0  # what a block of its race and duel aims at, between 1 and 10 launches


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


def repeat_tunings(
    landscape: Landscape,
    configs: Sequence[Config],
    *,
    repeats: int = 40,
    seed: int = 0,
    rule: Rule | None = None,
    shortlist: int = 4,
    incumbent: Config | None = None,
    launches: int | None = None,
    held_out: bool = False,
) -> pd.DataFrame:
    """Tunes a list of configs again and again, naively and guarded.

    Args:
        landscape: What is replayed.
        configs: The list, without repetition; those that failed are read as such.
        repeats: Tunings by each of the two.
        seed: Fixes every draw.
        rule: Of the guarded tuner; None: `Rule()` with blocks of about 2 ms.
        shortlist: Its size.
        incumbent: What is in use; None: the default. It joins the list.
        launches: Timed launches of a naive reading; None: what fits its 100 ms. A kernel of 37
            ms gets 2.
        held_out: Whether one visit after the other is kept from both tuners and is the truth of
            that tuning: what tuning on one day (of two visits, in one process) is worth on
            another. Otherwise all visits are read, and the truth is known without error.

    Returns:
        One row per tuning and tuner: tuning, tuner ("naive" or "guarded"), config, launch
        (number; identical programs have the same), replaced, apparent_gain (what the tuner read,
        incumbent / pick - 1), confirmed_gain (by the duel; 0 if the incumbent stays; null for
        the naive), true_gain, oracle_gain (of the best of the list), timing_s.
    """
    incumbent = incumbent or landscape.space.default
    names = list(dict.fromkeys([incumbent, *configs]))
    names = [c for c in names if landscape.status[landscape.index(c)] == OK]
    if names[:1] != [incumbent]:
        raise UsageError(f"the incumbent must run, got {dict(incumbent)}; pass incumbent=")
    one_us = float(landscape.latency_us[landscape.index(incumbent)])
    samples = min(launches or max(1, int(_BUDGET_MS * 1e3 / one_us)), _MOST)
    rule = rule or Rule(repetitions=int(np.clip(_BLOCK_MS * 1e3 // one_us, 1, 10)))
    visits = range(landscape.visits)
    splits = [([v for v in visits if v != out], [out]) for out in visits]
    splits = splits if held_out else [(visits, visits)]
    lists = [_List(landscape, names, launches=launches, seed=seed, truth=t) for _, t in splits]
    rows = []
    for tuning in range(repeats):
        known, own = lists[tuning % len(splits)], splits[tuning % len(splits)][0]
        racer = ReplayRacer(landscape, seed=(seed + 1) * 1_000_003 + tuning, visits=own)
        read = racer.race(names, rounds=1, repetitions=samples)[0]
        naive = known.row(int(np.argmin(read)), read)
        rows.append({"tuning": tuning, "tuner": NAIVE, **naive, "timing_s": known.naive_s})
        rows.append({"tuning": tuning, "tuner": GUARDED, **known.guarded(racer, rule, shortlist)})
    return pd.DataFrame(rows).astype({"confirmed_gain": float})


class _List:
    """A list of configs, the incumbent first, and the truth about it.

    Attributes:
        naive_s: Seconds that naive readings of all take.
    """

    def __init__(
        self,
        landscape: Landscape,
        names: list[Config],
        *,
        launches: int | None,
        seed: int,
        truth: Sequence[int],
    ):
        self.names, at = names, [landscape.index(c) for c in names]
        found = [landscape.launches[i] if landscape.launches[i][0] else i for i in at]
        self.programs = [found.index(program) for program in found]  # the first of its names
        latency_us = landscape.latency_us[at]
        self.each_s = (latency_us + float(landscape.manifest["flush_us"])) * 1e-6
        spent = zip(latency_us, self.each_s, strict=True)
        self.naive_s = sum(_do_bench_s(us, s, launches) for us, s in spent)
        racer = ReplayRacer(landscape, seed=seed, visits=truth)
        self.gains = np.expm1(-true_logs(racer, [names[i] for i in self.programs]))

    def row(self, pick: int, read: np.ndarray, *, confirmed: float | None = None) -> dict:
        """Returns what is known of a pick, given what the tuner read of all."""
        return {
            "config": self.names[pick],
            "launch": self.programs[pick],
            "replaced": self.programs[pick] != 0,
            "apparent_gain": read[0] / read[pick] - 1,
            "confirmed_gain": confirmed,
            "true_gain": self.gains[pick],
            "oracle_gain": self.gains.max(),
        }

    def guarded(self, racer: ReplayRacer, rule: Rule, shortlist: int) -> dict:
        """Returns the row of one guarded tuning, every program screened once."""
        read = racer.race(self.names, rounds=1, repetitions=_SCREEN)[0]
        found = guarded_pick(
            racer,
            incumbent=self.names[0],
            apparent_us=dict(zip(self.names, read.tolist(), strict=True)),
            launch=dict(zip(self.names, self.programs, strict=True)).get,
            shortlist=shortlist,
            rule=rule,
        )
        confirmed = found.confirmation.gain if found.confirmation.replaced else 0.0
        spent_s = _SCREEN * self.each_s[list(set(self.programs))].sum()
        row = self.row(self.names.index(found.config), read, confirmed=confirmed)
        return row | {"timing_s": float(spent_s) + found.launches * self.each_s[0]}


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
        entropy_bits (of the launches picked), apparent_gain, confirmed_gain, true_gain (geometric
        means of 1 + gain, minus 1), kept (log true gain / that of the oracle; null without one),
        regressions (count), rate, rate_high (exact one-sided upper 95 % limit), worst (largest
        true loss, >= 0), worst_share (with 95 % confidence, at least this share of all tunings
        loses no more than `worst`), timing_s (mean), timing_ratio (to the naive tuner's).
    """
    rows, naive_s = [], tunings.loc[tunings["tuner"] == NAIVE, "timing_s"].mean()
    for tuner, table in tunings.groupby("tuner", sort=False):
        share = table["launch"].value_counts(normalize=True).to_numpy()
        gains = {n: math.expm1(np.log1p(table[n]).mean()) for n in _GAINS}
        oracle, losses = np.log1p(table["oracle_gain"]).mean(), 1 / (1 + table["true_gain"]) - 1
        count, of = int((losses > loss).sum()), len(table)
        limit = binomtest(count, of, alternative="less").proportion_ci(0.95, "exact").high
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
                "rate_high": float(limit),
                "worst": max(0.0, float(losses.max())),
                "worst_share": 0.05 ** (1 / of),
                "timing_s": table["timing_s"].mean(),
                "timing_ratio": table["timing_s"].mean() / naive_s,
            }
        )
    return pd.DataFrame(rows)


_GAINS = ("apparent_gain", "confirmed_gain", "true_gain")
