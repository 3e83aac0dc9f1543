"""The heat map and the roofline: drawn from their points alone, and told by their captions."""

import numpy as np
import pytest

from kt_lab import load_landscape, plots, stats
from kt_lab.cells import Cell, run_cell
from kt_lab.errors import UsageError
from kt_lab.plots.slices import MOST, SLOTS, cell_color, cell_text, ink_on, route, slot_offsets
from kt_lab.trial import OK

WORKLOAD = "int4_gemm/1x2048x2048x2048"


@pytest.fixture(scope="module")
def landscape():
    return load_landscape(WORKLOAD, gpu="h200")


@pytest.fixture(scope="module")
def tables(landscape):
    """A slice with failures, and a search that fails now and then."""
    fixed = {"BLOCK_N": 256}
    run = run_cell(Cell(WORKLOAD, "h200", "random", "random", (), 16, 1, 150, None))
    cells = stats.landscape_slice(landscape, "BLOCK_M", "num_stages", fixed=fixed)
    return cells, stats.search_path(landscape, run, "BLOCK_M", "num_stages", fixed=fixed)


def _texts(fig):
    return {text.get_text() for ax in fig.axes for text in ax.texts} | {
        text.get_text() for legend in fig.legends for text in legend.get_texts()
    }


@pytest.mark.parametrize("with_path", [False, True])
def test_the_same_picture_comes_from_its_points(tables, tmp_path, with_path):
    cells, path = tables[0], tables[1] if with_path else None
    data = {"cells": cells, "path": path} if with_path else {"cells": cells}
    pictures = []
    for name in ("first", "again"):
        with plots.paper("icml"):
            fig = plots.plot_landscape_slice(**data).figure
        paths = plots.save_figure(fig, name, data=data, directory=tmp_path)
        pictures.append(paths["png"].read_bytes())
        data = plots.read_points(paths["csv"])
    assert pictures[0] == pictures[1]


def test_every_cell_says_what_it_is(tables):
    cells, path = tables
    with plots.paper("icml"):
        fig = plots.plot_landscape_slice(cells, path=path).figure
    said = _texts(fig)
    assert {f"{ratio:.2f}" for ratio in cells["ratio"] if ratio < 9.99} <= said
    assert set(cells["status"]) > {OK}, "the example has failures"
    assert {cell_text(s, np.nan) for s in cells["status"] if s != OK} - said <= {""}
    assert {"reading", "failed reading", "incumbent"} <= said
    numbers = [text for text in fig.axes[0].texts if text.get_text() != "·"]
    assert all(text.get_path_effects() for text in numbers), "a halo, over the incumbent's line"
    assert min(text.zorder for text in numbers) > max(line.zorder for line in fig.axes[0].lines)
    fig.draw_without_rendering()
    frame = fig.bbox
    for ax in fig.axes:
        box = ax.get_tightbbox()
        assert frame.x0 <= box.x0 <= box.x1 <= frame.x1


def test_captions_count_what_is_drawn(tables):
    cells, path = tables
    inside = path[path["inside"]]
    said = plots.caption_landscape_slice(cells, path=path)
    assert f"{len(inside)} readings of one search" in said
    assert f"{(inside['status'] != OK).sum()} of them failed" in said
    assert f"({cells['n_configs'].sum()} configs)" in said
    assert "with BLOCK_N=256 and" in said


def test_text_on_every_colour_can_be_read():
    def luminance(color):
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return np.dot(parts, (0.2126, 0.7152, 0.0722))

    for ratio in np.geomspace(1, 2 * MOST, 40):
        face = cell_color(ratio)
        low, high = sorted(map(luminance, (face, ink_on(face))))
        assert (high + 0.05) / (low + 0.05) >= 4.5, "WCAG 2.2, level AA"
    assert cell_color(MOST) == cell_color(100 * MOST)


def test_readings_of_a_cell_do_not_hide_each_other(tables):
    path = tables[1]
    offsets = slot_offsets(path)
    assert ((offsets > 0) & (offsets < 1)).all()
    for _, cell in path.assign(x=offsets[:, 0], y=offsets[:, 1]).groupby(["x_index", "y_index"]):
        few = cell.head(SLOTS[0] * SLOTS[1])
        assert not few.duplicated(["x", "y"]).any()
    steps = route(path)
    assert (np.diff(path["latency_us"].iloc[steps]) < 0).all(), "each reads faster than the last"


def test_a_roofline_shows_the_roof_and_each_config(landscape, tmp_path):
    configs = {"optimum": landscape.best, "default": landscape.space.default}
    points = stats.roofline_points(landscape, configs)
    with plots.paper("icml"):
        fig = plots.plot_roofline(points).figure
    assert {"optimum", "default", "989 TFLOP/s, data sheet"} <= _texts(fig)
    paths = plots.save_figure(fig, "roof", data=points, directory=tmp_path)
    with plots.paper("icml"):
        again = plots.plot_roofline(plots.read_points(paths["csv"])["data"]).figure
    assert plots.png_bytes(again, dpi=300) == paths["png"].read_bytes()
    share = points["flops_share"].iloc[0]
    assert f"optimum {share:.1%}" in plots.caption_roofline(points)


def test_an_unknown_peak_leaves_the_slope_alone(landscape):
    points = stats.roofline_points(landscape, {"optimum": landscape.best})
    points = points.assign(peak_flops_per_s=np.nan, flops_share=np.nan)
    with plots.paper("icml"):
        said = _texts(plots.plot_roofline(points).figure)
    assert not any("TFLOP/s" in text for text in said)
    assert "arithmetic" not in plots.caption_roofline(points)
    with pytest.raises(UsageError, match="at least one row"):
        plots.plot_roofline(points.head(0))


def test_without_arithmetic_there_are_shares_and_no_roof():
    moved = load_landscape("tokens_transpose/16640x5120", gpu="h200")
    points = stats.roofline_points(moved, {"optimum": moved.best, "default": moved.space.default})
    with plots.paper("icml"):
        axes = plots.plot_roofline(points)
    assert axes.get_xlabel() == "share of the copy speed"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["optimum", "default"]
    assert "arithmetic" not in plots.caption_roofline(points)


def test_shares_that_are_not_known_leave_no_empty_figure():
    moved = load_landscape("tokens_transpose/16640x5120", gpu="h200")
    points = stats.roofline_points(moved, {"optimum": moved.best, "default": moved.space.default})
    with plots.paper("icml"):
        assert "not known" not in _texts(plots.plot_roofline(points).figure)
        axes = plots.plot_roofline(points.assign(bytes_share=np.nan))
    assert [text.get_text() for text in axes.texts] == ["not known", "not known"]
