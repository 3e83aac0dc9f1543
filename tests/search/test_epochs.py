"""Epochs: when a search of a large space begins anew, and from what it then goes on."""

import itertools
import math

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.search import make_searcher
from kt_lab.search.conformance_cases import bowl, drive, huge_space, small_space
from kt_lab.search.epochs import Epochs
from kt_lab.search.known import bent, unbent
from kt_lab.space import Integer, ParameterSpace, PowerOfTwo


def grown(epochs, values, readings):
    """Tells readings one by one; returns after how many an epoch ended, none by a descent."""
    ends = []
    for reading in readings:
        values.append(reading)
        epochs.descended = True
        if epochs.ended(values):
            ends.append(len(values))
    return ends


def test_an_epoch_ends_when_nothing_better_came_for_a_share_of_it():
    # the last improvement is at 150: 65 readings later, 0.3 of 215, it has come to nothing
    falling = list(np.geomspace(10.0, 1.0, 150)) + [1.0] * 100
    assert grown(Epochs(0.3), [], falling)[0] == 215
    assert grown(Epochs(0.6), [], [*falling, *[1.0] * 200])[0] == 376
    assert grown(Epochs(0.0), [], falling * 10) == [], "0: never"


def test_noise_is_nothing_better_and_a_search_that_improves_goes_on():
    noisy = 1.0 - 1e-5 * np.arange(400)
    assert grown(Epochs(0.3), [], noisy)[0] == 200
    assert grown(Epochs(0.3), [], 0.98 ** np.arange(1000.0)) == []


def test_failures_and_what_is_under_way_are_no_improvements():
    assert grown(Epochs(0.3), [], [math.nan] * 500) == []
    assert grown(Epochs(0.3), [], [1.0] + [math.inf] * 300)[0] == 200


def test_it_begins_from_nothing_and_every_third_time_from_everything():
    epochs, values, since = Epochs(0.3), [], []
    for level in (5.0, 3.0, 4.0, 2.0, 1.0):
        while not grown(epochs, values, [level]):
            pass
        since.append(epochs.since)
    assert since == [200, 400, 0, 800, 1000]


def test_parents_are_the_best_of_an_epoch_and_then_of_every_beginning():
    epochs, values = Epochs(0.3), []

    def parents(most, kinds=None):
        return epochs.parents(values, kinds or [()] * len(values), most)

    assert parents(4) == []
    grown(epochs, values, [5.0] * 7 + [4.0] + [5.0] * 192)
    assert epochs.since == 200
    assert parents(3) == []
    grown(epochs, values, [math.nan, 9.0, math.inf, 7.0])
    assert parents(3) == [203, 201], "working ones of this epoch, the best first"
    assert grown(epochs, values, [8.0] * 197) == [401]
    assert grown(epochs, values, [2.0, *[3.0] * 199]) == [601]
    assert epochs.since == 0
    assert parents(5) == [401, 7, 203, 402, 403]
    assert parents(2) == [401, 7]
    kinds = [n % 3 for n in range(len(values))]  # 402 and 403 are the first of theirs
    assert parents(4, kinds) == [401, 402, 403, 7], "the best of each kind precede the others"


def test_the_best_of_each_kind_are_parents_although_many_of_one_kind_are_better():
    epochs, values = Epochs(0.3), [1.0, 1.1, 1.2, 1.3, 7.0, 8.0, 6.0, math.inf]
    kinds = ["a"] * 4 + ["b"] * 2 + ["c", "d"]
    assert epochs.parents(values, kinds, 3) == [0, 6, 4]
    assert epochs.parents(values, kinds, 5) == [0, 6, 4, 1, 2], "failures are never parents"


def test_scout_begins_anew_in_a_large_space_and_not_in_one_that_it_lists():
    def starts(space, idle, budget=None):
        scout = make_searcher("scout", space, seed=0, budget=budget, starts=4, idle=idle)
        found = drive(scout, bowl(space), trials=300)  # the default is the best
        return [n for n, p in enumerate(found) if p.origin == "start"]

    assert starts(huge_space(), 0.0) == [0, 1, 2, 3]
    *first, again, _, _, last = starts(huge_space(), 0.3)
    assert first == [0, 1, 2, 3]
    assert 200 <= again < last < 220
    assert starts(huge_space(), 0.3, Budget(trials=390)) == first, "not enough is left"
    assert starts(huge_space(), 0.3, Budget(trials=420)) == [
        *first,
        again,
        again + 1,
        again + 2,
        last,
    ]
    assert starts(small_space(), 0.3) == starts(small_space(), 0.0)


@pytest.mark.parametrize("bend", [1e-3, 0.1, 2.0])
def test_what_was_bent_is_taken_back_and_no_prediction_overflows(bend):
    t = np.array([0.0, 0.5 * bend, bend, 3.0, 19.0])
    back = [unbent(float(value), bend) for value in bent(t, bend)]
    assert back == pytest.approx(t)
    assert unbent(1e6, bend) == pytest.approx(20.0)


def test_every_other_beginning_leaves_the_bests_before_it_alone():
    epochs, values, avoided = Epochs(0.3), [], []
    for level in (5.0, 3.0, 4.0, 2.0, 1.0):
        while not grown(epochs, values, [level]):
            pass
        avoided.append([values[at] for at in epochs.avoided])
    assert avoided == [[5.0], [], [], [2.0, 3.0, 5.0], []]


def test_scout_looks_elsewhere_in_its_second_epoch_and_anywhere_in_its_third():
    space = ParameterSpace(
        [
            *(PowerOfTwo(f"tile_{i}", 1, 16, role="tile") for i in range(2)),
            PowerOfTwo("num_warps", 1, 16, role="warps"),
            *(Integer(f"p{i}", 0, 9) for i in range(5)),
        ],
        default={"tile_0": 1, "tile_1": 1, "num_warps": 1} | {f"p{i}": 0 for i in range(5)},
    )
    scout = make_searcher("scout", space, seed=0, starts=4)
    found = drive(scout, bowl(space), trials=650)  # the default is the best
    starts = [n for n, p in enumerate(found) if p.origin == "start"]
    second, third = [n for before, n in itertools.pairwise(starts) if n - before > 1][:2]
    shapes = [tuple(p.config[n] for n in ("tile_0", "tile_1", "num_warps")) for p in found]
    assert shapes[0] == (1, 1, 1)
    assert (1, 1, 1) in shapes[20:second]
    assert (1, 1, 1) not in shapes[second:third]
    assert (1, 1, 1) in shapes[third:]
