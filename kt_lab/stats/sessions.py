"""Whether two sessions of one landscape agree: ranks, offsets and the optimum."""

import numpy as np
import pandas as pd
import scipy

from kt_lab.landscape import Landscape
from kt_lab.sessions import log_offsets


def agreement(landscape: Landscape, sessions: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per session, compared with the recording.

    Args:
        landscape: The recording, itself a session.
        sessions: Readings of its workload in others, as `load_sessions` returns them.

    Returns:
        session, configs (timed in both), spearman (rank correlation of the medians of configs
        evenly spaced over the recorded ranks, -1..1: of contenders alone it would be that of
        their noise), visits_spearman (of the same configs in the recording's first two visits),
        offset (median of session / recording, 1 = the same), spread (half the central 68 % of
        log session / recording about it: what a day does to one config beside another),
        optimum_ratio (the recorded best in that session / the session's own best, >= 1: what
        the recording's pick costs there).
    """
    rows = []
    for name, offset in log_offsets(landscape, sessions).items():
        both = np.flatnonzero(np.isfinite(offset))
        recorded = landscape.latency_us[both]
        again = recorded * np.exp(offset[both])
        even = evenly(landscape.latency_us, both)
        low, high = np.quantile(offset[both], [0.16, 0.84])
        rows.append(
            {
                "workload": landscape.workload,
                "gpu": landscape.gpu,
                "session": name,
                "configs": len(both),
                "spearman": _rank(
                    landscape.latency_us[even], np.exp(offset[even]) * landscape.latency_us[even]
                ),
                "visits_spearman": _rank(*(landscape.medians_us(v)[even] for v in range(2))),
                "offset": float(np.exp(np.median(offset[both]))),
                "spread": float(high - low) / 2,
                "optimum_ratio": float(again[np.argmin(recorded)] / again.min()),
            }
        )
    return pd.DataFrame(rows)


def evenly(latency_us: np.ndarray, timed: np.ndarray, *, count: int = 100) -> np.ndarray:
    """Returns timed configs that are evenly spaced over the ranks of all.

    Args:
        latency_us: Recorded latencies, shape (size,), not finite where a config failed.
        timed: Positions of the configs to choose from.
        count: How many ranks are asked for; the timed config nearest to each is taken, once.
    """
    order = np.argsort(latency_us, kind="stable")
    ranks = np.empty(len(order))
    ranks[order] = np.arange(len(order))
    by_rank = timed[np.argsort(ranks[timed])]
    asked = np.linspace(0, np.isfinite(latency_us).sum() - 1, count)
    nearest = np.abs(ranks[by_rank][None, :] - asked[:, None]).argmin(axis=1)
    return by_rank[np.unique(nearest)]


def _rank(a: np.ndarray, b: np.ndarray) -> float:
    return float(scipy.stats.spearmanr(a, b, nan_policy="omit").statistic) if len(a) > 1 else 1.0
