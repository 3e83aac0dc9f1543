"""Recorded GPUs: a replay with what a live runner has besides, races and facts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from kt_lab.landscape import Landscape
from kt_lab.runners.racing import ReplayRacer
from kt_lab.runners.replay import ReplayRunner
from kt_lab.space import ParameterSpace
from kt_lab.stats.keyed import workload_of
from kt_lab.trial import Config, Measurement, Proposal
from kt_lab.workload import Workload


class ReplayedGpu(ReplayRunner):
    """Replays a landscape wherever an open `GpuRunner` is asked for.

    A search reads one visit, the races of the same process the others.
    """

    def __init__(
        self, landscape: Landscape, *, space: ParameterSpace | None = None, process: int = 0
    ):
        """Opens a recording.

        Args:
            landscape: What is replayed.
            space: What may be measured; None: all that was recorded.
            process: Number of the process: chooses the visit and every draw.
        """
        super().__init__(landscape, seed=process, space=space)
        told = landscape.manifest
        self.facts = dict((told.get("facts") or [{}])[0]) | {"slug": landscape.gpu}
        self.facts["kernel_source"] = told.get("kernel_source", "unknown")
        self.sensors = [self.facts.get("sensors") or {}]
        self.protocol = SimpleNamespace(name=(told.get("protocol") or {}).get("name", "replay"))
        self.space = space or landscape.space
        self.workload = workload_of(landscape)
        others = [v for v in range(landscape.visits) if v != self.visit] or None
        self._racer = ReplayRacer(landscape, seed=process, visits=others)
        self._launches = landscape.launches

    def next(self) -> tuple[Proposal, Measurement]:
        """Advances the clock; what was measured tells its binary and grid, as live."""
        proposal, found = super().next()
        code_hash, grid = self._launches[found.info["config"]]
        return proposal, replace(found, info=found.info | {"code_hash": code_hash, "grid": grid})

    def race(self, configs: Sequence[Config], *, rounds: int, repetitions: int) -> np.ndarray:
        """Draws block medians in microseconds, shape (rounds, len(configs))."""
        return self._racer.race(configs, rounds=rounds, repetitions=repetitions)


def replayed(landscapes: Sequence[Landscape]) -> Callable[..., ReplayedGpu]:
    """Returns what opens recordings for `tune_guarded`, each time as another process.

    Args:
        landscapes: Of one GPU, one for each workload.
    """
    known = {landscape.workload: landscape for landscape in landscapes}
    opened = dict.fromkeys(known, -1)

    def opens(workload: Workload, *, space: ParameterSpace) -> ReplayedGpu:
        opened[workload.key] += 1
        return ReplayedGpu(known[workload.key], space=space, process=opened[workload.key])

    return opens
