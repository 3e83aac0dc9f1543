"""Our programs beside TVM: rows from one run, a process apart, words no stronger than trials."""

import argparse
import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from kt_lab.errors import UsageError
from kt_lab.evidence import tvm, tvm_paths, visits
from kt_lab.evidence.torch_paths import alternating
from kt_lab.programs.operators import error, operators
from kt_lab.trial import Config
from tests.dojo_rows import dojo_row

STAND_IN = """#!{python}
import json, os, sys
job = json.load(sys.stdin)
answer = {{"tvm": "0.27"}}
if "trials" in job:
    open({log!r}, "a").write(job["operator"] + os.environ["TVM_NUM_THREADS"] + "\\n")
    answer |= {{"trials": job["trials"], "failed": 1, "seconds": 2.0, "errors": {{}}}}
    sys.exit(3 if job["operator"] == "matmul" else print(json.dumps(answer)))
elif "folder" in job:
    took = lambda us: {{"samples_us": [us] * job["rounds"], "error": "", "deviation": 0.0}}
    asleep = os.environ.get("TVM_THREAD_POOL_SPIN_COUNT") == "0"
    wrong = {{"samples_us": [], "error": "deviates by 1", "deviation": 1.0}}
    tuned = took(2e6 if asleep else 1e6) if job["operator"] == "softmax" else wrong
    answer["paths"] = {{"tvm": took(5e6), "tvm_tuned": tuned}}
print(json.dumps(answer))
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """An interpreter that answers as TVM would; and no torch, whose own tests time it."""
    path = tmp_path / "python"
    log = str(tmp_path / "tuned")
    path.write_text(STAND_IN.format(python=sys.executable, log=log))
    path.chmod(0o755)
    eager = {"paths": {"eager": [3e6]}, "torch": "2.13"}
    monkeypatch.setattr(tvm, "torch_visit", lambda *_: eager)
    monkeypatch.setattr(visits, "QUIET", math.inf)  # other tests disturb: no visit is repeated


def asked(folder, *arguments):
    parser = argparse.ArgumentParser()
    tvm.add_arguments(parser)
    small = ["--tvm-python", folder / "python", "--sizes", "tiny", "--trials", 4]
    small += ["--rounds", 2, "--visits", 1, "--most-visits", 1, "--batch-us", 20]
    small += ["--operators", *arguments]
    given = parser.parse_args([str(a) for a in small])
    given.out = folder / "tvm.json"
    return given


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(("agreed", "visited"), [(2, 2), (9, 3)])
def test_a_row_is_visited_until_visits_agree_or_there_were_enough(
    agreed, visited, tmp_path, monkeypatch
):
    monkeypatch.setattr(tvm, "settled", lambda parts: len(parts) == 3 * agreed)
    args = asked(tmp_path, "multiply", "--threads", 1, "--most-visits", 3)
    (row,) = tvm.run(args)["rows"]
    assert row["visits"] == visited


@pytest.mark.usefixtures("stand_in")
def test_rows_set_what_players_find_beside_tvm_and_are_measured_once(tmp_path, monkeypatch):
    choose, visited = tvm._keep_fastest, []
    monkeypatch.setattr(
        tvm, "_keep_fastest", lambda found, to: visited.append(found) or choose(found, to)
    )
    for _ in range(2):
        result = tvm.run(asked(tmp_path, "softmax"))
    assert (tmp_path / "tuned").read_text().split() == ["softmax1", "softmax2"]
    first, second = result["rows"]
    assert set(first["paths"]) == {"expert", "best", *tvm.PLAYERS, "eager", "tvm", "tvm_tuned"}
    # no side measures more than the other
    assert {run["player"]: run["programs"] for run in first["found"]} == {
        "expert": 1,
        **dict.fromkeys(tvm.PLAYERS, 4),
    }
    assert first["tuning"] | {"trials": 4, "failed": 1, "tvm": "0.27"} == first["tuning"]
    assert set(first["schedules"]) == set(tvm.PLAYERS)
    assert first["paths"]["best"] == first["paths"][first["best"]]
    assert first["finalists"] == 5
    assert 0 < first["paths"]["best"]["min_us"] < 1e5  # it was timed, not copied
    # one thread need not wait; of two, the faster way to wait counts
    assert [r["paths"]["tvm_tuned"]["min_us"] for r in (first, second)] == [2e6, 1e6]
    # and so does what is chosen of all that was tuned, as of our programs
    told = [[answer["paths"]["tvm_tuned"]["samples_us"][0] for answer in each] for each in visited]
    assert told == [[2e6], [2e6, 1e6]]
    ratios = {(m["path"], m["reference"], m["threads"]): m["ratio"] for m in result["means"]}
    assert ratios["best", "tvm", 1] == pytest.approx(first["paths"]["best"]["min_us"] / 5e6)
    player = tvm.PLAYERS[0]
    expected = second["paths"][player]["min_us"] / 1e6
    assert ratios[player, "tvm_tuned", 2] == pytest.approx(expected)
    assert "softmax/4x6 1T" in tvm.report(result)
    table, means = tvm.table(result), tvm.means_table(result)
    assert list(table.index) == [("softmax/4x6", 1), ("softmax/4x6", 2)]
    assert {"expert", "best", "eager", "tvm_tuned", "best / tuned"} <= set(table)
    assert table["failed"].tolist() == ["1 of 4", "1 of 4"]
    for mean in result["means"]:
        told = means.loc[
            (mean["path"], mean["reference"], mean["group"]),
            f"{mean['threads']} thread" + "s" * (mean["threads"] > 1),
        ]
        assert told["ratio"].startswith(f"{mean['ratio']:.2f} [{mean['low']:.2f}, ")
        assert told["lost"] == f"{mean['losses']} of {mean['workloads']}"


@pytest.mark.usefixtures("stand_in")
def test_what_tvm_gets_wrong_or_dies_of_is_a_fact(tmp_path):
    result = tvm.run(asked(tmp_path, "matmul", "multiply", "--threads", 1))
    died, wrong = result["rows"]
    assert "exit code 3" in died["tuning"]["errors"]["tvm_tuned"]
    assert wrong["tuning"]["errors"] == {"tvm_tuned": "deviates by 1"}
    assert all("tvm_tuned" not in r["paths"] and "tvm" in r["paths"] for r in (died, wrong))
    assert {m["reference"] for m in result["means"]} == {"tvm", "eager"}
    assert "tvm_tuned: deviates by 1" in tvm.report(result)


def history(*read_us):
    """Single readings of as many schedules."""
    told = [Config(schedule=f"s{k}") for k in range(len(read_us))]
    return [
        SimpleNamespace(status="ok", latency_us=us, config=c)
        for us, c in zip(read_us, told, strict=True)
    ]


def test_a_first_visit_chooses_and_not_a_lucky_reading(monkeypatch):
    space = SimpleNamespace(key=lambda config: config["schedule"])
    field = SimpleNamespace(space=space, expert=Config(schedule="expert"))
    taken_us = {"expert": 5.0, "s0": 9.0, "s1": 4.0, "s2": 3.0, "s3": math.nan}

    def visit(_, _threads, configs, _args):
        return np.array([[taken_us[c["schedule"]] + late for c in configs] for late in (0.0, 1.0)])

    def chosen(*histories, finalists=3):
        runs = (["found"], field, [[], *(history(*us) for us in histories)])
        monkeypatch.setattr(tvm, "_played", lambda *_: runs)
        args = SimpleNamespace(players=tvm.PLAYERS, finalists=finalists)
        found, configs, at = tvm._chosen("softmax/4x6", 1, args)
        assert found == ["found"]
        return {who: configs[k]["schedule"] for who, k in at.items()}

    monkeypatch.setattr(tvm, "visit", visit)
    one, other = tvm.PLAYERS
    lucky = (1.0, 4.0, 8.0, 2.0)  # s0 read fastest, and s3 fails when it is timed again
    assert chosen(lucky, (8.0, 9.0)) == {one: "s1", other: "s1", "best": "s1", "expert": "expert"}
    assert chosen(lucky, (8.0,), finalists=4) == {
        one: "s2",
        other: "expert",  # nothing of its own is faster
        "best": "s2",
        "expert": "expert",
    }


def test_of_what_was_tuned_the_fastest_that_is_right_stays(tmp_path):
    def folder(*, asleep=None, **paths):
        for file in tmp_path.glob("*"):
            file.unlink()
        for name in ("tvm.so", "tvm_tuned@0.so", "tvm_tuned@1.so", "tvm_tuned@2.so"):
            (tmp_path / name).touch()
        rows = {
            f"tvm_tuned/{k[-1]}": {"samples_us": us, "error": "" if us else "deviates"}
            for k, us in paths.items()
        }
        visited = [{"paths": rows | {"tvm": {"samples_us": [1.0], "error": ""}}}]
        if asleep:
            visited += [
                {"paths": {f"tvm_tuned/{asleep[0]}": {"samples_us": [asleep[1]], "error": ""}}}
            ]
        tvm._keep_fastest(visited, tmp_path)
        return sorted(file.name for file in tmp_path.glob("*"))

    assert folder(at0=[5.0, 4.0], at1=[9.0, 3.0], at2=[]) == ["tvm.so", "tvm_tuned@1.so"]
    found = folder(at0=[5.0], at1=[9.0], at2=[7.0], asleep=(2, 4.0))
    assert found == ["tvm.so", "tvm_tuned@2.so"], "the faster way to wait counts, as for ours"
    assert len(folder(at0=[], at1=[], at2=[])) == 4, "what is wrong is told as such"
    assert tvm_paths.variant_of(tmp_path / "tvm_tuned@1.so") == "tvm_tuned/1"


def test_a_win_needs_enough_trials():
    def told(trials, names=("softmax", "multiply"), **times):
        rows = [dojo_row(n, best=times["best"], eager=4.0) for n in names]
        for r in rows:
            slow = {"tvm_tuned": times["tuned"], "tvm": 9.0}
            path = {"median_us": 1.0, "p90_us": 1.0, "disturbed": False}
            r["paths"] |= {k: path | {"min_us": us} for k, us in slow.items()}
            r["tuning"] = {"trials": trials, "errors": {}}
        found = {"rows": rows, "trials": trials, "tvm": "0.27"}
        found["means"] = tvm.summary(rows, ())
        lines = tvm.report(found).splitlines()
        return next(line for line in lines if "tvm_tuned, all" in line)

    assert "no win is claimed of 64 < 256 trials" in told(64, best=1.0, tuned=2.0)
    assert told(256, best=1.0, tuned=2.0).endswith("0 of 2 lost: a win")
    assert told(64, best=2.0, tuned=1.0).endswith("2 of 2 lost: a loss")
    alone = told(256, names=("softmax",), best=1.0, tuned=2.0)
    assert alone.endswith("0 of 1 lost: one workload shows nothing")
    assert "0.500 [0.500, 0.500]" in told(64, best=1.0, tuned=2.0)


def test_what_takes_seconds_is_timed_a_few_times():
    calls = []

    def slow(count):
        calls.append(count)
        return 3e6

    found = alternating({"slow": slow, "fast": lambda _: 50.0}, 30, 200.0, limit_s=5.0)
    assert {name: len(samples) for name, samples in found.items()} == {"slow": 5, "fast": 30}
    assert set(calls) == {1}
    assert len(alternating({"slow": slow}, 30, 200.0)["slow"]) == 30


def test_what_cannot_be_compared_is_said_first(tmp_path):
    with pytest.raises(UsageError, match=r"tvm_paths must answer .*python"):
        tvm.run(asked(tmp_path, "softmax", "--threads", 1))


def test_the_process_of_tvm_needs_numpy_only():
    program = (
        "import sys, kt_lab.evidence.tvm_paths; "
        "print({'pandas', 'scipy', 'pyarrow', 'sklearn', 'optuna', 'torch'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
    assert tvm_paths.environment(2)["TVM_NUM_THREADS"] == "2"


@pytest.mark.slow  # needs the extra tvm, which pins other packages than the tests
def test_tvm_computes_every_operator_as_the_reference_does():
    found = pytest.importorskip("tvm")
    from kt_lab.evidence.tvm_operators import DEFINITIONS, function

    assert set(DEFINITIONS) == {operator.name for operator in operators()}
    target = found.target.Target({"kind": "llvm", "num-cores": 1})
    for operator in operators():
        program, inputs = operator.program(operator.tiny), operator.inputs(operator.tiny)
        expected = operator.expected(inputs)
        names = [b.name for b in program.of_kind("out")]
        poison = [np.full(expected[n].shape, np.nan, np.float32) for n in names]
        arrays = [found.runtime.tensor(a) for a in (*inputs.values(), *poison)]
        found.compile(function(operator.name, program), target)["main"](*arrays)
        outputs = dict(zip(names, (a.numpy() for a in arrays[len(inputs) :]), strict=True))
        assert error(outputs, expected) <= operator.tolerance(operator.tiny), operator.name
