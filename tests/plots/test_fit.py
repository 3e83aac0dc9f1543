"""Nothing is cut off, and no labels overlap, at any venue's column or text width."""

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation, Text

from kt_lab import comparison, plots, stats, study
from kt_lab.plots import style
from kt_lab.plots.anatomy import plot_anatomy
from tests.plots.conftest import make_optima, make_runs, make_tables

SMALLEST_PT = 4.5
PAGES = [("icml", "column"), ("icml", "text"), ("neurips", "text"), ("ieee", "column")]
MANY = ("pattern", "random", "tpe", "lfbo_pattern", "ucb_pattern")


@pytest.fixture(scope="module")
def few():
    """Four workloads with long names, five searchers."""
    return make_runs(searchers=MANY, kernels=2, workloads=2, seeds=3, n=40)


@pytest.fixture(scope="module")
def tables(few):
    """Every table that figures draw."""
    optima = make_optima(few)
    curves = stats.incumbent_curves(few)
    found = {
        "ratios": make_tables(few),
        "bands": [
            stats.convergence_bands(curves, x=x, optima=optima)
            for x in ("spent_trials", "elapsed_s")
        ],
        "ecdf": stats.runtime_ecdf(few, optima),
        "profile": stats.performance_profile(
            stats.latency_at(few, (None,), optima=optima, reference=None, resamples=1)
        ),
        "tests": comparison.significance_table(few, reference=None),
    }
    found["landscapes"] = study.landscape_figure().points
    budgets = []
    for budget in (10, 20, 30, None):
        at = stats.latency_at(few, (budget,), optima=optima, resamples=50)
        at = at[(at["scope"] == "geomean") & (at["reference"] == "optimum")]
        budgets.append(at.drop(columns="axis").assign(axis="spent_trials"))
    found["budgets"] = pd.concat(budgets, ignore_index=True)
    return found


def draw(kind, tables):
    tests = tables["tests"][tables["tests"]["unit"] == "workload"]
    return {
        "bars": lambda: plots.plot_ratio_bars(*tables["ratios"]),
        "forest": lambda: plots.plot_ratio_forest(*tables["ratios"]),
        "budgets": lambda: plots.plot_budgets(tables["budgets"]),
        "quality": lambda: plots.plot_quality_vs_time(*tables["ratios"][:2]).figure,
        "convergence": lambda: plots.plot_convergence(*tables["bands"], noise_floor=1.02),
        "profiles": lambda: plots.plot_profiles(tables["ecdf"], tables["profile"]),
        "significance": lambda: plots.plot_significance(tests),
        "landscapes": lambda: plots.plot_landscape_ecdf(tables["landscapes"]).figure,
    }[kind]()


KINDS = (
    "bars",
    "forest",
    "budgets",
    "quality",
    "convergence",
    "profiles",
    "significance",
    "landscapes",
)


def seen(fig):
    """Every text that is drawn, with its box in pixels; ticks beyond their axis are not."""
    canvas, drawn = FigureCanvasAgg(fig), []
    if fig.axes:
        fig.get_layout_engine().execute(fig)  # drawing lays out again, as the PDF after the PNG
    with pytest.MonkeyPatch.context() as patch:
        original = Text.draw
        patch.setattr(Text, "draw", lambda t, *r, **k: (drawn.append(t), original(t, *r, **k))[1])
        canvas.draw()
    return [
        (text, text.get_window_extent(canvas.get_renderer()))
        for text in dict.fromkeys(drawn)
        if text.get_visible() and text.get_text().strip()
    ]


def check(fig):
    texts = seen(fig)
    width, height = fig.bbox.width, fig.bbox.height
    for text, box in texts:
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1
        assert inside, f"{text.get_text()!r} is cut off: {box.extents} of {width} x {height}"
        assert text.get_fontsize() >= SMALLEST_PT, text.get_text()
    labels = [
        (text, box)
        for text, box in texts
        if text.get_rotation() == 0 and not isinstance(text, Annotation)
    ]
    for at, (one, box) in enumerate(labels):
        for other, beside in labels[at + 1 :]:
            both = min(box.x1, beside.x1) - max(box.x0, beside.x0)
            high = min(box.y1, beside.y1) - max(box.y0, beside.y0)
            assert not (both > 1 and high > 2), (one.get_text(), other.get_text())


@pytest.mark.parametrize(("venue", "width"), PAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_fits_its_page(kind, venue, width, tables):
    with plots.paper(venue, width=width):
        check(draw(kind, tables))


@pytest.mark.parametrize(("venue", "width"), PAGES)
def test_an_anatomy_fits_its_page(venue, width, anatomy, quality, calibrated):
    with plots.paper(venue, width=width):
        check(plot_anatomy(anatomy, quality, calibrated))


def test_what_is_cut_off_would_be_found():
    with plots.paper("icml"):
        fig = style.new_figure()
        fig.text(0.9, 0.5, "beyond the edge of it")
        with pytest.raises(AssertionError, match="cut off"):
            check(fig)
    assert mpl.rcParams["font.size"] == mpl.rcParamsDefault["font.size"]
