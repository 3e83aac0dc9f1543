"""What searchers are held against: exact random search, the noise floor, the landscape."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy

from kt_lab.errors import UsageError
from kt_lab.landscape import Landscape
from kt_lab.runners.replay import judged_us


def expected_best(
    values: Sequence[float | None],
    draws: Sequence[int] | int,
    *,
    judged: Sequence[float | None] | None = None,
    optimum_us: float | None = None,
) -> pd.DataFrame:
    """Returns exactly what uniform random search without replacement finds, nothing sampled.

    Of N configs, k are drawn; the incumbent is the drawn config with the lowest value, the
    earliest drawn of equals. A failure (null) is a draw that yields nothing. With the ok values
    in ascending order x_(1) <= ... <= x_(n), the incumbent is the i-th with probability
    C(N - i, k - 1) / C(N, k).

    Args:
        values: What a searcher would read, one per config of the space, shape (N,), in
            microseconds; null: failed.
        draws: k, or several; each in 1..N.
        judged: What the same configs are judged by, shape (N,): configs are picked by `values`
            and reported by `judged`, as the searchers are. None: the values themselves.
        optimum_us: Divides every latency, so that it fits curves relative to the optimum.

    Returns:
        One row per k: `draws`, `expected` (mean of the incumbent's judged latency, GIVEN that
        there is one: some draw was ok and the incumbent has a judged value; null when that is
        impossible), `median` (of the unconditional distribution in which no incumbent counts as
        infinite; null when infinite), `p_none` (probability that there is none) and `unit`
        ("us", or "ratio" when divided).

    Source:
        E[min of k] = sum_i x_(i) C(N - i, k - 1) / C(N, k), in logarithms of the gamma function.
    """
    reading = _column(values, "values")
    judge = reading if judged is None else _column(judged, "judged")
    counts = np.atleast_1d(np.asarray(draws, dtype=np.int64))
    if judge.shape != reading.shape:
        raise UsageError(
            f"judged must hold one value per config, got {judge.size} for {reading.size} values"
        )
    if counts.size == 0 or counts.min() < 1 or counts.max() > reading.size:
        raise UsageError(f"draws must lie in 1..{reading.size} (the configs), got {draws}")
    ok = np.flatnonzero(~np.isnan(reading))
    ranked = ok[np.argsort(reading[ok], kind="stable")]
    latency = judge[ranked] / (1.0 if optimum_us is None else optimum_us)  # (n,)
    ties = np.unique(reading[ranked], return_inverse=True)[1]
    rows = [_best_of(latency, ties, reading.size, int(k)) for k in counts]
    table = pd.DataFrame(rows, columns=["draws", "expected", "median", "p_none"])
    return table.assign(unit="us" if optimum_us is None else "ratio")


def _column(values: Sequence[float | None], name: str) -> np.ndarray:
    """Returns the latencies as floats, null as NaN."""
    column = pd.Series(values).to_numpy(float, na_value=np.nan)
    if column.size == 0 or (column <= 0).any() or np.isinf(column).any():
        raise UsageError(
            f"{name} must hold at least one config and only finite latencies > 0 or null, "
            f"got {column.size} values; a failed config is null, not 0 or inf"
        )
    return column


def _best_of(latency: np.ndarray, ties: np.ndarray, total: int, k: int) -> tuple:
    """Returns draws, expected, median and p_none for k draws."""
    chance = _rank_probability(latency.size, total, k)
    if latency.size:  # equals are drawn in random order: they share their probability
        chance = (np.bincount(ties, weights=chance) / np.bincount(ties))[ties]
    judged = ~np.isnan(latency)
    found = chance[judged].sum()
    if found <= 0:
        return k, np.nan, np.nan, 1.0
    expected = (chance[judged] @ latency[judged]) / found
    order = np.argsort(latency[judged], kind="stable")
    below = np.cumsum(chance[judged][order])
    at = np.searchsorted(below, 0.5 * (1 - 1e-12))
    median = latency[judged][order][at] if at < below.size else np.nan
    return k, expected, median, max(0.0, 1.0 - found)


def _rank_probability(ok: int, total: int, k: int) -> np.ndarray:
    """Returns, for ranks 1..ok, the probability that the best of k of `total` has that rank."""
    rank = np.arange(1, ok + 1)
    worse = total - rank  # configs that the other k - 1 draws may come from, failures included
    possible = worse >= k - 1
    worse = np.where(possible, worse, k - 1)
    log_gamma = scipy.special.gammaln
    logs = log_gamma(worse + 1) - log_gamma(k) - log_gamma(worse - k + 2)
    logs = logs - (log_gamma(total + 1) - log_gamma(k + 1) - log_gamma(total - k + 1))
    return np.where(possible, np.exp(logs), 0.0)


def readings(landscapes: Iterable[Landscape]) -> pd.DataFrame:
    """Returns what searchers read and are judged by, for `kt_lab.comparison.methodology`.

    Returns:
        One row per landscape, visit that is read and recorded config: `gpu`, `kernel`,
        `workload`, `visit`, `config`, `latency_us` (median of that visit), `judged_us` (of the
        others); microseconds, null where the config failed.
    """
    parts = []
    for landscape in landscapes:
        at = landscape.table.index.to_numpy()
        for visit in range(landscape.visits):
            facts = {name: getattr(landscape, name) for name in ("gpu", "kernel", "workload")}
            part = pd.DataFrame(facts | {"visit": visit, "config": at})
            part["latency_us"] = landscape.medians_us(visit)[at]
            parts.append(part.assign(judged_us=judged_us(landscape, visit=visit)[at]))
    return pd.concat(parts, ignore_index=True)


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """The regret of picking the best of one noisy reading of every config, and its parts.

    Attributes:
        regret: Mean over both directions of (judged latency of the pick / optimum_us) - 1, >= 0
            when the pooled latency is the mean of the two visits.
        optimum_us: Lowest pooled latency of any config, in microseconds.
        optimum: Position of that config.
        picks: Positions picked by the first and by the second visit.
        judged_us: The two picks, each read from the visit that did not pick it, in microseconds.
        read_us: The two picks as read by the visit that picked them: what a search that never
            re-measures would claim.
        configs: How many configs are ok in both visits; only those take part.
        excluded: How many are ok in one visit only.
    """

    regret: float
    optimum_us: float
    optimum: int
    picks: tuple[int, int]
    judged_us: tuple[float, float]
    read_us: tuple[float, float]
    configs: int
    excluded: int

    @property
    def level(self) -> float:
        """The floor relative to the optimum, 1 + regret: the dotted line of the figures."""
        return 1 + self.regret


def noise_floor(
    first_visit_us: Sequence[float | None],
    second_visit_us: Sequence[float | None],
    *,
    pooled_us: Sequence[float | None] | None = None,
) -> NoiseFloor:
    """Returns the regret of an exhaustive search that reads every config once.

    Cross-fitted: the config with the lowest reading in one visit is judged by its reading in the
    other, and both directions are averaged, so that a drift between the visits cancels. No
    reading judges a choice that it took part in.

    The optimum is the lowest pooled latency of any config. That minimum did choose itself, so it
    is biased low, and the floor is an upper bound of the true regret. The bias is in the common
    denominator: curves of judged latencies divided by the same optimum carry it as well, so a
    curve and the floor compare without bias. Only a searcher that measures its best configs
    again can go below the floor.

    Args:
        first_visit_us: Median latency per config in the first visit, shape (configs,), in
            microseconds; null: not ok.
        second_visit_us: The same configs in the second visit.
        pooled_us: Median over the samples of all visits per config; None: the mean of the two
            visits' medians, for which the regret is never negative.

    """
    first, second = _column(first_visit_us, "visits"), _column(second_visit_us, "visits")
    if first.shape != second.shape:
        raise UsageError(f"both visits must hold every config, got {first.size} and {second.size}")
    pooled = (first + second) / 2 if pooled_us is None else _column(pooled_us, "pooled_us")
    both = ~(np.isnan(first) | np.isnan(second) | np.isnan(pooled))
    if not both.any():
        raise UsageError(
            f"a noise floor needs a config that is ok in both visits, got 0 of {first.size}"
        )
    by_first = int(np.argmin(np.where(both, first, np.inf)))
    by_second = int(np.argmin(np.where(both, second, np.inf)))
    optimum = int(np.argmin(np.where(both, pooled, np.inf)))
    judged = (float(second[by_first]), float(first[by_second]))
    return NoiseFloor(
        regret=sum(judged) / 2 / float(pooled[optimum]) - 1,
        optimum_us=float(pooled[optimum]),
        optimum=optimum,
        picks=(by_first, by_second),
        judged_us=judged,
        read_us=(float(first[by_first]), float(second[by_second])),
        configs=int(both.sum()),
        excluded=int((np.isnan(first) ^ np.isnan(second)).sum()),
    )


def landscape_profile(landscapes: pd.DataFrame) -> pd.DataFrame:
    """Returns which share of all configs lies within a factor of the best, per workload.

    Args:
        landscapes: Columns `workload`, `latency_us` (null: failed) and, where known, `gpu` and
            `kernel`; one row per config.

    Returns:
        Those key columns, `ratio` (latency / lowest of the workload, ascending) and `share`
        (configs at most that slow / all configs, failures included, so it ends below 1 where
        configs fail), `n_configs`, `n_ok`.
    """
    keys = [name for name in ("gpu", "kernel", "workload") if name in landscapes.columns]
    if "workload" not in keys or "latency_us" not in landscapes.columns:
        raise UsageError(
            "landscapes must hold the columns workload and latency_us, got "
            f"{', '.join(map(str, landscapes.columns))}"
        )
    parts = []
    for cell, table in landscapes.groupby(keys, observed=True, sort=True):
        ok = np.sort(table["latency_us"].dropna().to_numpy(float))
        part = pd.DataFrame({"ratio": ok / ok[0] if ok.size else ok})
        part["share"] = np.arange(1, ok.size + 1) / len(table)
        part["n_configs"], part["n_ok"] = len(table), ok.size
        for name, value in zip(reversed(keys), reversed(cell), strict=True):
            part.insert(0, name, value)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)
