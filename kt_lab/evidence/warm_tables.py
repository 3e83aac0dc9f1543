"""What warm starts come to: geometric means over landscapes, and ratios to cold searches."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.evidence.geomeans import geomean_interval


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns per mode what is reached after every budget.

    Args:
        rows: Of `kt-lab evidence warm`: kernel, workload, gpu, mode and ratios, the latency
            over the optimum after each budget.

    Returns:
        Per mode `landscapes`, how many; `geomean` with `low` and `high`, its 95 % interval, for
        which kernels are resampled, then their landscapes; `worst`, the largest ratio of any.
    """
    found = []
    for mode in dict.fromkeys(row["mode"] for row in rows):
        own = [row for row in rows if row["mode"] == mode]
        ratios = np.array([row["ratios"] for row in own])
        means = [_mean(own, after) for after in ratios.T]
        found.append(
            {
                "mode": mode,
                "landscapes": len(own),
                "geomean": [mean.estimate for mean in means],
                "low": [mean.low for mean in means],
                "high": [mean.high for mean in means],
                "worst": ratios.max(axis=0).tolist(),
            }
        )
    return found


def beside(rows: Sequence[Mapping[str, Any]], mode: str) -> list[dict[str, Any]]:
    """Returns the summary over the landscapes that one mode searched: all modes on the same.

    Args:
        rows: As for `summary`.
        mode: Whose landscapes count, those with runs nearby for "near".
    """
    own = {(row["workload"], row["gpu"]) for row in rows if row["mode"] == mode}
    return summary([row for row in rows if (row["workload"], row["gpu"]) in own])


def compared(rows: Sequence[Mapping[str, Any]], budgets: Sequence[int]) -> list[dict[str, Any]]:
    """Returns the ratio of every mode's latency to a cold search's, landscape by landscape.

    Args:
        rows: As for `summary`.
        budgets: After which their ratios are, in trials.

    Returns:
        Per mode and budget `ratio`, `low` and `high`, over the landscapes that both searched.
    """
    cold = {(row["workload"], row["gpu"]): row["ratios"] for row in rows if row["mode"] == "cold"}
    found = []
    for mode in dict.fromkeys(row["mode"] for row in rows):
        own = [r for r in rows if r["mode"] == mode and (r["workload"], r["gpu"]) in cold]
        for at, budget in enumerate(budgets) if mode != "cold" else ():
            pairs = [(r["ratios"][at], cold[r["workload"], r["gpu"]][at]) for r in own]
            ratios = [1.0 if one == other else one / other for one, other in pairs]
            mean = _mean(own, ratios)
            numbers = {"ratio": mean.estimate, "low": mean.low, "high": mean.high}
            found.append({"mode": mode, "budget": budget} | numbers)
    return found


def _mean(rows: Sequence[Mapping[str, Any]], ratios: Sequence[float]):
    return geomean_interval(pd.DataFrame({"kernel": [r["kernel"] for r in rows], "ratio": ratios}))
