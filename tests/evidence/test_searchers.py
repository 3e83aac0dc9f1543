"""The evidence about searchers: equivalence and cost beside the real classes, tuned options."""

import argparse
from dataclasses import asdict

import pytest

from kt_lab.evidence import cost, equivalence, tuning
from kt_lab.landscape import load_landscape
from kt_lab.search import get_searcher, make_searcher
from kt_lab.studies import GPU, field_row

WORKLOAD = "softmax/256x128256"


def parsed(module, *arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(arguments)


@pytest.fixture(scope="module")
def space():
    return load_landscape(WORKLOAD, gpu=GPU).space


def test_both_arms_run_and_every_budget_gets_a_verdict(tmp_path):
    given = ("--searchers", "pattern", "--workloads", WORKLOAD, "--seeds", "3", "--workers", "1")
    result = equivalence.run(parsed(equivalence, *given, "--directory", str(tmp_path)))
    assert [row["budget"] for row in result["tests"]] == [50, 100, 200, None]
    assert {row["verdict"] for row in result["tests"]} <= {"equivalent", "different", "undecided"}
    assert len(result["arms"]) == 2 * 4
    assert all(row["seeds"] == 3 for row in result["arms"])
    again = equivalence.run(parsed(equivalence, *given, "--directory", str(tmp_path)))
    assert again["tests"] == result["tests"]  # from what was stored
    assert "pattern" in equivalence.report(result)


def test_cost_compares_whole_runs():
    given = parsed(cost, "--searchers", "pattern", "--workloads", WORKLOAD, "--seeds", "1")
    result = cost.run(given)
    (row,) = result["rows"]
    assert (row["searcher"], row["reference"]) == ("pattern", "helion_pattern")
    assert min(row["trials"], row["reference_trials"]) > 100
    assert cost.ratios(result)["pattern"]["seconds"] == pytest.approx(
        row["search_s"] / row["reference_s"]
    )


@pytest.mark.parametrize("row", ["pattern", "genetic", "optuna_cmaes", "kt_genetic", "helion_de"])
def test_candidates_are_different_options_that_the_searcher_accepts(row, space):
    algorithm, fixed = field_row(row)
    found = tuning.candidates((row, algorithm, dict(fixed)), space, 6)
    assert found[0] == {}
    assert len(found) == 6
    assert found == tuning.candidates((row, algorithm, dict(fixed)), space, 6)
    defaults = asdict(get_searcher(algorithm).Options(**fixed))
    for options in found[1:]:
        assert options
        assert all(defaults[name] != value for name, value in options.items())
        make_searcher(algorithm, space, seed=0, **{**fixed, **options}).close()


def test_a_searcher_without_options_has_nothing_to_tune(space):
    assert tuning.candidates(("random", "random", {}), space, 6) == [{}]


def test_the_best_candidate_wins_and_ties_keep_the_defaults():
    found = [{}, {"a": 1}, {"a": 2}]
    best = tuning._best
    assert best("x", found, {"x#0": 1.0, "x#1": 0.5, "x#2": 0.7}) == {"a": 1}
    assert best("x", found, {"x#0": 0.5, "x#1": 0.5, "x#2": 0.7}) == {}
    assert best("x", found, {"x#0": None, "x#1": None, "x#2": 0.7}) == {"a": 2}
