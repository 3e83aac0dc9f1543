"""Drawings of a comparison, at the width of a paper's text."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from kt_lab import plots, stats, study
from kt_lab.comparison.tables import (
    Landscapes,
    budget_table,
    landscapes_of,
    leaders,
    optima_table,
    significance_table,
)
from kt_lab.errors import UsageError
from kt_lab.plots.anatomy import caption_anatomy, plot_anatomy
from kt_lab.plots.captions import counted, evidence, limits
from kt_lab.plots.style import style_order
from kt_lab.stats.surrogates import calibration, model_choices, surrogate_quality
from kt_lab.stats.tables import CELL, RUN, check_searcher, single_lanes
from kt_lab.studies import NAMED, REFERENCE
from kt_lab.study import VENUE, Drawing
from kt_lab.trial import OK

_FEW = 6  # searchers in an anatomy
_MOST_RUNS = 0.5  # of all: when so many spent the same number of trials, that was their budget


def budget_figure(
    runs: pd.DataFrame,
    *,
    table: pd.DataFrame | None = None,
    axis: str = "spent_trials",
    reference: str = REFERENCE,
    landscapes: Landscapes = None,
    venue: str = VENUE,
    width: str = "text",
) -> Drawing:
    """Draws how far every searcher is above the optimum at budgets, best on top.

    Args:
        runs: The tidy table of runs.
        table: From `budget_table` of these runs; None: made here.
        axis: Which of its axes: "spent_trials" or "elapsed_s".
        reference: As for `budget_table`.
        landscapes: Those that do not ship.
        venue: Whose page; see `plots.paper`.
        width: "text" or "column".
    """
    if table is None:
        table = budget_table(runs, reference=reference, landscapes=landscapes)
    shown = table[table["axis"] == axis].reset_index(drop=True)
    with plots.paper(venue, width=width):
        fig = plots.plot_budgets(shown)
    caption = plots.caption_budgets(shown, evidence=evidence_of(runs))
    return Drawing(fig, shown, caption, sources=(runs, landscapes or ()))


def profiles_figure(
    runs: pd.DataFrame,
    *,
    chosen: Sequence[str] | None = None,
    x: str = "spent_trials",
    reference: str = REFERENCE,
    landscapes: Landscapes = None,
    venue: str = VENUE,
    width: str = "text",
) -> Drawing:
    """Draws which share of targets is reached at what cost, and who is how often near the best.

    Args:
        runs: The tidy table of runs.
        chosen: Searchers in their own looks, the others grey; None: the `leaders`.
        x: Of the left panel: "spent_trials", "machine_s" or "elapsed_s".
        reference: Is among the leaders.
        landscapes: Those that do not ship.
        venue: Whose page.
        width: "text" or "column".
    """
    optima = optima_table(runs, landscapes=landscapes)
    chosen = _chosen(runs, chosen, reference)
    ecdf = stats.runtime_ecdf(runs, optima, x=x)
    final = stats.latency_at(runs, (None,), optima=optima, reference=None, resamples=1)
    profile = stats.performance_profile(final)
    with plots.paper(venue, width=width):
        fig = plots.plot_profiles(ecdf, profile, chosen=chosen)
    caption = plots.caption_profiles(ecdf, profile, evidence=evidence_of(runs), chosen=chosen)
    points = {"runtime_ecdf": ecdf, "profile": profile}
    return Drawing(fig, points, caption, sources=(runs, landscapes or ()))


def significance_figure(
    runs: pd.DataFrame,
    *,
    table: pd.DataFrame | None = None,
    budget: float | None = None,
    x: str = "spent_trials",
    venue: str = VENUE,
    width: str | None = None,
) -> Drawing:
    """Draws all pairs of searchers with their tests over workloads, the fastest in the end on top.

    Args:
        runs: The tidy table of runs.
        table: From `budget_table` of these runs, for the order; None: found here.
        budget: In x; None: the end of the run.
        x: "spent_trials", "machine_s" or "elapsed_s".
        venue: Whose page.
        width: "text" or "column"; None: a column where searchers are few.
    """
    tests = significance_table(runs, reference=None, budget=budget, x=x)
    tests = tests[tests["unit"] == "workload"].reset_index(drop=True)
    names = leaders(runs, table=table, reference=None, most=None)
    with plots.paper(venue, columns=1 + (len(names) > 4), width=width):
        fig = plots.plot_significance(tests, order=names)
    kernels = runs["kernel"].astype(str).nunique()
    caption = plots.caption_significance(tests, kernels=kernels, evidence=evidence_of(runs))
    return Drawing(fig, tests, caption, sources=(runs,))


def ratio_figure(
    runs: pd.DataFrame,
    *,
    reference: str = REFERENCE,
    venue: str = VENUE,
    width: str = "text",
) -> Drawing:
    """Draws latency, wall-clock and convergence-time ratios: bars, or rows if bars look alike."""
    return _of_study(study.ratio_figure, runs, reference=reference, venue=venue, width=width)


def quality_figure(
    runs: pd.DataFrame,
    *,
    chosen: Sequence[str] | None = None,
    reference: str = REFERENCE,
    venue: str = VENUE,
    width: str | None = None,
) -> Drawing:
    """Draws quality against time of a few searchers; None: the `leaders`."""
    few = _only(runs, _chosen(runs, chosen, reference))
    return _of_study(study.quality_figure, few, reference=reference, venue=venue, width=width)


def convergence_figure(
    runs: pd.DataFrame,
    *,
    workloads: Sequence[str] | None = None,
    chosen: Sequence[str] | None = None,
    reference: str = REFERENCE,
    landscapes: Landscapes = None,
    venue: str = VENUE,
    width: str = "text",
) -> Drawing:
    """Draws the incumbents of a few searchers against trials and seconds.

    Args:
        runs: The tidy table of runs.
        workloads: A row each; None: those of the headline, else the first of every kernel.
        chosen: Searchers; None: the `leaders`.
        reference: Is among the leaders.
        landscapes: Those that do not ship.
        venue: Whose page.
        width: "text" or "column".
    """
    known = {each.workload: each for each in landscapes_of(runs, landscapes)}
    if workloads is None:
        firsts = {each.kernel: each.workload for each in reversed(known.values())}
        workloads = [name for name in NAMED if name in known] or list(firsts.values())
    shown = [known[name] if name in known else _unknown(name, known) for name in workloads]
    few = _only(runs, _chosen(runs, chosen, reference))
    cells = pd.MultiIndex.from_frame(few[["gpu", "workload"]].astype(str))
    few = few[cells.isin([(each.gpu, each.workload) for each in shown])]
    page = {"venue": venue, "width": width, "lanes": single_lanes(runs)}
    return study.convergence_figure(few, shown, budget=budget_of(few), **page)


def anatomy_figure(
    runs: pd.DataFrame,
    *,
    chosen: Sequence[str] | None = None,
    rows: Mapping[str, Any] | None = None,
    table: pd.DataFrame | None = None,
    reference: str = REFERENCE,
    venue: str = VENUE,
    width: str = "text",
) -> Drawing:
    """Draws what a few searchers did: what they asked for, what it brought, what models knew.

    Args:
        runs: The tidy table of runs, with predictions.
        chosen: Searchers; None: the `leaders` among those that predict.
        rows: Row name -> registered name, or (name, options), as in Experiment.
        table: From `budget_table` of these runs, for the leaders; None: found here.
        reference: Is among the leaders.
        venue: Whose page.
        width: "text" or "column".
    """
    if chosen is None:
        told = [*runs.loc[runs["predicted"].notna(), "searcher"].unique(), reference]
        among = None if table is None else _only(table, told)
        chosen = leaders(_only(runs, told), table=among, reference=reference, most=_FEW)
    few = _only(runs, _chosen(runs, chosen, reference))
    parts = stats.anatomy(few)
    choices = model_choices(few, searchers=rows)
    quality, calibrated = surrogate_quality(choices), calibration(choices)
    with plots.paper(venue, width=width):
        fig = plot_anatomy(parts, quality, calibrated)
    points = {"anatomy": parts, "quality": quality, "calibration": calibrated}
    caption = caption_anatomy(parts, quality, calibrated, evidence=evidence_of(few))
    return Drawing(fig, points, caption, sources=(few,))


def draw_all(
    runs: pd.DataFrame,
    *,
    table: pd.DataFrame | None = None,
    reference: str = REFERENCE,
    landscapes: Landscapes = None,
    rows: Mapping[str, Any] | None = None,
    venue: str = VENUE,
    width: str | None = None,
    only: Collection[str] | None = None,
) -> dict[str, Drawing]:
    """Draws every figure of a comparison, by file name; the anatomy where models predicted.

    Args:
        runs: The tidy table of runs.
        table: From `budget_table` of these runs; None: made here.
        reference: What the others are compared with.
        landscapes: Those that do not ship.
        rows: As in Experiment, for the anatomy.
        venue: Whose page.
        width: "text" or "column"; None: each figure's own.
        only: Names of those that are wanted; None: all.
    """
    require_found(runs)
    style_order(runs["searcher"].unique())  # the looks of all, whichever process draws which
    known = {"landscapes": landscapes_of(runs, landscapes), "reference": reference}
    budgets = {"quality_at_trials", "quality_at_seconds"}
    if table is None and (only is None or not budgets.isdisjoint(only)):
        table = budget_table(runs, **known)
    chosen = {"chosen": leaders(runs, table=table, reference=reference)}
    page = {"venue": venue} | ({} if width is None else {"width": width})
    draw = {
        "quality_at_trials": lambda: budget_figure(runs, table=table, **page),
        "quality_at_seconds": lambda: budget_figure(runs, table=table, axis="elapsed_s", **page),
        "profiles": lambda: profiles_figure(runs, **chosen, **known, **page),
        "significance": lambda: significance_figure(runs, table=table, **page),
        "ratios": lambda: ratio_figure(runs, reference=reference, **page),
        "quality_vs_time": lambda: quality_figure(runs, reference=reference, **chosen, **page),
        "convergence": lambda: convergence_figure(runs, **chosen, **known, **page),
    }
    if "predicted" in runs and runs["predicted"].notna().any():
        draw["anatomy"] = lambda: anatomy_figure(
            runs, rows=rows, table=table, reference=reference, **page
        )
    return {name: make() for name, make in draw.items() if only is None or name in only}


def _of_study(draw: Callable[..., Drawing], runs: pd.DataFrame, **asked: Any) -> Drawing:
    """Returns a drawing of `kt_lab.study` for all runs of a comparison, its limits told."""
    drawn = draw(runs, lanes=single_lanes(runs), budget=budget_of(runs), **asked)
    return _limited(drawn, runs)


def _chosen(runs: pd.DataFrame, chosen: Sequence[str] | None, reference: str) -> list[str]:
    """Returns the chosen searchers, or the leaders."""
    if chosen is None:
        return leaders(runs, reference=reference)
    return [check_searcher(runs, name) for name in chosen]


def _only(runs: pd.DataFrame, chosen: Sequence[str]) -> pd.DataFrame:
    return runs[runs["searcher"].isin(chosen)]


def _unknown(name: str, known: Mapping[str, Any]) -> None:
    raise UsageError(f"workload must be one of {', '.join(known)}, got {name!r}")


def budget_of(runs: pd.DataFrame) -> str:
    """Returns the budget of the runs in words, as it was asked for or by the trials most had.

    What was asked for is in `runs.attrs["budget"]`, where it is known. Where runs ended at
    different numbers, seconds ran out, or searchers were done before.
    """
    if asked := runs.attrs.get("budget"):
        return asked
    spent = runs.groupby(list(RUN), observed=True)["first"].sum()
    most = counted(int(spent.max()), "trial")
    full = (spent == spent.max()).sum()
    same = spent.min() > 0 and full >= max(2, _MOST_RUNS * len(spent))
    return most if same else f"unknown: no run spent more than {most}"


def require_found(runs: pd.DataFrame) -> None:
    """Raises UsageError where no run found anything: there is nothing to draw."""
    if not (runs["status"] == OK).any():
        count = runs.groupby(list(RUN), observed=True).ngroups
        raise UsageError(
            f"a comparison needs a run that found a config that works, got none of {count} runs "
            "that did; give a larger budget"
        )


def evidence_of(runs: pd.DataFrame) -> str:
    """Returns the sentences of what the runs rest on, and of what kernels are."""
    counts = runs.groupby([*CELL, "searcher", "lanes"], observed=True)["seed"].nunique()
    return evidence(counts.rename("n_seeds").reset_index(), budget=budget_of(runs))


def _limited(drawn: Drawing, runs: pd.DataFrame) -> Drawing:
    """Returns a drawing whose caption also says what so few kernels cannot show."""
    counts = {f"{name}s": runs[name].astype(str).nunique() for name in ("kernel", "workload")}
    said = limits(**counts, comparisons=runs["searcher"].nunique() - 1)
    return replace(drawn, caption=f"{drawn.caption} {said}")
