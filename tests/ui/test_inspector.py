"""The inspector: what it says of one config or two, and how it stays free while code compiles."""

import asyncio
import importlib.util
import threading

import pytest

from kt_lab import load_landscape
from kt_lab.errors import SpaceError, UsageError
from kt_lab.stats import neighbours_table
from kt_lab.ui import ConfigInspector, inspector_code
from kt_lab.ui.background import alive

WORKLOAD = "softmax/256x128256"
LONG_S = 60.0


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    for job in alive():
        job.close(timeout=LONG_S)
    assert not alive()


@pytest.fixture(scope="module")
def landscape():
    return load_landscape(WORKLOAD, gpu="h200")


@pytest.fixture
def panel():
    return ConfigInspector(WORKLOAD, gpu="h200")


@pytest.fixture
def compiled(monkeypatch):
    """Stands for the compiler; it waits at the gate. Returns what it was asked, and the gate."""
    asked, gate = [], threading.Event()

    def diff(subject, a, b, *, target, kind):
        asked.append((subject.workload.key, dict(a), dict(b), target, kind))
        assert gate.wait(LONG_S)
        return "--- a\n+++ b\n@@ -1 +1 @@\n-%0 = <old>\n+%0 = <new>"

    monkeypatch.setattr(inspector_code, "diff", diff)
    return asked, gate


def test_it_begins_with_the_optimum_beside_the_default(panel, landscape):
    assert panel.configs == {"A": landscape.best, "B": landscape.space.default}
    for said in (
        f"{landscape.optimum_us:,.2f} µs",
        "1 of 1,458",
        "32 of 64 warps (50%)",
        "registers (1 program)",
        "63.7%",  # share of the bytes floor
    ):
        assert said in panel.facts.value
    assert "<td>num_warps</td><td>32</td><td>8</td>" in panel.differing.value
    assert bytes(panel.image.value).startswith(b"\x89PNG")
    table = neighbours_table(landscape, landscape.best)
    assert [at for _, at in panel.neighbours.options] == table["config"].tolist()
    assert panel.shell.drawer.titles == ("errors: none",)


def test_one_walks_from_neighbour_to_neighbour(panel, landscape):
    slower = panel.neighbours.options[2][1]
    panel.neighbours.value = slower
    before = bytes(panel.image.value)
    panel.buttons["walk"].click()
    space = landscape.space
    assert panel.configs["A"] == space.config(space.enumerate()[slower])
    assert panel.controls["a"].preset.value == "as chosen"
    assert landscape.space.index(landscape.best) in [at for _, at in panel.neighbours.options]
    assert bytes(panel.image.value) != before
    panel.controls["a"].preset.value = "optimum"
    assert panel.configs["A"] == landscape.best


def test_a_config_alone_has_no_difference(panel):
    panel.controls["b"].preset.value = "none"
    assert list(panel.configs) == ["A"]
    assert (panel.differing.value, "<th>B</th>" in panel.facts.value) == ("", False)
    with pytest.raises(UsageError, match="two configs"):
        panel.compare()
    panel.choose(b=panel.configs["A"])
    assert "the same config" in panel.differing.value


def test_values_that_are_no_config_are_refused_where_the_user_looks(panel):
    panel.controls["a"].values["BLOCK_N"].value = 131072
    panel.controls["a"].values["num_warps"].value = 1
    assert panel.shell.status.value.startswith("refused: ")
    assert "num_warps=1" in panel.shell.drawer.titles[0]
    assert (panel.facts.value, panel.neighbours.options) == ("", ()), "nothing stays of another"
    assert panel.image.value == b""
    with pytest.raises(SpaceError):
        panel.choose(a={"BLOCK_M": 1})
    panel.controls["a"].preset.value = "default"
    assert "latency" in panel.facts.value
    assert bytes(panel.image.value).startswith(b"\x89PNG")
    assert panel.shell.status.value == ""


def test_a_failed_config_says_why(panel, landscape):
    space = landscape.space
    failed = next(i for i, s in enumerate(landscape.status) if s == "launch_error")
    panel.choose(a=space.config(space.enumerate()[failed]))
    assert "launch error" in panel.facts.value
    assert "out of resource" in panel.facts.value
    assert panel.shell.status.value == ""


def test_code_is_compared_in_the_background(panel, landscape, compiled):
    asked, gate = compiled
    panel.kind.value = "ptx"
    panel.buttons["compare"].click()
    assert panel.shell.status.value == "comparing ptx: running"
    assert panel.buttons["compare"].disabled
    panel.controls["b"].preset.value = "none"  # the panel answers meanwhile
    assert "<th>B</th>" not in panel.facts.value
    panel.controls["b"].preset.value = "default"
    gate.set()
    found = panel.wait(LONG_S)
    assert found.state == "done"
    pair = (dict(landscape.best), dict(landscape.space.default))
    assert asked == [(WORKLOAD, *pair, "sm_90", "ptx")]
    assert "&lt;old&gt;" in panel.code.value
    assert panel.code.value.count("background:") == 5
    assert not panel.buttons["compare"].disabled


def test_code_of_other_configs_than_those_chosen_is_not_shown(panel, compiled):
    _, gate = compiled
    panel.compare()
    panel.walk()
    gate.set()
    assert panel.wait(LONG_S).state == "done"
    assert (panel.code.value, panel.shell.status.value) == ("", "")
    assert not panel.buttons["compare"].disabled
    panel.controls["a"].values["BLOCK_N"].value = 131072  # no config
    panel.controls["a"].values["num_warps"].value = 1
    panel.render()
    assert panel.shell.status.value.startswith("refused: ")


def test_code_that_cannot_be_compared_says_why(panel, monkeypatch):
    def diff(*_, **__):
        raise UsageError("a config must compile for sm_90 to be compared, got launch_error")

    monkeypatch.setattr(inspector_code, "diff", diff)
    panel.compare()
    with pytest.raises(UsageError, match="must compile"):
        panel.wait(LONG_S)
    assert "must compile" in panel.shell.status.value
    assert "must compile" in panel.shell.drawer.titles[0]
    assert not panel.buttons["compare"].disabled
    panel.walk()  # what failed is told when other configs were chosen meanwhile, too
    panel.render()
    assert "the configs before, as" in panel.shell.status.value


def test_in_an_event_loop_the_diff_shows_by_itself(compiled):
    compiled[1].set()

    async def notebook():
        panel = ConfigInspector(WORKLOAD, gpu="h200")
        panel.compare()
        await asyncio.wait_for(panel._pump, LONG_S)
        return panel

    assert "&lt;new&gt;" in asyncio.run(notebook()).code.value


def test_without_a_compiler_the_button_says_what_it_needs(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "triton" else find(n))
    panel = ConfigInspector(WORKLOAD, gpu="h200")
    assert panel.buttons["compare"].disabled
    assert "triton, not installed" in panel.buttons["compare"].tooltip
