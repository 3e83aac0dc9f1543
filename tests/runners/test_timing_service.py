"""The GPU's timing process knows every task that the library gives it."""

import re
from collections import OrderedDict
from types import SimpleNamespace

import pytest

from kt_lab.kernels import subject
from kt_lab.runners.gpu.jobs import Limits
from kt_lab.runners.repetitions import Repetitions
from kt_lab.runners.workers import WorkerLost
from tests.project.source_tree import PACKAGE
from tests.runners import live_fakes as fakes

CLIENTS = [*(PACKAGE / "record").glob("*.py"), *(PACKAGE / "runners" / "gpu").glob("*.py")]


def test_every_task_that_is_asked_of_the_timing_process_has_an_answer():
    timing = pytest.importorskip("kt_lab.runners.gpu.timing")
    text = "\n".join(path.read_text(encoding="utf-8") for path in CLIENTS)
    asked = set(re.findall(r'"do": "(\w+)"', text))
    assert {"measure", "compare", "race", "facts", "load"} <= asked
    assert not {task for task in asked if not hasattr(timing.TimingService, f"do_{task}")}


def test_a_workload_that_is_loaded_alone_makes_room():
    timing = pytest.importorskip("kt_lab.runners.gpu.timing")
    service = object.__new__(timing.TimingService)
    service._loaded = dict.fromkeys(("old", "older", "new"))
    service._launchers = OrderedDict.fromkeys([("old", 1), ("new", 1), ("older", 2), ("new", 2)])
    service._forget(["old", "older"])
    assert list(service._loaded) == ["new"]
    assert list(service._launchers) == [("new", 1), ("new", 2)]


class Flush:
    """A buffer of which a slice can be written."""

    def __getitem__(self, _):
        return self

    def zero_(self):
        return self


def failing(*, poisoned):
    """A timing process whose every launch fails; what comes after does too, if it is poisoned."""
    timing = pytest.importorskip("kt_lab.runners.gpu.timing")

    def synchronize():
        if poisoned:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def fail(*_):
        raise RuntimeError("CUDA error: this launch")

    service = object.__new__(timing.TimingService)
    cuda = SimpleNamespace(synchronize=synchronize)
    service._torch = SimpleNamespace(cuda=cuda, OutOfMemoryError=MemoryError)
    service._flush = Flush()
    service._load, service._launcher = lambda _: SimpleNamespace(baseline=fail), fail
    return service


TASK = {
    "subject": subject(fakes.WORKLOAD, fakes.KERNEL),
    "config": fakes.SPACE.default,
    "configs": [fakes.SPACE.default],
    "check": False,
    "rounds": 1,
}


@pytest.mark.parametrize("do", ["measure", "race", "compare"])
def test_an_error_that_poisons_the_gpu_costs_the_process_whatever_was_asked(do):
    """Every later launch of such a process fails, so that no later answer of it counts."""
    with pytest.raises(WorkerLost):
        failing(poisoned=True)(TASK | {"do": do})


@pytest.mark.parametrize("do", ["race", "compare"])
def test_an_error_of_one_launch_is_an_answer(do):
    with pytest.raises(RuntimeError, match="this launch"):
        failing(poisoned=False)(TASK | {"do": do})


def timed(seconds, **known):
    """How many launches of a config that take so long are made to time it, and kept as samples."""
    timing = pytest.importorskip("kt_lab.runners.gpu.timing")
    service, launches = object.__new__(timing.TimingService), []

    def take(protocol, launch, *, repetitions, warm_up):  # noqa: ARG001
        launches.extend([seconds] * (repetitions + warm_up))
        return [seconds * 1e6] * repetitions

    service._take = take
    task = {"protocol": "events", "rule": Repetitions(), "asked": None}
    task |= {"best_us": None, "cutoff_us": None} | known
    samples, _ = service._time(None, task, long=seconds > 0.1)
    return len(launches), len(samples)


@pytest.mark.parametrize("seconds", [1e-5, 0.2, 0.9, 4.0])
def test_a_slow_kernel_is_measured_within_the_limit_before_a_faster_config_is_known(seconds):
    launches, samples = timed(seconds)
    assert samples >= 1
    assert (1 + launches) * seconds < Limits().timing_s  # one more loads and checks it


def test_a_slow_kernel_is_measured_as_often_as_any_where_it_is_asked_for_or_time_is_known():
    usual = Repetitions().usual
    assert timed(1e-5)[1] == timed(4.0, asked=usual)[1] == timed(4.0, best_us=3.8e6)[1] == usual


@pytest.mark.parametrize(("launch_us", "calls"), [(20.0, 102), (50_000.0, 22), (3e6, 3)])
def test_a_slow_path_of_the_vendor_warms_up_for_a_second_not_for_a_hundred_launches(
    monkeypatch, launch_us, calls
):
    """A reference in Python takes seconds, and stands for the vendor's path by default."""
    timing = pytest.importorskip("kt_lab.runners.gpu.timing")
    made = []

    def take(launch, *, repetitions, flush, warm_up=2):  # noqa: ARG001
        made.extend([launch] * (warm_up + repetitions))
        return [launch_us] * repetitions

    service = object.__new__(timing.TimingService)
    service._load = lambda _: SimpleNamespace(baseline="the vendor's")
    service._flush, service._poison, service._difference = None, lambda _: None, lambda _: None
    monkeypatch.setattr(timing, "EVENTS_L2", SimpleNamespace(time=take))
    monkeypatch.setattr("kt_lab.runners.gpu.first_launch.first_launch", lambda _: None)
    service.do_load({"subject": TASK["subject"]})
    assert len(made) == calls
    assert set(made) == {"the vendor's"}
