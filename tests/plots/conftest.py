"""Synthetic runs with realistic numbers, and the tables that the figures draw."""

import numpy as np
import pandas as pd
import pytest

from kt_lab import stats

SHAPES = {
    "softmax": ("4096x640", "8192x8192", "1823x781", "256x131072"),
    "rms_norm": ("2048x4096", "8192x8192", "16384x5120", "512x16384"),
    "matmul": ("4096x4096x4096", "8192x1024x8192", "64x32768x64", "1024x1024x1024"),
    "int4_gemm": ("1x4096x11008", "16x4096x4096", "64x5120x13824", "256x8192x8192"),
    "attention": ("4x32x2048x64", "2x16x4096x128", "1x8x16384x128", "8x12x512x64"),
    "cross_entropy": ("4096x32000", "16384x131072", "1024x50257", "8192x128256"),
}
RATES = {"pattern": 1.0, "lfbo_pattern": 1.6, "tpe": 1.2, "random": 0.45, "ucb_pattern": 1.3}
EVIDENCE = {"gpu": "h200", "lanes": 16, "n_kernels": 2, "n_workloads": 9, "n_seeds": 30}
CATEGORIES = ("workload", "kernel", "gpu", "searcher", "status", "origin")


def make_runs(*, searchers, kernels=6, workloads=4, seeds=8, n=80, hopeless=False):
    """Runs whose incumbents fall towards an optimum of 1 with noise; some trials fail."""
    parts = []
    for k, (kernel, shapes) in enumerate(list(SHAPES.items())[:kernels]):
        for w, shape in enumerate(shapes[:workloads]):
            optimum = 8.0 * (1 + w) * (1 + k)
            for searcher in searchers:
                for seed in range(seeds):
                    rng = np.random.default_rng([k, w, seed, len(searcher), ord(searcher[1])])
                    length = int(n * rng.uniform(0.5, 0.8)) if searcher == "lfbo_pattern" else n
                    stay = searcher == "random" and hopeless and k == 2 and w == 2
                    parts.append(one_run(rng, length, RATES[searcher], optimum, stay=stay))
                    key = {"workload": f"{kernel}/{shape}", "kernel": kernel, "seed": seed}
                    parts[-1] = parts[-1].assign(**key, searcher=searcher)
    runs = pd.concat(parts, ignore_index=True).assign(gpu="NVIDIA H100", lanes=8, origin="start")
    return runs.astype({name: "category" for name in CATEGORIES})


def one_run(rng, n, rate, optimum, *, stay=False):
    """One run of n trials."""
    progress = np.exp(-rate * np.arange(n) / 18)
    level = (0.25 if stay else 0.01) + 1.4 * progress * rng.uniform(0.7, 1.3)
    latency = optimum * (
        1 + level * rng.exponential(1.0, size=n) + 0.004 * rng.exponential(size=n)
    )
    latency += optimum * (0.2 if stay else 0.0)
    failed = rng.random(n) < 0.15
    seen = latency * np.exp(0.006 * rng.normal(size=n))
    table = pd.DataFrame({"trial": range(n), "config": range(n), "first": True})
    table["repetitions"] = 20
    table["status"] = np.where(failed, "compile_error", "ok")
    table["latency_us"] = np.where(failed, np.nan, seen)
    table["judged_us"] = np.where(failed, np.nan, latency)
    table["compile_s"], table["measure_s"] = 1.6, 0.12
    table["machine_s"] = np.cumsum(rng.gamma(2.0, 0.25, size=n))
    table["search_s"] = np.cumsum(rng.gamma(2.0, 0.01 * rate, size=n))
    return table


def make_tables(runs):
    """The three tables of ratios."""
    few = {"resamples": 400}
    return (
        stats.latency_ratios(runs, **few),
        stats.wall_clock_ratios(runs, **few),
        stats.convergence_time_ratios(runs, **few),
    )


def make_optima(runs):
    """Optimum and noise floor of every workload."""
    best = runs.groupby("workload", observed=True)["judged_us"].min()
    table = best.rename("optimum_us").reset_index()
    return table.assign(level=1.012)


@pytest.fixture(scope="session")
def runs():
    """Three searchers on four workloads; one searcher is hopeless on none."""
    return make_runs(
        searchers=("pattern", "lfbo_pattern", "tpe"), kernels=2, workloads=2, seeds=5, n=40
    )


@pytest.fixture(scope="session")
def ratios(runs):
    """The three tables of ratios."""
    return make_tables(runs)


@pytest.fixture(scope="session")
def endless():
    """The three tables where random search never reaches the target of one workload."""
    return make_tables(
        make_runs(searchers=("pattern", "random"), kernels=3, workloads=3, n=60, hopeless=True)
    )


@pytest.fixture(scope="session")
def bands(runs):
    """Bands against trials and against seconds, relative to the optimum."""
    curves, optima = stats.incumbent_curves(runs), make_optima(runs)
    return tuple(
        stats.convergence_bands(curves, x=x, optima=optima) for x in ("spent_trials", "elapsed_s")
    )


@pytest.fixture
def anatomy():
    """One searcher that gained, lost in part, and one that gained nothing."""
    columns = ["searcher", "origin", "evaluations", "machine_s", "gain_share"]
    rows = [
        ("lfbo_pattern", "start", 100.0, 30.0, -0.25),
        ("lfbo_pattern", "neighbour", 60.0, 60.0, 1.25),
        ("lfbo_pattern", "retime", 0.0, 10.0, 0.0),
        ("random", "random", 160.0, 90.0, np.nan),
        ("random", "of my own", 40.0, 10.0, np.nan),
    ]
    return pd.DataFrame(rows, columns=columns)


@pytest.fixture
def quality():
    """Rank correlations of three generations; half of the runs reach none of the last."""
    rows = [(None, 0.5, 0.4, 0.6, 270), (1, 0.4, 0.3, 0.5, 270), (2, 0.6, 0.5, 0.7, 135)]
    rows += [(3, 0.9, -0.6, 1.0, 20)]
    table = pd.DataFrame(rows, columns=["generation", "estimate", "low", "high", "n_runs"])
    facts = {"measure": "rank_correlation", "searcher": "lfbo_pattern", "confidence": 0.95}
    return table.astype({"generation": "Int16"}).assign(**facts, **EVIDENCE)


@pytest.fixture
def calibrated():
    """Two bins."""
    columns = ["predicted", "observed", "low", "high", "n_configs"]
    table = pd.DataFrame([(0.1, 0.2, 0.1, 0.3, 50), (0.8, 0.7, 0.6, 0.9, 100)], columns=columns)
    return table.assign(searcher="lfbo_pattern", calibration_error=0.1)
