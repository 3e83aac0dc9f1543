"""Tuned here, run there: what sharing a pick among workloads costs, by key.

Everything starts from the table of `crossings`: every config of a kernel's landscapes on every
workload of it. Picks read one visit and are judged on the others, so that no reading judges a
choice that it took part in. "Regret" is judged latency / that of the workload's own pick, tuned
alone on the same visit, minus 1: below 0 by luck only. `optimum_regret` has the lowest pooled
latency of the workload instead, as the figures of convergence do.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from kt_lab.covering import cover
from kt_lab.errors import UsageError
from kt_lab.keys import Key, carried
from kt_lab.landscape import Landscape
from kt_lab.runners.replay import judged_us
from kt_lab.trial import OK, Config
from kt_lab.workload import Workload

FAILED, NOT_HELD = "failed", "not held"
CELL = ["visit", "workload"]


def key_values(landscapes: Sequence[Landscape], key: Key) -> dict[str, tuple]:
    """Returns a key's value by workload, named as in `crossings`."""
    return {named(x): key(workload_of(x), gpu=x.gpu) for x in landscapes}


def crossings(landscapes: Sequence[Landscape]) -> pd.DataFrame:
    """Returns what every config of several landscapes reads on every one of them.

    A config of another workload runs in the parameters of this one as `kt_lab.keys.carried` has
    it.

    Args:
        landscapes: Of one kernel; shapes and GPUs may differ.

    Returns:
        visit (that is read), workload ("4096x640 on h200"), config (as it was recorded anywhere),
        latency_us, judged_us (median of the other visits; null: failed), optimum_us (lowest
        pooled latency of the workload), default (whether it is the workload's). A config that a
        workload's landscape does not hold has no row there.

    Raises:
        UsageError: One has no readings.
    """
    if silent := [named(x) for x in landscapes if not x.visits]:
        raise UsageError(f"landscapes must have readings, got none of {silent}; leave them out")
    recorded = [_recorded(x) for x in landscapes]
    configs = dict.fromkeys(c for at in recorded for c in at)
    parts = []
    for x, at in zip(landscapes, recorded, strict=True):
        held = {c: at[t] for c in configs if (t := carried(c, x.space.default)) in at}
        part = pd.DataFrame({"workload": named(x), "config": list(held)})
        part = part.assign(optimum_us=x.optimum_us, default=[c == x.space.default for c in held])
        rows = list(held.values())
        for visit in range(min(x.visits for x in landscapes)):
            read, judged = x.medians_us(visit)[rows], judged_us(x, visit=visit)[rows]
            parts.append(part.assign(visit=visit, latency_us=read, judged_us=judged))
    return pd.concat(parts, ignore_index=True)


def named(landscape: Landscape) -> str:
    """Returns what tables call a landscape among those of its kernel: "4096x640 on h200"."""
    return f"{landscape.workload.partition('/')[2]} on {landscape.gpu}"


def workload_of(landscape: Landscape) -> Workload:
    """Returns the workload that was recorded, as the manifest tells it."""
    told, name = landscape.manifest, landscape.workload.partition("/")[2]
    return Workload(landscape.kernel, name, told["extents"], told["dtype"])


def _recorded(landscape: Landscape) -> dict[Config, int]:
    at = landscape.table.index.to_numpy()
    configs = landscape.space.configs(landscape.space.enumerate()[at])
    return dict(zip(configs, at.tolist(), strict=True))


def _own(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of what each workload picks when it is tuned alone, in order."""
    ok = table.dropna(subset="judged_us").sort_values("latency_us", kind="stable")
    return ok.drop_duplicates(CELL).sort_index()


def judged_picks(picks: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Returns rows with visit, workload and config, with what became of them.

    Adds status, regret and optimum_regret, as in `regret_matrix`.
    """
    own = _own(table)[[*CELL, "judged_us", "optimum_us"]].rename(columns={"judged_us": "own_us"})
    known = table[[*CELL, "config", "judged_us"]]
    found = picks.merge(known, how="left", on=[*CELL, "config"], indicator="held")
    found = found.merge(own, how="left", on=CELL)  # where nothing runs there is none, and a row
    held, judged = found.pop("held") == "both", found.pop("judged_us")
    ok = judged.notna()
    found["status"] = np.where(ok, OK, np.where(held, FAILED, NOT_HELD))
    for name, by in (("regret", "own_us"), ("optimum_regret", "optimum_us")):
        found[name] = (judged / found.pop(by) - 1).where(ok, np.where(held, np.inf, np.nan))
    return found


def read_costs(table: pd.DataFrame) -> Iterator[tuple[int, pd.Index, pd.DataFrame]]:
    """Yields visit, configs and readings over the workload's lowest, (configs, workloads)."""
    code, configs = pd.factorize(table["config"])
    order = table["workload"].unique()
    for visit, part in table.assign(config=code).groupby("visit"):
        # In order before the division: one that has to align columns sorts them.
        wide = part.pivot(index="config", columns="workload", values="latency_us")[order]
        yield visit, configs, wide / wide.min()


def regret_matrix(table: pd.DataFrame) -> pd.DataFrame:
    """Returns what the pick of one workload costs on another.

    Args:
        table: From `crossings`.

    Returns:
        One row per visit and ordered pair: visit, tuned, workload (that it runs on), config,
        status ("ok"; "failed": regret infinite; "not held" by the workload's space: regret
        null), regret (0 where tuned and workload are the same), optimum_regret.
    """
    own = _own(table)
    tuned = own[[*CELL, "config"]].rename(columns={"workload": "tuned"})
    return judged_picks(tuned.merge(own[CELL], on="visit"), table)


def shared_picks(
    table: pd.DataFrame, values: Mapping[str, Hashable], *, rule: str = "first"
) -> pd.DataFrame:
    """Returns what sharing one pick among the workloads with the same value of a key costs.

    Args:
        table: From `crossings`.
        values: Value of the key by workload, as `key_values` returns them.
        rule: Whose pick is shared: of the "first" tuned, in the order of the table, as an
            autotuner's cache does it; or the config with the best "geomean" or worst case
            ("minimax") of the readings of all, those that run on most of them first.

    Returns:
        One row per visit and workload: visit, workload, value, sharing (workloads with this
        value), config, and status, regret, optimum_regret as in `regret_matrix`.
    """
    rows = []
    for visit, configs, costs in read_costs(table):
        for value in dict.fromkeys(values[w] for w in costs):
            members = [w for w in costs if values[w] == value]
            asked = costs[members[:1] if rule == "first" else members].to_numpy()
            objective = "geomean" if rule == "first" else rule
            (pick,), _ = cover(asked, [0] * asked.shape[1], 1, objective=objective)
            about = {"value": value, "sharing": len(members), "config": configs[costs.index[pick]]}
            rows += [{"visit": visit, "workload": w, **about} for w in members]
    return judged_picks(pd.DataFrame(rows), table)


def compare_keys(
    table: pd.DataFrame, keys: Mapping[str, Mapping[str, Hashable]], *, rule: str = "first"
) -> pd.DataFrame:
    """Returns what keys cost, one row each: an extent more or less, buckets finer or coarser.

    Args:
        table: From `crossings`.
        keys: Name of a key -> its value by workload.
        rule: As in `shared_picks`.

    Returns:
        key, tunings (values that differ), regret (geometric mean over workloads and visits that
        ran, of 1 + regret, minus 1), worst (of these), worst_on (its workload), failed and
        not_held (shares of workloads and visits).
    """
    rows = []
    for name, values in keys.items():
        shared = shared_picks(table, values, rule=rule)
        ran = shared[shared["status"] == OK].set_index("workload")["regret"]
        row = (name, shared["value"].nunique(), np.expm1(np.log1p(ran).mean()), ran.max())
        shares = ((shared["status"] == status).mean() for status in (FAILED, NOT_HELD))
        rows.append((*row, ran.idxmax(), *shares))
    columns = ["key", "tunings", "regret", "worst", "worst_on", "failed", "not_held"]
    return pd.DataFrame(rows, columns=columns)
