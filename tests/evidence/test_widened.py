"""Widened spaces: the same everywhere, with a bound that nothing beats."""

import argparse
import json
import math
from functools import cache

import numpy as np
import pytest

from kt_lab.evidence import widened
from kt_lab.evidence.ablation import WHOLE, WORKLOADS
from kt_lab.evidence.widened import KINDS, PEERS, VARIANTS, Widened, WideRunner
from kt_lab.search import epochs
from kt_lab.trial import Config, Proposal
from kt_lab.tune import tune

WORKLOAD = "softmax/4096x640"


@pytest.fixture(params=KINDS)
def world(request):
    return Widened(WORKLOAD, request.param, "h200")


def draws(world, n=400, seed=0):
    rows = world.space.sample_rows(n, rng=np.random.default_rng(seed))
    return world.space.configs(rows)


def test_it_is_drawn_the_same_again_and_another_workload_is_another_world(world):
    kind = KINDS["size_0" in world.space.default]
    again = Widened(WORKLOAD, kind, "h200")
    assert [world.latency_us(c) for c in draws(world)] == [
        again.latency_us(c) for c in draws(world)
    ]
    other = Widened("softmax/256x128256", kind, "h200")
    assert [costs.tolist() for costs in world._costs] == [costs.tolist() for costs in again._costs]
    assert [costs.tolist() for costs in world._costs] != [costs.tolist() for costs in other._costs]


def test_nothing_is_faster_than_the_bound_and_the_default_works(world):
    us = np.array([world.latency_us(c) for c in draws(world)])
    assert (us >= world.optimum_us).all()
    assert math.isfinite(world.latency_us(world.space.default))
    assert np.isinf(us).mean() < 0.9
    assert world.size > 1e10


def test_wrong_sizes_cost_much_in_a_steep_space_alone():
    mild, steep = (Widened(WORKLOAD, kind, "h200") for kind in KINDS)
    tails = []
    for world in (mild, steep):
        us = np.array([world.latency_us(c) for c in draws(world)])
        failed = np.isinf(us).mean()
        tails.append(np.median(us[np.isfinite(us)]) / world.optimum_us)
    assert tails[1] > 3 * tails[0]
    assert failed > 0.05, "sizes fail together"


def test_a_config_without_further_costs_takes_what_was_recorded(world):
    best = {
        p.name: p.values[int(np.argmin(costs))]
        for p, costs in zip(world.space.parameters[len(world._names) :], world._costs, strict=True)
    }
    world._pairs = []
    config = Config(dict(world._recorded.best) | best)
    assert world.latency_us(config) == pytest.approx(world.optimum_us)


def test_lanes_end_in_the_order_of_their_compile_times(world):
    runner = WideRunner(world, lanes=3, seed=0)
    configs = draws(world, 3)
    runner.submit([Proposal(id=i, config=c) for i, c in enumerate(configs)])
    assert (runner.free, runner.pending) == (0, 3)
    ended = [runner.next()[0].config for _ in range(3)]
    assert [world.compile_s(c) for c in ended] == sorted(world.compile_s(c) for c in configs)
    assert runner.now == max(world.compile_s(c) for c in configs)


def test_it_chooses_a_workload_of_every_kernel_of_the_ablation():
    parser = argparse.ArgumentParser()
    widened.add_arguments(parser)
    chosen = parser.parse_args([]).workloads
    assert {w.partition("/")[0] for w in chosen} == {w.partition("/")[0] for w in WORKLOADS}
    assert len(chosen) == 16


@pytest.fixture(scope="module")
def searched():
    """Returns the configs of a search and what it ended with; each is made once.

    Brief epochs end within a few dozens of trials, instead of hundreds.
    """

    @cache
    def search(name, kind, trials, brief):
        found = []
        with pytest.MonkeyPatch.context() as patch:
            kept = lambda *a, **k: found.append(tune(*a, **k)) or found[-1]  # noqa: E731
            patch.setattr(widened, "tune_whole", kept)
            if brief:
                patch.setattr(epochs, "_LEAST", 20)
                patch.setattr(epochs, "_IDLE", 8)
            ended = widened.searched(WORKLOAD, kind, "h200", name, 0, trials, 14)[0]
        return [trial.config for trial in found[0]], ended

    return search


@pytest.mark.parametrize("name", [n for n in VARIANTS if n != WHOLE] + [PEERS[0]])
def test_a_variant_searches_otherwise(name, searched):
    brief = "epoch" in name or "descent" in name
    kind, trials = ("mild", 300) if brief else ("steep", 50)
    trials = 900 if name == "epochs anywhere" else trials  # descents come first
    (whole, end), (other, end_of_other) = (searched(n, kind, trials, brief) for n in (WHOLE, name))
    assert min(len(whole), len(other)) >= trials
    assert other != whole
    assert end_of_other != end or name == "epochs anywhere"  # which may come to the same


def test_a_short_comparison_is_stored_told_and_not_searched_again(tmp_path, monkeypatch):
    parser = argparse.ArgumentParser()
    widened.add_arguments(parser)
    asked = f"--workloads {WORKLOAD} --seeds 2 --trials 30 --workers 1 --variants scout random"
    args = parser.parse_args(asked.split())
    args.out = tmp_path / "widened.json"
    first = widened.run(args)
    assert [row["kind"] for row in first["rows"]] == list(KINDS)
    assert "random" in widened.report(first)
    told = {(row["budget"], row["variant"]): row["ratio"] for row in first["paired"]}
    logs = [
        [np.mean([np.log(us[1]) for us in runs]) for runs in row["judged_us"]]
        for row in first["rows"]
    ]
    expected = math.exp(np.mean([random - scout for scout, random in logs]))
    assert told[30.0, "random"] == pytest.approx(expected)
    monkeypatch.setattr(widened, "_row", lambda *_: pytest.fail("searched again"))
    assert json.loads(json.dumps(widened.run(args)["rows"])) == first["rows"]
