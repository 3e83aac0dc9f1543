"""TPE: what Optuna is told, and where."""

import math
import time
import warnings

import optuna
import pytest
from optuna.trial import TrialState

from kt_lab.budget import Budget
from kt_lab.runners.synthetic import SyntheticLandscape, SyntheticRunner
from kt_lab.search import make_searcher
from kt_lab.search.conformance_cases import bowl, broken, drive, small_space, tiny_space
from kt_lab.space import Constraint, Flag, Integer, ParameterSpace
from kt_lab.trial import Config, Measurement, Proposal, Trial
from kt_lab.tune import tune


def tpe(space, **options):
    return make_searcher("tpe", space, seed=0, **options)


def states(searcher, state):
    return searcher._study.get_trials(deepcopy=False, states=(state,))


def configs_of(searcher, state):
    space = searcher.space
    return [space.config([t.params[n] for n in space.names]) for t in states(searcher, state)]


def strict_space():
    return ParameterSpace(
        [Integer("a", 0, 19), Integer("b", 0, 19)],
        constraints=[Constraint("band", "abs(a - b) <= 1")],
        default={"a": 0, "b": 0},
    )


def slope(config):
    return Measurement("ok", (100.0 + config["a"] + config["b"],))


def test_the_flags_are_optuna_fives_defaults():
    assert optuna.__version__.startswith("5.")
    ours = tpe(small_space())
    ours.ask(1)
    sampler, default = ours._study.sampler, optuna.samplers.TPESampler(seed=0)
    for flag in (
        "_n_startup_trials",
        "_n_ei_candidates",
        "_multivariate",
        "_constant_liar",
        "_group",
    ):
        assert getattr(sampler, flag) == getattr(default, flag), flag
    assert sampler._is_multivariate(ours._study)


def test_parameters_become_index_distributions():
    searcher = tpe(small_space())
    searcher.ask(1)
    kinds = {n: type(d).__name__ for n, d in searcher._distributions.items()}
    assert kinds == {
        "BLOCK_M": "IntDistribution",
        "BLOCK_N": "IntDistribution",
        "num_warps": "IntDistribution",
        "num_stages": "IntDistribution",
        "order": "CategoricalDistribution",
        "persistent": "CategoricalDistribution",
    }
    assert (searcher._distributions["BLOCK_M"].low, searcher._distributions["BLOCK_M"].high) == (
        0,
        3,
    )


def test_pending_configs_run_in_optuna_where_they_were_moved_to():
    searcher = tpe(strict_space())
    asked = searcher.ask(12)  # nine in ten uniform draws are outside the band
    assert searcher.projected_invalid > 0
    assert configs_of(searcher, TrialState.RUNNING) == [p.config for p in asked]
    assert len(states(searcher, TrialState.FAIL)) == (
        searcher.projected_invalid + searcher.projected_duplicate
    )
    assert {p.origin for p in asked} == {"tpe", "projected"}


def test_results_are_told_at_the_position_that_was_measured():
    searcher = tpe(strict_space())
    proposals = drive(searcher, slope, trials=40, order=lambda told: told[::-1])
    found = dict(
        zip(
            configs_of(searcher, TrialState.COMPLETE),
            [t.value for t in states(searcher, TrialState.COMPLETE)],
            strict=True,
        )
    )
    assert found == {p.config: slope(p.config).latency_us for p in proposals}
    assert states(searcher, TrialState.RUNNING) == []


def test_the_constant_liar_sees_running_trials_that_were_added(monkeypatch):
    searcher = tpe(strict_space(), n_startup_trials=2)
    drive(searcher, slope, trials=6)
    pending = [p.config for p in searcher.ask(4)]
    seen = []
    sampler = searcher._study.sampler
    build = sampler._build_parzen_estimator

    def spy(study, search_space, trials, handle_below):
        if not handle_below:
            running = [t for t in trials if t.state == TrialState.RUNNING]
            rows = sampler._get_internal_repr(running, search_space, study)
            seen.append(list(zip(*(rows[n].astype(int) for n in ("a", "b")), strict=True)))
        return build(study, search_space, trials, handle_below)

    monkeypatch.setattr(sampler, "_build_parzen_estimator", spy)
    searcher.ask(1)
    assert seen[0] == [(c["a"], c["b"]) for c in pending]


def test_every_config_is_proposed_once_then_it_is_done():
    searcher = tpe(strict_space(), n_startup_trials=3)
    proposals = drive(searcher, slope, trials=1000)
    assert len(proposals) == len({p.config for p in proposals}) == 58
    assert searcher.done
    assert searcher.projected_duplicate > 0


def test_failures_are_told_as_worse_than_everything_and_never_as_fail():
    space = tiny_space(6)
    searcher = tpe(space, project=False)
    drive(searcher, lambda c: broken(c) if c["step"] % 2 else bowl(space)(c), trials=30)
    assert states(searcher, TrialState.FAIL) == []
    values = dict(
        zip(
            [c["step"] for c in configs_of(searcher, TrialState.COMPLETE)],
            [t.value for t in states(searcher, TrialState.COMPLETE)],
            strict=True,
        )
    )
    assert all(values[s] == math.inf for s in values if s % 2)
    assert all(values[s] < math.inf for s in values if s % 2 == 0)


def test_a_censored_reading_is_told_as_its_bound():
    searcher = tpe(tiny_space())
    [proposal] = searcher.ask(1)
    searcher.tell([Trial(0, proposal, Measurement("censored", (70.0, 60.0)))])
    assert [t.value for t in states(searcher, TrialState.COMPLETE)] == [60.0]


def test_foreign_readings_and_repeats_become_observations():
    space = tiny_space()
    searcher = tpe(space)
    foreign = Config(step=4)
    searcher.tell([Trial(0, Proposal(77, foreign), Measurement("ok", (5.0,)))])
    asked = searcher.ask(9)
    assert foreign not in {p.config for p in asked}
    assert len(asked) == 4
    told = [Trial(0, asked[0], Measurement("ok", (9.0,)))] * 2
    searcher.tell(told)
    assert [t.value for t in states(searcher, TrialState.COMPLETE)] == [5.0, 9.0, 9.0]
    alien = Config(elsewhere=1)
    searcher.tell([Trial(0, Proposal(asked[1].id, alien), Measurement("ok", (1.0,)))])
    assert len(states(searcher, TrialState.COMPLETE)) == 3


def test_without_projection_infeasible_asks_burn_and_repeats_are_measured():
    searcher = tpe(strict_space(), project=False)
    proposals = drive(searcher, slope, trials=60)
    assert searcher.burnt > 0
    assert searcher.repeated > 0
    assert len({p.config for p in proposals}) < len(proposals)
    assert searcher.projected_invalid == searcher.projected_duplicate == 0
    burnt = [t for t in states(searcher, TrialState.COMPLETE) if t.value == math.inf]
    assert len(burnt) == searcher.burnt


def test_without_projection_a_stuck_sampler_falls_back_to_random_and_ends():
    searcher = tpe(tiny_space(8), project=False, max_burnt=3)
    proposals = drive(searcher, bowl(tiny_space(8)), trials=500, batch=1)
    assert {p.config["step"] for p in proposals} == set(range(8))
    assert "random" in {p.origin for p in proposals}
    assert searcher.done


def test_optuna_is_silent_and_its_verbosity_is_kept(capfd):
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            drive(tpe(strict_space()), slope, trials=30)
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
    finally:
        optuna.logging.set_verbosity(before)
    assert capfd.readouterr() == ("", "")


def test_it_learns():
    space = ParameterSpace([Integer(n, 0, 31) for n in "ab"], default={"a": 31, "b": 31})
    proposals = drive(tpe(space), slope, trials=80)
    late = [slope(p.config).latency_us for p in proposals[-30:]]
    early = [slope(p.config).latency_us for p in proposals[:10]]
    assert sum(late) / 30 < sum(early) / 10 - 10


@pytest.mark.parametrize("trials", [120])
def test_an_ask_costs_milliseconds(trials):
    space = small_space()
    searcher = tpe(space)
    started = time.process_time()
    drive(searcher, bowl(space), trials=trials)
    assert (time.process_time() - started) / trials < 0.03


def test_an_integer_from_0_to_1_is_a_number_and_a_flag_is_not():
    space = ParameterSpace(
        [Integer("stages", 0, 1), Flag("fast")], default={"stages": 0, "fast": False}
    )
    searcher = make_searcher("tpe", space, seed=0)
    searcher.ask(1)
    kinds = {name: type(d).__name__ for name, d in searcher._distributions.items()}
    assert kinds == {"stages": "IntDistribution", "fast": "CategoricalDistribution"}


def test_without_projection_a_spent_budget_ends_the_run_on_many_lanes():
    """Repeats spend no trial, and with some in flight there is always another answer to come."""
    space, budget = small_space(), Budget(trials=10)
    searcher = tpe(space, project=False, budget=budget)
    runner = SyntheticRunner(SyntheticLandscape(space, seed=0), compile_lanes=16)
    history = tune(searcher, runner, budget=budget)
    assert sum(t.first for t in history) == 10
    assert len(history) < 30
    assert searcher.done


def test_members_far_from_what_optuna_asks_are_drawn():
    names = [f"p{i}" for i in range(16)]
    laws = [Constraint(f"same_{i}", f"p{i} == p{i + 1}") for i in range(0, 8, 2)]
    space = ParameterSpace(
        [Integer(name, 0, 9) for name in names], constraints=laws, default=dict.fromkeys(names, 0)
    )
    searcher = make_searcher("tpe", space, seed=0)
    asked = [p.config for _ in range(12) for p in searcher.ask(1)]
    assert len(set(asked)) == 12
    assert all(space.contains(config) for config in asked)
