"""The panel of programs: moves by hand, what they cost, and what cannot be."""

import pytest

from kt_lab.errors import ProgramError, UnknownName, UsageError
from kt_lab.programs.expert import expert_schedule
from kt_lab.programs.operators import get_operator
from kt_lab.programs.schedule import parse_schedule
from kt_lab.runners.c import find_toolchain
from kt_lab.trial import Measurement
from kt_lab.ui import ProgramPanel, ProgramSession, program_session
from kt_lab.workload import Workload

WORKLOAD = "add_relu/100352"


class Counted:
    """Measures without a compiler: each move makes a program a tenth faster."""

    def __init__(self, failing=()):
        self.schedules, self.failing = [], failing

    def __call__(self, schedule):
        self.schedules.append(schedule)
        if any(kind in schedule for kind in self.failing):
            return Measurement("timeout", error="too slow")
        return Measurement("ok", (100.0 * 0.9 ** len(parse_schedule(schedule)),))


def session(**more):
    return ProgramSession(WORKLOAD, measure=Counted(**more))


def panel(**more):
    return ProgramPanel(WORKLOAD, measure=Counted(**more))


# -- the session ----------------------------------------------------------------------------------


def test_moves_change_the_text_and_undo_gives_it_back():
    found = session()
    start = found.text
    state = found.apply("fuse 0")
    assert (state.move, state.latency_us, found.schedule) == ("fuse 0", None, "fuse 0")
    assert found.text.count("100352\n|") < start.count("100352\n|")
    assert "kt_add_relu" in found.c
    assert "unmark" not in {move.kind for move in found.moves}
    found.apply("vectorise 0")
    assert "unmark" in {move.kind for move in found.moves}
    found.undo()
    found.undo()
    assert (found.text, found.schedule) == (start, "")
    with pytest.raises(UsageError, match="start program"):
        found.undo()


def test_each_program_is_measured_once_however_often_it_is_met():
    found = session()
    assert found.measure().latency_us == 100.0
    found.apply("fuse 0")
    assert found.measure().latency_us == pytest.approx(90.0)
    found.undo()
    assert found.apply("fuse 0").latency_us == pytest.approx(90.0)
    found.measure()
    assert found._measure.schedules == ["", "fuse 0"]


def test_an_illegal_move_is_refused_by_its_law_and_changes_nothing():
    found = session()
    found.apply("fuse 0")
    with pytest.raises(ProgramError, match="fits the program"):
        found.apply("fuse 0")
    with pytest.raises(ProgramError):
        found.load("vectorise 0; fuse 7")
    assert found.schedule == "fuse 0"
    found.load("vectorise 0")
    assert found.schedule == "vectorise 0"


def test_the_expert_pass_is_one_step_away():
    found = session()
    found.expert()
    assert "vectorise" in found.schedule
    assert len(found.states) == len(parse_schedule(found.schedule)) + 1
    with pytest.raises(UsageError, match="threads"):
        ProgramSession(WORKLOAD, threads=0)


def test_the_expert_pass_is_that_of_the_processor_on_which_programs_are_measured(monkeypatch):
    product = Workload("matmul", "x", {"m": 64, "n": 64, "k": 64}, "float32", "a test's size")
    start = get_operator("matmul").program(product.extents)
    found = ProgramSession(product)
    found.expert()
    held = find_toolchain().vectors()
    assert found.schedule == expert_schedule(start, threads=1, vectors=held)
    elsewhere = ProgramSession(product, measure=lambda _: None)
    elsewhere.expert()
    assert elsewhere.schedule == expert_schedule(start, threads=1)
    monkeypatch.setenv("CC", "no such compiler")
    found.expert()
    assert found.schedule == elsewhere.schedule


def test_without_a_measure_programs_are_compiled_and_checked():
    tiny = get_operator("multiply").tiny
    found = ProgramSession(Workload("multiply", "tiny", tiny, "float32", "a test's size"))
    found.apply("vectorise 0")
    state = found.measure()
    found.close()
    assert state.error == ""
    assert state.latency_us > 0


# -- the panel ------------------------------------------------------------------------------------


def test_the_panel_offers_legal_moves_by_kind_and_plays_the_chosen_one():
    shown = panel()
    kinds = dict(shown.kind.options)
    assert len(shown.move.options) == len(shown.session.moves)
    assert any(label.startswith("fuse (1)") for label in kinds)
    shown.kind.value = "fuse"
    assert shown.move.options == ("fuse 0",)
    shown.buttons["apply"].click()
    assert shown.session.schedule == "fuse 0"
    assert shown.shell.status.value.startswith("after 1 move: 90.00 µs")
    assert "ratio to the start program 0.900" in shown.shell.status.value
    assert "fuse 0" in shown._trail.value
    assert shown.kind.value == "all kinds"  # nothing is left to fuse
    shown.buttons["undo"].click()
    assert shown.session.schedule == ""
    assert shown.buttons["undo"].disabled
    shown.buttons["expert"].click()
    assert "vectorise" in shown._trail.value
    shown.buttons["start"].click()
    assert shown.session.schedule == ""


def test_controls_that_do_not_fit_side_by_side_go_on_below():
    shown = panel()
    for inside in (shown.move, shown.buttons["apply"]):
        (row,) = (w for w in shown.box.children if inside in getattr(w, "children", ()))
        assert row.layout.flex_flow == "row wrap"


def test_the_panel_shows_the_program_and_its_c_as_text():
    shown = panel()
    shown.apply("vectorise 0")
    assert "100352:v" in shown._text.value
    assert "#pragma omp simd" in shown._c.value
    assert "&lt;" in shown._c.value  # escaped


def test_what_fails_is_told_and_stays_in_the_trail():
    shown = panel(failing=("split",))
    shown.apply("split 0 2")
    assert "timeout: too slow" in shown.shell.status.value
    assert "failed" in shown._trail.value
    with pytest.raises(ProgramError):
        shown.apply("fuse 9")
    assert shown.session.schedule == "split 0 2"


def test_a_panel_that_is_refused_leaves_the_one_before_as_it_is():
    first = panel()
    with pytest.raises(UsageError, match="threads must be >= 1"):
        ProgramPanel(WORKLOAD, threads=0, measure=Counted())
    first.kind.value = "fuse"
    first.buttons["apply"].click()
    assert first.session.schedule == "fuse 0"
    assert panel().session.schedule == ""


def test_another_workload_is_another_session():
    shown = panel()
    shown.apply("fuse 0")
    shown.workload.value = "row_sum/512x1024"
    assert shown.session.workload.key == "row_sum/512x1024"
    assert shown.session.schedule == ""
    assert "row_sum" in shown._text.value
    with pytest.raises(UnknownName):
        ProgramPanel("softmax/1x1", measure=Counted())
    shown.close()


def test_a_measurement_that_was_interrupted_answers_for_no_other_program(monkeypatch):
    made = []

    class Interrupted:
        """A runner whose first wait is interrupted, and that answers in turn afterwards."""

        def __init__(self, *_, **__):
            self.queue, self.closed = [], False
            made.append(self)

        def submit(self, proposals):
            self.queue += proposals

        def next(self):
            if len(made) == 1:
                raise KeyboardInterrupt
            proposal = self.queue.pop(0)
            return proposal, Measurement("ok", (float(1 + len(proposal.config["schedule"])),))

        def close(self):
            self.closed = True

    monkeypatch.setattr(program_session, "CRunner", Interrupted)
    found = ProgramSession(WORKLOAD)
    with pytest.raises(KeyboardInterrupt):
        found.measure()
    found.apply("fuse 0")
    assert found.measure().latency_us == 1.0 + len("fuse 0")
    assert [runner.closed for runner in made] == [True, False]


def test_a_panel_made_again_ends_what_the_earlier_one_measures_with(monkeypatch):
    earlier = panel()
    closed = []
    monkeypatch.setattr(earlier.session, "close", lambda: closed.append(earlier))
    again = panel()
    assert closed == [earlier]
    earlier.apply("fuse 0")  # it can still be used
    assert again.session.schedule == ""
