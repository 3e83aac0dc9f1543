"""What each part of a searcher did: what it asked for, what that cost, and what it brought."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kt_lab.stats.curves import incumbent_curves, ordered_runs
from kt_lab.stats.tables import check_columns
from kt_lab.trial import CENSORED, OK


def anatomy(
    runs: pd.DataFrame, *, by: Sequence[str] = (), value: str = "judged_us"
) -> pd.DataFrame:
    """Returns per searcher and origin of proposals what they cost and what they contributed.

    The gain of a trial is log(latency of the incumbent before it / after it), by `value`. It
    adds up to the log ratio of the run's first incumbent to its last, and is negative where a
    config that read faster is judged slower. The first incumbent itself is no gain, since there
    is nothing that it improves on.

    Args:
        runs: The tidy table of runs, with `origin`.
        by: Further columns that tell rows apart, e.g. ("kernel",).
        value: "judged_us", or "reading_us" (the only one in live runs).

    Returns:
        One row per `by`, `searcher`, `lanes` and `origin`. Means per run: `evaluations` (first
        measurements), `remeasurements`, `compile_s` and `measure_s` (lane seconds),
        `machine_s` (by how much the clock moved on: they add up to the run), `failures`,
        `duplicates` (first measurements that took over the samples of an identical launch: by
        the column `twin`; where that is absent or null, ok ones without a second of timing),
        `improvements` (trials after which the incumbent is faster) and `log_gain`. `gain_share`
        is the origin's part of the searcher's total gain: shares add up to 1, may be negative,
        and are null when nothing was gained. `n_runs` counts the searcher's runs.
    """
    check_columns(runs, ("origin", "compile_s", "measure_s"))
    table, run = ordered_runs(runs)
    latency = np.log(incumbent_curves(table)[value].astype(float))
    start = np.append(True, np.diff(run) != 0)
    machine = table["machine_s"].astype(float)
    first, status = table["first"].astype(bool), table["status"]
    shared = (status == OK) & (table["measure_s"] == 0)
    if "twin" in table.columns:
        shared = table["twin"].astype("boolean").fillna(shared).astype(bool)
    costs = {
        "evaluations": first,
        "remeasurements": ~first,
        "compile_s": table["compile_s"],
        "measure_s": table["measure_s"],
        "machine_s": machine.where(start, machine.diff()),
        "failures": ~status.isin([OK, CENSORED]),
        "duplicates": first & shared,
    }
    gain = -latency.groupby(run).ffill().groupby(run).diff().fillna(0.0)
    costs |= {"improvements": gain > 0, "log_gain": gain}
    groups = [*by, "searcher", "lanes"]
    keys = table[[*groups, "origin"]].astype({"origin": str})
    sums = keys.assign(**{name: column.astype(float) for name, column in costs.items()})
    sums = sums.groupby([*groups, "origin"], observed=True).sum()
    total = sums["log_gain"].groupby(groups, observed=True).transform("sum")
    n_runs = keys[start].groupby(groups, observed=True).size().rename("n_runs")
    n_runs = sums.join(n_runs, on=groups)["n_runs"]
    share = sums["log_gain"] / total.where(total > 0)
    return sums.div(n_runs, axis=0).assign(gain_share=share, n_runs=n_runs).reset_index()
