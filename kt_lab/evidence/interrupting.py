"""Interrupting a search at random moments, by real signals, and resuming it until it ends."""

import multiprocessing as mp
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from kt_lab.budget import Budget
from kt_lab.errors import UsageError
from kt_lab.runners import Runner
from kt_lab.runners.journaled import JournaledRunner, history_of
from kt_lab.trial import History
from kt_lab.tune import tune

_FACTS = {"evidence": "interrupts"}
_LOOK_S = 0.001  # between looks at the journal
_DELAYS_S = (3e-5, 3e-3)  # of a strike after the chosen measurement, log-uniform
_ATTEMPTS = 10  # a part may end before it is struck
_LATEST = 0.9  # share of the measurements after which no strike is planned: it would come too late


@dataclass(frozen=True, slots=True)
class Endurance:
    """What a search came to that was interrupted and resumed again and again.

    Attributes:
        history: Of the last part, which nothing interrupted.
        interrupts: Parts ended by SIGINT.
        kills: Parts ended by SIGKILL.
        finished: Measurements that the inner runners finished, over all parts.
        journaled: Measurements in the journal.
        lost: Journaled measurements that the final history lacks.
        doubled: Measurements of a proposal that was measured before.
        cut_off: Measurements that finished and are not in the journal: at most one per kill,
            whose line was being written, and none by interrupts.
    """

    history: History
    interrupts: int
    kills: int
    finished: int
    journaled: int
    lost: int
    doubled: int
    cut_off: int


def interrupt_and_resume(
    make_runner: Callable[[], Runner],
    make_searcher: Callable[[], Any],
    *,
    budget: Budget,
    times: int,
    seed: int,
    directory: Path,
    kill_share: float = 0.0,
    expected: int | None = None,
) -> Endurance:
    """Interrupts a search at random moments, resumes it each time, and lets it end at last.

    An interrupt is a real SIGINT to this process, a kill a SIGKILL of a spawned process that runs
    the part. It comes a random delay after a random number of measurements is in the journal.

    Args:
        make_runner: Makes the inner runner of each part, alike; it is closed after the part.
        make_searcher: Makes the searcher of each part, alike.
        budget: Of the whole search.
        times: How many interruptions.
        seed: Fixes their number of measurements, delay and kind.
        directory: For the journal; empty at first.
        kill_share: Share of kills among the interruptions, in [0, 1]; above 0 the makers must
            pickle.
        expected: Measurements of the whole search, re-measurements included; None: the budget's
            trials.

    Raises:
        UsageError: Not called from the main thread, the only one that SIGINT reaches.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("interrupts need the main thread, got another; call it from there")
    rng = np.random.default_rng(seed)
    counts = _counts(rng, expected or budget.trials or 1, times)
    directory.mkdir(parents=True, exist_ok=True)
    journal, tally = directory / "journal.jsonl", directory / "finished"
    part = partial(_part, make_runner, make_searcher, budget, journal, tally)
    ended: Counter[int] = Counter()
    # A shell's background job inherits a SIGINT that is ignored.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for attempt in range(_ATTEMPTS * times):
            if ended.total() == times:
                break
            begun = directory / f"begun-{attempt}"
            delay_s = float(np.exp(rng.uniform(*np.log(_DELAYS_S))))
            kind = signal.SIGKILL if rng.random() < kill_share else signal.SIGINT
            strike = partial(_strike, kind, begun, journal, counts[ended.total()], delay_s)
            end = _killed if kind == signal.SIGKILL else _interrupted
            ended[kind] += end(partial(part, begun), strike)
    finally:
        signal.signal(signal.SIGINT, handler)
    history = part(directory / "begun-at-last")
    return _endurance(history, ended, history_of(journal)[1], finished=tally.stat().st_size)


def _counts(rng: np.random.Generator, expected: int, times: int) -> list[int]:
    """Returns after how many measurements to strike, in order."""
    return sorted(rng.integers(max(1, int(_LATEST * expected)), size=times).tolist())


def _endurance(history: History, ended: Counter, held: History, *, finished: int) -> Endurance:
    return Endurance(
        history=history,
        interrupts=ended[signal.SIGINT],
        kills=ended[signal.SIGKILL],
        finished=finished,
        journaled=len(held),
        lost=(Counter(t.config for t in held) - Counter(t.config for t in history)).total(),
        doubled=len(held) - len({(t.proposal.id, t.config) for t in held}),
        cut_off=finished - len(held),
    )


# -- parts and strikes ----------------------------------------------------------------------------


def _part(make_runner, make_searcher, budget, journal, tally, begun) -> History:
    """Runs or resumes the search until it ends or is interrupted."""
    inner = make_runner()
    runner = JournaledRunner(inner, journal, facts=_FACTS)
    with tally.open("ab", buffering=0) as file:
        try:
            _count(inner, file)
            begun.touch()
            return tune(make_searcher(), runner, budget=budget)
        finally:
            try:
                runner.close()
            except KeyboardInterrupt:
                runner.close()


def _count(inner: Runner, file: BinaryIO) -> None:
    """Makes a runner add a byte to a file with every measurement, the moment that it is done."""
    if hasattr(inner, "on_measurement"):
        told = inner.on_measurement

        def on_measurement(*args):
            file.write(b".")
            told(*args)

        inner.on_measurement = on_measurement
        return
    measure = inner.next

    def measured():
        found = measure()
        file.write(b".")
        return found

    inner.next = measured


def _strike(kind, begun, journal, count, delay_s, pid: int, over: Callable[[], bool]) -> bool:
    """Sends a signal once the part has begun and so much is journaled; False: it ended first."""
    while not begun.exists():
        if over():
            return False
        time.sleep(_LOOK_S)
    with journal.open("rb") as file:
        seen = 0
        while (seen := seen + file.read().count(b'"status":')) < count:
            if over():
                return False
            time.sleep(_LOOK_S)
    time.sleep(delay_s)
    if over():
        return False
    os.kill(pid, kind)
    return True


def _interrupted(part, strike) -> bool:
    """Runs a part in this process under a strike; whether it struck."""
    over, struck = threading.Event(), []
    watcher = threading.Thread(target=lambda: struck.append(strike(os.getpid(), over.is_set)))
    try:
        watcher.start()
        part()
        over.set()
        watcher.join()
        time.sleep(0)  # a signal that came last is raised here
    except KeyboardInterrupt:
        over.set()
        watcher.join()
        if not struck[0]:
            raise  # a real one
    return struck[0]


def _killed(part, strike) -> bool:
    """Runs a part in a process of its own under a strike; whether it struck."""
    child = mp.get_context("spawn").Process(target=part)
    child.start()
    try:
        return strike(child.pid, lambda: not child.is_alive())
    finally:
        child.join()
