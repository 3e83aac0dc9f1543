"""The table of pull request 3952 and three references: what was widened, and compared with what.

The atomic pair is two launches: its row is the sum of both, each with its own pick, and appears
where both are recorded. Its floor is 5 bytes a weight like the reduction's: read twice, written
once.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.landscape import Landscape
from kt_lab.moe_study.picks import judged_draws, picks, ratio
from kt_lab.moe_study.recorded import (
    CAST,
    COLWISE,
    REDUCTION,
    ROWWISE,
    SCALES,
    TRANSPOSE,
    WIDE,
    about,
    default_at,
    expanded,
    positions,
)
from kt_lab.plots.moe_look import PAIR
from kt_lab.vendors import compiled_readings

# Microseconds before and after on an MI300X, from the table of pytorch/ao pull request 3952.
PUBLISHED_US = {
    (PAIR, "1x8192x5120"): (246.6, 161.6),
    (PAIR, "1x5120x8192"): (245.9, 164.2),
    (PAIR, "16x8192x5120"): (4604.8, 2940.5),
    (PAIR, "16x5120x8192"): (4569.0, 2932.9),
    (PAIR, "128x8192x5120"): (37499.0, 23637.8),
    (PAIR, "128x5120x8192"): (37569.7, 23643.9),
    (REDUCTION, "1x8192x5120"): (666.7, 302.9),
    (REDUCTION, "1x5120x8192"): (415.5, 194.6),
    (REDUCTION, "16x8192x5120"): (1762.8, 1453.5),
    (REDUCTION, "16x5120x8192"): (1558.2, 1382.6),
    (REDUCTION, "128x8192x5120"): (11155.4, 10643.1),
    (REDUCTION, "128x5120x8192"): (11091.3, 10682.2),
    (ROWWISE, "16640x8192x1x1x1"): (737.7, 734.6),
    (ROWWISE, "16640x8192x16x2x1"): (650.4, 617.6),
    (ROWWISE, "16640x8192x64x2x1"): (574.0, 568.2),
    (COLWISE, "16640x5120x1x1x1"): (497.9, 414.8),
    (COLWISE, "16640x5120x16x2x1"): (292.4, 248.4),
    (COLWISE, "16640x5120x64x2x1"): (291.2, 245.9),
}
_ARMS = ("single", "expanded", "wide")


def pull_request_table(found: Sequence[Landscape]) -> pd.DataFrame:
    """Returns the single config beside the expanded space and everything recorded.

    Args:
        found: Landscapes of the study.

    Returns:
        kernel (with `PAIR` where both launches are recorded), workload, family, gpu, single_us,
        expanded_us, wide_us (picked by one visit, judged by the other), speedup (single /
        expanded), low, high (95 %, from visits and samples), wide_speedup, wide_low, wide_high,
        floor_us (bytes at copy bandwidth), single_share, expanded_share, wide_share (of that
        floor; > 1: reading alone is faster than copying), published_before_us,
        published_after_us, published_speedup (MI300X; null where it has no such row).
    """
    known = [x for x in found if x.kernel != TRANSPOSE]
    arms = {(x.kernel, x.workload.partition("/")[2], x.gpu): (x, _draws(x)) for x in known}
    rows = []
    for (kernel, name, gpu), (x, draws) in arms.items():
        rows.append(_row(about(x), draws, x.manifest["bytes_floor_us"]))
        scales = arms.get((SCALES, name, gpu))
        if kernel == CAST and scales:
            total = {arm: draws[arm] + scales[1][arm] for arm in _ARMS}
            floor_us = x.manifest["bytes_floor_us"] + scales[0].manifest["bytes_floor_us"]
            rows.append(_row(about(x) | {"kernel": PAIR}, total, floor_us))
    if not rows:
        raise UsageError(
            "a table of speedups needs landscapes of a kernel with published spaces, got none; "
            "open_study() has all that are recorded"
        )
    return pd.DataFrame(rows)


@lru_cache(maxsize=256)
def _draws(landscape: Landscape) -> dict[str, np.ndarray]:
    """Returns draws of the judged latency by arm, found once while the landscape is in memory."""
    chosen = {
        "single": [default_at(landscape)] * landscape.visits,
        "expanded": picks(landscape, positions(landscape, expanded(landscape.kernel))),
        "wide": picks(landscape, positions(landscape, WIDE)),
    }
    return {arm: judged_draws(landscape, picked) for arm, picked in chosen.items()}


def _row(row: dict, draws: dict[str, np.ndarray], floor_us: float) -> dict:
    told = {f"{arm}_us": float(draws[arm][0]) for arm in _ARMS}
    for arm, prefix in (("expanded", ""), ("wide", "wide_")):
        found = ratio(draws["single"], draws[arm])
        told[f"{prefix}speedup"] = found.pop("estimate")
        told |= {f"{prefix}{end}": value for end, value in found.items()}
    shares = {f"{arm}_share": floor_us / told[f"{arm}_us"] for arm in _ARMS}
    before, after = PUBLISHED_US.get((row["kernel"], row["workload"]), (np.nan, np.nan))
    return {
        **row,
        **told,
        "floor_us": floor_us,
        **shares,
        "published_before_us": before,
        "published_after_us": after,
        "published_speedup": before / after,
    }


def references(found: Sequence[Landscape], table: pd.DataFrame | None = None) -> pd.DataFrame:
    """Returns the same picks beside three references: original config, torch eager, compiled.

    Args:
        found: Landscapes of the study.
        table: From `pull_request_table`; None: computed.

    Returns:
        kernel, workload, family, gpu, single_us, expanded_us, wide_us, eager_us (torch's own
        path, recorded beside the landscape), compiled_us (the same by torch.compile, from stored
        `kt-lab evidence vendors`; null where there is none), and what one would claim of the
        expanded space: over_single, over_eager, over_compiled (reference / expanded, > 1 is
        faster), and of the config that nobody tuned: single_over_eager, single_over_compiled.
    """
    table = pull_request_table(found) if table is None else table
    eager = {(x.kernel, x.workload.partition("/")[2], x.gpu): _eager_us(x) for x in found}
    compiled = _compiled_us()
    for known in (eager, compiled):
        for _, name, gpu in [key for key in known if key[0] == CAST]:
            if (SCALES, name, gpu) in known:
                both = known[SCALES, name, gpu] + known[CAST, name, gpu]
                known[PAIR, name, gpu] = both
    keys = list(zip(table["kernel"], table["workload"], table["gpu"], strict=True))
    out = table[["kernel", "workload", "family", "gpu", *(f"{arm}_us" for arm in _ARMS)]]
    out = out.assign(
        eager_us=[eager.get(key, np.nan) for key in keys],
        compiled_us=[compiled.get(key, np.nan) for key in keys],
    )
    for name in ("single", "eager", "compiled"):
        out[f"over_{name}"] = out[f"{name}_us"] / out["expanded_us"]
    for name in ("eager", "compiled"):
        out[f"single_over_{name}"] = out[f"{name}_us"] / out["single_us"]
    return out


def _eager_us(landscape: Landscape) -> float:
    samples = landscape.manifest.get("baseline", {}).get("samples_us", [np.nan])
    return float(np.median(samples))


def _compiled_us() -> dict[tuple[str, str, str], float]:
    """Returns what is stored of torch.compile, by kernel, workload and GPU."""
    found = {}
    for (workload, gpu), (_, compiled_us) in compiled_readings().items():
        kernel, _, name = workload.partition("/")
        found[kernel, name, gpu] = compiled_us
    return found
