"""The figures of the study: drawn from their points alone, within the page, told by captions."""

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from kt_lab import plots
from kt_lab.errors import UsageError
from kt_lab.moe_study import drawings, held_out
from kt_lab.plots import moe_kernels, moe_references, moe_sharing, moe_tunings
from tests.redrawing import picture, reread

PLOTS = {
    "name_spread": moe_tunings.plot_name_spread,
    "experts": moe_sharing.plot_regrets,
    "groups": moe_sharing.plot_regrets,
    "repeated": moe_tunings.plot_repeated,
    "fences": moe_kernels.plot_fences,
    "held_out": moe_sharing.plot_held_out,
    "layouts": moe_kernels.plot_layouts,
    "cold": moe_tunings.plot_cold,
    "references": moe_references.plot_references,
    "traffic": moe_references.plot_traffic,
}


@pytest.fixture(scope="module")
def draw(noisy, turned, result):
    """Returns the drawing of a name at text width, for a paper."""

    def made(name):
        figure = getattr(drawings, f"{name}_figure")
        found = noisy if name == "name_spread" else [*noisy, *turned]
        return figure(result if name in ("repeated", "cold") else found, width="text")

    return made


def assert_within_the_page(fig):
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    box, (wide, high) = fig.get_tightbbox(canvas.get_renderer()), fig.get_size_inches()
    assert min(box.x0, box.y0) >= -0.02
    assert box.x1 <= wide + 0.02
    assert box.y1 <= high + 0.02


@pytest.mark.parametrize("name", PLOTS)
def test_a_figure_is_drawn_from_what_was_saved_at_any_width(draw, name, tmp_path):
    drawing = draw(name)
    assert len(drawing.caption) > 80
    assert "nan" not in drawing.caption
    points = reread(drawing.points, name, tmp_path)
    with plots.paper(width="text"):
        again = PLOTS[name](*points.values())
    assert picture(again) == picture(drawing.figure)
    assert_within_the_page(again)
    with plots.paper(width="column"):
        assert_within_the_page(PLOTS[name](*points.values()))


def test_what_is_slower_than_a_reference_is_drawn_as_well(draw):
    points = draw("references").points.copy()
    points.loc[points.index[0], ["over_single", "low", "high"]] = 0.4
    points.loc[points.index[1], ["over_compiled", "published_speedup"]] = 0.5, 0.3
    (ax, *_) = moe_references.plot_references(points).axes
    left, right = ax.get_xlim()
    assert {0.3, 0.4, 0.5} <= {x for line in ax.lines for x in line.get_xdata()}
    assert left < 0.3
    assert right > points["over_eager"].max()


def regret_table(kernel, *lists):
    rows = {"kernel": kernel, "regret": 0.0, "shares_original": True, "shares_mended": False}
    pairs = [("1x8x8", "1x8x8"), ("1x8x8", "2x8x8")]
    return pd.DataFrame(
        {**rows, "list": name, "tuned": tuned, "workload": ran}
        for name in lists
        for tuned, ran in pairs
    )


def test_the_first_panel_of_each_kernel_has_the_labels_of_its_rows():
    names = ("moe_weights_atomic", "moe_weights_cast", "moe_weights_colwise")
    lists = (("pr3952", "wide"), ("wide",), ("published", "wide"))
    table = pd.concat(map(lambda kernel, own: regret_table(kernel, *own), names, lists))
    with plots.paper(width="text"):
        fig = moe_sharing.plot_regrets(table.reset_index(drop=True))
    shown = {ax.get_title(): [text.get_text() for text in ax.get_yticklabels()] for ax in fig.axes}
    assert [title for title, labels in shown.items() if title and any(labels)] == [
        *("atomic: scales, pr3952", "atomic: cast, wide", "weights colwise, published")
    ]
    assert fig.axes[4].get_title() == "weights colwise, published", "a row per kernel"


@pytest.mark.parametrize(
    ("kernel", "key"),
    [("moe_weights_cast", "torchao's key"), ("jagged_rowwise", "torchao's key before 3952")],
)
def test_outlines_say_of_which_key_they_are(kernel, key):
    table = regret_table(kernel, "wide")
    (legend,) = moe_sharing.plot_regrets(table).legends
    assert [text.get_text() for text in legend.get_texts()] == [f"shared by {key}"]
    assert f"Worst where {key} shares" in moe_sharing.caption_regrets(table, differ="experts")


def test_legends_of_layouts_lie_above_the_data(draw):
    fig = moe_kernels.plot_layouts(*draw("layouts").points.values())
    FigureCanvasAgg(fig).draw()
    for ax in fig.axes:
        assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1


def test_a_family_that_nobody_knew_is_drawn_beside_the_others(noisy):
    losses = held_out.losses(noisy)
    losses = losses.assign(tuned=losses["tuned"].replace("Llama 4", "somebody's"))
    (legend,) = moe_sharing.plot_held_out(losses.assign(own=False)).legends
    said = [text.get_text() for text in legend.get_texts()]
    assert said[-2:] == ["tuned on somebody's", "a regression"]


def test_a_table_without_its_columns_is_refused():
    with pytest.raises(UsageError, match="must hold the columns"):
        moe_sharing.plot_regrets(pd.DataFrame({"kernel": ["k"]}))
