"""Warm starts by replay: what a mode searches with, and what is told of it."""

import argparse

import pytest

from kt_lab.evidence import warm
from kt_lab.evidence.warm_tables import compared, summary
from kt_lab.landscape import load_landscape
from kt_lab.transfer import recorded_prior


def row(mode, ratios, kernel="a", workload="a/1"):
    facts = {"workload": workload, "kernel": kernel, "gpu": "h200", "mode": mode}
    return facts | {"budgets": [5, 25], "ratios": ratios}


def test_summaries_are_means_over_landscapes_and_name_the_worst():
    rows = [
        row("cold", [2.0, 1.0]),
        row("cold", [2.0, 1.0], workload="a/2"),
        row("cold", [8.0, 4.0], kernel="b", workload="b/1"),
    ]
    (found,) = summary(rows)
    assert found["geomean"] == pytest.approx([32 ** (1 / 3), 4 ** (1 / 3)])
    assert found["worst"] == [8.0, 4.0]
    assert found["landscapes"] == 3


def test_modes_are_compared_where_both_searched():
    rows = [
        row("cold", [2.0, 1.5]),
        row("cold", [9.0, 9.0], kernel="b", workload="b/1"),
        row("twin", [1.0, 1.5]),
    ]
    found = compared(rows)
    assert [(f["mode"], f["budget"], f["ratio"]) for f in found] == [
        ("twin", 5, pytest.approx(0.5)),
        ("twin", 25, pytest.approx(1.0)),
    ]


def test_upside_down_the_fastest_is_the_slowest():
    target = load_landscape("rope/4x4096x32x8x128", gpu="h200")
    prior = recorded_prior(target, rule="twin")
    turned = warm._upside_down(prior)
    was = [r.latency_us for r in prior.readings if r.latency_us]
    now = [r.latency_us for r in turned.readings if r.latency_us]
    assert min(was) == pytest.approx(min(now))
    assert now[0] == pytest.approx(max(was))
    assert [r.config for r in turned.readings] == [r.config for r in prior.readings]


def test_a_run_searches_every_mode_and_reports_it():
    parser = argparse.ArgumentParser()
    warm.add_arguments(parser)
    given = ["--kernels", "tokens_transpose", "--seeds", "1", "--trials", "5", "--workers", "1"]
    result = warm.run(parser.parse_args([*given, "--modes", "cold", "shapes", "twin", "listed"]))
    modes = [found["mode"] for found in result["summary"]]
    assert modes == ["cold", "shapes", "listed"], "no twin of it is recorded"
    cold, shapes, listed = (found["geomean"] for found in result["summary"])
    assert shapes[-1] < cold[-1]
    assert listed[0] < cold[0]
    assert all(row["sources"] > 1 for row in result["rows"] if row["mode"] != "cold")
    told = warm.report(result)
    assert "shapes / cold at 5: " in told
