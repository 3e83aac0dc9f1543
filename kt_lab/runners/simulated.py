"""What runners on the simulated clock share."""

from kt_lab.clock import SimulatedClock


class SimulatedRunner:
    """The state of a simulated pipeline; subclasses write `submit` and `next`."""

    live = False

    def __init__(self, *, compile_lanes: int, overlap: bool):
        """Sets up an idle pipeline at time zero; see `kt_lab.clock.SimulatedClock`."""
        self._clock = SimulatedClock(compile_lanes=compile_lanes, overlap=overlap)

    @property
    def free(self) -> int:
        """Compile lanes without work."""
        return self._clock.free

    @property
    def pending(self) -> int:
        """Proposals submitted and not yet returned."""
        return self._clock.pending

    @property
    def now(self) -> float:
        """Simulated machine seconds since the start."""
        return self._clock.now

    @property
    def timing_busy_s(self) -> float:
        """Seconds that the timing lane has worked."""
        return self._clock.timing_busy_s

    def close(self) -> None:
        """Nothing to release; may be called twice."""
