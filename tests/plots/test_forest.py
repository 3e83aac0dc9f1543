"""Figures of many searchers: rows, matrices and distributions, and how the infinite is shown."""

from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from kt_lab import plots, stats
from kt_lab.errors import UsageError
from kt_lab.plots.captions import limits
from kt_lab.plots.significance import LEVEL
from tests.plots.conftest import make_optima

NAMES = ("pattern", "lfbo_pattern", "tpe")


def budgets(**changes):
    """Two budgets of three searchers, 1%, 2% and 3% above the optimum at the end."""
    table = pd.DataFrame({"searcher": NAMES * 2, "budget": [50.0] * 3 + [np.nan] * 3})
    table["estimate"] = [1.2, 1.1, 1.3, 1.03, 1.02, 1.01]
    table = table.assign(low=table.estimate - 0.005, high=table.estimate + 0.01, axis="elapsed_s")
    table = table.assign(p90=table.estimate + 0.02, confidence=0.95, n_success=4, n_runs=20)
    return table.assign(**changes)


def draw(plot, *tables, columns=2, **how):
    with plots.paper("icml", columns=columns):
        fig = plot(*tables, **how)
        fig.draw_without_rendering()
    return fig


def texts(ax):
    return [text.get_text() for text in ax.texts]


def dots(ax):
    """Where the markers of estimates are, row by row."""
    found = [line for line in ax.lines if line.get_markersize() == 4.0]
    return {float(line.get_ydata()[0]): float(line.get_xdata()[0]) for line in found}


def test_budgets_are_percent_above_the_optimum_with_the_best_on_top():
    axes = draw(plots.plot_budgets, budgets()).axes
    assert [ax.get_title() for ax in axes] == ["50 s", "end of run"]
    names = [label.get_text() for label in axes[0].get_yticklabels()]
    assert names == ["TPE (Optuna)", "LFBO-Pattern", "Pattern"]
    assert [dots(axes[1])[row] for row in range(3)] == pytest.approx([1, 2, 3])
    assert [dots(axes[0])[row] for row in range(3)] == pytest.approx([30, 10, 20])
    assert axes[0].get_xlim() == axes[1].get_xlim()
    assert axes[0].get_xscale() == "log"


def test_the_caption_names_who_is_lowest_in_the_last_panel():
    rest = {"evidence": "Some runs."}
    assert "; TPE (Optuna) is lowest in the last panel" in plots.caption_budgets(budgets(), **rest)
    timed = budgets(budget=[1.0] * 3 + [2.0] * 3, estimate=[1.2, 1.001, 1.3, 1.03, 1.02, 1.01])
    assert "; TPE (Optuna) is lowest in the last panel" in plots.caption_budgets(timed, **rest)
    assert "99.9% percentile" in plots.caption_budgets(timed.assign(confidence=0.999), **rest)
    tied = budgets(budget=[1.0] * 3 + [2.0] * 3, estimate=[1.2, 1.1, 1.3, 1.01, 1.0102, 1.02])
    assert " are lowest in the last panel" in plots.caption_budgets(tied, **rest)
    for same in (1.0, np.inf):
        nobody = tied.assign(estimate=[1.2, 1.1, 1.3, same, same, same])
        assert "lowest" not in plots.caption_budgets(nobody, **rest)


def test_what_a_budget_axis_cannot_hold_ends_at_its_edges():
    table = budgets(estimate=[1.2, np.inf, 1.3, 1.0, 1.02, 1.01])
    first, last = draw(plots.plot_budgets, table).axes
    assert "4/20 " in texts(first)
    assert first.get_xlim()[1] < 100
    left = [line for line in last.lines if line.get_marker() == "<"]
    assert {line.get_xdata()[0] for line in left} == {last.get_xlim()[0]}
    assert all(np.isfinite(ax.get_xlim()).all() for ax in (first, last))


def test_a_forest_holds_every_geomean_in_the_order_of_latency(ratios):
    fig = draw(plots.plot_ratio_forest, *ratios)
    for ax, table in zip(fig.axes, ratios, strict=True):
        means = table[table.scope == "geomean"].set_index("searcher").estimate
        order = ratios[0][ratios[0].scope == "geomean"].sort_values("estimate").searcher
        assert [dots(ax)[row] for row in range(3)] == pytest.approx(means[list(order)].tolist())
    assert "4 workloads of 2 kernels" in plots.caption_ratio_forest(*ratios)


def test_an_infinite_geomean_of_a_forest_tells_the_successes(endless):
    fig = draw(plots.plot_ratio_forest, *endless)
    bad = endless[2][np.isinf(endless[2].estimate) & (endless[2].scope == "geomean")]
    assert texts(fig.axes[2]) == [f"{bad.n_success.iloc[0]}/{bad.n_runs.iloc[0]} "]
    assert "1 searcher never reached it" in plots.caption_ratio_forest(*endless)


@pytest.mark.parametrize(("columns", "line"), [(2, " "), (1, "\n")])
def test_nothing_is_divided_by_a_reference_that_never_reaches_the_target(ratios, columns, line):
    missed = ratios[2].copy()
    rows = missed["workload"] == missed["workload"].dropna().iloc[0]
    missed.loc[rows, ["reference_n_success", "estimate"]] = 0, 0.0
    missed.loc[missed["scope"] == "geomean", "estimate"] = 0.0
    for table, where in (
        (missed, " on 1 of 4 workloads"),
        (missed.assign(reference_n_success=0), ""),
    ):
        ax = draw(plots.plot_ratio_forest, *ratios[:2], table, columns=columns).axes[2]
        assert ax.get_xlabel() == f"Pattern{line}never reaches it{where}"
        assert not ax.lines
        assert len(ax.get_xticks()) == 0
        means = table[table.scope == "geomean"].set_index("searcher")
        best = ratios[0][ratios[0].scope == "geomean"].sort_values("estimate").searcher.iloc[0]
        reached, of = means.loc[best, ["n_success", "n_runs"]]
        said = {text.get_position()[1]: text.get_text() for text in ax.texts}
        assert said[0] == (
            f"{reached}/{of}" if columns == 1 else f"{reached} of {of} runs reach it"
        )
    assert dots(draw(plots.plot_ratio_forest, *ratios).axes[2])


def test_profiles_draw_the_chosen_over_grey_others(runs):
    optima = make_optima(runs)
    ecdf = stats.runtime_ecdf(runs, optima)
    values = stats.latency_at(runs, (None,), optima=optima, reference=None, resamples=1)
    profile = stats.performance_profile(values)
    fig = draw(plots.plot_profiles, ecdf, profile, chosen=["tpe"])
    for ax, table, x in zip(fig.axes, (ecdf, profile), ("time", "tau"), strict=True):
        own = table[table.searcher == "tpe"]
        line = next(line for line in ax.lines if line.get_color() == "#029E73")
        np.testing.assert_array_equal(line.get_xdata()[:-1], own[x])
        np.testing.assert_array_equal(line.get_ydata()[:-1], own["share"])
        assert sum(line.get_color() == "#c4c4c4" for line in ax.lines) == 2
    labels = [text.get_text() for text in fig.legends[0].get_texts()]
    assert labels == ["TPE (Optuna)", "2 others"]
    assert "grey: 2 others" in plots.caption_profiles(ecdf, profile, evidence="", chosen=["tpe"])
    one = profile.assign(n_workloads=1)
    told = plots.caption_profiles(ecdf.assign(n_targets=1), one, evidence="", chosen=NAMES[:2])
    assert "grey: 1 other. " in told
    assert "(1 target, " in told
    assert "share of 1 landscape on which" in told


@pytest.fixture
def tests(runs):
    return stats.paired_tests(runs, reference=None, unit="workload")


def test_a_small_matrix_tells_percent_and_p_both_ways(tests):
    ax = draw(plots.plot_significance, tests, order=NAMES, columns=1).axes[0]
    row = tests.iloc[0]
    values = ax.images[0].get_array()
    at = NAMES.index(row.searcher), NAMES.index(row.reference)
    assert values[at] == pytest.approx(100 * (row.ratio - 1))
    assert values[at[::-1]] == pytest.approx(100 * (1 / row.ratio - 1))
    assert len(ax.texts) == 6
    assert f"{100 * (row.ratio - 1):+.1f}\np {row.p_holm:.2g}" in texts(ax)


def test_a_large_matrix_is_marked_where_p_is_small():
    names = [f"s{i}" for i in range(9)]
    rows = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    table = pd.DataFrame(rows, columns=["searcher", "reference"]).assign(unit="workload")
    table = table.assign(ratio=1.5, p=0.2, p_holm=1.0)
    table.loc[0, ["p", "p_holm"]] = LEVEL / 100, LEVEL / 2
    table.loc[1, ["p", "ratio"]] = LEVEL / 2, np.inf
    fig = draw(plots.plot_significance, table, order=names)
    filled = [line.get_markerfacecolor() != "none" for line in fig.axes[0].lines]
    assert sorted(filled) == [False, False, True, True]
    legend = [text.get_text() for text in fig.legends[0].get_texts()]
    assert "(1 of 36 pairs)" in legend[0]
    assert legend[1].endswith("only (1)")


def test_what_is_beyond_the_colours_is_read_on_the_furthest_of_them(tests):
    first = tests.index == tests.index[0]
    each = dict.fromkeys(("ratio", "inverse"), np.inf)  # both fail somewhere
    ax = draw(plots.plot_significance, tests[first].assign(**each), order=NAMES).axes[0]
    assert sum(text.get_text().startswith("+inf") for text in ax.texts) == 2
    tests = tests.drop(columns="inverse")  # as tables of earlier versions
    ax = draw(plots.plot_significance, tests.assign(ratio=tests.ratio.where(~first, 0.0))).axes[0]
    told = {text.get_text().split()[0]: text.get_color() for text in ax.texts}
    assert {told["+inf"], told["-100.0"]} == {"white"}


def test_the_colours_of_a_small_matrix_have_as_many_labels_as_fit():
    table = pd.DataFrame({"searcher": ["a"], "reference": ["b"], "unit": ["workload"]})
    ax = draw(plots.plot_significance, table.assign(ratio=3.0, p=1.0, p_holm=1.0)).axes[1]
    boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert len(boxes) >= 3
    for below, above in pairwise(boxes):
        assert below.y1 - above.y0 < 2  # of their padding


def test_a_narrow_matrix_of_five_is_marked_and_a_wide_one_tells_numbers():
    rows = [(a, b) for i, a in enumerate("abcde") for b in "abcde"[i + 1 :]]
    table = pd.DataFrame(rows, columns=["searcher", "reference"]).assign(unit="workload")
    table = table.assign(ratio=1.5, p=0.2, p_holm=1.0)
    wide, narrow = (draw(plots.plot_significance, table, columns=n) for n in (2, 1))
    assert len(wide.axes[0].texts) == 20
    assert not wide.legends
    assert not narrow.axes[0].texts
    assert "(0 of 10 pairs)" in narrow.legends[0].get_texts()[0].get_text()


def test_the_caption_of_a_matrix_counts_pairs_and_names_the_unit_of_its_budget(tests):
    rest = {"kernels": 2, "evidence": "Some runs."}
    assert "at the end of the runs" in plots.caption_significance(tests, **rest)
    for axis, told in (("spent_trials", "25 trials"), ("elapsed_s", "25 s")):
        one = tests[:1].assign(axis=axis, budget=25.0, n_pairs=1, p_holm=1.0)
        caption = plots.caption_significance(one, **rest)
        assert f"at a budget of {told}, in percent" in caption
        assert "tests over 1 workload (two-sided, exact): 0 of 1 pair has a Holm" in caption


def test_matrices_of_several_units_are_refused(tests):
    with pytest.raises(UsageError, match="one unit and budget"):
        plots.plot_significance(pd.concat([tests, tests.assign(unit="kernel")]))


def test_few_kernels_are_told_what_they_cannot_show():
    said = limits(kernels=2, workloads=9, comparisons=29)
    assert "with 2 kernels no p-value over kernels can be below 0.5" in said
    assert "below 0.0039, nor below 0.11 after Holm's correction for 29 comparisons" in said
    narrow = "intervals are too narrow for kernels at large"
    assert narrow in said
    assert narrow not in limits(kernels=6, workloads=9, comparisons=29)


def test_these_figures_change_nothing_global(ratios, tests):
    before = dict(mpl.rcParams)
    draw(plots.plot_budgets, budgets())
    draw(plots.plot_ratio_forest, *ratios)
    draw(plots.plot_significance, tests)
    assert dict(mpl.rcParams) == before


def test_budgets_at_which_nothing_was_found_are_drawn():
    table = budgets(**dict.fromkeys(("estimate", "low", "high", "p90"), np.inf), n_success=0)
    first, last = draw(plots.plot_budgets, table).axes
    assert dots(first) == dots(last) == dict.fromkeys(range(3), first.get_xlim()[1])
