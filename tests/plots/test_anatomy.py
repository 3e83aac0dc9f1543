"""The anatomy figure: shares fill their bars, few runs are hollow, and the caption tells all."""

import pandas as pd
import pytest

from kt_lab import plots
from kt_lab.errors import UsageError
from kt_lab.plots.anatomy import caption_anatomy, plot_anatomy

SAID = "9 workloads of 2 kernels (h200, 16 compile lanes, 30 seeds per workload)."


def draw(*tables):
    with plots.paper("icml", columns=2):
        return plot_anatomy(*tables)


def test_bars_are_shares_of_each_searcher(anatomy, quality, calibrated):
    axes = draw(anatomy, quality, calibrated).subfigs[0].axes
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["Random", "LFBO-Pattern"]
    for ax, expected in (
        (axes[0], [0.8, 0.2, 0.625, 0.375]),
        (axes[1], [0.9, 0.1, 0.3, 0.6, 0.1]),
    ):
        widths = [bar.get_width() for bar in ax.patches if bar.get_width()]
        assert sorted(widths) == pytest.approx(sorted(expected))


def test_a_loss_lies_left_of_zero_and_no_gain_is_told(anatomy, quality, calibrated):
    ax = draw(anatomy, quality, calibrated).subfigs[0].axes[2]
    ends = sorted((b.get_x(), b.get_x() + b.get_width()) for b in ax.patches if b.get_width())
    assert ends == [(0.0, -0.25), (0.0, 1.25)] or ends == [(-0.25, 0.0), (0.0, 1.25)]
    assert ax.get_xlim()[0] <= -0.25
    assert ax.get_xlim()[1] >= 1.25
    assert "none" in [text.get_text() for text in ax.texts]


def test_generations_that_few_runs_reached_are_hollow(anatomy, quality, calibrated):
    ax = draw(anatomy, quality, calibrated).subfigs[1].axes[0]
    marks = {
        line.get_markerfacecolor(): line.get_xdata().tolist()
        for line in ax.lines
        if line.get_marker() == "o" and line.get_linestyle() == "None"
    }
    assert marks["#ffffff"] == [3.0]
    assert sorted(x for xs in marks.values() for x in xs) == [1.0, 2.0, 3.0]
    assert ax.get_ylim()[0] < -0.6


def test_origins_have_looks_of_their_own(anatomy, quality, calibrated):
    legend = draw(anatomy, quality, calibrated).subfigs[0].legends[0]
    assert [t.get_text() for t in legend.get_texts()] == [
        *("start", "random", "neighbour", "of my own", "retime")
    ]
    looks = {(p.get_facecolor(), p.get_hatch()) for p in legend.get_patches()}
    assert len(looks) == 5
    searchers = {style.color for style in plots.style.STYLES.values()}
    assert not {plots.style.mpl.colors.to_hex(face) for face, _ in looks} & searchers


def test_searchers_without_probabilities_have_no_calibration(anatomy, quality, calibrated):
    fig = draw(anatomy, quality, calibrated.iloc[:0])
    assert [ax.get_title(loc="left") for ax in fig.subfigs[1].axes] == ["(c)"]
    caption = caption_anatomy(anatomy, quality, calibrated.iloc[:0], evidence=SAID)
    assert not any(words in caption for words in ("(d)", "calibration", "probability", "whiskers"))
    both = caption_anatomy(anatomy, quality, calibrated, evidence=SAID)
    assert caption == both[: both.index("(d)")] + both[both.index("Bands") :].replace(
        " and whiskers", "", 1
    )


def test_numbers_on_dark_hatches_have_a_light_box(anatomy, quality, calibrated):
    dark = plots.style.mpl.colors.to_rgba("#8294a3")
    for ax in draw(anatomy, quality, calibrated).subfigs[0].axes:
        hatched = [bar for bar in ax.patches if bar.get_hatch() and bar.get_facecolor() == dark]
        for text in ax.texts:
            x, y = text.get_position()
            if any(bar.get_bbox().contains(x, y) for bar in hatched):
                assert text.get_bbox_patch().get_facecolor() == (1, 1, 1, 1)
                hatched = [bar for bar in hatched if not bar.get_bbox().contains(x, y)]
        assert all(abs(bar.get_width()) < 0.12 for bar in hatched)


def test_the_caption_tells_the_evidence(anatomy, quality, calibrated):
    caption = caption_anatomy(anatomy, quality, calibrated, evidence=SAID)
    assert f". {SAID} (a) Trials and machine seconds" in caption
    assert "expected calibration error: LFBO-Pattern 0.10" in caption


def test_several_rows_of_one_origin_are_refused(anatomy, quality, calibrated):
    with pytest.raises(UsageError, match="one row per searcher and origin"):
        draw(pd.concat([anatomy, anatomy]), quality, calibrated)
