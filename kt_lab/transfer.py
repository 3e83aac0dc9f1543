"""Transfer: what the recorded landscapes of other workloads tell a search before it begins.

target = load_landscape("softmax/4096x640", gpu="h200")
prior = recorded_prior(target, rule="shapes")
searcher = make_searcher("scout", target.space, seed=0, prior=prior)
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kt_lab.errors import UnknownName, UsageError
from kt_lab.landscape import Landscape, LandscapeEntry, landscapes, load_landscape
from kt_lab.prior import Prior, PriorReading
from kt_lab.trial import Config
from kt_lab.workload import Workload

_Rule = Callable[[LandscapeEntry, Landscape], bool]

RULES: dict[str, tuple[_Rule, str]] = {
    "shapes": (
        lambda e, t: e.gpu == t.gpu and e.workload != t.workload,
        "other workloads of the kernel, on the same GPU",
    ),
    "kernel": (
        lambda e, t: e.workload != t.workload,
        "other workloads of the kernel, on every GPU",
    ),
    "twin": (
        lambda e, t: e.gpu != t.gpu and e.workload == t.workload,
        "the same workload on other GPUs",
    ),
}
"""Which recordings of a kernel are believed: name -> (whether one is, what it means)."""


def recorded_prior(target: Landscape, *, rule: str) -> Prior:
    """Returns what the recorded landscapes of the target's kernel say.

    Args:
        target: What will be searched, by replay.
        rule: One of RULES.

    Returns:
        No readings where nothing was recorded that the rule allows.
    """
    if rule not in RULES:
        raise UnknownName("rule of a prior", rule, RULES)
    allowed, _ = RULES[rule]
    entries = [e for e in landscapes() if e.kernel == target.kernel and allowed(e, target)]
    found = [load_landscape(e.workload, gpu=e.gpu) for e in entries]
    return prior_of(found, target=target)


def prior_of(sources: Sequence[Landscape], *, target: Landscape) -> Prior:
    """Returns the readings of some landscapes, those of each by latency, failures last.

    Args:
        sources: Landscapes of any workloads.
        target: What will be searched.

    Raises:
        UsageError: A source is the target's own recording, from which every answer is known.
    """
    for source in sources:
        own = (source.workload, source.gpu) == (target.workload, target.gpu)
        if own or (_data(source) and _data(source) == _data(target)):
            raise UsageError(
                f"a prior must not hold the recording that is searched, got {source.workload} on "
                f"{source.gpu}; leave it out"
            )
    runs = {(source.workload, source.gpu): _read(source) for source in sources}
    told = ", ".join(f"{s.workload} on {s.gpu} ({_data(s)[:12]})" for s in sources)
    prior = run_prior(runs, workload=target.workload, gpu=target.gpu)
    return Prior(prior.readings, f"recorded landscapes: {told}" if told else "")


def _read(landscape: Landscape) -> Iterable[tuple[Config, float | None]]:
    latencies = [None if np.isnan(us) else us for us in landscape.latency_us.tolist()]
    return zip(landscape.space.configs(landscape.space.enumerate()), latencies, strict=True)


def run_prior(
    runs: Mapping[tuple[str, str], Iterable[tuple[Config, float | None]]],
    *,
    workload: str,
    gpu: str,
) -> Prior:
    """Returns the readings of earlier runs: at other shapes, on other GPUs, of like kernels.

    Args:
        runs: (workload's key, GPU) -> configs with their latencies in microseconds, None for a
            failure, in the order of the run: `((t.config, t.latency_us) for t in history)`.
        workload: Key of what will be searched.
        gpu: On which GPU.

    Returns:
        The configs of each run by latency, failures last; the last reading of a config counts.

    Raises:
        UsageError: A run is of the target itself: a search that was stopped is resumed instead.
    """
    readings: list[PriorReading] = []
    for source, read in runs.items():
        if source == (workload, gpu):
            raise UsageError(
                f"a prior must not hold runs of what is searched, got {workload} on {gpu}; leave "
                "it out, or resume that run"
            )
        last = sorted(dict(read).items(), key=lambda item: (item[1] is None, item[1] or 0.0))
        readings += [PriorReading(config, us, *source) for config, us in last]
    return Prior(tuple(readings), "runs: " + ", ".join(f"{w} on {g}" for w, g in runs))


def nearest(
    workload: Workload, runs: Mapping[Workload, Any], *, count: int
) -> dict[Workload, Any]:
    """Returns what belongs to the workloads whose shapes differ least from one of the kernel.

    Args:
        workload: What will be searched.
        runs: Anything by workload of the same kernel.
        count: How many, at most.

    Returns:
        The nearest first: their extents' ratios, in octaves, add up to the least.
    """

    def octaves(other: Workload) -> float:
        return sum(abs(math.log2(n / workload.extents[e])) for e, n in other.extents.items())

    return {other: runs[other] for other in sorted(runs, key=octaves)[:count]}


def _data(landscape: Landscape) -> str:
    """The fingerprint of the recorded data; none of a landscape that was never stored."""
    return landscape.manifest.get("sha256", "")
