"""The GPU's timing process knows every task that the library gives it."""

import re
from collections import OrderedDict

import pytest

from tests.project.source_tree import PACKAGE

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
