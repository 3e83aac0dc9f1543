"""Spaces of a chain hold one another; what is found there is judged against the whole."""

import argparse
import itertools

import numpy as np
import pytest
from matplotlib import pyplot

from kt_lab.evidence import sizes

NESTED = "matmul_nested/2048x2048x2048"


@pytest.fixture(scope="module")
def result():
    parser = argparse.ArgumentParser()
    sizes.add_arguments(parser)
    given = ["--workloads", NESTED, "--searchers", "random", "pattern", "--seeds", "2"]
    return sizes.run(parser.parse_args([*given, "--trials", "50", "--workers", "1"]))


@pytest.mark.parametrize("workload", sizes.CHAINS)
def test_each_space_holds_the_one_before_and_the_last_is_the_recorded_one(workload):
    chain = [sizes.part(workload, "h200", n) for n in range(len(sizes.CHAINS[workload]) + 1)]
    for small, large in itertools.pairwise(chain):
        members = set(map(tuple, large.enumerate().tolist()))
        assert set(map(tuple, small.enumerate().tolist())) < members
    assert chain[-1] is sizes.recorded(workload, "h200").space
    assert all(space.default in space.configs(space.enumerate()) for space in chain)


def test_the_nested_space_grows_tenfold_around_one_of_the_usual_size(result):
    configs = [told["configs"] for told in result["spaces"]]
    assert configs[-1] > 10 * configs[0] > 9_000
    best = [told["best"] for told in result["spaces"]]
    assert best == sorted(best, reverse=True)
    assert best[-1] == 1.0
    assert [told["freed"] for told in result["spaces"]] == ["", *sizes.CHAINS[NESTED]]


def test_searches_stay_in_their_space_and_are_judged_against_the_whole(result):
    table = sizes.table_of(result)
    assert len(table) == 5 * 2 * 2
    assert (table["low"] <= table["ratio"]).all()
    assert (table["ratio"] >= table["best"] * 0.99).all()
    later = table.set_index(["level", "searcher", "budget"])["ratio"].unstack("budget")
    assert (later[50] <= later[25]).all()
    inner = sizes.part(NESTED, "h200", 0)
    cell = sizes.Cell(NESTED, "h200", "random", "random", (), 4, 0, 40, None)
    run = sizes.run_cell(cell, space=inner)
    whole = sizes.recorded(NESTED, "h200").space
    assert all(inner.contains(c) for c in whole.configs(whole.enumerate()[run["config"]]))


def test_runs_without_an_incumbent_are_infinitely_slow_in_the_quartiles():
    row = {"workload": "a", "level": 0, "searcher": "random", "budgets": [25, 50]}
    row["ratios"] = [[np.inf] * 4, [1.1, 1.2, np.inf, np.inf, np.inf]]
    space = {"workload": "a", "level": 0}
    table = sizes.table_of({"rows": [row], "spaces": [space], "gpu": "h200"})
    assert table[["low", "ratio", "high"]].to_numpy().tolist() == [
        [np.inf] * 3,
        [1.2, *[np.inf] * 2],
    ]


def test_the_figure_has_a_line_for_each_searcher_and_the_report_each_space(result, tmp_path):
    drawing = sizes.figure(result)
    axes = drawing.figure.axes
    assert len(axes) == 2
    for ax in axes:
        drawn = [line.get_xdata() for line in ax.lines]
        assert len(drawn) == 3
        assert all(np.array_equal(np.sort(x), x) and len(x) == 5 for x in drawn)
    assert "2 seeds" in drawing.caption
    assert "EPILOGUE (10,240)" in drawing.caption
    assert all(p.stat().st_size > 100 for p in drawing.save("s", directory=tmp_path).values())
    pyplot.close(drawing.figure)
    assert sizes.report(result).count("configs") == 5
