"""What a change costs: dots where the ratios are, filled where they are shown to differ."""

import pandas as pd
import pytest

from kt_lab import plots
from kt_lab.errors import UsageError
from kt_lab.plots.variants import caption_variants, plot_variants


@pytest.fixture
def table():
    rows = [
        (50.0, "1 start", 0.99, 0.97, 1.01, 0.5),
        (50.0, "pool of 64", 1.03, 1.02, 1.05, 0.01),
        (200.0, "1 start", 1.02, 0.99, 1.04, 0.2),
        (200.0, "pool of 64", 1.01, 1.0, 1.02, 0.06),
    ]
    names = ["budget", "variant", "ratio", "low", "high", "p_holm"]
    return pd.DataFrame(rows, columns=names).assign(kernels=16)


def dots(ax):
    return {
        (round(line.get_xdata()[0], 3), line.get_ydata()[0]): line.get_markerfacecolor()
        for line in ax.lines
        if line.get_marker() == "o"
    }


def test_every_ratio_is_a_dot_and_the_costliest_change_is_on_top(table):
    with plots.paper("icml", columns=2):
        fig = plot_variants(table)
    first, last = fig.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["1 start", "pool of 64"]
    assert set(dots(first)) == {(0.99, 0), (1.03, 1)}
    assert set(dots(last)) == {(1.02, 0), (1.01, 1)}
    assert dots(first)[0.99, 0] == "white"
    assert dots(first)[1.03, 1] != "white"
    assert [ax.get_title() for ax in fig.axes] == ["50 trials", "200 trials"]
    ends = [tuple(line.get_xdata()) for line in first.lines if len(line.get_xdata()) == 2]
    assert {(0.97, 1.01), (1.02, 1.05)} <= set(ends)


def test_the_caption_names_what_differs_and_how_many_took_part(table):
    told = caption_variants(table, whole="scout", workloads=24, seeds=10, gpu="h200")
    assert "16 kernels (24 workloads on H200, 10 seeds, by replay)" in told
    assert "Shown to differ: pool of 64." in told
    level = caption_variants(
        table.assign(p_holm=0.5), whole="scout", workloads=1, seeds=1, gpu="h100"
    )
    assert "No change is shown to differ." in level


def test_a_table_without_intervals_is_refused(table):
    with pytest.raises(UsageError, match="low"):
        plot_variants(table.drop(columns="low"))
