"""E2 and E3: tuned at one number of experts or groups, run at another; by key.

torchao's keys leave out the experts (all kernels of weights), the groups (jagged, before pull
request 3952) or everything (the cast of the atomic pair, whose key names no argument).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from kt_lab.errors import UnknownName
from kt_lab.kernels import get_kernel
from kt_lab.kernels.moe_spaces import published
from kt_lab.keys import Key
from kt_lab.landscape import Landscape
from kt_lab.moe_study.recorded import (
    BLOCKS,
    CAST,
    COLUMNS,
    COLWISE,
    REDUCTION,
    ROWWISE,
    SCALES,
    WIDE,
    by_kernel,
    joined,
    widened,
)
from kt_lab.stats.keyed import compare_keys, crossings, key_values, named, regret_matrix

ORIGINAL, MERGED, MENDED, ONE = "original", "merged", "mended", "one for all"
_WEIGHTS = {
    ORIGINAL: Key(("K", "N")),
    MENDED: Key(("E", "N", "K", "dtype")),
    ONE: Key(()),
}
_GROUPS = Key(("WIDTH", "GROUPS", "next_power_of_two(TOKENS)", "LAYOUT", "dtype"))
KEYS: Mapping[str, Mapping[str, Key]] = {
    SCALES: _WEIGHTS,
    # Keyed on an argument that the kernel has not: tuned once per process.
    CAST: _WEIGHTS | {ORIGINAL: Key(())},
    REDUCTION: _WEIGHTS,
    COLUMNS: _WEIGHTS,
    # What torchao calls M and K are the lines and the tokens of these kernels.
    ROWWISE: {ORIGINAL: Key(("WIDTH",)), MERGED: Key(("WIDTH", "GROUPS")), MENDED: _GROUPS},
    COLWISE: {ORIGINAL: Key(("TOKENS",)), MERGED: Key(("TOKENS", "GROUPS")), MENDED: _GROUPS},
    BLOCKS: {ORIGINAL: Key(("K",)), MENDED: Key(("next_power_of_two(M)", "K", "dtype"))},
}
"""Keys by kernel: torchao's, what pull request 3952 merged, and a longer one.

What that leaves out, skew and alignment of the groups, shares one pick too."""


def crossed(found: Sequence[Landscape], name: str) -> pd.DataFrame:
    """Returns what every config of a list reads on every landscape of one kernel.

    Args:
        found: Landscapes of one kernel on one GPU, in the order in which they are tuned.
        name: A published list, or "wide".

    Returns:
        As `kt_lab.stats.keyed.crossings`, without the configs outside the list; defaults stay.
    """
    table = _crossed(tuple(found))
    if name == WIDE:
        return table
    listed = set(published(found[0].kernel, name))
    return table[table["config"].isin(listed) | table["default"]].reset_index(drop=True)


@lru_cache(maxsize=16)
def _crossed(found: tuple[Landscape, ...]) -> pd.DataFrame:
    """Returns the crossings of landscapes, found once while they are in memory."""
    return crossings(found)


def regrets(found: Sequence[Landscape], name: str, *, extents: Sequence[str] = ()) -> pd.DataFrame:
    """Returns what the pick of one shape costs on another, averaged over visits.

    Args:
        found: Landscapes of one kernel on one GPU.
        name: A published list, or "wide".
        extents: Only pairs that differ in these extents alone; none: all pairs.

    Returns:
        kernel, list, tuned, workload (names of shapes), regret (geometric mean over visits of
        judged latency over that of the shape's own pick, minus 1; infinite: failed), worst (of
        the visits), shares_original and shares_mended (whether that key would share the pick).
    """
    kernel = found[0].kernel
    table = regret_matrix(crossed(found, name))
    with np.errstate(over="ignore"):
        grouped = table.groupby(["tuned", "workload"], sort=False)["regret"]
        told = grouped.agg(
            regret=lambda r: np.expm1(np.log1p(r).mean()), worst="max"
        ).reset_index()
    if extents:
        rest = {named(x): _without(x.manifest["extents"], extents) for x in found}
        told = told[told["tuned"].map(rest) == told["workload"].map(rest)]
    for which in (ORIGINAL, MENDED):
        value = key_values(found, keys_of(kernel)[which])
        told[f"shares_{which}"] = told["tuned"].map(value) == told["workload"].map(value)
    for side in ("tuned", "workload"):
        told[side] = told[side].str.partition(" on ")[0]
    about = {"kernel": kernel, "list": name}
    return pd.DataFrame({**{n: [v] * len(told) for n, v in about.items()}, **told.to_dict("list")})


def _without(shape: Mapping[str, int], extents: Sequence[str]) -> frozenset:
    return frozenset((n, v) for n, v in shape.items() if n not in extents)


def keys_of(kernel: str) -> Mapping[str, Key]:
    """Returns the named keys of a kernel, checked against its extents.

    Raises:
        UnknownName: The kernel has none, or a key names what the kernel has not.
    """
    if kernel not in KEYS:
        raise UnknownName("kernel with published keys", kernel, KEYS)
    return {name: key.check(get_kernel(kernel)) for name, key in KEYS[kernel].items()}


def compared_keys(found: Sequence[Landscape], *, names: Sequence[str] = ()) -> pd.DataFrame:
    """Returns what each key costs, on the first shape that is tuned as an autotuner's cache does.

    Args:
        found: Landscapes of any kernels of the study on one GPU; those without keys are skipped.
        names: Lists of configs; none: that of pull request 3952 (or "published"), and "wide".

    Returns:
        kernel, list, and per key as `kt_lab.stats.keyed.compare_keys` has it: key, tunings,
        regret, worst, worst_on, failed, not_held.
    """
    parts = []
    for kernel, group in by_kernel(found).items():
        if kernel not in KEYS:
            continue
        for name in names or widened(kernel):
            values = {n: key_values(group, key) for n, key in keys_of(kernel).items()}
            told = compare_keys(crossed(group, name), values)
            parts.append(told.assign(kernel=kernel, list=name))
    table = joined(parts, of="kernels with a tuning key")
    return table[["kernel", "list", *[c for c in table if c not in ("kernel", "list")]]]
