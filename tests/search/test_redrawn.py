"""Candidates of a large space that take the place of others between two fits of the model."""

import numpy as np
import pytest

from kt_lab.search import make_searcher
from kt_lab.search.conformance_cases import bowl, drive, huge_space, small_space
from kt_lab.search.posterior import Posterior, Scales


def test_exchanged_candidates_are_predicted_as_if_they_had_always_been_there():
    rng = np.random.default_rng(0)
    x, pool, others, y = rng.random((9, 4)), rng.random((40, 4)), rng.random((3, 4)), rng.random(9)
    scales = Scales.of(np.array([0, 1, 2]), np.array([0.3]))  # the fourth column is linear
    at = np.array([31, 0, 7])
    grown = Posterior(scales, x[:6], pool)
    grown.add(x[6])
    grown.exchange(at, others)
    for row in x[7:]:
        grown.add(row)
    pool[at] = others
    whole = Posterior(scales, x, pool)
    assert grown.deviation() == pytest.approx(whole.deviation())
    for one, other in zip(grown.predict(y), whole.predict(y), strict=True):
        assert one == pytest.approx(other)


def watched(monkeypatch, **options):
    """Searches 60 trials; returns its proposals, and what was exchanged for what, by gain."""
    searcher, exchanged = make_searcher("scout", huge_space(), seed=0, **options), []
    whole = type(searcher)._exchange

    def exchange(self, gain):
        before = self._pool.copy()
        whole(self, gain)
        exchanged.append((gain, (self._pool != before).any(axis=1), self._pool.copy()))

    monkeypatch.setattr(type(searcher), "_exchange", exchange)
    found = drive(searcher, bowl(huge_space()), trials=60, batch=1)
    return found, exchanged


def test_those_of_which_least_is_expected_go_and_no_config_comes_twice(monkeypatch):
    found, exchanged = watched(monkeypatch, pool=1024)
    assert len(exchanged) > 10
    for gain, gone, pool in exchanged:
        assert 1 <= gone.sum() <= 0.5 * len(gain)
        assert gain[gone].max() <= gain[~gone].min()
        assert len(np.unique(pool, axis=0)) == len(pool)
    known = {tuple(huge_space().row(p.config)) for p in found[:40]}
    _, gone, pool = exchanged[-1]
    assert not known & {tuple(row) for row in pool[gone].tolist()}
    assert len({p.config for p in found}) == 60


def test_they_are_exchanged_as_often_as_readings_grow_by_the_share(monkeypatch):
    counts = [len(watched(monkeypatch, redrawn=share, pool=256)[1]) for share in (1.0, 0.1, 0.02)]
    assert counts[0] == 0, "never between two fits"
    assert 0 < counts[1] < counts[2]


def test_a_space_that_is_listed_keeps_its_candidates():
    asked = [
        drive(make_searcher("scout", small_space(), seed=0, redrawn=share), bowl(small_space()))
        for share in (0.0, 1.0)
    ]
    assert asked[0] == asked[1]
