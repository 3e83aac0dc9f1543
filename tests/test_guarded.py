import math

import numpy as np
import pytest

from kt_lab.confirm import Rule
from kt_lab.errors import UsageError
from kt_lab.evidence.repeated import compare_tuners, repeat_tunings, tuner_list
from kt_lab.guarded import RULE, guarded_pick
from kt_lab.landscape import load_landscape
from kt_lab.trial import Config
from tests.runners.tables import config
from tests.stats.exact_landscapes import exact
from tests.test_confirm import NEW, OLD, OTHERS, Stub, failing, normal


def pick(racer, apparent_us, **how):
    return guarded_pick(racer, incumbent=OLD, apparent_us=apparent_us, **how)


# -- exact cases ----------------------------------------------------------------------------------


def test_the_best_is_raced_and_confirmed_on_fresh_readings():
    racer = Stub({OLD: 11, NEW: 10, OTHERS[0]: 10.5, OTHERS[1]: 12})
    found = pick(racer, {OLD: 12, OTHERS[1]: 13, NEW: 10, OTHERS[0]: 9})
    assert found.config == NEW
    assert found.shortlist == (NEW, *OTHERS[:2])
    assert found.passed == (NEW, OTHERS[0])
    first, *duel = racer.calls
    assert first == ([OLD, NEW, *OTHERS[:2]], 20, RULE.repetitions)
    assert all(configs == [OLD, NEW] for configs, *_ in duel)
    assert found.confirmation.apparent_gain == pytest.approx(0.2)
    assert found.confirmation.gain == pytest.approx(0.1)
    assert found.launches == (4 * 20 + 2 * 8) * 10


def test_of_many_the_fastest_are_raced_and_of_equals_the_nearest():
    old = Config(A=0, B=0)
    near, far = [Config(A=0, B=i) for i in range(1, 9)], [Config(A=i, B=9) for i in range(1, 9)]
    screened = {c: 20.0 for c in near} | dict.fromkeys(far, 10.01) | {far[7]: 10.0, near[7]: 10.1}
    racer = Stub({old: 20, **screened}, noise=normal)
    found = guarded_pick(racer, incumbent=old, apparent_us=screened, field=4)
    assert set(racer.calls[0][0]) == {old, near[7], *far[:2], far[7]}
    assert found.config == near[7], "a simpler change that keeps 95 % of the gain"
    found = guarded_pick(racer, incumbent=old, apparent_us=screened, field=4, keep=1.0)
    assert found.config == far[0], "the first of those that no 0.2 % tells apart"


def test_heats_leave_a_shortlist_and_their_readings_are_not_used_again():
    latency = {OLD: 12, **{c: 10 + i for i, c in enumerate(OTHERS)}, NEW: 10.5}
    racer = Stub(latency)
    found = pick(racer, latency, shortlist=2)
    assert [(len(configs), rounds) for configs, rounds, _ in racer.calls[:2]] == [(10, 8), (2, 20)]
    assert (found.shortlist, found.config) == ((OTHERS[0],), OTHERS[0])
    equals = Stub(dict.fromkeys(latency, 10) | {OLD: 12})
    found = pick(equals, latency, shortlist=2)
    assert [rounds for _, rounds, _ in equals.calls[:4]] == [8, 8, 16, 20]
    assert found.shortlist == (NEW, OTHERS[0]), "a fixed order decides"


def test_rounds_are_added_while_it_is_open_who_is_picked_and_within_the_launches():
    latency = {OLD: 10, NEW: 9.96}
    long = Stub(latency, noise=normal)
    assert pick(long, latency).launches > (2 * 40 + 2 * 64) * 10
    short = Stub(latency, noise=normal)
    found = pick(short, latency, launches=1)
    assert sum(rounds for _, rounds, _ in short.calls) <= 20 + 64, "the floors are kept"
    assert found.confirmation.rule.rounds == 64
    clear = Stub({OLD: 12, NEW: 10}, noise=normal)
    assert pick(clear, latency).launches == (2 * 20 + 2 * 8) * 10


def test_the_incumbent_is_raced_whatever_it_read_and_ties_stay_with_it():
    racer = Stub({OLD: 10, NEW: 10})
    found = pick(racer, {NEW: 5})
    assert (found.config, found.passed) == (OLD, ())
    assert racer.calls == [([OLD, NEW], 20, 10)]
    assert found.launches == 2 * 20 * 10


def test_one_program_under_many_names_is_raced_once_and_the_incumbents_never():
    racer = Stub(dict.fromkeys([OLD, NEW, *OTHERS], 10))
    screened = {NEW: 9, OTHERS[0]: 9.5, OTHERS[1]: 9.6, OTHERS[2]: 9.7}
    names = {OLD: "h", NEW: "h", OTHERS[0]: "x", OTHERS[1]: "x", OTHERS[2]: "y"}
    assert pick(racer, screened, launch=names.get).shortlist == (OTHERS[0], OTHERS[2])
    alone = pick(Stub({OLD: 10}), {NEW: 9}, launch=names.get)
    assert (alone.config, alone.shortlist, alone.launches) == (OLD, (), 0)


def test_of_equals_the_one_nearest_to_the_incumbent_is_taken_whatever_the_screening_said():
    old = Config(BLOCK=16, WARPS=1, STAGES=1)
    near, far = Config(BLOCK=32, WARPS=1, STAGES=1), Config(BLOCK=64, WARPS=2, STAGES=2)
    latency = {old: 11, near: 10.001, far: 10}
    for screened in ({near: 9, far: 10}, {near: 10, far: 9}):
        found = guarded_pick(
            Stub(latency, noise=normal), incumbent=old, apparent_us=screened, shortlist=2
        )
        assert found.config == near
    latency[near] = 10.5
    found = guarded_pick(Stub(latency), incumbent=old, apparent_us=screened)
    assert found.config == far, "shown to be faster"


def test_failures_lose_and_a_failing_incumbent_is_replaced():
    racer = Stub({OLD: 11, NEW: 9, OTHERS[0]: 10}, change=failing(NEW))
    assert pick(racer, {NEW: 9, OTHERS[0]: 10}).config == OTHERS[0]
    racer = Stub({OLD: 8, NEW: 9, OTHERS[0]: 10}, change=failing(OLD))
    found = pick(racer, {NEW: 9, OTHERS[0]: 10})
    assert (found.config, found.confirmation.reason) == (NEW, "the incumbent failed")


def test_too_few_rounds_for_anybody_to_pass_are_refused():
    with pytest.raises(UsageError, match="rounds enough"):
        pick(Stub({OLD: 10}), {}, rounds=11)
    assert pick(Stub({OLD: 10}), {}, rounds=12).config == OLD
    for wrong in ({"field": 3}, {"shortlist": 0}, {"keep": 2.0}, {"keep": math.nan}):
        with pytest.raises(UsageError, match="needs field >= 4, shortlist >= 1 and keep in"):
            pick(Stub({OLD: 10}), {}, **wrong)


def test_holm_lets_pass_at_what_is_left_of_the_level():
    """Eleven rounds, two candidates, five looks: tails of 0.25 % and then 0.5 %, of 2048."""

    def read(configs, blocks, _call):
        close = np.full(len(blocks), 9.0)
        close[:3] = 10.001, 10.002, 10.003  # ranks 1, 2 and 3 against it: tail of 14 / 2048
        column = {OLD: np.full(len(blocks), 10.0), NEW: np.full(len(blocks), 9.0)}
        return np.stack([column.get(c, close) for c in configs], axis=1)

    def passed(change, level):
        racer = Stub({OLD: 1, NEW: 1, OTHERS[0]: 1}, change=change)
        rule = Rule(floor=0.0, rounds=8, race=8, level=level)
        screened = {NEW: 1, OTHERS[0]: 2}
        return pick(racer, screened, rounds=11, shortlist=2, launches=1, rule=rule).passed

    assert passed(read, 0.07) == (NEW, OTHERS[0]), "the second at 0.7 %, what is left"
    assert passed(read, 0.06) == (NEW,)

    def both_close(configs, blocks, call):
        out = read(configs, blocks, call)
        for at, name in enumerate(configs):
            out[:3, at] = out[:3, at] if name == OLD else (10.001, 10.002, 10.003)
        return out

    assert passed(both_close, 0.07) == (), "neither passes at half the level"


def test_identical_programs_replace_the_incumbent_as_rarely_as_promised():
    latency = dict.fromkeys([OLD, *OTHERS], 10)
    screened = dict.fromkeys(OTHERS, 10)
    rule = Rule(floor=0.0)
    found = [pick(Stub(latency, noise=normal, seed=s), screened, rule=rule) for s in range(150)]
    assert sum(bool(f.passed) for f in found) <= 12, "2.5 % of 150 and three deviations"
    assert sum(f.config != OLD for f in found) <= 2, "confirmed once more"


# -- many tunings by replay -----------------------------------------------------------------------


def test_without_noise_both_tuners_find_the_best_and_agree():
    latency = np.full(16, 100.0)
    latency[7] = 80.0
    made = exact(latency)
    names = [config(at) for at in (0, 3, 7, 9)]
    rows = compare_tuners(repeat_tunings(made, names, repeats=5)).set_index("tuner")
    for column, value in (("replaced", 1), ("agreement", 1), ("entropy_bits", 0), ("kept", 1)):
        assert rows[column].tolist() == pytest.approx([value, value])
    assert rows["true_gain"].tolist() == pytest.approx([0.25, 0.25])
    assert rows["apparent_gain"].tolist() == pytest.approx([0.25, 0.25])
    assert rows.loc["guarded", "confirmed_gain"] == pytest.approx(0.25)
    assert rows["regressions"].eq(0).all()
    assert rows["rate_high"].iloc[0] == pytest.approx(1 - 0.05 ** (1 / 5))
    assert rows["worst_share"].iloc[0] == pytest.approx(0.05 ** (1 / 5))
    # do_bench: (6 + 1000) launches with a flush and 250 without, at 100 us (1250 and 312 at 80)
    naive_s = 3 * (1006 * 180 + 250 * 100) + 1256 * 160 + 312 * 80
    assert rows.loc["naive", "timing_s"] == pytest.approx(naive_s * 1e-6, rel=1e-3)
    # ten launches of each; the race of 4 over 20 rounds and the duel of 2 over 8, blocks of 10
    guarded_s = 10 * (3 * 180 + 160) + (4 * 20 + 2 * 8) * 10 * 180
    assert rows.loc["guarded", "timing_s"] == pytest.approx(guarded_s * 1e-6, rel=1e-3)


def test_a_lucky_visit_fools_the_naive_tuner_half_the_time_and_the_guarded_never():
    lucky, other = np.full(16, 100.0), np.full(16, 100.0)
    lucky[7], other[7] = 90.0, 130.0  # slower on average
    made = exact(lucky, other=other)
    tunings = repeat_tunings(made, [config(0), config(7)], repeats=40)
    rows = compare_tuners(tunings).set_index("tuner")
    assert 8 <= rows.loc["naive", "regressions"] <= 32
    assert rows.loc["naive", "apparent_gain"] > 0.01 > 0 > rows.loc["naive", "true_gain"]
    assert rows.loc["naive", "worst"] > 0.05
    assert rows.loc["naive", "entropy_bits"] > 0.7
    assert rows.loc["guarded", ["replaced", "regressions", "worst"]].eq(0).all()
    assert rows.loc["guarded", "agreement"] == 1
    again = repeat_tunings(made, [config(0), config(7)], repeats=40)
    assert again.equals(tunings)


def test_what_one_day_shows_is_judged_by_the_other():
    one, other = np.full(16, 100.0), np.full(16, 100.0)
    one[7], other[7] = 90.0, 110.0
    rows = repeat_tunings(
        exact(one, other=other), [config(0), config(7)], repeats=4, held_out=True
    )
    for _, tuner in rows.groupby("tuner"):
        assert tuner["true_gain"].tolist() == pytest.approx([0, 100 / 110 - 1] * 2)
        assert tuner["oracle_gain"].tolist() == pytest.approx([0, 100 / 110 - 1] * 2)
    assert rows["confirmed_gain"].dropna().tolist() == pytest.approx([0, 1 / 9] * 2)


def test_a_published_list_without_the_incumbent_has_no_way_back():
    latency = np.full(16, 100.0)
    latency[5], latency[6] = 110.0, 120.0
    rows = repeat_tunings(exact(latency), [config(5), config(6)], repeats=2)
    naive, guarded = (rows[rows["tuner"] == tuner] for tuner in ("naive", "guarded"))
    assert naive["config"].tolist() == [config(5)] * 2
    assert naive["true_gain"].tolist() == pytest.approx([100 / 110 - 1] * 2)
    assert naive["apparent_gain"].isna().all()
    assert guarded["config"].tolist() == [config(0)] * 2


def test_recorded_noise_fools_the_naive_tuner_of_few_samples_and_not_the_guarded():
    made = load_landscape("rms_norm/16x8192", gpu="h200")
    names = tuner_list(made, 24, seed=3)
    best = min(names, key=lambda c: made.latency_us[made.index(c)])
    rows = compare_tuners(repeat_tunings(made, names, incumbent=best, launches=2, repeats=40))
    naive, guarded = rows.to_dict("records")
    assert naive["regressions"] > 0 == guarded["regressions"]
    assert guarded["agreement"] >= 0.95 > naive["agreement"]
    assert guarded["timing_ratio"] < 1.5


def test_a_list_begins_with_the_default_and_a_failing_incumbent_is_refused():
    latency = np.full(16, 100.0)
    latency[0] = np.nan
    made = exact(latency)
    assert tuner_list(made, 4, seed=0)[0] == config(0)
    assert len(set(tuner_list(made, 16, seed=0))) == 16
    with pytest.raises(UsageError, match="the incumbent must run"):
        repeat_tunings(made, [config(1)])
    found = repeat_tunings(made, [config(1)], incumbent=config(2), repeats=1)
    assert found["replaced"].tolist()[1] is False
