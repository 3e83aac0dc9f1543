"""The live runner with a simulated GPU: every fault becomes a status, and the run goes on."""

import sys
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.errors import SpaceError, UsageError
from kt_lab.evidence.scripted import Scripted
from kt_lab.kernels import subject
from kt_lab.many import tune_many
from kt_lab.runners.gpu import facts
from kt_lab.runners.gpu import runner as module
from kt_lab.runners.gpu.jobs import Limits
from kt_lab.runners.gpu.planning import planner
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.runners.lent import LentRunner
from kt_lab.runners.workers import Outcome, answered
from kt_lab.search import make_searcher
from kt_lab.trial import Config, Measurement, Proposal
from kt_lab.tune import tune
from tests.runners import live_fakes as fakes

LIMITS = Limits(compile_least_s=0.5, compile_most_s=1.0, timing_s=0.4)
EXPECTED = {
    "none": "ok",
    "compile_error": "compile_error",
    "compile_killed": "crashed",
    "compile_hangs": "timeout",
    "launch_error": "launch_error",
    "wrong_result": "wrong_result",
    "timing_killed": "crashed",
    "timing_hangs": "timeout",
    "poisoned": "crashed",
    "unplannable": "launch_error",
}


def make_runner(monkeypatch, tmp_path, workload=fakes.WORKLOAD, **changes):
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))  # tests may run side by side
    options = {"compile_workers": 2, "services": fakes.SERVICES, "limits": LIMITS} | changes
    return GpuRunner(workload, kernel=fakes.KERNEL, **options)


@pytest.fixture
def runner(monkeypatch, tmp_path):
    with make_runner(monkeypatch, tmp_path) as made:
        yield made


def config(fault="none", variant=0, programs=1):
    return Config(FAULT=fault, VARIANT=variant, PROGRAMS=programs)


def measure(runner, config, **wishes):
    runner.submit([Proposal(0, config, **wishes)])
    proposal, measurement = runner.next()
    assert proposal.config == config
    return measurement


def test_every_fault_becomes_its_status_and_no_trial_is_lost(runner):
    script = [config(fault, variant) for variant in range(3) for fault in fakes.FAULTS]
    history = tune(Scripted(script), runner, budget=Budget(trials=len(script)))
    assert Counter(t.config for t in history) == Counter(script)
    assert {(t.config["FAULT"], t.status) for t in history} == set(EXPECTED.items())
    assert all(t.measurement.error for t in history if t.status != "ok")
    assert all(t.latency_us == fakes.latency_us(t.config) for t in history if t.status == "ok")
    crashes = ("timing_killed", "timing_hangs", "poisoned")
    assert runner.tally.lost == sum(t.config["FAULT"] in crashes for t in history)
    assert "torch" not in sys.modules or not sys.modules["torch"].cuda.is_initialized()


def test_identical_launches_are_timed_once_and_say_so(runner):
    first, twin = measure(runner, config(variant=18)), measure(runner, config(variant=19))
    assert twin.samples_us == first.samples_us
    assert twin.measure_s == 0
    assert twin.info["twin"] == dict(config(variant=18))
    assert twin.info["code_hash"] == first.info["code_hash"]
    elsewhere = measure(runner, config(variant=19, programs=2))  # the same binary, another grid
    assert "twin" not in elsewhere.info
    assert elsewhere.latency_us == fakes.latency_us(config(variant=19, programs=2))
    again = measure(runner, config(variant=19))  # asked for on purpose
    assert again.measure_s > 0
    assert (runner.tally.compiled, runner.tally.timed, runner.tally.shared) == (2, 3, 1)


def test_more_repetitions_than_the_twin_has_are_taken(runner):
    few = measure(runner, config(variant=18), repetitions=3)
    many = measure(runner, config(variant=19), repetitions=30)
    assert (len(few.samples_us), len(many.samples_us)) == (3, 30)


def test_slow_configs_get_few_launches_contenders_many_and_a_cutoff_censors(runner):
    rule = runner._pipeline.rule
    assert len(measure(runner, config(variant=1)).samples_us) == rule.usual
    assert len(measure(runner, config(variant=0)).samples_us) == rule.most
    assert len(measure(runner, config(variant=2)).samples_us) == rule.usual
    slow = measure(runner, config(variant=3, programs=2))
    assert (slow.status, len(slow.samples_us)) == ("ok", rule.probes)
    cut = measure(runner, config(variant=4, programs=2), cutoff_us=50.0)
    assert (cut.status, len(cut.samples_us)) == ("censored", rule.probes)
    assert cut.bound_us == fakes.latency_us(config(variant=4, programs=2))


def test_every_sample_names_its_protocol_and_what_was_launched(runner):
    info = measure(runner, config(programs=2)).info
    assert info["protocol"] == runner.protocol.name
    assert info["grid"] == "2"
    assert info["registers"] == 32
    assert info["config"] == runner.space.indices([runner.space.row(config(programs=2))])[0]


def test_what_is_measured_is_handed_over_before_it_is_asked_for(runner):
    kept = []
    runner.on_measurement = lambda *facts: kept.append(facts)
    for variant in range(4):
        runner.submit([Proposal(variant, config(variant=variant))])
    found = [runner.next() for _ in range(4)]
    assert [(p, m) for p, m, _ in kept] == found
    assert [now for _, _, now in kept] == sorted(now for _, _, now in kept)


def test_lanes_are_free_again_once_a_job_has_reached_the_gpu(runner):
    assert runner.free == 2
    runner.submit([Proposal(i, config("compile_hangs", i)) for i in range(2)])
    assert (runner.free, runner.pending) == (0, 2)
    statuses = {runner.next()[1].status for _ in range(2)}
    assert statuses == {"timeout"}
    assert (runner.free, runner.pending) == (2, 0)


def test_a_race_leaves_out_who_fails(runner):
    configs = [config(variant=3), config("launch_error"), config(variant=1)]
    blocks = runner.race(configs, rounds=4, repetitions=5)
    assert blocks.shape == (4, 3)
    assert np.isnan(blocks[:, 1]).all()
    assert (blocks[:, [0, 2]] == [13.0, 11.0]).all()


@pytest.mark.parametrize("fault", ["poisoned", "timing_killed"])
def test_a_race_goes_on_without_who_costs_the_process(runner, fault):
    configs = [config(), config(fault), config(variant=1)]
    blocks = runner.race(configs, rounds=4, repetitions=5)
    assert np.isnan(blocks[:, 1]).all()
    assert (blocks[:, [0, 2]] == [10.0, 11.0]).all()


def test_a_race_goes_on_without_who_fails_only_now_and_then(runner, monkeypatch):
    ask, rare = runner._pipeline.ask, dict(config(variant=5))

    def failing(task, *, timeout_s):
        if rare in task["configs"] and task["rounds"] * task["repetitions"] > 10:
            task = task | {"configs": [dict(config("launch_error"))]}
        return ask(task, timeout_s=timeout_s)

    monkeypatch.setattr(runner._pipeline, "ask", failing)
    blocks = runner.race([config(variant=5), config(variant=1)], rounds=4, repetitions=5)
    assert np.isnan(blocks[:, 0]).all()
    assert (blocks[:, 1] == 11.0).all()


def test_what_failed_when_it_was_measured_last_fails_every_race(runner):
    """A race checks nothing: a wrong config would be timed like a right one."""
    assert measure(runner, config("wrong_result")).status == "wrong_result"
    assert measure(runner, config(variant=2)).status == "ok"
    runner.recall([(Proposal(0, config(variant=2)), Measurement("crashed"))])
    elsewhere = Config(FAULT="none", VARIANT=99, PROGRAMS=1)  # not in the space
    field = [config("wrong_result"), config(variant=1), config(variant=2), elsewhere]
    blocks = runner.race(field, rounds=4, repetitions=5)
    assert np.isnan(blocks[:, [0, 2, 3]]).all()
    assert (blocks[:, 1] == 11.0).all()
    assert np.isnan(runner.race(field[:1], rounds=2, repetitions=1)).all()
    assert measure(runner, config(variant=2)).status == "ok"
    assert (runner.race([config(variant=2)], rounds=2, repetitions=1) == 12.0).all()


def test_a_launch_that_takes_too_long_is_told_what_allows_more(runner):
    assert (
        "GpuRunner(..., limits=Limits(timing_s=" in measure(runner, config("timing_hangs")).error
    )
    assert "timing_s" not in measure(runner, config("compile_hangs")).error


def test_what_was_wrong_once_is_checked_again_and_what_was_right_is_not(runner):
    for _ in range(2):
        assert measure(runner, config("wrong_result")).status == "wrong_result"
    checks = [measure(runner, config(variant=4)).check_s for _ in range(2)]
    assert checks == [0.002, 0.0]
    runner.recall([(Proposal(0, config("wrong_result", 1)), Measurement("wrong_result"))])
    assert measure(runner, config("wrong_result", 1)).status == "wrong_result"


def test_a_race_of_slow_configs_has_time_for_their_launches(runner, monkeypatch):
    measured = Measurement("ok", samples_us=(3e6,) * 10)
    runner.recall([(Proposal(0, config(variant=v)), measured) for v in (1, 2)])
    limits = []

    def ask(task, *, timeout_s):
        limits.append(timeout_s)
        found: Future = Future()
        found.set_result(Outcome("ok", {"blocks_us": [[1.0, 1.0]] * task["rounds"]}, "", 0.0))
        return found

    monkeypatch.setattr(runner._pipeline, "ask", ask)
    runner.race([config(variant=1), config(variant=2)], rounds=8, repetitions=10)
    runner.race([config(variant=3), config(variant=4)], rounds=8, repetitions=10)  # not read here
    assert min(limits) > 2 * 8 * 10 * 3.0


def test_configs_that_differ_at_run_time_only_are_no_twins(monkeypatch):
    planned = fakes.plan

    def plan(inputs, workload, config, *, sms):
        launch = planned(inputs, workload, dict(config) | {"VARIANT": 0}, sms=sms)
        return replace(launch, args=(config["VARIANT"] + 2,))

    monkeypatch.setattr(fakes, "plan", plan)
    told = planner(subject(fakes.WORKLOAD, fakes.KERNEL), fakes.SPACE, sms=132)
    plans = [told(config(variant=v)) for v in (0, 3, 5)]
    assert len({p.specialisation for p in plans}) == 1
    assert [p.grid for p in plans] == ["1", "1 5", "1 7"]  # the default's is as it always was


def test_a_search_runs_on_it_as_on_any_runner(runner):
    searcher = make_searcher("pattern", runner.space, seed=0, initial_population=30)
    history = tune(searcher, runner, budget=Budget(trials=80))
    assert history.trials_spent == 80
    assert history.incumbent.latency_us == 10.0
    assert [t.machine_s for t in history] == sorted(t.machine_s for t in history)


def test_mistakes_are_told_before_anything_is_queued(runner):
    with pytest.raises(SpaceError):
        runner.submit([Proposal(0, config()), Proposal(1, Config(FAULT="none"))])
    assert runner.pending == 0
    with pytest.raises(UsageError, match="pending"):
        runner.next()


def test_no_gpu_is_one_sentence_and_frees_the_lock(monkeypatch, tmp_path):
    services = fakes.SERVICES | {"timing": f"{fakes.__name__}:no_gpu"}
    with pytest.raises(UsageError, match="no GPU 0 here"):
        make_runner(monkeypatch, tmp_path, services=services)
    make_runner(monkeypatch, tmp_path).close()


def test_without_a_gpu_nothing_is_started(monkeypatch, tmp_path):
    monkeypatch.setattr(facts, "gpu_arch", lambda _: None)
    monkeypatch.setattr(facts, "_counted", lambda: 0)
    monkeypatch.setattr(module, "Zygote", None)
    with pytest.raises(UsageError, match=r"needs a GPU, got .* index 0; .*kt-lab compare"):
        make_runner(monkeypatch, tmp_path, services=module.SERVICES)


def test_what_a_worker_says_of_the_doctor_is_said_once():
    told = "UsageError: timing needs a GPU; kt-lab doctor says what is missing"
    for error, names in ((told, 1), ("RuntimeError: no", 1)):
        with pytest.raises(UsageError) as found:
            answered(Outcome("error", None, error))
        assert str(found.value).count("kt-lab doctor") == names


def test_nothing_is_interpreted_where_it_is_measured(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with make_runner(monkeypatch, tmp_path) as made:
        assert made.facts["interpreted"] == "0", "from before Triton is imported"


def test_one_run_per_gpu(monkeypatch, tmp_path):
    with make_runner(monkeypatch, tmp_path), pytest.raises(UsageError, match="measuring fake/16"):
        make_runner(monkeypatch, tmp_path)
    make_runner(monkeypatch, tmp_path).close()


def test_a_pipeline_that_breaks_down_says_so_to_everyone(runner, monkeypatch):
    def broken(*_):
        raise OSError("the pump broke")

    monkeypatch.setattr(runner._pipeline, "_take_compilation", broken)
    runner.submit([Proposal(0, config(variant=5))])
    for _ in range(2):
        with pytest.raises(OSError, match="the pump broke"):
            runner.next()
    runner._pipeline._thread.join(timeout=10)
    with pytest.raises(RuntimeError, match="has ended"):
        runner.race([config()], rounds=1, repetitions=1)


def test_a_runner_turns_to_another_workload_without_a_new_start(runner):
    other = replace(fakes.WORKLOAD, name="2", extents={"N": 2})
    before = measure(runner, config())
    runner.submit([Proposal(0, config(variant=1))])
    with pytest.raises(UsageError, match="1 pending"):
        runner.turn_to(other)
    runner.next()
    started = runner.startup_s
    runner.turn_to(other)
    assert (runner.workload, runner.startup_s) == (other, started)
    assert runner.space.fingerprint == fakes.KERNEL.space(other).fingerprint
    again = measure(runner, config())
    assert again.status == "ok"
    assert "twin" not in again.info  # what was timed there says nothing here
    assert again.measure_s > 0
    assert before.latency_us == again.latency_us  # the fakes know no shapes
    with pytest.raises(UsageError, match="another workload of"):
        runner.turn_to("softmax/4096x640")
    with pytest.raises(UsageError, match="memory of 4 GB, got 9 GB for fake/9"):
        runner.turn_to(replace(other, name="9", extents={"N": 9 * 10**9}))
    assert measure(runner, config(variant=2)).status == "ok"  # it stays where it was
    runner.turn_to(other, space=few(1))
    with pytest.raises(SpaceError):
        runner.submit([Proposal(0, config(variant=2))])


def few(variants):
    """Configs without a fault, of the first variants."""
    rows = fakes.SPACE.rows([config(variant=v) for v in range(variants)])
    return fakes.SPACE.only(rows)


def test_one_start_serves_all_workloads_of_one_search(monkeypatch, tmp_path):
    """Starting workers takes seconds, and a batch goes to every workload."""
    others = [replace(fakes.WORKLOAD, name=str(n), extents={"N": n}) for n in (32, 64)]
    opened = []

    def made(workload):
        assert workload.kernel == "fake"
        opened.append(make_runner(monkeypatch, tmp_path))
        return opened[-1]  # in all of the kernel's space, as GpuRunner is

    found = tune_many(
        [fakes.WORKLOAD, *others],
        searcher="random",
        budget=Budget(trials=32),
        runner_for=made,
        space_of=lambda w: few(10) if w in others else fakes.CALM_SPACE,
    )
    assert len(opened) == 1
    assert len(found.histories[0]) == 32
    costs = np.array(list(found.readings.values()))
    held = np.array([few(10).contains(c) for c in found.readings])
    assert 0 < held.sum() < 32
    assert np.isnan(costs[~held, 1:]).all(), "each workload in its own space"
    assert np.isfinite(costs[held]).all()
    make_runner(monkeypatch, tmp_path).close()  # the GPU is free


def test_the_run_after_another_workload_is_not_charged_for_it(runner):
    measure(runner, config())
    runner.turn_to(replace(fakes.WORKLOAD, name="32", extents={"N": 32}))
    began = runner.now
    lent = LentRunner(runner)
    assert lent.now <= runner.now - began + 0.1 < runner.now


def test_what_the_gpus_memory_cannot_hold_is_refused_at_the_start(monkeypatch, tmp_path):
    large = replace(fakes.WORKLOAD, name="9", extents={"N": 9 * 10**9})
    with pytest.raises(UsageError, match="memory of 4 GB, got 9 GB for fake/9; choose a smaller"):
        make_runner(monkeypatch, tmp_path, workload=large)
    with make_runner(monkeypatch, tmp_path) as made:  # the GPU is free again
        assert measure(made, config()).status == "ok"


def test_a_race_that_is_under_way_ends_when_the_runner_is_closed(monkeypatch, tmp_path):
    runner = make_runner(monkeypatch, tmp_path)
    task = {"do": "measure", "config": config("timing_hangs")}
    waiting = runner._pipeline.ask(task, timeout_s=60.0)
    runner.close()
    with pytest.raises(RuntimeError, match="was closed"):
        waiting.result(timeout=10)
