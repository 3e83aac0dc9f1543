"""Figures: tidy table in, matplotlib figure out; nothing is computed, no global state changes."""

from kt_lab.plots.convergence import caption_convergence, draw_bands, plot_convergence
from kt_lab.plots.forest import (
    caption_budgets,
    caption_ratio_forest,
    plot_budgets,
    plot_ratio_forest,
)
from kt_lab.plots.landscape import caption_landscape_ecdf, plot_landscape_ecdf
from kt_lab.plots.profiles import caption_profiles, plot_profiles
from kt_lab.plots.quality import caption_quality_vs_time, plot_quality_vs_time
from kt_lab.plots.ratios import (
    caption_ratio_bars,
    draw_ratio_bars,
    plot_ratio_bars,
)
from kt_lab.plots.roofline import caption_roofline, plot_roofline
from kt_lab.plots.save import png_bytes, read_points, save_figure
from kt_lab.plots.significance import caption_significance, plot_significance
from kt_lab.plots.slices import caption_landscape_slice, plot_landscape_slice
from kt_lab.plots.style import paper, searcher_style
from kt_lab.plots.venues import VENUES, Venue

__all__ = [
    "VENUES",
    "Venue",
    "caption_budgets",
    "caption_convergence",
    "caption_landscape_ecdf",
    "caption_landscape_slice",
    "caption_profiles",
    "caption_quality_vs_time",
    "caption_ratio_bars",
    "caption_ratio_forest",
    "caption_roofline",
    "caption_significance",
    "draw_bands",
    "draw_ratio_bars",
    "paper",
    "plot_budgets",
    "plot_convergence",
    "plot_landscape_ecdf",
    "plot_landscape_slice",
    "plot_profiles",
    "plot_quality_vs_time",
    "plot_ratio_bars",
    "plot_ratio_forest",
    "plot_roofline",
    "plot_significance",
    "png_bytes",
    "read_points",
    "save_figure",
    "searcher_style",
]
