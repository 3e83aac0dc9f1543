"""Transfer: what the recorded landscapes of other workloads tell a search before it begins.

target = load_landscape("softmax/4096x640", gpu="h200")
prior = recorded_prior(target, rule="shapes")
searcher = make_searcher("scout", target.space, seed=0, prior=prior)

prior = known_prior(workload_of_shape("softmax/1000x777"), gpu="h200")  # for a live search
tune_live("softmax/1000x777", searcher="scout", prior=prior, budget=Budget(trials=50))
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kt_lab.errors import UnknownName, UsageError, whole
from kt_lab.kernels import get_kernel, workload_of_shape
from kt_lab.landscape import (
    Landscape,
    LandscapeEntry,
    data_directory,
    landscapes,
    load_landscape,
)
from kt_lab.prior import Prior, PriorReading
from kt_lab.runners.gpu.facts import gpu_slug
from kt_lab.store.tables import read_table
from kt_lab.trial import Config
from kt_lab.workload import Workload

_SHAPED = re.compile(r"(.+)/([1-9]\d*(?:x[1-9]\d*)*)")  # a key whose name is its extents

NEAREST = 4
"""Runs that `nearby_prior` believes in."""

Read = list[tuple[Config, float | None]]
"""What a run read, in its order: configs and microseconds, None for a failure."""

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
    return _recorded(sources, workload=target.workload, gpu=target.gpu)


def _recorded(sources: Sequence[Landscape], *, workload: str, gpu: str) -> Prior:
    """Returns what landscapes hold; its provenance changes when one is recorded anew."""
    runs = {(source.workload, source.gpu): _read(source) for source in sources}
    told = ", ".join(f"{s.workload} on {s.gpu} ({_data(s)[:12]})" for s in sources)
    prior = run_prior(runs, workload=workload, gpu=gpu)
    return Prior(prior.readings, f"recorded landscapes: {told}" if told else "")


def _read(landscape: Landscape) -> Iterable[tuple[Config, float]]:
    configs = landscape.space.configs(landscape.space.enumerate())
    return zip(configs, landscape.latency_us.tolist(), strict=True)


def run_prior(
    runs: Mapping[tuple[str, str], Iterable[tuple[Config, float | None]]],
    *,
    workload: str,
    gpu: str,
) -> Prior:
    """Returns the readings of earlier runs: at other shapes, on other GPUs, of like kernels.

    Args:
        runs: (workload's key, GPU) -> configs with their latencies in microseconds, None or NaN
            for a failure, in the order of the run: `((t.config, t.latency_us) for t in history)`.
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
        told = {config: None if us is None or math.isnan(us) else us for config, us in read}
        last = sorted(told.items(), key=lambda item: (item[1] is None, item[1] or 0.0))
        apart = _octaves(workload, source[0])
        readings += [PriorReading(config, us, *source, apart) for config, us in last]
    named = ", ".join(f"{w} on {g}" for w, g in runs)
    return Prior(tuple(readings), f"runs: {named}" if named else "")


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
    return dict(sorted(runs.items(), key=lambda run: _octaves(workload.key, run[0].key))[:count])


def _octaves(one: str, other: str) -> float:
    """Returns how far the shapes of two keys are apart; infinitely where nobody knows."""
    mine, its = _SHAPED.fullmatch(one), _SHAPED.fullmatch(other)
    if not (mine and its and mine[1] == its[1] and mine[2].count("x") == its[2].count("x")):
        return math.inf
    extents = [map(int, each[2].split("x")) for each in (mine, its)]
    return sum(abs(math.log2(m / n)) for m, n in zip(*extents, strict=True))


def earlier_path(gpu: str) -> Path:
    """Returns where the runs of `kt-lab evidence histories` on a GPU are stored."""
    return data_directory() / "histories" / f"{gpu}.parquet"


def earlier_runs(kernel: str, gpu: str, *, path: Path | None = None) -> dict[Workload, Read]:
    """Returns what stored runs of a kernel read, at shapes next to the recorded ones.

    Args:
        kernel: Its name.
        gpu: Where the runs were made.
        path: A table of such runs; None: the stored one, if there is any.

    Raises:
        UsageError: A run's space is not what it was.
    """
    path = path or earlier_path(gpu)
    if not path.exists():
        return {}
    table = read_table(path)[0]
    own = table[table["workload"].str.startswith(f"{kernel}/")]
    return {
        workload_of_shape(key): _readings(workload_of_shape(key), part)
        for key, part in own.groupby("workload", sort=False, observed=True)
    }


def _readings(workload: Workload, part: pd.DataFrame) -> Read:
    space = get_kernel(workload.kernel).space(workload)
    if space.fingerprint != part["space"].iloc[0]:
        raise UsageError(
            f"a stored run must be of the space as it is, got {workload.key} with "
            f"{part['space'].iloc[0]} instead of {space.fingerprint}; run kt-lab evidence "
            "histories"
        )
    configs = space.configs(space.enumerate()[part["config"]])
    latencies = [None if math.isnan(us) else us for us in part["latency_us"].tolist()]
    return list(zip(configs, latencies, strict=True))


def nearby_prior(workload: Workload | str, *, gpu: str, count: int = NEAREST) -> Prior:
    """Returns what stored runs read at the shapes that lie nearest.

    Args:
        workload: What will be searched, any shape of a registered kernel, or its key.
        gpu: Name of the GPU.
        count: Runs, at most.
    """
    count = whole("count", count, low=0)
    workload, gpu = _named(workload, gpu)
    runs = earlier_runs(workload.kernel, gpu)
    # An earlier run of the target, whoever's shape and of whatever dtype, is not believed.
    others = {other: read for other, read in runs.items() if other.key != workload.key}
    found = nearest(workload, others, count=count)
    sources = {(other.key, gpu): read for other, read in found.items()}
    return run_prior(sources, workload=workload.key, gpu=gpu)


def known_prior(workload: Workload | str, *, gpu: str, nearby: bool = True) -> Prior:
    """Returns what is recorded of a kernel's other shapes, for a search by replay or live.

    Args:
        workload: What will be searched, any shape of a registered kernel, or its key.
        gpu: Name of the GPU that it will be searched on: "h200", or "NVIDIA H200".
        nearby: Whether stored runs at the shapes that lie nearest count, too.

    Returns:
        Recordings of that GPU, or where it has none, of every GPU. No readings: nothing is known.
    """
    workload, gpu = _named(workload, gpu)
    own = [e for e in landscapes() if e.kernel == workload.kernel]
    shapes = [e for e in own if e.workload != workload.key]
    shapes = [e for e in shapes if e.gpu == gpu] or shapes
    found = [load_landscape(e.workload, gpu=e.gpu) for e in shapes]
    recorded = _recorded(found, workload=workload.key, gpu=gpu)
    return joined(recorded, nearby_prior(workload, gpu=gpu)) if nearby else recorded


def _named(workload: Workload | str, gpu: str) -> tuple[Workload, str]:
    """Returns a workload, and a GPU's short name: in another spelling nothing is known of it."""
    workload = workload_of_shape(workload) if isinstance(workload, str) else workload
    return workload, gpu if gpu in {e.gpu for e in landscapes()} else gpu_slug(gpu)


KNOWLEDGE = {
    "nothing": "a cold search",
    "shapes": "recordings of the kernel's other shapes",
    "nearby": "recordings of other shapes, and stored runs at the shapes nearest",
}
"""What a search may start from: name -> what that is."""


def prior_named(name: str, workload: Workload, *, gpu: str) -> Prior | None:
    """Returns what one of KNOWLEDGE holds, see `known_prior`; None: nothing was asked for."""
    if name not in KNOWLEDGE:
        raise UnknownName("knowledge", name, KNOWLEDGE)
    return None if name == "nothing" else known_prior(workload, gpu=gpu, nearby=name == "nearby")


def joined(*priors: Prior) -> Prior:
    """Returns the readings of several priors as one, in their order."""
    told = [prior.provenance for prior in priors if prior.readings]
    return Prior(tuple(r for prior in priors for r in prior.readings), "; ".join(told))


def _data(landscape: Landscape) -> str:
    """The fingerprint of the recorded data; none of a landscape that was never stored."""
    return landscape.manifest.get("sha256", "")
