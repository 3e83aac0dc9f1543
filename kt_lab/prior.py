"""What is known before a search begins: readings of other workloads, with their provenance."""

import hashlib
from dataclasses import dataclass

from kt_lab.trial import Config


@dataclass(frozen=True, slots=True)
class PriorReading:
    """One config that did well, or badly, somewhere else.

    Attributes:
        config: The config, in the parameters of the space it was measured in.
        latency_us: Median latency there, in microseconds; None when it failed, or, where nothing
            was read of its workload, of a config that somebody recommends.
        workload: Where it was measured, `kernel/name`.
        gpu: On which GPU.
        octaves: How far that workload's shape is from the searched one: the ratios of their
            extents, in octaves, added up; infinite: nobody knows.
    """

    config: Config
    latency_us: float | None
    workload: str
    gpu: str
    octaves: float = float("inf")


@dataclass(frozen=True, slots=True)
class Prior:
    """Readings that a searcher may start from, best first by convention.

    Attributes:
        readings: Any number of readings; a searcher ignores configs outside its space.
        provenance: Where the readings come from (a run file, a landscape manifest).
    """

    readings: tuple[PriorReading, ...] = ()
    provenance: str = ""

    @property
    def fingerprint(self) -> str:
        """What tells it from other priors: its provenance and readings; empty without any."""
        digest = hashlib.sha256(repr(self.readings).encode()).hexdigest()[:12]
        return f"{self.provenance} (readings {digest})" if self.readings else ""
