"""One tuning for many shapes: few configs for all of them, from landscapes or by a search.

In a search every proposal is measured on all workloads, and the configs are found one after the
other: each search is told what a proposal adds to the configs chosen before it and to the default
of every workload, which is always in the race. In the end the best set of everything that was
measured is chosen. Source of the first part: Xu, Hoos and Leyton-Brown, "Hydra: automatically
configuring algorithms for portfolio-based selection", AAAI 2010.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.budget import Budget
from kt_lab.covering import OBJECTIVES, cover
from kt_lab.errors import UsageError, whole
from kt_lab.joint import JointRunner, joint_space
from kt_lab.kernels import get_kernel
from kt_lab.keys import Dispatch, Key
from kt_lab.landscape import Landscape
from kt_lab.runners import Runner
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.search import get_searcher, make_searcher
from kt_lab.space import ParameterSpace
from kt_lab.stats.keyed import CELL, FAILED, crossings, judged_picks, read_costs
from kt_lab.trial import Config, History
from kt_lab.tune import require_budget, tune_whole
from kt_lab.workload import Workload


@dataclass(frozen=True)
class Portfolio:
    """At most k configs for many workloads.

    Attributes:
        dispatch: Config by value of the key, for `kt_lab.keys.Dispatch`, by all readings (those
            of single visits may lead to others); a value that is best served by the defaults is
            not in it.
        table: What it costs, cross-fitted: one row per visit and workload, with visit, workload,
            value, config (the default where nothing is better), default (whether it is that),
            status, regret, optimum_regret as in `regret_matrix`, and default_regret (of the
            default alone).
    """

    dispatch: Mapping[Hashable, Config]
    table: pd.DataFrame


def portfolio(
    landscapes: Sequence[Landscape] | pd.DataFrame,
    *,
    k: int,
    objective: str = "geomean",
    values: Mapping[str, Hashable] | None = None,
    fallback: bool = True,
) -> Portfolio:
    """Returns at most k configs that cover many workloads, and the table from key to config.

    Args:
        landscapes: Landscapes of one kernel, or their `crossings`.
        k: How many, >= 1.
        objective: "geomean" or "minimax" of latency relative to each workload tuned alone.
        values: Value of the key by workload: equal ones share a config. None: all differ.
        fallback: Whether a workload may use its default where that is no slower, or nothing that
            was chosen runs on it; otherwise the configs cover as many workloads as they can.
    """
    if not len(landscapes):
        raise UsageError("a portfolio is of landscapes of one kernel, got none")
    table = landscapes if isinstance(landscapes, pd.DataFrame) else crossings(landscapes)
    visits = list(read_costs(table))
    workloads = list(visits[0][2])
    values = values or {w: w for w in workloads}
    if lacking := [w for w in workloads if w not in values]:
        raise UsageError(f"each workload must have a value of the key, got none for {lacking}")
    defaults = table[table["default"]].drop_duplicates("workload").set_index("workload")["config"]

    def covered(costs: pd.DataFrame, configs: pd.Index) -> dict[Hashable, Config]:
        own = configs.get_indexer(defaults.reindex(workloads))
        base = costs.reindex(own).to_numpy().diagonal() if fallback else None
        groups = [values[w] for w in workloads]
        _, use = cover(costs.to_numpy(), groups, k, objective=objective, base=base)
        return {value: configs[costs.index[at]] for value, at in use.items()}

    rows = []
    for visit, configs, costs in visits:
        use = covered(costs, configs)
        for w in workloads:
            config = use.get(values[w], defaults.get(w))
            about = {"visit": visit, "workload": w, "value": values[w], "config": config}
            rows.append(about | {"default": values[w] not in use})
    pooled = np.exp(sum(np.log(costs) for _, _, costs in visits) / len(visits))
    dispatch = covered(pooled, visits[0][1])
    told = judged_picks(pd.DataFrame(rows), table)
    alone = judged_picks(told[CELL].assign(config=told["workload"].map(defaults)), table)["regret"]
    return Portfolio(dispatch, told.assign(default_regret=alone))


@dataclass(frozen=True)
class ManyResult:
    """What one tuning for many workloads came to.

    Attributes:
        workloads: What was tuned for.
        dispatch: Config by value of the key, in the parameters of the joint space; a value whose
            workloads are best served by their defaults is not in it, nor has it a config that
            failed on one of them. One that a workload's space does not hold is a miss there: ask
            with `space=`.
        configs: The configs in it, at most k.
        costs: Latency over the default's of what each workload would use, as the search read it:
            low by luck as much as by merit. Shape (workloads,), <= 1 without a shared key.
        readings: Config -> cost per workload, as `JointRunner` has it.
        histories: One for each search, in order.
        machine_s: Seconds of compiling and timing, the defaults included.
    """

    workloads: tuple[Workload, ...]
    dispatch: Dispatch
    configs: tuple[Config, ...]
    costs: np.ndarray
    readings: Mapping[Config, np.ndarray]
    histories: tuple[History, ...]
    machine_s: float


def tune_many(
    workloads: Sequence[Workload],
    *,
    k: int = 1,
    objective: str = "geomean",
    searcher: str = "scout",
    options: Mapping[str, Any] | None = None,
    budget: Budget,
    seed: int = 0,
    key: Key | None = None,
    gpu: str = "",
    runner_for: Callable[[Workload], Runner] = GpuRunner,
    space_of: Callable[[Workload], ParameterSpace] | None = None,
    space: ParameterSpace | None = None,
) -> ManyResult:
    """Searches at most k configs that serve several workloads of one kernel.

    Args:
        workloads: Shapes of one kernel.
        k: How many configs beside the defaults, >= 1; each gets an equal part of the budget.
        objective: "geomean" of the latencies over the defaults', or "minimax", their largest.
        searcher: Registered name of the searcher.
        options: Its options.
        budget: Trials (a proposal on all workloads is one) and seconds of all searches together.
            Work comes in batches of 16 proposals, and one that ends too late does not count.
        seed: Fixes the searches.
        key: Workloads that share its value share a config; None: as `every_extent` has it.
        gpu: What it is called in keys that name it; ask the result with the same.
        runner_for: Opens the runner of a workload: `GpuRunner`, which goes on with the others
            (its `turn_to`), or what replays its landscape.
        space_of: The space of a workload; None: that of the registered kernel.
        space: What is searched; None: what any of the workloads' spaces holds (`joint_space`).
    """
    k, seed = whole("k", k, low=1), whole("seed", seed, low=0)
    _require(workloads, k, objective, budget)
    get_searcher(searcher)  # before any default is measured
    space_of = space_of or (lambda w: get_kernel(w.kernel).space(w))
    spaces = [space_of(workload) for workload in workloads]
    space = space or joint_space(spaces)
    key = key or every_extent([workload.extents for workload in workloads])
    values = [key(workload, gpu=gpu) for workload in workloads]
    histories: list[History] = []
    runner = JointRunner(workloads, spaces=spaces, runner_for=runner_for, objective=objective)
    try:
        for part in range(k):
            share = _share(budget, part, k)
            made = {"seed": seed + 1_000_003 * part, "budget": share, **(options or {})}
            own = make_searcher(searcher, space, **made)
            histories.append(tune_whole(own, runner, budget=share))
            readings = _counted(runner, histories)
            found = _found(readings, values, key, part + 1, objective)
            runner.base = np.fmin.reduce([runner.base, *(readings[c] for c in found[1])])
        return ManyResult(tuple(workloads), *found, readings, tuple(histories), runner.now)
    finally:
        runner.close()


def every_extent(shapes: Sequence[Mapping[str, int]]) -> Key:
    """Returns the key of the dtype and every extent that all shapes have: others are optional."""
    return Key((*(n for s in shapes[:1] for n in s if all(n in t for t in shapes)), "dtype"))


def _require(workloads: Sequence[Workload], k: int, objective: str, budget: Budget) -> None:
    """Raises UsageError where a search could not end in a choice."""
    kernels = {workload.kernel for workload in workloads}
    if len(kernels) != 1 or objective not in OBJECTIVES:
        raise UsageError(
            f"a tuning for many needs workloads of one kernel and one of {', '.join(OBJECTIVES)}, "
            f"got kernels {', '.join(sorted(kernels)) or 'none'}, objective={objective!r}"
        )
    require_budget(budget)
    if budget.trials is not None and budget.trials < k:
        raise UsageError(f"k configs need trials >= k, got k={k} and trials={budget.trials}")


def _share(budget: Budget, part: int, k: int) -> Budget:
    """Returns the budget of one of k searches: its own trials, and the clock's end."""
    trials = budget.trials and budget.trials * (part + 1) // k - budget.trials * part // k
    return Budget(trials, budget.seconds and budget.seconds * (part + 1) / k)


def _counted(runner: JointRunner, histories: Sequence[History]) -> dict[Config, np.ndarray]:
    """Returns what histories hold; what ended too late is of no use to the next search either."""
    while runner.pending:
        runner.next()
    told = {trial.config for history in histories for trial in history}
    return {config: costs for config, costs in runner.readings.items() if config in told}


def _found(
    readings: Mapping[Config, np.ndarray], values: list[tuple], key: Key, k: int, objective: str
) -> tuple[Dispatch, tuple[Config, ...], np.ndarray]:
    """Returns the best choice of k among all that was measured: table, configs, costs."""
    pool = list(readings)
    if not pool:
        return Dispatch(key, {}), (), np.ones(len(values))
    costs = np.array([readings[config] for config in pool])
    costs[np.isnan(costs)] = 1.0  # where it is not held the default is used: see Dispatch.config
    for value in set(values):  # others of a group may not outvote one on which it fails
        own = np.array([v == value for v in values])
        costs[np.ix_(np.isinf(costs[:, own]).any(axis=1), own)] = np.inf
    picks, use = cover(costs, values, k, objective=objective, base=np.ones(len(values)))
    served = [costs[use[v], i] if v in use else 1.0 for i, v in enumerate(values)]
    table = Dispatch(key, {value: pool[at] for value, at in use.items()})
    return table, tuple(pool[at] for at in picks), np.array(served)


def across_families(
    table: pd.DataFrame, families: Mapping[str, Hashable], *, objective: str = "geomean"
) -> pd.DataFrame:
    """Returns what one config that was tuned for a family of shapes is worth on every shape.

    Args:
        table: From `crossings`.
        families: Family by workload, as `crossings` names them.
        objective: How the family's config is chosen: "geomean" or "minimax" of the readings of
            its shapes, those that run on most of them first.

    Returns:
        One row per visit, family and workload: visit, tuned (the family), family (of the
        workload), workload, config, default (the workload's config), status and regret as in
        `regret_matrix`, loss (judged latency / that of the default, minus 1: > 0 is a regression;
        infinite: failed, null: not held), apparent (the same as it was read by the visit).
    """
    rows = []
    for visit, configs, costs in read_costs(table):
        for family in dict.fromkeys(families[w] for w in costs):
            asked = costs[[w for w in costs if families[w] == family]].to_numpy()
            (pick,), _ = cover(asked, [0] * asked.shape[1], 1, objective=objective)
            about = {"visit": visit, "tuned": family, "config": configs[costs.index[pick]]}
            rows += [about | {"family": families[w], "workload": w} for w in costs]
    found = judged_picks(pd.DataFrame(rows), table).drop(columns="optimum_regret")
    own = table.loc[table["default"], [*CELL, "config", "latency_us", "judged_us"]]
    own = found[CELL].merge(own.rename(columns={"config": "default"}), how="left", on=CELL)
    read = found[[*CELL, "config"]].merge(table, how="left", on=[*CELL, "config"])
    judged = (read["judged_us"] / own["judged_us"] - 1).where(found["status"] != FAILED, np.inf)
    apparent = read["latency_us"] / own["latency_us"] - 1
    return found.assign(default=own["default"], loss=judged, apparent=apparent)
