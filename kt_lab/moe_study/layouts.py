"""E8: features or tokens first in memory, large tiles, and the route by way of a copy."""

from collections.abc import Sequence

import pandas as pd

from kt_lab.landscape import Landscape
from kt_lab.moe_study.picks import judged_draws, picks, ratio
from kt_lab.moe_study.recorded import COLWISE, TRANSPOSE, WIDE, about, default_at, positions

LAYOUTS = {1: "features first", 2: "tokens first"}
_LISTS = ("original", "pr3972", "pr3952", "pr4113", WIDE)


def layout_table(found: Sequence[Landscape]) -> pd.DataFrame:
    """Returns the best of each list where a shape is recorded in both layouts.

    pull request 3972's tiles are large, 128 or 256 lines: is that a matter of the layout?

    Returns:
        kernel, workload, family, gpu, shape (without the layout), layout ("features first": row
        major), list, latency_us (cross-fitted), ratio (to the original config in that layout),
        low, high.
    """
    rows = []
    for x in _both(found):
        single = _best(x, "original")
        for name in _LISTS:
            best = _best(x, name)
            told = ratio(best, single)
            row = {"shape": _shape(x), "layout": LAYOUTS[x.manifest["extents"]["LAYOUT"]]}
            row |= {"list": name, "latency_us": float(best[0])}
            rows.append({**about(x), **row, "ratio": told.pop("estimate"), **told})
    return pd.DataFrame(rows)


def routes(found: Sequence[Landscape]) -> pd.DataFrame:
    """Returns both routes to scales per feature: at once, or by way of a copy to tokens first.

    Returns:
        kernel, workload, family, gpu, shape, route ("direct"; "copy, then scale": the recorded
        transposition, tuned; "torch's copy, then scale": its eager one), list ("original": the
        single config of each kernel; "wide": the best of everything), copy_us, scale_us, total_us,
        ratio (to the direct route of the same list), low, high.
    """
    copies = {(x.gpu, _columns(x)): x for x in found if x.kernel == TRANSPOSE}
    pairs: dict[tuple, dict[int, Landscape]] = {}
    for x in _both(found):
        pairs.setdefault((x.gpu, _shape(x)), {})[x.manifest["extents"]["LAYOUT"]] = x
    rows = []
    for (gpu, shape), by_layout in pairs.items():
        first, turned = by_layout[1], by_layout[2]
        copy = copies.get((gpu, _columns(first)))
        for name in ("original", WIDE):
            direct, scale = (_best(x, name) for x in (first, turned))
            ways = {"direct": (0.0, direct)}
            if copy is not None:
                ways["copy, then scale"] = (_best(copy, name), scale)
                eager_us = float(pd.Series(copy.manifest["baseline"]["samples_us"]).median())
                ways["torch's copy, then scale"] = (eager_us, scale)
            for route, (copied, scaled) in ways.items():
                told = ratio(copied + scaled, direct)
                row = {"shape": shape, "route": route, "list": name, "copy_us": _first(copied)}
                row |= {"scale_us": _first(scaled), "total_us": _first(copied + scaled)}
                rows.append({**about(first), **row, "ratio": told.pop("estimate"), **told})
    columns = None if rows else ["shape", "route", "list", "ratio", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _first(draws) -> float:
    return float(draws if isinstance(draws, float) else draws[0])


def _best(landscape: Landscape, name: str):
    if name == "original":
        return judged_draws(landscape, [default_at(landscape)] * landscape.visits)
    return judged_draws(landscape, picks(landscape, positions(landscape, name)))


def _columns(landscape: Landscape) -> tuple[int, int]:
    return landscape.manifest["extents"]["TOKENS"], landscape.manifest["extents"]["WIDTH"]


def _shape(landscape: Landscape) -> str:
    """Returns the shape without its layout, the last of a jagged name."""
    return landscape.workload.partition("/")[2].rpartition("x")[0]


def _both(found: Sequence[Landscape]) -> list[Landscape]:
    """Returns colwise landscapes whose shape is recorded in both layouts."""
    colwise = [x for x in found if x.kernel == COLWISE]
    layouts: dict[tuple, set[int]] = {}
    for x in colwise:
        layouts.setdefault((x.gpu, _shape(x)), set()).add(x.manifest["extents"]["LAYOUT"])
    return [x for x in colwise if len(layouts[x.gpu, _shape(x)]) > 1]
