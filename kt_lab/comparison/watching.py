"""The two figures of the compare panel: incumbents, and ratios with a target near the optimum."""

from collections.abc import Mapping, Sequence

import pandas as pd

from kt_lab import plots, stats
from kt_lab.comparison.figures import budget_of
from kt_lab.comparison.tables import Landscapes, optima_table
from kt_lab.plots.comparing import caption_incumbents, caption_target_ratios, plot_incumbents
from kt_lab.stats.tables import check_searcher, single_lanes
from kt_lab.studies import REFERENCE
from kt_lab.study import VENUE, Drawing

WITHIN = 0.05
AXES = {"trials": "spent_trials", "seconds": "elapsed_s"}


def finished_part(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the runs of those seeds that all searchers have finished on a workload.

    Of a comparison that goes on, this is what may be compared: no searcher is judged by easier
    workloads or luckier seeds than another. Empty: there is none yet.
    """
    if runs.empty:
        return runs
    cell = ["gpu", "workload", "lanes", "seed"]
    known = runs.drop_duplicates([*cell, "searcher"])
    counts = known.groupby(cell, observed=True, sort=False).size()
    whole = counts[counts == known["searcher"].nunique()].index
    return runs[pd.MultiIndex.from_frame(runs[cell]).isin(whole)]


def incumbent_figure(
    runs: pd.DataFrame,
    *,
    workloads: Sequence[str] | None = None,
    x: str = "spent_trials",
    band: str = "iqr",
    within: float | None = None,
    optima: pd.DataFrame | None = None,
    bands: pd.DataFrame | None = None,
    landscapes: Landscapes = None,
    venue: str = VENUE,
    width: str = "text",
) -> Drawing:
    """Draws the incumbents of all searchers against trials or seconds.

    Args:
        runs: The tidy table of runs, of one lane count.
        workloads: A row each; None: all.
        x: "spent_trials", "machine_s" or "elapsed_s".
        band: "iqr", "interval" (of the median, 95%) or "none".
        within: The target, as a fraction above the optimum; None: not drawn.
        optima: From `optima_table`; None: found here.
        bands: An earlier drawing's points, of the same runs, workloads, x and band; None: found
            here.
        landscapes: Those that do not ship, for the optima.
        venue: Whose page; see `plots.paper`.
        width: "text" or "column".
    """
    single_lanes(runs)
    shown = runs if workloads is None else runs[runs["workload"].isin(workloads)]
    if optima is None:
        optima = optima_table(shown, landscapes=landscapes)
    if bands is None:
        curves = stats.incumbent_curves(shown)
        bands = stats.convergence_bands(curves, x=x, optima=optima, band=band)
    floors = dict(zip(optima["workload"], optima["noise_floor"], strict=True))
    with plots.paper(venue, width=width):
        fig = plot_incumbents(bands, band=band, within=within, noise_floor=floors)
    caption = caption_incumbents(bands, band=band, budget=budget_of(shown))
    return Drawing(fig, bands, caption, sources=(shown, landscapes or ()))


def target_tables(
    runs: pd.DataFrame,
    *,
    reference: str = REFERENCE,
    within: float = WITHIN,
    x: str = "elapsed_s",
    optima: pd.DataFrame | None = None,
    landscapes: Landscapes = None,
    known: Mapping[str, pd.DataFrame] | None = None,
    **how: float,
) -> dict[str, pd.DataFrame]:
    """Returns geomean ratios to a reference: latency, wall clock, time to near the optimum.

    Args:
        runs: The tidy table of runs, of one lane count.
        reference: The searcher that every other is divided by.
        within: The target, as a fraction above the optimum.
        x: What the time to the target is counted in.
        optima: From `optima_table`; None: found here.
        landscapes: Those that do not ship, for the optima.
        known: An earlier answer for the same runs and reference: only the target is new.
        how: `confidence`, `resamples` and `seed` of the intervals.

    Returns:
        "latency", "wall_clock" and "target_time", in the schema of `stats.latency_ratios`.
    """
    check_searcher(runs, reference)
    if optima is None:
        optima = optima_table(runs, landscapes=landscapes)
    how = {"reference": reference} | how
    if known is None:
        known = {
            "latency": stats.latency_ratios(runs, **how),
            "wall_clock": stats.wall_clock_ratios(runs, **how),
        }
    return {
        "latency": known["latency"],
        "wall_clock": known["wall_clock"],
        "target_time": stats.convergence_time_ratios(
            runs, within=within, x=x, optima=optima, **how
        ),
    }


def target_figure(
    runs: pd.DataFrame,
    *,
    tables: Mapping[str, pd.DataFrame] | None = None,
    reference: str = REFERENCE,
    within: float = WITHIN,
    x: str = "elapsed_s",
    landscapes: Landscapes = None,
    venue: str = VENUE,
    width: str = "text",
) -> Drawing:
    """Draws the ratios of `target_tables`, a row per searcher, the lowest latency on top.

    Args:
        runs: The tidy table of runs, of one lane count.
        tables: From `target_tables` of these runs; None: made here.
        reference: As for `target_tables`.
        within: As for `target_tables`.
        x: As for `target_tables`.
        landscapes: Those that do not ship.
        venue: Whose page.
        width: "text" or "column".
    """
    if tables is None:
        tables = target_tables(
            runs, reference=reference, within=within, x=x, landscapes=landscapes
        )
    with plots.paper(venue, width=width):
        fig = plots.plot_ratio_forest(*tables.values())
    caption = caption_target_ratios(tables, budget=budget_of(runs))
    return Drawing(fig, dict(tables), caption, sources=(runs, landscapes or ()))
