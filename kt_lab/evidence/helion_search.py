"""Helion's own search on kt_lab's workers: its class, its priors and its space; others measure."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kt_lab.budget import Budget
from kt_lab.trial import OK


class _Enough(Exception):
    """Ends Helion's search when its budget is spent."""


def search(
    pool: Any, bound: Any, inputs: Sequence[Any], effort: str, *, seed: int, budget: Budget
) -> tuple[list[tuple], dict[str, Any] | None]:
    """Runs Helion's LFBOTreeSearch as `@helion.kernel` does, but for who measures.

    Args:
        pool: A `helion_pool.Pool`.
        bound: Helion's bound kernel.
        inputs: Its arguments.
        effort: "quick" or "full": Helion's profile.
        seed: Helion's `autotune_random_seed`.
        budget: Cuts the search off; within a batch of Helion's it is not looked at the clock.

    Returns:
        (seconds, status, microseconds, config) of every config in the order in which they were
        measured; and the config that Helion chose, None if it was cut off.
    """
    from helion.autotuner import search_algorithms
    from helion.autotuner.effort_profile import get_effort_profile

    pool.begin()
    most, until_s = budget.trials or math.inf, budget.seconds or math.inf
    told: list[tuple] = []
    tags = iter(range(10**9))

    def measured(configs: Sequence[Mapping], submit: Callable) -> list[Any]:
        """Returns the measurements of a batch, in its order; notes them as they finish."""
        at = {(tag := next(tags)): (n, submit(tag, c)) for n, c in enumerate(configs)}
        found: list[Any] = [None] * len(configs)
        while pool.pending:
            tag, measurement = pool.next()
            number = at[tag][0]
            found[number] = measurement
            if submit == pool.submit:
                us = measurement.latency_us
                told.append((pool.now, measurement.status, us, configs[number]))
        return found

    def measure(configs: Sequence[Mapping]) -> list[float]:
        room = int(min(len(configs), most - len(told)))
        found = measured(configs[:room], pool.submit)
        if len(told) >= most or pool.now > until_s:
            raise _Enough
        return [m.latency_us if m.status == OK else math.inf for m in found]

    def retime(calls: Sequence[Callable], **_: Any) -> list[float]:
        found = measured([dict(call()) for call in calls], pool.again)
        return [m.latency_us / 1e3 if m.status == OK else math.inf for m in found]

    settings = bound.settings
    settings.autotune_random_seed, settings.autotune_effort = seed, effort
    settings.autotune_progress_bar, settings.autotune_log_level = False, logging.CRITICAL
    settings.autotune_benchmark_fn = retime
    settings.autotune_ignore_errors = True
    cls = search_algorithms["LFBOTreeSearch"]
    profile = cls.get_kwargs_from_profile(get_effort_profile(effort), settings)
    running = cls(bound, inputs, **profile)
    running._benchmark_provider_cls = _provider(measure)
    try:
        return told, dict(running.autotune(skip_cache=True))
    except _Enough:
        return told, None


def _provider(measure: Callable[[Sequence[Mapping]], list[float]]) -> type:
    """Returns a benchmark provider of Helion's that asks `measure` for microseconds."""
    from helion.autotuner.benchmark_provider import BenchmarkProvider, BenchmarkResult

    class Provider(BenchmarkProvider):
        mutated_arg_indices = ()

        def __init__(self, *_: Any, autotune_metrics: Any, **__: Any):
            self._metrics = autotune_metrics

        def setup(self) -> None:
            """Nothing to prepare."""

        def cleanup(self) -> None:
            """Nothing to release."""

        def benchmark(self, configs, *, desc="", **_):  # noqa: ARG002
            self._metrics.num_configs_tested += len(configs)
            latencies = zip(configs, measure([dict(c) for c in configs]), strict=True)
            return [
                BenchmarkResult(
                    c, lambda *_, c=c: c, us / 1e3, "ok" if us < math.inf else "error", None
                )
                for c, us in latencies
            ]

    return Provider
