"""Judging runs: tidy table in, tidy table out, deterministic by seed, nothing is drawn.

`kt_lab.cells.history_table` makes the table of a `History`.
"""

from kt_lab.stats.anatomy import anatomy
from kt_lab.stats.budgets import latency_at
from kt_lab.stats.configs import (
    compare_configs,
    differing_parameters,
    inspect_config,
    neighbours_table,
    roofline_points,
)
from kt_lab.stats.curves import convergence_bands, final_latency, incumbent_curves
from kt_lab.stats.equivalence import equivalence
from kt_lab.stats.intervals import Interval, quantiles
from kt_lab.stats.occupancy import occupancy
from kt_lab.stats.power import Components, power, power_table, variance_components
from kt_lab.stats.profiles import performance_profile, runtime_ecdf
from kt_lab.stats.ratios import convergence_time_ratios, latency_ratios, wall_clock_ratios
from kt_lab.stats.significance import paired_tests, probability_best
from kt_lab.stats.slices import landscape_slice, search_path
from kt_lab.stats.times import convergence_targets, running_times, time_to_target

__all__ = [
    "Components",
    "Interval",
    "anatomy",
    "compare_configs",
    "convergence_bands",
    "convergence_targets",
    "convergence_time_ratios",
    "differing_parameters",
    "equivalence",
    "final_latency",
    "incumbent_curves",
    "inspect_config",
    "landscape_slice",
    "latency_at",
    "latency_ratios",
    "neighbours_table",
    "occupancy",
    "paired_tests",
    "performance_profile",
    "power",
    "power_table",
    "probability_best",
    "quantiles",
    "roofline_points",
    "running_times",
    "runtime_ecdf",
    "search_path",
    "time_to_target",
    "variance_components",
    "wall_clock_ratios",
]
