import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.errors import LandscapeError, SpaceError, UnrecordedConfig, UsageError
from kt_lab.landscape import load_landscape
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import make_searcher
from kt_lab.space import Integer, ParameterSpace, PowerOfTwo
from kt_lab.trial import Config, Proposal
from kt_lab.tune import tune
from tests.runners.tables import FLUSH_US, SPACE, config, make_landscape


def _measure(runner, at, **wishes):
    runner.submit([Proposal(0, config(at), **wishes)])
    return runner.next()[1]


def _median_us(landscape, at, visit):
    return float(np.median(landscape.samples[visit][at]))


def test_a_reading_comes_from_one_visit_and_the_verdict_from_the_other():
    landscape = make_landscape()
    for seed in (0, 1):
        runner = ReplayRunner(landscape, seed=seed)
        read = _measure(runner, 2).samples_us
        assert set(np.float32(read)) <= set(landscape.samples[seed][2])
        assert runner.judge(config(2)) == pytest.approx(_median_us(landscape, 2, 1 - seed))


def test_the_same_seed_reads_the_same_and_another_does_not():
    landscape = make_landscape()
    one, same, other = (ReplayRunner(landscape, seed=s) for s in (0, 0, 2))
    assert _measure(one, 2) == _measure(same, 2)
    assert one.visit == other.visit
    assert _measure(other, 2).samples_us != _measure(ReplayRunner(landscape, seed=0), 2).samples_us


def test_more_repetitions_than_recorded_never_shrink_the_noise():
    landscape = make_landscape()
    recorded = sorted(landscape.samples[0][2].tolist())
    runner = ReplayRunner(landscape, seed=0)
    for _ in range(3):
        many = _measure(runner, 2, repetitions=1000)
        assert sorted(many.samples_us) == recorded
    assert many.measure_s == pytest.approx(1000 * (np.median(recorded) + FLUSH_US) * 1e-6)


def test_re_measuring_draws_anew_and_compiles_nothing():
    runner = ReplayRunner(make_landscape(), seed=0, compile_lanes=1)
    first, again = _measure(runner, 2), _measure(runner, 2)
    assert first.compile_s > 0
    assert first.check_s > 0
    assert (again.compile_s, again.check_s) == (0, 0)
    assert first.samples_us != again.samples_us


def test_a_cut_off_stops_a_slow_config_early_and_never_a_fast_one():
    landscape = make_landscape()
    runner = ReplayRunner(landscape, seed=0)
    slow = _measure(runner, 15, cutoff_us=40.0)
    assert slow.status == "censored"
    assert slow.latency_us is None
    assert slow.bound_us > 40
    fast = _measure(runner, 0, cutoff_us=40.0)
    assert fast.status == "ok"
    full = _measure(ReplayRunner(landscape, seed=0), 15)
    assert slow.measure_s < full.measure_s


def test_failures_keep_their_status_and_their_cost():
    runner = ReplayRunner(make_landscape(), seed=0, compile_lanes=1)
    refused = _measure(runner, 3)
    assert (refused.status, refused.error) == ("compile_error", "E: it failed")
    assert refused.measure_s == 0
    # recorded at 4 workers with 1 + 0.5 (n - 1): alone it takes 1 / 2.5 of the recorded second
    assert refused.compile_s == pytest.approx(1 / 2.5)
    assert runner.now == pytest.approx(1 / 2.5)
    wrong = _measure(runner, 5)
    assert wrong.status == "wrong_result"
    assert wrong.measure_s == pytest.approx(0.5)
    assert runner.judge(config(5)) is None


def test_compile_lanes_contend_as_recorded():
    runner = ReplayRunner(make_landscape(), seed=0, compile_lanes=4)
    assert runner.free == 4
    runner.submit([Proposal(i, config(at)) for i, at in enumerate((0, 1, 2, 4))])
    assert runner.free == 0
    spent = sorted(runner.next()[1].compile_s for _ in range(4))
    assert spent == pytest.approx([1 / 2.5, 1.5 / 2.5, 2 / 2.5, 2.5 / 2.5])


def test_compilations_on_a_crowded_host_are_charged_by_their_cpu_seconds():
    crowded = make_landscape(compile_clock="cpu")
    for lanes in (1, 2):  # whatever else compiles: contention was not measured apart
        runner = ReplayRunner(crowded, seed=0, compile_lanes=lanes)
        runner.submit([Proposal(0, config(0)), Proposal(1, config(1))])
        spent = [runner.next()[1].compile_s for _ in range(2)]
        assert spent == pytest.approx([0.9, 0.9])


def test_identical_binaries_share_samples_unless_told_not_to():
    landscape = make_landscape()
    runner = ReplayRunner(landscape, seed=0)
    first, twin = _measure(runner, 7), _measure(runner, 8)
    assert set(np.float32(twin.samples_us)) <= set(landscape.samples[0][7])
    assert twin.measure_s == 0
    elsewhere = _measure(runner, 9)  # the same binary, launched with another grid
    assert elsewhere.measure_s > 0
    assert set(np.float32(elsewhere.samples_us)) <= set(landscape.samples[0][9])
    assert first.measure_s > 0
    apart = ReplayRunner(landscape, seed=0, share_duplicates=False)
    assert _measure(apart, 7).measure_s > 0
    alone = _measure(apart, 8)
    assert alone.measure_s > 0
    assert set(np.float32(alone.samples_us)) <= set(landscape.samples[0][8])


def test_an_unrecorded_config_is_a_clear_error_and_nothing_is_queued():
    landscape = make_landscape()
    landscape.table = landscape.table.drop(index=4)
    runner = ReplayRunner(landscape, seed=0)
    with pytest.raises(UnrecordedConfig, match="holds 15 of 16 configs; record the rest"):
        runner.submit([Proposal(0, config(0)), Proposal(1, config(4))])
    assert runner.pending == 0
    with pytest.raises(SpaceError, match="BLOCK must be one of"):
        runner.submit([Proposal(0, Config(BLOCK=48, num_stages=1))])


def test_a_landscape_replays_only_in_its_own_space():
    other = ParameterSpace([Integer("num_stages", 1, 4)], default={"num_stages": 1})
    with pytest.raises(LandscapeError, match="fingerprint"):
        ReplayRunner(make_landscape(), seed=0, space=other)
    ReplayRunner(make_landscape(), seed=0, space=SPACE)


def test_a_space_restricted_to_some_configs_replays_where_the_whole_was_recorded():
    landscape = make_landscape()
    narrow = SPACE.only(SPACE.enumerate()[[0, 2, 9]])
    runner = ReplayRunner(landscape, seed=0, space=narrow)
    assert _measure(runner, 9).info["config"] == 9
    wider = ParameterSpace(
        [PowerOfTwo("BLOCK", 16, 256, role="tile"), Integer("num_stages", 1, 4, role="stages")],
        default=SPACE.default,
    )
    with pytest.raises(LandscapeError, match="fingerprint"):
        ReplayRunner(landscape, seed=0, space=wider)


@pytest.mark.parametrize("seed", [-1, 1.5, "0"])
def test_a_seed_that_chooses_no_visit_is_refused(seed):
    with pytest.raises(UsageError, match="seed must be a whole number >= 0, got seed="):
        ReplayRunner(make_landscape(), seed=seed)


def test_a_key_is_enough_for_a_search_as_it_is_with_a_gpu():
    runner = ReplayRunner("softmax/4096x640", seed=0)
    assert runner.space.fingerprint == load_landscape("softmax/4096x640").space.fingerprint
    searcher = make_searcher("random", runner.space, seed=0)
    assert len(tune(searcher, runner, budget=Budget(trials=3))) == 3
