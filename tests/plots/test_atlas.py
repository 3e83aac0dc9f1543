"""The figures of the atlas: drawn from their points alone, within the page, told by captions."""

import re

import numpy as np
import pandas as pd
import pytest

from kt_lab import atlas as figures
from kt_lab import plots
from kt_lab.errors import UnknownName, UsageError
from kt_lab.kernels import get_kernel
from kt_lab.landscape import Landscape, landscapes
from kt_lab.plots.ablation import caption_ablation, plot_ablation
from kt_lab.plots.atlas import (
    caption_effects,
    caption_marginals,
    caption_tails,
    plot_effects,
    plot_marginals,
    plot_tails,
    row_names,
)
from kt_lab.plots.carry_over import caption_carry_over, plot_carry_over
from kt_lab.plots.funnels import plot_fitness_distance, plot_local_optima
from kt_lab.plots.kernel_roofline import caption_kernel_roofline, plot_kernel_roofline
from kt_lab.space import Choice, Constraint, ParameterSpace, PowerOfTwo
from kt_lab.stats import atlas
from tests.redrawing import picture, reread

FIGURES = {
    "tails": (figures.tails_figure, plot_tails),
    "effects": (figures.effects_figure, plot_effects),
    "optima": (figures.local_optima_figure, plot_local_optima),
    "distance": (figures.fitness_distance_figure, plot_fitness_distance),
    "carry_over": (figures.carry_over_figure, plot_carry_over),
    "roofline": (figures.kernel_roofline_figure, plot_kernel_roofline),
    "ablation": (figures.ablation_figure, plot_ablation),
}


def elsewhere(landscape, gpu="h100"):
    """The same recording as if another GPU had read it: slower, and some configs fail."""
    rng = np.random.default_rng(5)
    table = landscape.table.reset_index(drop=True)
    fails = (rng.random(len(table)) < 0.05) & (table["status"] == "ok").to_numpy()
    factors = 1.25 * np.exp(0.05 * rng.standard_normal(len(table)))
    empty = pd.Series([[]] * len(table), dtype=object)
    samples = pd.Series(
        [np.asarray(s) * f for s, f in zip(table["samples_us"], factors, strict=True)]
    )
    table["samples_us"] = samples.where(~fails, empty)
    table["visit"] = table["visit"].where(~fails, empty)
    table["status"] = table["status"].where(~fails, "launch_error")
    return Landscape(table, landscape.manifest | {"gpu": gpu})


@pytest.fixture(scope="module")
def found():
    """Two workloads of one kernel, whose parameters differ, on two GPUs."""
    names = ("int4_gemm/1x1x7168x8192", "int4_gemm/1x2048x2048x2048")
    mine = [
        Landscape.load(e.path) for e in landscapes() if e.workload in names and e.gpu == "h200"
    ]
    return [part for one in mine for part in (one, elsewhere(one))]


@pytest.fixture(scope="module")
def drawn(found):
    return {name: draw(found) for name, (draw, _) in FIGURES.items()}


def texts(fig):
    said = [t.get_text() for ax in fig.axes for t in ax.texts]
    for ax in fig.axes:
        said += [t.get_text() for t in (*ax.get_xticklabels(), *ax.get_yticklabels())]
        said.append(ax.get_title() + ax.get_title(loc="left"))
    return said


@pytest.mark.parametrize("name", FIGURES)
def test_the_same_picture_comes_from_its_saved_points(drawn, name, tmp_path):
    points = reread(drawn[name].points, name, tmp_path)
    plot = FIGURES[name][1]
    with plots.paper("icml", columns=2):
        again = plot(points["data"]) if "data" in points else plot(**points)
    assert picture(again) == picture(drawn[name].figure)


@pytest.mark.parametrize("width", ["column", "text"])
@pytest.mark.parametrize("name", FIGURES)
def test_nothing_leaves_the_page(found, name, width):
    fig = FIGURES[name][0](found, width=width).figure
    assert fig.get_size_inches()[0] == pytest.approx(3.25 if width == "column" else 6.75)
    fig.draw_without_rendering()
    for ax in fig.axes:
        if ax.get_visible():
            box = ax.get_tightbbox()
            assert fig.bbox.x0 - 1 <= box.x0 <= box.x1 <= fig.bbox.x1 + 1


@pytest.mark.parametrize("name", FIGURES)
def test_captions_count_the_landscapes(drawn, name):
    said = drawn[name].caption
    assert re.search(r"\b4 landscapes", said)
    assert "nan" not in said.lower()
    assert said.endswith(".")


def test_rows_are_named_by_shape_and_by_gpu_only_where_it_matters(found):
    table = pd.concat([atlas.tail(x).head(1) for x in found])
    assert [label for *_, label in row_names(table)][:2] == [
        "1x1x7168x8192, h100",
        "1x1x7168x8192, h200",
    ]
    assert {label for *_, label in row_names(table[table["gpu"] == "h200"])} == {
        "1x1x7168x8192",
        "1x2048x2048x2048",
    }


def test_the_caption_of_tails_tells_the_shares_that_are_drawn(found):
    table = pd.concat([atlas.tail(x) for x in found], ignore_index=True)
    near = [(atlas.ratios(x) <= 1.05).sum() / len(x.table) for x in found]
    assert f"{min(near):.2%} to {max(near):.2%}" in caption_tails(table)


def test_effects_show_each_share_and_a_dot_where_a_parameter_does_not_exist(found, drawn):
    table = drawn["effects"].points
    share = table.set_index(["workload", "gpu", "parameters"])["share"]
    said = texts(drawn["effects"].figure)
    first = share[found[0].workload, "h200", "SPLIT_K"]
    assert f"{100 * first:.0f}" in said
    assert "GROUP_M" not in found[0].space.names
    assert said.count("·") >= 4  # GROUP_M and EVICTION, on two GPUs each
    top = table.loc[table["share"].idxmax()]
    assert f"{top['parameters']} with {top['share']:.0%}" in caption_effects(table)


def test_marginals_tell_failures_and_survive_the_points_file(found, tmp_path):
    drawing = figures.marginals_figure(found[1])
    said = texts(drawing.figure)
    failed = drawing.points["failed"]
    assert failed.max() > 0
    assert f"{failed.max():.0%}" in said
    assert {"(empty)", "evict_first", "magic"} <= set(said)
    sign = drawing.figure.legends[0].legend_handles[-1]
    assert (sign.get_label(), sign.get_markeredgewidth()) == ("share that fails", 0)
    points = reread(drawing.points, "marginals", tmp_path)
    with plots.paper("icml", columns=2):
        again = plot_marginals(points["data"])
    assert picture(again) == picture(drawing.figure)
    worst = drawing.points.groupby("parameter")["best"].max()
    assert f"a wrong {worst.idxmax()} alone" in caption_marginals(drawing.points)


def test_failed_and_missing_cells_of_a_transfer_look_different():
    carry = pd.DataFrame(
        [
            ("a on x", "a on x", 30, 1.0, 1.0, 1.0),
            ("a on x", "b on x", 30, 0.5, np.inf, 1.25),
            ("b on x", "a on x", 3, np.nan, np.nan, np.nan),
            ("b on x", "b on x", 30, 1.0, 1.0, 1.0),
        ],
        columns=["source", "target", "shared", "spearman", "best_ratio", "top_ratio"],
    )
    with plots.paper("icml", columns=2):
        fig = plot_carry_over(carry)
    ranks, best, top = fig.axes
    assert sum(bool(p.get_hatch()) for p in best.patches) == 1
    assert not any(p.get_hatch() for ax in (ranks, top) for p in ax.patches)
    assert [t.get_text() for t in best.texts] == ["1.00", "·", "1.00"]
    assert "1.25" in [t.get_text() for t in top.texts]
    assert [t.get_text() for t in fig.legends[0].get_texts()] == [
        "it fails there",
        "not in the other space, or too few shared",
    ]
    said = caption_carry_over(carry, kernel="toy")
    assert "fails in 1 and is outside the space of the other or unrecorded in 1" in said
    whole = carry[carry["source"] == carry["target"]].head(1)
    assert "nothing to carry over" in caption_carry_over(whole, kernel="toy")


def test_a_waterfall_tells_the_gain_of_each_step_and_starts_where_the_default_failed():
    path = pd.DataFrame(
        {
            "workload": "toy/16",
            "gpu": "h200",
            "step": [0, 1, 2, 3],
            "changed": ["", "A: 1 -> 2, B: 1 -> 2", "C: 1 -> 2", "D: x -> y"],
            "latency_us": [np.nan, 20.0, 25.0, 10.0],
            "gain": [np.nan, np.nan, 0.8, 2.5],
        }
    )
    with plots.paper("icml"):
        fig = plot_ablation(path)
    said = texts(fig)
    assert {"failed", "20 µs", "×0.80", "×2.50  (10 µs)"} <= set(said)  # noqa: RUF001
    assert "A: 1 → 2,\nB: 1 → 2" in said
    bars = [p for p in fig.axes[0].patches if p.get_width()]
    assert sorted(p.get_width() for p in bars) == pytest.approx([-15, 5])
    assert len({p.get_facecolor() for p in bars}) == 2, "a loss does not look like a gain"
    told = caption_ablation(path)
    assert "D: x -> y with 2.50 times" in told
    assert "In all 2.00 times" in told


def test_the_roofline_of_a_kernel_tells_best_default_and_vendor(drawn):
    table = drawn["roofline"].points
    assert set(table["label"]) == {"best", "default", "vendor"}
    best = table[table["label"] == "best"]
    assert f"{best['share'].min():.0%}" in drawn["roofline"].caption
    blind = table.assign(peak_flops_per_s=np.nan)
    with plots.paper("icml", columns=2):
        plot_kernel_roofline(blind)
    assert "its peak is not known" in caption_kernel_roofline(blind)
    with pytest.raises(UsageError, match="landscapes that tell neither"):
        plot_kernel_roofline(blind.assign(share=np.nan))


def test_one_landscape_alone_can_be_drawn_and_its_caption_tells_no_span(found):
    for draw, _ in FIGURES.values():
        drawing = draw(found[:1], width="column")
        drawing.figure.draw_without_rendering()
        assert not re.search(r"(\S*\d\S*( \(.*?\))?) to \1", drawing.caption)


def test_only_what_is_recorded_can_be_opened():
    name = figures.recorded_kernels()[0]
    assert {x.kernel for x in figures.open_kernel(name, gpus=["h200"])} == {name}
    with pytest.raises(UnknownName, match="nothing_of_this_name"):
        figures.open_kernel("nothing_of_this_name")
    with pytest.raises(UnknownName, match=r"recorded GPU .* got 'h300'; did you mean"):
        figures.open_kernel(name, gpus=["h300"])
    with pytest.raises(UnknownName, match=r"recorded kernel on h100 .* got 'attention'"):
        figures.open_kernel("attention", gpus=["h100"])
    with pytest.raises(UsageError, match="at least one row"):
        plot_tails(pd.DataFrame(columns=["workload", "gpu", "ratio", "share"]))


def test_constraints_tell_what_they_forbid():
    space = ParameterSpace(
        [PowerOfTwo("A", 1, 8), Choice("B", ("", "x"))],
        constraints=(
            Constraint("small", "A * K <= 8", "A may not be large"),
            Constraint("plain", "A == 1 or B == ''", "x needs the smallest A"),
        ),
        default={"A": 1, "B": ""},
        constants={"K": 2},
    )
    table = figures.constraints_table(space).set_index("constraint")
    # 8 combinations: A = 8 breaks the first twice; x with A = 2, 4, 8 the second.
    assert table["forbids"].tolist() == [2 / 8, 3 / 8]
    assert table["alone"].tolist() == [1 / 8, 2 / 8]
    assert table.loc["small", "what it means"] == "A may not be large"
    shown = figures.parameters_table(space).set_index("parameter")
    assert shown.loc["B", "values"] == "(empty), x"
    assert shown.loc["B", "default"] == "(empty)"


def test_constraints_over_numbers_beside_texts_tell_it_too():
    space = ParameterSpace(
        [Choice("A", (16, 32, "auto")), PowerOfTwo("B", 1, 2)],
        constraints=[Constraint("wide", "A != 16 or B > 1", "16 needs B")],
        default={"A": 32, "B": 1},
    )
    assert figures.constraints_table(space)["forbids"].tolist() == [1 / 6]


def test_workloads_tell_their_floors():
    kernel = get_kernel("softmax")
    table = figures.workloads_table(kernel)
    assert table["configs"].tolist() == [kernel.space(w).size for w in kernel.workloads]
    assert table["moved (MB)"].iloc[0] == pytest.approx(4 * 4096 * 640 / 1e6)


def test_a_kernel_without_arithmetic_shows_shares_alone():
    found = figures.kernel_roofline_figure(figures.open_kernel("tokens_transpose"))
    assert len(found.figure.axes) == 1
    assert found.figure.axes[0].get_xlabel() == "share of the roofline"


def test_more_shapes_than_colours_are_told_apart():
    found = figures.tails_figure(figures.open_kernel("moe_weights_cast"))
    looks = [(line.get_color(), line.get_linewidth()) for line in found.figure.axes[0].lines]
    assert len(looks) == len(set(looks)) == 10
