"""Warm starts by replay: what a mode searches with, and what is told of it."""

import argparse

import numpy as np
import pytest

from kt_lab.errors import UnknownName
from kt_lab.evidence import warm
from kt_lab.evidence.warm_figures import beside_table
from kt_lab.evidence.warm_tables import beside, compared, summary
from kt_lab.landscape import load_landscape
from kt_lab.transfer import NEAREST, recorded_prior


def row(mode, ratios, kernel="a", workload="a/1"):
    facts = {"workload": workload, "kernel": kernel, "gpu": "h200", "mode": mode}
    return facts | {"ratios": ratios}


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


def test_modes_stand_beside_one_on_the_landscapes_that_it_searched():
    rows = [
        row("cold", [2.0, 1.5]),
        row("cold", [9.0, 9.0], kernel="b", workload="b/1"),
        row("near", [1.0, 1.25]),
    ]
    assert [(f["mode"], f["landscapes"], f["worst"]) for f in beside(rows, "near")] == [
        ("cold", 1, [2.0, 1.5]),
        ("near", 1, [1.0, 1.25]),
    ]
    table = beside_table({"budgets": [5, 25], "rows": rows}, "near")
    assert table.loc["near"].tolist() == [1, "1.000 (1.00)", "1.250 (1.25)"]


def test_modes_are_compared_where_both_searched():
    rows = [
        row("cold", [2.0, 1.5]),
        row("cold", [9.0, 9.0], kernel="b", workload="b/1"),
        row("twin", [1.0, 1.5]),
    ]
    lost = [row(mode, [np.inf, 1.0], workload="c/1") for mode in ("cold", "twin")]
    assert [f["ratio"] for f in compared(lost, [5, 25])] == [1.0, 1.0]
    found = compared(rows, [5, 25])
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


def test_near_knows_the_recordings_and_the_runs_at_the_nearest_shapes_but_not_the_target():
    target = load_landscape("bmm/32x4x4096x128", gpu="h200")
    shapes, near = warm._known(target, "shapes"), warm._known(target, "near")
    known = {(r.workload, r.gpu) for r in shapes.readings}
    runs = {(r.workload, r.gpu) for r in near.readings} - known
    assert len(runs) == NEAREST
    assert (target.workload, "h200") not in runs | known
    assert {gpu for _, gpu in runs} == {"h200"}
    assert near.readings[: len(shapes.readings)] == shapes.readings
    assert warm._known(load_landscape("bmm/32x4x4096x128", gpu="h100"), "near") is None


def test_runs_at_near_shapes_are_turned_upside_down_and_listed_like_recordings():
    target = load_landscape("bmm/32x4x4096x128", gpu="h200")
    near, misled = (warm._known(target, mode) for mode in ("near", "near_misled"))
    assert [r.config for r in misled.readings] == [r.config for r in near.readings]
    last = [r.latency_us for r in near.readings if r.latency_us][-80:]
    turned = [r.latency_us for r in misled.readings if r.latency_us][-80:]
    assert last == sorted(last)
    assert turned == sorted(turned, reverse=True)
    found = warm.search(target.workload, "h200", "near_listed", "scout", 1, 5, 16)
    assert found["mode"] == "near_listed"
    assert found["sources"] == NEAREST + 2


def test_a_kernel_that_nobody_recorded_is_refused_by_name(tmp_path):
    parser = argparse.ArgumentParser()
    warm.add_arguments(parser)
    given = vars(parser.parse_args(["--kernels", "nosuch"])) | {"out": tmp_path / "out.json"}
    with pytest.raises(UnknownName, match=r"recorded kernel .* got 'nosuch'"):
        warm.run(argparse.Namespace(**given))
