"""A runner of the tests' own: what a config takes is made up, and told in order of asking."""

from collections import deque
from collections.abc import Callable

from kt_lab.trial import Config, Measurement


class Queued:
    """Measures at once, by a function from configs to microseconds."""

    live, now, free = False, 0.0, 1

    def __init__(self, latency_us: Callable[[Config], float], **facts):
        """Takes the function; `facts` become attributes (space, workload)."""
        self._latency_us, self._queue = latency_us, deque()
        self.__dict__.update(facts)

    @property
    def pending(self):
        """How many proposals wait."""
        return len(self._queue)

    def submit(self, proposals):
        """Queues proposals."""
        self._queue.extend(proposals)

    def next(self):
        """Returns the next proposal with its measurement."""
        proposal = self._queue.popleft()
        return proposal, Measurement("ok", (self._latency_us(proposal.config),))

    def close(self):
        """Has nothing to close."""
