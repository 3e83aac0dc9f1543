"""What the stored studies show: levels, ratio tables, and the figures drawn from them."""

import random
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab import origins, plots, stats
from kt_lab.baseline import expected_best, landscape_profile, noise_floor
from kt_lab.errors import UsageError
from kt_lab.experiment import LATER, Experiment, compare_cell
from kt_lab.landscape import Landscape, load_landscape
from kt_lab.plots.ratios import bars_hold
from kt_lab.runners.replay import judged_us
from kt_lab.stats.intervals import quantiles
from kt_lab.studies import GPU, LANES, NAMED, REFERENCE, WORKLOADS

VENUE = "icml"
_CAPTION = "max-width: 60em; font-size: 85%; line-height: 1.35; opacity: 0.8"
_MOST_NARROW = 6  # searchers whose legend leaves room for a plot in one column


@dataclass(frozen=True)
class Drawing:
    """A figure, the points it shows by panel, and its caption: what `save_figure` takes.

    Attributes:
        figure: Of matplotlib.
        points: A table, or tables by panel.
        caption: The text under the figure.
        sources: What it was drawn from, as `kt_lab.origins.told` takes it.
    """

    figure: Any
    points: Any
    caption: str
    sources: tuple[Any, ...] = field(default=(), repr=False)

    def save(self, name: str, *, directory: Path | str, provenance: dict | None = None) -> dict:
        """Writes pdf, png, csv and json, with what the sources tell; returns their paths."""
        return plots.save_figure(
            self.figure,
            name,
            data=self.points,
            directory=directory,
            provenance=origins.told(*self.sources) | (provenance or {}),
            caption=self.caption,
        )

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Shows the figure over its caption where a notebook cell ends with it."""
        png = b64encode(plots.png_bytes(self.figure)).decode()
        told = escape(self.caption)
        shown = f'<img src="data:image/png;base64,{png}" alt="{told}"/>'
        under = f'<figcaption style="{_CAPTION}">{told}</figcaption>'
        return {
            "text/html": f"<figure>{shown}{under}</figure>",
            "image/png": png,
            "text/plain": self.caption,
        }


def spot_check(
    experiment: Experiment, runs: pd.DataFrame, *, cells: int, seed: int
) -> dict[str, list[str]]:
    """Recomputes randomly chosen runs of a stored study.

    Returns:
        Per run, as "workload searcher lanes seed", the columns that came out different; an empty
        list means that every column but the searcher's own seconds is equal, bit by bit.
    """
    every = experiment.cells()
    if not 0 <= cells <= len(every):
        raise UsageError(f"a check recomputes 0 to {len(every):,} runs, got {cells:,}")
    chosen = random.Random(seed).sample(every, cells)
    return {
        f"{c.workload} {c.searcher} lanes={c.lanes} seed={c.seed}": compare_cell(runs, c)
        for c in chosen
    }


def apart(checked: Mapping[str, list[str]]) -> tuple[list[str], list[str]]:
    """Returns the checked runs that differ and must not, and those that another CPU excuses.

    Args:
        checked: From `spot_check`, or `kt_lab.artifact.replay_runs`.
    """
    bad = [run for run, columns in checked.items() if columns]
    excused = [run for run in bad if checked[run][0] == LATER]
    return [run for run in bad if run not in excused], excused


def find(workload: str | Landscape, *, gpu: str | None = GPU) -> Landscape:
    """Returns a landscape as it is given, or the recorded one of a workload's key."""
    return workload if isinstance(workload, Landscape) else load_landscape(workload, gpu=gpu)


def levels(workload: str | Landscape, *, gpu: str | None = GPU) -> dict[str, float]:
    """Returns a landscape's judged optimum in microseconds and its noise floor relative to it.

    The optimum is the config with the lowest pooled latency, judged as searchers are: by the
    visits that were not read, averaged over which visit is read. The floor is what the best of
    one noisy reading of every config is judged at, relative to that.
    """
    optimum, floor = _levels(find(workload, gpu=gpu))
    return {"optimum_us": optimum, "noise_floor": floor}


@lru_cache(maxsize=64)
def _levels(landscape: Landscape) -> tuple[float, float]:
    """Returns both levels of a landscape, found once while it is in memory."""
    best = int(np.nanargmin(landscape.latency_us))
    visits = range(landscape.visits)
    judged = [judged_us(landscape, visit=visit) for visit in visits]
    picked = [
        noise_floor(landscape.medians_us(v), judged[v], pooled_us=landscape.latency_us).judged_us
        for v in visits
    ]
    optimum = float(np.mean([judged[v][best] for v in visits]))
    return optimum, float(np.mean([p[0] for p in picked])) / optimum


def random_curve(landscape: Landscape, *, trials: int, optimum_us: float) -> pd.DataFrame:
    """Returns exact random search on a landscape, relative to its optimum, per trial count."""
    curves = [
        expected_best(
            landscape.medians_us(visit),
            range(1, trials + 1),
            judged=judged_us(landscape, visit=visit),
            optimum_us=optimum_us,
        )
        for visit in range(landscape.visits)
    ]
    mean = pd.concat(curves).groupby("draws", as_index=False).mean(numeric_only=True)
    return mean.assign(unit="ratio", workload=landscape.workload)


def ratio_tables(
    runs: pd.DataFrame, *, lanes: int, reference: str = REFERENCE
) -> dict[str, pd.DataFrame]:
    """Returns the three ratio tables of one lane count, all against one searcher."""
    chosen = runs[runs["lanes"] == lanes]
    return {
        "latency": stats.latency_ratios(chosen, reference=reference),
        "wall_clock": stats.wall_clock_ratios(chosen, reference=reference),
        "convergence": stats.convergence_time_ratios(chosen, reference=reference),
    }


def latency_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns absolute latencies per workload: optimum, floors, vendor, and every searcher."""
    final = stats.final_latency(runs[runs["lanes"] == runs["lanes"].max()])
    rows = []
    for (workload, gpu), group in final.groupby(["workload", "gpu"], observed=True):
        landscape = load_landscape(str(workload), gpu=str(gpu))
        manifest = landscape.manifest  # of another tuner or an older recording: not all is there
        vendor = (manifest.get("baseline") or {}).get("samples_us") or [np.nan]
        default = landscape.latency_us[landscape.space.index(landscape.space.default)]
        row = {
            "workload": workload,
            "gpu": gpu,
            "bytes_floor_us": manifest.get("bytes_floor_us", np.nan),
            "optimum_us": landscape.optimum_us,
            "vendor_us": float(np.median(vendor)),
            "default_us": float(default),
        }
        ends = group["judged_us"].fillna(np.inf)  # a run that found nothing counts, too
        for name, us in ends.groupby(group["searcher"], observed=True):
            row[f"{name}_us"] = float(quantiles(us.to_numpy(float), (0.5,))[0])
        rows.append(row)
    return pd.DataFrame(rows)


def convergence_figure(
    runs: pd.DataFrame,
    workloads: Sequence[str | Landscape],
    *,
    lanes: int,
    budget: str,
    gpu: str | None = GPU,
    venue: str = VENUE,
    width: str = "text",
) -> Drawing:
    """Draws the incumbent against trials and seconds, with optimum, noise floor, random search."""
    shown = {each.workload: each for each in (find(w, gpu=gpu) for w in workloads)}
    chosen = runs[(runs["lanes"] == lanes) & runs["workload"].isin(shown)]
    known = {w: levels(each) for w, each in shown.items()}
    optima = pd.DataFrame([{"workload": w, "optimum_us": known[w]["optimum_us"]} for w in known])
    curves = stats.incumbent_curves(chosen)
    trials = stats.convergence_bands(curves, x="spent_trials", optima=optima)
    seconds = stats.convergence_bands(curves, x="elapsed_s", optima=optima)
    most = int(curves["spent_trials"].max())
    exact = pd.concat(
        [
            random_curve(
                each, trials=min(most, each.space.size), optimum_us=known[w]["optimum_us"]
            )
            for w, each in shown.items()
        ],
        ignore_index=True,
    )
    floors = {w: known[w]["noise_floor"] for w in known}
    with plots.paper(venue, width=width):
        fig = plots.plot_convergence(
            trials, seconds, optimum=1.0, noise_floor=floors, expected_random=exact
        )
    points = {"trials": trials, "seconds": seconds, "expected_random": exact}
    caption = plots.caption_convergence(trials, seconds, budget=budget, exact=True)
    return Drawing(fig, points, caption, sources=(chosen, *shown.values()))


def ratio_figure(
    runs: pd.DataFrame,
    *,
    lanes: int,
    budget: str,
    reference: str = REFERENCE,
    venue: str = VENUE,
    width: str = "text",
) -> Drawing:
    """Draws the ratios to a reference: three bar charts, or rows where bars look alike."""
    tables = ratio_tables(runs, lanes=lanes, reference=reference)
    with plots.paper(venue, width=width):
        plot, caption = (
            (plots.plot_ratio_bars, plots.caption_ratio_bars)
            if bars_hold(tables["latency"])
            else (plots.plot_ratio_forest, plots.caption_ratio_forest)
        )
        fig = plot(*tables.values())
    return Drawing(fig, tables, caption(*tables.values(), budget=budget), sources=(runs,))


def quality_figure(
    runs: pd.DataFrame,
    *,
    lanes: int,
    budget: str,
    reference: str = REFERENCE,
    venue: str = VENUE,
    width: str | None = None,
) -> Drawing:
    """Draws latency and wall-clock ratios jointly: a quick quitter is not fast."""
    chosen = runs[runs["lanes"] == lanes]
    pair = {
        "latency": stats.latency_ratios(chosen, reference=reference),
        "wall_clock": stats.wall_clock_ratios(chosen, reference=reference),
    }
    many = pair["latency"]["searcher"].nunique() > _MOST_NARROW
    with plots.paper(venue, columns=1 + many, width=width):
        fig = plots.plot_quality_vs_time(*pair.values()).figure
    caption = plots.caption_quality_vs_time(*pair.values(), budget=budget)
    return Drawing(fig, pair, caption, sources=(chosen,))


def landscape_figure(*, venue: str = VENUE, width: str = "column") -> Drawing:
    """Draws how rare good configs are in every recorded landscape of the study."""
    latencies = _latencies()
    profile = landscape_profile(latencies)
    with plots.paper(venue, width=width):
        fig = plots.plot_landscape_ecdf(profile).figure
    caption = plots.caption_landscape_ecdf(profile)
    return Drawing(fig, profile, caption, sources=(latencies,))


def draw_all(runs: pd.DataFrame, experiment: Experiment) -> dict[str, Drawing]:
    """Draws every figure of the study, by file name."""
    budget = f"{experiment.budget.trials} trials"
    drawn = {
        "convergence": convergence_figure(runs, NAMED, lanes=max(LANES), budget=budget),
        "landscapes": landscape_figure(),
    }
    for lanes in LANES:
        drawn[f"ratios_{lanes}_lanes"] = ratio_figure(runs, lanes=lanes, budget=budget)
        drawn[f"quality_vs_time_{lanes}_lanes"] = quality_figure(runs, lanes=lanes, budget=budget)
    return drawn


def _latencies() -> pd.DataFrame:
    parts = []
    for workload in WORKLOADS:
        landscape = load_landscape(workload, gpu=GPU)
        values = landscape.latency_us[landscape.table.index.to_numpy()]
        parts.append(
            pd.DataFrame(
                {
                    "gpu": landscape.gpu,
                    "kernel": landscape.kernel,
                    "workload": workload,
                    "latency_us": values,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)
