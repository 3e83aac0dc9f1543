"""How well a searcher's model knew the configs that it chose: their ranks, calibration, error.

Judged is what a model chose, not what it passed over, generation by generation: a generation is
chosen by one model, from the readings told before it. Failures are infinitely slow.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy

from kt_lab.errors import UsageError
from kt_lab.search import get_searcher
from kt_lab.search.surrogate import threshold
from kt_lab.stats.intervals import CONFIDENCE, RESAMPLES, percentile_bounds, resample_means
from kt_lab.stats.pairs import Bootstrap
from kt_lab.stats.tables import RUN, check_columns, single_lanes
from kt_lab.trial import OK

_CHOICE = (*RUN, "trial", "generation", "predicts", "predicted", "latency_us", "bar_us", "good")
_TRIAL = ("trial", "config", "status", "latency_us", "generation", "predicted")
_ALL = -1  # the number of all generations together, never stored


def model_choices(
    runs: pd.DataFrame, *, searchers: Mapping[str, Any] | Sequence[str] | None = None
) -> pd.DataFrame:
    """Returns what the models of the runs chose, what they said of it, and what it was.

    Args:
        runs: The tidy table of runs, with the columns `generation` and `predicted`.
        searchers: Row name -> registered name, or (registered name, options), as in Experiment;
            a row that it does not name is taken for a registered searcher with its defaults.

    Returns:
        One row per choice, in order of trial within each run: the columns of RUN, `trial`,
        `generation`, `predicts` ("p_good" or "latency_us"), `predicted`, `latency_us` (inf unless
        ok; no searcher that predicts cuts readings off) and, for "p_good", `bar_us` and `good`:
        whether the reading is at or below the bar that the searcher's own rule
        (`kt_lab.search.surrogate.threshold`) sets from the latest readings before the generation.
        Where nothing was readable by then, the bar is null and nothing is good.

    Raises:
        UsageError: The table holds no predictions, or some without a generation.
        UnknownName: A row that predicts is no registered searcher, and `searchers` lacks it.
    """
    check_columns(runs, (*RUN, *_TRIAL))
    if lost := int((runs["predicted"].notna() & runs["generation"].isna()).sum()):
        raise UsageError(
            "a prediction must come with its generation, which fixes what the model knew, got "
            f"{lost} without; pass generation to Searcher.propose"
        )
    names = dict(searchers) if isinstance(searchers, Mapping) else {}
    parts = []
    predicting = runs["predicted"].notna().groupby(runs["searcher"], observed=True).any()
    for name in predicting.index[predicting].astype(str):
        given = names.get(name, name)
        algorithm, options = (given, {}) if isinstance(given, str) else given
        made = get_searcher(algorithm)
        quantile = getattr(made.Options(**dict(options)), "quantile", None)
        own = runs[runs["searcher"] == name].sort_values("trial")
        for _, run in own.groupby(list(RUN), observed=True, sort=True):
            parts.append(_choices(run, quantile).assign(predicts=made.predicts))
    if not parts:
        raise UsageError(
            "the table of runs must hold predictions, got none: tables stored before searchers "
            "told theirs lack them, as do searchers without a model; run the study again"
        )
    return pd.concat(parts, ignore_index=True)[list(_CHOICE)]


def _choices(run: pd.DataFrame, quantile: float | None) -> pd.DataFrame:
    """Returns the choices of one run, given in order of trial."""
    ok = (run["status"] == OK).to_numpy()
    latency = np.where(ok, run["latency_us"].to_numpy(float, na_value=np.nan), np.inf)
    chosen = run["predicted"].notna().to_numpy()
    generation = run["generation"].to_numpy(float, na_value=np.nan)
    bar = np.full(len(run), np.nan)
    if quantile is not None:
        config = run["config"].to_numpy()
        for number in np.unique(generation[chosen]):
            began = int(np.argmax(generation == number))
            latest = dict(zip(config[:began].tolist(), latency[:began].tolist(), strict=True))
            bar[generation == number] = threshold(np.array(list(latest.values())), quantile)
    found = run[[*RUN, "trial", "generation", "predicted"]].assign(latency_us=latency, bar_us=bar)
    return found.assign(good=latency <= bar)[chosen]


def rank_correlation(
    predicted: np.ndarray, latency_us: np.ndarray, *, predicts: str = "latency_us"
) -> float:
    """Returns Spearman's rank correlation of predictions and readings; equals share their rank.

    Args:
        predicted: Shape (n,), in the unit `predicts`.
        latency_us: Microseconds, shape (n,); inf where the config failed.
        predicts: "latency_us", or "p_good", of which more is faster.

    Returns:
        1 when the order was known, -1 when it was known the wrong way round; 0 when all
        predictions are equal; NaN when there is nothing to rank: fewer than two configs, all
        equally fast, or failures only.
    """
    sign = {"latency_us": 1.0, "p_good": -1.0}[predicts]
    signed = sign * np.asarray(predicted)
    read, said = (scipy.stats.rankdata(x) - (len(x) + 1) / 2 for x in (latency_us, signed))
    spread = float(read @ read), float(said @ said)
    if spread[0] == 0:
        return math.nan
    return float(read @ said) / math.sqrt(spread[0] * spread[1]) if spread[1] else 0.0


def surrogate_quality(
    choices: pd.DataFrame,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Returns how well each searcher's model knew its choices, per generation and in all.

    Measures: "rank_correlation" (see the function); for "p_good" the "brier" score, the mean of
    (predicted - good)^2; for "latency_us" the "log_error", the median of |ln(predicted / read)|
    over what could be read (inf where the prediction is not positive).

    Args:
        choices: From `model_choices`, of one lane count.
        confidence: Of the intervals, in (0, 1).
        resamples: Number of bootstrap resamples.
        seed: Fixes the resampling.

    Returns:
        One row per (measure, searcher, generation), generation null for all of them: `estimate`
        (mean over the runs that have one, workloads weighing alike; in all generations a run has
        the mean over its own, weighted by their configs), `low`, `high` (percentile bootstrap
        over kernels, their workloads, their seeds), `n_kernels`, `n_workloads`, `n_seeds` (least
        per workload), `n_runs`, `n_configs`, `n_failed` (of those), `gpu`, `lanes`, `confidence`.
    """
    bootstrap = Bootstrap(confidence, resamples, seed)
    check_columns(choices, _CHOICE, what="choices")
    lanes, rows = single_lanes(choices), []
    for name, own in choices.groupby("searcher", observed=True, sort=True):
        runs, scores = _runs(own), _scores(own)
        sums = np.stack([scores.fillna(0.0), scores.notna()], axis=1)
        total, known = np.moveaxis(_resampled(runs, sums, str(name), bootstrap), 1, 0)
        with np.errstate(invalid="ignore"):
            ratios = total / known
        for (measure, number), values in zip(scores, ratios.T, strict=True):
            of = own if number == _ALL else own[own["generation"] == number]
            row = {"measure": measure, "searcher": str(name), "generation": number, "lanes": lanes}
            some = runs[scores[measure, number].notna()]
            rows.append(row | _ends(values, confidence) | _counts(some, of))
    table = pd.DataFrame(rows).astype({"generation": "Int16"})
    return table.assign(generation=table["generation"].mask(table["generation"] == _ALL))


def calibration(
    choices: pd.DataFrame,
    *,
    bins: int = 10,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Returns how often what a model called good was good, per equal bin of its probability.

    Args:
        choices: From `model_choices`; searchers that predict latencies are left out.
        bins: Of [0, 1], >= 1; the last one holds 1.
        confidence: Of the intervals, in (0, 1).
        resamples: Number of bootstrap resamples.
        seed: Fixes the resampling.

    Returns:
        One row per (searcher, bin that holds any): `bin_low`, `bin_high`, `predicted` (mean),
        `observed` (share that was good), `low`, `high` (its interval, as in
        `surrogate_quality`; over the resamples that hold any), `n_configs`, `confidence`, and the
        searcher's `calibration_error`: the mean over its choices of |predicted - observed|, bin
        by bin (no interval: resampling can only blur bins, and so widens the error).
    """
    bootstrap = Bootstrap(confidence, resamples, seed)
    check_columns(choices, _CHOICE, what="choices")
    rows = []
    told = choices[choices["predicts"] == "p_good"]
    for name, own in told.groupby("searcher", observed=True, sort=True):
        runs = _runs(own)
        at = np.minimum((own["predicted"].to_numpy(float) * bins).astype(int), bins - 1)
        sums = np.zeros((len(runs), 3, bins))
        for kind, value in enumerate((1.0, own["predicted"], own["good"])):
            np.add.at(sums[:, kind], (_run_of(own), at), value)
        n, said, good = np.moveaxis(_resampled(runs, sums, str(name), bootstrap), 1, 0)
        error = np.abs(said[0] - good[0]).sum() / n[0].sum()
        with np.errstate(invalid="ignore"):
            shares = good / n
        for b in np.unique(at):
            row = {"searcher": str(name), "bin_low": b / bins, "bin_high": (b + 1) / bins}
            row |= {"predicted": said[0, b] / n[0, b], **_ends(shares[:, b], confidence)}
            rows.append(row | {"n_configs": int((at == b).sum()), "calibration_error": error})
    return pd.DataFrame(rows).rename(columns={"estimate": "observed"})


def _runs(own: pd.DataFrame) -> pd.DataFrame:
    """Returns a searcher's runs, one row each, in the order of RUN."""
    return own.groupby(list(RUN), observed=True, sort=True).size().reset_index(name="n")


def _run_of(own: pd.DataFrame) -> np.ndarray:
    """Returns the number of each choice's run, in the order of `_runs`."""
    return own.groupby(list(RUN), observed=True, sort=True).ngroup().to_numpy()


def _scores(own: pd.DataFrame) -> pd.DataFrame:
    """Returns the measures of every run (rows) by (measure, generation or _ALL)."""
    predicts = str(own["predicts"].iloc[0])
    rows = []
    numbered = own.assign(run=_run_of(own))
    for (run, generation), chosen in numbered.groupby(["run", "generation"], sort=True):
        said, read = chosen["predicted"].to_numpy(float), chosen["latency_us"].to_numpy(float)
        row = {"run": run, "generation": int(generation), "n": len(chosen)}
        row["rank_correlation"] = rank_correlation(said, read, predicts=predicts)
        if predicts == "p_good":
            row["brier"] = float(np.mean((said - chosen["good"].to_numpy(float)) ** 2))
        else:
            row["log_error"] = _log_error(said, read)
        rows.append(row)
    keys = ["run", "generation", "n"]
    tall = pd.DataFrame(rows).melt(keys, var_name="measure")
    known = tall.assign(value=tall["value"] * tall["n"], n=tall["n"] * tall["value"].notna())
    sums = known.groupby(["measure", "run"])[["value", "n"]].sum()
    whole = (sums["value"] / sums["n"]).reset_index(name="value").assign(generation=_ALL)
    both = pd.concat([tall, whole])
    wide = both.pivot(index="run", columns=["measure", "generation"], values="value")
    return wide.sort_index(axis=1)


def _log_error(said: np.ndarray, read: np.ndarray) -> float:
    """Returns the median |ln(said / read)| over what could be read; NaN: nothing could."""
    said, read = said[np.isfinite(read)], read[np.isfinite(read)]
    errors = np.full(len(read), np.inf)
    errors[said > 0] = np.abs(np.log(said[said > 0] / read[said > 0]))
    return float(np.median(errors)) if len(errors) else math.nan


def _resampled(
    runs: pd.DataFrame, sums: np.ndarray, name: str, bootstrap: Bootstrap
) -> np.ndarray:
    """Returns means over runs of their sums, shape (1 + resamples, ...); row 0: of all runs.

    Ratios of these means are ratios of sums, in which a run without an amount has no weight. The
    GPUs of a workload and seed are drawn together.

    Args:
        runs: From `_runs`.
        sums: Shape (runs, ...).
        name: The searcher's.
        bootstrap: How the intervals are made.
    """
    means, draws = [], {}
    for (kernel, _), at in runs.groupby(["kernel", "workload"], observed=True).indices.items():
        seeds = runs["seed"].to_numpy()[at]
        each = np.stack([sums[at[seeds == seed]].mean(axis=0) for seed in np.unique(seeds)])
        means.append(each.mean(axis=0))
        draws.setdefault(str(kernel), []).append(
            lambda n, rng, each=each: each[rng.integers(len(each), size=(n, len(each)))].mean(1)
        )
    drawn = resample_means(draws, bootstrap.resamples, bootstrap.rng(name))
    return np.concatenate([np.mean(means, axis=0)[None], drawn])


def _ends(values: np.ndarray, confidence: float) -> dict[str, float]:
    """Returns the estimate, first of the values, and the interval of the others that exist."""
    some = values[1:][~np.isnan(values[1:])]
    low, high = percentile_bounds(some, confidence) if len(some) else (math.nan, math.nan)
    return {"estimate": float(values[0]), "low": low, "high": high, "confidence": confidence}


def _counts(runs: pd.DataFrame, own: pd.DataFrame) -> dict[str, Any]:
    """Returns how much evidence a row rests on, and the names of its GPUs."""
    seeds = runs.groupby(["gpu", "workload"], observed=True)["seed"].size()
    return {
        "gpu": ", ".join(sorted(runs["gpu"].astype(str).unique())),
        "n_kernels": runs["kernel"].nunique(),
        "n_workloads": runs["workload"].nunique(),
        "n_seeds": int(seeds.min()) if len(seeds) else 0,
        "n_runs": len(runs),
        "n_configs": len(own),
        "n_failed": int(np.isinf(own["latency_us"].to_numpy(float)).sum()),
    }
