"""The atlas: what kernels and their recorded landscapes are like, one call per table or figure."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from kt_lab import plots
from kt_lab.errors import UnknownName, require_known
from kt_lab.landscape import Landscape, landscapes
from kt_lab.plots.ablation import caption_ablation, plot_ablation
from kt_lab.plots.atlas import (
    caption_effects,
    caption_marginals,
    caption_tails,
    plot_effects,
    plot_marginals,
    plot_tails,
)
from kt_lab.plots.carry_over import caption_carry_over, plot_carry_over
from kt_lab.plots.funnels import (
    caption_fitness_distance,
    caption_local_optima,
    plot_fitness_distance,
    plot_local_optima,
)
from kt_lab.plots.kernel_roofline import caption_kernel_roofline, plot_kernel_roofline
from kt_lab.space import ParameterSpace
from kt_lab.stats import atlas
from kt_lab.study import VENUE, Drawing
from kt_lab.workload import Kernel


def open_kernel(kernel: str, *, gpus: Sequence[str] = ()) -> list[Landscape]:
    """Loads every recorded landscape of a kernel, shapes together.

    Args:
        kernel: Its name.
        gpus: Short names of the GPUs that count; none: all.

    Raises:
        UnknownName: Nothing is recorded on such a GPU, or of this kernel there.
    """
    require_known("recorded GPU", gpus, [e.gpu for e in landscapes()])
    entries = [e for e in landscapes() if not gpus or e.gpu in gpus]
    found = [Landscape.load(e.path) for e in entries if e.kernel == kernel]
    if not found:
        on = f" on {' and '.join(gpus)}" if gpus else ""
        raise UnknownName(f"recorded kernel{on}", kernel, sorted({e.kernel for e in entries}))
    return found


def recorded_kernels() -> list[str]:
    """Returns the names of the kernels that have a recorded landscape."""
    return sorted({entry.kernel for entry in landscapes()})


def summary_table(found: Sequence[Landscape]) -> pd.DataFrame:
    """Returns one row per landscape: what makes it easy or hard to search.

    Columns as `kt_lab.stats.atlas.summary` tells them.
    """
    return pd.DataFrame([atlas.summary(landscape) for landscape in found])


def workloads_table(kernel: Kernel) -> pd.DataFrame:
    """Returns a kernel's workloads: shape, source, megabytes, gigaflops, valid configs."""
    rows = [
        {
            "workload": workload.name,
            "source": workload.source,
            "moved (MB)": kernel.bytes_moved(workload) / 1e6,
            "arithmetic (GFLOP)": kernel.flops(workload) / 1e9,
            "configs": kernel.space(workload).size,
        }
        for workload in kernel.workloads
    ]
    return pd.DataFrame(rows)


def parameters_table(space: ParameterSpace) -> pd.DataFrame:
    """Returns a space's parameters: kind, role, values and default, as text."""
    rows = [
        {
            "parameter": parameter.name,
            "kind": type(parameter).__name__,
            "role": parameter.role or "",
            "values": ", ".join("(empty)" if v == "" else str(v) for v in parameter.values),
            "default": str(space.default[parameter.name]) or "(empty)",
        }
        for parameter in space.parameters
    ]
    return pd.DataFrame(rows)


def constraints_table(space: ParameterSpace) -> pd.DataFrame:
    """Returns a space's constraints, each with the share of all combinations that it forbids.

    Returns:
        constraint, what it means, expression, forbids (of all combinations of values, 0..1),
        alone (of all combinations, those that no other constraint forbids).
    """
    axes = [p.values for p in space.parameters]
    at = np.indices([len(values) for values in axes]).reshape(len(axes), -1)
    values = {
        p.name: np.array(p.values, dtype=object if texts else None)[at[i]]
        for i, p in enumerate(space.parameters)
        for texts in [any(isinstance(value, str) for value in p.values)]
    }
    shape = at.shape[1:]
    kept = [
        np.broadcast_to(c.evaluate({**space.constants, **values}), shape)
        for c in space.constraints
    ]
    broken = np.sum([~k for k in kept], axis=0)
    rows = [
        {
            "constraint": constraint.name,
            "what it means": constraint.sentence,
            "expression": constraint.expression,
            "forbids": float((~k).mean()),
            "alone": float((~k & (broken == 1)).mean()),
        }
        for constraint, k in zip(space.constraints, kept, strict=True)
    ]
    return pd.DataFrame(rows)


def tails_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws how rare good configs are, a panel per kernel; returns a Drawing."""
    return _drawn(_all(atlas.tail, found), found, plot_tails, caption_tails, venue, width)


def effects_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws what parameters and pairs explain in the landscapes of one kernel."""
    return _drawn(_all(atlas.effects, found), found, plot_effects, caption_effects, venue, width)


def marginals_figure(landscape: Landscape, *, venue: str = VENUE, width: str = "text") -> Drawing:
    """Draws what each value of each parameter allows in one landscape."""
    table = atlas.marginals(landscape)
    return _drawn(table, [landscape], plot_marginals, caption_marginals, venue, width)


def local_optima_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws where descents may end, a row per landscape."""
    optima = _all(atlas.local_optima, found)
    tables = {"optima": optima, "counts": optima_counts(optima)}
    return _drawn(tables, found, plot_local_optima, caption_local_optima, venue, width)


def optima_counts(optima: pd.DataFrame) -> pd.DataFrame:
    """Returns how many local optima landscapes have, and how good they are.

    Args:
        optima: From `kt_lab.stats.atlas.local_optima`, of one or more landscapes.

    Returns:
        One row per landscape: workload, gpu, count, median (of the ratios), bad (share of the
        ratios above `kt_lab.stats.atlas.NEAR`: a descent that ends there has failed).
    """
    return optima.groupby(["workload", "gpu"], sort=False, observed=True, as_index=False).agg(
        count=("ratio", "size"),
        median=("ratio", "median"),
        bad=("ratio", lambda ratio: float((ratio > atlas.NEAR).mean())),
    )


def fitness_distance_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws latency against the distance from the best, a panel per workload."""
    tables = {"distances": _all(atlas.fitness_distance, found), "summary": summary_table(found)}
    return _drawn(tables, found, plot_fitness_distance, caption_fitness_distance, venue, width)


def carry_over_figure(
    found: Sequence[Landscape], *, top: int = 10, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws what is known on one landscape of a kernel's others: ranks, best, top configs.

    Args:
        found: Landscapes of one kernel, several shapes or GPUs.
        top: How many of the best configs of one are tried on another.
        venue: A name of `plots.VENUES`.
        width: "text" or "column".
    """
    table = atlas.carry_over(found, top=top)
    with plots.paper(venue, width=width):
        fig = plot_carry_over(table, top=top)
    caption = caption_carry_over(table, kernel=found[0].kernel, top=top)
    return Drawing(fig, table, caption, sources=tuple(found))


def kernel_roofline_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws best, default and vendor of a kernel's workloads under the roof of each GPU."""
    table = _all(atlas.under_the_roof, found)
    return _drawn(table, found, plot_kernel_roofline, caption_kernel_roofline, venue, width)


def ablation_figure(
    found: Sequence[Landscape], *, venue: str = VENUE, width: str = "text"
) -> Drawing:
    """Draws which parameter bought what on the way from the default to the best config."""
    table = _all(atlas.ablation_path, found)
    return _drawn(table, found, plot_ablation, caption_ablation, venue, width)


def _all(statistic: Callable, found: Sequence[Landscape]) -> pd.DataFrame:
    return pd.concat([statistic(landscape) for landscape in found], ignore_index=True)


def _drawn(
    points: pd.DataFrame | dict[str, pd.DataFrame],
    found: Sequence[Landscape],
    plot: Callable,
    caption: Callable,
    venue: str,
    width: str,
) -> Drawing:
    tables = points.values() if isinstance(points, dict) else [points]
    with plots.paper(venue, width=width):
        fig = plot(*tables)
    return Drawing(fig, points, caption(*tables), sources=tuple(found))
