"""Figures: their size, what they draw, what they refuse, and that nothing global changes."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from kt_lab import baseline, plots
from kt_lab.errors import UnknownName, UsageError
from kt_lab.plots import style
from kt_lab.plots.ratios import bars_hold


def texts(ax):
    """Everything that is written into an axes."""
    return [" ".join(text.get_text().split()) for text in ax.texts]


@pytest.mark.parametrize(
    ("venue", "columns", "width"),
    [("icml", 1, 3.25), ("icml", 2, 6.75), ("neurips", 1, 5.5), ("ieee", 2, 516 / 72.27)],
)
def test_figures_have_the_width_of_the_venue(venue, columns, width, ratios):
    with plots.paper(venue, columns=columns):
        fig = plots.plot_ratio_bars(*ratios)
        ax = plots.plot_quality_vs_time(*ratios[:2])
    assert fig.get_size_inches()[0] == width
    assert ax.figure.get_size_inches()[0] == width


def test_unknown_venues_and_columns_are_refused():
    with pytest.raises(UnknownName, match="icml"), plots.paper("icmll"):
        pass
    with pytest.raises(UsageError, match="columns must be 1"), plots.paper("icml", columns=3):
        pass


def test_nothing_global_changes(ratios, bands, tmp_path):
    before = dict(mpl.rcParams)
    fig = plots.plot_ratio_bars(*ratios)
    plots.plot_convergence(*bands)
    plots.plot_quality_vs_time(*ratios[:2])
    with plots.paper("icml"):
        plots.plot_convergence(*bands)
    plots.save_figure(fig, "a", data=ratios[0], directory=tmp_path)
    assert dict(mpl.rcParams) == before


def test_the_style_is_restored_after_an_error():
    before = dict(mpl.rcParams)
    with pytest.raises(RuntimeError), plots.paper("icml"):
        raise RuntimeError
    assert dict(mpl.rcParams) == before


def test_bars_show_the_estimates_from_one(ratios):
    ax = plots.draw_ratio_bars(ratios[1])
    table = ratios[1][ratios[1].searcher != "pattern"]
    drawn = sorted(bar.get_y() + bar.get_height() for bar in ax.patches if bar.get_height() < 0)
    np.testing.assert_allclose(drawn, sorted(table.estimate[table.estimate < 1]))
    assert ax.get_ylabel() == "wall-clock ratio\nto Pattern"
    assert [label.get_text() for label in ax.get_xticklabels()][-1] == "geomean"


def test_an_infinite_bar_reaches_the_edge_and_tells_the_successes(endless):
    table = endless[2]
    bad = table[np.isinf(table.estimate) & (table.scope == "workload")]
    assert len(bad) == 1
    ax = plots.draw_ratio_bars(table)
    assert f"0/{bad.n_runs.iloc[0]} reached" in texts(ax)
    tops = [bar.get_y() + bar.get_height() for bar in ax.patches]
    assert sum(np.isclose(tops, ax.get_ylim()[1])) == 2  # the workload and the geomean
    assert np.isfinite(ax.get_ylim()).all()


def test_only_infinite_bars_can_be_drawn(endless):
    table = endless[2][np.isinf(endless[2].estimate)]
    assert np.isfinite(plots.draw_ratio_bars(table).get_ylim()).all()


def test_a_bar_beyond_the_given_limits_is_cut_and_tells_its_value(ratios):
    low = ratios[1][ratios[1].scope == "geomean"]
    ax = plots.draw_ratio_bars(low.assign(estimate=1.7), limits=(0.9, 1.2))
    assert ax.get_ylim() == (0.9, 1.2)
    assert texts(ax) == ["1.70", "1.70"]


def test_a_whisker_that_goes_on_ends_in_an_arrow_at_either_edge(ratios):
    bars = ratios[1][ratios[1].scope == "geomean"].assign(estimate=1.0, low=0.5, high=2.0)
    inside = plots.draw_ratio_bars(bars, limits=(0.4, 2.5))
    assert not {"^", "v"} & {line.get_marker() for line in inside.lines}
    cut = plots.draw_ratio_bars(bars, limits=(0.9, 1.2))
    drawn = {(line.get_marker(), float(line.get_ydata()[0])) for line in cut.lines}
    assert {("^", 1.2), ("v", 0.9)} <= drawn


def test_wide_ranges_are_logarithmic_and_narrow_ones_are_not(ratios):
    assert plots.draw_ratio_bars(ratios[0]).get_yscale() == "linear"
    wide = ratios[1].assign(high=20.0)
    assert plots.draw_ratio_bars(wide).get_yscale() == "log"


def test_a_geomean_over_fewer_workloads_is_told(ratios):
    assert "fewer workloads" not in plots.caption_ratio_bars(*ratios)
    mean = (ratios[2].scope == "geomean") & (ratios[2].searcher == "tpe")
    lacking = ratios[2].assign(n_workloads=ratios[2].n_workloads.where(~mean, 1), within=0.025)
    told = plots.caption_ratio_bars(*ratios[:2], lacking)
    assert "Geomeans over fewer workloads than others': TPE (Optuna) over 1 of 4." in told
    assert "within 2.5% of" in told
    said = "Geomeans over fewer workloads than others': TPE (Optuna) over 1 of 4."
    for caption in (plots.caption_ratio_forest(*ratios[:2], lacking), told):
        assert caption.count(said) == 1
    assert "fewer" not in plots.caption_quality_vs_time(*ratios[:2])
    short = [t.assign(n_workloads=t.n_workloads.where(t.searcher != "tpe", 1)) for t in ratios[:2]]
    assert plots.caption_quality_vs_time(*short).endswith(said)


def test_a_workload_of_two_gpus_has_a_line_for_each():
    curve = pd.DataFrame({"ratio": [1.0, 1.5], "share": [0.1, 0.9], "n_configs": 10, "n_ok": 9})
    cells = [curve.assign(gpu=gpu, workload="softmax/a", kernel="softmax") for gpu in "ab"]
    profile = pd.concat(cells, ignore_index=True)
    assert len(plots.plot_landscape_ecdf(profile).lines) == 2
    assert "for 1 workload of 1 kernel on a and b" in plots.caption_landscape_ecdf(profile)


def test_geomeans_alone_can_be_drawn(ratios):
    fig = plots.plot_ratio_bars(*(table[table.scope == "geomean"] for table in ratios))
    assert [label.get_text() for label in fig.axes[2].get_xticklabels()] == ["geomean"]


def test_tables_of_another_kind_are_refused(ratios, bands):
    with pytest.raises(UsageError, match="one table of"):
        plots.draw_ratio_bars(bands[0])
    with pytest.raises(UsageError, match="one table of"):
        plots.draw_ratio_bars(pd.concat(ratios))
    with pytest.raises(UsageError, match="lack"):
        plots.draw_bands(ratios[0])
    with pytest.raises(UsageError, match=r"mix \['workload'\]"):
        plots.draw_bands(bands[0])
    with pytest.raises(UsageError, match="lacks workload"):
        plots.plot_landscape_ecdf(pd.DataFrame({"ratio": [1.0]}))


def test_quality_and_time_must_be_of_the_same_runs(ratios):
    with pytest.raises(UsageError, match="only one table has tpe"):
        plots.plot_quality_vs_time(ratios[0], ratios[1][ratios[1].searcher != "tpe"])


def test_quality_marks_every_searcher_and_the_reference(ratios):
    ax = plots.plot_quality_vs_time(*ratios[:2])
    labels = ax.get_legend_handles_labels()[1]
    assert labels == ["Pattern", "LFBO-Pattern", "TPE (Optuna)"]


def test_words_of_quality_and_time_stay_on_their_side_of_one(ratios):
    ax = plots.plot_quality_vs_time(*ratios[:2])
    ax.figure.canvas.draw()
    x, y = ax.transData.transform((1.0, 1.0))
    words = [text for text in ax.texts if text.get_text().startswith("cheaper")]
    below, above = (text.get_window_extent() for text in words)
    assert max(below.x1, above.x1) < x
    assert below.y1 < y < above.y0


def test_convergence_has_trials_and_seconds_for_every_workload(bands):
    workloads = bands[0].workload.unique()
    fig = plots.plot_convergence(*bands, noise_floor={workloads[0]: 1.02})
    assert len(fig.axes) == 2 * len(workloads)
    assert [ax.get_xlabel() for ax in fig.axes[-2:]] == ["trials", "tuning time (s)"]
    styles = [[line.get_linestyle() for line in ax.get_lines()] for ax in fig.axes]
    assert len(styles[0]) == len(styles[2]) + 1  # the floor of the first workload only
    assert all(ax.get_ylim()[0] < 1 for ax in fig.axes)


def test_the_legend_shows_the_markers_that_tell_searchers_apart(bands):
    lines = plots.plot_convergence(*bands).legends[0].get_lines()
    for name in bands[0]["searcher"].unique():
        look = plots.searcher_style(name)
        line = next(each for each in lines if each.get_label() == look.label)
        assert line.get_marker() == look.marker


def test_the_band_is_in_the_legend_where_there_is_one(bands):
    def told(tables):
        legend = plots.plot_convergence(*tables).legends[0]
        return [text.get_text() for text in legend.get_texts()]

    assert "IQR" in told(bands)
    assert "interquartile range" in plots.caption_convergence(*bands)
    single = [table.assign(n_seeds=1) for table in bands]
    assert "IQR" not in told(single)
    assert "interquartile range" not in plots.caption_convergence(*single)


def test_convergence_lines_are_the_medians_as_steps(bands):
    one = bands[0][bands[0].workload == bands[0].workload.iloc[0]]
    line = plots.draw_bands(one).get_lines()[0]
    expected = one[one.searcher == "pattern"]
    assert line.get_drawstyle() == "steps-post"
    np.testing.assert_array_equal(line.get_xdata(), expected.x)
    np.testing.assert_array_equal(line.get_ydata(), expected["median"])


def test_bands_in_microseconds_have_no_default_optimum(bands):
    one = bands[0][bands[0].workload == bands[0].workload.iloc[0]].assign(unit="us")
    ax = plots.draw_bands(
        one.assign(**{name: 50 * one[name] for name in ("median", "low", "high")})
    )
    assert ax.get_ylim()[0] > 40
    assert ax.get_ylabel() == "latency (µs)"
    assert len(plots.draw_bands(one, optimum=1.0).get_lines()) == len(ax.get_lines()) + 1


@pytest.mark.parametrize("points", [1, 2])
def test_bands_without_any_incumbent_can_be_drawn(bands, points):
    one = bands[0][bands[0].workload == bands[0].workload.iloc[0]]
    nothing = {"median": np.nan, "low": np.nan, "high": np.nan}
    plots.draw_bands(one[one.x <= points].assign(**nothing)).figure.draw_without_rendering()
    in_us = one[one.x <= points].assign(**nothing, unit="us", x=0.0)
    plots.draw_bands(in_us).figure.draw_without_rendering()


def test_convergence_draws_exact_random_search(bands):
    name = bands[0].workload.iloc[0]
    table = baseline.expected_best([1.0, 1.2, 2.0, None], [1, 2, 3, 4]).assign(workload=name)
    fig = plots.plot_convergence(*bands, expected_random=table)
    drawn = [line.get_ydata() for line in fig.axes[0].get_lines()]
    assert any(np.array_equal(values, table.expected) for values in drawn)


def test_bands_of_different_workloads_are_refused(bands):
    fewer = bands[1][bands[1].workload != bands[1].workload.iloc[0]]
    with pytest.raises(UsageError, match="same workloads"):
        plots.plot_convergence(bands[0], fewer)


def test_landscapes_end_below_one_where_configs_fail():
    table = pd.DataFrame({"workload": "a/b", "kernel": "a", "latency_us": [1.0, 2.0, None, None]})
    profile = baseline.landscape_profile(table)
    ax = plots.plot_landscape_ecdf(profile)
    assert ax.get_lines()[0].get_ydata()[-1] == 0.5
    assert "50.0% failed" in plots.caption_landscape_ecdf(profile)


def test_captions_tell_the_evidence(ratios, bands):
    bars = plots.caption_ratio_bars(*ratios, budget="40 trials")
    for part in (
        "4 workloads of 2 kernels (NVIDIA H100, 8 compile lanes, 5 seeds per workload, ",
        "budget 40 trials",
        "95% percentile bootstrap",
        "resamples kernels, their workloads and their seeds",
        "within 1% of Pattern's median final latency",
        "LFBO-Pattern in ",
        "lower is better",
    ):
        assert part in bars
    quality = plots.caption_quality_vs_time(*ratios[:2])
    assert "4 workloads of 2 kernels" in quality
    curves = plots.caption_convergence(*bands)
    assert "thin after the marker" in curves
    assert "random search" not in curves
    going = [band.assign(n_running=band["n_seeds"]) for band in bands]
    told = plots.caption_convergence(*going, exact=True)
    assert "thin" not in told
    assert "Grey: random search, its exact mean over the orders with an incumbent." in told
    for part in ("median over seeds", "interquartile range", "tuning time", "5 seeds", "H100"):
        assert part in curves


@pytest.mark.parametrize(
    ("names", "workloads", "columns", "held"),
    [
        (["random", "lfbo_pattern", "tpe"], 9, 2, True),
        (["lfbo_tree", "helion_lfbo_tree", "simulated_annealing"], 9, 2, False),  # all are red
        (["random", "lfbo_pattern", "tpe", "lfbo_tree", "de_surrogate", "beam"], 9, 2, True),
        (["random", "lfbo_pattern", "tpe", "lfbo_tree", "de_surrogate", "beam"], 9, 1, False),
        (["random", "lfbo_pattern", "tpe", "lfbo_tree", "de_surrogate", "beam"], 1, 1, True),
        (["random", "lfbo_pattern", "tpe", "lfbo_tree", "de_surrogate", "beam"], 40, 2, False),
    ],
)
def test_bars_must_differ_in_colour_and_be_wide_enough_for_their_values(
    names, workloads, columns, held
):
    rows = [(name, f"softmax/{i}", "workload") for name in names for i in range(workloads)]
    rows += [(name, None, "geomean") for name in names]
    table = pd.DataFrame(rows, columns=["searcher", "workload", "scope"])
    with plots.paper("icml", columns=columns):
        assert bars_hold(table.assign(reference="pattern", gpu="h200")) == held


def test_given_axes_are_used(ratios, bands):
    fig = Figure()
    ax = fig.subplots()
    assert plots.draw_ratio_bars(ratios[0], ax=ax) is ax
    one = bands[0][bands[0].workload == bands[0].workload.iloc[0]]
    other = Figure().subplots()
    assert plots.draw_bands(one, ax=other) is other


def test_searchers_keep_their_looks():
    looks = [style.searcher_style(name) for name in style.STYLES]
    assert len({(look.color, look.dash) for look in looks}) == len(looks)
    assert len({(look.color, look.marker) for look in looks}) == len(looks)
    for name in ("random", "pattern", "lfbo_pattern", "tpe"):
        assert name in style.STYLES
    new = plots.searcher_style("my_search")
    assert new == plots.searcher_style("my_search")
    assert new.label == "my search"
    assert (new.color, new.dash) not in {(look.color, look.dash) for look in looks}


def test_searchers_are_listed_in_one_order():
    assert style.style_order(["zeta", "tpe", "alpha", "random", "tpe"]) == [
        "random",
        "tpe",
        "alpha",
        "zeta",
    ]


@pytest.mark.parametrize("columns", [1, 2])
def test_legends_and_labels_stay_inside_the_figure(columns, endless):
    with plots.paper("icml", columns=columns):
        fig = plots.plot_ratio_bars(*(table[table.scope == "geomean"] for table in endless))
        fig.draw_without_rendering()
    width = fig.get_window_extent().width
    for box in (fig.legends[0].get_window_extent(), *(a.get_tightbbox() for a in fig.axes)):
        assert box.x0 >= -1
        assert box.x1 <= width + 1


def test_a_single_run_has_no_interval_but_its_value(ratios):
    alone = ratios[0].assign(low=np.nan, high=np.nan)
    ax = plots.draw_ratio_bars(alone)
    assert np.isfinite([text.xy[1] for text in ax.texts]).all()
    assert len(texts(ax)) == (alone.scope == "geomean").sum() - 1
