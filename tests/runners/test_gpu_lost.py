"""The live runner where the GPU or the compilers are lost: that is no property of a config."""

from dataclasses import replace

import pytest

from kt_lab.budget import Budget
from kt_lab.errors import UsageError
from kt_lab.live import tune_live
from kt_lab.runners.gpu.jobs import Limits
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.trial import Config, Proposal
from tests.runners import live_fakes as fakes
from tests.runners import lost_services

LOST = "tests.runners.lost_services"
TRIALS = 40


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Opens runners whose timing or compile service is one of `lost_services`."""
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))

    def open_(*, limits=None, **services):
        own = {name: f"{LOST}:{function}" for name, function in services.items()}
        return GpuRunner(
            fakes.WORKLOAD,
            kernel=fakes.CALM,
            compile_workers=2,
            services=fakes.SERVICES | own,
            limits=limits,
        )

    return open_


def tuned(runner, folder):
    return tune_live(runner, searcher="random", budget=Budget(trials=TRIALS), directory=folder)


def test_a_gpu_that_is_lost_ends_the_search_and_no_config_is_blamed(opened, tmp_path):
    with opened(timing="lost_gpu") as runner, pytest.raises(UsageError, match="working GPU, got"):
        tuned(runner, tmp_path)
    assert not list((tmp_path / "winners").rglob("*.json")), "nothing was decided"
    lost_services.gone().unlink()
    with opened() as runner:
        found = tuned(runner, tmp_path)
    told = [trial.status for trial in found.history]
    assert len(told) == TRIALS
    assert set(told) <= {"ok", "compile_error", "wrong_result", "crashed"}
    assert told.count("crashed") <= 2  # the one that the GPU was lost with, and its spare
    assert "failed" not in found.confirmation.reason


def test_where_no_compiler_starts_the_search_ends_and_goes_on_when_one_does(opened, tmp_path):
    law = "compile processes must start, got error"
    with opened(compile="no_compiler") as runner, pytest.raises(UsageError, match=law):
        tuned(runner, tmp_path)
    with opened() as runner:
        assert "ok" in {trial.status for trial in tuned(runner, tmp_path).history}


def test_inputs_that_cannot_be_made_are_told_at_the_start(opened):
    with pytest.raises(UsageError, match=r"inputs of fake/16 must be made within .*memory"):
        opened(timing="full_gpu")
    with opened() as runner:  # the GPU is free again
        assert runner.free


def test_a_race_that_nobody_waits_for_any_more_does_not_end_the_next_workload(opened):
    with opened(timing="slow_race") as runner:
        config = fakes.CALM_SPACE.default
        task = {"do": "race", "configs": [config], "rounds": 1}
        left = runner._pipeline.ask(task, timeout_s=60.0)
        runner.turn_to(replace(fakes.WORKLOAD, name="32", extents={"N": 32}))
        assert left.exception() is not None
        runner.submit([Proposal(0, Config(config))])
        assert runner.next()[1].status == "ok"


@pytest.mark.parametrize(("compilers", "limit_s"), [(None, 9.0), ("compile_slowly", 4.0)])
def test_binaries_that_were_in_the_cache_shorten_no_limit(opened, compilers, limit_s):
    """The fakes say that compiling took 10 ms, as where the cache has the binary."""
    own = {"compile": compilers} if compilers else {}
    limits = Limits(compile_least_s=0.5, compile_most_s=9.0)
    with opened(limits=limits, **own) as runner:
        every = fakes.CALM_SPACE.configs(fakes.CALM_SPACE.enumerate())
        good = [c for c in every if c["FAULT"] == "none" and c["PROGRAMS"] == 1]
        wrong = [c for c in every if c["FAULT"] == "wrong_result" and c["PROGRAMS"] == 1]
        runner.submit([Proposal(n, c) for n, c in enumerate([*good, *wrong])])
        for _ in (*good, *wrong):
            runner.next()
        assert runner._pipeline._compile_limit_s() == limit_s
