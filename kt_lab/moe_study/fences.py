"""E6: acquire-release against relaxed atomics, and whether a wide tile pays for fences only."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kt_lab.landscape import Landscape
from kt_lab.moe_study.picks import judged_draws, picks, ratio
from kt_lab.moe_study.recorded import SCALES, about, joined, positions
from kt_lab.trial import OK

SEMANTICS = ("acq_rel", "relaxed")
_WIDE_TILE = 256  # values of BLOCK_N: pull request 3952's winner on MI300X
_ELSE = ("BLOCK_N", "BLOCK_K", "num_warps")


def fence_costs(found: Sequence[Landscape]) -> pd.DataFrame:
    """Returns what the fences cost, config by config.

    Args:
        found: Landscapes; those of other kernels than the atomic scales are skipped.

    Returns:
        One row per pair of launches that differ in the semantics alone: kernel, workload, family,
        gpu, BLOCK_N, BLOCK_K, num_warps, relaxed_us, acq_rel_us (pooled medians), cost (acq_rel /
        relaxed, minus 1).
    """
    parts = []
    for x in _scales(found):
        at = np.flatnonzero(x.status == OK)
        configs = x.space.configs(x.space.enumerate()[at])
        table = pd.DataFrame(configs).assign(us=x.latency_us[at])
        table = table[(table["TRIPS"] == 1) & (table["FIRST"] == "experts")]
        # Stages that do nothing: one program under two names, so one row.
        wide = table.groupby([*_ELSE, "SEM"])["us"].median().unstack().dropna().reset_index()
        wide.columns.name = None
        wide = wide.rename(columns={s: f"{s}_us" for s in SEMANTICS})
        parts.append(wide.assign(**about(x)))
    table = joined(parts, of="the atomic scales")
    return table.assign(cost=table["acq_rel_us"] / table["relaxed_us"] - 1)


def tile_costs(costs: pd.DataFrame) -> pd.DataFrame:
    """Returns the median of `fence_costs` by tile: workload, BLOCK_N, cost."""
    return costs.groupby(["workload", "BLOCK_N"], sort=False, as_index=False)["cost"].median()


def tile_gains(found: Sequence[Landscape]) -> pd.DataFrame:
    """Returns what BLOCK_N = 256 gains over narrower tiles in the space of pull request 3952.

    Returns:
        One row per landscape and semantics: kernel, workload, family, gpu, semantics, narrow_us
        and wide_us (best of each, as the other visit judges it), gain (narrow / wide, minus 1;
        > 0: the wide tile is faster), low, high, single_us (the original config with these
        semantics).
    """
    rows = []
    for x in _scales(found):
        for semantics in SEMANTICS:
            suffix = "_acq_rel" if semantics == "acq_rel" else ""
            at = positions(x, f"pr3952{suffix}")
            tiles = np.array([c["BLOCK_N"] for c in x.space.configs(x.space.enumerate()[at])])
            wide, narrow = at[tiles == _WIDE_TILE], at[tiles < _WIDE_TILE]
            single = positions(x, f"original{suffix}")
            if not (len(wide) and len(narrow) and len(single)):
                continue
            draws = {n: judged_draws(x, picks(x, some)) for n, some in
                     (("narrow", narrow), ("wide", wide), ("single", single))}  # fmt: skip
            told = ratio(draws["narrow"], draws["wide"])
            row = {f"{name}_us": float(one[0]) for name, one in draws.items()}
            row |= {"gain": told["estimate"] - 1, "low": told["low"] - 1, "high": told["high"] - 1}
            rows.append({**about(x), "semantics": semantics, **row})
    return pd.DataFrame(rows)


def _scales(found: Sequence[Landscape]) -> list[Landscape]:
    return [x for x in found if x.kernel == SCALES]
