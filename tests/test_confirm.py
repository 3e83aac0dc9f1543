"""Confirmation: exact on exact readings, wrong as rarely as it says, on every kind of noise."""

import argparse
import json

import numpy as np
import pytest
from scipy.stats import wilcoxon

from kt_lab.confirm import Rule, confirm
from kt_lab.errors import UsageError
from kt_lab.evidence import confirmation as evidence
from kt_lab.paired import probability_of_best, signed_rank
from kt_lab.runners.racing import ReplayRacer, alternating
from kt_lab.trial import Config
from tests.runners.tables import config, make_landscape

OLD = Config(name="old")
NEW = Config(name="new")
OTHERS = [Config(name=f"other {i}") for i in range(8)]


class Stub:
    """Races configs of known latency under noise; `noise(rng, shape)` multiplies."""

    def __init__(self, latency_us, *, noise=None, seed=0, change=None):
        self.latency_us, self.noise, self.change = latency_us, noise, change
        self.rng = np.random.default_rng(seed)
        self.calls = []

    def race(self, configs, *, rounds, repetitions):
        shape = (rounds, len(configs))
        blocks = np.tile([float(self.latency_us[c]) for c in configs], (rounds, 1))
        if self.noise:
            blocks *= self.noise(self.rng, (*shape, 1)).squeeze(-1)
        self.calls.append((list(configs), rounds, repetitions))
        return self.change(configs, blocks, len(self.calls)) if self.change else blocks


def normal(rng, shape):
    return np.exp(0.015 * rng.standard_normal(shape))


def heavy(rng, shape):
    """Every eighth reading is twice as slow or worse, and the rest is Student's t."""
    slow = np.where(rng.random(shape) < 0.125, 2 + rng.exponential(size=shape), 1.0)
    return slow * np.exp(0.01 * rng.standard_t(2.5, size=shape))


def coarse(rng, shape):
    """A timer whose tick is 2 % of the latency: most readings of a round tie."""
    return np.round(np.exp(0.008 * rng.standard_normal(shape)) / 0.02) * 0.02


def drifting(rng, shape):
    """Rounds wander by 10 % in all configs alike."""
    wander = np.exp(np.cumsum(0.1 * rng.standard_normal((shape[0], 1, 1)), axis=0))
    return wander * normal(rng, shape)


NOISES = [normal, heavy, coarse, drifting]


def decide(racer, finalists=(NEW,), apparent_us=None, **rule):
    rule = Rule(**rule) if rule else None
    return confirm(
        racer, incumbent=OLD, finalists=finalists, apparent_us=apparent_us or {}, rule=rule
    )


# -- exact cases ----------------------------------------------------------------------------------


@pytest.mark.parametrize("finalists", [(), (OLD,), (OLD, OLD)])
def test_without_a_rival_the_incumbent_stays_and_nothing_is_timed(finalists):
    racer = Stub({OLD: 10})
    found = decide(racer, finalists)
    assert (found.winner, found.replaced, found.challenger) == (OLD, False, None)
    assert racer.calls == []
    assert found.launches == found.race_rounds == found.duel_rounds == 0
    assert found.p_best == 1.0
    assert found.ratio is found.gain is found.apparent_gain is None
    assert [record.config for record in found.table] == [OLD]
    assert found.table[0].median_us is None


def test_equal_readings_keep_the_incumbent_and_share_the_first_place():
    found = decide(Stub(dict.fromkeys([OLD, NEW, OTHERS[0]], 10)), [NEW, OTHERS[0]], floor=0.0)
    assert (found.winner, found.replaced, found.challenger) == (OLD, False, NEW)
    assert found.ratio == found.low == found.high == 1
    assert found.p_best == pytest.approx(1 / 3)
    assert found.duel_rounds == Rule().rounds


def test_without_noise_ten_percent_are_confirmed_at_the_first_look():
    racer = Stub({OLD: 11, NEW: 10})
    found = decide(racer, apparent_us={OLD: 12, NEW: 10})
    assert (found.winner, found.replaced, found.challenger) == (NEW, True, NEW)
    assert found.duel_rounds == Rule().first
    assert found.race_rounds == 0, "one finalist needs no race"
    assert found.launches == 2 * Rule().first * Rule().repetitions
    assert (found.ratio, found.low, found.high) == pytest.approx((10 / 11,) * 3)
    assert found.gain == pytest.approx(0.1)
    assert found.apparent_gain == pytest.approx(0.2)
    assert found.p_best == 1.0


def test_a_gain_of_exactly_the_floor_is_not_enough():
    latency = {OLD: 10 * (1 + 2**-6), NEW: 10}
    assert not decide(Stub(latency), floor=2**-6).replaced
    assert decide(Stub(latency), floor=2**-6 - 1e-6).replaced


def test_slower_finalists_drop_out_of_the_race_and_are_not_timed_again():
    racer = Stub({OLD: 11, NEW: 10, OTHERS[0]: 12, OTHERS[1]: 10.5})
    found = decide(racer, [OTHERS[0], OTHERS[1], NEW])
    assert found.winner == NEW
    first = Rule().first
    assert [(set(configs), rounds) for configs, rounds, _ in racer.calls] == [
        ({OLD, NEW, *OTHERS[:2]}, first),
        ({OLD, NEW}, first),
    ]
    by = {record.config: record for record in found.table}
    assert by[OTHERS[0]].eliminated_at == by[OTHERS[1]].eliminated_at == first
    assert by[NEW].eliminated_at is by[OLD].eliminated_at is None
    assert (by[NEW].rounds, by[OTHERS[0]].rounds) == (2 * first, first)
    assert by[OTHERS[1]].median_us == pytest.approx(10.5)
    assert found.launches == (4 + 2) * first * Rule().repetitions


def test_no_duel_when_every_finalist_is_slower_than_the_incumbent():
    found = decide(Stub({OLD: 10, NEW: 11, OTHERS[0]: 12}), [NEW, OTHERS[0]])
    assert (found.winner, found.challenger, found.duel_rounds) == (OLD, None, 0)
    assert found.p_best == 1.0
    assert "as fast" in found.describe()


def test_a_challenger_that_is_clearly_slower_ends_the_duel_early():
    found = decide(Stub({OLD: 10, NEW: 11}))
    assert not found.replaced
    assert found.duel_rounds == Rule().first
    assert found.gain == pytest.approx(-1 / 11)


# -- failures -------------------------------------------------------------------------------------


def failing(which, call=1):
    """Makes one reading of a config fail from the given call on."""

    def change(configs, blocks, number):
        if number >= call and which in configs:
            blocks[-1, list(configs).index(which)] = np.nan
        return blocks

    return change


def test_a_challenger_that_fails_in_the_duel_loses():
    found = decide(Stub({OLD: 11, NEW: 10}, change=failing(NEW)))
    assert (found.winner, found.replaced, found.ratio) == (OLD, False, None)
    assert "failed" in found.describe()


def test_a_finalist_that_misses_one_reading_of_the_race_is_out():
    racer = Stub({OLD: 12, NEW: 10, OTHERS[0]: 11}, change=failing(NEW))
    found = decide(racer, [NEW, OTHERS[0]])
    assert found.winner == OTHERS[0]
    assert [record.failed for record in found.table] == [False, True, False]
    assert found.table[1].rounds == Rule().first - 1
    assert found.p_best == 1.0


@pytest.mark.parametrize("finalists", [[NEW], [OTHERS[0], NEW]], ids=["duel", "race"])
def test_a_failing_incumbent_is_replaced_by_the_best_that_works(finalists):
    racer = Stub({OLD: 9, NEW: 10, OTHERS[0]: 11}, change=failing(OLD))
    found = decide(racer, finalists)
    assert (found.winner, found.replaced, found.ratio) == (NEW, True, None)
    assert "the incumbent failed" in found.describe()
    assert found.p_best == 1.0


def test_the_incumbent_stays_when_everything_fails():
    def nothing(_configs, blocks, _call):
        return np.full_like(blocks, np.nan)

    for finalists in ([NEW], [NEW, OTHERS[0]]):
        found = decide(Stub(dict.fromkeys([OLD, NEW, OTHERS[0]], 10), change=nothing), finalists)
        assert (found.winner, found.replaced, found.p_best) == (OLD, False, None)
        assert found.launches == 0


@pytest.mark.parametrize("bad", [np.ones((3, 2)), np.zeros((8, 2)), np.full((8, 2), np.inf)])
def test_readings_that_cannot_be_latencies_are_refused(bad):
    with pytest.raises(UsageError, match="positive finite block medians"):
        decide(Stub({OLD: 10, NEW: 10}, change=lambda *_: bad))


# -- noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", NOISES)
def test_an_identical_config_replaces_the_incumbent_as_rarely_as_promised(noise):
    """At floor 0 the truth is on the boundary: 2.5 % allowed; uncorrected looks give 6 % to 7."""
    racers = (Stub({OLD: 10, NEW: 10}, noise=noise, seed=seed) for seed in range(500))
    wrong = sum(decide(racer, floor=0.0).replaced for racer in racers)
    assert wrong <= 24, "2.5 % of 500, with a slack of three standard deviations"


def test_eight_identical_finalists_do_not_wear_the_level_out():
    latency = dict.fromkeys([OLD, *OTHERS], 10)
    racers = [Stub(latency, noise=normal, seed=seed) for seed in range(100)]
    found = [decide(racer, OTHERS, floor=0.0) for racer in racers]
    assert sum(c.replaced for c in found) <= 8
    assert abs(np.mean([np.log(c.ratio) for c in found])) < 0.001, "no winner's curse is left"


@pytest.mark.parametrize(
    ("noise", "least", "off"), [(normal, 95, 0.003), (drifting, 95, 0.003), (heavy, 60, 0.02)]
)
def test_two_percent_are_found_under_noise_of_that_size(noise, least, off):
    latency = {OLD: 10, NEW: 9.8}
    found = [decide(Stub(latency, noise=noise, seed=seed)) for seed in range(100)]
    assert sum(c.replaced for c in found) >= least
    assert np.mean([c.low <= 0.98 <= c.high for c in found]) >= 0.9
    assert np.exp(np.mean([np.log(c.ratio) for c in found])) == pytest.approx(0.98, abs=off)


def test_one_outlier_moves_neither_the_decision_nor_the_estimate():
    def slow_once(configs, blocks, _call):
        blocks[3, list(configs).index(NEW)] *= 2
        return blocks

    found = decide(Stub({OLD: 10.5, NEW: 10}, noise=normal, change=slow_once))
    assert found.replaced
    assert found.ratio == pytest.approx(10 / 10.5, rel=0.01)


def test_luck_in_the_race_cannot_enter_the_confirmed_ratio():
    """A racer that flatters one finalist as long as there is a race."""

    def flatter(configs, blocks, _call):
        if len(configs) > 2:
            blocks[:, list(configs).index(NEW)] *= 0.7
        return blocks

    latency = dict.fromkeys([OLD, NEW, *OTHERS[:2]], 10)
    racer = Stub(latency, noise=normal, change=flatter)
    found = decide(racer, [*OTHERS[:2], NEW])
    assert found.challenger == NEW
    assert not found.replaced
    assert found.ratio == pytest.approx(1, abs=0.01)
    assert found.low < 1 < found.high


# -- the statistics -------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [0.025, 0.00625])
def test_the_bounds_exclude_zero_exactly_when_the_signed_rank_test_rejects(tail):
    rng = np.random.default_rng(3)
    rejected = 0
    for n in (5, 8, 13, 32):
        for shift in (0.0, 0.5, 1.0):
            values = rng.standard_normal(n) + shift
            low, middle, high = signed_rank(values, tail=tail)
            greater, less = (
                wilcoxon(values, alternative=side, method="exact").pvalue
                for side in ("greater", "less")
            )
            assert (low > 0) == (greater <= tail)
            assert (high < 0) == (less <= tail)
            assert low <= middle <= high
            rejected += low > 0
    assert rejected >= 2


def test_few_values_decide_nothing():
    assert signed_rank(np.full(5, -1.0), tail=0.025) == (-np.inf, -1.0, np.inf)


def test_probability_of_best_is_shared_by_ties_and_follows_the_evidence():
    rng = np.random.default_rng(0)
    noise = 0.01 * rng.standard_normal((16, 1))
    tied = np.hstack([noise, noise, noise + 1])
    assert probability_of_best(tied, 0) == 0.5
    assert probability_of_best(tied, 2) == 0
    ahead = np.zeros((16, 2))
    ahead[:9, 1], ahead[9:, 1] = 0.01, -0.01  # faster in nine rounds of sixteen
    assert 0.55 < probability_of_best(ahead, 0) < 0.8
    assert probability_of_best(ahead, 0) + probability_of_best(ahead, 1) == pytest.approx(1)
    wider = np.hstack([ahead, ahead[:, [1]] + 1])
    wider[8:, 2] = np.nan  # dropped out half way
    assert probability_of_best(wider, 0) == probability_of_best(ahead, 0)
    assert probability_of_best(wider, 0, failed=[True, False, False]) is None


def test_a_sentence_for_people():
    found = decide(Stub({OLD: 11, NEW: 10}), apparent_us={OLD: 12, NEW: 10})
    assert found.describe() == (
        "Config(name='new') replaces the incumbent: faster by more than 0.2%; gain +10.00% (95% "
        "interval +10.00% to +10.00%) in 8 fresh paired rounds; the search saw +20.00%."
    )


@pytest.mark.parametrize(
    "bad",
    [{"level": 0}, {"level": 1}, {"floor": -0.1}, {"rounds": 4}, {"first": 0}, {"repetitions": 0}],
)
def test_a_rule_that_cannot_be_followed_is_refused(bad):
    with pytest.raises(UsageError):
        Rule(**bad)


def test_looks_double_up_to_the_last_round():
    assert Rule().looks(64) == [8, 16, 32, 64]
    assert Rule().looks(50) == [8, 16, 32, 50]
    assert Rule().looks(8) == [8]


# -- the replayed race ----------------------------------------------------------------------------


def test_rounds_alternate_and_go_on_where_the_last_race_stopped():
    assert alternating(3, 3).tolist() == [[0, 1, 2], [2, 1, 0], [0, 1, 2]]
    racer = ReplayRacer(make_landscape(), seed=0)
    racer.race([config(0), config(1)], rounds=3, repetitions=2)
    racer.race([config(0), config(1), config(2)], rounds=2, repetitions=2)
    assert racer.order.tolist() == [[2, 1, 0], [0, 1, 2]]


def test_blocks_are_recorded_samples_of_one_visit_common_to_the_round():
    landscape = make_landscape()
    racer = ReplayRacer(landscape, seed=1)
    blocks = racer.race([config(0), config(1)], rounds=40, repetitions=1)
    visits = np.array(
        [[np.isin(blocks[:, c], s[c]) for s in landscape.samples] for c in (0, 1)]
    )  # (configs, visits, rounds)
    assert (visits.sum(axis=1) == 1).all(), "every block is one sample of one visit"
    assert (visits[0] == visits[1]).all(), "both configs of a round read the same visit"
    assert visits[0].any(axis=1).all(), "both visits are drawn"
    fixed = ReplayRacer(landscape, seed=1, visits=[1])
    blocks = fixed.race([config(0)], rounds=20, repetitions=1)
    assert np.isin(blocks, landscape.samples[1][0]).all()


def test_names_of_one_launch_share_their_blocks_and_never_read_the_same_one():
    landscape = make_landscape()
    for visit in landscape.samples:
        visit[7][:], visit[8][:], visit[9][:] = 70, 80, 90
    race = ReplayRacer(landscape, seed=2).race
    blocks = race([config(7), config(8), config(9)], rounds=50, repetitions=4)
    assert {tuple(row) for row in blocks[:, :2].tolist()} == {(70, 80), (80, 70)}
    assert (blocks[:, 2] == 90).all(), "the same binary on another grid is no twin"


def test_a_failed_config_reads_nan_and_a_name_stands_for_another():
    landscape = make_landscape()
    fast = Config(name="fast")
    racer = ReplayRacer(landscape, seed=3, names={fast: (config(0), 0.5)})
    blocks = racer.race([config(3), config(0), fast], rounds=64, repetitions=10)
    assert np.isnan(blocks[:, 0]).all()
    assert np.exp(np.mean(np.log(blocks[:, 2] / blocks[:, 1]))) == pytest.approx(0.5, rel=0.01)
    again = ReplayRacer(landscape, seed=3, names={fast: (config(0), 0.5)})
    repeated = again.race([config(3), config(0), fast], rounds=64, repetitions=10)
    assert np.array_equal(blocks, repeated, equal_nan=True)


def test_a_replayed_race_says_what_it_cannot_do():
    with pytest.raises(UsageError, match=r"visits must be some of 0\.\.1"):
        ReplayRacer(make_landscape(), seed=0, visits=[2])
    with pytest.raises(UsageError, match="rounds and repetitions"):
        ReplayRacer(make_landscape(), seed=0).race([config(0)], rounds=0, repetitions=1)


# -- the evidence ---------------------------------------------------------------------------------


def test_the_evidence_covers_every_test_and_is_plain_data(monkeypatch):
    some = evidence.landscapes()[::8]
    monkeypatch.setattr(evidence, "landscapes", lambda: some)
    parser = argparse.ArgumentParser()
    evidence.add_arguments(parser)
    result = evidence.run(parser.parse_args(["--duels", "4", "--searches", "3"]))
    assert json.loads(json.dumps(result)) == json.loads(json.dumps(result, default=str))
    nulls = {row["test"]: row for row in result["level_total"]}
    assert len(nulls) == 4
    for row in nulls.values():
        assert row["duels"] >= 20
        assert row["replaced"]["confirmation"] <= 0.1 * row["duels"]
        assert row["without"]["one reading"] > 0.25, "without confirmation, luck decides"
    found = {row["test"]: row["rate"] for row in result["power_total"]}
    assert found["ratio 0.98"] > 0.8
    assert set(result["searches"]) == {"the default", "another search's best"}
    text = evidence.report(result)
    assert all(test in text for test in (*nulls, *found))
