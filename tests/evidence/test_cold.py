"""The flagship beside its peers: what is stored is what runs hold, and losses are told."""

import argparse
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

from kt_lab.cells import Cell, run_cell
from kt_lab.cli import main
from kt_lab.evidence import cold, dojo_figures, hurried
from kt_lab.evidence.resuming import columns, rows_of, short
from kt_lab.kernels import REGISTRY
from kt_lab.stats.budgets import judged_at
from kt_lab.study import levels

WORKLOADS = ("moe_weights_cast/1x8192x5120", "tokens_transpose/16640x1408")
SEARCHERS = ("scout", "random", "pattern")


def asked(out, *more):
    parser = argparse.ArgumentParser()
    cold.add_arguments(parser)
    given = ["--workloads", *WORKLOADS, "--searchers", *SEARCHERS, "--seeds", "2"]
    args = parser.parse_args([*given, "--trials", "50", "--workers", "1", *more])
    args.out = out
    return args


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("cold") / "cold.json"
    result = cold.run(asked(path))
    return path, json.loads(json.dumps(result))


def test_what_is_stored_is_what_the_runs_hold(stored):
    table = cold.judged(stored[1])
    assert len(table) == 2 * 3 * 2 * 3
    workload = WORKLOADS[0]
    run = run_cell(Cell(workload, "h200", "pattern", "pattern", (), 16, 1, 50, None))
    expected = judged_at(run, (25, 30, 50))["judged_us"].to_numpy()
    rows = table[(table["workload"] == workload) & (table["searcher"] == "pattern")]
    told = rows[rows["seed"] == 1].sort_values("budget")
    assert told["judged_us"].to_numpy() == pytest.approx(expected, abs=1e-4)
    assert told["optimum_us"].iloc[0] == short(levels(workload, gpu="h200")["optimum_us"])


def test_a_stored_workload_is_not_searched_again(stored, monkeypatch):
    path, result = stored
    monkeypatch.setattr(cold, "_row", lambda *_: pytest.fail("searched again"))
    again = cold.run(asked(path))
    assert json.loads(json.dumps(again["means"])) == result["means"]


def test_ratios_targets_and_tests_follow_from_the_rows(stored):
    result = stored[1]
    table = cold.judged(result)
    means = cold.ratios(table)
    at = means[(means["scope"] == "geomean") & (means["budget"] == 50)].set_index("searcher")
    own = table[(table["searcher"] == "random") & (table["budget"] == 50)]
    logs = np.log(own["judged_us"] / own["optimum_us"]).groupby(own["workload"]).mean()
    assert at.loc["random", "estimate"] == pytest.approx(np.exp(logs.mean()))
    told = cold.targets(table)
    assert told["budget"].tolist() == [30, 50]
    assert (told["worst"] >= told["ratio"]).all()
    assert told["reached"].between(0, 1).all()
    assert {row["peer"] for row in result["paired"]} == {"random", "pattern"}
    assert all(row["p_holm"] >= row["p"] and row["n_pairs"] == 2 for row in result["paired"])


def test_the_best_peer_of_a_budget_is_tested_alone(stored):
    result = stored[1]
    table = cold.judged(result)
    (row,) = cold.against_best(table, result["paired"])
    peers = table[(table["budget"] == 50) & (table["searcher"] != "scout")]
    ratio = np.log(peers["judged_us"] / peers["optimum_us"])
    medians = ratio.groupby([peers["searcher"], peers["workload"]]).median()
    assert row["peer"] == medians.groupby("searcher").mean().idxmin()
    assert (row["budget"], row["p_holm"]) == (50, row["p"])  # one test needs no correction
    twice = [dict(row, budget=budget) for row in result["paired"] for budget in (30, 50)]
    both = cold.against_best(table, twice)
    assert [row["budget"] for row in both] == [30, 50]
    least = min(both, key=lambda found: found["p"])
    assert least["p_holm"] == min(1.0, 2 * least["p"])


def test_a_search_that_finds_nothing_is_infinitely_slow(stored):
    result = json.loads(json.dumps(stored[1]))
    for row in result["rows"]:
        runs = rows_of(row["runs"])
        for (name, _), run_ in zip(cold.who(result), runs, strict=True):
            if name == "scout":
                run_ |= {"judged_us": [None] * len(cold.BUDGETS), "close_s": None}
        row["runs"] = columns(runs)
    table = cold.judged(result)
    assert np.isinf(cold.targets(table)[["ratio", "p90", "worst"]]).all(axis=None)
    assert np.isinf(cold.by_kernel(table, 50)[["p90", "worst"]]).all(axis=None)
    assert np.isinf(table.loc[table["searcher"] == "scout", "close_s"]).all()
    assert all(np.isinf(row["ratio"]) for row in cold.paired(table, 50))


def test_the_report_and_the_figure_show_every_searcher(stored, tmp_path):
    result = stored[1]
    text = cold.report(result)
    assert "Scout" in text
    assert "recorded since: 1 workloads" in text
    drawing = cold.figure(result)
    labels = {label.get_text() for ax in drawing.figure.axes for label in ax.get_yticklabels()}
    assert {"Scout", "Random", "Pattern"} <= labels
    assert "2 workloads of 2 kernels" in drawing.caption
    assert drawing.save("cold", directory=tmp_path)
    pyplot.close(drawing.figure)


def test_what_is_stored_meets_targets_and_misses_some():
    result, older = dojo_figures.stored("cold"), dojo_figures.stored("cold-older")
    assert not set(cold.judged(older)["kernel"]) & set(cold.KERNELS)
    table = cold.judged(result)
    assert set(table["kernel"]) == set(cold.KERNELS)
    asked = cold.targets(table).set_index("budget")
    assert (asked["ratio"] <= asked["target"]).all()
    assert all(asked.loc[200, name] > limit for name, limit in cold.SPREAD.items())
    kernels = cold.by_kernel(table, 200)
    assert (kernels["worst"] <= cold.SPREAD["worst"]).all()
    assert 0 < (kernels["p90"] > cold.SPREAD["p90"]).sum() < len(kernels)
    beside = cold.targets(cold.judged(older))
    assert (beside["ratio"] > beside["target"]).tolist() == [False, True, True, True]
    assert (beside["allowed"] >= beside["target"]).all()
    assert (beside["ratio"] > beside["allowed"]).tolist() == [False, True, True, True]


def test_kernels_recorded_since_are_no_others_and_meet_what_their_page_says():
    unseen, older = dojo_figures.stored("cold-unseen"), dojo_figures.stored("cold-older")
    table = cold.judged(unseen)
    assert set(table["kernel"]) == {"attention", "cross_entropy", "grouped_gemm"}
    assert not set(table["kernel"]) & {*cold.KERNELS, *cold.judged(older)["kernel"]}
    assert (unseen["seeds"], unseen["searchers"]) == (30, list(cold.SEARCHERS))
    asked = cold.targets(table)
    assert (asked["ratio"] <= asked["target"]).tolist() == [True, True, False, False]
    assert (asked["ratio"] <= asked["allowed"]).tolist() == [True, True, False, True]


def test_captured_kernels_are_no_others_and_meet_what_their_page_says():
    brought, told = dojo_figures.stored("cold-captured"), dojo_figures.stored("captured")
    table = cold.judged(brought)
    assert set(table["kernel"]) == {row["kernel"] for row in told["rows"]}
    assert not set(table["kernel"]) & set(REGISTRY)
    floors = {row["workload"]: row["noise_floor"] for row in told["rows"]}
    assert floors == {row["workload"]: row["noise_floor"] for row in brought["rows"]}
    asked = cold.targets(table)
    assert (asked["ratio"] <= asked["target"]).tolist() == [True, False, False, False]
    assert (asked["ratio"] <= asked["allowed"]).tolist() == [True, False, False, True]
    best = cold.against_best(table, brought["paired"])
    assert [each["p_holm"] < 0.05 for each in best] == [True, True, False]
    means = cold.ratios(table)
    means = means[means["scope"] == "geomean"].set_index(["searcher", "budget"])["estimate"]
    for budget in cold.BUDGETS:
        assert means.xs(budget, level="budget").idxmin() == cold.FLAGSHIP


def test_the_flagship_searches_with_scarce_seconds_too(stored):
    result = stored[1]
    told = [row["hurried_close_s"] for row in result["rows"]]
    assert [len(each) for each in told] == [2, 2]
    (cell,) = hurried.cells("scout", WORKLOADS[0], result | {"seeds": 1})
    close_us = cold.close_to(levels(WORKLOADS[0], gpu="h200"))
    again = cold.searched(cell, close_us)["close_s"]  # the searcher's own seconds differ
    assert (told[0][0] is None) == (again is None)
    trials = cold.searched(replace(cell, seconds=None), close_us)
    assert cold.searched(cell, close_us)["judged_us"] != trials["judged_us"]
    assert len(hurried.cells("scout", WORKLOADS[0], result | {"seeds": 99})) == hurried.SEEDS


def test_seconds_and_own_computing_are_told_beside_what_was_asked():
    runs = pd.DataFrame(
        {
            "searcher": ["scout"] * 3 + ["tpe"] * 3 + ["helion_lfbo_tree"] * 3,
            "close_s": [9.0, 9.0, 9.0, 1.0, 2.0, np.inf, 4.0, np.inf, np.inf],
            "search_ms": [1.0, 2.0, 3.0] + [50.0] * 6,
        }
    )
    rows = [{"hurried_close_s": [0.5, None]}, {"hurried_close_s": [1.5]}]
    own, seconds = hurried.words(runs, hurried.hurried_s({"rows": rows}), searcher="scout")
    assert "2.0 ms" in own
    assert "67% of its 3 runs come close, the median after 1.5 s" in seconds
    assert ", 0.75 of TPE (Optuna)'s" in seconds
    assert "LFBO" not in seconds  # most of its runs never come close
    assert len(hurried.words(runs, hurried.hurried_s({"rows": [{}]}), searcher="scout")) == 1


def test_kernels_on_which_nobody_finds_anything_are_ties(stored):
    table = cold.judged(stored[1])
    tests = {row["peer"]: row for row in cold.paired(table, 50)}
    lost = table.assign(kernel="lost", workload="lost/1", judged_us=np.inf)
    both = {row["peer"]: row for row in cold.paired(pd.concat([table, lost]), 50)}
    for peer, row in both.items():
        assert (row["n_pairs"], row["n_zero"]) == (tests[peer]["n_pairs"] + 1, 1)
        assert np.isfinite(row["ratio"])


def test_what_is_not_recorded_is_refused_before_anything_is_searched(tmp_path, capsys):
    out = ["--out", str(tmp_path / "cold.json"), "cold"]
    for wrong, said in (("--gpu h1", "on h1"), ("--workloads softmax/1", "'softmax/1'")):
        assert main(["evidence", *out, *wrong.split()]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "cold.json").exists()
