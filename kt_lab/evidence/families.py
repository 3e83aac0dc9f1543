"""Tuned on one family of shapes, run on another: what one config for all of them costs.

The config that is best for a family, by the readings of one visit, runs on every other shape and
is judged by the other visits. The guard is a duel on each shape, on the visit that was read: only
a config that wins replaces the shape's own default.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.confirm import confirm
from kt_lab.evidence.repeated import LOSS
from kt_lab.guarded import spending
from kt_lab.kernels.moe_spaces import PUBLISHED, published
from kt_lab.keys import carried
from kt_lab.landscape import Landscape
from kt_lab.many import across_families
from kt_lab.runners.racing import ReplayRacer
from kt_lab.stats.keyed import crossings, named
from kt_lab.trial import OK

FAMILIES = ("Llama 4", "DeepSeek-V3", "DeepSeek-MoE-16B")  # as sources of workloads name them
WIDE = "wide"  # everything that was recorded, as a list


def family(source: str) -> str:
    """Returns whose shape it is, by the source of the workload."""
    return next((name for name in FAMILIES if name in source), source.split(",")[0])


def expanded(kernel: str) -> str:
    """Returns the name of the list that a kernel's space was widened to, as published."""
    return next((n for n in ("pr3952", "published") if n in PUBLISHED.get(kernel, ())), WIDE)


def crossed_families(paths: Sequence[Path], *, seed: int) -> list[dict[str, Any]]:
    """Returns what a family's config costs on the shapes of each family, with and without guard.

    Args:
        paths: Landscapes of one kernel on one GPU.
        seed: Fixes the duels.

    Returns:
        One record per list ("wide", and the largest published one), tuned family and family that
        ran: cases (shapes and visits), accepted (share), and loss_* without and guarded_* with
        the guard: regressions (slower than the default by more than 1 %), worst (largest loss;
        infinite: it failed), geomean. None with fewer than two families or visits.
    """
    tables = {named(found): found for found in map(Landscape.load, paths)}
    families = {name: family(x.manifest.get("source", "")) for name, x in tables.items()}
    first = next(iter(tables.values()))
    if len(set(families.values())) < 2 or min(x.visits for x in tables.values()) < 2:
        return []
    crossed = crossings(list(tables.values()))
    lists: dict[str, set | None] = {WIDE: None}
    if (name := expanded(first.kernel)) != WIDE:
        lists[name] = set(published(first.kernel, name)) | {first.space.default}
    rows = []
    for name, listed in lists.items():
        table = crossed if listed is None else crossed[crossed["config"].isin(listed)]
        found = across_families(table, families)
        found["accepted"] = [
            row.status == OK and _accepted(tables[row.workload], row, seed)
            for row in found.itertuples()
        ]
        found["guarded"] = found["loss"].where(found["accepted"], 0.0)
        for (tuned, ran), group in found.groupby(["tuned", "family"], sort=False):
            about = {"kernel": first.kernel, "gpu": first.gpu, "list": name}
            rows.append(about | {"tuned": tuned, "ran": ran} | _losses(group))
    return rows


def _accepted(landscape: Landscape, row: Any, seed: int) -> bool:
    default_us = float(landscape.latency_us[landscape.index(row.default)])
    racer = ReplayRacer(landscape, seed=seed, visits=[row.visit])
    rule, _ = spending(default_us, 1)
    finalists = [carried(row.config, row.default)]
    return confirm(
        racer, incumbent=row.default, finalists=finalists, apparent_us={}, rule=rule
    ).replaced


def _losses(group: pd.DataFrame) -> dict[str, Any]:
    """Returns losses of one family's config on one family's shapes; not held: the default."""
    out: dict[str, Any] = {"cases": len(group), "accepted": float(group["accepted"].mean())}
    for name in ("loss", "guarded"):
        loss = group[name].fillna(0.0)
        out |= {
            f"{name}_regressions": int((loss > LOSS).sum()),
            f"{name}_worst": max(0.0, float(loss.max())),
            f"{name}_geomean": math.expm1(np.log1p(loss[np.isfinite(loss)]).mean()),
        }
    return out
