"""Searches that own their loop, as ask and tell: a thread with a blocking hand-off.

The peer's loop runs in a thread of its own, but never beside its caller: `ask` lets it run until
it wants measurements, and it then stands still until all of them were told. At every hand-off the
global state that such searches use (`random`, `numpy.random`, environment variables) is swapped,
so that each peer finds its own as it left it and nobody else sees it: interleaved searches do not
disturb each other, and the caller's state is untouched.
"""

import math
import os
import random
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue

import numpy as np

from kt_lab.errors import KtLabError
from kt_lab.search.base import Searcher, count
from kt_lab.trial import Config, Proposal, Trial

_JOIN_S = 60.0  # a peer that is computing unwinds at its next hand-off
_ACTIVE = threading.Lock()  # the global state belongs to one peer at a time
_STOP = object()

Request = tuple[Config, str, int | None]  # config, origin, repetitions; None: measure it first
Measure = Callable[[Sequence[Request]], list[float]]  # microseconds; inf where it failed
Search = Callable[[Measure], None]


class PeerError(KtLabError):
    """A peer's own search broke: the error of the peer is its cause."""


class _Stopped(BaseException):
    """Unwinds a peer in mid-search; no `except Exception` of its own can hold it up."""


class _World:
    """What a peer sees of the process' global state, kept while it stands still."""

    def __init__(self, seed: int):
        """Starts both generators from the seed, and the environment from the caller's."""
        self._random = random.Random(seed).getstate()
        self._numpy = np.random.RandomState(seed % 2**32).get_state()
        self._changed: dict[str, str | None] = {}

    def enter(self) -> None:
        """Puts the caller's state aside and the peer's in place."""
        self._outer = random.getstate(), np.random.get_state(), dict(os.environ)  # noqa: NPY002
        random.setstate(self._random)
        np.random.set_state(self._numpy)  # noqa: NPY002
        _set_environment(self._changed)

    def leave(self) -> None:
        """Puts the peer's state aside and the caller's back in place."""
        outer_random, outer_numpy, outer = self._outer
        self._random, self._numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        names = set(outer) | set(os.environ)
        changed = [n for n in names if os.environ.get(n) != outer.get(n)]
        self._changed = {n: os.environ.get(n) for n in changed}
        random.setstate(outer_random)
        np.random.set_state(outer_numpy)  # noqa: NPY002
        _set_environment({n: outer.get(n) for n in changed})


def _set_environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class _Line:
    """A peer's thread and the two ends of its hand-off."""

    def __init__(self, search: Search, *, seed: int):
        self.cpu_s = 0.0
        self._search = search
        self._world = _World(seed)
        self._answers: SimpleQueue = SimpleQueue()
        self._wishes: SimpleQueue = SimpleQueue()
        self._owed = False  # the peer runs, or an interrupted caller did not take its wish
        # A daemon: a searcher that nobody closes must not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._run, name="kt_lab peer", daemon=True)
        self._thread.start()

    def resume(self, latencies: list[float] | None) -> list[Request] | None:
        """Lets the peer go on until it wants measurements; None when its search has ended.

        Raises:
            Exception: What ended the peer's search early.
        """
        with _ACTIVE:
            if not self._owed:
                self._owed = True
                self._answers.put(latencies)
            wish = self._wishes.get()
            self._owed = False
        if isinstance(wish, BaseException):
            raise wish
        return wish

    def stop(self) -> None:
        """Unwinds the peer; returns when its thread has ended."""
        with _ACTIVE:
            self._answers.put(_STOP)
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        end: BaseException | None = None
        if self._answers.get() is not _STOP:
            self._enter()
            try:
                self._search(self._measure)
            except _Stopped:
                pass
            except BaseException as error:
                end = error
            finally:
                self._leave()
        self._wishes.put(end)

    def _measure(self, requests: Sequence[Request]) -> list[float]:
        """Called by the peer: hands over its wishes and stands still until they are answered."""
        self._leave()
        self._wishes.put(list(requests))
        answer = self._answers.get()
        self._enter()
        if answer is _STOP:
            raise _Stopped
        return answer

    def _enter(self) -> None:
        self._world.enter()
        self._began = time.thread_time()

    def _leave(self) -> None:
        self.cpu_s += time.thread_time() - self._began
        self._world.leave()


class PeerSearcher(Searcher):
    """A searcher whose algorithm is somebody else's loop; subclasses write `_job`.

    What the peer wants in one call is proposed at once. A config that was measured before is
    answered from memory, free of charge, unless the peer asks for a re-measurement. A config's
    value is its latest reading; a failed or censored one is infinitely slow. A fresh searcher
    pickles; one that was asked does not. `close` it: the thread of one that nobody closes stands
    still until the process ends.
    """

    needs = "ParameterSpace"

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace; see `Searcher`. The peer's thread starts at the first ask."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        self._line: _Line | None = None
        self._batch: list[Request] | None = None
        self._queue: deque[Request] = deque()
        self._out: dict[int, Config] = {}
        self._readings: dict[Config, float] = {}

    @property
    def thread_s(self) -> float:
        """CPU seconds of the peer's thread so far, which the caller's own clock does not see."""
        return self._line.cpu_s if self._line else 0.0

    @abstractmethod
    def _job(self) -> Search:
        """Returns the peer's search: a function that calls what it is given to measure."""

    def ask(self, n: int) -> list[Proposal]:
        """Returns up to n of the peer's wishes; none while results of its batch are missing.

        Raises:
            PeerError: The peer's search broke, although something could be measured.
        """
        proposals: list[Proposal] = []
        wanted = count(n)
        while len(proposals) < wanted and (self._queue or self._advance()):
            config, origin, repetitions = self._queue.popleft()
            if repetitions is None and config in self._readings:
                continue  # somebody else measured it while it waited
            proposal = self.propose(config, repetitions=repetitions, origin=origin)
            self._out[proposal.id] = config
            proposals.append(proposal)
        return proposals

    def tell(self, trials: Iterable[Trial]) -> None:
        """Takes readings of any config; those that were not asked for are remembered too."""
        for trial in trials:
            latency = trial.latency_us
            self._readings[trial.config] = math.inf if latency is None else latency
            if self._out.get(trial.proposal.id) == trial.config:
                del self._out[trial.proposal.id]

    def close(self) -> None:
        """Unwinds the peer, in mid-search too, and ends its thread."""
        self.done = True
        self._queue.clear()
        if self._line:
            self._line.stop()

    def _advance(self) -> bool:
        """Lets the peer go on, if nothing is outstanding, until it wants something unknown."""
        if self._out or self.done:
            return False
        if self._line is None:
            self._line = _Line(self._job(), seed=self.seed)
        while not self._queue:
            answers = self._batch and [self._readings.get(c, math.inf) for c, _, _ in self._batch]
            try:
                self._batch = self._line.resume(answers)
            except Exception as error:
                self._batch = None
                # A search gives up in its own way where everything fails: that is its end.
                if not self._readings or any(map(math.isfinite, self._readings.values())):
                    self.done = True
                    raise PeerError(
                        f"the search of {self.name!r} ended with {type(error).__name__}: {error}"
                    ) from error
            if self._batch is None:
                self.done = True
                return False
            self._queue.extend(_fresh(self._batch, self._readings))
        return True


def _fresh(batch: Sequence[Request], readings: dict[Config, float]) -> list[Request]:
    """Returns what must be measured: each config once, re-measurements, and what is unknown."""
    once = {(config, again is None): (config, origin, again) for config, origin, again in batch}
    return [r for r in once.values() if r[2] is not None or r[0] not in readings]
