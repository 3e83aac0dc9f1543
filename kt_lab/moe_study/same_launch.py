"""E1: how far names of one launch read apart, and how many of a list's names are such names."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kt_lab.landscape import Landscape
from kt_lab.moe_study.recorded import WIDE, about, lists, positions
from kt_lab.trial import OK


def distinct_counts(found: Sequence[Landscape]) -> pd.DataFrame:
    """Returns how many programs are behind the configs of each list, kernel by kernel.

    Returns:
        kernel, list, configs (that ran), launches (distinct binaries and grids), workloads
        (whose counts agree; the fewest launches of any where they do not).
    """
    rows = []
    for x in found:
        for name in lists(x.kernel):
            at = positions(x, name)
            launches = len({x.launches[i] for i in at})
            rows.append({**about(x), "list": name, "configs": len(at), "launches": launches})
    table = pd.DataFrame(rows, columns=[*_ABOUT, "list", "configs", "launches"])
    table = table[table["list"] != WIDE]
    grouped = table.groupby(["kernel", "list"], sort=False)
    return grouped.agg(
        configs=("configs", "max"), launches=("launches", "min"), workloads=("workload", "size")
    ).reset_index()


def name_spread(found: Sequence[Landscape]) -> pd.DataFrame:
    """Returns how far two names of one launch read apart in one visit, all else being equal.

    Returns:
        One row per pair of names, visit and landscape: kernel, workload, family, gpu, visit,
        latency_us (of the launch, median of its names), off (larger / smaller median, minus 1:
        0 without noise), stages (whether the names differ in num_stages alone).
    """
    parts = []
    for x in found:
        rows, column = x.space.enumerate(), x.space.names.index("num_stages")
        visits, told = np.arange(x.visits)[:, None], []
        read = np.array([x.medians_us(visit) for visit in range(x.visits)])
        for names in map(np.array, _shared(x)):
            first, second = np.triu_indices(len(names), k=1)
            stages = _stages_alone(rows[names[first]], rows[names[second]], column)
            off = np.exp(np.abs(np.log(read[:, names[first]] / read[:, names[second]]))) - 1
            level = np.median(read[:, names], axis=1, keepdims=True)
            told.append(map(np.ravel, np.broadcast_arrays(off, stages, visits, level)))
        if told:
            columns = map(np.concatenate, zip(*told, strict=True))
            parts.append(pd.DataFrame(dict(zip(_TOLD, columns, strict=True))).assign(**about(x)))
    if not parts:
        return pd.DataFrame(columns=[*_TOLD, *_ABOUT])
    return pd.concat(parts, ignore_index=True)


_ABOUT = ("kernel", "workload", "family", "gpu")
_TOLD = ("off", "stages", "visit", "latency_us")


def _shared(landscape: Landscape) -> list[list[int]]:
    names: dict[tuple[str, str], list[int]] = {}
    for at in np.flatnonzero(landscape.status == OK).tolist():
        names.setdefault(landscape.launches[at], []).append(at)
    return [n for launch, n in names.items() if launch[0] and len(n) > 1]


def _stages_alone(first: np.ndarray, second: np.ndarray, stages: int) -> np.ndarray:
    """Returns which pairs of rows differ in column `stages` and nowhere else."""
    differ = first != second
    return differ[:, stages] & (differ.sum(axis=1) == 1)


def noise_floor(spread: pd.DataFrame) -> pd.DataFrame:
    """Returns the spread in one row per landscape.

    Returns:
        kernel, workload, family, gpu, latency_us (median over launches), pairs, median_off,
        p95_off and worst_off (of two names of one launch, as fractions).
    """
    grouped = spread.groupby(list(_ABOUT), sort=False)
    return grouped.agg(
        latency_us=("latency_us", "median"),
        pairs=("off", "size"),
        median_off=("off", "median"),
        p95_off=("off", lambda off: off.quantile(0.95)),
        worst_off=("off", "max"),
    ).reset_index()
