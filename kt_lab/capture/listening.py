"""Two ways to hear what Triton's autotuner measured: its listener, and around its method `run`."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def by_listener(triton: Any, take: Callable[..., None]) -> Iterator[None]:
    """Has Triton's autotuner tell `take` what it tuned; a listener before it hears the same."""
    knobs = triton.knobs.autotuning
    before = knobs.listener

    def listen(**told: Any) -> None:
        if before is not None:
            before(**told)
        take(**told)

    knobs.listener = listen
    try:
        yield
    finally:
        if knobs.listener is listen:  # else somebody came later, and perhaps passes on
            knobs.listener = before


@contextmanager
def by_wrapping(triton: Any, take: Callable[..., None]) -> Iterator[None]:
    """Tells `take` what an older Triton's listener would: after each run that tuned."""
    autotuner = triton.runtime.autotuner.Autotuner
    original = autotuner.run

    @functools.wraps(original)
    def run(self, *args: Any, **kwargs: Any) -> Any:
        known = set(self.cache)
        self.bench_time = None  # stays None if the timings come from the disk
        try:
            return original(self, *args, **kwargs)
        finally:  # also when the winner could not be launched
            for key in self.cache.keys() - known:
                take(
                    fn=self.base_fn,
                    key=key,
                    best_config=self.cache[key],
                    configs_timings=self.configs_timings,
                    duration=self.bench_time,
                    cache_hit=self.bench_time is None,
                )

    autotuner.run = run
    try:
        yield
    finally:
        if autotuner.run is run:
            autotuner.run = original
