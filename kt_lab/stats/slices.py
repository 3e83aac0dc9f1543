"""A landscape on two of its parameters, and a search's way through it."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UnknownName, UsageError
from kt_lab.landscape import Landscape
from kt_lab.stats.curves import RUN, incumbent_curves
from kt_lab.stats.tables import check_columns
from kt_lab.trial import OK

NO_CONFIG = "no valid config"
UNRECORDED = "not recorded"


@lru_cache(maxsize=16)
def visit_medians_us(landscape: Landscape) -> np.ndarray:
    """Returns every visit's median per config, microseconds, shape (visits, size), NaN: none."""
    return np.stack([landscape.medians_us(visit) for visit in range(landscape.visits)])


def value_text(value: Any) -> str:
    """Returns a parameter's value as figures and tables show it."""
    return str(value) or "(empty)"


def landscape_slice(
    landscape: Landscape, x: str, y: str, *, fixed: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Returns a landscape on two axes: the best config of each cell.

    Args:
        landscape: A recorded one.
        x: Parameter along the first axis.
        y: Parameter along the second axis, another one.
        fixed: Values of further parameters; over those that are not named the best is taken.

    Returns:
        One row per cell, x fastest: `x_index`, `y_index` (positions of the values), `x`, `y` (the
        values as text), `status` ("ok"; where nothing is ok the most frequent failure; "not
        recorded"; "no valid config"), `config` (position in `space.enumerate()` of the config
        shown, null: none), `latency_us` (pooled median), `low_us` and `high_us` (the lowest and
        the highest median of one visit), `ratio` (to the optimum of the whole landscape),
        `n_configs` (valid ones of the slice in this cell) and `n_ok`. Constant columns say what
        it is: workload, gpu, x_name, y_name, fixed.

    Raises:
        UnknownName: There is no such parameter.
        UsageError: An axis is doubled or fixed.
        SpaceError: A fixed value is not one of the parameter's.
    """
    space, fixed = landscape.space, dict(fixed or {})
    check_axes(landscape, x, y, fixed)
    inside = np.flatnonzero(_inside(landscape, fixed))
    shape = [space.parameters[space.names.index(name)].cardinality for name in (y, x)]
    cell = np.ravel_multi_index(tuple(_at(landscape, inside, (y, x)).T), shape)
    found = pd.DataFrame({"cell": cell, "config": inside, "status": landscape.status[inside]})
    found["latency_us"] = landscape.latency_us[inside]
    found["status"] = found["status"].replace("", UNRECORDED)
    shown = _shown(found).reindex(range(shape[0] * shape[1]))
    y_index, x_index = np.unravel_index(shown.index, shape)
    table = pd.DataFrame({"x_index": x_index, "y_index": y_index})
    for name, axis in (("x", x), ("y", y)):
        values = space.parameters[space.names.index(axis)].values
        table[name] = [value_text(values[i]) for i in table[f"{name}_index"]]
    table["status"] = shown["status"].fillna(NO_CONFIG).to_numpy()
    table["config"] = shown["config"].astype("Int64").array
    table["latency_us"] = shown["latency_us"].to_numpy(float)
    at = table["config"].fillna(0).to_numpy(np.int64)
    visits = np.where(table["status"] == OK, visit_medians_us(landscape)[:, at], np.nan)
    table["low_us"], table["high_us"] = np.fmin.reduce(visits), np.fmax.reduce(visits)
    table["ratio"] = table["latency_us"] / landscape.optimum_us
    for name, counted in (("n_configs", found), ("n_ok", found[found["status"] == OK])):
        table[name] = np.bincount(counted["cell"], minlength=len(table))
    said = ", ".join(f"{name}={value_text(value)}" for name, value in fixed.items())
    return table.assign(
        workload=landscape.workload, gpu=landscape.gpu, x_name=x, y_name=y, fixed=said
    )


def _shown(found: pd.DataFrame) -> pd.DataFrame:
    """Returns the row that stands for each cell: the fastest, else one of the usual failure."""
    ok = found["status"] == OK
    best = found[ok].sort_values("latency_us", kind="stable").drop_duplicates("cell")
    bad = found[~found["cell"].isin(best["cell"])]
    counts = bad.groupby(["cell", "status"])["config"].agg(["size", "min"]).reset_index()
    counts = counts.sort_values(["size", "status"], ascending=[False, True], kind="stable")
    usual = counts.drop_duplicates("cell").rename(columns={"min": "config"})
    kept = pd.concat([best, usual[["cell", "config", "status"]]])
    return kept.set_index("cell").sort_index()


def search_path(
    landscape: Landscape,
    run: pd.DataFrame,
    x: str,
    y: str,
    *,
    fixed: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Returns where one run went on two axes of the landscape it searched, in order.

    Args:
        landscape: That the run was replayed from.
        run: The tidy table of one run: one row per trial, `config` as a position in its space.
        x: As in `landscape_slice`.
        y: As in `landscape_slice`.
        fixed: As in `landscape_slice`.

    Returns:
        One row per trial, in order: `trial`, `config`, `x_index`, `y_index`, `slot` (how many
        earlier trials fell into the same cell), `inside` (whether the config has the fixed
        values), `status`, `latency_us` (the reading), `ratio` (to the landscape's optimum), and
        `incumbent` (the row of the incumbent's first measurement after this trial; null: none).

    Raises:
        UsageError: The table holds several runs, none, one of another landscape, or a live run.
    """
    check_axes(landscape, x, y, dict(fixed or {}))
    check_columns(run, ("trial", "config", "status", "latency_us"))
    runs = run.drop_duplicates([name for name in RUN if name in run.columns])
    about = [name for name in ("workload", "gpu") if name in runs.columns]
    whose = [" on ".join(map(str, row)) for row in runs[about].to_numpy()]
    ours = " on ".join(str(getattr(landscape, name)) for name in about)
    if whose != [ours]:
        told = ", ".join(sorted(set(whose))) or "nothing"
        raise UsageError(f"a path needs one run of {ours}, got {len(runs)} of {told}; choose one")
    rows = run.sort_values("trial", kind="stable").reset_index(drop=True)
    config = rows["config"].to_numpy(np.int64)
    if config.min() < 0 or config.max() >= landscape.space.size:
        raise UsageError(
            f"a path needs configs by their position 0..{landscape.space.size - 1}, got "
            f"{config.min()}..{config.max()}; a live run numbers its own"
        )
    path = rows[["trial", "config", "status", "latency_us"]].astype({"status": str})
    path[["x_index", "y_index"]] = _at(landscape, config, (x, y))
    path["slot"] = path.groupby(["x_index", "y_index"]).cumcount()
    path["inside"] = _inside(landscape, dict(fixed or {}))[config]
    path["ratio"] = path["latency_us"].astype(float) / landscape.optimum_us
    first = path.reset_index().drop_duplicates("config").set_index("config")["index"]
    path["incumbent"] = incumbent_curves(run)["incumbent"].map(first).astype("Int64").array
    return path


def check_axes(landscape: Landscape, x: str, y: str, fixed: Mapping[str, Any]) -> None:
    """Raises unless x and y are two parameters, and `fixed` holds values of others."""
    for name in (x, y, *fixed):
        if name not in landscape.space.names:
            raise UnknownName("parameter", name, landscape.space.names)
    if x == y or {x, y} & set(fixed):
        raise UsageError(
            "the axes of a slice must be two parameters that are not fixed, got "
            f"x={x!r}, y={y!r}, fixed={sorted(fixed)}"
        )


def _at(landscape: Landscape, configs: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    columns = [landscape.space.names.index(name) for name in names]
    return landscape.space.enumerate()[np.asarray(configs)][:, columns]


def _inside(landscape: Landscape, fixed: Mapping[str, Any]) -> np.ndarray:
    space = landscape.space
    inside = np.ones(space.size, dtype=bool)
    for name, value in fixed.items():
        column = space.names.index(name)
        inside &= space.enumerate()[:, column] == space.parameters[column].index(value)
    return inside
