"""How an epoch ends: single steps from the plainest of its best, until none leads on."""

import math

import numpy as np
import pytest

from kt_lab.constraints import Constraint
from kt_lab.parameters import Choice, Flag, Integer, PowerOfTwo
from kt_lab.search import make_searcher
from kt_lab.search.conformance_cases import drive
from kt_lab.search.descent import next_step
from kt_lab.search.epochs import Epochs
from kt_lab.space import ParameterSpace
from kt_lab.trial import Measurement

SPACE = ParameterSpace(
    [
        PowerOfTwo("tile", 1, 8, role="tile"),
        Integer("depth", 0, 4),
        Choice("hint", ("a", "b", "c")),
    ],
    constraints=[Constraint("fits", "tile * depth <= 24")],
    default={"tile": 2, "depth": 0, "hint": "a"},
)


def row(tile, depth, hint):
    return tuple(SPACE.row({"tile": tile, "depth": depth, "hint": hint}).tolist())


def steps(known, *, since=0, most=100):
    """Asks for steps, which all turn out slower, until there is none; returns their configs."""
    at, values, found = {r: n for n, r in enumerate(known)}, list(known.values()), []
    rng = np.random.default_rng(0)
    while len(found) < most and (step := next_step(SPACE, at, values, since, rng=rng)):
        at[step] = len(at)
        values.append(9.0)
        found.append(tuple(SPACE.config(step).values()))
    return found


def test_what_hardly_matters_goes_back_to_its_default_before_any_other_step():
    told = steps({row(8, 3, "b"): 1.0})
    assert set(told[:2]) == {(8, 0, "b"), (8, 3, "a")}, "the tile is a scale: it stays"
    assert set(told[2:]) == {(4, 3, "b"), (8, 2, "b"), (8, 3, "c")}, "8 x 4 is no member"


def test_steps_lead_from_the_plainest_of_what_nobody_can_tell_apart():
    level = {row(8, 3, "b"): 1.0, row(8, 0, "b"): 1.004, row(8, 0, "a"): 1.02}
    assert (8, 1, "b") in steps(level)
    assert (8, 2, "b") not in steps(level), "which is a step from the fastest"


def test_only_what_worked_in_the_epoch_counts():
    known = {row(8, 0, "a"): 1.0, row(1, 4, "c"): 5.0, row(2, 2, "c"): math.inf}
    assert {tile for tile, *_ in steps(known, since=1)} == {1, 2}
    assert steps({row(8, 0, "a"): 1.0, row(2, 2, "c"): math.inf}, since=1) == []
    assert steps({row(8, 0, "a"): math.nan}) == []


def told(epochs, values, readings, **how):
    """Tells readings one by one; returns whether the epoch ended, and whether it descends."""
    for reading in readings:
        values.append(reading)
        ended = epochs.ended(values, **how)
    return ended, epochs.descending


def test_an_epoch_ends_with_a_descent_and_goes_on_if_that_led_to_lower_ground():
    epochs, values = Epochs(0.3), []
    assert told(epochs, values, [1.0] * 199) == (False, False)
    assert told(epochs, values, [1.0]) == (False, True)
    epochs.descended = True
    assert told(epochs, values, [0.9]) == (False, False), "more may be found from there"
    assert told(epochs, values, [0.9] * 86) == (False, False)
    assert told(epochs, values, [0.9]) == (False, True), "0.3 of 288 readings later"
    epochs.descended = True
    assert told(epochs, values, [0.895]) == (True, False), "noise is no lower ground"
    assert epochs.since == len(values)


def test_a_descent_is_over_when_what_was_under_way_has_led_nowhere():
    epochs, rng = Epochs(0.3), np.random.default_rng(0)
    known = {tuple(r): n for n, r in enumerate(SPACE.enumerate().tolist())}
    values = [1.0] * len(known)
    epochs.descending = True
    values[-1] = math.nan
    assert epochs.step(SPACE, known, values, rng=rng) is None
    assert not epochs.descended
    values[-1] = 1.0
    assert epochs.step(SPACE, known, values, rng=rng) is None
    assert epochs.descended


def test_with_few_trials_left_an_epoch_descends_and_nothing_begins_anew():
    epochs, values = Epochs(0.3), []
    assert told(epochs, values, [1.0] * 200, left=50) == (False, True)
    epochs.descended = True
    assert told(epochs, values, [1.0] * 40, left=10) == (False, True)


@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_good_only_beside_defaults_is_found(seed):
    """A persistent grid wins by 5 % where its own loop is as it was; the flat one has none."""
    loops, hints = [f"loop_{i}" for i in range(6)], [f"hint_{i}" for i in range(6)]
    space = ParameterSpace(
        [
            *(PowerOfTwo(f"tile_{i}", 1, 256, role="tile") for i in range(2)),
            PowerOfTwo("warps", 1, 16, role="warps"),
            Flag("persistent"),
            *(Integer(name, 0, 4) for name in loops),
            *(Choice(name, (0, 1, 2)) for name in hints),
        ],
        default={"tile_0": 4, "tile_1": 4, "warps": 4, "persistent": False}
        | dict.fromkeys(loops + hints, 0),
    )

    def latency_us(config):
        wanted = {"tile_0": 6, "tile_1": 5, "warps": 3}
        off = sum(abs(math.log2(config[name]) - at) for name, at in wanted.items())
        us = 100 * (1 + 0.3 * off) * (1 + 0.002 * sum(config[name] for name in hints))
        own = math.prod(1 + 0.04 * config[name] for name in loops)
        return us * 0.95 * own if config["persistent"] else us

    searcher = make_searcher("scout", space, seed=seed)
    proposals = drive(searcher, lambda c: Measurement("ok", (latency_us(c),)), trials=500)
    assert min(latency_us(p.config) for p in proposals) < 96
    assert {p.origin for p in proposals} == {"start", "model", "step"}
