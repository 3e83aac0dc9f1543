"""The flagship where seconds are scarce: what it needs of those of its peers, and computes itself.

A budget that limits seconds makes `scout` keep the machine busy rather than wait for what it could
learn. These runs stand beside those of `kt_lab.evidence.cold`, whose budget is of trials.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.cells import Cell
from kt_lab.plots.style import searcher_style

SEEDS = 10  # at most
SLOWER, SHARE = ("helion_lfbo_tree", "tpe"), 1 / 3
"""Whose seconds until a run is close the flagship was asked to need how much of."""
OWN_MS = 5.0
"""What the flagship was asked to compute for at most, a trial."""
_PLENTY_S = 3600.0  # that no run lasts: what the flagship goes by is that seconds are limited


def cells(searcher: str, workload: str, facts: Mapping[str, Any]) -> list[Cell]:
    """Returns the runs of a searcher at a workload with a budget that limits seconds too.

    Args:
        searcher: Its name.
        workload: Key of a recorded workload.
        facts: gpu, lanes, seeds and trials.
    """
    about = (workload, facts["gpu"], searcher, searcher, (), facts["lanes"])
    seeds = range(min(facts["seeds"], SEEDS))
    return [Cell(*about, seed, facts["trials"], _PLENTY_S) for seed in seeds]


def hurried_s(result: Mapping[str, Any]) -> pd.Series:
    """Returns close_s of these runs, shape (n,), from what `evidence cold` stores; inf: never."""
    told = [s for row in result["rows"] for s in row.get("hurried_close_s", ())]
    return pd.Series([np.inf if s is None else s for s in told], dtype=float)


def words(runs: pd.DataFrame, seconds: pd.Series, *, searcher: str) -> list[str]:
    """Returns sentences on the searcher's own computing and on its seconds beside its peers'.

    Args:
        runs: From `kt_lab.evidence.cold.judged`, a row per run.
        seconds: From `hurried_s`.
        searcher: The flagship.
    """
    label = searcher_style(searcher).label
    own = runs.loc[runs["searcher"] == searcher, "search_ms"]
    told = [
        f"{label}'s own computing: {own.median():.1f} ms of one core a trial in the median run "
        f"(asked {OWN_MS:g}), at most {own.quantile(0.9):.1f} ms in nine tenths of them."
    ]
    medians = runs.groupby("searcher")["close_s"].median()
    peers = [name for name in SLOWER if np.isfinite(medians.get(name, np.inf))]
    if peers and np.isfinite(seconds.median()):
        apart = [
            f"{seconds.median() / medians[name]:.2f} of {searcher_style(name).label}'s"
            for name in peers
        ]
        told.append(
            f"Where the budget limits seconds, {label} keeps the machine busy: "
            f"{np.isfinite(seconds).mean():.0%} of its {len(seconds)} runs come close, the median "
            f"after {seconds.median():.1f} s, {' and '.join(apart)} (asked {SHARE:.2f})."
        )
    return told
