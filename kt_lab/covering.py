"""Few configs for many workloads: the best k of a pool.

Each workload uses the fastest of the chosen that it can use. For the geometric mean this is
facility location: a monotone submodular gain, of which greedy choice gets at least 1 - 1/e.
Source: Nemhauser, Wolsey and Fisher, Mathematical Programming 14 (1978). The worst case has no
such promise, which is why small problems are solved exactly and others improved by swaps.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from kt_lab.errors import UsageError, whole

OBJECTIVES = ("geomean", "minimax")
_NEVER = 1e6  # what a workload costs that a config cannot run: cover first, then be fast
_EXACT = 50_000  # sets of k that are all tried
_TIE = 1e-6  # weight of the mean among equally good worst cases


def cover(
    costs: np.ndarray,
    groups: Sequence[Hashable],
    k: int,
    *,
    objective: str = "geomean",
    base: np.ndarray | None = None,
) -> tuple[list[int], dict[Hashable, int]]:
    """Returns at most k configs that together serve all workloads best, and who uses which.

    Configs that another one beats or equals everywhere are set aside first, which loses nothing.
    If at most 50,000 sets of k are left, all are tried: exact for k = 1 and for small pools.
    Otherwise the configs are chosen one after the other and then swapped for others, one at a
    time, while that helps.

    Args:
        costs: Latency relative to any reference of the workload, shape (configs, workloads); not
            finite where the config cannot be used, which costs more than anything else.
        groups: What each workload shares a config by, such as its value of a key.
        k: How many, >= 1.
        objective: "geomean" of all workloads' costs, or "minimax", the largest.
        base: What each workload costs without any of them, with its default, shape (workloads,);
            None: it has to use one of them.

    Returns:
        Positions of the configs that some group uses, ascending; and the position by group,
        without the groups that none of them serves better than `base`.
    """
    k = whole("k", k, low=1)
    if objective not in OBJECTIVES:
        raise UsageError(f"objective must be one of {OBJECTIVES}, got {objective!r}")
    names = list(dict.fromkeys(groups))
    members = [[i for i, group in enumerate(groups) if group == name] for name in names]
    together = np.mean if objective == "geomean" else np.max

    def logs_of(rows: np.ndarray) -> np.ndarray:
        logs = np.log(np.where(np.isfinite(rows), rows, _NEVER))
        return np.stack([together(logs[:, own], axis=1) for own in members], axis=1)

    def score(served: np.ndarray) -> np.ndarray:
        mean = np.average(served, axis=-1, weights=[len(own) for own in members])
        return mean if objective == "geomean" else served.max(axis=-1) + _TIE * mean

    logs = logs_of(np.asarray(costs, dtype=float))
    bar = np.full(len(names), np.inf) if base is None else logs_of(base[None])[0]
    chosen = _choose(np.minimum(logs, bar), k, score)
    best = [chosen[int(at)] for at in np.argmin(logs[chosen], axis=0)]
    use = {
        name: at
        for g, (name, at) in enumerate(zip(names, best, strict=True))
        if logs[at, g] < bar[g]
    }
    return sorted(set(use.values())), use


def _choose(logs: np.ndarray, k: int, score: Callable) -> list[int]:
    front = _front(logs)
    kept, k = logs[front], min(k, len(front))
    if math.comb(len(front), k) <= _EXACT:
        sets = np.array(list(itertools.combinations(range(len(front)), k)))
        chosen = sets[np.argmin(score(kept[sets].min(axis=1)))].tolist()
    else:
        chosen = _greedy(kept, k, score)
    return front[chosen].tolist()


def _front(logs: np.ndarray) -> np.ndarray:
    """Returns ascending positions of the configs that no other beats or equals everywhere."""
    left = np.argsort(logs.sum(axis=1), kind="stable")
    found = []
    while left.size:
        found.append(left[0])
        left = left[(logs[left] < logs[left[0]]).any(axis=1)]
    return np.sort(np.array(found))


def _greedy(logs: np.ndarray, k: int, score: Callable) -> list[int]:
    def with_best(kept: list[int]) -> tuple[float, int]:
        served = np.minimum(logs, logs[kept].min(axis=0)) if kept else logs
        scores = score(served)
        return float(scores.min()), int(np.argmin(scores))

    chosen: list[int] = []
    for _ in range(k):
        now, at = with_best(chosen)
        chosen.append(at)
    while True:
        swaps = [(*with_best(chosen[:i] + chosen[i + 1 :]), i) for i in range(k)]
        found, at, out = min(swaps)
        if found >= now - 1e-12:
            return chosen
        chosen[out], now = at, found
