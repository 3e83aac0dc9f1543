"""Synthetic tables of runs: small, deterministic, with the columns of the real ones."""

import numpy as np
import pandas as pd
import pytest

CATEGORIES = ("workload", "kernel", "gpu", "searcher", "status", "origin")


def trials(latency, *, judged=None, config=None, repetitions=None, search_s=None, step=1.0, **at):
    """One run: a latency per trial (None: failed), one second of machine time each."""
    n = len(latency)
    config = list(range(n)) if config is None else config
    latency = pd.array(latency, dtype="Float64").to_numpy(float, na_value=np.nan)
    key = dict(workload="softmax/a", kernel="softmax", gpu="h100", searcher="pattern", lanes=8)
    table = pd.DataFrame(
        {
            **key,
            "seed": 0,
            **at,
            "trial": range(n),
            "config": config,
            "first": ~pd.Series(config).duplicated(),
            "repetitions": [20] * n if repetitions is None else repetitions,
            "status": np.where(np.isnan(latency), "compile_error", "ok"),
            "latency_us": latency,
            "judged_us": latency if judged is None else judged,
            "compile_s": 0.8 * step,
            "measure_s": 0.2 * step,
            "machine_s": np.arange(1, n + 1) * step,
            "search_s": np.zeros(n) if search_s is None else search_s,
            "origin": "start",
        }
    )
    return table.astype(dict.fromkeys(CATEGORIES, "category"))


def together(*tables):
    """Several runs as one table with category columns."""
    plain = [t.astype(dict.fromkeys(CATEGORIES, object)) for t in tables]  # joined at once below
    return pd.concat(plain, ignore_index=True).astype(dict.fromkeys(CATEGORIES, "category"))


@pytest.fixture
def one():
    """Makes one run."""
    return trials


@pytest.fixture
def join():
    """Joins runs."""
    return together


@pytest.fixture
def experiment():
    """Makes runs of several searchers over kernels x workloads x seeds, with random latencies."""

    def make(*, searchers=("pattern", "random"), kernels=2, workloads=2, seeds=5, n=20, seed=0):
        rng = np.random.default_rng(seed)
        return together(
            *(
                trials(
                    (10 * (1 + w) * (1 + rng.exponential(size=n))).tolist(),
                    searcher=searcher,
                    kernel=f"k{k}",
                    workload=f"k{k}/w{w}",
                    seed=s,
                    step=float(rng.uniform(0.5, 1.5)),
                )
                for searcher in searchers
                for k in range(kernels)
                for w in range(workloads)
                for s in range(seeds)
            )
        )

    return make
