"""The panels' figures without panels: one call each."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from kt_lab import plots
from kt_lab.landscape import Landscape
from kt_lab.plots.roofline import caption_roofline, plot_roofline
from kt_lab.plots.slices import caption_landscape_slice, plot_landscape_slice
from kt_lab.stats.configs import roofline_points
from kt_lab.stats.slices import landscape_slice, search_path
from kt_lab.study import Drawing


def slice_figure(
    landscape: Landscape,
    x: str,
    y: str,
    *,
    fixed: Mapping[str, Any] | None = None,
    run: pd.DataFrame | None = None,
    venue: str = "icml",
    width: str = "column",
) -> Drawing:
    """Draws a landscape on two axes, and a search's way over it.

    Args:
        landscape: A recorded one.
        x: Parameter along the horizontal axis.
        y: Parameter along the vertical axis.
        fixed: Values of further parameters; over the others the best is taken.
        run: The tidy table of one run on this landscape; None: no search.
        venue: A name of `plots.VENUES`.
        width: "column" or "text".
    """
    cells = landscape_slice(landscape, x, y, fixed=fixed)
    path = None if run is None else search_path(landscape, run, x, y, fixed=fixed)
    with plots.paper(venue, width=width):
        fig = plot_landscape_slice(cells, path=path).figure
    points = cells if path is None else {"cells": cells, "path": path}
    sources = (landscape,) if run is None else (landscape, run)
    return Drawing(fig, points, caption_landscape_slice(cells, path=path), sources=sources)


def roofline_figure(
    landscape: Landscape,
    configs: Mapping[str, Mapping[str, Any]],
    *,
    venue: str = "icml",
    width: str = "column",
) -> Drawing:
    """Draws configs of a landscape under the roof of its GPU.

    Args:
        landscape: A recorded one.
        configs: By the label that the figure shows; at least one of them ok.
        venue: A name of `plots.VENUES`.
        width: "column" or "text".
    """
    points = roofline_points(landscape, configs)
    with plots.paper(venue, width=width):
        fig = plot_roofline(points).figure
    return Drawing(fig, points, caption_roofline(points), sources=(landscape,))
