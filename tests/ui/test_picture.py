"""The live picture: the judged curve of one run over what it is held against."""

import math

import matplotlib as mpl
import numpy as np
import pytest

from kt_lab.trial import Config
from kt_lab.ui.choices import Known
from kt_lab.ui.picture import progress_figure, progress_png
from kt_lab.ui.progress import Point, Snapshot

CURVE = (Point(3, 0.5, 30.0, 31.0), Point(20, 2.0, 12.0, 12.5), Point(80, 9.0, 12.0, 12.5))


def test_the_picture_draws_the_judged_curve_over_optimum_and_noise_floor():
    snapshot = Snapshot(curve=CURVE, incumbent=Config(A=1))
    fig = progress_figure(snapshot, searcher="tpe", known=Known(10.0, 1.02))
    for ax, end in zip(fig.axes, (80, 9.0), strict=True):
        line = max(ax.lines, key=lambda each: len(each.get_xdata()))
        x, y = line.get_data()
        assert (x[-1], y[-1]) == (end, 1.25)
        assert y[np.searchsorted(x, end * 0.2)] == 3.1
        levels = {each.get_ydata()[0] for each in ax.lines if len(set(each.get_ydata())) == 1}
        assert {1.0, 1.02} <= levels
        assert ax.get_ylim()[0] < 1 < 3.1 < ax.get_ylim()[1]
    assert fig.axes[0].get_ylabel() == "latency / optimum"
    live = progress_figure(snapshot, searcher="tpe", known=Known(bytes_floor_us=2.0))
    assert live.axes[0].get_ylabel() == "latency (µs)"
    assert max(live.axes[0].lines, key=lambda e: len(e.get_xdata())).get_ydata()[-1] == 12.0


@pytest.mark.parametrize("known", [Known(), Known(10.0, 1.02)])
def test_a_picture_before_anything_is_ok_says_so_and_changes_no_settings(known):
    before = dict(mpl.rcParams)
    nothing = Snapshot(curve=(Point(2, 0.1, math.nan, math.nan),))
    assert progress_png(nothing, searcher="random", known=known).startswith(b"\x89PNG")
    fig = progress_figure(nothing, searcher="random", known=known)
    assert "nothing ok yet" in [text.get_text() for text in fig.axes[0].texts]
    assert dict(mpl.rcParams) == before
