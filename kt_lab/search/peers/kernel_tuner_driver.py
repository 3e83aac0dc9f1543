"""Runs a strategy of the real Kernel Tuner over a space of kt_lab; imports Kernel Tuner."""

import importlib
import math
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from kernel_tuner.interface import Options
from kernel_tuner.runners.runner import Runner
from kernel_tuner.searchspace import Searchspace
from kernel_tuner.strategies import bayes_opt
from kernel_tuner.util import (
    InvalidConfig,
    RuntimeFailedConfig,
    StopCriterionReached,
    TuningBudget,
)
from scipy.stats.qmc import LatinHypercube

from kt_lab.search.peers.handoff import Measure
from kt_lab.search.threads import single_thread
from kt_lab.space import ParameterSpace

Row = tuple[int, ...]  # positions among the values of each parameter


@dataclass(frozen=True, kw_only=True)
class Task:
    """One search.

    Attributes:
        space: What is searched; its members can be listed.
        strategy: Module of `kernel_tuner.strategies`.
        options: The strategy's options, by Kernel Tuner's names.
        trials: Distinct configs to measure, >= 1; None: every config of the space.
    """

    space: ParameterSpace
    strategy: str
    options: dict[str, Any]
    trials: int | None


def search(task: Task, measure: Measure) -> None:
    """Runs the whole search; `measure` blocks until what it is given was measured.

    Args:
        task: What to search, and how.
        measure: Takes (config, origin, repetitions), returns microseconds, inf for failures.

    Raises:
        ValueError: The strategy found nothing that it could go on from.
    """
    space = task.space
    if space.size == 1:  # several strategies break on it, and nothing is left to choose
        measure([(space.default, "", None)])
        return
    trials = min(task.trials or space.size, space.size)
    options = task.options | {"max_fevals": trials}
    if "popsize" in options:
        options["popsize"] = min(options["popsize"], space.size)
    tuning_options = Options(
        tune_params=_positions(space),
        strategy_options=Options(options),
        objective=["time"],
        objective_higher_is_better=[False],
        verbose=False,
        metrics=None,
        budget=TuningBudget(max_fevals=trials),
    )
    strategy = importlib.import_module(f"kernel_tuner.strategies.{task.strategy}")
    evaluator = Evaluator(space, measure)
    try:
        strategy.tune(searchspace(space), evaluator, tuning_options)
    except StopCriterionReached:
        pass  # greedy_ils lets the end of its budget out when it comes at its start
    finally:
        evaluator.quiet.close()


def searchspace(space: ParameterSpace) -> Searchspace:
    """Returns Kernel Tuner's space, which holds the rows of the members.

    Taken as from its cache of results, so that nothing is solved: members may be few of a large
    product. They stand in the order that its solver finds them in when membership is the one
    restriction (one strategy repairs to the first valid neighbour in that order).
    """
    slots = sorted(range(len(space.names)), key=lambda i: (space.parameters[i].cardinality, i))
    rows = space.enumerate()
    rows = rows[np.lexsort(-rows.T[slots[::-1]])]
    cache = {i: dict(zip(space.names, row, strict=True)) for i, row in enumerate(rows.tolist())}
    stored = {"tune_params": _positions(space), "cache": cache}
    return Searchspace(None, None, None, from_cache=stored)


def _positions(space: ParameterSpace) -> dict[str, list[int]]:
    return {p.name: list(range(p.cardinality)) for p in space.parameters}


class Evaluator(Runner):
    """Kernel Tuner's runner, which hands over what was not measured before.

    Like Kernel Tuner's simulation, and unlike its live runner, it charges `max_fevals` with the
    first measurement of each config only.
    """

    dev = SimpleNamespace(max_threads=2**31)

    def __init__(self, space: ParameterSpace, measure: Measure):
        """Measures configs of `space` by `measure`."""
        super().__init__()
        self.quiet = _quiet()
        self._space, self._measure = space, measure
        self._members = set(map(tuple, space.enumerate().tolist()))
        self._milliseconds: dict[Row, float] = {}

    def get_device_info(self) -> SimpleNamespace:
        """Returns what Kernel Tuner asks of a device."""
        return self.dev

    def get_environment(self, tuning_options: Options) -> dict:  # noqa: ARG002
        """Returns nothing: there is no device to describe."""
        return {}

    def run(self, parameter_space: list, tuning_options: Options) -> list[dict | None]:
        """Returns a result per row, its "time" in milliseconds; None where the budget is spent."""
        budget, known = tuning_options.budget, self._milliseconds
        rows, new = [], {}
        for row in map(tuple, parameter_space):
            if budget.is_done():
                break
            if row in self._members and row not in known and row not in new:
                new[row] = (self._space.config(row), "", None)
                budget.add_evaluations(1)
            rows.append(row)
        if new:
            self.quiet.close()
            latencies = self._measure(list(new.values()))
            self.quiet = _quiet()
            known |= {row: us / 1e3 for row, us in zip(new, latencies, strict=True)}
        missing = [None] * (len(parameter_space) - len(rows))
        return [self._result(row) for row in rows] + missing

    def _result(self, row: Row) -> dict[str, Any]:
        result = dict(zip(self._space.names, row, strict=True))
        if row not in self._members:  # a step of some hill climbers; as where restrictions say so
            return result | {"__error__": InvalidConfig()}
        milliseconds = self._milliseconds[row]
        if math.isfinite(milliseconds):
            return result | {"time": milliseconds}
        return result | {"__error__": RuntimeFailedConfig()}


def _quiet() -> ExitStack:
    """Until it is closed, nothing warns and linear algebra runs in one thread."""
    stack = ExitStack()
    stack.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")
    stack.enter_context(single_thread())
    return stack


def _latin_hypercube(d: int) -> LatinHypercube:
    """Returns Kernel Tuner's sampler, drawing from the global state that each peer has of its own.

    Kernel Tuner gives it no seed: it would draw from the operating system.
    """
    return LatinHypercube(d, rng=np.random.default_rng(np.random.randint(2**31)))  # noqa: NPY002


bayes_opt.LatinHypercube = _latin_hypercube
