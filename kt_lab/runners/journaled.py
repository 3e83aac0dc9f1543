"""JournaledRunner: every finished measurement survives, and none is taken twice."""

import signal
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from kt_lab.closing import Closing
from kt_lab.errors import StoreError
from kt_lab.runners import Runner
from kt_lab.runners.readings import header, measured, parse, submission
from kt_lab.store import Journal, read_journal
from kt_lab.trial import Config, History, Measurement, Proposal, Trial


class JournaledRunner(Closing):
    """Wraps a runner so that an interrupted run resumes with nothing lost or measured twice.

    Every finished measurement is appended to a journal. When the same search runs again, the k-th
    proposal of a config is answered by the k-th journaled measurement of that config; only what
    the journal does not hold is measured. (Where several proposals of a config were in flight at
    once, each gets its own, by id.) Answers come in the journal's order, and `free` asks for
    proposals when the earlier part did, so that a searcher whose choices depend on what it was
    told by then makes the same choices again.

    What counts as finished: a runner with an attribute `on_measurement` calls it in a thread of
    its own the moment a measurement ends, before anybody collects it. With any other runner it is
    the return of `next`, and Ctrl-C waits until the journal holds what was returned. A kill loses
    at most the line that was being written.

    A runner with a method `recall` is given all earlier (proposal, measurement) in order, so that
    it knows what is compiled and read. The machine clock goes on where it stood.

    Attributes:
        inner: The runner that measures.
        live: Whether its clock is the wall's.
        path: The journal.
        recalled: How many measurements an earlier part had taken.
    """

    def __init__(self, inner: Runner, path: Path | str, *, facts: Mapping[str, Any]):
        """Opens the journal, or begins it; a last line that was cut off is dropped.

        Args:
            inner: Any runner; closed with this one.
            path: The journal; one run each.
            facts: What makes two runs the same (workload key, space fingerprint, kernel source
                hash, searcher, seed, options, GPU...), in JSON types.

        Raises:
            StoreError: The journal is of a run with other facts, is damaged or something else,
                or another run is writing it.
        """
        self.inner = inner
        self.live, self.path = inner.live, Path(path)
        first = header(facts)
        self._journal = Journal(path)
        try:
            if not self._journal.records:
                self._journal.append(first, sync=True)
            held = parse(self._journal.records or [first], name=Path(path).name)
            _require_same(held.facts, first["facts"], self.path)
        except BaseException:
            self._journal.close()
            raise
        self._earlier = readings = held.readings
        self.recalled = len(readings)
        self._in_flight = held.in_flight
        self._places: dict[Config, list[int]] = defaultdict(list)  # not proposed again so far
        for place, (proposal, _, _) in enumerate(readings):
            self._places[proposal.config].append(place)
        self._answers: list[tuple[int, int, Proposal]] = []  # a heap by place in the journal
        self._plan = deque(held.plan)
        self._granted = self._submitted = self._collected = 0
        # The first part is charged for its runner's start-up, a later one for its work only.
        self._base = max((at_s for _, _, at_s in readings), default=0.0)
        self._start = None if readings else 0.0
        self._now, self._answering = 0.0, bool(readings)
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        if readings and hasattr(inner, "recall"):
            inner.recall([(proposal, measurement) for proposal, measurement, _ in readings])
        self._told = hasattr(inner, "on_measurement")
        if self._told:
            inner.on_measurement = self._finished

    # -- what `tune` needs ----------------------------------------------------------------------

    @property
    def free(self) -> int:
        """Lanes without work; while the journal answers, as many as were filled at that time."""
        if self._collected >= len(self._earlier):
            return self.inner.free
        wanted = max(0, self._grant() - self._submitted)
        # A search that goes another way than before must not wait for what it will not propose.
        return wanted if wanted or self.pending else max(1, self.inner.free)

    @property
    def pending(self) -> int:
        """Proposals submitted and not yet returned by `next`."""
        return len(self._answers) + self.inner.pending

    @property
    def now(self) -> float:
        """Machine seconds of all parts of the run; while the journal answers, what it says."""
        return self._now if self._answering else max(self._now, self._clock(self.inner.now))

    def submit(self, proposals: Sequence[Proposal]) -> None:
        """Takes up proposals; an error of the inner runner's comes before any is taken up."""
        left = {p.config: list(self._places.get(p.config, ())) for p in proposals}
        answered, fresh = [], []
        for order, proposal in enumerate(proposals, start=self._submitted):
            places = left[proposal.config]
            ids = [self._earlier[place][0].id for place in places]
            if proposal.id in ids:
                answered.append((places.pop(ids.index(proposal.id)), order, proposal))
            elif places and (proposal.id, proposal.config) not in self._in_flight:
                answered.append((places.pop(0), order, proposal))
            else:
                fresh.append(proposal)
        with _undisturbed():
            if fresh:
                self._start = self.inner.now if self._start is None else self._start
                self.inner.submit(fresh)
            self._places.update(left)
            for answer in answered:
                heappush(self._answers, answer)
            self._submitted += len(proposals)
            known = self._collected < len(self._earlier) and self._submitted <= self._grant()
            if proposals and not known:
                self._note(proposals)

    def next(self) -> tuple[Proposal, Measurement]:
        """Returns the next answer of the journal, or else waits for the next new measurement.

        Raises:
            StoreError: A measurement could not be journaled.
        """
        if self._answers:
            place, _, proposal = heappop(self._answers)
            _, measurement, at_s = self._earlier[place]
            self._now, self._answering = max(self._now, at_s), True
        else:
            proposal, measurement = self.inner.next() if self._told else self._next_in_turn()
            self._answering = False
        self._collected += 1
        if self._collected == len(self._earlier):
            self._note()  # from here on this part decides how much is submitted when
        if self._failure is not None:
            raise StoreError(
                f"a finished measurement must reach the journal {self._journal.path.name}, got "
                f"{type(self._failure).__name__}: {self._failure}; what came before is safe: "
                "mend that and run again"
            ) from self._failure
        return proposal, measurement

    def rested(self, seconds: float) -> None:
        """Leaves a pause out of the machine clock, in the journal too; only the wall's runs on."""
        self._base -= seconds if self.live else 0.0

    def close(self) -> None:
        """Closes the inner runner, then the journal; may be called twice."""
        try:
            self.inner.close()  # first: what finishes meanwhile is journaled still
        finally:
            self._journal.close()

    # -- small steps ----------------------------------------------------------------------------

    def _next_in_turn(self) -> tuple[Proposal, Measurement]:
        with _undisturbed():
            proposal, measurement = self.inner.next()
            self._finished(proposal, measurement, self.inner.now)
        return proposal, measurement

    def _finished(self, proposal: Proposal, measurement: Measurement, now: float) -> None:
        """Journals a measurement the moment it is finished, in whatever thread."""
        self._write(measured, proposal, measurement, self._clock(now))

    def _write(self, make: Callable[..., Mapping[str, Any]], *facts: Any) -> None:
        """Appends a record; an error is kept for `next`.

        A runner's own thread that ended by it would leave `next` waiting forever.
        """
        try:
            record = make(*facts)
            with self._lock:
                self._journal.append(record)
        except Exception as error:
            self._failure = self._failure or error

    def _grant(self) -> int:
        """Returns how much the earlier parts had submitted by now."""
        while self._plan and self._plan[0][0] <= self._collected:
            self._granted = self._plan.popleft()[1]
        return self._granted

    def _note(self, proposals: Sequence[Proposal] = ()) -> None:
        self._write(submission, self._submitted, self._collected, proposals)

    def _clock(self, inner_s: float) -> float:
        """Returns the machine clock of the whole run for the inner runner's."""
        return self._base + inner_s - (self._start or 0.0)


def history_of(path: Path | str) -> tuple[dict[str, Any], History]:
    """Reads a run back from its journal, without a runner, even while the run goes on.

    Args:
        path: Journal of a JournaledRunner; left as it is, a line without its end is passed over.

    Returns:
        The facts, and every finished measurement as a Trial, in order of completion: machine_s is
        the machine clock by then, search_s is 0, because the journal does not know it.

    Raises:
        StoreError: There is no such journal, or it is damaged or something else.
    """
    path = Path(path)
    records = read_journal(path)
    if not records:
        raise StoreError(
            f"a run's journal must hold a run, got nothing in {path.name}; name the journal of a "
            "run that has begun"
        )
    held = parse(records, name=path.name)
    seen: set[Config] = set()
    trials = []
    for number, (proposal, measurement, at_s) in enumerate(held.readings):
        first = proposal.config not in seen
        seen.add(proposal.config)
        trials.append(Trial(number, proposal, measurement, first, at_s))
    return held.facts, History(trials)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Holds Ctrl-C back until the block is done; other threads than the main one never get it."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is None:  # None: not Python's to change
        yield
        return
    came = []
    handler = signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def _require_same(known: Mapping[str, Any], facts: Mapping[str, Any], path: Path) -> None:
    """Raises StoreError unless a journal's facts are those of the run that resumes it."""
    missing = object()
    for fact in sorted(known.keys() | facts.keys()):
        then, now = known.get(fact, missing), facts.get(fact, missing)
        if then != now:
            shown = ["nothing" if value is missing else repr(value) for value in (then, now)]
            raise StoreError(
                f"a run must be resumed with the facts that it began with, got another {fact} for "
                f"{path}: {shown[0]} when it began, {shown[1]} now; to begin anew, put that "
                "journal aside (a live search: resume=False, --afresh), or name another path"
            )
