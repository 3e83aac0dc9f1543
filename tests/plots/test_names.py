"""Searchers of one's own: looks that no other has, and names that are longer than a figure."""

import pytest
from matplotlib.lines import Line2D

from kt_lab import plots
from kt_lab.errors import UsageError
from kt_lab.plots import style
from kt_lab.plots.lettering import points_wide, shortened
from tests.plots.conftest import make_runs, make_tables
from tests.plots.test_fit import check

REFERENCE, OTHER = "our_pattern_search_with_restarts", "baseline_random_uniform_v2_b"


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    """No name of another test has a look."""
    monkeypatch.setattr(style, "_OWN", {})


def different(looks, *parts):
    return len({tuple(getattr(look, part) for part in parts) for look in looks})


def test_searchers_of_ones_own_do_not_share_a_line(monkeypatch):
    """These three have one by their spelling; the order of calls decides nothing."""
    names, looks = ["tabu", "bandit", "my_tuner"], []
    for order in (names, names[::-1]):
        monkeypatch.setattr(style, "_OWN", {})
        style.style_order(["tpe", *order])
        looks.append({name: plots.searcher_style(name) for name in order})
    assert looks[0] == looks[1]
    assert different(looks[0].values(), "color", "dash") == 3


def test_many_searchers_of_ones_own_are_told_apart():
    looks = [plots.searcher_style(f"own{i}") for i in range(200)]
    known = list(style.STYLES.values())
    assert different([*known, *looks[:40]], "color", "dash") == len(known) + 40
    assert different([*known, *looks[:40]], "color", "marker") == len(known) + 40
    assert different(looks, "color", "dash", "marker") == 200


def test_no_two_names_have_one_label():
    names = ["my tuner", "my_tuner", "a b c", "a b_c", "a_b c", "Pattern", "pattern"]
    for order in (names, names[::-1]):
        style._OWN.clear()
        labels = [plots.searcher_style(name).label for name in order]
        assert len(set(labels)) == len(names), labels
    style._OWN.clear()
    assert plots.searcher_style("my_tuner").label == "my tuner"


def test_a_name_that_is_too_long_loses_its_middle_and_stays_another():
    long = [f"search_of_{'many_' * 9}steps_{i}" for i in range(3)]
    alike = ["same_beginning_1_of_a_name_whose_end_is_the_same", "same_beginning_2_of_a_name_"
             "whose_end_is_the_same"]  # fmt: skip
    with plots.paper("icml"):
        for names, room in ((long, 60.0), (alike, 80.0)):
            short = shortened(names, room, size=7)
            assert len(set(short)) == len(names)
            assert all("…" in name and points_wide(name, 7) <= room for name in short)
        assert shortened(["TPE (Optuna)"], 60.0, size=7) == ["TPE (Optuna)"]


@pytest.mark.parametrize("width", ["column", "text"])
@pytest.mark.parametrize("letters", [8, 24, 40, 75])
def test_a_legend_is_no_wider_than_its_figure(width, letters):
    labels = [f"{'long name ' * 8}"[:letters] + f" {i}" for i in range(5)] + ["IQR", "w", "o"]
    for handles in (labels, labels[::-1]):
        with plots.paper("icml", width=width):
            fig = style.new_figure(height=3)
            fig.subplots()
            style.legend_above(fig, [Line2D([], [], label=label) for label in handles], grow=True)
            check(fig)


@pytest.fixture(scope="module")
def tables():
    """The three tables of two searchers with long names."""
    runs = make_runs(searchers=("pattern", "random"), kernels=2, workloads=1, seeds=2, n=15)
    names = {"pattern": REFERENCE, "random": OTHER}
    found = make_tables(runs)
    return [
        table.assign(**{c: table[c].astype(str).map(names) for c in ("searcher", "reference")})
        for table in found
    ]


@pytest.mark.parametrize("width", ["column", "text"])
@pytest.mark.parametrize("more", [0, 12, 43])
@pytest.mark.parametrize("kind", ["bars", "forest", "quality"])
def test_figures_of_long_names_fit_their_page(kind, more, width, tables):
    columns = ("searcher", "reference")
    longer = [t.assign(**{c: t[c] + "_" + "x1" * (more // 2) for c in columns}) for t in tables]
    with plots.paper("icml", width=width):
        check(
            {
                "bars": lambda: plots.plot_ratio_bars(*longer),
                "forest": lambda: plots.plot_ratio_forest(*longer),
                "quality": lambda: plots.plot_quality_vs_time(*longer[:2]).figure,
            }[kind]()
        )


def test_a_reference_whose_name_is_too_long_is_named_beside_the_axes(tables):
    with plots.paper("icml", columns=2):
        bars = plots.plot_ratio_bars(*tables)
        ax = plots.plot_quality_vs_time(*tables[:2])
    label = REFERENCE.replace("_", " ")
    assert bars.axes[0].get_ylabel() == "latency ratio\nto the reference"
    assert f"{label} = 1 (lower is better)" in legend(bars)
    assert ax.get_ylabel() == "latency ratio to the reference"
    assert ax.get_xlabel() == "wall-clock ratio to the reference"
    assert f"{label} (reference)" in legend(ax.figure)
    assert label in plots.caption_quality_vs_time(*tables[:2])


def legend(fig):
    return [text.get_text() for text in fig.legends[0].get_texts()]


def test_labels_that_leave_no_room_are_refused_before_anything_is_written(tmp_path, ratios):
    with plots.paper("icml"):
        fig = style.new_figure(height=1)
        fig.subplots().set_yticks([0, 1], ["a row", "a row with a name " * 9])
    for name in ("column", "again"):
        with pytest.raises(
            UsageError, match=r"longest is 'a row with .*\(width='text'\), or give"
        ):
            plots.save_figure(fig, name, data=ratios[0], directory=tmp_path / "figures")
    with pytest.raises(UsageError, match=r"those of 3\.25 x 1\.00 inches do not"):
        plots.png_bytes(fig)
    assert not (tmp_path / "figures").exists()
