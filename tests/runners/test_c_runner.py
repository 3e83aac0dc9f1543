"""CRunner: schedules in, measurements out; equal programs are measured once."""

from dataclasses import replace

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.errors import StoreError, UsageError
from kt_lab.programs.operators import get_operator
from kt_lab.programs.schedule import legal_moves
from kt_lab.programs.space import ScheduleSpace
from kt_lab.runners.c import CRunner, Protocol
from kt_lab.runners.c import runner as runner_module
from kt_lab.runners.c.cache import Cache
from kt_lab.search import make_searcher
from kt_lab.trial import Config, Measurement, Proposal
from kt_lab.tune import tune
from kt_lab.workload import Workload

OPERATOR = get_operator("softmax")
WORKLOAD = Workload("softmax", "4x32", {"rows": 4, "cols": 32}, "float32")
QUICK = Protocol(samples=5, batch_us=20)
EMPTY = Config(schedule="")


@pytest.fixture(scope="module")
def runner():
    with CRunner(WORKLOAD, protocol=QUICK) as found:
        yield found


def test_schedules_of_another_program_are_refused_before_any_is_measured(runner):
    other = ScheduleSpace(OPERATOR.program({"rows": 4, "cols": 16}))
    searcher = make_searcher("annealing", other, seed=0)
    law = r"the runner's program; .* got softmax {.*\(4, 16\).* for softmax .*\(4, 32\)"
    with pytest.raises(UsageError, match=law):
        tune(searcher, runner, budget=Budget(trials=3))
    assert runner.pending == 0


def ask(runner, *proposals):
    runner.submit(proposals)
    found = dict(runner.next() for _ in proposals)
    assert runner.pending == 0
    return [found[proposal] for proposal in proposals]


def test_a_measurement_says_how_it_came_about(runner):
    (measurement,) = ask(runner, Proposal(0, EMPTY))
    assert measurement.status == "ok"
    assert len(measurement.samples_us) == 5
    info = measurement.info
    assert info["min_us"] <= info["median_us"] <= info["p90_us"]
    assert measurement.latency_us == info["median_us"]
    assert (info["threads"], info["protocol"]) == (1, "c-warm-5x20us")
    assert len(info["program"]) == 16
    assert "-march=native" in info["flags"]
    assert info["deviation"] < 1e-5


def test_equal_programs_are_measured_once(runner):
    move = str(next(iter(legal_moves(runner.start))))
    before = runner.compiled
    configs = [Config(schedule=move), Config(schedule=f"{move};"), Config(schedule=f" {move}")]
    found = ask(runner, *(Proposal(k, config) for k, config in enumerate(configs)))
    assert runner.compiled == before + 1
    assert len({m.samples_us for m in found}) == 1
    assert [m.info["cached"] for m in found] == [False, True, True]
    again, more = ask(
        runner, Proposal(3, configs[0], repetitions=5), Proposal(4, configs[0], repetitions=9)
    )
    assert again.samples_us == found[0].samples_us
    assert again.measure_s == 0
    assert len(more.samples_us) == 9


def test_readings_outlive_the_run(tmp_path):
    path = tmp_path / "readings.sqlite"
    with CRunner(WORKLOAD, protocol=QUICK, cache=path) as first:
        (one,) = ask(first, Proposal(0, EMPTY))
    with CRunner(WORKLOAD, protocol=QUICK, cache=path) as second:
        (two,) = ask(second, Proposal(0, EMPTY))
        assert second.compiled == 0
    assert two.samples_us == one.samples_us
    assert two.info["min_us"] == one.info["min_us"]
    with CRunner(WORKLOAD, protocol=Protocol(samples=6, batch_us=20), cache=path) as third:
        ask(third, Proposal(0, EMPTY))
        assert third.compiled == 1


def test_a_reading_is_of_the_c_that_was_written(monkeypatch, tmp_path):
    path, compiled = tmp_path / "c.sqlite", []
    for emitter in ("one", "one", "another"):
        monkeypatch.setattr(runner_module, "emitter_digest", lambda emitter=emitter: emitter)
        with CRunner(WORKLOAD, protocol=QUICK, cache=path) as runner:
            ask(runner, Proposal(0, EMPTY))
            compiled.append(runner.compiled)
    assert compiled == [1, 0, 1]


def test_a_reading_is_of_what_its_outputs_were_checked_by(tmp_path):
    wrong = replace(OPERATOR, reference=lambda x: {"z": 2 * OPERATOR.reference(x)["z"]})
    for order in ((wrong, OPERATOR), (OPERATOR, wrong)):
        cache = tmp_path / f"{order[0] is wrong}.sqlite"
        for operator in (*order, *order):
            with CRunner(WORKLOAD, operator=operator, protocol=QUICK, cache=cache) as found:
                (measurement,) = ask(found, Proposal(0, EMPTY))
            assert measurement.status == ("wrong_result" if operator is wrong else "ok")
        assert measurement.info["cached"]


def test_what_may_end_otherwise_next_time_is_not_kept(tmp_path):
    cache = Cache(tmp_path / "a" / "c.sqlite")
    cache.put("t", Measurement("timeout", error="no answer"))
    cache.put("w", Measurement("wrong_result", error="it deviates"))
    known = Cache(tmp_path / "a" / "c.sqlite")
    assert known.get("t") is None
    assert known.get("w").error == "it deviates"
    (tmp_path / "other").write_text("not a database, but a long enough text of another kind")
    with pytest.raises(StoreError, match="got other: "):
        Cache(tmp_path / "other")


def test_an_illegal_schedule_is_invalid(runner):
    illegal, unknown = ask(
        runner, Proposal(0, Config(schedule="fuse 7.7")), Proposal(1, Config(schedule="melt 0"))
    )
    assert illegal.status == unknown.status == "invalid"
    assert illegal.error
    assert "melt" in unknown.error


def test_a_program_that_computes_something_else_is_wrong():
    other = replace(
        OPERATOR, reference=lambda x: {"z": np.asarray(OPERATOR.reference(x)["z"]) * 2}
    )
    with CRunner(WORKLOAD, operator=other, protocol=QUICK) as runner:
        (measurement,) = ask(runner, Proposal(0, EMPTY))
    assert measurement.status == "wrong_result"
    assert "deviates by 0.5" in measurement.error
    assert measurement.latency_us is None


def test_a_program_that_takes_too_long_is_ended():
    slow = Workload("matmul", "big", {"m": 256, "n": 256, "k": 256}, "float32")
    endless = Protocol(samples=10_000, batch_us=1e6, limit_s=1e6)
    with CRunner(slow, protocol=endless, timeout_s=2.0) as runner:
        (measurement,) = ask(runner, Proposal(0, EMPTY))
    assert measurement.status == "timeout"


def test_any_searcher_of_spaces_plays(runner):
    space = ScheduleSpace(runner.start, longest=8)
    searcher = make_searcher("random", space, seed=0)
    history = tune(searcher, runner, budget=Budget(trials=12))
    assert {trial.status for trial in history} == {"ok"}
    assert history.trials_spent == 12
    best, other = history.incumbent.config, history[0].config
    blocks = runner.race([best, other, best], rounds=3, repetitions=2)
    assert blocks.shape == (3, 3)
    assert np.isfinite(blocks).all()
