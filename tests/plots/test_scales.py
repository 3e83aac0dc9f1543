"""Axes of ratios: as few ticks as asked for, but never so few that the scale is not told."""

import numpy as np
import pytest

from kt_lab.plots.scales import log_ticks, set_ratio_axis
from kt_lab.plots.style import new_figure


@pytest.mark.parametrize("most", [2, 4, 7])
def test_a_logarithmic_axis_has_two_ticks_at_least(most):
    for low in np.geomspace(0.08, 60, 40):
        for span in (1.05, 1.3, 2.1, 4.0, 9.0, 11.0, 70.0, 2e3):
            ticks = log_ticks(low, low * span, most=most)
            assert len(ticks) >= 2, (low, span)
            assert len(ticks) <= most or span < 2, (low, span)
            assert low <= ticks[0] * 1.0001 < ticks[-1] <= low * span


def test_ticks_that_were_enough_stay():
    assert log_ticks(0.9, 22.0) == [1.0, 2.0, 5.0, 10.0, 20.0]
    assert log_ticks(0.1, 12.0, most=2) == [0.1, 10.0]
    assert log_ticks(0.12, 9.0, most=2) == [0.3, 3.0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("log", [True, False])
def test_an_axis_of_one_value_has_room_around_it(log):
    ax = new_figure().subplots()
    set_ratio_axis(ax.xaxis, 1.0, 1.0, log=log)
    assert ax.get_xlim()[0] < 1 < ax.get_xlim()[1]
