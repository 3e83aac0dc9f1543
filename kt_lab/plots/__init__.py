"""Figures: tidy table in, matplotlib figure out; nothing is computed, no global state changes."""

from kt_lab.plots.convergence import caption_convergence, draw_bands, plot_convergence
from kt_lab.plots.landscape import caption_landscape_ecdf, plot_landscape_ecdf
from kt_lab.plots.quality import caption_quality_vs_time, plot_quality_vs_time
from kt_lab.plots.ratios import (
    caption_ratio_bars,
    draw_ratio_bars,
    plot_ratio_bars,
)
from kt_lab.plots.save import png_bytes, read_points, save_figure
from kt_lab.plots.style import paper, searcher_style

__all__ = [
    "caption_convergence",
    "caption_landscape_ecdf",
    "caption_quality_vs_time",
    "caption_ratio_bars",
    "draw_bands",
    "draw_ratio_bars",
    "paper",
    "plot_convergence",
    "plot_landscape_ecdf",
    "plot_quality_vs_time",
    "plot_ratio_bars",
    "png_bytes",
    "read_points",
    "save_figure",
    "searcher_style",
]
