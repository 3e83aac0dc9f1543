"""Tables of a comparison: each answers one question, from runs of one lane count."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from kt_lab import stats, study
from kt_lab.baseline import readings
from kt_lab.cells import recorded
from kt_lab.comparison.methodology import methodology_scores
from kt_lab.errors import UsageError
from kt_lab.landscape import Landscape
from kt_lab.stats.budgets import BUDGETS, Budgets, judged_at, workload_logs
from kt_lab.stats.tables import GROUP, RUN, check_searcher, single_lanes
from kt_lab.studies import REFERENCE

MOST_LINES = 8
Landscapes = Sequence[Landscape] | None
_SHARES = (0.25, 0.5, 1.0, 2.0)
_ALWAYS = "random"  # is among the chosen wherever it ran
_SHARED = ("lanes", "gpu", "n_success", "n_runs", "n_kernels", "n_workloads", "n_gpus", "n_seeds",
           "confidence")  # fmt: skip


def landscapes_of(runs: pd.DataFrame, given: Landscapes = None) -> list[Landscape]:
    """Returns the landscape of every GPU and workload of the runs: a given one, or as it ships."""
    known = {(each.gpu, each.workload): each for each in given or ()}
    cells = runs[["gpu", "workload"]].astype(str).drop_duplicates()
    return [
        known[gpu, workload] if (gpu, workload) in known else recorded(workload, gpu)
        for gpu, workload in cells.sort_values(["workload", "gpu"]).itertuples(index=False)
    ]


def optima_table(runs: pd.DataFrame, *, landscapes: Landscapes = None) -> pd.DataFrame:
    """Returns `gpu`, `kernel`, `workload`, `optimum_us` (judged) and `noise_floor` (relative)."""
    return pd.DataFrame(
        {"gpu": each.gpu, "kernel": each.kernel, "workload": each.workload} | study.levels(each)
        for each in landscapes_of(runs, landscapes)
    )


def budget_table(
    runs: pd.DataFrame,
    budgets: Budgets = BUDGETS,
    *,
    seconds: Sequence[float] | None = None,
    reference: str = REFERENCE,
    landscapes: Landscapes = None,
    **how: float,
) -> pd.DataFrame:
    """Returns what every searcher holds at budgets of trials and of seconds, and how sure that is.

    Args:
        runs: The tidy table of runs.
        budgets: In trials; None: the end of the run. Those that no run exceeds are left out,
            since they equal it.
        seconds: Budgets of elapsed seconds; None: a quarter, half, all and twice of what the
            reference's median run takes, to two digits; empty: none.
        reference: What the others are divided by and tested against.
        landscapes: Those that do not ship.
        **how: `confidence`, `resamples` and `seed` of the intervals.

    Returns:
        One row per `axis`, `budget` (null: the end) and `searcher`: `estimate`, `low`, `high`,
        `p90`, `worst` (latency over the optimum, geomeans over workloads: of all seeds with its
        interval, of their 90th percentiles, of the worst ones), `reference`, `ratio`,
        `ratio_low`, `ratio_high` (to it), `rank_biserial` (over workloads), `p_workload`,
        `p_kernel` (null for the reference; corrected by Holm for the searchers of that budget,
        not for budgets), `smallest_p_workload`, `smallest_p_kernel` (before correction),
        `probability_best`, and the counts of `kt_lab.stats.latency_at`.
    """
    _check(runs, reference)
    optima = optima_table(runs, landscapes=landscapes)
    most = runs.groupby(list(RUN), observed=True)["first"].sum().max()
    axes: dict[str, Budgets] = {"spent_trials": [b for b in budgets if b is None or b < most]}
    axes["elapsed_s"] = _seconds(runs, reference) if seconds is None else seconds
    parts = []
    for x, points in axes.items():
        for budget, ended in _ended(runs, points, x) if len(points) else ():
            part = _at_budget(ended, optima, reference, **how)
            part.insert(0, "budget", np.nan if np.isinf(budget) else budget)
            part.insert(0, "axis", x)
            parts.append(part)
    if not parts:
        raise UsageError(f"a budget must be below the {most:g} trials of the runs, or None")
    return pd.concat(parts, ignore_index=True)


def _check(runs: pd.DataFrame, reference: str) -> None:
    single_lanes(runs)
    check_searcher(runs, reference)
    if runs["searcher"].astype(str).nunique() < 2:
        raise UsageError(f"a comparison needs at least two searchers, got {reference} only")


def _seconds(runs: pd.DataFrame, reference: str) -> list[float]:
    """Returns round seconds: multiples of how long the reference's median run takes."""
    own = runs[runs["searcher"] == reference]
    spent = (own["machine_s"] + own["search_s"]).astype(float)
    ends = spent.groupby([own[name] for name in RUN], observed=True).max()
    return sorted({float(f"{share * ends.median():.2g}") for share in _SHARES})


def _ended(runs: pd.DataFrame, budgets: Budgets, x: str):
    """Yields per budget the runs as if each consisted of its incumbent then, as one trial.

    Statistics of the end of these runs are those of the runs at that budget, without counting a
    million trials again for each of them.
    """
    for budget, at in judged_at(runs, budgets, x=x).groupby("budget", sort=True):
        yield budget, _one_trial(at)


def _one_trial(at: pd.DataFrame) -> pd.DataFrame:
    """Returns runs of one trial that read, and are judged by, `judged_us`; inf: it failed."""
    facts = {"trial": 0, "config": 0, "first": True, "repetitions": 1, "machine_s": 0.0}
    status = np.where(np.isfinite(at["judged_us"]), "ok", "timeout")
    return at.assign(**facts, search_s=0.0, latency_us=at["judged_us"], status=status)


def _typical(ended: pd.DataFrame) -> pd.DataFrame:
    """Returns one run per workload and searcher, the geomean over seeds: all that tests see."""
    logs = np.log(ended["judged_us"]).groupby([ended[name] for name in GROUP], observed=True)
    return _one_trial(np.exp(logs.mean()).reset_index().assign(seed=0))


def _at_budget(
    ended: pd.DataFrame, optima: pd.DataFrame, reference: str, **how: float
) -> pd.DataFrame:
    """Returns the rows of one budget."""
    both = stats.latency_at(ended, (None,), optima=optima, reference=reference, **how)
    means = both[both["scope"] == "geomean"].set_index("searcher")
    own = means[means["reference"] == "optimum"]
    table = own[["estimate", "low", "high", "p90", "worst"]].assign(reference=reference)
    against = means[means["reference"] == reference]
    for name, column in (("ratio", "estimate"), ("ratio_low", "low"), ("ratio_high", "high")):
        table[name] = against[column]
    typical = _typical(ended)
    for unit in ("workload", "kernel"):
        tests = stats.paired_tests(typical, reference=reference, unit=unit).set_index("searcher")
        table[f"p_{unit}"] = tests["p_holm"]
        table[f"smallest_p_{unit}"] = tests["smallest_p"].max()
        if unit == "workload":
            table.insert(table.columns.get_loc("p_workload"), "rank_biserial",
                         tests["rank_biserial"])  # fmt: skip
    few = {name: value for name, value in how.items() if name != "confidence"}
    best = stats.probability_best(ended, **few).set_index("searcher")["probability"]
    return table.assign(probability_best=best).join(own[list(_SHARED)]).reset_index()


def significance_table(
    runs: pd.DataFrame,
    *,
    reference: str | None = REFERENCE,
    budget: float | None = None,
    x: str = "spent_trials",
) -> pd.DataFrame:
    """Returns signed-rank tests over kernels and over workloads; see `stats.paired_tests`.

    Args:
        runs: The tidy table of runs.
        reference: Every other searcher is tested against it; None: all pairs.
        budget: In x; None: the end of the run.
        x: "spent_trials", "machine_s" or "elapsed_s".
    """
    _check(runs, reference or str(runs["searcher"].iloc[0]))
    [(_, ended)] = _ended(runs, (budget,), x)
    tables = [
        stats.paired_tests(ended, reference=reference, unit=u) for u in ("kernel", "workload")
    ]
    return pd.concat(tables, ignore_index=True).assign(axis=x, budget=float(budget or np.nan))


def running_time_table(
    runs: pd.DataFrame, *, landscapes: Landscapes = None, **how: Any
) -> pd.DataFrame:
    """Returns expected running times to near the optimum; `how` as in `stats.running_times`."""
    return stats.running_times(runs, optima_table(runs, landscapes=landscapes), **how)


def methodology_table(
    runs: pd.DataFrame,
    *,
    reference: str = REFERENCE,
    landscapes: Landscapes = None,
    **how: Any,
) -> pd.DataFrame:
    """Returns the score P of every searcher up to the budget; see `methodology_scores`."""
    known = landscapes_of(runs, landscapes)
    limit = int(runs.groupby(list(RUN), observed=True)["first"].sum().max())
    optima = optima_table(runs, landscapes=known)
    how = {"limit": limit} | how
    return methodology_scores(runs, readings(known), optima, reference=reference, **how)


def power_table(
    runs: pd.DataFrame, *, reference: str = REFERENCE, difference: float = 0.01, **how: Any
) -> pd.DataFrame:
    """Returns how many seeds and kernels resolve a difference; see `stats.power_table`.

    Returns:
        Its rows for every `searcher` against the `reference`, and the standard deviations
        `kernel_sd`, `workload_sd`, `seed_sd` of the log ratio; a searcher whose variance is not
        known (one seed, or a run without an incumbent) has one row of nulls.
    """
    _check(runs, reference)
    [(_, ended)] = _ended(runs, (None,), "spent_trials")
    workload_logs(ended)  # raises where a searcher lacks some workload: that is no lack of seeds
    parts = []
    for name in sorted(set(ended["searcher"].astype(str)) - {reference}):
        facts = {"searcher": name, "reference": reference, "difference": difference}
        try:
            found = stats.variance_components(ended, name, reference)
        except UsageError:
            parts.append(pd.DataFrame([facts]))
            continue
        table = stats.power_table(found, difference=difference, **how)
        deviations = {f"{k}_sd": getattr(found, k) ** 0.5 for k in ("kernel", "workload", "seed")}
        parts.append(table.assign(**facts, **deviations))
    return pd.concat(parts, ignore_index=True)


def leaders(
    runs: pd.DataFrame,
    *,
    table: pd.DataFrame | None = None,
    reference: str | None = REFERENCE,
    most: int | None = MOST_LINES,
) -> list[str]:
    """Returns at most so many searchers: the likeliest best, then the reference and random search.

    Ordered by the probability of being best at the end of the runs, equals by geomean latency.

    Args:
        runs: The tidy table of runs.
        table: From `budget_table`, of the searchers among which they are; None: of all, anew.
        reference: Is among them, as random search is, if they ran; None: neither need be.
        most: How many; None: all, by geomean latency alone.
    """
    if table is None or not table["budget"].isna().any():
        [(_, ended)] = _ended(runs, (None,), "spent_trials")
        best = stats.probability_best(ended)
    else:
        best = table[table["budget"].isna()].drop_duplicates("searcher")  # of several axes
        best = best.rename(columns={"probability_best": "probability"})
    if most is None:
        return list(best.sort_values(["ratio", "searcher"])["searcher"].astype(str))
    best = best.sort_values(["probability", "ratio"], ascending=[False, True])
    names = list(best["searcher"].astype(str))
    wanted = () if reference is None else dict.fromkeys((reference, _ALWAYS))
    always = [name for name in wanted if name in names]
    others = [name for name in names if name not in always]
    return [*others[: max(0, most - len(always))], *always][:most]
