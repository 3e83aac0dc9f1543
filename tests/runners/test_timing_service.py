"""The GPU's timing process knows every task that the library gives it."""

import re

import pytest

from tests.project.source_tree import PACKAGE

CLIENTS = [*(PACKAGE / "record").glob("*.py"), *(PACKAGE / "runners" / "gpu").glob("*.py")]


def test_every_task_that_is_asked_of_the_timing_process_has_an_answer():
    timing = pytest.importorskip("kt_lab.runners.gpu.timing")
    text = "\n".join(path.read_text(encoding="utf-8") for path in CLIENTS)
    asked = set(re.findall(r'"do": "(\w+)"', text))
    assert {"measure", "compare", "race", "facts", "load"} <= asked
    assert not {task for task in asked if not hasattr(timing.TimingService, f"do_{task}")}
