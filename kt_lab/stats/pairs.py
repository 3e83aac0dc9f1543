"""A searcher and the reference on one workload, and the table of all such pairs."""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UnknownName, UsageError
from kt_lab.stats.intervals import (
    Interval,
    log_ratio,
    mean_log,
    percentile_interval,
    resample_means,
)
from kt_lab.stats.tables import CELL, single_lanes

COLUMNS = (
    *("measure", "scope", "gpu", "kernel", "workload", "searcher", "reference", "lanes"),
    *("estimate", "low", "high", "value", "reference_value", "unit", "target_us", "within"),
    *("n_kernels", "n_workloads", "n_seeds", "n_success", "n_runs"),
    *("reference_n_success", "reference_n_runs", "confidence"),
)


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How intervals are made: their confidence in (0, 1), resamples >= 1, and the seed."""

    confidence: float
    resamples: int
    seed: int

    def __post_init__(self):
        """Refuses an interval that nothing could fill."""
        if not 0 < self.confidence < 1:
            raise UsageError(f"confidence must lie between 0 and 1, got {self.confidence}")
        if self.resamples < 1:
            raise UsageError(f"resamples must be at least 1, got {self.resamples}")

    def rng(self, searcher: str) -> np.random.Generator:
        """Returns a searcher's own generator: its rows do not depend on who else is there."""
        return np.random.default_rng([self.seed, zlib.crc32(searcher.encode())])


@dataclass(frozen=True, slots=True)
class Sample:
    """The runs of one searcher on one workload, by seed; all arrays have shape (seeds,).

    Their value is sum(amount) / sum(weight): the mean of logarithms, the mean of costs, or the
    expected running time (weight: whether the target was reached).
    """

    seeds: np.ndarray
    amount: np.ndarray
    weight: np.ndarray
    logged: bool
    success: int

    def log_value(self, rows: np.ndarray) -> np.ndarray:
        """Returns the logarithm of the value of chosen runs; rows: (..., seeds) -> (...)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = self.amount[rows].sum(axis=-1) / self.weight[rows].sum(axis=-1)
            log = mean if self.logged else np.log(mean)
        return np.where(np.isnan(log), np.inf, log)  # 0 / 0: free, but nothing was reached

    @property
    def estimate(self) -> float:
        """The logarithm of the value of all runs."""
        return float(self.log_value(np.arange(self.seeds.size)))


@dataclass(frozen=True, slots=True)
class Pair:
    """A searcher's and the reference's runs on one workload (cell: gpu, kernel, workload)."""

    cell: tuple[str, str, str]
    own: Sample
    reference: Sample
    target_us: float

    @property
    def estimate(self) -> float:
        """The log ratio of all runs."""
        return float(log_ratio(np.float64(self.own.estimate), np.float64(self.reference.estimate)))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Returns n log ratios of resampled seeds.

        Runs of the same seed read the same recorded noise, so they are drawn together where both
        searchers have the same seeds; otherwise the two are resampled independently.
        """
        rows = rng.integers(self.own.seeds.size, size=(n, self.own.seeds.size))
        other = rows
        if not np.array_equal(self.own.seeds, self.reference.seeds):
            other = rng.integers(self.reference.seeds.size, size=(n, self.reference.seeds.size))
        return log_ratio(self.own.log_value(rows), self.reference.log_value(other))


def ratio_table(
    samples: pd.DataFrame,
    facts: Mapping[str, Any],
    *,
    reference: str,
    logged: bool,
    bootstrap: Bootstrap,
) -> pd.DataFrame:
    """Returns a row per (workload, searcher), then a geomean row per searcher.

    Args:
        samples: One row per run: the columns of RUN, `amount`, `weight`, `success` and
            optionally `target_us`.
        facts: Columns that are equal in all rows (`measure`, `unit` and, if any, `within`).
        reference: The searcher that every other is divided by.
        logged: Whether `amount` is a logarithm.
        bootstrap: How the intervals are made.
    """
    facts = {"within": math.nan} | dict(facts, reference=reference, lanes=single_lanes(samples))
    facts["confidence"] = bootstrap.confidence
    rows, means = [], []
    for searcher, pairs in _pairs(samples, reference, logged=logged).items():
        rng = bootstrap.rng(searcher)
        draws = {}
        for pair in pairs:
            bounds = percentile_interval(pair.draw(bootstrap.resamples, rng), bootstrap.confidence)
            interval = Interval(math.exp(pair.estimate), *bounds)
            rows.append({**_workload_row(pair), **_counts([pair]), **_ends(searcher, interval)})
            draws.setdefault(pair.cell[1], []).append(pair.draw)
        center = math.exp(mean_log(np.array([pair.estimate for pair in pairs])))
        resampled = resample_means(draws, bootstrap.resamples, rng)
        interval = Interval(center, *percentile_interval(resampled, bootstrap.confidence))
        means.append({**_geomean_row(pairs), **_counts(pairs), **_ends(searcher, interval)})
    return pd.DataFrame([*rows, *means]).assign(**facts)[list(COLUMNS)]


def _pairs(samples: pd.DataFrame, reference: str, *, logged: bool) -> dict[str, list[Pair]]:
    """Returns per searcher its pairs, in the order of gpu, kernel and workload."""
    known = sorted(samples["searcher"].astype(str).unique())
    if reference not in known:
        raise UnknownName("searcher", reference, known)
    found: dict[str, list[Pair]] = {}
    for cell, table in samples.groupby(list(CELL), observed=True, sort=True):
        own = {
            str(name): _sample(runs, logged=logged)
            for name, runs in table.groupby("searcher", observed=True, sort=True)
        }
        if reference not in own:
            raise UsageError(
                f"every workload needs runs of the reference {reference!r}; {cell[2]} on "
                f"{cell[0]} has none - run it there, or leave the workload out"
            )
        target = float(table["target_us"].iloc[0]) if "target_us" in table else math.nan
        for name, sample in own.items():
            found.setdefault(name, []).append(Pair(cell, sample, own[reference], target))
    return found


def _sample(runs: pd.DataFrame, *, logged: bool) -> Sample:
    """Returns the runs of one searcher on one workload, sorted by seed."""
    runs = runs.sort_values("seed")
    return Sample(
        runs["seed"].to_numpy(),
        runs["amount"].to_numpy(float),
        runs["weight"].to_numpy(float),
        logged,
        int(runs["success"].sum()),
    )


def _workload_row(pair: Pair) -> dict[str, Any]:
    """Returns what only the row of one workload has."""
    gpu, kernel, workload = pair.cell
    return {
        "scope": "workload",
        "gpu": gpu,
        "kernel": kernel,
        "workload": workload,
        "value": math.exp(pair.own.estimate),
        "reference_value": math.exp(pair.reference.estimate),
        "target_us": pair.target_us,
    }


def _geomean_row(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Returns what a geomean row has in place of a workload: the GPU, where there is only one."""
    gpus = {pair.cell[0] for pair in pairs}
    return {
        "scope": "geomean",
        "gpu": gpus.pop() if len(gpus) == 1 else None,
        "kernel": None,
        "workload": None,
        "value": math.nan,
        "reference_value": math.nan,
        "target_us": math.nan,
    }


def _counts(pairs: Sequence[Pair]) -> dict[str, int]:
    """Returns how much evidence a row rests on."""
    return {
        "n_kernels": len({pair.cell[1] for pair in pairs}),
        "n_workloads": len({pair.cell for pair in pairs}),
        "n_seeds": min(pair.own.seeds.size for pair in pairs),
        "n_success": sum(pair.own.success for pair in pairs),
        "n_runs": sum(pair.own.seeds.size for pair in pairs),
        "reference_n_success": sum(pair.reference.success for pair in pairs),
        "reference_n_runs": sum(pair.reference.seeds.size for pair in pairs),
    }


def _ends(searcher: str, interval: Interval) -> dict[str, Any]:
    """Returns the columns of a searcher and its interval."""
    return {
        "searcher": searcher,
        "estimate": interval.estimate,
        "low": interval.low,
        "high": interval.high,
    }
