"""What recorded landscapes look like: tails, effects, local optima, and what carries over.

Every function takes landscapes and returns a tidy table. "Ratio" is latency / optimum of the same
landscape, 1 is the best; failed configs have none and are counted apart.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy

from kt_lab.keys import carried
from kt_lab.landscape import Landscape
from kt_lab.roofline import roofline
from kt_lab.trial import Config

NEAR = 1.05  # times the optimum: a local optimum that is good enough
_FEWEST_SHARED = 20  # configs that two landscapes must share to be compared


def ratios(landscape: Landscape) -> np.ndarray:
    """Returns latency / optimum of every config, shape (space.size,), NaN where it failed."""
    return landscape.latency_us / landscape.optimum_us


def tail(landscape: Landscape) -> pd.DataFrame:
    """Returns how rare good configs are: one row per measured config, best first.

    Returns:
        workload, gpu, ratio, share (of all recorded configs, failures included, that are at
        least so good).
    """
    found = np.sort(ratios(landscape)[np.isfinite(ratios(landscape))])
    share = np.arange(1, len(found) + 1) / len(landscape.table)
    return _told(landscape, pd.DataFrame({"ratio": found, "share": share}))


def effects(landscape: Landscape, *, pairs: bool = True) -> pd.DataFrame:
    """Returns how much of the variance of log latency each parameter, and each pair, explains.

    The parts are R² of cell means, as in a functional analysis of variance over the measured
    configs; a pair's is what its cells explain beyond its two parameters added up. Constraints
    make parameters depend on one another, so the parts need not add up to 1, and a pair's may
    be negative: the two then tell the same story.

    Args:
        landscape: Where.
        pairs: Whether to add the pairs.

    Returns:
        workload, gpu, parameters ("A" or "A x B"), kind ("main" or "interaction"), share.
    """
    at = np.flatnonzero(np.isfinite(landscape.latency_us))
    rows, log = landscape.space.enumerate()[at], np.log(landscape.latency_us[at])
    names = landscape.space.names
    main = {i: _explained(rows[:, [i]], log) for i in range(len(names))}
    parts = [(names[i], "main", share) for i, share in main.items()]
    for i, j in itertools.combinations(main, 2) if pairs else ():
        both = _explained(rows[:, [i, j]], log) - main[i] - main[j]
        parts.append((f"{names[i]} x {names[j]}", "interaction", both))
    return _told(landscape, pd.DataFrame(parts, columns=["parameters", "kind", "share"]))


def _explained(rows: np.ndarray, values: np.ndarray) -> float:
    _, cell = np.unique(rows, axis=0, return_inverse=True)
    means = np.bincount(cell, values) / np.bincount(cell)
    total = values.var()
    return float(1 - (values - means[cell]).var() / total) if total else 0.0


def marginals(landscape: Landscape) -> pd.DataFrame:
    """Returns what each value of each parameter allows.

    Returns:
        workload, gpu, parameter, value (as text), configs, failed (share of them), median and
        best (ratio; the best one is what matters to a search that tunes the rest).
    """
    rows, ratio = landscape.space.enumerate(), ratios(landscape)
    known = landscape.status != ""
    found = []
    for column, parameter in enumerate(landscape.space.parameters):
        for index, value in enumerate(parameter.values):
            here = known & (rows[:, column] == index)
            good = ratio[here & np.isfinite(ratio)]
            found.append(
                {
                    "parameter": parameter.name,
                    "value": str(value),
                    "configs": int(here.sum()),
                    "failed": 1 - len(good) / here.sum() if here.any() else np.nan,
                    "median": float(np.median(good)) if len(good) else np.nan,
                    "best": float(good.min()) if len(good) else np.nan,
                }
            )
    return _told(landscape, pd.DataFrame(found))


def local_optima(landscape: Landscape) -> pd.DataFrame:
    """Returns the configs that no single change of one parameter by one step improves.

    Returns:
        workload, gpu, config (position), ratio, neighbours (measured ones), best first. The
        global optimum is the first row; a descent may end in any of the others.
    """
    space, ratio = landscape.space, ratios(landscape)
    rows = space.enumerate()
    found = []
    for at in np.flatnonzero(np.isfinite(ratio)):
        near = ratio[space.indices(space.neighbour_rows(rows[at]))]
        near = near[np.isfinite(near)]
        if not (near < ratio[at]).any():
            found.append((int(at), float(ratio[at]), len(near)))
    table = pd.DataFrame(found, columns=["config", "ratio", "neighbours"]).sort_values("ratio")
    return _told(landscape, table.reset_index(drop=True))


def fitness_distance(landscape: Landscape) -> pd.DataFrame:
    """Returns how far every measured config is from the best one, in steps, and its ratio.

    Rank correlation of the two columns near 1: the way down leads to the optimum.
    """
    space, ratio = landscape.space, ratios(landscape)
    at = np.flatnonzero(np.isfinite(ratio))
    rows = space.enumerate()
    steps = space.distances(rows[at[np.argmin(ratio[at])]], rows[at])
    return _told(landscape, pd.DataFrame({"steps": steps, "ratio": ratio[at]}))


def carry_over(landscapes: Sequence[Landscape], *, top: int = 10) -> pd.DataFrame:
    """Returns what is known on one landscape of another: ranks, and what its best configs cost.

    Args:
        landscapes: Of one kernel; shapes and GPUs may differ. A parameter that the target lacks
            is left out, one that only the target has gets the target's default.
        top: How many of the best configs of A are tried on B.

    Returns:
        One row per ordered pair: source, target (workload on gpu), shared (configs of the
        source measured in both), spearman (of their latencies), best_ratio (the best config of A
        on B, as latency / optimum of B; infinite where it failed, missing where B's space does
        not hold it), top_ratio (the best of A's top configs that B knows).
    """
    labelled = [
        (f"{x.workload.partition('/')[2]} on {x.gpu}", _by_config(x), x.space.default)
        for x in landscapes
    ]
    rows = []
    for (source, a, _), (target, b, default) in itertools.product(labelled, repeat=2):
        there = {c: b[t] for c in a if (t := carried(c, default)) in b}
        shared = [c for c in there if np.isfinite(a[c]) and np.isfinite(there[c])]
        ranked = sorted((c for c in a if np.isfinite(a[c])), key=a.get)
        known = [there[c] for c in ranked[:top] if c in there]
        known = [value if np.isfinite(value) else np.inf for value in known]
        best = there.get(ranked[0])
        enough = len(shared) >= _FEWEST_SHARED
        pair = [[x[c] for c in shared] for x in (a, there)]
        rows.append(
            {
                "source": source,
                "target": target,
                "shared": len(shared),
                "spearman": float(scipy.stats.spearmanr(*pair).statistic) if enough else np.nan,
                "best_ratio": np.nan if best is None else best if np.isfinite(best) else np.inf,
                "top_ratio": min(known, default=np.nan),
            }
        )
    return pd.DataFrame(rows)


def _by_config(landscape: Landscape) -> dict[Config, float]:
    """Returns ratio by config, of what was recorded; NaN: it failed."""
    at = landscape.table.index.to_numpy()
    configs = landscape.space.configs(landscape.space.enumerate()[at])
    return dict(zip(configs, ratios(landscape)[at].tolist(), strict=True))


def ablation_path(landscape: Landscape) -> pd.DataFrame:
    """Returns the measured way from the default to the best config, one parameter at a time.

    At each step the parameter is set to its best value that gains most, among those whose result
    was measured; where no single one leads to a measured config, a pair is set at once. Source:
    ablation analysis, Fawcett and Hoos, J. Heuristics 22 (2016), here on true measurements.

    Returns:
        workload, gpu, step (0: the default), changed ("NAME: a -> b"), latency_us, gain (latency
        before / after: above 1 is faster).
    """
    known = {c: r * landscape.optimum_us for c, r in _by_config(landscape).items()}
    best, here = landscape.best, landscape.space.default
    rows = [(0, "", known.get(here, np.nan), np.nan)]
    while here != best:
        here, changed = _next_step(here, best, known)
        before, now = rows[-1][2], known[here]
        rows.append((len(rows), changed, now, before / now))
    return _told(landscape, pd.DataFrame(rows, columns=["step", "changed", "latency_us", "gain"]))


def _next_step(
    here: Mapping[str, Any], best: Mapping[str, Any], known: Mapping[Config, float]
) -> tuple[Config, str]:
    different = [name for name in best if here[name] != best[name]]
    for together in range(1, len(different) + 1):
        options = []
        for names in itertools.combinations(different, together):
            config = Config({**here, **{name: best[name] for name in names}})
            if np.isfinite(known.get(config, np.nan)):
                changed = ", ".join(f"{n}: {_text(here[n])} -> {_text(best[n])}" for n in names)
                options.append((known[config], changed, config))
        if options:
            _, changed, config = min(options, key=lambda option: option[:2])
            return config, changed
    raise AssertionError("the best config was measured, so the last step always exists")


def _text(value: Any) -> str:
    return "(empty)" if value == "" else str(value)


def rank_distance(landscape: Landscape) -> float:
    """Returns the rank correlation of steps to the optimum with latency, -1..1."""
    table = fitness_distance(landscape)
    if table[["steps", "ratio"]].nunique().min() < 2:
        return np.nan
    ranks = (scipy.stats.rankdata(table[name]) for name in ("steps", "ratio"))
    return float(np.corrcoef(*ranks)[0, 1])


def under_the_roof(landscape: Landscape) -> pd.DataFrame:
    """Returns how close the best, the default and the vendor's path come to the roofline.

    Returns:
        workload, gpu, label ("best", "default", "vendor"), latency_us, share (of the roofline,
        0..1), intensity (operations per byte), flops_per_s (achieved), and the roof:
        peak_bytes_per_s, peak_flops_per_s (null: unknown). The default has no row where it
        failed, the vendor none where it was not timed beside the best.
    """
    told, bounds = landscape.manifest, roofline(landscape.manifest)
    vendor = told.get("baseline", {}).get("samples_us", [])
    default = landscape.latency_us[landscape.space.index(landscape.space.default)]
    latency = {"best": landscape.optimum_us, "default": float(default)}
    latency["vendor"] = float(np.median(vendor)) if vendor else np.nan
    table = pd.DataFrame({"label": latency.keys(), "latency_us": latency.values()})
    table = table.dropna(subset="latency_us").reset_index(drop=True)
    table["share"] = bounds.share(table["latency_us"])
    table["intensity"] = bounds.intensity
    table["flops_per_s"] = bounds.flops / table["latency_us"] * 1e6
    table["peak_bytes_per_s"] = bounds.bytes_per_s
    table["peak_flops_per_s"] = bounds.flops_per_s or np.nan
    return _told(landscape, table)


def summary(landscape: Landscape) -> dict[str, Any]:
    """Returns one row of an atlas: what makes a landscape easy or hard to search.

    Returns:
        workload, gpu, configs, failed (share of them), within_5_percent (share of all configs
        within 5 % of the optimum), main_share and pair_share (of the variance of log latency:
        all parameters added up, and the strongest pair beyond its two), local_optima (count)
        and bad_optima (share of them more than 5 % above the best), rank_distance.
    """
    parts, ratio = effects(landscape), ratios(landscape)
    optima = local_optima(landscape)["ratio"]
    share = parts.groupby("kind")["share"]
    return {
        "workload": landscape.workload,
        "gpu": landscape.gpu,
        "configs": len(landscape.table),
        "failed": 1 - float(np.isfinite(ratio).sum()) / len(landscape.table),
        "within_5_percent": float((ratio <= NEAR).sum()) / len(landscape.table),
        "main_share": float(share.sum()["main"]),
        "pair_share": float(share.max().get("interaction", np.nan)),
        "local_optima": len(optima),
        "bad_optima": float((optima > NEAR).mean()),
        "rank_distance": rank_distance(landscape),
    }


def _told(landscape: Landscape, table: pd.DataFrame) -> pd.DataFrame:
    table.insert(0, "workload", landscape.workload)
    table.insert(1, "gpu", landscape.gpu)
    return table
