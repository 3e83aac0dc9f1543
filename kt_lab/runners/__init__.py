"""Runners: they measure what a searcher proposes, on a GPU, by replay, or on a formula."""

from collections.abc import Sequence
from typing import Protocol

from kt_lab.trial import Measurement, Proposal


class Runner(Protocol):
    """What `tune` needs of a runner.

    Attributes:
        free: Lanes without work: how many proposals `tune` should ask for now.
        pending: Proposals submitted and not yet returned by `next`.
        now: Machine seconds since the run began, real or simulated.
        live: Whether `now` is the wall's clock, which runs on while the searcher thinks.
    """

    live: bool
    free: int
    pending: int
    now: float

    def submit(self, proposals: Sequence[Proposal]) -> None:
        """Takes up proposals; returns at once."""

    def next(self) -> tuple[Proposal, Measurement]:
        """Waits for the next finished measurement, in order of completion."""

    def close(self) -> None:
        """Releases everything; may be called twice."""
