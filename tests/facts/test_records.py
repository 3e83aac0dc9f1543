import math
import pickle

import pytest

from kt_lab.budget import Budget, Spent
from kt_lab.clock import Job, RealClock, SimulatedClock
from kt_lab.errors import BudgetError, UnknownName, UsageError
from kt_lab.trial import Config, History, Measurement, Proposal, Trial


def _trial(number, name, latency, *, repetitions=3, status="ok", first=True):
    samples = (float(latency),) * repetitions if status == "ok" else ()
    return Trial(number, Proposal(number, Config(a=name)), Measurement(status, samples), first)


def test_a_config_is_immutable_hashable_and_equal_by_content():
    config = Config({"a": 1, "b": "x"})
    assert config == Config(b="x", a=1) == {"a": 1, "b": "x"}
    assert hash(config) == hash(Config(b="x", a=1))
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(TypeError):
        config["a"] = 2


def test_latency_is_the_median_and_null_unless_ok():
    assert Measurement("ok", (1.0, 5.0, 3.0)).latency_us == 3.0
    censored = Measurement("censored", (9.0, 8.0))
    assert censored.latency_us is None
    assert censored.bound_us == 8.0
    assert Measurement("timeout").latency_us is None


def test_a_measurement_refuses_unknown_statuses_and_successes_that_cannot_be():
    with pytest.raises(UsageError, match="status must be one of"):
        Measurement("fine")
    for wrong in ((), (0.0,), (3.0, -1.0), (math.nan,), (3.0, math.nan)):
        with pytest.raises(UsageError, match=r"needs samples, each above 0 µs, got \("):
            Measurement("ok", wrong)


def test_the_incumbent_stands_on_the_most_careful_latest_reading():
    history = History(
        [
            _trial(0, "a", 10),
            _trial(1, "b", 8),  # a lucky quick reading ...
            _trial(2, "b", 12, repetitions=9, first=False),  # ... that a careful one corrects
            _trial(3, "b", 5, repetitions=2, first=False),  # and a sloppy one does not undo
            _trial(4, "c", 0, status="crashed"),
        ]
    )
    assert history.incumbent.config == Config(a="a")
    assert history.readings[Config(a="b")].latency_us == 12
    assert history.trials_spent == 3
    assert history.count("crashed") == 1


def test_a_history_without_success_has_no_incumbent():
    assert History([_trial(0, "a", 0, status="timeout")]).incumbent is None
    assert History().incumbent is None


def test_a_budget_is_done_when_either_limit_is_reached():
    budget = Budget(trials=2, seconds=10)
    assert not budget.done(Spent(trials=1, seconds=9.9))
    assert budget.done(Spent(trials=2, seconds=0))
    assert budget.done(Spent(trials=0, seconds=10))
    assert Budget(trials=1).left(Spent()).seconds == math.inf


@pytest.mark.parametrize(
    ("limit", "value"),
    [("trials", value) for value in (None, 0, 1.5, math.inf, math.nan)]
    + [("seconds", value) for value in (0, math.inf, math.nan)]
    + [(limit, value) for limit in ("trials", "seconds") for value in ("100", True, [5])],
)
def test_a_budget_that_allows_nothing_is_refused(limit, value):
    with pytest.raises(BudgetError, match="got"):
        Budget(**{limit: value})


def _run(clock, jobs):
    for tag, compile_s, timing_s in jobs:
        clock.submit(
            Job(
                tag,
                None if compile_s is None else lambda _, s=compile_s: s,
                None if timing_s is None else lambda s=timing_s: s,
            )
        )
    ends = []
    while clock.pending:
        tag = clock.next()
        ends.append((tag, clock.now))
    return ends


def test_one_lane_compiles_in_turn_and_overlaps_timing():
    ends = _run(SimulatedClock(compile_lanes=1), [("a", 2, 1), ("b", 2, 1), ("c", 2, 5)])
    assert ends == [("a", 3), ("b", 5), ("c", 11)]


def test_many_lanes_share_one_timing_lane():
    ends = _run(SimulatedClock(compile_lanes=3), [("a", 2, 1), ("b", 2, 1), ("c", 1, 4)])
    assert ends == [("c", 5), ("a", 6), ("b", 7)]


def test_without_overlap_timing_waits_for_the_whole_batch():
    clock = SimulatedClock(compile_lanes=1, overlap=False)
    assert _run(clock, [("a", 2, 1), ("b", 2, 1)]) == [("a", 5), ("b", 6)]
    assert clock.timing_busy_s == 2


def test_failures_end_with_their_compilation_and_repeats_need_none():
    ends = _run(SimulatedClock(compile_lanes=2), [("bad", 3, None), ("again", None, 1)])
    assert ends == [("again", 1), ("bad", 3)]


def test_lanes_know_how_many_compile_at_once():
    seen = []
    clock = SimulatedClock(compile_lanes=2)
    for _ in range(3):
        clock.submit(Job("x", lambda active: seen.append(active) or 1.0, None))
    assert clock.free == 0
    while clock.pending:
        clock.next()
    assert seen == [1, 2, 2]
    with pytest.raises(UsageError, match="pending job"):
        clock.next()


def test_the_real_clock_starts_at_zero_and_never_goes_back():
    clock = RealClock()
    first = clock.now
    assert 0 <= first <= clock.now


def test_an_unknown_name_lists_the_nearest():
    error = UnknownName("searcher", "lfbo_patern", ["lfbo_pattern", "pattern", "random"])
    assert "did you mean 'lfbo_pattern'" in str(error)
    assert isinstance(error, ValueError)


def test_a_name_that_is_known_twice_is_offered_once():
    known = [f"rms_norm/{n}x4096" for n in (2048, 8192)] * 2
    said = str(UnknownName("workload", "rms_norm/8192x409", known))
    assert said.count("'rms_norm/8192x4096'") == 1
    assert said.endswith("known: rms_norm/2048x4096, rms_norm/8192x4096")


def test_many_known_names_are_counted_and_few_are_sorted_by_their_numbers():
    many = [f"softmax/{n}x640" for n in range(1, 121)]
    said = str(UnknownName("workload", "softmax/4096x641", many))
    assert "did you mean " in said
    assert said.endswith("? 120 are known: kt-lab list workloads")
    assert str(UnknownName("extent", "?", map(str, range(20)))).endswith(", such as 0, 1, 2")
    assert str(UnknownName("value", "3", ["16", "2", "8"])).endswith("known: 2, 8, 16")


@pytest.mark.parametrize(
    ("config", "asked", "law"),
    [
        ({"a": 1}, {}, r"config must be a Config, got \{'a': 1\}; write Config\("),
        (Config(a=1), {"repetitions": 0}, "repetitions must be a whole number >= 1, got"),
        (Config(a=1), {"repetitions": 2.5}, "repetitions must be a whole number >= 1, got"),
        (Config(a=1), {"cutoff_us": -1}, "cutoff_us must be > 0 microseconds, got cutoff_us=-1"),
    ],
)
def test_a_proposal_that_asks_for_nothing_measurable_is_refused(config, asked, law):
    with pytest.raises(UsageError, match=law):
        Proposal(0, config, **asked)
