"""Scout: its features, its posterior, what it chooses, and that it finds what others do not."""

import functools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.utils.parallel import ThreadpoolController

from kt_lab.budget import Budget
from kt_lab.landscape import load_landscape
from kt_lab.prior import Prior, PriorReading
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import drawing, make_searcher
from kt_lab.search import scout as scout_module
from kt_lab.search.conformance import check_searcher
from kt_lab.search.conformance_cases import (
    bowl,
    broken,
    drive,
    flat,
    huge_space,
    small_space,
    tiny_space,
)
from kt_lab.search.drawing import unlike
from kt_lab.search.epochs import Epochs
from kt_lab.search.features import Features
from kt_lab.search.neighbourhood import mutated_rows, reshaped_rows
from kt_lab.search.posterior import Posterior, Scales, _loss, held, log_improvement
from kt_lab.search.scout_options import ScoutOptions
from kt_lab.space import Choice, Constraint, Flag, Integer, ParameterSpace, PowerOfTwo
from kt_lab.trial import Measurement, Proposal, Trial
from kt_lab.tune import tune


def scout(space, **options):
    return make_searcher("scout", space, **{"seed": 0, **options})


# -- features -------------------------------------------------------------------------------------


def test_a_parameter_is_a_group_and_roles_and_laws_add_theirs():
    space = small_space()
    rows = space.enumerate()
    features = Features(space, rows)
    x = features(rows)
    # BLOCK_M, BLOCK_N, num_warps, num_stages, order (3 columns), persistent, then the area and
    # the elements per warp; the law's BLOCK_M * BLOCK_N is the area once more
    assert features.groups.tolist() == [0, 1, 2, 3, 4, 4, 4, 5, 6, 7]
    assert x.shape == (len(rows), 10)
    assert x.min() == 0.0
    assert x.max() == 1.0
    area = np.log2([c["BLOCK_M"] * c["BLOCK_N"] for c in space.configs(rows)])
    assert np.corrcoef(x[:, 8], area)[0, 1] == pytest.approx(1.0)
    thread = area - np.log2([c["num_warps"] for c in space.configs(rows)])
    assert np.corrcoef(x[:, 9], thread)[0, 1] == pytest.approx(1.0)


def test_both_sides_of_a_law_become_features_and_what_is_no_number_does_not():
    space = ParameterSpace(
        [
            PowerOfTwo("A", 1, 64),
            Integer("stages", 1, 4),
            Choice("kind", ("x", "y")),
            Flag("on"),
            PowerOfTwo("fixed", 8, 8),
        ],
        constraints=[
            Constraint("room", "stages * A * 3 <= max(A, 100) + stages"),
            Constraint("words", "kind == 'x' or (A > 1 and kind in ('x', 'y'))"),
        ],
        default={"A": 2, "stages": 1, "kind": "x", "on": False, "fixed": 8},
    )
    rows = space.enumerate()
    features = Features(space, rows)
    assert features.groups.tolist() == [0, 1, 2, 2, 3, 4, 5]
    a, stages = (np.asarray([c[n] for c in space.configs(rows)]) for n in ("A", "stages"))
    x = features(rows)
    for column, side in ((x[:, 5], stages * a * 3), (x[:, 6], np.maximum(a, 100) + stages)):
        assert np.corrcoef(column, np.log2(1 + side))[0, 1] == pytest.approx(1.0)


def test_any_two_alternatives_are_one_apart():
    features = Features(small_space(), small_space().enumerate())
    rows = np.asarray([[0, 0, 0, 0, choice, 0] for choice in range(3)])
    x = features(rows)
    apart = np.linalg.norm(x[:, None] - x[None], axis=-1)
    assert apart == pytest.approx(1.0 - np.eye(3))


# -- the posterior --------------------------------------------------------------------------------


def some(n=12, pool=40, seed=0):
    rng = np.random.default_rng(seed)
    scales = Scales.of(np.array([0, 1, 1, 2]), np.empty(0))
    x, candidates = rng.random((n, 4)), rng.random((pool, 4))
    scales.fit(x, np.sin(5 * x[:, 0]) + 0.1 * rng.normal(size=n))
    return scales, x, candidates, rng.normal(size=n)


def test_the_gradient_is_the_differences():
    rng = np.random.default_rng(1)
    x, y = rng.random((15, 3)), rng.normal(size=15)
    apart = np.stack([(c[:, None] - c) ** 2 for c in x.T])
    theta, prior = rng.normal(size=4), np.array([0.1, 0.2, 0.3, -3.0])
    linear = 0.3 * np.outer(y, y)
    gradient = _loss(theta, prior, apart, linear, y)[1]
    for i in range(4):
        step = np.eye(4)[i] * 1e-5
        high, low = (_loss(theta + s, prior, apart, linear, y)[0] for s in (step, -step))
        assert gradient[i] == pytest.approx((high - low) / 2e-5, rel=1e-4, abs=1e-6)


def test_length_scales_tell_what_matters():
    rng = np.random.default_rng(0)
    x = rng.random((80, 3))
    scales = Scales.of(np.arange(3), np.empty(0))
    y = np.sin(6 * x[:, 1])
    scales.fit(x, (y - y.mean()) / y.std())
    assert scales.theta[1] < min(scales.theta[0], scales.theta[2]) - 0.5


def test_main_effects_are_standardised_curves():
    space = ParameterSpace(
        [
            PowerOfTwo("BLOCK", 16, 128, role="tile"),
            Choice("order", ("a", "b", "c")),
            Flag("split"),
        ],
        default={"BLOCK": 16, "order": "a", "split": False},
    )
    rows = space.enumerate()
    features = Features(space, rows)
    x = features(rows)
    made = features.effects(x)
    assert made.shape == (space.size, x.shape[1] + 2)  # the squares of BLOCK and split
    assert made.mean(axis=0) == pytest.approx(0.0)
    assert made.std(axis=0) == pytest.approx([1.0] * (x.shape[1] + 1) + [0.0])  # two places
    assert features.effects(x[:3]) == pytest.approx(made[:3])


def test_with_main_effects_few_readings_suffice_for_a_sum_of_curves():
    space = ParameterSpace(
        [Integer(name, 0, 5) for name in "abcde"], default=dict.fromkeys("abcde", 0)
    )
    rows = space.enumerate()
    features = Features(space, rows)
    x = features(rows)
    y = ((x - [0.2, 0.9, 0.5, 0.1, 0.7]) ** 2).sum(axis=1)
    y = (y - y.mean()) / y.std()
    few = np.random.default_rng(0).choice(len(rows), 24, replace=False)
    error = {}
    for spread in (0.0, 0.5):
        seen = np.hstack([x, features.effects(x)])
        count = seen.shape[1] - x.shape[1]
        scales = Scales.of(features.groups, np.full(count, (spread / count) ** 0.5))
        scales.fit(seen[few], y[few])
        mean = Posterior(scales, seen[few], seen).predict(y[few])[1]
        error[spread] = np.sqrt(np.mean((mean - y) ** 2))
    assert error[0.5] < 0.5 * error[0.0]


def test_a_search_with_main_effects_differs_and_finds_the_best():
    space = small_space()
    best = min(bowl(space)(c).latency_us for c in space.configs(space.enumerate()))
    asked = {}
    for effects in (0.0, 0.5):
        proposals = drive(scout(space, effects=effects), bowl(space), trials=40, batch=4)
        asked[effects] = [p.config for p in proposals]
        assert min(bowl(space)(c).latency_us for c in asked[effects]) == best
    assert asked[0.0] != asked[0.5]


def test_adding_one_by_one_is_the_closed_form():
    scales, x, pool, y = some()
    grown = Posterior(scales, x[:5], pool)
    for row in x[5:]:
        grown.add(row)
    inverse = np.linalg.inv(scales.kernel(x, x) + scales.noise * np.eye(len(x)))
    cross = scales.kernel(pool, x)
    seen, mean = grown.predict(y)
    assert mean == pytest.approx(scales.centre + cross @ inverse @ (y - scales.centre))
    at = scales.kernel(x, x) @ inverse @ (y - scales.centre)
    assert seen == pytest.approx(scales.centre + at)
    variance = 1.0 - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    assert grown.deviation() ** 2 == pytest.approx(variance * scales.variance, abs=1e-9)


def test_what_is_under_way_lowers_the_deviation_and_leaves_the_mean():
    scales, x, pool, y = some()
    told = Posterior(scales, x, pool)
    mean, before = told.predict(y)[1], told.deviation()
    told.add(pool[3])
    told.add(pool[7])
    after = told.predict(np.append(y, [np.nan, np.nan]))[1]
    assert after == pytest.approx(mean)
    assert (told.deviation() <= before + 1e-12).all()
    assert told.deviation()[3] < 0.5 * before[3]


def test_a_model_of_many_readings_holds_the_best_what_is_under_way_and_some_others():
    y = np.random.default_rng(0).permutation(np.arange(100.0))
    y[7] = np.nan
    kept = held(y, most=20, rng=np.random.default_rng(1))
    assert len(set(kept)) == 20
    assert 7 in kept
    assert set(np.argsort(y)[:9]) <= set(kept)
    assert max(y[kept[10:]]) > 50  # what is slow is remembered as well
    assert held(y[:20], most=20, rng=None).tolist() == list(range(20))


def test_two_quantities_are_predicted_as_each_by_itself():
    rng = np.random.default_rng(3)
    x, pool = rng.random((30, 2)), rng.random((50, 2))
    scales = Scales.of(np.arange(2), np.empty(0))
    posterior = Posterior(scales, x[:28], pool)
    for row in x[28:]:
        posterior.add(row)
    y = np.stack([np.sin(6 * x[:, 0]), (x[:, 1] > 0.5).astype(float)], axis=1)
    y[[3, 29]] = np.nan
    seen, mean = posterior.predict(y, centre=np.asarray([0.1, 0.7]))
    for at, centre in enumerate((0.1, 0.7)):
        alone = posterior.predict(y[:, at], centre=centre)
        np.testing.assert_allclose(seen[:, at], alone[0], atol=1e-9)
        np.testing.assert_allclose(mean[:, at], alone[1], atol=1e-9)


def test_the_improvement_is_right_near_and_far():
    from scipy.stats import norm

    z = np.array([-5.0, -1.0, 0.0, 2.0])
    assert log_improvement(z) == pytest.approx(np.log(norm.pdf(z) + z * norm.cdf(z)))
    far = log_improvement(np.array([-1e3, -100.0, -30.0, 20.0]))
    assert np.isfinite(far).all()
    assert (np.diff(far) > 0).all()


# -- the search -----------------------------------------------------------------------------------


def test_the_default_and_the_prior_come_first():
    space = small_space()
    others = space.configs(space.enumerate()[[5, 77]])
    prior = Prior(tuple(PriorReading(c, 1.0, "a/b", "gpu") for c in others))
    asked = scout(space, prior=prior).ask(4)
    assert [p.config for p in asked[:3]] == [space.default, *others]
    assert {(p.origin, p.generation, p.predicted) for p in asked} == {("start", 0, None)}


@pytest.mark.parametrize(
    ("limits", "starts", "share"),
    [
        (None, 4, 0.25),
        (Budget(trials=100), 4, 0.25),
        (Budget(seconds=60.0), 16, 8.0),
        (Budget(trials=100, seconds=60.0), 16, 8.0),
    ],
)
def test_few_are_under_way_unless_seconds_are_scarce(limits, starts, share):
    space, evaluate = small_space(), bowl(small_space())
    searcher = scout(space, budget=limits)
    under_way = searcher.ask(50)
    assert len(under_way) == starts
    assert searcher.ask(50) == []
    for told in range(1, 41):
        first = under_way.pop(0)
        searcher.tell([Trial(told - 1, first, evaluate(first.config))])
        under_way += searcher.ask(50 - len(under_way))
        assert len(under_way) == min(50, max(starts, int(share * told)))
    assert len({p.config for p in under_way}) == len(under_way)


@pytest.mark.parametrize(("compile_s", "measure_s", "most"), [(1.0, 0.5, 6), (0.0, 0.2, 2)])
def test_where_seconds_are_scarce_no_more_are_under_way_than_keep_the_machine_busy(
    compile_s, measure_s, most
):
    evaluate, spent = bowl(small_space()), {"compile_s": compile_s, "measure_s": measure_s}

    def under_way(budget):
        searcher = scout(small_space(), budget=budget, ahead=8.0)
        asked = searcher.ask(50)
        readings = [replace(evaluate(p.config), **spent) for p in asked]
        searcher.tell(
            [Trial(n, p, r) for n, (p, r) in enumerate(zip(asked, readings, strict=True))]
        )
        return len(searcher.ask(50))

    assert under_way(Budget(seconds=60.0)) == most  # twice one measured, and those compiled then
    assert under_way(Budget(trials=100)) == 32  # trials are counted: seconds say nothing


@pytest.mark.parametrize(("lanes", "starts"), [(1, 4), (2, 4), (6, 12), (8, 16), (50, 16)])
def test_where_seconds_are_scarce_there_are_twice_as_many_starts_as_lanes(lanes, starts):
    searcher = scout(small_space(), budget=Budget(seconds=60.0))
    origins = [p.origin for p in drive(searcher, bowl(small_space()), trials=30, batch=lanes)]
    assert origins.index("model") == starts


def test_what_is_known_needs_no_more_starts_though_seconds_are_scarce():
    space, limits = small_space(), Budget(seconds=60.0)
    prior = Prior((PriorReading(space.default, 10.0, "other", "h200"),))
    assert len(scout(space, budget=limits, prior=prior).ask(50)) == 4
    assert len(scout(space, budget=limits, prior=Prior(())).ask(50)) == 16


@pytest.mark.parametrize(
    ("budget", "own", "another"),
    [
        (None, {"starts": 3, "ahead": 0.25}, {"ahead": 1.0}),
        (Budget(seconds=60.0), {"starts": 4, "ahead": 1.0}, {"ahead": 0.25}),
    ],
)
def test_what_is_known_is_searched_without_main_effects_and_no_further_ahead_than_asked(
    budget, own, another
):
    space = small_space()
    prior = Prior((PriorReading(space.default, 10.0, "other", "h200"),))

    def configs(**options):
        searcher = scout(space, prior=prior, budget=budget, **options)
        return [p.config for p in drive(searcher, bowl(space), trials=30, batch=8)]

    assert configs() == configs(**own, effects=0.0)
    assert configs() != configs(**another)
    assert configs() != configs(effects=0.5)


def test_nothing_is_thought_of_beyond_the_trials_of_the_budget():
    space, evaluate = small_space(), bowl(small_space())
    searcher = scout(space, budget=Budget(trials=10), ahead=1000.0)
    asked = searcher.ask(50)
    searcher.tell([Trial(n, p, evaluate(p.config)) for n, p in enumerate(asked)])
    last = searcher.ask(50)
    assert len(asked + last) == 10
    assert not searcher.done
    assert searcher.ask(50) == []
    assert searcher.done  # whoever loops until it is must come to an end
    searcher.tell([Trial(len(asked) + n, p, evaluate(p.config)) for n, p in enumerate(last)])
    assert len(drive(scout(space), evaluate, trials=12)) == 12  # no budget, no end


def test_as_many_as_asked_for_are_under_way():
    searcher = scout(small_space(), starts=6, ahead=1.0)
    evaluate, under_way = bowl(small_space()), searcher.ask(50)
    assert len(under_way) == 6
    for told in range(1, 20):
        first = under_way.pop(0)
        searcher.tell([Trial(told - 1, first, evaluate(first.config))])
        under_way += searcher.ask(50)
        assert len(under_way) == max(6, told)


def test_a_bowl_is_solved_in_few_trials():
    space = small_space()
    evaluate = bowl(space)
    best = min(evaluate(c).latency_us for c in space.configs(space.enumerate()))
    for seed in range(3):
        found = drive(scout(space, seed=seed), evaluate, trials=40, batch=4)
        assert min(evaluate(p.config).latency_us for p in found) < 1.005 * best


def test_it_beats_random_search_where_nothing_can_be_listed():
    space = huge_space()
    evaluate = bowl(space, failing=0.2)
    best = {}
    for name in ("scout", "random"):
        found = [
            min(
                evaluate(p.config).latency_us or np.inf
                for p in drive(make_searcher(name, space, seed=seed), evaluate, batch=8)
            )
            for seed in range(2)
        ]
        best[name] = np.mean(found)
    assert best["scout"] < 0.7 * best["random"]


def test_a_region_that_fails_is_left_although_the_best_lie_at_its_border():
    space = small_space()
    last = [p.cardinality - 1 for p in space.parameters]

    def evaluate(config):
        if config["BLOCK_M"] >= 64:
            return Measurement("launch_error", error="large")
        return Measurement(
            "ok", (100.0 + 50.0 * float(((last - space.row(config)) / last).sum()),)
        )

    readings = [evaluate(c).latency_us for c in space.configs(space.enumerate())]
    best = min(filter(None, readings))
    for seed in range(3):
        found = [evaluate(p.config).latency_us for p in drive(scout(space, seed=seed), evaluate)]
        assert min(filter(None, found)) == best
        assert found[: found.index(best)].count(None) < 15


def test_one_disturbed_reading_does_not_lead_astray():
    space = small_space()
    smooth = bowl(space)
    best = min(space.configs(space.enumerate()), key=lambda c: smooth(c).latency_us)

    def evaluate(config):
        spoilt = config["num_stages"] == best["num_stages"] and config["BLOCK_N"] == 32
        return Measurement("ok", (1e6,)) if spoilt and config["order"] == "z" else smooth(config)

    found = drive(scout(space), evaluate, trials=60)
    assert min(evaluate(p.config).latency_us for p in found) < 1.01 * smooth(best).latency_us


def test_predictions_are_in_microseconds_and_come_true():
    space = small_space()
    evaluate = bowl(space)
    chosen = [p for p in drive(scout(space), evaluate, trials=80) if p.predicted is not None]
    late = chosen[len(chosen) // 2 :]
    errors = [abs(p.predicted / evaluate(p.config).latency_us - 1.0) for p in late]
    assert np.median(errors) < 0.05


def test_a_search_ends_when_nothing_is_worth_it():
    space = small_space()
    short, long = (
        drive(scout(space, least_gain=gain), bowl(space), trials=492) for gain in (0.01, 0.0)
    )
    assert len(short) < 100
    assert len(long) == 492 == space.size


def test_a_censored_reading_is_never_the_best_and_more_repetitions_count():
    searcher = scout(tiny_space(9), starts=9)
    a, b, *_ = searcher.ask(9)
    searcher.tell([Trial(0, a, Measurement("ok", (50.0,) * 3))])
    searcher.tell([Trial(1, b, Measurement("censored", (40.0,)))])
    assert searcher._values[:2] == [50.0, 50.0]
    searcher.tell([Trial(2, Proposal(0, a.config), Measurement("ok", (30.0,)))])
    assert searcher._values[0] == 50.0
    searcher.tell([Trial(3, Proposal(0, a.config), Measurement("ok", (60.0,) * 5))])
    assert searcher._values[0] == 60.0


def test_results_do_not_depend_on_the_number_of_threads():
    space = small_space()
    runs = []
    for threads in (1, 2):
        with ThreadpoolController().limit(limits=threads):
            runs.append(drive(scout(space), bowl(space, failing=0.1), trials=60, batch=16))
    assert runs[0] == runs[1]


def test_it_is_silent_where_there_is_nothing_to_learn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for evaluate in (flat, broken):
            assert len(drive(scout(small_space()), evaluate, trials=30)) == 30


def test_it_conforms_where_candidates_are_drawn():
    check_searcher(functools.partial(make_searcher, "scout", listed=16, pool=64, starts=2))


def test_it_conforms_where_it_looks_at_a_space_of_more_members_than_candidates():
    check_searcher(functools.partial(make_searcher, "scout", pool=64))


def test_of_a_listed_space_the_most_promising_members_are_the_candidates(monkeypatch):
    names = [f"p{i}" for i in range(4)]
    space = ParameterSpace([Integer(n, 0, 8) for n in names], default=dict.fromkeys(names, 8))
    sights = []

    class Watched(Posterior):
        def __init__(self, scales, x, pool, **room):
            sights.append(len(pool))
            super().__init__(scales, x, pool, **room)

    monkeypatch.setattr(scout_module, "Posterior", Watched)
    found = drive(scout(space, pool=100), bowl(space), trials=60)
    rows = [space.row(p.config) for p in found]
    assert min(rows, key=sum).tolist() == [0, 0, 0, 0]  # one row of 6,561, far from the default
    assert max(sights) <= 100  # never more at once
    whole = sum(n > 50 for n in sights) / 66  # looks at all 66 parts of the space
    assert 3 < whole < 10  # when the readings grew by a half, from 4 to 60, not at every fit


def test_a_listed_space_of_more_members_than_candidates_is_exhausted():
    space = small_space()
    found = drive(scout(space, pool=64), bowl(space, failing=0.1), trials=600)
    assert len({p.config for p in found}) == len(found) == space.size


def test_on_a_recorded_landscape_it_is_near_the_optimum_after_a_hundred_trials():
    landscape = load_landscape("rope/4x4096x32x8x128", gpu="h200")
    budget = Budget(trials=100)
    for seed in (0, 1):
        runner = ReplayRunner(landscape, seed=seed)
        history = tune(scout(landscape.space, seed=seed), runner, budget=budget)
        read = landscape.medians_us(runner.visit)
        at = landscape.index(history.incumbent.config)
        assert read[at] < 1.01 * np.nanmin(read)


# -- near: large spaces ---------------------------------------------------------------------------


def test_mutants_differ_in_a_few_parameters_by_a_few_steps():
    space = ParameterSpace(
        [
            *(PowerOfTwo(f"tile{i}", 1, 2**10) for i in range(6)),
            *(Choice(f"how{i}", tuple("abcde")) for i in range(6)),
            Choice("fixed", ("only",)),
        ],
        default={f"tile{i}": 1 for i in range(6)}
        | {f"how{i}": "a" for i in range(6)}
        | {"fixed": "only"},
    )
    rng = np.random.default_rng(0)
    rows = space.sample_rows(500, rng=rng)
    mutants = mutated_rows(space, rows, rng=rng)
    assert space.valid(mutants).all()
    moved = mutants != rows
    assert 1 < moved.sum(axis=1).mean() < 4
    assert np.abs(mutants - rows)[:, :6].max() == 2
    assert len(np.unique((mutants - rows)[:, 6:12])) > 5  # an alternative becomes any other
    assert not moved[:, 12].any()


def test_near_the_best_most_candidates_of_a_large_space_change_little():
    names = [f"p{i}" for i in range(24)]
    space = ParameterSpace([Integer(n, 0, 4) for n in names], default=dict.fromkeys(names, 0))

    def changed(near):
        """How many parameters half of the candidates change, of the nearest known config."""
        searcher = scout(space, near=near)

        def measure(config):
            return Measurement("ok", samples_us=(10.0 + float(space.row(config).sum()),))

        known = space.rows([p.config for p in drive(searcher, measure, trials=30)])
        apart = (searcher._pool[:, None] != known).sum(axis=2).min(axis=1)
        return np.median(apart)

    assert changed(1.0) <= 4
    assert changed(0.0) > 8


def test_a_long_search_goes_on_with_the_readings_that_it_holds(monkeypatch):
    monkeypatch.setattr(scout_module, "_HELD", 48)
    space, gains = huge_space(), []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        costs = [rng.exponential(size=p.cardinality) for p in space.parameters]

        def evaluate(config, costs=costs):
            cost = sum(table[at] for table, at in zip(costs, space.row(config), strict=True))
            return Measurement("ok", samples_us=(10.0 * np.exp(cost),))

        searcher = scout(space, seed=seed)
        found = drive(searcher, evaluate, trials=240, batch=8)
        assert len({p.config for p in found}) == 240
        assert searcher._posterior.n <= 48 + 64
        best = np.minimum.accumulate([evaluate(p.config).latency_us for p in found])
        gains.append(np.log(best[-1] / best[63]))
    assert np.mean(gains) < np.log(0.9)  # it still learns


def test_a_space_that_is_not_listed_stands_on_main_effects_unless_told():
    def configs(**options):
        found = drive(scout(small_space(), **options), bowl(small_space()), trials=30)
        return [p.config for p in found]

    assert configs() == configs(effects=0.5) != configs(effects=0.0)
    drawn = functools.partial(configs, listed=16, pool=16)
    assert drawn() == drawn(starts=8, effects=8.0, near=0.7)
    assert drawn() != drawn(effects=0.0)
    assert drawn() != drawn(near=0.0)


# -- where a space that cannot be listed is begun -------------------------------------------------


HINTS = [f"hint_{i}" for i in range(12)]
SCALES = ["BLOCK_M", "BLOCK_N", "num_warps", "num_stages", "GROUP"]


def hinted_space(constraints=()):
    """Five scales, and a dozen of hints of which the default's are the first of four."""
    scales = [
        PowerOfTwo("BLOCK_M", 16, 4096, role="tile"),
        PowerOfTwo("BLOCK_N", 16, 4096, role="tile"),
        PowerOfTwo("num_warps", 1, 32, role="warps"),
        Integer("num_stages", 1, 8, role="stages"),
        PowerOfTwo("GROUP", 1, 64),
    ]
    return ParameterSpace(
        [*scales, *(Choice(hint, (0, 1, 2, 3)) for hint in HINTS)],
        constraints=list(constraints),
        default={p.name: p.values[0] for p in scales} | dict.fromkeys(HINTS, 0),
    )


def changed_hints(config, like):
    return sum(config[hint] != like[hint] for hint in HINTS)


def test_the_starts_of_a_large_space_keep_the_hints_of_the_default_and_of_a_prior():
    space = hinted_space()
    other = space.configs(space.sample_rows(1, rng=np.random.default_rng(5)))[0]
    prior = Prior((PriorReading(other, None, "softmax/4096x640", "h200"),))
    first = [p.config for p in scout(space, prior=prior).ask(8)]
    assert first[:2] == [space.default, other]
    near = [min(changed_hints(c, like) for like in (space.default, other)) for c in first]
    assert max(near) <= 6  # two in the mean; nine differ between uniform draws
    assert all(len({config[name] for config in first}) >= 3 for name in SCALES)


def test_where_no_start_works_it_looks_elsewhere():
    space = hinted_space()

    def evaluate(config):  # the default's hints fail together
        works = changed_hints(config, space.default) >= 7
        return Measurement("ok", samples_us=(10.0,)) if works else Measurement("compile_error")

    found = drive(scout(space), evaluate, trials=40, batch=4)
    assert any(evaluate(p.config).status == "ok" for p in found[:24])


def test_where_no_other_scales_fit_all_of_the_space_is_drawn_from(monkeypatch):
    monkeypatch.setattr(drawing, "reshaped_rows", lambda _, parents, *__, **___: parents[:0])
    space = hinted_space()
    found = [p.config for p in drive(scout(space), bowl(space), trials=20, batch=4)]
    assert len(set(found)) == 20
    assert max(changed_hints(config, space.default) for config in found[1:8]) > 6


def test_at_first_every_other_choice_is_of_tiles_and_warps_that_nobody_asked_for(monkeypatch):
    space, rng = hinted_space(), np.random.default_rng(0)
    costs = {hint: rng.uniform(0, 0.05, size=4) for hint in HINTS}

    def evaluate(config):
        off = abs(np.log2(config["BLOCK_M"]) - 8) + abs(np.log2(config["BLOCK_N"]) - 7)
        cost = 0.3 * off + sum(table[config[hint]] for hint, table in costs.items())
        return Measurement("ok", samples_us=(10.0 * np.exp(cost),))

    def kinds(trials, after):
        found = [p.config for p in drive(scout(space), evaluate, trials=trials, batch=4)]
        shapes = [(c["BLOCK_M"], c["BLOCK_N"], c["num_warps"]) for c in found]
        return len(set(shapes)) - len(set(shapes[:after]))

    assert kinds(64, after=8) >= 28  # of 56
    assert kinds(128, after=64) < 32  # no more of it than is worth it
    monkeypatch.setattr(scout_module, "_BROAD", 0)
    assert kinds(64, after=8) < 28


def test_rows_of_other_scales_are_members_and_fewer_where_hardly_any_is():
    rng = np.random.default_rng(0)
    space = hinted_space([Constraint("fits", "BLOCK_M * BLOCK_N <= 65536")])
    origin = np.array([space.row(space.default)])
    rows = reshaped_rows(space, origin, 1000, rng=rng)
    assert rows.shape == (1000, len(space.names))
    assert space.valid(rows).all()
    hints = rows[:, len(SCALES) :] != 0
    assert 0.9 < hints.sum(axis=1).mean() < 1.3  # of two that change in the mean: 12 of 17, 3 of 4
    reach = [min(3, p.cardinality - 1) for p in space.parameters[:5]]  # from 0, the default
    assert rows[:, :5].max(axis=0).tolist() == reach
    assert all((np.bincount(rows[:, at])[1:] > 50).all() for at in range(5))
    laws = " * ".join(SCALES) + " <= 256", "hint_0 + hint_1 + hint_2 + hint_3 == 0"
    strict = hinted_space([Constraint(f"law_{at}", law) for at, law in enumerate(laws)])
    assert 0 < len(reshaped_rows(strict, origin, 1000, rng=rng)) < 1000


def test_with_origins_all_candidates_are_near_them_or_the_best_in_their_hints():
    space, rng = hinted_space(), np.random.default_rng(0)
    default, best = space.row(space.default), space.sample_rows(1, rng=rng)[0]
    told = Epochs(0.3), [tuple(best.tolist())], [10.0], default[None], ScoutOptions()
    hints = drawing.candidates(space, *told, rng=rng)[:, len(SCALES) :]
    apart = [(hints != like[len(SCALES) :]).sum(axis=1) for like in (default, best)]
    assert (np.min(apart, axis=0) <= 6).mean() > 0.99  # nine differ between uniform draws
    assert min((np.argmin(apart, axis=0) == at).mean() for at in (0, 1)) > 0.05
    assert len(np.unique(hints, axis=0)) > 500


def test_starts_of_a_large_space_are_apart_but_not_as_far_as_they_can(monkeypatch):
    space = hinted_space()

    def nearest():
        """Mean distance of a start to the nearest of those before it."""
        apart = []
        for seed in range(12):
            searcher = scout(space, seed=seed)
            configs = [p.config for p in searcher.ask(8)]
            x = searcher._features(space.rows(configs))
            apart += [np.linalg.norm(x[:at] - x[at], axis=1).min() for at in range(2, 8)]
        return np.mean(apart)

    found = {}
    for power in (0.0, 0.5, 50.0):
        monkeypatch.setattr(scout_module, "_APART", power)
        found[power] = nearest()
    assert 1.02 * found[0.0] < found[0.5] < found[50.0] / 1.02
    monkeypatch.undo()
    assert nearest() == found[0.5]


def test_what_has_other_tiles_or_warps_is_unlike_what_is_known():
    space = hinted_space()
    default = space.row(space.default)
    other = {name: default.copy() for name in ("num_warps", "hint_3", "GROUP")}
    for name, row in other.items():
        row[space.names.index(name)] += 1
    rows = np.array([default, *other.values()])
    assert unlike(space, rows, [tuple(default.tolist())]).tolist() == [False, True, False, False]
    assert unlike(space, rows, []).all()


def test_a_large_space_of_which_hardly_anything_is_valid_is_not_drawn_from_forever(monkeypatch):
    drawn, obeys = [], ParameterSpace._obeys
    monkeypatch.setattr(
        ParameterSpace, "_obeys", lambda self, rows: drawn.append(len(rows)) or obeys(self, rows)
    )
    axes = [Integer(f"p{i}", 0, 9) for i in range(7)]
    law = "p0 + 3 * p1 + 5 * p2 + 7 * p3 + 2 * p4 + 4 * p5 + p6 == 13"  # 0.003 % of 10**7
    default = {p.name: 0 for p in axes} | {"p0": 6, "p3": 1}
    space = ParameterSpace(axes, constraints=[Constraint("c", law)], default=default)
    searcher = make_searcher("scout", space, seed=0)
    found = drive(searcher, bowl(space), trials=16)
    assert len({p.config for p in found}) == 16
    assert max(drawn) <= 1 << 22
    assert sum(drawn) < 5 * (1 << 22)
