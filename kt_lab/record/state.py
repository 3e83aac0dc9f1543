"""What a recording is asked to do, how far it is, and what its journal knows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kt_lab.errors import StoreError, UsageError, whole_fields
from kt_lab.provenance import kernel_source
from kt_lab.record.works import Work
from kt_lab.runners.repetitions import Repetitions
from kt_lab.trial import OK

DISTURBED = 1.3
"""Visits whose medians are further apart than this factor are followed by another one."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """How a recording is made.

    Attributes:
        visits: Separate passes over all configs, each in its own shuffled order, >= 2.
        repetitions: Timed launches per visit of a config within `slow_factor` of the best, >= 10.
        fewest: Timed launches per visit of slower configs, >= 5.
        slow_factor: What "slower" means, as a multiple of the workload's best so far.
        compile_workers: Compile processes; None: one per core but one, left to the timing process.
        contention: How many configs are compiled again at 1, 4 and all workers.
        device: Index of the GPU.
        devices: Indices of several GPUs of one kind that share the work; empty: `device` alone.
        slices: Whether they share the configs of each workload; else each workload has one GPU.
        control_every: After so many readings on a GPU a control config is timed there again.
        protocol: Short name of the timing protocol.
        seed: Shuffles the visits.
        limit: Record only this many configs per workload (a uniform sample); None: all.
        stop_after_s: Stop cleanly after so many seconds and leave the rest for a resumption.
    """

    visits: int = 2
    repetitions: int = 16
    fewest: int = 5
    slow_factor: float = 2.0
    compile_workers: int | None = None
    contention: int = 50
    device: int = 0
    devices: tuple[int, ...] = ()
    slices: bool = False
    control_every: int = 200
    protocol: str = "events"
    seed: int = 0
    limit: int | None = None
    stop_after_s: float | None = None

    def __post_init__(self):
        """Checks the laws that later analysis relies on."""
        whole_fields(self, visits=2, repetitions=10, fewest=5, control_every=1, device=0, seed=0)
        if len(set(self.devices)) < len(self.devices):
            raise UsageError(f"a recording needs each GPU once, got devices={self.devices}")

    @property
    def lanes(self) -> tuple[int, ...]:
        """Indices of the GPUs at work."""
        return tuple(self.devices) or (self.device,)

    @property
    def rule(self) -> Repetitions:
        """How often a config is launched per visit."""
        return Repetitions(
            probes=self.fewest,
            usual=self.repetitions,
            most=self.repetitions,
            slow=self.slow_factor,
            close=1.0,
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a recording stands: steps done of all, seconds so far, expected seconds to go."""

    phase: str
    done: int
    total: int
    elapsed_s: float
    eta_s: float | None
    failures: int


@dataclass
class State:
    """What the journal knows, as lookups."""

    compiled: dict[str, dict] = field(default_factory=dict)  # specialisation -> record
    visits: dict[tuple[str, int, int], dict] = field(default_factory=dict)
    contention: list[dict] = field(default_factory=list)
    compared: dict[str, dict] = field(default_factory=dict)
    facts: list[dict] = field(default_factory=list)
    control: tuple[str, int] | None = None  # what every GPU times again: the first that was ok
    controls: list[dict] = field(default_factory=list)
    best_us: dict[str, float] = field(default_factory=dict)
    grids: dict[str, list[str]] = field(default_factory=dict)  # workload -> grid of each config
    failures: int = 0  # specialisations that did not compile
    about: dict[str, Any] = field(default_factory=dict)  # what all readings are of
    recompiled: bool | None = None  # the contention curve is whole; None: older journals
    jobs: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    def pairs(self, key: str) -> list[tuple[str, int]]:
        """Returns (specialisation, config index) of every config to record of one workload."""
        return [(s, at) for s, pairs in self.jobs.items() for name, at in pairs if name == key]

    def disturbed(self, key: str, at: int, visits: int) -> bool:
        """Returns whether a config's visits differ as no kernel's do: launches were late."""
        found = [self.visits.get((key, at, v), {}).get("samples_us") for v in range(visits)]
        medians = [float(np.median(samples)) for samples in found if samples]
        return len(medians) == visits and max(medians) > DISTURBED * min(medians)

    @property
    def curved(self) -> bool:
        """Whether the contention curve is whole."""
        return bool(self.contention) if self.recompiled is None else self.recompiled

    def about_to(self, works: Iterable[Work], facts: Mapping[str, Any], protocol: str) -> dict:
        """Returns the record of what readings to come are of and how they will be taken.

        Raises:
            StoreError: Earlier ones in the journal are of something else.
        """
        now = {"GPU": facts["slug"], "Triton": facts.get("triton"), "protocol": protocol}
        for work in works:
            now[work.workload.key] = f"{work.space.fingerprint} {kernel_source(work.kernel)}"
        first = self.facts[0]["facts"] if self.facts else facts
        then = self.about or {"GPU": first["slug"], "Triton": first.get("triton")}
        if changed := [n for n, value in now.items() if then.get(n, value) != value]:
            told = "; ".join(f"{n} is {now[n]} and was {then[n]}" for n in changed)
            raise StoreError(
                "a recording goes on in a journal of the same GPU, Triton, protocol, spaces and "
                f"kernel sources, got another: {told}; record into another --directory"
            )
        return {"kind": "about", "about": now}

    def take(self, record: dict) -> None:
        """Takes in one record of the journal."""
        match record["kind"]:
            case "compile":
                if record["specialisation"] not in self.compiled:
                    self.compiled[record["specialisation"]] = record
                    self.failures += record["status"] != "ok"
            case "visit":
                self.visits[record["workload"], record["config"], record["visit"]] = record
                if record["status"] == OK and self.control is None:
                    self.control = record["workload"], record["config"]
                samples = record.get("samples_us")
                if samples:
                    name, median = record["workload"], float(np.median(samples))
                    self.best_us[name] = min(median, self.best_us.get(name, median))
            case "about":
                self.about |= record["about"]
            case "recompiling":  # what an earlier part began and did not end counts no more
                self.contention, self.recompiled = [], False
            case "contention":
                self.contention.append(record)
            case "recompiled":
                self.recompiled = True
            case "control" if (record["workload"], record["config"]) == self.control:
                self.controls.append(record)
            case "compare":
                self.compared[record["workload"]] = record
            case "facts":
                self.facts.append(record)
