"""LFBOTreeSearch: trees propose as Helion's do; everything else is LFBOPatternSearch."""

import functools
import random

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from kt_lab.search import get_searcher, make_searcher, surrogate
from kt_lab.search.conformance import check_searcher
from kt_lab.search.conformance_cases import bowl, broken, drive, flat, huge_space, small_space
from kt_lab.search.lfbo_tree import Code, Walk
from kt_lab.trial import Trial

CHEAP = {"n_estimators": 10, "num_neighbors": 40, "initial_population": 15, "copies": 2}


def tree(space, **options):
    return make_searcher("lfbo_tree", space, seed=0, **{**CHEAP, **options})


def walk(searcher, evaluate):
    """Yields batch after batch; each is told before the next."""
    while batch := searcher.ask(10**4):
        yield batch
        searcher.tell([Trial(p.id, p, evaluate(p.config)) for p in batch])


def learned(space, n=120, **options):
    """A searcher whose forest has seen n configs, and that forest by scikit-learn itself."""
    searcher = tree(space, **options)
    configs = space.sample(n, rng=np.random.default_rng(1))
    evaluate = bowl(space, failing=0.2)
    searcher.tell([Trial(i, p, evaluate(p.config)) for i, p in enumerate(map(_asked, configs))])
    searcher._learn()
    measured = list(searcher._members.values())
    x = space.encode_rows(np.asarray([m.row for m in measured]))
    good, weights = surrogate.labels(np.asarray([m.value for m in measured]), 0.1)
    o = searcher.options
    forest = RandomForestClassifier(
        n_estimators=o.n_estimators, criterion=o.criterion, random_state=42, n_jobs=1
    )
    return searcher, forest.fit(x, good, sample_weight=weights)


def _asked(config):
    from kt_lab.trial import Proposal

    return Proposal(10**6, config)


def test_codes_are_the_encoding_of_the_space():
    space = small_space()
    code, rows = Code(space), space.enumerate()
    assert [code.encode(r) for r in rows.tolist()] == space.encode_rows(rows).tolist()
    assert [i for i, columns in enumerate(code.columns) for _ in range(32)[columns]] == (
        code.slot_of
    )


def test_walks_follow_scikit_learns_decision_paths_to_its_probabilities():
    space = small_space()
    searcher, forest = learned(space)
    x = space.encode_rows(space.enumerate()[::7])
    for number, estimator in enumerate(forest.estimators_):
        found = Walk(searcher._forest.trees[number], searcher._forest.good[number])
        chances = [found.chance(row) for row in x.tolist()]
        assert chances == pytest.approx(estimator.predict_proba(x)[:, 1].tolist(), abs=1e-12)
        for row in x[:9]:
            path = estimator.decision_path(row[None, :].astype(np.float32)).indices
            features = [f for f in estimator.tree_.feature[path].tolist() if f >= 0]
            assert found.features(row.tolist()) == features


def naive_draws(space, row, forest, rng, *, trials, radius):
    """The proposals by scikit-learn's public methods, without any shortcut."""
    owner = [i for i, p in enumerate(space.parameters) for _ in range(p.width)]
    roles = [p.role for p in space.parameters]
    tiles = [i for i, role in enumerate(roles) if role == "tile"]
    warps = roles.index("warps")
    found = []
    for _ in range(trials):
        estimator = forest.estimators_[rng.randrange(len(forest.estimators_))]
        x = space.encode_rows(np.asarray([row])).astype(np.float32)
        slots = []
        for node in estimator.decision_path(x).indices:
            feature = estimator.tree_.feature[node]
            if feature >= 0 and owner[feature] not in slots:
                slots.append(owner[feature])
        for extra in (rng.choice(tiles), warps):
            if extra not in slots:
                slots.append(extra)
        moved = list(row)
        for slot in slots:
            near = space.parameters[slot].neighbours(moved[slot], radius)
            tried = [(*moved[:slot], v, *moved[slot + 1 :]) for v in (moved[slot], *near)]
            chances = estimator.predict_proba(space.encode_rows(np.asarray(tried)))[:, 1]
            best = [t[slot] for t, c in zip(tried, chances, strict=True) if c == chances.max()]
            moved[slot] = rng.choice(best)
        if tuple(moved) != tuple(row):
            found.append(tuple(moved))
    return found


@pytest.mark.parametrize("radius", [1, 2])
def test_proposals_are_the_greedy_passes_of_single_trees(radius):
    space = small_space()
    searcher, forest = learned(space, radius=radius)
    searcher._generation = 3
    for row in map(tuple, space.enumerate()[[0, 250, -1]].tolist()):
        rng = random.Random()
        rng.setstate(searcher._random.getstate())
        expected = naive_draws(space, row, forest, rng, trials=40, radius=radius)
        assert searcher._draws(row) == expected
        assert len(expected) > 5


def test_a_pass_never_lowers_its_trees_probability():
    space = small_space()
    searcher, forest = learned(space)
    row = tuple(space.enumerate()[250].tolist())
    x = searcher._code.encode(row)
    for number, estimator in enumerate(forest.estimators_):
        found = Walk(searcher._forest.trees[number], searcher._forest.good[number])
        ends = np.asarray([row, searcher._climb(found, row, x)])
        before, after = estimator.predict_proba(space.encode_rows(ends))[:, 1]
        assert after >= before


def test_trees_propose_from_the_third_generation_on(monkeypatch):
    def climbs(**options):
        searcher = tree(huge_space(), rebenchmark_threshold=0.0, polish_rounds=0, **options)
        seen = []
        climb = searcher._climb
        monkeypatch.setattr(
            searcher, "_climb", lambda *a: seen.append(searcher._generation) or climb(*a)
        )
        list(walk(searcher, bowl(searcher.space)))
        return seen

    assert min(climbs()) == 3
    assert min(climbs(random_generations=0)) == 1
    assert climbs(random_generations=1000) == []


def test_until_trees_propose_it_is_lfbo_pattern():
    space = huge_space()
    one = walk(tree(space, rebenchmark_threshold=0.0), bowl(space))
    other = walk(
        make_searcher("lfbo_pattern", space, seed=0, **CHEAP, rebenchmark_threshold=0.0),
        bowl(space),
    )
    for _ in range(3):  # the starts, and two generations
        assert next(one) == next(other)
    assert next(one) != next(other)


def test_without_a_forest_neighbours_are_drawn_at_random():
    searcher = tree(small_space(), polish_rounds=0)
    batches = list(walk(searcher, flat))
    assert searcher._forest is None
    assert any(b[0].origin == "neighbour" for b in batches)
    searcher = tree(small_space())
    assert {p.origin for p in drive(searcher, broken, trials=500)} == {"start"}


def test_proposals_are_capped():
    searcher, _ = learned(small_space(), neighbours_cap=3)
    searcher._generation = 9
    assert len(searcher._draws(tuple(small_space().enumerate()[250].tolist()))) == 3


def test_it_finds_the_corner_where_the_bowl_is_lowest():
    space = huge_space()
    evaluate = bowl(space)
    searcher = tree(space, max_generations=8)
    proposals = [p for batch in walk(searcher, evaluate) for p in batch]
    readings = {p.config: evaluate(p.config).latency_us for p in proposals}
    assert space.row(min(readings, key=readings.get)).tolist() == [0] * 8


def test_the_defaults_are_helions():
    space = small_space()
    ours, pattern = (make_searcher(n, space, seed=0) for n in ("lfbo_tree", "lfbo_pattern"))
    assert (ours.options.num_neighbors, ours.options.random_generations) == (200, 2)
    different = {
        name
        for name in vars(pattern.options)
        if getattr(ours.options, name) != getattr(pattern.options, name)
    }
    assert different == {"num_neighbors"}


def test_quick_effort_starts_from_the_default_alone():
    space = small_space()
    quick = get_searcher("lfbo_tree").presets["quick"]
    searcher = make_searcher("lfbo_tree", space, seed=0, **quick)
    batches = list(walk(searcher, bowl(space)))
    assert [p.config for p in batches[0]] == [space.default]
    assert {p.origin for b in batches for p in b} == {"start", "neighbour", "polish"}
    options = searcher.options
    assert (options.initial_population, options.copies, options.max_generations) == (30, 2, 5)


def test_quick_effort_draws_starts_when_all_it_had_failed():
    space = small_space()
    quick = get_searcher("lfbo_tree").presets["quick"]
    searcher = make_searcher("lfbo_tree", space, seed=0, **quick)
    batches = walk(searcher, lambda c: broken(c) if c == space.default else flat(c))
    assert [p.config for p in next(batches)] == [space.default]
    second = next(batches)
    assert {p.origin for p in second} == {"start"}
    assert 20 < len(second) < 30
    assert space.default not in {p.config for p in second}


def test_it_conforms_past_its_starts():
    deep = CHEAP | {"initial_population": 6, "max_generations": 4, "polish_rounds": 2}
    check_searcher(functools.partial(make_searcher, "lfbo_tree", **deep, random_generations=0))
