"""How often a config is launched to be timed: few for the slow, more for contenders.

The live runner and the replay share this rule, so that a replayed run reads as often, and pays
for as much, as a live one would.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kt_lab.errors import UsageError, whole_fields


@dataclass(frozen=True, slots=True)
class Repetitions:
    """The rule of adaptive repetitions.

    A reading starts with `probes` launches. A config whose probes are clearly slower than the
    best reading so far is left at that: its exact latency decides nothing. One within reach of
    the best gets more launches than the rest, because there the order matters.

    Attributes:
        probes: Timed launches before anything is decided, >= 1.
        usual: Launches of a config that is neither slow nor close.
        most: Launches of a contender.
        slow: A config is slow when its probes' median exceeds this multiple of the best.
        close: A config is a contender up to this multiple of the best.
    """

    probes: int = 3
    usual: int = 10
    most: int = 20
    slow: float = 1.5
    close: float = 1.03

    def __post_init__(self):
        """Checks the order of the stages."""
        whole_fields(self, probes=1, usual=1, most=1)
        if not self.probes <= self.usual <= self.most or not 1 <= self.close <= self.slow:
            raise UsageError(
                "repetitions need probes <= usual <= most and 1 <= close <= slow, got "
                f"probes={self.probes}, usual={self.usual}, most={self.most}, "
                f"close={self.close}, slow={self.slow}"
            )

    def first(self, asked: int | None) -> int:
        """Returns how many launches to begin with, given what the proposal asked for."""
        return self.probes if asked is None else min(self.probes, asked)

    def rest(
        self,
        samples: Sequence[float],
        *,
        asked: int | None,
        best_us: float | None,
        cutoff_us: float | None,
    ) -> int | None:
        """Returns how many launches should follow the first ones; None: cut off, censored.

        Args:
            samples: The first launches, microseconds.
            asked: The proposal's own number of repetitions; None leaves it to this rule.
            best_us: Lowest median read so far in this run; None: nothing read yet.
            cutoff_us: The proposal's cut-off; None: never.
        """
        median = statistics.median(samples)
        if cutoff_us is not None and median > cutoff_us and (asked or self.usual) > len(samples):
            return None
        if asked is not None:
            return asked - len(samples)
        if best_us is not None and median > self.slow * best_us:
            return 0
        contender = best_us is not None and median <= self.close * best_us
        return (self.most if contender else self.usual) - len(samples)
