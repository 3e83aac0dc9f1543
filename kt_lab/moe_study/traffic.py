"""What limits the jagged kernels: bytes by one and by two readings, caches, and the layout.

A program reads its lines of a group twice. Where what all resident programs hold between both
readings exceeds the cache, 5 bytes an element cross device memory, else 3. No counters were
recorded: what is proven by a clock is told apart from what is inferred.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kt_lab.landscape import Landscape
from kt_lab.moe_study.picks import judged_draws, picks
from kt_lab.moe_study.recorded import JAGGED, WIDE, about, joined, positions
from kt_lab.stats.occupancy import occupancy
from kt_lab.trial import OK

FLAGS = ("ONCE", "BACKWARD", "PIPELINED")
_READING = 1.15  # of copy bandwidth: what mostly reads was recorded at up to 1.10 of it
_NEARLY = 0.85
_NEAR = 1.5  # times the optimum: pairs of which one is no slower count as near


def floors(found: Sequence[Landscape]) -> pd.DataFrame:
    """Returns both floors of the jagged shapes, and how far the best config stays above them.

    Returns:
        kernel, workload, family, gpu, groups, layout, single_us, best_us (cross-fitted), floor3_us
        and floor5_us (3 or 5 bytes an element at copy bandwidth), share3 and share5 (of them),
        held (what resident programs of the best config keep between their readings, over the L2
        cache; groups as equal), bound ("reads once": share5 beyond what reading gains over
        copying, so that it cannot have read twice; "at two readings": share5 >= 0.85; "above
        both").
    """
    rows = []
    for x in _jagged(found):
        best = picks(x, positions(x, WIDE))
        best_us = float(judged_draws(x, best, resamples=1)[0])
        floor3 = x.manifest["bytes_floor_us"]
        floor5 = floor3 + _second_us(x)
        share5 = floor5 / best_us
        once, twice = share5 > _READING, share5 >= _NEARLY
        bound = "reads once" if once else "at two readings" if twice else "above both"
        at = x.latency_us[x.index(x.space.default)]
        extents = x.manifest["extents"]
        rows.append({
            **about(x),
            "groups": extents["GROUPS"],
            "layout": extents["LAYOUT"],
            "single_us": float(at),
            "best_us": best_us,
            "floor3_us": floor3,
            "floor5_us": floor5,
            "share3": floor3 / best_us,
            "share5": share5,
            "held": float(np.median(held(x)[best])),
            "bound": bound,
        })  # fmt: skip
    return pd.DataFrame(rows)


def _second_us(landscape: Landscape) -> float:
    """Returns the microseconds of another reading of all elements, at copy bandwidth."""
    told = landscape.manifest
    elements = told["extents"]["TOKENS"] * told["extents"]["WIDTH"]
    each = 4 if told["dtype"] == "float32" else 2
    return each * elements / told["bytes_moved"] * told["bytes_floor_us"]


def held(landscape: Landscape) -> np.ndarray:
    """Returns what programs hold between both readings, over the L2 cache, shape (space.size,).

    All programs that are resident at a time (by registers and shared memory, at most the grid),
    each with its lines of a group of mean length. NaN where a config did not run.
    """
    x, extents = landscape, landscape.manifest["extents"]
    facts = x.manifest["facts"][0]
    out = np.full(x.space.size, np.nan)
    at = np.flatnonzero(x.status == OK)
    registers, shared = (x.column(n)[at] for n in ("registers", "shared_bytes"))
    group = extents["TOKENS"] / extents["GROUPS"] * (4 if x.manifest["dtype"] == "float32" else 2)
    for i, r, s, config in zip(
        at, registers, shared, x.space.configs(x.space.enumerate()[at]), strict=True
    ):
        fits = occupancy(registers=int(r), shared_bytes=int(s), warps=config["num_warps"]).blocks
        programs = -(-extents["WIDTH"] // config["BLOCK"]) * extents["GROUPS"]
        resident = min(fits * facts["sms"], programs)
        out[i] = resident * config["BLOCK"] * group / facts["l2_bytes"]
    return out


def reach(found: Sequence[Landscape]) -> pd.DataFrame:
    """Returns the fastest config by what is held: does a small share of the cache help?

    Returns:
        kernel, workload, family, gpu, groups, layout, held (upper edge of a bin, over the L2
        cache), configs, ratio (lowest latency of the bin over 3 bytes an element at copy
        bandwidth), two_readings (the same of 5 bytes).
    """
    edges = 2.0 ** np.arange(-6, 5)
    parts = []
    for x in _jagged(found):
        share = held(x)
        ok = np.flatnonzero(np.isfinite(share))
        floor3 = x.manifest["bytes_floor_us"]
        edge = edges[np.minimum(np.searchsorted(edges, share[ok]), len(edges) - 1)]
        table = pd.DataFrame({"held": edge, "ratio": x.latency_us[ok] / floor3})
        told = table.groupby("held")["ratio"].agg(configs="size", ratio="min").reset_index()
        extents = x.manifest["extents"]
        told = told.assign(**about(x), groups=extents["GROUPS"], layout=extents["LAYOUT"])
        parts.append(told.assign(two_readings=1 + _second_us(x) / floor3))
    return joined(parts, of="the jagged kernels")


def flag_effects(found: Sequence[Landscape]) -> pd.DataFrame:
    """Returns what each flag does to the best config and to pairs that differ in it alone.

    Returns:
        kernel, workload, family, gpu, flag, best_ratio (best with it / best without it: < 1, it
        helps), pairs (near: one of both within 1.5 times the optimum), pair_ratio (their median).
    """
    rows = []
    for x in _jagged(found):
        at = np.flatnonzero(x.status == OK)
        table = pd.DataFrame(x.space.configs(x.space.enumerate()[at])).assign(us=x.latency_us[at])
        for flag in FLAGS:
            best = table.groupby(flag)["us"].min()
            rest = [n for n in x.space.names if n != flag]
            pairs = table.pivot_table(index=rest, columns=flag, values="us").dropna()
            near = pairs[pairs.min(axis=1) <= _NEAR * x.optimum_us]
            ratio = near[True] / near[False] if len(near) else pd.Series(dtype=float)
            told = {"flag": flag, "best_ratio": best[True] / best[False], "pairs": len(near)}
            rows.append({**about(x), **told, "pair_ratio": ratio.median()})
    return pd.DataFrame(rows)


def _jagged(found: Sequence[Landscape]) -> list[Landscape]:
    return [x for x in found if x.kernel in JAGGED]
