"""A runner whose trials end when the test says so, and what a session of it needs."""

import threading

from kt_lab.budget import Budget
from kt_lab.search.random import RandomSearch
from kt_lab.space import Integer, ParameterSpace
from kt_lab.trial import Measurement
from kt_lab.ui.session import Session

SPACE = ParameterSpace([Integer("A", 0, 99), Integer("B", 0, 99)], default={"A": 0, "B": 0})
LONG_S = 120.0  # a busy machine is no failure


class GatedRunner:
    """One lane; `next` says that it was called and waits for `let`."""

    live = False

    def __init__(self, *, open_gate=False):
        self.now, self.queue, self.closed = 0.0, [], 0
        self.asked, self.gate = threading.Semaphore(0), threading.Semaphore(0)
        self.open_gate = open_gate

    @property
    def free(self):
        return 1 - len(self.queue)

    @property
    def pending(self):
        return len(self.queue)

    def submit(self, proposals):
        self.queue += proposals

    def next(self):
        self.asked.release()
        if not self.open_gate:
            self.gate.acquire()
        if self.closed:
            raise RuntimeError("closed under way")
        self.now += 1.0
        proposal = self.queue.pop(0)
        latency = 10.0 + proposal.config["A"]
        return proposal, Measurement("ok", samples_us=(latency,) * 3)

    def close(self):
        self.closed += 1
        self.gate.release()

    # -- what a test does -----------------------------------------------------------------------

    def under_way(self):
        """Waits until the next trial is under way: all before are counted."""
        assert self.asked.acquire(timeout=LONG_S)

    def let(self, n=1):
        """Lets n trials end."""
        self.gate.release(n)


class Watched(RandomSearch):
    """A random search that notes that it was closed."""

    closed = 0

    def close(self):
        self.closed += 1


def session(runner, *, name="test", trials=5, searcher=None, **more):
    """A session on a gated runner; `searcher` and `runner` may be factories."""
    searcher = searcher or Watched(SPACE, seed=0)
    return Session(
        name,
        searcher=searcher if callable(searcher) else lambda: searcher,
        runner=runner if callable(runner) else lambda: runner,
        budget=Budget(trials=trials),
        reference=SPACE.default,
        **more,
    )
