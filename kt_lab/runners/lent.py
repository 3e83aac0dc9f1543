"""An open live runner, lent to one run: closing the run leaves the workers up for the next."""

from typing import Any


class LentRunner:
    """Stands for a live runner; `close` waits for what is in flight and lets go.

    The clock starts with the loan, so that a second run is not charged for the first. Only the
    first run on a runner pays for the start of its workers.
    """

    def __init__(self, runner: Any):
        """Borrows a runner: `GpuRunner`, or anything with its attributes."""
        while runner.pending:  # of whoever used it without a loan: none of this run's work
            runner.next()
        used = runner.tally.first_at is not None
        object.__setattr__(self, "_runner", runner)
        object.__setattr__(self, "_since", runner.now if used else 0.0)

    @property
    def now(self) -> float:
        """Seconds of the wall since the loan; the first one includes the runner's start-up."""
        return self._runner.now - self._since

    def close(self) -> None:
        """Collects what is in flight, so that it is kept and the next run starts empty."""
        while self._runner.pending:
            self._runner.next()
        self._runner.on_measurement = None

    def __getattr__(self, name: str) -> Any:
        """Everything else is the runner's own."""
        return getattr(self._runner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute of the runner, for example its `on_measurement`."""
        setattr(self._runner, name, value)
