"""The panel: what its buttons do, what it shows, and how often."""

import asyncio
import io
import math
import queue
import time
from functools import partial
from types import SimpleNamespace

import ipywidgets as w
import matplotlib.image
import numpy as np
import pytest

from kt_lab import get_workload, load_landscape
from kt_lab.budget import Budget
from kt_lab.decisions import load_winner, triton_text
from kt_lab.errors import UnknownName, UsageError
from kt_lab.formats import read_cache
from kt_lab.landscape import data_directory
from kt_lab.runners.gpu import runner as runner_module
from kt_lab.runners.gpu.lock import GpuLock
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.runners.journaled import history_of
from kt_lab.search import make_searcher
from kt_lab.store import read_table
from kt_lab.transfer import prior_named
from kt_lab.ui import TunerPanel, choices, tuner
from kt_lab.ui.background import alive
from kt_lab.ui.choices import Known
from kt_lab.ui.session import Session
from kt_lab.ui.shell import Shell
from kt_lab.workload import Kernel, Workload
from tests.formats.files import hub, write
from tests.runners import live_fakes as fakes
from tests.ui.gated import LONG_S, SPACE, GatedRunner

FAKE = Kernel(
    name="fake",
    description="nothing",
    workloads=(Workload("fake", "16", {"N": 16}, "float32"),),
    space=lambda _: SPACE,
    bytes_moved=lambda _: 1,
    flops=lambda _: 1,
    rtol=0.0,
    atol=0.0,
)


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    for each in alive():
        each.close(timeout=0)
    assert all(each.ended.wait(LONG_S) for each in alive())


@pytest.fixture
def gated(monkeypatch):
    """A panel on a kernel that a gated runner measures, and the runners that it made."""
    made = queue.Queue()

    def make_runner(*_, tell, **__):
        tell(Known())
        runner = GatedRunner()
        made.put(runner)
        return runner

    monkeypatch.setattr(tuner, "make_runner", make_runner)
    monkeypatch.setattr(choices, "gpu_uuid", lambda _: "GPU-fake")
    monkeypatch.setattr(choices, "gpu_name", lambda _: "NVIDIA Fake 5")
    return lambda **more: TunerPanel("fake/16", searcher="random", kernels=[FAKE], **more), made


def started(panel, made):
    """Clicks start, waits for the first trial to be under way, and returns the runner."""
    panel.view.buttons["start"].click()
    runner = made.get(timeout=LONG_S)
    runner.under_way()
    return runner


def enabled(panel):
    return {name for name, button in panel.view.buttons.items() if not button.disabled}


# -- a whole run ----------------------------------------------------------------------------------


def test_a_search_runs_without_a_browser_and_shows_what_it_found(tmp_path):
    panel = TunerPanel("softmax/4096x640", searcher="lfbo_pattern", trials=60, seed=1)
    assert enabled(panel) == {"start"}
    assert "replay of NVIDIA H200" in panel.view.badge.value
    panel.start()
    found = panel.wait(LONG_S)
    assert (found.state, found.trials) == ("done", 60)
    assert panel.view.status.value.startswith("done: 60 trials in ")
    assert enabled(panel) == {"start", "save", "copy"}
    card = panel.view.card.value
    manifest = load_landscape("softmax/4096x640").manifest
    for shown in (
        f"{found.reading_us:,.2f} µs",
        f"{found.judged_us:,.2f} µs",
        f"{found.judged_us / found.reference_us:.3f}",
        f"{found.judged_us / manifest['bytes_floor_us']:.3f}",
        *map(repr, found.incumbent.values()),
    ):
        assert shown.replace("'", "&#x27;") in card
    picture = matplotlib.image.imread(io.BytesIO(panel.view.image.value))
    assert picture.shape[1] == int(6.75 * 130)
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 10
    panel.view.buttons["copy"].click()
    config = lambda values, **launch: values | launch  # noqa: E731 - stands for triton.Config
    text = panel.view.code.value
    assert eval(text, {"triton": SimpleNamespace(Config=config)}) == found.incumbent
    assert panel.copy() == text
    path = panel.save(tmp_path / "run.parquet")
    table, facts = read_table(path)
    assert len(table) == found.readings
    assert facts["runner"] == "replay of NVIDIA H200"
    assert facts["options"] == panel.options.value
    assert str(path) in panel.view.status.value


def test_what_the_controls_say_is_what_runs():
    panel = TunerPanel(
        "softmax/4096x640",
        searcher="pattern",
        options={"initial_population": 10},
        allowed={"num_warps": [4, 8], "EVICTION": [""]},
        trials=30,
    )
    panel.start()
    panel.wait(LONG_S)
    history = panel.session.history
    assert {t.config["num_warps"] for t in history} <= {4, 8}
    assert {t.config["EVICTION"] for t in history} == {""}
    assert history.trials_spent == 30
    assert sum(t.proposal.origin == "start" for t in history) <= 10
    panel.choose("int4_gemm/1x1x7168x8192", searcher="random", trials=None, seconds=2.0)
    panel.start()
    assert panel.wait(LONG_S).elapsed_s <= 2.0
    assert panel.session.facts["workload"] == "int4_gemm/1x1x7168x8192"


# -- buttons --------------------------------------------------------------------------------------


def test_buttons_drive_the_session(gated):
    make, made = gated
    panel = make(trials=5)
    runner = started(panel, made)
    assert enabled(panel) == {"pause", "stop"}
    panel.view.buttons["pause"].click()
    assert panel.view.status.value.startswith("paused")
    assert panel.view.buttons["pause"].description == "resume"
    runner.let()
    panel.view.buttons["pause"].click()
    assert panel.view.buttons["pause"].description == "pause"
    runner.under_way()
    panel.render(panel.session.snapshot())
    assert enabled(panel) == {"pause", "stop", "save", "copy"}
    panel.view.buttons["stop"].click()
    assert panel.view.status.value.startswith("stopping after the trial under way")
    assert enabled(panel) == {"save", "copy"}
    runner.let()
    found = panel.wait(LONG_S)
    assert (found.state, found.trials) == ("stopped", 2)
    assert "start" in enabled(panel)


def test_running_a_cell_again_stops_the_search_of_the_panel_before(gated):
    make, made = gated
    first = make(trials=3)
    runner = started(first, made)
    again = make(trials=1)
    assert first.session.snapshot().stopping
    again.start()
    assert made.empty(), "two searches would time on one GPU"
    runner.let()
    assert first.wait(LONG_S).state == "stopped"
    made.get(timeout=LONG_S).let()
    assert again.wait(LONG_S).state == "done"


def test_what_is_refused_is_told_in_the_panel(gated):
    make, made = gated
    panel = make(trials=3)
    for verb in ("pause", "stop", "save", "copy", "wait"):
        with pytest.raises(UsageError, match="start one"):
            getattr(panel, verb)()
    panel.view.buttons["copy"].click()
    assert panel.view.status.value.startswith("refused: to copy, a search must have been started")
    assert "UsageError" in panel.view.errors.outputs[-1]["text"]
    started(panel, made)
    panel.view.buttons["start"].click()
    assert "stop it first" in panel.view.drawer.titles[0]
    assert panel.view.status.value.startswith("refused: to start, nothing of the panel may be")
    panel.run.box.children[-1].click()  # resets how long to search
    assert panel.view.status.value.startswith("running: ")
    with pytest.raises(UsageError, match="incumbent"):
        panel.copy()


def test_a_search_that_fails_is_told_in_the_panel_and_by_wait(gated, monkeypatch):
    make, _ = gated
    panel = make()
    monkeypatch.setattr(tuner, "make_runner", lambda *_, **__: 1 / 0)
    panel.start()
    with pytest.raises(ZeroDivisionError):
        panel.wait(LONG_S)
    assert panel.view.status.value.startswith("failed: 0 trials")
    assert "ZeroDivisionError: division by zero" in panel.view.status.value
    assert "Traceback" in panel.view.errors.outputs[-1]["text"]
    assert "ZeroDivisionError" in panel.view.drawer.titles[0]
    assert enabled(panel) == {"start"}


# -- rendering ------------------------------------------------------------------------------------


def test_a_fast_replay_is_rendered_at_most_ten_times_a_second(gated, monkeypatch):
    make, _ = gated
    fast = GatedRunner(open_gate=True)
    monkeypatch.setattr(tuner, "make_runner", lambda *_, **__: fast)
    panel = make(trials=6000)
    began = time.monotonic()
    panel.start()
    found = panel.wait(LONG_S)
    most = math.ceil((time.monotonic() - began) / tuner.EVERY_S) + 2  # the first and the last
    assert found.trials == 6000
    assert 2 <= panel.view.renders <= most
    assert panel.view.renders < 600


def test_nothing_is_rendered_while_nothing_changes(gated):
    make, made = gated
    panel = make()
    runner = started(panel, made)
    runner.let()
    runner.under_way()
    for _ in range(3):
        panel.render(panel.session.snapshot())
    before, image = panel.view.renders, panel.view.image.value
    panel.wait(timeout=0.01)
    assert panel.view.renders == before
    panel.pause()
    assert panel.view.renders == before + 1
    assert panel.view.image.value is image, "a pause is no reason to draw again"


def test_in_an_event_loop_the_panel_renders_by_itself(gated):
    make, made = gated

    async def notebook():
        panel = make(trials=1)
        panel.start()
        made.get(timeout=LONG_S).let()
        await asyncio.wait_for(panel._pump_task, LONG_S)
        return panel

    assert asyncio.run(notebook()).view.status.value.startswith("done: 1 trials")


# -- choosing -------------------------------------------------------------------------------------


def controls(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from controls(child)


def test_every_control_is_told_and_can_be_found():
    panel = TunerPanel()
    found = list(controls(panel.box))
    inputs = [
        x for x in found if isinstance(x, w.ValueWidget | w.Button) and hasattr(x, "tooltip")
    ]
    inputs = [x for x in inputs if not isinstance(x, w.HTML | w.Label | w.Image)]
    assert len(inputs) > 25
    for each in inputs:
        assert each.tooltip, each
        assert each.description, each
    classes = {name for each in found for name in getattr(each, "_dom_classes", ())}
    hooks = "tuner start pause stop save copy confirm status badge image card failures code"
    hooks += " drawer count kernel workload shape runner searcher reset"
    assert {f"ktl-{hook}" for hook in hooks.split()} <= classes
    assert "application/vnd.jupyter.widget-view+json" in panel._repr_mimebundle_()


def test_a_choice_brings_what_belongs_to_it():
    panel = TunerPanel("softmax/4096x640", searcher="random")
    panel.searcher.value = "tpe"
    assert "constant_liar" in panel.options.value
    panel.kernel.value = "int4_gemm"
    assert all(key.startswith("int4_gemm/") for key in panel.workload.options)
    assert panel.values.space.names != ()
    assert "BLOCK_K" in panel.values.space.names
    assert panel.runner.value.gpu == "h200"
    for wrong in ({"searcher": "tpee"}, {"runner": "h201"}):
        with pytest.raises(UnknownName):
            panel.choose(**wrong)
    with pytest.raises(UsageError, match="softmax/1by1"):
        panel.choose("softmax/1by1")
    assert {"helion_lfbo_tree", "kt_genetic"} <= set(panel.searcher.options)


def test_another_shape_keeps_the_allowed_values_and_a_start_takes_the_old_config_away():
    panel = TunerPanel("softmax/4096x640", searcher="random", trials=6, allowed={"num_warps": [4]})
    panel.start()
    panel.wait()
    panel.copy()
    assert "num_warps=4" in panel.view.code.value
    panel.choose("softmax/8192x8192")
    assert panel.values.value == {"num_warps": [4]}
    panel.start()
    assert (panel.view.code.value, panel.view.code.layout.display) == ("", "none")
    panel.wait()
    assert {t.config["num_warps"] for t in panel.session.history} == {4}
    panel.choose("int4_gemm/1x16x7168x8192")
    assert panel.values.value == {}, "another kernel's parameters are others"


def test_a_peer_whose_package_is_missing_is_not_offered(monkeypatch):
    find = choices.importlib.util.find_spec
    monkeypatch.setattr(
        choices.importlib.util, "find_spec", lambda n: None if n == "helion" else find(n)
    )
    names = choices.searcher_names()
    assert "kt_genetic" in names
    assert not [name for name in names if name.startswith("helion")]


def test_this_machines_gpu_comes_first_with_who_holds_it(gated, tmp_path, monkeypatch):
    make, _ = gated
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))
    assert "NVIDIA Fake 5 (free)" in make().view.badge.value
    with GpuLock("GPU-fake", what="measuring softmax/4096x640"):
        badge = make().view.badge.value
    assert "held by process" in badge
    assert "for measuring softmax/4096x640" in badge
    labels = [choice.label for choice in choices.runner_choices(get_workload("softmax/4096x640"))]
    replays = [f"replay of NVIDIA {name}" for name in ("H200", "H100 80GB HBM3")]
    assert labels == ["NVIDIA Fake 5", *replays]


def test_the_badge_tells_who_holds_the_gpu_once_the_runner_is_up(gated, tmp_path, monkeypatch):
    make, made = gated
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))
    panel = make(trials=2)
    runner = started(panel, made)
    with GpuLock("GPU-fake", what="measuring fake/16"):
        runner.let()
        runner.under_way()
        panel.render(panel.session.snapshot())
        assert "for measuring fake/16" in panel.view.badge.value
    panel.stop()
    runner.let()
    panel.wait(LONG_S)
    assert "(free)" in panel.view.badge.value


def test_without_gpu_and_landscape_a_search_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    panel = TunerPanel("softmax/4096x640")
    assert "no GPU and no landscape" in panel.view.badge.value
    with pytest.raises(UsageError, match="a GPU or a landscape"):
        panel.start()


def test_another_tuners_landscape_takes_no_gpu_its_name(tmp_path, monkeypatch):
    shipped = data_directory() / "landscapes" / "softmax"
    named = {"device_name": "NVIDIA H200", "kernel_name": "add"}
    found = read_cache(write(tmp_path / "a.json", hub() | named))
    (folder := tmp_path / "landscapes" / "add" / found.gpu).mkdir(parents=True)
    found.save(folder / "4096x4096.parquet")  # listed first, and tells nothing of its GPU
    (tmp_path / "landscapes" / "softmax").symlink_to(shipped)
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    choices._facts.cache_clear()
    panel = TunerPanel("softmax/4096x640", runner="h200", name="foreign")
    assert "replay of NVIDIA H200" in panel.view.badge.value
    with pytest.raises(UsageError, match=r"of another; ComparePanel and LandscapePanel replay"):
        panel.choose("add/4096x4096")
    choices._facts.cache_clear()


def test_a_start_empties_the_drawer(gated):
    make, made = gated
    panel = make(trials=1)
    panel.view.buttons["copy"].click()
    assert panel.view.drawer.titles[0].startswith("errors: to copy")
    started(panel, made).let()
    panel.wait(LONG_S)
    assert panel.view.drawer.titles == ("errors: none",)
    assert panel.view.errors.outputs == ()
    assert panel.view.status.value.startswith("done: 1 trials")


def test_an_error_within_an_action_that_goes_on_stays():
    shell = Shell()
    shell.acted(lambda: shell.guarded(lambda: 1 / 0))
    assert shell.status.value.startswith("refused: ZeroDivisionError")
    shell.acted(lambda: None)
    assert shell.status.value == ""


def test_without_a_gpu_live_names_the_replays_there_are(monkeypatch):
    monkeypatch.setattr(choices, "gpu_uuid", lambda _: None)
    with pytest.raises(UsageError, match=r"this machine has no GPU .*; replays: h100, h200$"):
        TunerPanel("softmax/4096x640", runner="live")


# -- a GPU ----------------------------------------------------------------------------------------


@pytest.fixture
def live(tmp_path, monkeypatch):
    """A panel on a simulated GPU; its journals and winners are in tmp_path."""
    opened = partial(GpuRunner, services=fakes.SERVICES)
    monkeypatch.setattr(runner_module, "GpuRunner", opened)
    monkeypatch.setattr(choices, "gpu_uuid", lambda device: ("GPU-fake", None)[device])
    monkeypatch.setattr(choices, "gpu_name", lambda _: "NVIDIA Fake")
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))

    def make(**settings):
        how = {"searcher": "random", "lanes": 2, "kernels": [fakes.CALM]} | settings
        return TunerPanel("fake/16", directory=tmp_path, **how)

    return make


def test_no_live_trial_is_lost_and_the_same_search_goes_on(live, tmp_path, monkeypatch):
    take = Session._take

    def stopping(self, trial):
        if trial.number == 4:
            self.stop()
        take(self, trial)

    panel = live(trials=100)
    with monkeypatch.context() as patched:
        patched.setattr(Session, "_take", stopping)
        panel.start()
        stopped = panel.wait(LONG_S)
    assert (stopped.state, stopped.trials) == ("stopped", 5)
    (journal,) = (tmp_path / "live").glob("fake/fake/16/*.jsonl")
    _, kept = history_of(journal)
    configs = [t.config for t in kept]
    assert {t.config for t in panel.session.history} <= set(configs)
    panel.choose(trials=len(kept) + 4)
    panel.start()
    found = panel.wait(LONG_S)
    assert (found.state, found.trials, found.recalled) == ("done", len(kept) + 4, len(kept))
    assert f"{len(kept)} readings from the journal" in panel.view.status.value
    _, whole = history_of(journal)
    assert [t.config for t in whole][: len(kept)] == configs
    assert len(whole) == len(kept) + 4
    assert len({t.config for t in whole}) == len(whole), "nothing is measured twice"
    panel.choose(trials=2, afresh=True)
    panel.start()
    assert panel.wait(LONG_S).recalled == 0
    assert len(list(journal.parent.glob("*.jsonl"))) == 2


def test_other_allowed_values_have_a_journal_of_their_own(live, tmp_path):
    panel = live(trials=2, allowed={"PROGRAMS": [1]})
    panel.start()
    assert panel.wait(LONG_S).state == "done"
    (journal,) = (tmp_path / "live").glob("fake/fake/16/*.jsonl")
    assert journal.stem.endswith(f"-space{panel.session.facts['space'][:8]}")


def test_finalists_are_confirmed_and_the_winner_is_shown_and_stored(live, tmp_path, monkeypatch):
    slow = fakes.CALM_SPACE.row({"FAULT": "none", "VARIANT": 9, "PROGRAMS": 2})
    monkeypatch.setattr(fakes.CALM_SPACE, "default", fakes.CALM_SPACE.config(slow))
    panel = live(trials=30)
    assert "confirm" not in enabled(panel)
    panel.start()
    best = panel.wait(LONG_S).incumbent
    assert enabled(panel) == {"start", "save", "copy", "confirm"}
    panel.view.buttons["confirm"].click()
    assert panel.view.status.value == "confirming the finalists"
    assert enabled(panel) == {"stop", "save", "copy"}
    with pytest.raises(UsageError, match="confirmation; stop it first"):
        panel.start()
    assert panel.wait(LONG_S).state == "done"
    assert panel.view.status.value.startswith("confirmed: faster by more than")
    ratio = fakes.latency_us(best) / fakes.latency_us(fakes.CALM_SPACE.default)
    for shown in ("confirmed / the default", f"{ratio:.3f} [", "probability of being best"):
        assert shown in panel.view.card.value
    winner = load_winner("fake/16", directory=tmp_path / "winners")
    assert winner.config == best
    assert winner.trials == 30
    assert panel.copy() == triton_text(best)
    assert "start" in enabled(panel)


def test_a_confirmation_that_fails_is_told_in_the_panel(live, monkeypatch):
    panel = live(trials=3)
    panel.start()
    panel.wait(LONG_S)
    monkeypatch.setattr(tuner, "open_gpu", lambda *_, **__: 1 / 0)
    panel.confirm()
    with pytest.raises(ZeroDivisionError):
        panel.wait(LONG_S)
    assert panel.view.status.value.startswith("the confirmation failed: ZeroDivisionError")
    assert "ZeroDivisionError" in panel.view.drawer.titles[0]
    assert "confirm" in enabled(panel)


def test_a_replay_cannot_be_confirmed():
    panel = TunerPanel("softmax/4096x640", searcher="random", trials=2)
    panel.start()
    panel.wait(LONG_S)
    assert panel.view.buttons["confirm"].disabled
    with pytest.raises(UsageError, match="got a replay"):
        panel.confirm()


def test_each_gpu_of_several_can_be_chosen(monkeypatch):
    monkeypatch.setattr(choices, "gpu_uuid", lambda at: ("GPU-a", "GPU-b", None)[at])
    monkeypatch.setattr(choices, "gpu_name", lambda at: ("NVIDIA A1", "NVIDIA B2")[at])
    found = choices.runner_choices(get_workload("softmax/4096x640"))
    assert [c.label for c in found] == [
        "NVIDIA A1, GPU 0",
        "NVIDIA B2, GPU 1",
        "replay of NVIDIA H200",
        "replay of NVIDIA H100 80GB HBM3",
    ]
    assert [choices.chosen(found, name).device for name in ("live", "live:0", "live:1")] == [
        0,
        0,
        1,
    ]
    assert choices.chosen(found, "live:1").gpu == "b2"
    told = []
    monkeypatch.setattr(runner_module, "GpuRunner", lambda *_, **how: told.append(how["device"]))
    choices.open_gpu(choices.chosen(found, "live:1"), None, None, lanes=1)
    assert told == [1]


# -- another shape --------------------------------------------------------------------------------


def test_another_shape_joins_the_workloads_and_is_searched_on_a_gpu(gated):
    make, made = gated
    panel = make(trials=1)
    assert panel.shape.placeholder == "N, such as 16"
    panel.shape.value = "1000"
    assert panel.workload.value == "fake/1000"
    assert panel.shape.value == ""
    assert panel.asked().workload.extents == {"N": 1000}
    started(panel, made).let()
    assert panel.wait(LONG_S).trials == 1
    panel.choose("fake/16")
    panel.choose("fake/1000")
    assert panel.workload.options == ("fake/16", "fake/1000")  # once


def test_an_unrecorded_shape_is_not_replayed_and_other_extents_are_refused():
    panel = TunerPanel("softmax/1000x777")
    assert panel.workload.options[-1] == panel.workload.value == "softmax/1000x777"
    assert panel.runner.options == ()
    with pytest.raises(UsageError, match=r"got 'h200' for one that nobody recorded; kt-lab list"):
        panel.choose(runner="h200")
    panel.view.buttons["start"].click()
    assert "choose a recorded workload" in panel.view.status.value
    panel.shape.value = "1, 2, 3"
    assert "must have the extents M x N, got 1x2x3" in panel.view.status.value
    assert panel.workload.value == "softmax/1000x777"
    panel.kernel.value = "matmul"
    assert "1000x777" not in " ".join(panel.workload.options)
    panel.shape.value = "x"
    assert "got 'matmul/x'" in panel.view.status.value
    assert panel.view.status.value.startswith("refused: ")
    panel.searcher.value = "random"  # a valid choice
    assert panel.view.status.value == "idle"
    assert panel.view.drawer.titles[0] != "errors: none", "what was refused can still be read"
    with pytest.raises(UnknownName):
        panel.choose("no_kernel/1x1")


def test_a_search_may_start_from_what_other_shapes_told_and_is_cold_unless_asked():
    workload = get_workload("rope/4x4096x32x8x128")
    panel = TunerPanel(workload.key, searcher="scout", trials=4, lanes=1)
    first = {}
    for known in ("nothing", "shapes", "nearby"):
        panel.choose(known=known)
        panel.start()
        assert panel.wait(LONG_S).state == "done"
        first[known] = panel.session.history[0].config
        prior = prior_named(known, workload, gpu="h200")
        searcher = make_searcher(
            "scout", panel.values.space, seed=0, budget=Budget(trials=4), prior=prior
        )
        assert first[known] == searcher.ask(1)[0].config
        assert panel.session.facts["known"] == known
    assert first["nothing"] != first["nearby"]
    with pytest.raises(UsageError):
        panel.choose(known="everything")


def test_another_workload_stays_on_the_chosen_gpu():
    panel = TunerPanel("softmax/4096x640", runner="h100", name="stays")
    assert panel.runner.value.gpu == "h100"
    panel.choose("softmax/65536x512")
    assert panel.runner.value.gpu == "h100"
    panel.choose("tokens_transpose/16640x5120")  # recorded on the H200 alone
    assert panel.runner.value.gpu == "h200"
