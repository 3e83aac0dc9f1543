"""Is the difference real: signed-rank tests over kernels, and the probability of being best."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
import scipy

from kt_lab.errors import UnknownName
from kt_lab.stats.budgets import workload_logs, workload_means
from kt_lab.stats.intervals import Draw, log_ratio, mean_log, resample_means
from kt_lab.stats.pairs import Bootstrap, Sample, draw_logs
from kt_lab.stats.tables import check_searcher, single_lanes

_ENUMERATED = 13  # pairs
_UNITS = ("kernel", "workload")


def holm(p: Sequence[float]) -> np.ndarray:
    """Returns p-values adjusted for how many there are, shape (n,), in the order given.

    Source:
        Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 1979.
    """
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(p[order] * (p.size - np.arange(p.size)))
    return np.minimum(adjusted, 1.0)


def paired_tests(
    runs: pd.DataFrame,
    *,
    reference: str | None = "pattern",
    unit: str = "kernel",
    budget: float | None = None,
    x: str = "spent_trials",
) -> pd.DataFrame:
    """Returns signed-rank tests of log latency ratios, corrected for their number.

    A pair is one unit: the mean over seeds, then (unit "kernel") over the kernel's workloads, of
    both searchers' log latencies. Kernels are the unit of evidence: workloads of one kernel are
    alike, so p-values over workloads are too small and only describe these workloads. With n
    pairs no p-value can be below 2^(1-n), so fewer than 6 kernels never reach 0.05: read
    `smallest_p` before `p`.

    Args:
        runs: The tidy table of runs, of one lane count.
        reference: Every other searcher is compared with it; None: all pairs.
        unit: "kernel" or "workload".
        budget: In x; None: the end of the run.
        x: "spent_trials", "machine_s" or "elapsed_s".

    Returns:
        One row per comparison: `unit`, `axis`, `budget` (null: the end), `searcher`, `reference`,
        `lanes`, `n_pairs`, `n_zero` (pairs without a difference), `ratio` (geomean over the
        units), `rank_biserial` (of matched pairs, -1: the searcher is faster in every pair, 1:
        slower in every one), `p` (two-sided), `smallest_p`, `inverse` (1 / ratio; infinite, too,
        where each finds nothing somewhere), `p_holm` (over the rows of this table). No row when
        there is one searcher only.

    Source:
        Wilcoxon 1945; zero differences as Pratt 1959 (ranked, then left out); the distribution
        is exact up to 50 pairs, up to 13 where there are ties or zeros, normal beyond. Effect
        size: Kerby, "The simple difference formula", Comprehensive Psychology 2014.
    """
    if unit not in _UNITS:
        raise UnknownName("unit", unit, _UNITS)
    wide = workload_means(workload_logs(runs, (budget,), x=x))
    pairs = list(combinations(wide.columns, 2))
    if reference is not None:
        check_searcher(runs, reference)
        pairs = [(name, reference) for name in wide.columns if name != reference]
    rows = []
    facts = {"unit": unit, "axis": x, "budget": float(budget or np.nan)}
    for searcher, other in pairs:
        logs = pd.Series(log_ratio(wide[searcher], wide[other]), index=wide.index)
        both = [logs, -logs]
        if unit == "kernel":
            both = [s.groupby("kernel").agg(lambda part: mean_log(part.to_numpy())) for s in both]
        who = {"searcher": searcher, "reference": other, "lanes": single_lanes(runs)}
        # rounded: sums that differ in their order only are ties
        logs, back = (s.round(12).to_numpy() for s in both)
        rows.append(facts | who | signed_ranks(logs) | {"inverse": np.exp(mean_log(back))})
    return pd.DataFrame(rows).assign(p_holm=holm([row["p"] for row in rows]))


def signed_ranks(logs: np.ndarray) -> dict[str, float]:
    """Returns the signed-rank test of log ratios, shape (n,), n >= 1: see `paired_tests`."""
    ranks = scipy.stats.rankdata(np.abs(logs))
    slower, faster = ranks[logs > 0].sum(), ranks[logs < 0].sum()
    some = slower + faster > 0
    return {
        "n_pairs": logs.size,
        "n_zero": int((logs == 0).sum()),
        "ratio": float(np.exp(mean_log(logs))),
        "rank_biserial": float((slower - faster) / (slower + faster)) if some else 0.0,
        "p": _p_value(logs, ranks) if some else 1.0,
        "smallest_p": 2.0 ** (1 - logs.size),
    }


def _p_value(logs: np.ndarray, ranks: np.ndarray) -> float:
    """Returns the two-sided p of signed ranks; few pairs by all their signs at once.

    `scipy.stats.wilcoxon` gives the same, but tries one by one where there are ties or zeros.
    """
    if logs.size > _ENUMERATED:
        return float(scipy.stats.wilcoxon(logs, zero_method="pratt").pvalue)
    ranks, above = ranks[logs != 0], logs[logs != 0] > 0
    signs = np.arange(2**ranks.size)[:, None] >> np.arange(ranks.size) & 1
    sums = signs @ ranks  # halves of integers: exact
    tails = (sums <= ranks @ above).mean(), (sums >= ranks @ above).mean()
    return min(1.0, 2 * float(min(tails)))


def probability_best(
    runs: pd.DataFrame, *, budget: float | None = None, x: str = "spent_trials", **how: float
) -> pd.DataFrame:
    """Returns how often each searcher has the lowest geomean when the evidence is drawn anew.

    Kernels, their workloads and their seeds are resampled as for the intervals, the same for
    every searcher; those that tie for the lowest share the resample.

    Args:
        runs: The tidy table of runs, of one lane count, every searcher on every workload.
        budget: In x; None: the end of the run.
        x: "spent_trials", "machine_s" or "elapsed_s".
        **how: `resamples` and `seed` of the resampling.

    Returns:
        One row per searcher: `axis`, `budget` (null: the end), `searcher`, `lanes`, `probability`
        (sums to 1), `ratio` (its geomean over the lowest of any searcher), `n_kernels`,
        `n_workloads`.

    Source:
        Efron and Tibshirani 1998, "The problem of regions" (bootstrap shares as confidence).
    """
    logs = workload_logs(runs, (budget,), x=x)
    bootstrap = Bootstrap(**how)
    means = resample_means(seed_draws(logs, "log"), bootstrap.resamples, bootstrap.rng(""))
    means = np.round(means, 12)  # equal sums in another order are ties
    lowest = means == means.min(axis=1, keepdims=True)
    mean = workload_means(logs).mean()
    about = {"axis": x, "budget": float(budget or np.nan), "searcher": mean.index.astype(str)}
    found = pd.DataFrame(about | {"lanes": single_lanes(runs)})
    found["probability"] = (lowest / lowest.sum(axis=1, keepdims=True)).mean(axis=0)
    found["ratio"] = np.exp(log_ratio(mean.to_numpy(), np.full(len(mean), mean.min())))
    return found.assign(n_kernels=logs["kernel"].nunique(), n_workloads=logs["workload"].nunique())


def seed_draws(values: pd.DataFrame, column: str) -> dict[str, list[Draw]]:
    """Returns per kernel the draws of its workloads, each of all searchers at once, by name.

    Args:
        values: Columns `kernel`, `workload`, `searcher`, `seed` and `column`; one row per run,
            every searcher on every workload.
        column: What is averaged over seeds.
    """
    draws: dict[str, list[Draw]] = {}
    for (kernel, _), table in values.groupby(["kernel", "workload"], observed=True, sort=True):
        samples = [
            Sample(part["seed"].to_numpy(), part[column].to_numpy(), np.ones(len(part)), True, 0)
            for _, part in table.sort_values("seed").groupby("searcher", observed=True, sort=True)
        ]
        draw = lambda n, rng, samples=samples: draw_logs(samples, n, rng)  # noqa: E731
        draws.setdefault(str(kernel), []).append(draw)
    return draws
