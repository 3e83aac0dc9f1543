"""Timing protocols without a GPU: what is made of the times of graphs."""

import itertools

import pytest

from kt_lab.errors import KtLabError
from kt_lab.runners.gpu import protocols

torch = pytest.importorskip("torch")
FLUSH_MS, LAUNCH_US = 0.44, 25.0


class Stream:
    """A GPU whose graphs take what they are told, and longer where `late` says so."""

    def __init__(self, late):
        self.now_ms, self.replays, self.late = 0.0, [], late

    def graph(self, name, ms):
        return Graph(self, name, ms)


class Graph:
    def __init__(self, stream, name, ms):
        self.stream, self.name, self.ms = stream, name, ms

    def replay(self):
        count = self.stream.replays.count(self.name)
        self.stream.replays.append(self.name)
        self.stream.now_ms += self.ms + self.stream.late(self.name, count)


class Event:
    def __init__(self, stream):
        self.stream, self.at_ms = stream, None

    def record(self):
        self.at_ms = self.stream.now_ms

    def elapsed_time(self, other):
        return other.at_ms - self.at_ms


def timed(monkeypatch, *, repetitions, late=lambda *_: 0.0):
    """Returns the samples of a kernel of LAUNCH_US, and what was replayed."""
    stream = Stream(late)
    bare = stream.graph("bare", FLUSH_MS)
    full = stream.graph("full", FLUSH_MS + 8 * LAUNCH_US / 1e3)
    made = itertools.cycle([full, bare])
    monkeypatch.setattr(protocols, "_graph", lambda _: next(made))
    monkeypatch.setattr(protocols, "_pair", lambda: (Event(stream), Event(stream)))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    samples = protocols.time_graphs(lambda: None, repetitions=repetitions, flush=None)
    return samples, stream.replays[2:]  # the first of either is not timed


@pytest.mark.parametrize("repetitions", [1, 2, 3, 5, 8, 10, 12, 20])
def test_a_sample_is_of_one_launch_without_its_flush(monkeypatch, repetitions):
    samples, replays = timed(monkeypatch, repetitions=repetitions)
    assert samples == pytest.approx([LAUNCH_US] * repetitions)
    assert replays[0] == "bare"
    assert replays.count("bare") >= max(3, repetitions / 4)


@pytest.mark.parametrize("repetitions", [1, 2, 4, 5])
@pytest.mark.parametrize("which", range(3))
def test_one_flush_that_was_disturbed_changes_no_sample(monkeypatch, which, repetitions):
    """Five samples once had two flushes, and the longer of these was subtracted."""

    def late(name, count):
        return 0.4 * (name == "bare" and count == 1 + which)

    samples, _ = timed(monkeypatch, repetitions=repetitions, late=late)
    assert samples == pytest.approx([LAUNCH_US] * repetitions)


def test_a_launch_that_was_disturbed_keeps_its_sample(monkeypatch):
    samples, _ = timed(
        monkeypatch, repetitions=5, late=lambda name, count: 0.8 * ((name, count) == ("full", 3))
    )
    assert sorted(samples) == pytest.approx([LAUNCH_US] * 4 + [LAUNCH_US + 100])


def test_where_all_flushes_were_disturbed_all_is_timed_again(monkeypatch):
    def late(name, count):
        return 0.4 * (name == "bare" and 1 <= count <= 3)

    samples, replays = timed(monkeypatch, repetitions=5, late=late)
    assert samples == pytest.approx([LAUNCH_US] * 5)
    assert replays.count("full") == 10


def test_flushes_that_always_take_longer_than_launches_are_told(monkeypatch):
    with pytest.raises(KtLabError, match=r"longer than a flush.*time by events.*-25.0, "):
        timed(monkeypatch, repetitions=5, late=lambda name, _: 0.4 * (name == "bare"))
