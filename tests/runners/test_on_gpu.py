"""On a GPU: one search or experiment on several of a host, and a table of decisions."""

import json
from contextlib import closing
from functools import partial

import pytest

from kt_lab import cli
from kt_lab.budget import Budget
from kt_lab.cells import NOT_REPEATABLE
from kt_lab.dispatching import here
from kt_lab.experiment import Experiment
from kt_lab.kernels import get_kernel, get_workload
from kt_lab.recipes import gpu_uuids, host_gpus
from kt_lab.runners.several import several_gpus
from kt_lab.search import make_searcher
from kt_lab.tune import tune

TRIALS = 80


@pytest.mark.gpu
def test_two_gpus_share_a_search_and_each_reads_the_control():
    if len(gpu_uuids()) < 2:
        pytest.skip("needs two GPUs")
    workload = get_workload("softmax/4096x640")
    with closing(several_gpus(workload, devices=(0, 1), every=10)) as runner:
        searcher = make_searcher("scout", runner.space, seed=0)
        history = tune(searcher, runner, budget=Budget(trials=TRIALS))
        told = runner.facts["devices"]
    assert len(history) == TRIALS
    assert len({trial.config for trial in history}) == TRIALS
    assert history.count("ok") > TRIALS / 2
    by = [trial.measurement.info["device"] for trial in history]
    assert {len(told), len(set(by))} == {2}
    assert set(by) == set(told)
    assert min(map(by.count, told)) >= TRIALS // 5
    assert all(abs(row["offset"]) < 0.1 for row in told.values())


@pytest.mark.gpu
def test_replays_by_workers_with_a_gpu_each_are_those_of_this_process():
    pytest.importorskip("distributed")
    if len(gpu_uuids()) < 2:
        pytest.skip("needs two GPUs")
    experiment = Experiment(
        "gpus",
        ["softmax/4096x640"],
        ["random", "pattern", "scout"],
        seeds=4,
        budget=Budget(trials=40),
    )
    here = experiment.run()
    with host_gpus(dashboard=False) as client:
        there = experiment.run(executor=client)
    drop = [name for name in NOT_REPEATABLE if name in here]
    assert there.drop(columns=drop).equals(here.drop(columns=drop))
    assert len(there.attrs["computed_by"]) == len(gpu_uuids())


@pytest.mark.gpu
def test_a_table_is_decided_live_and_still_holds_in_the_next_process(tmp_path, capsys):
    words = ["softmax/4096x640", "softmax/1000x777", "--trials", "40"]
    call = partial(cli.main, ["dispatch", *words, "--json", "--directory", str(tmp_path)])
    assert call() == 0
    tuned = json.loads(capsys.readouterr().out)
    stored = ["softmax", "--stored", "--json", "--directory", str(tmp_path)]
    assert cli.main(["dispatch", *stored]) == 0
    assert json.loads(capsys.readouterr().out) == tuned
    assert {tuple(row["key"][:2]) for row in tuned["table"]} == {(4096, 640), (1000, 777)}
    now = here("softmax")
    assert now["gpu"] == tuned["gpu"]
    space = get_kernel("softmax").space(get_workload("softmax/4096x640"))
    assert all(set(row["config"]) == set(space.names) for row in tuned["table"])
