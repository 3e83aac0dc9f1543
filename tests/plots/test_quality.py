"""Quality against time: what lies beyond its axes is told, and no words lie over points."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from kt_lab import plots


def joint(rows):
    """Tables of latency and wall-clock ratios to Pattern, of (workload, searcher, wall, latency);
    no workload: the geomean."""
    facts = {"gpu": "h200", "reference": "pattern", "kernel": "softmax", "lanes": 16, "n_seeds": 3}
    facts |= {"confidence": 0.95, "n_workloads": 2}
    table = pd.DataFrame(rows, columns=["workload", "searcher", "wall", "latency"]).assign(**facts)
    table["scope"] = np.where(table["workload"].isna(), "geomean", "workload")
    return [
        table.assign(measure=m, estimate=table[n], low=table[n] / 1.01, high=table[n] * 1.01)
        for m, n in (("latency", "latency"), ("wall_clock", "wall"))
    ]


MEANS = [(None, "pattern", 1.0, 1.0), (None, "random", 1.5, 1.2)]
NEAR = [(f"softmax/{i}", "random", 1.4 + 0.01 * i, 1.15) for i in range(20)]


def words(tables):
    """The words in the corners with their boxes, and the axes."""
    with plots.paper("icml"):
        ax = plots.plot_quality_vs_time(*tables)
        FigureCanvasAgg(ax.figure).draw()
    return {text.get_text(): text.get_window_extent() for text in ax.texts}, ax


def test_the_caption_tells_what_is_drawn_at_the_edge():
    edge, infinite = "single workloads, at the edge where they lie beyond it.", "Open marker"
    told = plots.caption_quality_vs_time(*joint([*MEANS, *NEAR]))
    assert "single workloads. Wall-clock" in told
    assert infinite not in told
    for far in (("softmax/far", "random", 9.0, 1.15), ("softmax/far", "random", 1.4, np.inf)):
        assert edge in plots.caption_quality_vs_time(*joint([*MEANS, *NEAR, far]))
    of_the_reference = ("softmax/far", "pattern", 9.0, 1.0)  # its dots are not drawn
    told = plots.caption_quality_vs_time(*joint([*MEANS, *NEAR, of_the_reference]))
    assert "at the edge" not in told
    for ratio in (np.inf, 0.0):
        tables = joint([MEANS[0], (None, "random", 1.5, ratio), *NEAR])
        assert "Open marker at the edge: infinite, or 0." in plots.caption_quality_vs_time(*tables)
        drawn = next(line for line in words(tables)[1].lines if line.get_label() == "Random")
        assert drawn.get_markerfacecolor() == "white"


def covered(tables):
    """Whether any words lie over a dot."""
    found, ax = words(tables)
    dots = np.concatenate([ax.transData.transform(each.get_offsets()) for each in ax.collections])
    return any(box.contains(*dot) for box in found.values() for dot in dots)


@pytest.mark.parametrize("text", ["cheaper,\nbut slower", "cheaper\nand faster"])
def test_words_leave_the_corner_or_the_picture_to_points(text):
    found, ax = words(joint([*MEANS, *NEAR]))
    left, (bottom, top) = ax.get_xlim()[0], ax.get_ylim()
    corner = ax.transData.inverted().transform(found[text].get_points().mean(axis=0))
    points = [("softmax/corner", "random", *corner)]
    moved = joint([*MEANS, *NEAR, *points])
    assert (text in words(moved)[0]) == ("slower" in text)  # the lower side has one place
    assert not covered(moved)
    xs = np.linspace(left, 1, 8)
    ys = np.linspace(1, top, 8) if "slower" in text else np.linspace(bottom, 1, 8)
    crowd = joint([*MEANS, *NEAR, *(("softmax/crowd", "random", x, y) for x in xs for y in ys)])
    assert text not in words(crowd)[0]
    assert not covered(crowd)
