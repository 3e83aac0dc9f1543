"""One config of a landscape: what is known of it, of its neighbours, and beside another one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.landscape import Landscape
from kt_lab.roofline import Roofline, roofline
from kt_lab.stats.occupancy import LIMITS, Occupancy, occupancy
from kt_lab.stats.slices import UNRECORDED, value_text, visit_medians_us
from kt_lab.trial import OK, Config


@dataclass(frozen=True, slots=True)
class ConfigFacts:
    """What a landscape knows of one config; None: unknown, or the config failed.

    Attributes:
        config: Values of every parameter.
        status: "ok", the failure, or "not recorded".
        error: What went wrong, in one line.
        latency_us: Median of all samples, microseconds.
        visits_us: Median of each visit that timed it.
        low_us: Lower quartile of all samples.
        high_us: Upper quartile of all samples.
        default_us: Latency of the space's default config.
        optimum_us: Latency of the best config.
        rank: 1 for the fastest of all that are ok.
        of: How many are ok.
        twins: How many other configs are the same binary on the same grid.
        registers: Of a thread.
        spills: 32-bit words a thread spills.
        shared_bytes: Shared memory of a program.
        programs: In the launch's grid.
        occupancy: Theoretical; None where registers, num_warps or the GPU's limits are unknown.
        roofline: The workload's floors on this GPU.
    """

    config: Config
    status: str
    error: str
    latency_us: float | None
    visits_us: tuple[float, ...]
    low_us: float | None
    high_us: float | None
    default_us: float | None
    optimum_us: float
    rank: int | None
    of: int
    twins: int
    registers: int | None
    spills: int | None
    shared_bytes: int | None
    programs: int | None
    occupancy: Occupancy | None
    roofline: Roofline


def inspect_config(landscape: Landscape, config: Mapping[str, Any]) -> ConfigFacts:
    """Returns what a landscape knows of one config.

    Args:
        landscape: A recorded one.
        config: Values of every parameter.

    Raises:
        SpaceError: It is no valid config of the space.
    """
    space = landscape.space
    at = space.index(space.check(config))
    latency = landscape.latency_us
    visits = visit_medians_us(landscape)[:, at]
    ok = landscape.status[at] == OK
    samples = np.concatenate([visit[at] for visit in landscape.samples]) if ok else []
    low, high = np.quantile(samples, (0.25, 0.75)) if ok else (np.nan, np.nan)
    facts = _facts(landscape, at)
    return ConfigFacts(
        config=space.config(space.enumerate()[at]),
        status=landscape.status[at] or UNRECORDED,
        error=str(facts.get("error") or ""),
        latency_us=_known(latency[at]),
        visits_us=tuple(float(v) for v in visits if not math.isnan(v)),
        low_us=_known(low),
        high_us=_known(high),
        default_us=_known(latency[space.index(space.default)]),
        optimum_us=landscape.optimum_us,
        rank=int((latency < latency[at]).sum()) + 1 if ok else None,
        of=int(np.isfinite(latency).sum()),
        twins=landscape.launches.count(landscape.launches[at]) - 1 if ok else 0,
        registers=_whole(facts.get("registers")),
        spills=_whole(facts.get("spills")),
        shared_bytes=_whole(facts.get("shared_bytes")),
        programs=_programs(facts.get("grid")),
        occupancy=_occupancy(landscape, facts, space.config(space.enumerate()[at])),
        roofline=roofline(landscape.manifest),
    )


def roofline_points(
    landscape: Landscape, configs: Mapping[str, Mapping[str, Any]]
) -> pd.DataFrame:
    """Returns where configs stand under the roof.

    Args:
        landscape: A recorded one.
        configs: By the label that a figure shows.

    Returns:
        One row per config that is ok: `label`, `latency_us`, `intensity` (operations per byte),
        `flops_per_s` achieved, `bytes_share` and `flops_share` (floor / latency, 0..1; null:
        unknown), and the roof: `peak_bytes_per_s`, `peak_flops_per_s`.
    """
    roof = roofline(landscape.manifest)
    rows = []
    for label, config in configs.items():
        latency = float(landscape.latency_us[landscape.space.index(config)])
        floors = (roof.bytes_us, roof.flops_us or math.nan)
        shares = dict(zip(("bytes_share", "flops_share"), np.divide(floors, latency), strict=True))
        achieved = {"intensity": roof.intensity, "flops_per_s": roof.flops / latency * 1e6}
        rows.append({"label": label, "latency_us": latency} | achieved | shares)
    found = pd.DataFrame(rows).dropna(subset="latency_us").reset_index(drop=True)
    return found.assign(
        workload=landscape.workload,
        gpu=landscape.gpu,
        peak_bytes_per_s=roof.bytes_per_s,
        peak_flops_per_s=roof.flops_per_s or math.nan,
    )


def neighbours_table(landscape: Landscape, config: Mapping[str, Any]) -> pd.DataFrame:
    """Returns the configs one step away, fastest first, failures last.

    Args:
        landscape: A recorded one.
        config: Values of every parameter.

    Returns:
        One row per neighbour: `config` (position in the space), `parameter`, `before`, `after`
        (the values as text), `status`, `latency_us`, `ratio` (neighbour / config; < 1 is faster),
        `low` and `high` (lowest and highest of that ratio and of the ratios of the visits that
        timed both: a step is told from noise where they lie on one side of 1).
    """
    space = landscape.space
    here = space.index(config)
    row, rows = space.row(config), space.neighbour_rows(space.row(config))
    at = space.indices(rows)
    timed = np.vstack([landscape.latency_us, visit_medians_us(landscape)])
    changed = [int(np.flatnonzero(other != row)[0]) for other in rows]
    text = [[value_text(v) for v in p.values] for p in space.parameters]
    ratios = timed[:, at] / timed[:, [here]]
    table = pd.DataFrame(
        {
            "config": at,
            "parameter": [space.names[i] for i in changed],
            "before": [text[i][row[i]] for i in changed],
            "after": [text[i][other[i]] for i, other in zip(changed, rows, strict=True)],
            "status": [status or UNRECORDED for status in landscape.status[at]],
            "latency_us": timed[0, at],
            "ratio": ratios[0],
            "low": np.fmin.reduce(ratios),
            "high": np.fmax.reduce(ratios),
        }
    )
    return table.sort_values(["latency_us", "config"], ignore_index=True)


def differing_parameters(a: Mapping[str, Any], b: Mapping[str, Any]) -> pd.DataFrame:
    """Returns the parameters in which two configs differ: `parameter`, `a`, `b` as text."""
    rows = [(name, value_text(a[name]), value_text(b[name])) for name in a if a[name] != b[name]]
    return pd.DataFrame(rows, columns=["parameter", "a", "b"])


def _facts(landscape: Landscape, at: int) -> dict[str, Any]:
    return dict(landscape.table.loc[at]) if at in landscape.table.index else {}


def _occupancy(
    landscape: Landscape, facts: Mapping[str, Any], config: Mapping[str, Any]
) -> Occupancy | None:
    capability = str(landscape.manifest.get("facts", [{}])[0].get("capability", ""))
    known = {name: _whole(facts.get(name)) for name in ("registers", "shared_bytes")}
    known["warps"] = _whole(config.get("num_warps"))
    if None in known.values() or capability not in LIMITS:
        return None
    return occupancy(**known, capability=capability)


def _programs(grid: Any) -> int | None:
    if not isinstance(grid, str) or not grid:
        return None
    return math.prod(map(int, grid.split()[0].split("x")))


def _whole(value: Any) -> int | None:
    return None if value is None or pd.isna(value) else int(value)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def compare_configs(
    landscape: Landscape, configs: Mapping[str, Mapping[str, Any]]
) -> pd.DataFrame:
    """Returns what a landscape knows of several configs, one row each.

    Args:
        landscape: A recorded one.
        configs: By label.

    Returns:
        `label`, `status`, `latency_us` with its quartiles `low_us` and `high_us`, `to_optimum`
        and `to_default` (latency ratios), `rank`, `registers`, `spills`, `shared_bytes`,
        `programs`, `active_warps` and `occupancy` (of a multiprocessor), `limited_by`,
        `bytes_share` and `flops_share` (floor / latency), `twins`. Missing is null.
    """
    rows = []
    for label, config in configs.items():
        f = inspect_config(landscape, config)
        latency, held = f.latency_us or math.nan, f.occupancy
        rows.append(
            {
                "label": label,
                "status": f.status,
                "latency_us": latency,
                "low_us": f.low_us,
                "high_us": f.high_us,
                "to_optimum": latency / f.optimum_us,
                "to_default": latency / (f.default_us or math.nan),
                "rank": f.rank,
                "registers": f.registers,
                "spills": f.spills,
                "shared_bytes": f.shared_bytes,
                "programs": f.programs,
                "active_warps": held and held.warps,
                "occupancy": held and held.share,
                "limited_by": held and ", ".join(held.limited_by),
                "bytes_share": f.roofline.bytes_us / latency,
                "flops_share": (f.roofline.flops_us or math.nan) / latency,
                "twins": f.twins,
            }
        )
    return pd.DataFrame(rows)
