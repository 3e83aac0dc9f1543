"""DESurrogateSearch: what a forest changes about differential evolution."""

import functools

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from kt_lab.search import make_searcher
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
from kt_lab.space import Integer, ParameterSpace
from kt_lab.trial import Measurement, Trial

FOREVER = {"patience": None, "n_estimators": 5}


def des(space, **options):
    return make_searcher("de_surrogate", space, seed=0, **options)


def walk(searcher, evaluate):
    """Yields batch after batch; each is told before the next."""
    while batch := searcher.ask(10**4):
        yield batch
        searcher.tell([Trial(p.id, p, evaluate(p.config)) for p in batch])


def wide(side=1000):
    """A space so large that no trial comes up twice."""
    return ParameterSpace(
        [Integer(f"x{i}", 0, side - 1) for i in range(4)],
        default={f"x{i}": side // 2 for i in range(4)},
    )


def test_a_run_takes_two_populations_then_one_per_generation_up_to_the_last(monkeypatch):
    space = wide()
    searcher = des(space, **FOREVER, rebenchmark_threshold=0.0)
    sizes = []
    enter = searcher._enter
    monkeypatch.setattr(searcher, "_enter", lambda rows: sizes.append(len(rows)) or enter(rows))
    batches = list(walk(searcher, bowl(space)))
    assert [b[0].origin for b in batches] == ["start", *["trial"] * 39]
    assert sizes == [80, *[40] * 39]


def test_nothing_is_retimed_before_the_end():
    space = wide()
    searcher = des(space, **FOREVER, max_generations=6, rebenchmark_threshold=100.0)
    batches = list(walk(searcher, bowl(space)))
    assert [b[0].origin for b in batches] == ["start", *["trial"] * 5, "retime"]
    assert {p.config for p in batches[-1]} == {m.config for m in searcher._population}


def test_the_forest_is_refitted_every_fifth_generation_once_enough_was_observed(monkeypatch):
    space = wide()
    searcher = des(space, **FOREVER, rebenchmark_threshold=0.0)
    sizes, pools = [], []
    fitted, drawn = searcher._fitted, searcher._drawn
    monkeypatch.setattr(searcher, "_fitted", lambda: sizes.append(len(searcher._rows)) or fitted())
    monkeypatch.setattr(searcher, "_drawn", lambda n: pools.append(n) or drawn(n))
    list(walk(searcher, bowl(space)))
    # 40 of the starts count; generations 2 and 3 bring 80 more; 5, 10, ... refit
    assert sizes == [40 + 40 * (g - 2) for g in range(5, 41, 5)]
    assert pools == [40, 40, *[120] * 37]


def test_failures_are_no_observations_and_doubles_are(monkeypatch):
    searcher = des(small_space(), population_size=10, **FOREVER)
    evaluate = bowl(small_space(), failing=0.3)
    noted = []
    note = searcher._note
    monkeypatch.setattr(searcher, "_note", lambda members: noted.extend(members) or note(members))
    list(walk(searcher, evaluate))
    assert len(noted) == 10 + 39 * 10
    finite = [m for m in noted if evaluate(m.config).status == "ok" and m.row in searcher._members]
    assert searcher._rows == [m.row for m in finite]
    assert len(set(searcher._rows)) < len(searcher._rows)


def test_predictions_are_those_of_scikit_learns_forest_with_the_stated_settings():
    space = small_space()
    searcher = des(space)
    rows = [tuple(r) for r in space.enumerate()[::3].tolist()]
    rng = np.random.default_rng(0)
    searcher._rows = rows + rows[:20]
    searcher._values = (100 + rng.exponential(size=len(searcher._rows))).tolist()
    searcher._trees = searcher._fitted()
    reference = RandomForestRegressor(
        n_estimators=50, max_depth=15, min_samples_split=5, min_samples_leaf=2, random_state=42
    ).fit(space.encode_rows(np.asarray(searcher._rows)), searcher._values)
    asked = [tuple(r) for r in space.enumerate()[1::5].tolist()]
    expected = reference.predict(space.encode_rows(np.asarray(asked)))
    assert searcher._predicted(asked) == pytest.approx(expected, rel=1e-12)


def test_the_lowest_predictions_are_measured(monkeypatch):
    space = wide()
    searcher = des(space, population_size=10, **FOREVER)
    walker = walk(searcher, bowl(space))
    next(walker)
    next(walker)
    searcher._rows = [searcher._population[0].row] * 100
    searcher._trees = []
    pool = []
    drawn = searcher._drawn
    monkeypatch.setattr(searcher, "_drawn", lambda n: pool.extend(drawn(n)) or list(pool))
    monkeypatch.setattr(
        searcher, "_predicted", lambda rows: np.asarray([float(r[0]) for r in rows])
    )
    chosen = searcher._trials(7)
    assert len(pool) == 30
    assert chosen == sorted(pool, key=lambda r: r[0])[:10]  # stable


def test_before_there_is_a_model_trials_are_chosen_at_random():
    space = wide()
    searcher = des(space, population_size=10, **FOREVER)
    walker = walk(searcher, bowl(space))
    next(walker)
    next(walker)
    searcher._rows = [searcher._population[0].row] * 100
    assert len(searcher._trials(6)) == 10
    assert searcher._trees is None


def test_the_jth_trial_replaces_the_jth_member_if_it_is_faster():
    space = wide()
    searcher = des(space, population_size=4, **FOREVER)
    batches = walk(searcher, lambda _: Measurement("ok", (100.0,)))
    next(batches)
    trials = next(batches)
    before = list(searcher._population)
    values = [90.0, 110.0, 100.0, 80.0]
    searcher.tell(
        [Trial(p.id, p, Measurement("ok", (v,))) for p, v in zip(trials, values, strict=True)]
    )
    searcher.ask(1)
    after = searcher._population
    assert [m.config for m in after] == [
        trials[0].config, before[1].config, before[2].config, trials[3].config,
    ]  # fmt: skip


def test_it_stops_early_unless_told_otherwise():
    space = wide()
    batches = list(walk(des(space, rebenchmark_threshold=0.0), flat))
    assert len(batches) - 1 == 5  # a window of three, and three failures in a row
    batches = list(walk(des(space, rebenchmark_threshold=0.0), broken))
    assert len(batches) - 1 == 39  # without a finite best nothing is judged


def test_the_forest_pays_on_a_smooth_landscape():
    space = wide(50)
    evaluate = bowl(space)
    finals = {}
    for name in ("differential_evolution", "de_surrogate"):
        options = {"patience": None, "rebenchmark_threshold": 0.0}
        best = []
        for seed in range(4):
            searcher = make_searcher(name, space, seed=seed, **options)
            proposals = drive(searcher, evaluate, trials=600, batch=40)
            best.append(min(evaluate(p.config).latency_us for p in proposals))
        finals[name] = np.mean(best)
    assert finals["de_surrogate"] < finals["differential_evolution"]


def test_the_defaults_are_helions():
    options = des(small_space()).options
    stated = {
        "population_size": 40,
        "max_generations": 40,
        "crossover_rate": 0.8,
        "surrogate_threshold": 100,
        "candidate_ratio": 3,
        "refit_frequency": 5,
        "n_estimators": 50,
        "random_state": 42,
        "min_improvement_delta": 0.001,
        "patience": 3,
    }
    assert {name: getattr(options, name) for name in stated} == stated


def test_it_conforms_past_its_starts():
    deep = {"population_size": 4, "max_generations": 12, "surrogate_threshold": 12,
            "refit_frequency": 2, "n_estimators": 5, "patience": None}  # fmt: skip
    make = functools.partial(make_searcher, "de_surrogate", **deep)
    check_searcher(make)
    searcher = make(huge_space(), seed=0)
    drive(searcher, bowl(huge_space()), trials=50)
    assert searcher._trees is not None


def test_a_space_smaller_than_the_population_is_searched_to_its_end():
    space = tiny_space(12)
    proposals = drive(des(space, starts="uniform"), bowl(space), trials=100)
    assert len({p.config for p in proposals}) == 12
