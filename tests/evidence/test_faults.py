"""The fault matrix tells a shift of later readings from the spread of undisturbed ones."""

import numpy as np
import pytest

from kt_lab.evidence.faults import EXPECTED, judged

ARMS = ("nothing", "none", "restart", *EXPECTED)


def pairs(shifted: dict[str, float], *, times: int = 200) -> dict[str, list[list[float]]]:
    """Readings of 10 us with 1 % of noise; after an arm of `shifted` they are that much higher."""
    rng = np.random.default_rng(0)
    noise = lambda: float(np.exp(0.01 * rng.standard_normal()))  # noqa: E731
    return {
        arm: [[10 * noise(), 10 * noise() * (1 + shifted.get(arm, 0.0))] for _ in range(times)]
        for arm in ARMS
    }


def test_a_planted_shift_is_found_and_the_others_are_not():
    found = judged(pairs({"illegal_access": 0.1}), list(EXPECTED))
    beyond = {f for f in EXPECTED if abs(found["shift"][f]) > found["noise"][f]}
    assert beyond == {"illegal_access"} == {f for f, p in found["p_holm"].items() if p < 0.05}
    assert found["shift"]["illegal_access"] == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(
    ("fault", "norm"),
    [("endless_loop", "restart"), ("nan", "none"), ("out_of_gpu_memory", "nothing")],
)
def test_a_fault_is_compared_with_what_costs_the_same_without_it(fault, norm):
    """What the norm shifts too is not the fault's doing."""
    both = judged(pairs({fault: 0.1, norm: 0.1}), list(EXPECTED))
    assert abs(both["shift"][fault]) < 0.01
    assert both["p_holm"][fault] > 0.05


def test_one_wild_reading_hides_no_shift():
    spoiled = pairs({"unwritten": 0.1})
    spoiled["none"][3][1] *= 50
    found = judged(spoiled, list(EXPECTED))
    assert abs(found["shift"]["unwritten"]) > found["noise"]["unwritten"]
