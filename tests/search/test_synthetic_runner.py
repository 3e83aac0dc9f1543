"""SyntheticRunner: a known optimum, and measurements that depend on the seed only."""

import numpy as np
import pytest

from kt_lab.errors import UsageError
from kt_lab.runners.synthetic import SyntheticLandscape, SyntheticRunner
from kt_lab.search import make_searcher
from kt_lab.search.conformance_cases import drive, huge_space, small_space
from kt_lab.trial import Config, Proposal


def test_the_optimum_is_the_only_lowest_config():
    space = small_space()
    for seed in range(5):
        landscape = SyntheticLandscape(space, seed=seed, optimum_us=42.0)
        latencies = landscape.latencies(space.enumerate())
        assert latencies.min() == landscape.latency_us(landscape.optimum) == 42.0
        assert (latencies == 42.0).sum() == 1
        assert space.configs(space.enumerate()[[latencies.argmin()]]) == [landscape.optimum]


def test_a_huge_space_is_not_listed():
    landscape = SyntheticLandscape(huge_space(), seed=0, failing=0.1)
    proposals = drive(
        make_searcher("pattern", huge_space(), seed=0),
        lambda c: SyntheticRunner(landscape).measure(Proposal(0, c)),
        trials=200,
    )
    assert len(proposals) == 200


def test_the_share_of_failures_is_the_given_one():
    space = small_space()
    landscape = SyntheticLandscape(space, seed=0, failing=0.3)
    configs = space.configs(space.enumerate())
    assert np.mean([landscape.fails(c) for c in configs]) == pytest.approx(0.3, abs=0.06)
    assert not landscape.fails(landscape.optimum)
    assert not landscape.fails(space.default)
    assert all(map(SyntheticLandscape(space, seed=0, failing=1.0).fails, configs))
    assert not any(map(SyntheticLandscape(space, seed=0).fails, configs))


def test_readings_depend_on_seed_config_and_visit_only():
    space = small_space()
    landscape = SyntheticLandscape(space, seed=0)
    a, b = space.configs(space.enumerate()[[3, 50]])
    one, two = (SyntheticRunner(landscape, seed=1) for _ in range(2))
    first = one.measure(Proposal(0, a))
    two.measure(Proposal(0, b))
    assert two.measure(Proposal(1, a)) == first
    again = one.measure(Proposal(2, a))
    assert again.samples_us != first.samples_us
    assert again.compile_s == 0.0 < first.compile_s
    assert SyntheticRunner(landscape, seed=2).measure(Proposal(0, a)) != first


def test_noise_is_multiplicative_and_repetitions_are_honoured():
    space = small_space()
    landscape = SyntheticLandscape(space, seed=0)
    runner = SyntheticRunner(landscape, noise=0.05, repetitions=3)
    assert len(runner.measure(Proposal(0, space.default)).samples_us) == 3
    many = runner.measure(Proposal(0, space.default, repetitions=4000)).samples_us
    logs = np.log(np.asarray(many) / landscape.latency_us(space.default))
    assert logs.std() == pytest.approx(0.05, rel=0.1)
    assert abs(logs.mean()) < 0.01
    exact = SyntheticRunner(landscape, noise=0.0).measure(Proposal(0, space.default))
    assert exact.latency_us == landscape.latency_us(space.default)


def test_a_cutoff_censors_what_is_clearly_slower():
    space = small_space()
    landscape = SyntheticLandscape(space, seed=0)
    slow = landscape.latency_us(space.default)
    runner = SyntheticRunner(landscape)
    cut = runner.measure(Proposal(0, space.default, cutoff_us=slow * 0.5))
    assert cut.status == "censored"
    assert len(cut.samples_us) == 3
    assert runner.measure(Proposal(1, space.default, cutoff_us=slow * 2)).status == "ok"


def test_configs_outside_the_space_are_invalid():
    runner = SyntheticRunner(SyntheticLandscape(small_space(), seed=0))
    assert runner.measure(Proposal(0, Config(x=1))).status == "invalid"


def test_the_clock_compiles_in_lanes_and_times_in_one():
    space = small_space()
    landscape = SyntheticLandscape(space, seed=0, failing=0.3)
    configs = space.configs(space.enumerate()[:40])
    ends = {}
    for lanes in (1, 4):
        runner = SyntheticRunner(landscape, compile_lanes=lanes)
        proposals = [Proposal(i, c) for i, c in enumerate(configs)]
        runner.submit(proposals)
        assert runner.pending == 40
        done = []
        while runner.pending:
            before = runner.now
            done.append(runner.next())
            assert runner.now >= before
        assert {p for p, _ in done} == set(proposals)
        ends[lanes] = runner.now
        runner.close()
    assert ends[4] < ends[1] / 3
    assert runner.free == 4


@pytest.mark.parametrize(
    "wrong", [{"failing": 1.5}, {"failing": -0.1}, {"optimum_us": 0.0}, {"ripple": -1.0}]
)
def test_landscapes_outside_their_law_are_refused(wrong):
    with pytest.raises(UsageError):
        SyntheticLandscape(small_space(), seed=0, **wrong)


@pytest.mark.parametrize("wrong", [{"repetitions": 0}, {"noise": -1.0}, {"compile_s": -1.0}])
def test_runners_outside_their_law_are_refused(wrong):
    with pytest.raises(UsageError):
        SyntheticRunner(SyntheticLandscape(small_space(), seed=0), **wrong)


def test_every_searcher_gets_close_to_the_optimum_and_the_guided_ones_closer():
    space = small_space()
    regret = {}
    for name, options in {
        "random": {},
        "pattern": {"initial_population": 20},
        "lfbo_pattern": {"initial_population": 20, "n_estimators": 20, "num_neighbors": 100},
        "tpe": {},
    }.items():
        logs = []
        for seed in range(3):
            landscape = SyntheticLandscape(space, seed=seed, failing=0.1)
            runner = SyntheticRunner(landscape, seed=seed)
            searcher = make_searcher(name, space, seed=seed, **options)
            found = drive(searcher, lambda c, r=runner: r.measure(Proposal(0, c)), trials=80)
            best = min(
                landscape.latency_us(p.config) for p in found if not landscape.fails(p.config)
            )
            logs.append(np.log(best / landscape.optimum_us))
        regret[name] = float(np.mean(logs))
    assert max(regret["pattern"], regret["lfbo_pattern"], regret["tpe"]) < regret["random"] < 1.0
