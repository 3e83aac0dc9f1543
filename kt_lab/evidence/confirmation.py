"""How often confirmation is wrong, what it finds, and what it buys, by replay.

Every duel is between recorded programs whose true difference is known: one program under two
names, or with its latency multiplied by a factor. Two rules without confirmation are shown the
same readings. Seeded; nothing depends on the machine that computes it.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import scipy

from kt_lab.confirm import Rule
from kt_lab.evidence.finalists import (
    FINALISTS,
    RULES,
    after_searches,
    confirm_and_pick,
    true_logs,
)
from kt_lab.landscape import Landscape, landscapes
from kt_lab.provenance import provenance
from kt_lab.runners.racing import ReplayRacer
from kt_lab.trial import OK, Config

FACTORS = (0.98, 0.99, 0.995)
PAIRS = (0.975, 0.985)  # true latency ratios of the real pairs
_CAREFUL = 10  # samples a visit, and pairs a workload, before twins are compared
_CLOSE = 1.5  # real pairs are sought among configs this near to the best
_NULLS = (  # the tests in which nothing may replace the incumbent
    "identical: a config against itself",
    "identical: two names of one launch",
    f"identical: {FINALISTS} finalists",
    "as much faster as the floor, no more",
)

Case = tuple[Config, list[Config], dict[Config, tuple[Config, float]]]
"""Incumbent, finalists, and what their names stand for: the arguments of one confirmation."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds how much to replay."""
    parser.add_argument("--duels", type=int, default=120, help="per workload and test")
    parser.add_argument("--searches", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Replays all duels and searches; returns rates, intervals and means."""
    tables = [Landscape.load(entry.path) for entry in landscapes()]
    rule, level, power = Rule(), [], []
    for number, landscape in enumerate(tables):
        rng = np.random.default_rng([args.seed, number])
        for test, make in _tests(landscape, rng, rule.floor).items():
            cases = [make() for _ in range(args.duels)]
            found = [_decided(landscape, case, rng, rule) for case in cases if case]
            if found:
                row = {"test": test, "workload": landscape.workload, **_summary(found)}
                (level if test in _NULLS else power).append(row)
    return {
        "rule": asdict(rule),
        "level": level,
        "level_total": _totals(level, _level),
        "power": power,
        "power_total": _totals(power, _power),
        "searches": after_searches(tables, args.searches, rule, args.seed),
        "twins": [row for landscape in tables if (row := _twins(landscape))],
        "provenance": provenance(),
    }


# -- duels with a known truth ---------------------------------------------------------------------


def _tests(
    landscape: Landscape, rng: np.random.Generator, floor: float
) -> dict[str, Callable[[], Case | None]]:
    """Returns per test what makes one random case of it; None where the landscape has none."""
    ok = np.flatnonzero(landscape.status == OK)
    configs = dict(
        zip(ok.tolist(), landscape.space.configs(landscape.space.enumerate()[ok]), strict=True)
    )
    groups: dict[tuple, list[int]] = {}
    for at in ok.tolist():
        groups.setdefault(landscape.launches[at], []).append(at)
    shared = [group for group in groups.values() if len(group) > 1]
    near = ok[landscape.latency_us[ok] <= _CLOSE * landscape.optimum_us]

    def alias(factor: float, count: int = 1) -> Case:
        config = configs[int(rng.choice(ok))]
        names = {Config(finalist=i): (config, factor) for i in range(count)}
        return config, list(names), names

    def twins() -> Case | None:
        if not shared:
            return None
        first, second = rng.permutation(shared[rng.integers(len(shared))])[:2]
        return configs[int(first)], [configs[int(second)]], {}

    def pair() -> Case | None:
        for _ in range(200):
            slow, fast = rng.choice(near, size=2, replace=False)
            ratio = landscape.latency_us[fast] / landscape.latency_us[slow]
            if not PAIRS[0] < ratio < PAIRS[1]:
                continue
            both = [configs[int(slow)], configs[int(fast)]]
            truth = true_logs(ReplayRacer(landscape, seed=int(rng.integers(2**31))), both)
            if PAIRS[0] < math.exp(truth[1]) < PAIRS[1]:
                return both[0], both[1:], {}
        return None

    return {
        _NULLS[0]: lambda: alias(1.0),
        _NULLS[1]: twins,
        _NULLS[2]: lambda: alias(1.0, FINALISTS),
        _NULLS[3]: lambda: alias(1 / (1 + floor)),
        **{f"ratio {f}": lambda f=f: alias(f) for f in FACTORS},
        f"real pairs, ratio {PAIRS[0]} to {PAIRS[1]}": pair,
    }


def _decided(landscape: Landscape, case: Case, rng: np.random.Generator, rule: Rule) -> dict:
    """Returns what one confirmation came to; the truth is known where a name has a factor."""
    incumbent, finalists, names = case
    racer = ReplayRacer(landscape, seed=int(rng.integers(2**31)), names=names)
    found, picks = confirm_and_pick(racer, incumbent, finalists, rule=rule)
    known = bool(names) and found.ratio is not None
    factor = next(iter(names.values()))[1] if known else math.nan
    return {
        "picks": picks,
        "launches": found.launches,
        "error": math.log(found.ratio / factor) if known else math.nan,
        "covered": found.low <= factor <= found.high if known else None,
    }


def _summary(found: list[dict]) -> dict[str, Any]:
    errors = np.array([row["error"] for row in found])
    covered = [row["covered"] for row in found if row["covered"] is not None]
    return {
        "duels": len(found),
        "replaced": {rule: sum(row["picks"][rule] > 0 for row in found) for rule in RULES},
        "launches": float(np.mean([row["launches"] for row in found])),
        "mean_log_error": None if np.isnan(errors).all() else float(np.nanmean(errors)),
        "covered": float(np.mean(covered)) if covered else None,
    }


def _level(wrong: int, duels: int) -> dict[str, float]:
    """Returns the rate and its exact one-sided upper 95 % limit."""
    interval = scipy.stats.binomtest(wrong, duels, alternative="less").proportion_ci(0.95, "exact")
    return {"rate": wrong / duels, "high": float(interval.high)}


def _power(right: int, duels: int) -> dict[str, float]:
    """Returns the rate and its exact two-sided 95 % interval."""
    interval = scipy.stats.binomtest(right, duels).proportion_ci(0.95, "exact")
    return {"rate": right / duels, "low": float(interval.low), "high": float(interval.high)}


def _totals(rows: list[dict], limits: Callable[[int, int], dict]) -> list[dict[str, Any]]:
    """Returns one row per test over all workloads, with the worst workload's rate."""
    out = []
    for test in dict.fromkeys(row["test"] for row in rows):
        own = [row for row in rows if row["test"] == test]
        duels = sum(row["duels"] for row in own)
        counts = {rule: sum(row["replaced"][rule] for row in own) for rule in RULES}
        rates = [row["replaced"]["confirmation"] / row["duels"] for row in own]
        out.append(
            {
                "test": test,
                "workloads": len(own),
                "duels": duels,
                "replaced": counts,
                **limits(counts["confirmation"], duels),
                "workload_rates": [min(rates), max(rates)],
                "without": {rule: counts[rule] / duels for rule in RULES[1:]},
                "launches": sum(row["launches"] * row["duels"] for row in own) / duels,
                "mean_log_error": _mean(row["mean_log_error"] for row in own),
                "covered": _mean(row["covered"] for row in own),
            }
        )
    return out


def _mean(values) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


# -- whether names differ, and the report ---------------------------------------------------------


def _twins(landscape: Landscape) -> dict[str, Any] | None:
    """Returns whether the recorded difference between two names of a launch lasts.

    One log ratio per pair and visit; were one name really slower, its visits would agree.
    """
    careful = [
        at
        for at in np.flatnonzero(landscape.status == OK).tolist()
        if min(len(samples[at]) for samples in landscape.samples) >= _CAREFUL
    ]
    groups: dict[tuple, list[int]] = {}
    for at in careful:
        groups.setdefault(landscape.launches[at], []).append(at)
    pairs = np.array([group[:2] for group in groups.values() if len(group) > 1])
    if len(pairs) < _CAREFUL or landscape.visits < 2:
        return None
    logs = np.log([landscape.medians_us(visit) for visit in range(landscape.visits)])
    differences = logs[:, pairs[:, 0]] - logs[:, pairs[:, 1]]  # (visits, pairs)
    between = np.atleast_2d(scipy.stats.spearmanr(differences, axis=1).statistic)
    if between.shape == (1, 1):  # two visits give a number, not a matrix
        between = np.array([[1.0, between[0, 0]], [between[0, 0], 1.0]])
    quartiles = np.quantile(differences, [0.25, 0.75])
    return {
        "workload": landscape.workload,
        "pairs": len(pairs),
        "correlation": float(between[np.triu_indices(landscape.visits, 1)].mean()),
        "spread": float(quartiles[1] - quartiles[0]) / 1.349,
    }


def report(result: dict[str, Any]) -> str:
    """Returns the findings for people."""
    lines = ["A config that is no faster replaces the incumbent (must be at most 5 %):"]
    for row in result["level_total"]:
        lines.append(f"  {_line(row)} (95 % limit {row['high']:.2%})")
    lines.append("A faster config replaces it:")
    for row in result["power_total"]:
        lines.append(f"  {_line(row)} ({row['low']:.1%} to {row['high']:.1%})")
    worst = max((row["correlation"] for row in result["twins"]), default=math.nan)
    lines.append(
        f"Two names of one launch differ by {max(r['spread'] for r in result['twins']):.1%} or "
        f"less within a visit (robust deviation); between visits that correlates by {worst:+.2f} "
        "at most"
        if result["twins"]
        else "No launch was recorded under two names"
    )
    for incumbent, found in result["searches"].items():
        lines.append(
            f"{found['searches']} random searches against {incumbent}: the best seemed faster by "
            f"{found['apparent_gain']:+.1%}, confirmed {found['confirmed_gain']:+.1%}, truly "
            f"{found['true_gain']:+.1%} (apparent / true {found['overstated']:.4f}, confirmed / "
            f"true {found['confirmed_over_true']:.4f}); p_best {found['p_best']:.0%} on average, "
            f"best in {found['was_best']:.0%}"
        )
        for rule, row in found["rules"].items():
            lines.append(
                f"  {rule:12s} replaces {row['replaced']:.0%}, regret {row['regret']:.2%} on "
                f"average, {row['worst_regret']:.1%} at worst, ends slower than the incumbent "
                f"in {row['slower']:.0%}"
            )
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    low, high = row["workload_rates"]
    without = ", ".join(f"{rule} {rate:.0%}" for rule, rate in row["without"].items())
    return (
        f"{row['test']:36s} {row['rate']:7.2%} of {row['duels']:,} ({low:.1%} to {high:.1%} by "
        f"workload; {without}; {row['launches']:,.0f} launches)"
    )
