"""A session on a real GPU: pause, stop, a second one refused, the next one free to run."""

import time

import pytest

from kt_lab import Budget
from kt_lab.errors import GpuBusy
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.search import make_searcher
from kt_lab.ui.session import Session

WORKLOAD = "softmax/4096x640"
LONG_S = 120.0


def live(name: str, *, trials: int, workload: str = WORKLOAD) -> Session:
    runner = lambda: GpuRunner(workload)  # noqa: E731

    def searcher():
        from kt_lab.kernels import get_kernel, get_workload

        found = get_workload(workload)
        return make_searcher("pattern", get_kernel(found.kernel).space(found), seed=0)

    return Session(name, searcher=searcher, runner=runner, budget=Budget(trials=trials))


def until(session: Session, trials: int) -> None:
    began = time.monotonic()
    while session.snapshot().trials < trials and time.monotonic() - began < LONG_S:
        time.sleep(0.02)


@pytest.mark.gpu
def test_a_live_session_pauses_stops_and_leaves_the_gpu_free():
    first = live("first", trials=2000).start()
    until(first, 10)
    first.pause()
    time.sleep(1.0)  # what was under way ends
    held = first.snapshot().trials
    time.sleep(1.0)
    assert first.snapshot().trials == held >= 10

    second = live("second", trials=5).start()
    with pytest.raises(GpuBusy):
        second.wait(LONG_S)
    assert "held by" in second.snapshot().error

    first.resume()
    until(first, held + 10)
    first.stop()
    found = first.wait(LONG_S)
    assert found.state == "stopped"
    assert held + 10 <= found.trials < 2000
    assert found.trials == len(first.history)

    third = live("third", trials=20).start()
    found = third.wait(LONG_S)
    assert (found.state, found.trials) == ("done", 20)
    assert all(t.status == "ok" for t in third.history)


@pytest.mark.gpu
def test_starting_again_under_the_same_name_stops_the_first():
    first = live("panel", trials=2000).start()
    until(first, 5)
    second = live("panel", trials=15).start()
    assert second.wait(LONG_S).state == "done"
    assert first.snapshot().state == "stopped"
    assert len(first.history) >= 5
