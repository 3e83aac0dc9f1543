"""Transfer: what the recorded landscapes of other workloads tell a search before it begins.

target = load_landscape("softmax/4096x640", gpu="h200")
prior = recorded_prior(target, rule="shapes")
searcher = make_searcher("scout", target.space, seed=0, prior=prior)
"""

from collections.abc import Callable, Sequence

import numpy as np

from kt_lab.errors import UnknownName, UsageError
from kt_lab.landscape import Landscape, LandscapeEntry, landscapes, load_landscape
from kt_lab.prior import Prior, PriorReading

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
    readings: list[PriorReading] = []
    for source in sources:
        own = (source.workload, source.gpu) == (target.workload, target.gpu)
        if own or (_data(source) and _data(source) == _data(target)):
            raise UsageError(
                f"a prior must not hold the recording that is searched, got {source.workload} on "
                f"{source.gpu}; leave it out"
            )
        latencies = source.latency_us
        order = np.argsort(latencies, kind="stable")  # NaN, a failure, goes last
        configs = source.space.configs(source.space.enumerate()[order])
        readings += [
            PriorReading(config, None if np.isnan(us) else float(us), source.workload, source.gpu)
            for config, us in zip(configs, latencies[order], strict=True)
        ]
    told = ", ".join(f"{s.workload} on {s.gpu} ({_data(s)[:12]})" for s in sources)
    return Prior(tuple(readings), f"recorded landscapes: {told}" if told else "")


def _data(landscape: Landscape) -> str:
    """The fingerprint of the recorded data; none of a landscape that was never stored."""
    return landscape.manifest.get("sha256", "")
