"""A searcher and the reference on one workload, and the table of all such pairs."""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.stats.intervals import (
    CONFIDENCE,
    RESAMPLES,
    Draw,
    Interval,
    log_ratio,
    mean_log,
    percentile_interval,
    quantiles,
    resample_means,
)
from kt_lab.stats.tables import CELL, check_searcher, single_lanes

COLUMNS = (
    *("measure", "scope", "gpu", "kernel", "workload", "searcher", "reference", "lanes"),
    *("estimate", "low", "high", "p90", "worst", "value", "reference_value"),
    *("unit", "target_us", "within"),
    *("n_kernels", "n_workloads", "n_gpus", "n_seeds", "n_success", "n_runs"),
    *("reference_n_success", "reference_n_runs", "confidence"),
)

TAILS = {"p90": 0.9, "worst": 1.0}  # column -> quantile over seeds


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How intervals are made: their confidence in (0, 1), resamples >= 1, and the seed."""

    confidence: float = CONFIDENCE
    resamples: int = RESAMPLES
    seed: int = 0

    def __post_init__(self):
        """Refuses an interval that nothing could fill."""
        if not 0 < self.confidence < 1:
            raise UsageError(f"confidence must lie between 0 and 1, got {self.confidence}")
        if self.resamples < 1:
            raise UsageError(f"resamples must be at least 1, got {self.resamples}")

    def rng(self, searcher: str) -> np.random.Generator:
        """Returns a searcher's own generator: its rows do not depend on who else is there."""
        return np.random.default_rng([self.seed, zlib.crc32(searcher.encode())])


@dataclass(frozen=True)
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
        even = (self.weight == 1).all()  # saves half of the work where nothing is weighed
        weight = rows.shape[-1] if even else np.take(self.weight, rows).sum(axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.take(self.amount, rows).sum(axis=-1) / weight
            log = mean if self.logged else np.log(mean)
        return np.where(np.isnan(log), np.inf, log)  # 0 / 0: free, but nothing was reached

    @cached_property
    def estimate(self) -> float:
        """The logarithm of the value of all runs."""
        return float(self.log_value(np.arange(self.seeds.size)))


def draw_logs(samples: Sequence[Sample], n: int, rng: np.random.Generator) -> np.ndarray:
    """Returns n log values of each sample, from resampled seeds, shape (n, samples).

    Runs of the same seed read the same recorded noise, so they are drawn together where samples
    have the same seeds as the first; others are resampled independently.
    """
    first = samples[0].seeds
    rows = rng.integers(first.size, size=(n, first.size))
    drawn = []
    for sample in samples:
        same, size = np.array_equal(first, sample.seeds), sample.seeds.size
        chosen = rows if same else rng.integers(size, size=(n, size))
        drawn.append(sample.log_value(chosen) if size > 1 else np.full(n, sample.estimate))
    return np.stack(drawn, axis=-1)


@dataclass(frozen=True)
class Pair:
    """A searcher's and the reference's runs on one workload (cell: gpu, kernel, workload)."""

    cell: tuple[str, str, str]
    own: Sample
    reference: Sample
    target_us: float

    @cached_property
    def estimate(self) -> float:
        """The log ratio of all runs."""
        return float(log_ratio(np.float64(self.own.estimate), np.float64(self.reference.estimate)))

    @property
    def is_single(self) -> bool:
        """Whether each side ran once: then nothing says how sure the ratio is."""
        once = max(self.own.seeds.size, self.reference.seeds.size) == 1
        return once and self.own is not self.reference

    @cached_property
    def tails(self) -> dict[str, float]:
        """The log ratios of the 90th percentile and of the worst seed; NaN unless logged."""
        logs = quantiles(self.own.amount, tuple(TAILS.values())) if self.own.logged else math.nan
        logs = log_ratio(logs, np.full(len(TAILS), self.reference.estimate))
        return dict(zip(TAILS, logs.tolist(), strict=True))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Returns n log ratios of resampled seeds; see `draw_logs`."""
        if self.own is self.reference:
            return np.zeros(n)
        return log_ratio(*draw_logs((self.own, self.reference), n, rng).T)


def one_workload(pairs: Sequence[Pair]) -> Draw:
    """Returns how one workload is drawn: its GPUs together, their mean as one value.

    GPUs alike give nearly the same landscape, so a workload on two of them is not two pieces of
    evidence. Their runs of one seed start alike, so they are drawn together as well.
    """
    if len(pairs) == 1:
        return pairs[0].draw

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        state = int(rng.integers(2**63))
        cells = [pair.draw(n, np.random.default_rng(state)) for pair in pairs]
        with np.errstate(invalid="ignore"):
            mean = np.mean(cells, axis=0)
        return np.where(np.isnan(mean), np.inf, mean)

    return draw


def ratio_table(
    samples: pd.DataFrame,
    facts: Mapping[str, Any],
    *,
    reference: str | None,
    logged: bool,
    bootstrap: Bootstrap,
) -> pd.DataFrame:
    """Returns a row per (workload, searcher), then a geomean row per searcher.

    A geomean weighs every workload the same: one that was tuned on several GPUs enters, and is
    resampled, as the mean over them.

    Args:
        samples: One row per run: the columns of RUN, `amount`, `weight`, `success` and
            optionally `target_us`; without a reference, `level` (an amount, per workload).
        facts: Columns that are equal in all rows (`measure`, `unit` and, if any, `within`).
        reference: The searcher that every other is divided by; None: by `level`.
        logged: Whether `amount` is a logarithm.
        bootstrap: How the intervals are made.
    """
    facts = {"within": math.nan, "reference": reference, "lanes": single_lanes(samples), **facts}
    facts["confidence"] = bootstrap.confidence
    rows, means = [], []
    for searcher, pairs in _pairs(samples, reference, logged=logged).items():
        rng = bootstrap.rng(searcher)
        cells: dict[tuple[str, str], list[Pair]] = {}
        for pair in pairs:
            bounds = percentile_interval(pair.draw(bootstrap.resamples, rng), bootstrap.confidence)
            if pair.is_single:
                bounds = (math.nan, math.nan)
            interval = Interval(math.exp(pair.estimate), *bounds)
            rows.append({**_workload_row(pair), **_counts([pair]), **_ends(searcher, interval)})
            cells.setdefault(pair.cell[1:], []).append(pair)
        draws: dict[str, list[Draw]] = {}
        for (kernel, _), same in cells.items():
            draws.setdefault(kernel, []).append(one_workload(same))
        center = _over_workloads(cells, lambda pair: pair.estimate)
        resampled = resample_means(draws, bootstrap.resamples, rng)
        bounds = percentile_interval(resampled, bootstrap.confidence)
        if len(cells) == 1 and all(pair.is_single for pair in pairs):
            bounds = (math.nan, math.nan)
        interval = Interval(center, *bounds)
        row = {**_geomean_row(pairs), **_counts(pairs), **_ends(searcher, interval)}
        for name in TAILS if logged else ():
            row[name] = _over_workloads(cells, lambda pair, name=name: pair.tails[name])
        means.append(row)
    return pd.DataFrame([*rows, *means]).assign(**facts)[list(COLUMNS)]


def _over_workloads(cells: Mapping[Any, Sequence[Pair]], log: Callable[[Pair], float]) -> float:
    """Returns the geomean over workloads of the geomeans over their GPUs."""
    means = [mean_log(np.array([log(pair) for pair in same])) for same in cells.values()]
    return math.exp(mean_log(np.array(means)))


def _pairs(samples: pd.DataFrame, reference: str | None, *, logged: bool) -> dict[str, list[Pair]]:
    """Returns per searcher its pairs, in the order of gpu, kernel and workload."""
    if reference is not None:
        check_searcher(samples, reference)
    found: dict[str, list[Pair]] = {}
    samples = samples.sort_values("seed", kind="stable")  # once: groups keep the order
    for cell, table in samples.groupby(list(CELL), observed=True, sort=True):
        own = _samples(table, logged=logged)
        if reference is None:
            level = table["level"].to_numpy(float)[:1]
            other = Sample(np.zeros(1), level, np.ones(1), logged, 1)
        elif reference in own:
            other = own[reference]
        else:
            raise UsageError(
                f"every workload needs runs of the reference {reference!r}; {cell[2]} on "
                f"{cell[0]} has none - run it there, or leave the workload out"
            )
        target = float(table["target_us"].iloc[0]) if "target_us" in table else math.nan
        for name, sample in own.items():
            found.setdefault(name, []).append(Pair(cell, sample, other, target))
    return found


def _samples(table: pd.DataFrame, *, logged: bool) -> dict[str, Sample]:
    """Returns the runs of each searcher on one workload, as they come."""
    seeds, success = table["seed"].to_numpy(), table["success"].to_numpy()
    amount, weight = table["amount"].to_numpy(float), table["weight"].to_numpy(float)
    rows = table.groupby("searcher", observed=True, sort=True).indices  # groups are slow to slice
    return {
        str(name): Sample(seeds[at], amount[at], weight[at], logged, int(success[at].sum()))
        for name, at in rows.items()
    }


def _workload_row(pair: Pair) -> dict[str, Any]:
    """Returns what only the row of one workload has."""
    gpu, kernel, workload = pair.cell
    return {
        "scope": "workload",
        "gpu": gpu,
        "kernel": kernel,
        "workload": workload,
        **{name: math.exp(log) for name, log in pair.tails.items()},
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
        "n_workloads": len({pair.cell[1:] for pair in pairs}),
        "n_gpus": len({pair.cell[0] for pair in pairs}),
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
