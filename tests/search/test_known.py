"""What other workloads say: believed, put right by readings, and of no harm where it is wrong."""

import math
from itertools import zip_longest

import numpy as np
import pytest

from kt_lab.kernels import get_kernel
from kt_lab.prior import Prior, PriorReading
from kt_lab.search import make_searcher
from kt_lab.search.conformance_cases import bowl, drive, huge_space, small_space
from kt_lab.search.known import Known, bent
from kt_lab.search.posterior import Posterior, Scales
from kt_lab.space import Choice, Integer, ParameterSpace, PowerOfTwo
from kt_lab.trial import Config


def prior_of(*sources, octaves=()):
    """One source per mapping from configs to latencies, at distances that are known or not."""
    return Prior(
        tuple(
            PriorReading(config, us, f"kernel/{number}", "gpu", apart)
            for number, (source, apart) in enumerate(
                zip_longest(sources, octaves, fillvalue=math.inf)
            )
            for config, us in source.items()
        )
    )


def line(low=0, high=15):
    return ParameterSpace([Integer("step", low, high)], default={"step": low})


def steps(latency, low=0, high=15):
    return {Config(step=k): latency(k) for k in range(low, high + 1)}


def first(space, prior, count=3):
    return Known(space, prior).first(space.enumerate(), count=count)


def test_a_source_of_the_same_space_says_its_own_logarithms():
    prior = prior_of(steps(lambda k: math.exp(abs(k - 6) / 10)))
    known = Known(line(), prior)
    said = known(line().enumerate())[:, 0] * known.scale
    assert said[6] == pytest.approx(0.0)
    assert said[8] == pytest.approx(0.2)
    assert said[15] == pytest.approx(known.bend * (1 + math.log(0.9 / known.bend)))
    assert first(line(), prior)[0] == (6,)


@pytest.mark.parametrize("kernel", ["matmul", "fp8_blockwise_gemm", "softmax"])
def test_whatever_was_read_says_its_own_reading(kernel):
    space = get_kernel(kernel).space(get_kernel(kernel).workloads[0])
    configs = space.configs(space.enumerate())
    latencies = np.random.default_rng(0).uniform(1.0, 2.0, len(configs))
    known = Known(space, prior_of(dict(zip(configs, latencies.tolist(), strict=True))))
    said = known(space.enumerate())[:, 0] * known.scale
    assert said == pytest.approx(bent(np.log(latencies / latencies.min()), known.bend))


def test_a_value_and_its_negative_are_two_places():
    space = line(low=-8, high=8)
    known = Known(space, prior_of(steps(lambda k: 10.0 + k, low=-8, high=8)))
    said = known(space.enumerate())[:, 0]
    assert (np.diff(said) > 0).all()


def test_without_a_prior_nothing_is_said():
    known = Known(line(), None)
    assert not known
    assert known(line().enumerate()).shape == (16, 0)
    assert (known.others, known.bend, known.scale) == ([], 0.0, 0.0)
    assert first(line(), None) == []


def test_the_first_configs_serve_different_sources():
    ends = (steps(lambda k: 1.0 + k), steps(lambda k: 16.0 - k))
    assert set(first(line(), prior_of(*ends), count=2)) == {(0,), (15,)}


def test_the_nearer_a_shape_the_more_its_source_weighs():
    ends = (steps(lambda k: 1.0 + k), steps(lambda k: 16.0 - k))
    for octaves, best in (((1.0, 5.0), (0,)), ((5.0, 1.0), (15,))):
        prior = prior_of(*ends, octaves=octaves)
        assert first(line(), prior, count=2)[0] == best
        heavy, light = Known(line(), prior)(line().enumerate()).max(axis=0)[np.argsort(octaves)]
        assert heavy == pytest.approx(4 * light)  # two octaves halve
    unknown = Known(line(), prior_of(*ends, octaves=(math.inf, 5.0)))(line().enumerate())
    assert unknown.max(axis=0).tolist() == pytest.approx([unknown.max()] * 2)
    alone = [Known(line(), prior_of(ends[1], octaves=(o,))) for o in (math.inf, 1.0, 30.0)]
    assert len({known(line().enumerate()).tobytes() for known in alone}) == 1


def test_the_default_is_tried_early_where_no_shape_is_near():
    near, far = (first(line(), prior_of(steps(lambda k: 16.0 - k), octaves=(o,))) for o in (1, 30))
    assert near[0] == (15,)
    assert far[:2] == [(0,), (15,)]


def test_few_readings_are_configs_to_try_and_no_function():
    few = {Config(step=3): 1.0, Config(step=99): 2.0, Config(step=5): None, Config(step=9): 0.5}
    known = Known(line(), prior_of(few))
    assert known.others == [(9,), (3,)]  # the fastest first, and none that failed
    hints = Known(line(), prior_of({Config(step=k): None for k in range(2, 15)}))
    assert hints.others == [(k,) for k in range(2, 10)]
    assert known(line().enumerate()).shape == (16, 0)


def test_of_a_source_that_is_no_function_a_few_are_tried():
    alike = Known(line(high=99), prior_of(steps(lambda _: 5.0, high=99)))
    assert alike.others == [(k,) for k in range(8)]
    gaps = steps(lambda k: math.nan if k % 3 else 1.0 + k, high=99)  # as landscapes mark failures
    marked = Known(line(high=99), prior_of(gaps))
    assert (len(marked.others), marked(line(high=99).enumerate()).shape) == (0, (100, 1))


def test_a_source_whose_shared_parameters_never_change_says_nothing():
    prior = prior_of({Config(step=1, other=i): 5.0 + i for i in range(20)})
    assert not Known(line(), prior)
    told, cold = (make_searcher("scout", line(), seed=0, prior=p) for p in (prior, None))
    assert drive(told, bowl(line())) == drive(cold, bowl(line()))


def test_a_failure_counts_as_slow():
    known = Known(line(), prior_of(steps(lambda k: None if k == 4 else 1.0 + k)))
    said = known(line().enumerate())[:, 0]
    assert said[4] >= np.quantile(said, 0.85)


def test_another_space_is_asked_by_what_both_have_and_its_fastest_counts():
    source = {
        Config(tile=2**t, order=order, old=old): 10.0 + t + 5 * (order == "b") + old
        for t in range(1, 5)
        for order in "ab"
        for old in (0, 7)
    }
    space = ParameterSpace(
        [PowerOfTwo("tile", 2, 64), Choice("order", ("a", "b")), Integer("new", 0, 2)],
        default={"tile": 2, "order": "a", "new": 0},
    )
    known = Known(space, prior_of(source))
    said = known(space.enumerate())[:, 0] * known.scale
    at = {space.config(row): y for row, y in zip(space.enumerate().tolist(), said, strict=True)}
    assert at[Config(tile=2, order="a", new=0)] == pytest.approx(0.0)
    assert at[Config(tile=2, order="a", new=2)] == pytest.approx(0.0)
    assert at[Config(tile=4, order="a", new=0)] == pytest.approx(math.log(12 / 11))
    assert first(space, prior_of(source))[0] == tuple(space.row(space.default))


def test_a_source_without_a_common_parameter_says_nothing():
    other = {Config(elsewhere=k): 1.0 + k for k in range(20)}
    assert Known(line(), prior_of(other))(line().enumerate()).shape == (16, 0)


def test_a_constant_of_the_space_picks_the_readings_that_have_it():
    source = {
        Config(step=k, rows=r): 1.0 + (k if r == 8 else 15 - k) for k in range(16) for r in (4, 8)
    }
    space = ParameterSpace([Integer("step", 0, 15)], constants={"rows": 4}, default={"step": 0})
    assert first(space, prior_of(source))[0] == (15,)


def test_linear_columns_are_a_bayesian_regression():
    rng = np.random.default_rng(0)
    slopes = rng.normal(size=(6, 2))
    scales = Scales.of(np.array([0]), np.full(2, 0.5))
    scales.theta[:] = [-20.0, math.log(0.01)]  # of no length: independent residuals
    x = np.hstack([np.arange(6.0)[:, None], slopes])
    y = slopes @ [1.0, -2.0]
    posterior = Posterior(scales, x, x + np.array([100.0, 0.0, 0.0]))
    expected = slopes @ np.linalg.solve(
        slopes.T @ slopes / (1.0 + scales.noise) + np.eye(2) / 0.25,
        slopes.T @ y / (1.0 + scales.noise),
    )
    assert posterior.predict(y, centre=0.0)[1] == pytest.approx(expected)


def searched(prior, *, trials, seed=0):
    space = small_space()
    searcher = make_searcher("scout", space, seed=seed, prior=prior)
    proposals = drive(searcher, bowl(space), trials=trials, batch=4)
    return [bowl(space)(proposal.config).latency_us for proposal in proposals]


def test_readings_of_the_same_landscape_lead_straight_to_its_best():
    space = small_space()
    source = {c: bowl(space)(c).latency_us for c in space.configs(space.enumerate())}
    best = min(source.values())
    assert min(searched(prior_of(source), trials=4)) == best
    assert min(searched(None, trials=4)) > best


def test_sources_that_are_wrong_cost_a_few_trials_only():
    space = small_space()
    source = {c: 1e6 / bowl(space)(c).latency_us for c in space.configs(space.enumerate())}
    best = min(1e6 / us for us in source.values())
    misled = [min(searched(prior_of(source), trials=40, seed=seed)) for seed in range(3)]
    assert misled == pytest.approx([best] * 3)


def test_the_best_configs_known_of_a_huge_space_are_tried_although_no_draw_meets_them():
    space = huge_space()
    configs = space.configs(space.sample_rows(50, rng=np.random.default_rng(5)))
    source = {config: 1.0 + k for k, config in enumerate(dict.fromkeys(configs))}
    asked = make_searcher("scout", space, seed=0, prior=prior_of(source)).ask(1)
    assert asked[0].config == configs[0]
