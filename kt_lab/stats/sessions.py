"""Whether two sessions of one landscape agree: ranks, offsets and the optimum."""

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from kt_lab.landscape import Landscape
from kt_lab.sessions import log_offsets


def agreement(landscape: Landscape, sessions: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per session, compared with the recording.

    Args:
        landscape: The recording, itself a session.
        sessions: Readings of its workload in others, as `load_sessions` returns them.

    Returns:
        session, configs (timed in both), spearman (rank correlation of the medians, -1..1),
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
        low, high = np.quantile(offset[both], [0.16, 0.84])
        rows.append(
            {
                "workload": landscape.workload,
                "gpu": landscape.gpu,
                "session": name,
                "configs": len(both),
                "spearman": float(spearmanr(recorded, again).statistic) if len(both) > 1 else 1.0,
                "offset": float(np.exp(np.median(offset[both]))),
                "spread": float(high - low) / 2,
                "optimum_ratio": float(again[np.argmin(recorded)] / again.min()),
            }
        )
    return pd.DataFrame(rows)


def control_readings(sessions: pd.DataFrame) -> pd.DataFrame:
    """Returns the control config's medians in the order they were taken.

    Args:
        sessions: Readings, as `load_sessions` returns them.

    Returns:
        session, workload, order, latency_us.
    """
    kept = sessions[sessions["control"] & (sessions["status"] == "ok")]
    medians = [float(np.median(samples)) for samples in kept["samples_us"]]
    return kept[["session", "workload", "order"]].assign(latency_us=medians).reset_index(drop=True)
