"""LFBOPatternSearch: the surrogate, and Helion's rules with the fixes of 2026."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from kt_lab.search import make_searcher, surrogate
from kt_lab.search.conformance_cases import bowl, broken, drive, flat, small_space
from kt_lab.search.neighbourhood import pattern_rows
from kt_lab.space import Integer, ParameterSpace, PowerOfTwo
from kt_lab.trial import Measurement, Trial

CHEAP = {"n_estimators": 10, "num_neighbors": 60, "initial_population": 15, "copies": 2}


def lfbo(space, **options):
    return make_searcher("lfbo_pattern", space, seed=0, **{**CHEAP, **options})


def walk(searcher, evaluate, *, until=None, limit=5000):
    """Yields batch after batch; each is told before the next."""
    while limit > 0 and (batch := searcher.ask(10**4)):
        yield batch
        searcher.tell([Trial(p.id, p, evaluate(p.config)) for p in batch])
        limit -= len(batch)
        if until and batch[0].origin == until:
            return


def grid(n=6, side=8):
    return ParameterSpace(
        [PowerOfTwo(f"T{i}", 1, 2 ** (side - 1), role="tile") for i in range(2)]
        + [PowerOfTwo("num_warps", 1, 2 ** (side - 1), role="warps")]
        + [Integer(f"x{i}", 0, side - 1) for i in range(n - 3)],
        default={
            "T0": 16,
            "T1": 16,
            "num_warps": 16,
            **{f"x{i}": 4 for i in range(n - 3)},
        },
    )


# -- the surrogate --------------------------------------------------------------------------------


def test_labels_are_the_quantile_of_finite_readings_and_weights_their_gain():
    y = np.array([10.0, 20.0, 30.0, 40.0, 50.0, np.inf])
    good, weights = surrogate.labels(y, 0.25)  # the bar is 20
    assert good.tolist() == [True, True, False, False, False, False]
    assert weights[good].mean() == pytest.approx(1.0)
    assert weights[0] / weights[1] == pytest.approx(10 / 1e-5)
    assert weights[2:].tolist() == [1.0] * 4


def test_labels_of_equal_readings_weigh_the_same():
    good, weights = surrogate.labels(np.array([5.0, 5.0, 5.0, np.inf]), 0.1)
    assert good.tolist() == [True, True, True, False]
    assert weights == pytest.approx(np.ones(4))


def test_labels_of_failures_only_are_all_bad():
    good, weights = surrogate.labels(np.full(3, np.inf), 0.1)
    assert not good.any()
    assert weights.tolist() == [1.0] * 3


FIT = {"quantile": 0.1, "n_estimators": 20, "criterion": "log_loss", "random_state": 42}


def test_one_class_has_no_forest():
    x = np.arange(4.0)[:, None]
    assert surrogate.fit(x, np.full(4, np.inf), **FIT) is None
    assert surrogate.fit(x, np.full(4, 7.0), **FIT) is None


def forest(n=200, width=5):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, size=(n, width)).astype(float)
    y = 100 + (x**2).sum(axis=1) + rng.normal(size=n)
    return x, y, surrogate.fit(x, y, **FIT)


def scikit_learns(x, y):
    good, weights = surrogate.labels(y, 0.1)
    forest = RandomForestClassifier(
        n_estimators=20, criterion="log_loss", random_state=42, n_jobs=1
    )
    return forest.fit(x, 1.0 * good, sample_weight=weights)


def test_scores_and_leaves_are_those_of_scikit_learns_forest_with_the_stated_settings():
    x, y, fitted = forest()
    reference = scikit_learns(x, y)
    good, leaves = surrogate.score(fitted, x)
    assert good == pytest.approx(reference.predict_proba(x)[:, 1], abs=1e-12)
    assert (leaves == reference.apply(x)).all()


def naive_select(good, leaves, n, penalty):
    chosen = []
    while len(chosen) < n:
        best, top = None, -np.inf
        for i in range(len(good)):
            if i not in chosen:
                alike = [np.mean(leaves[i] == leaves[j]) for j in chosen]
                value = good[i] - penalty * (np.mean(alike) if alike else 0.0)
                if value > top + 1e-12:
                    best, top = i, value
        chosen.append(best)
    return chosen


@pytest.mark.parametrize("penalty", [0.0, 0.3, 1.0])
def test_selection_is_the_greedy_rule(penalty):
    x, _, fitted = forest()
    good, leaves = surrogate.score(fitted, x[:60])
    chosen = surrogate.select(good, leaves, 12, penalty=penalty)
    assert list(chosen) == naive_select(good, leaves, 12, penalty)


def test_selection_prefers_unlike_configs_over_twins():
    good = np.array([0.9, 0.89, 0.5])
    leaves = np.array([[1, 1], [1, 1], [2, 2]])
    assert surrogate.select(good, leaves, 2, penalty=1.0) == [0, 2]
    assert surrogate.select(good, leaves, 2, penalty=0.0) == [0, 1]
    assert sorted(surrogate.select(good, leaves, 9, penalty=1.0)) == [0, 1, 2]


# -- the search -----------------------------------------------------------------------------------


def test_draws_move_one_tile_the_warps_and_up_to_radius_other_parameters():
    space = grid()
    searcher = lfbo(space, num_neighbors=3000)
    base = tuple(space.row(space.default).tolist())
    moves = np.abs(np.asarray(searcher._draws(base)) - base)
    assert moves[:, :3].max() == 2  # within the radius
    assert (moves[:, :2] > 1).sum(axis=1).max() == 1  # the other tile goes one step at most
    assert (moves[:, :2] > 0).any(axis=1).all()  # a tile always
    assert moves[:, 2].min() == 1  # num_warps always
    assert moves[:, 3:].max() == 1  # others one step
    others = (moves > 0).sum(axis=1) - 2
    assert np.bincount(others).tolist() == pytest.approx([1000] * 3, abs=120)  # k ~ U{0..2}


def test_draws_are_capped_and_never_the_config_itself():
    space = ParameterSpace([Integer("x", 0, 9), Integer("y", 0, 9)], default={"x": 4, "y": 4})
    searcher = lfbo(space, num_neighbors=300)
    drawn = searcher._draws((4, 4))
    assert (4, 4) not in drawn
    assert 150 < len(drawn) < 250  # a third of the draws changes nothing
    assert len(lfbo(space, num_neighbors=300, neighbours_cap=7)._draws((4, 4))) == 7


def test_rejected_neighbours_are_not_visited():
    space = grid()
    searcher = lfbo(space)
    asked = [p.config for batch in walk(searcher, bowl(space)) for p in batch]
    assert len(searcher._members) == len(set(asked)) < space.cartesian_size
    first = [p.config for batch in walk(lfbo(space), bowl(space)) for p in batch]
    assert first == asked


def test_a_share_of_the_fresh_neighbours_is_measured():
    space = grid()
    searcher = lfbo(space, copies=1, num_neighbors=200, rebenchmark_threshold=0.0)
    walker = walk(searcher, bowl(space))
    next(walker)
    second = next(walker)
    assert {p.origin for p in second} == {"neighbour"}
    assert 5 <= len(second) <= 19  # a tenth of at most 201 candidates, less the incumbent


def test_at_least_one_real_neighbour_is_tried():
    space = grid()
    searcher = lfbo(space, copies=1, num_neighbors=3, rebenchmark_threshold=0.0)
    walker = walk(searcher, bowl(space))
    next(walker)
    assert len(next(walker)) == 1


def test_the_incumbent_takes_a_place_of_the_quota_even_when_it_is_not_selected(monkeypatch):
    searcher = lfbo(grid(), copies=1, num_neighbors=200, rebenchmark_threshold=0.0)
    quotas = []

    def select(_, n):
        quotas.append(n)
        return dict.fromkeys(range(1, n + 1))  # the incumbent is 0

    monkeypatch.setattr(searcher, "_select", select)
    walker = walk(searcher, bowl(grid()))
    next(walker)
    assert len(next(walker)) == quotas[0] - 1


def test_labels_follow_the_latest_readings(monkeypatch):
    space = grid()
    seen = []
    fit = surrogate.fit

    def spy(x, latencies, **options):
        seen.append((len(x), latencies.tolist()))
        return fit(x, latencies, **options)

    monkeypatch.setattr(surrogate, "fit", spy)
    searcher = lfbo(space, max_generations=2, polish_rounds=0)
    readings = {}
    number = 0
    while batch := searcher.ask(10**4):
        for p in batch:
            readings[p.config] = 100.0 + number if p.config["x0"] % 2 else None
            measured = readings[p.config]
            told = Measurement("ok", (measured,)) if measured else broken(p.config)
            searcher.tell([Trial(number, p, told)])
            number += 1
        if searcher._queue or searcher._out:
            continue
    assert len(seen) == 2  # before each generation, none after the last
    assert seen[0][0] < seen[1][0]  # every measured config, failures too
    assert np.inf in seen[0][1]
    final = {c: v if v else np.inf for c, v in readings.items()}
    assert set(seen[1][1]) <= {*final.values(), *seen[0][1]} | set(range(100, 999))
    retimed = [v for v in seen[0][1] if v != np.inf]
    assert min(retimed) >= 100 + seen[0][0]  # the first readings were replaced before the fit


def test_a_descent_survives_as_many_stalls_as_its_patience():
    counts = []
    for patience in (0, 1, 3):
        searcher = lfbo(
            grid(), copies=1, patience=patience, polish_rounds=0, rebenchmark_threshold=0.0
        )
        batches = list(walk(searcher, flat))
        counts.append(len(batches) - 1)
        assert searcher.done
    assert counts == [1, 2, 4]


def test_polish_ends_where_no_pattern_neighbour_is_better():
    space = grid()
    evaluate = bowl(space)
    searcher = lfbo(space, max_generations=1, polish_rounds=1000, rebenchmark_threshold=0.0)
    proposals = [p for batch in walk(searcher, evaluate) for p in batch]
    assert proposals[-1].origin == "polish"
    readings = {p.config: evaluate(p.config).latency_us for p in proposals}
    best = min(readings, key=readings.get)
    near = space.configs(pattern_rows(space, tuple(space.row(best).tolist())))
    assert all(c in readings for c in near if space.contains(c))
    assert space.row(best).tolist() == [0] * 6  # the corner where the bowl is lowest


def test_polish_takes_at_most_its_rounds():
    space = grid()
    slope = bowl(space)
    batches = {}
    for rounds in (0, 1, 2):
        searcher = lfbo(
            space,
            max_generations=0,
            polish_rounds=rounds,
            rebenchmark_threshold=0.0,
            initial_population=1,
        )
        batches[rounds] = [b for b in walk(searcher, slope) if b[0].origin == "polish"]
    assert [len(b) for b in batches.values()] == [0, 1, 2]


def test_without_a_surrogate_neighbours_are_ranked_at_random():
    searcher = lfbo(grid(), polish_rounds=0)
    batches = list(walk(searcher, flat))
    assert any(b[0].origin == "neighbour" for b in batches)
    assert searcher._forest is None


def test_failures_only_end_after_the_starts():
    searcher = lfbo(grid())
    proposals = drive(searcher, broken, trials=500)
    assert {p.origin for p in proposals} == {"start"}
    assert searcher.done


def test_the_defaults_are_helions():
    options = make_searcher("lfbo_pattern", small_space(), seed=0).options
    stated = {
        "initial_population": 100,
        "copies": 5,
        "max_generations": 20,
        "min_improvement_delta": 0.001,
        "neighbours_cap": -1,
        "rebenchmark_threshold": 1.5,
        "num_neighbors": 300,
        "radius": 2,
        "frac_selected": 0.10,
        "quantile": 0.10,
        "patience": 1,
        "similarity_penalty": 1.0,
        "polish_rounds": 10,
        "n_estimators": 100,
        "criterion": "log_loss",
        "random_state": 42,
    }
    assert {name: getattr(options, name) for name in stated} == stated
