"""Random walks over legal moves: nothing changes what a program computes, and all is undone."""

import numpy as np
import pytest

from kt_lab.evidence import walks as evidence
from kt_lab.programs.claims import catch, failures, mutants
from kt_lab.programs.interpret import interpret
from kt_lab.programs.moves import KINDS
from kt_lab.programs.schedule import replay, schedule_text
from kt_lab.programs.text import to_text
from kt_lab.programs.walks import deviation, is_proven, starts, traps, walk

GROUNDS = (*traps(), *starts())
STRUCTURAL = (
    "split",
    "merge",
    "interchange",
    "swap",
    "fuse",
    "fission",
    "hoist",
    "sink",
    "inline",
    "extract",
)


@pytest.mark.parametrize("start", GROUNDS, ids=lambda start: start.name)
def test_legal_walks_keep_the_results_and_are_undone(start):
    assert is_proven(start.program)
    assert deviation(start, start.program, seeds=(0, 1, 2)) == 0
    wrong = [failure for seed in range(6) for failure in failures(start, seed=seed)]
    assert not wrong


@pytest.mark.parametrize("rule", [r for r in mutants() if r.split(".")[0] in STRUCTURAL])
def test_the_absence_of_a_rule_shows_in_results(rule):
    found = catch(rule, GROUNDS, most=150)
    assert found, "the rule is superfluous, or the walks are too weak"
    assert found.what.startswith(("results deviate", "no program"))


@pytest.mark.parametrize(
    "rule", [r for r in mutants(proofs=True) if r.split(".")[0] in STRUCTURAL]
)
def test_the_absence_of_a_rule_that_keeps_proofs_shows_in_them(rule):
    assert catch(rule, GROUNDS, most=150, proof=True)


def test_exact_moves_change_no_bit_of_a_result(monkeypatch):
    monkeypatch.setattr("kt_lab.programs.interpret.BATCH", 0)  # every sum in its written order
    for seed, start in enumerate(2 * GROUNDS):
        expected, end = interpret(start.program, start.inputs), start.program
        for step in walk(start.program, seed=seed, length=20, exact_only=True):
            end = step.program
        found = interpret(end, start.inputs)
        assert all(np.array_equal(found[name], expected[name]) for name in expected), start.name


def test_a_walk_is_its_seed_and_replays_as_a_schedule():
    start = starts()[4]
    steps = list(walk(start.program, seed=3))
    assert [str(s.move) for s in steps] == [str(s.move) for s in walk(start.program, seed=3)]
    assert [str(s.move) for s in steps] != [str(s.move) for s in walk(start.program, seed=4)]
    assert len(steps) > 20
    assert all(step.legal for step in steps)
    end = replay(start.program, schedule_text(step.move for step in steps))
    assert to_text(end) == to_text(steps[-1].program)


def test_an_execution_that_is_wrong_is_reported():
    def broken(program, inputs, seed):
        found = interpret(program, inputs, seed=seed)
        return {name: array + 1e-3 * (len(program.body) == 1) for name, array in found.items()}

    start = next(s for s in starts() if s.name == "add_relu")
    found = [f for seed in range(20) for f in failures(start, seed=seed, execute=broken)]
    assert found
    for failure in found:
        assert failure["what"].startswith("results deviate by 0.00")
        assert len(replay(start.program, failure["schedule"]).body) == 1


def test_evidence_counts_walks_and_names_what_was_missed(monkeypatch):
    monkeypatch.setattr(
        evidence, "mutants", lambda proofs=False: ("swap.dependence",) * (not proofs)
    )
    parser = evidence.argparse.ArgumentParser()
    evidence.add_arguments(parser)
    result = evidence.run(parser.parse_args(["--walks", "6", "--mutant-walks", "40"]))
    assert (result["walks"], result["wrong"], result["failures"]) == (6, 0, [])
    assert result["steps"].keys() == KINDS.keys()
    assert sum(result["steps"].values()) > 60
    assert result["mutants"][0]["rule"] == "swap.dependence"
    assert 1 <= result["mutants"][0]["walks"] <= 40
    text = evidence.report(result)
    assert "6 walks" in text
    assert "0 wrong" in text
    none = {**result, "mutants": [{"rule": "a.b", "by": "results", "walks": None}]}
    assert "NOT MISSED" in evidence.report(none)
