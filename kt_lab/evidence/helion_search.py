"""Helion's own searches on kt_lab's workers: its class, priors and space; others measure."""

import contextlib
import itertools
import logging
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kt_lab.budget import Budget
from kt_lab.trial import OK


class _Enough(Exception):
    """Ends Helion's search when its budget is spent."""


def search(
    pool: Any,
    bound: Any,
    inputs: Sequence[Any],
    effort: str,
    *,
    seed: int,
    budget: Budget,
    algorithm: str = "LFBOTreeSearch",
    random_start: bool = False,
) -> tuple[list[tuple], dict[str, Any] | None]:
    """Runs a search of Helion's as `@helion.kernel` does, but for who measures.

    A config that Helion asks for twice is answered twice by one reading.

    Args:
        pool: A `helion_pool.Pool`.
        bound: Helion's bound kernel.
        inputs: Its arguments.
        effort: "quick" or "full": Helion's profile.
        seed: Helion's `autotune_random_seed`.
        algorithm: Name of one of Helion's `search_algorithms`.
        random_start: Fill the first population up with random configs, as its "full" profile
            does; "quick" starts from what its compiler would try first alone.
        budget: Cuts the search off; within a batch of Helion's it is not looked at the clock.

    Returns:
        (seconds, status, microseconds, config) of every config in the order in which they were
        measured; and the config that Helion chose, None if it was cut off.
    """
    from helion.autotuner import InitialPopulationStrategy, search_algorithms
    from helion.autotuner.effort_profile import get_effort_profile

    batches = _Batches(pool, budget)
    settings = bound.settings
    settings.autotune_random_seed, settings.autotune_effort = seed, effort
    settings.autotune_progress_bar, settings.autotune_log_level = False, logging.CRITICAL
    # Helion copies its settings deeply: a method would take the pool along, a function does not
    settings.autotune_benchmark_fn = lambda *calls, **more: batches.retime(*calls, **more)
    settings.autotune_ignore_errors = True
    cls = search_algorithms[algorithm]
    profile = cls.get_kwargs_from_profile(get_effort_profile(effort), settings)
    if random_start and "initial_population_strategy" in profile:
        profile["initial_population_strategy"] = InitialPopulationStrategy.FROM_RANDOM
    with _drawing(seed):
        running = cls(bound, inputs, **profile)
    running._benchmark_provider_cls = _provider(batches.measure)
    try:
        return batches.told, dict(running.autotune(skip_cache=True))
    except _Enough:
        return batches.told, None


@contextlib.contextmanager
def _drawing(seed: int) -> Iterator[None]:
    """Lets Helion's random search, which draws before Helion seeds Python's generator, repeat."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


class _Batches:
    """Measures Helion's batches one by one, and notes every config as it finishes."""

    def __init__(self, pool: Any, budget: Budget):
        pool.begin()
        self.told: list[tuple] = []
        self._pool, self._tags = pool, itertools.count()
        self._most, self._until_s = budget.trials or math.inf, budget.seconds or math.inf

    def measure(self, configs: Sequence[Mapping]) -> list[float]:
        """Returns microseconds, infinite for what failed; ends the search after its budget."""
        room = int(min(len(configs), self._most - len(self.told)))
        found = self._all(configs[:room], self._pool.submit, note=True)
        if len(self.told) >= self._most or self._pool.now > self._until_s:
            raise _Enough
        return [m.latency_us if m.status == OK else math.inf for m in found]

    def retime(self, calls: Sequence[Callable], **_: Any) -> list[float]:
        """Returns milliseconds of configs that Helion wants timed again."""
        found = self._all([dict(call()) for call in calls], self._pool.again, note=False)
        return [m.latency_us / 1e3 if m.status == OK else math.inf for m in found]

    def _all(self, configs: Sequence[Mapping], submit: Callable, *, note: bool) -> list[Any]:
        at = {}
        for number, config in enumerate(configs):
            at[tag := next(self._tags)] = number
            submit(tag, config)
        found: list[Any] = [None] * len(configs)
        while self._pool.pending:
            tag, measured = self._pool.next()
            found[at[tag]] = measured
            if note:
                config = configs[at[tag]]
                self.told.append((self._pool.now, measured.status, measured.latency_us, config))
        return found


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
