"""Judging runs: tidy table in, tidy table out, deterministic by seed, nothing is drawn."""

from kt_lab.stats.curves import convergence_bands, final_latency, incumbent_curves
from kt_lab.stats.intervals import Interval, geomean_interval, quantiles
from kt_lab.stats.ratios import convergence_time_ratios, latency_ratios, wall_clock_ratios
from kt_lab.stats.times import convergence_targets, expected_running_time, time_to_target

__all__ = [
    "Interval",
    "convergence_bands",
    "convergence_targets",
    "convergence_time_ratios",
    "expected_running_time",
    "final_latency",
    "geomean_interval",
    "incumbent_curves",
    "latency_ratios",
    "quantiles",
    "time_to_target",
    "wall_clock_ratios",
]
