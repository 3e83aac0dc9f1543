"""How much evidence a difference needs: variance components, power, seeds and kernels."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
import pandas as pd
import scipy

from kt_lab.errors import UnknownName, UsageError
from kt_lab.stats.budgets import workload_logs
from kt_lab.stats.tables import check_searcher

CLAIMS = ("kernels", "workloads")
_MIDDLES = (np.arange(4000) + 0.5) / 4000
_MOST = 10**6


@dataclass(frozen=True, slots=True)
class Components:
    """Variances of the log latency ratio of two searchers; all >= 0, unitless.

    Attributes:
        kernel: Of the kernels' true mean differences.
        workload: Of the workloads' true differences within a kernel.
        seed: Of one seed's difference within a workload: the sum of both searchers' variances.
        kernels: How many kernels they were estimated from.
        workloads: Workloads per kernel, on average.
        seeds: Seeds per workload and searcher, the fewest.
    """

    kernel: float
    workload: float
    seed: float
    kernels: int = 1
    workloads: float = 1.0
    seeds: int = 1


def variance_components(
    runs: pd.DataFrame,
    searcher: str,
    reference: str,
    *,
    budget: float | None = None,
    x: str = "spent_trials",
) -> Components:
    """Returns the variance components of a comparison, by the method of moments.

    Expected mean squares of the nested layout seeds < workloads < kernels, both searchers' seeds
    independent; estimates below 0 become 0, and a component without degrees of freedom (one
    kernel; one workload in every kernel) is 0: no evidence of it is not evidence of none.

    Args:
        runs: The tidy table of runs, of one lane count, >= 2 seeds, an incumbent in every run.
        searcher: The searcher that is judged.
        reference: The one it is divided by.
        budget: In x; None: the end of the run.
        x: "spent_trials", "machine_s" or "elapsed_s".

    Source:
        Searle, Casella and McCulloch, "Variance Components" 1992, section 3.6 (ANOVA estimators
        of the nested model, unbalanced).
    """
    both = [check_searcher(runs, name) for name in (searcher, reference)]
    logs = workload_logs(runs[runs["searcher"].isin(both)], (budget,), x=x)
    arms = logs.groupby(["kernel", "workload", "searcher"], observed=True)["log"]
    mean, var, runs_of = (arms.agg(name).unstack()[both] for name in ("mean", "var", "size"))
    if not np.isfinite(mean + var).all(axis=None):
        raise UsageError("variance components need >= 2 runs per workload and searcher, each "
                         "with an incumbent by that budget, got fewer")  # fmt: skip
    difference = (mean[searcher] - mean[reference]).groupby(level="kernel")
    noise = (var / runs_of).sum(axis=1).groupby(level="kernel").mean()
    size = difference.size()
    free = size - 1
    squares = (difference.var(ddof=0) * size).sum()
    workload = max(0.0, (squares - (free * noise).sum()) / max(free.sum(), 1))
    between = 0.0
    if len(size) > 1:
        between = max(0.0, difference.mean().var() - ((workload + noise) / size).mean())
    seed, fewest = float(var.sum(axis=1).mean()), int(runs_of.min(axis=None))
    return Components(between, workload, seed, len(size), float(size.mean()), fewest)


def power(
    components: Components,
    *,
    kernels: int,
    seeds: int,
    workloads: float | None = None,
    difference: float = 0.01,
    level: float = 0.05,
    claim: str = "kernels",
) -> float:
    """Returns the chance that a two-sided t-test finds a difference that is really there.

    Args:
        components: The variances, from `variance_components`.
        kernels: K, how many.
        seeds: S, per workload and searcher.
        workloads: W, per kernel; None: as in the components.
        difference: The true geomean ratio - 1, e.g. 0.01.
        level: Of the test, in (0, 1).
        claim: "kernels": about kernels at large; variance kernel/K + workload/(K W) +
            seed/(K W S) and K - 1 degrees of freedom, so more seeds help only so far.
            "workloads": about the very workloads that were run; variance seed/(K W S) and
            2 K W (S - 1) degrees of freedom.

    Returns:
        In [0, 1]; 0 without degrees of freedom.

    Source:
        The noncentral t distribution: Cohen 1988, section 2.
    """
    if claim not in CLAIMS:
        raise UnknownName("claim", claim, CLAIMS)
    if not difference > -1 or difference == 0 or min(kernels, seeds) < 1:
        given = f"{difference}, {kernels}, {seeds}"
        raise UsageError(
            f"a difference > -1, not 0, and kernels, seeds >= 1 are needed, got {given}"
        )
    cells = kernels * (components.workloads if workloads is None else workloads)
    variance, freedom = components.seed / (cells * seeds), 2 * cells * (seeds - 1)
    if claim == "kernels":
        variance += components.kernel / kernels + components.workload / cells
        freedom = kernels - 1
    if freedom <= 0:
        return 0.0
    if variance == 0:
        return 1.0
    shift = abs(math.log1p(difference)) / math.sqrt(variance)
    # The noncentral t as a mean over the estimated error: scipy's own is NaN for few degrees.
    error = _errors(freedom)
    reach = scipy.stats.t.isf(level / 2, freedom) * error
    return float(np.mean(scipy.special.ndtr(shift - reach) + scipy.special.ndtr(-reach - shift)))


@lru_cache(maxsize=512)
def _errors(freedom: float) -> np.ndarray:
    """Returns evenly likely estimates of a standard deviation of 1; one search asks for many."""
    return np.sqrt(scipy.stats.chi2.ppf(_MIDDLES, freedom) / freedom)


def power_table(
    components: Components,
    *,
    difference: float = 0.01,
    powers: Sequence[float] = (0.8, 0.9),
    level: float = 0.05,
) -> pd.DataFrame:
    """Returns how many seeds, and how many kernels, resolve a difference.

    Args:
        components: The variances; what is not varied stays as they say.
        difference: The true geomean ratio - 1.
        powers: Wanted chances of finding it.
        level: Of the two-sided test.

    Returns:
        One row per claim, varied number and power: `claim`, `vary` ("seeds" or "kernels"),
        `power`, `needed` (the smallest number that suffices; null: none up to a million, as when
        only more kernels would help), `kernels`, `workloads`, `seeds` (what was held),
        `power_now` (as the components were estimated), `difference`, `level`.
    """
    held = {"kernels": components.kernels, "seeds": components.seeds}
    facts = {"difference": difference, "level": level}
    rows = []
    for claim, vary, wanted in product(CLAIMS, held, powers):

        def found(n: int, claim=claim, vary=vary) -> float:
            return power(components, **held | {vary: n}, **facts, claim=claim)

        needed = 1 + bisect_left(range(1, _MOST + 1), wanted, key=found)
        row = {"claim": claim, "vary": vary, "power": wanted}
        row["needed"] = needed if needed <= _MOST else None
        row |= held | {"workloads": components.workloads, "power_now": found(held[vary])}
        rows.append(row | facts)
    return pd.DataFrame(rows).astype({"needed": "Int64"})
