"""UCBPatternSearch: the process, its bound, and what it selects."""

import functools
import warnings

import numpy as np
import pytest
from sklearn.utils.parallel import ThreadpoolController

from kt_lab.search import make_searcher
from kt_lab.search.conformance import check_searcher
from kt_lab.search.conformance_cases import bowl, broken, drive, flat, huge_space, small_space
from kt_lab.search.ucb_pattern import Process
from kt_lab.trial import Measurement, Trial

CHEAP = {"initial_population": 20, "copies": 2, "num_neighbors": 40}


def ucb(space, **options):
    return make_searcher("ucb_pattern", space, seed=0, **{**CHEAP, **options})


def walk(searcher, evaluate):
    """Yields batch after batch; each is told before the next."""
    while batch := searcher.ask(10**4):
        yield batch
        searcher.tell([Trial(p.id, p, evaluate(p.config)) for p in batch])


# -- the process ----------------------------------------------------------------------------------


def matern(a, b, scales):
    r = np.sqrt(5) * np.linalg.norm((a[:, None] - b[None]) / scales, axis=-1)
    return (1 + r + r**2 / 3) * np.exp(-r)


def test_the_posterior_is_the_closed_form_without_observation_noise():
    rng = np.random.default_rng(0)
    x, y = rng.random((30, 3)), rng.normal(size=30)
    process = Process(x, y)
    more, seen = rng.random((45, 3)), rng.normal(size=45)
    process.condition(more, seen)
    signal, noise = process._signal, process._noise
    variance, scales = signal.k1.constant_value, signal.k2.length_scale
    target = (seen - y.mean()) / y.std()  # standardised by what the parameters were fitted to
    inverse = np.linalg.inv(variance * matern(more, more, scales) + noise * np.eye(45))
    at = rng.random((9, 3))
    cross = variance * matern(at, more, scales)
    mean, deviation = process.predict(at)
    assert mean == pytest.approx(cross @ inverse @ target, abs=1e-8)
    expected = variance - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    assert deviation**2 == pytest.approx(expected, abs=1e-8)


def test_the_length_scales_tell_what_matters():
    rng = np.random.default_rng(0)
    x = rng.random((80, 3))
    process = Process(x, np.sin(6 * x[:, 1]))
    scales = process._signal.k2.length_scale
    assert scales[1] < 0.2 * min(scales[0], scales[2])
    process.condition(x, np.sin(6 * x[:, 1]))
    mean, _ = process.predict(np.array([[0.5, 0.25, 0.5]]))
    y = np.sin(6 * x[:, 1])
    assert mean[0] * y.std() + y.mean() == pytest.approx(np.sin(1.5), abs=0.02)


def test_one_reading_and_equal_readings_are_enough():
    for x in (np.zeros((1, 2)), np.eye(2)):
        process = Process(x, np.full(len(x), -5.0))
        process.condition(x, np.full(len(x), -5.0))
        mean, deviation = process.predict(np.ones((3, 2)))
        assert np.isfinite(mean).all()
        assert (deviation >= 0).all()


# -- the search -----------------------------------------------------------------------------------


def test_columns_are_scaled_to_the_unit_cube_over_the_space():
    space = small_space()
    x = ucb(space)._scaled(space.enumerate())
    assert x.min(axis=0).tolist() == [0.0] * x.shape[1]
    assert x.max(axis=0).tolist() == [1.0] * x.shape[1]


def test_hyper_parameters_are_fitted_once_and_every_finite_reading_is_used(monkeypatch):
    space = small_space()
    evaluate = bowl(space, failing=0.2)
    seen, kernels = [], set()
    condition = Process.condition

    def spy(self, x, y):
        seen.append((len(x), y.max()))
        condition(self, x, y)
        kernels.add(str(self._signal) + str(self._noise))

    monkeypatch.setattr(Process, "condition", spy)
    searcher = ucb(space)
    told, sizes = {}, []
    for batch in walk(searcher, evaluate):
        if batch[0].origin == "neighbour":
            sizes.append(sum(v is not None for v in told.values()))
        told.update({p.config: evaluate(p.config).latency_us for p in batch})
    assert [n for n, _ in seen][: len(sizes)] == sizes
    assert len(set(sizes)) == len(sizes) > 1
    assert len(kernels) == 1
    assert max(y for _, y in seen) == -min(v for v in told.values() if v)


@pytest.mark.parametrize(("beta", "best"), [(0.0, [3, 1]), (2.0, [1, 2]), (100.0, [2, 1])])
def test_the_highest_bounds_are_selected(monkeypatch, beta, best):
    searcher = ucb(small_space(), beta=beta)
    mean, deviation = np.array([0.0, 1.0, 0.2, 1.1]), np.array([0.0, 0.5, 1.0, 0.0])
    searcher._process = Process(np.eye(2), np.arange(2.0))
    monkeypatch.setattr(searcher._process, "predict", lambda _: (mean, deviation))
    pool = [tuple(r) for r in small_space().enumerate()[:4].tolist()]
    chosen = searcher._select(pool, 2)
    assert list(chosen) == best  # mean + sqrt(beta) * deviation
    # what is told is the mean, in microseconds: y was 0 and 1, so its mean and deviation are 1/2
    assert list(chosen.values()) == [-(0.5 + 0.5 * mean[i]) for i in best]


def test_a_share_of_the_fresh_neighbours_is_measured():
    space = huge_space()
    searcher = ucb(space, copies=1, num_neighbors=100, rebenchmark_threshold=0.0)
    walker = walk(searcher, bowl(space))
    next(walker)
    second = next(walker)
    assert {p.origin for p in second} == {"neighbour"}
    assert 5 <= len(second) <= 29  # 0.3 of at most 101 candidates, less the incumbent


def test_a_descent_stops_at_its_first_stall_and_nothing_is_polished():
    batches = list(walk(ucb(small_space(), rebenchmark_threshold=0.0), flat))
    assert [b[0].origin for b in batches] == ["start", "neighbour"]


def test_failures_only_end_after_the_starts():
    assert {p.origin for p in drive(ucb(small_space()), broken, trials=500)} == {"start"}


def test_retimings_that_all_fail_leave_the_model_as_it_was():
    searcher = ucb(small_space())
    evaluate = bowl(small_space())
    for batch in walk(searcher, lambda c: evaluate(c)):
        if batch[0].origin == "neighbour":
            break
    for member in searcher._members.values():
        member.value = np.inf
    process = searcher._process
    searcher._learn()
    assert searcher._process is process
    fresh = ucb(small_space())
    fresh._learn()
    pool = [tuple(r) for r in small_space().enumerate()[:9].tolist()]
    assert sorted(fresh._select(pool, 9)) == list(range(9))


def test_results_do_not_depend_on_the_number_of_threads():
    space = small_space()
    runs = []
    for threads in (1, 2):
        with ThreadpoolController().limit(limits=threads):
            runs.append(drive(ucb(space), bowl(space, failing=0.1), trials=150, batch=500))
    assert runs[0] == runs[1]
    assert "neighbour" in {p.origin for p in runs[0]}


def test_it_is_silent_and_keeps_the_warning_filters():
    before = list(warnings.filters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drive(ucb(small_space()), bowl(small_space()), trials=80)
    assert list(warnings.filters) == before


def test_it_beats_random_neighbours_on_a_smooth_landscape():
    space = huge_space()
    evaluate = bowl(space)
    best = {}
    for name, options in {"ucb_pattern": CHEAP, "random": {}}.items():
        found = []
        for seed in range(3):
            proposals = drive(make_searcher(name, space, seed=seed, **options), evaluate,
                              trials=100, batch=100)  # fmt: skip
            found.append(min(evaluate(p.config).latency_us for p in proposals))
        best[name] = np.mean(found)
    assert best["ucb_pattern"] < 0.8 * best["random"]


def test_a_rereading_is_what_the_process_learns():
    space = small_space()
    searcher = ucb(space, copies=1, rebenchmark_threshold=100.0)
    batches = walk(searcher, lambda c: Measurement("ok", (100.0 + c["num_warps"],)))
    start = next(batches)
    again = next(batches)
    assert {p.origin for p in again} == {"retime"}
    searcher.tell([Trial(p.id, p, Measurement("ok", (200.0,))) for p in again])
    searcher._learn()
    assert len(again) == len(start)
    assert (searcher._process._model.y_train_ == 0.0).all()  # all equal, as last read


def test_the_logarithm_is_modelled_on_request(monkeypatch):
    seen = []
    monkeypatch.setattr(Process, "condition", lambda _, x, y: seen.append(y))  # noqa: ARG005
    for logarithm in (False, True):
        searcher = ucb(small_space(), logarithm=logarithm)
        drive(searcher, bowl(small_space()), trials=20, batch=20)
        searcher._learn()
    assert seen[1] == pytest.approx(-np.log(-seen[0]))


def test_the_defaults_are_the_originals():
    options = make_searcher("ucb_pattern", small_space(), seed=0).options
    stated = {
        "num_neighbors": 100,
        "radius": 2,
        "frac_selected": 0.3,
        "beta": 2.0,
        "logarithm": False,
    }
    assert {name: getattr(options, name) for name in stated} == stated


def test_it_conforms_past_its_starts():
    deep = {"initial_population": 6, "copies": 2, "num_neighbors": 20, "max_generations": 3}
    check_searcher(functools.partial(make_searcher, "ucb_pattern", **deep))
