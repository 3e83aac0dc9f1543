"""The dojo's evidence runs end to end on small shapes, goes on where it stopped, and adds up."""

import argparse
import json
import math
import subprocess
import sys
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from kt_lab.errors import UnknownName, UsageError
from kt_lab.evidence import ceilings, dojo, players, torch_paths, visits
from kt_lab.evidence.dojo_tables import (
    best_so_far,
    confirmed,
    means,
    merged,
    players_table,
    ratios,
    settled,
)
from kt_lab.evidence.dojo_words import dojo_block
from kt_lab.evidence.playing import Field, open_field, play, short_game, sized
from kt_lab.evidence.resuming import Rows
from kt_lab.evidence.tvm import summary
from kt_lab.programs.operators import operators
from kt_lab.programs.space import ScheduleSpace
from kt_lab.runners.c import CRunner, Protocol
from kt_lab.trial import Config, Measurement
from tests.dojo_rows import dojo_row, players_row


def asked(piece, out, *arguments):
    parser = argparse.ArgumentParser()
    piece.add_arguments(parser)
    given = parser.parse_args([str(a) for a in arguments])
    given.out = out
    return given


def test_a_row_sets_programs_beside_torch_and_a_floor_and_is_measured_once(tmp_path, monkeypatch):
    monkeypatch.setattr(visits, "QUIET", math.inf)  # other tests disturb: no visit is repeated
    out = tmp_path / "dojo.json"
    small = ("--sizes", "tiny", "--threads", 1, "--budget", 4, "--visits", 2, "--rounds", 3)
    small += ("--torch", "eager", "--batch-us", 20, "--players", "expert+annealing")
    first = dojo.run(asked(dojo, out, "--operators", "softmax", *small))
    [row] = first["rows"]
    assert {"start", "expert", "best", "eager"} == set(row["paths"])
    assert all(path["min_us"] > 0 for path in row["paths"].values())
    assert row["floor_us"] > 0
    assert row["floor_by"] in ("copy", "read", "flops")
    assert [found["programs"] for found in row["found"]] == [1, 4]
    assert [found["failed"] for found in row["found"]] == [0, 0]
    assert json.loads(out.read_text())["rows"] == first["rows"]  # stored before the end

    both = dojo.run(asked(dojo, out, "--operators", "softmax", "multiply", *small))
    floors = ("floor_us", "floor_by")  # by the ceilings of both rows now
    assert both["rows"][0] | {n: row[n] for n in floors} == row
    assert both["rows"][0]["floor_us"] <= row["floor_us"]
    assert [r["operator"] for r in both["rows"]] == ["softmax", "multiply"]
    told = dojo.report(both)
    assert "softmax/4x6 1T" in told
    assert "best / eager, single operators, 1 threads" in told


def test_players_share_readings_and_their_curves_are_stored(tmp_path):
    small = ("--operators", "matmul", "--size", "tiny", "--budget", 5, "--seeds", 2)
    small += ("--samples", 2, "--players", "random", "expert", "expert+annealing")
    result = players.run(asked(players, tmp_path / "players.json", *small))
    assert [(r["player"], r["seed"]) for r in result["rows"]] == [
        ("random", 0),
        ("random", 1),
        ("expert", 0),
        ("expert+annealing", 0),
        ("expert+annealing", 1),
    ]
    assert {r["failed"] for r in result["rows"]} == {0}
    for row in result["rows"]:
        known = [us for _, us in row["points"] if us is not None]
        assert known == sorted(known, reverse=True)
    ends = [r["points"][-1][1] for r in result["rows"]]
    assert ends[3] <= ends[2]  # who starts from the expert's never ends above it
    assert "matmul/4x6x8" in players.report(result)


def test_players_side_by_side_share_a_file_of_readings(tmp_path):
    small = ("--operators", "multiply", "--size", "tiny", "--budget", 4, "--seeds", 2)
    small += ("--samples", 2, "--players", "random", "expert", "--workers", 2)
    small += ("--cache", tmp_path / "readings.sqlite")
    first = players.run(asked(players, tmp_path / "players.json", *small))
    assert {(r["player"], r["seed"]) for r in first["rows"]} == {
        ("random", 0),
        ("random", 1),
        ("expert", 0),
    }
    # readings last: whoever plays later reads what was read before
    again = players.run(asked(players, tmp_path / "other.json", *small, "--workers", 1))
    starts = {r["start_us"] for r in again["rows"]}
    assert len(starts) == 1
    assert starts <= {r["start_us"] for r in first["rows"]}


def test_a_start_program_that_cannot_be_measured_is_named(monkeypatch):
    answers = [Measurement("timeout", error="2 s"), Measurement("timeout", error="2 s")]
    monkeypatch.setattr(players, "measured", lambda *_: answers.pop())
    runner = SimpleNamespace(workload=sized("softmax", "tiny"))
    with pytest.raises(UsageError, match="must be measured, got timeout: 2 s; give a larger"):
        players.started(runner)
    answers += [Measurement("ok", (3.0,)), Measurement("timeout", error="2 s")]
    assert players.started(runner).latency_us == 3.0


@pytest.mark.parametrize("awake", [True, False])
def test_the_expert_calls_other_threads_for_little_work_only_where_they_are_awake(awake):
    few = {"protocol": Protocol(samples=1), "awake": awake}
    with CRunner(sized("add_relu", "cache"), threads=2, **few) as runner:
        schedule = open_field(runner, threads=2).expert["schedule"]
    assert ("parallelise" in schedule) == awake


def test_a_player_must_be_a_searcher_with_or_without_the_expert():
    with CRunner(sized("multiply", "tiny"), protocol=Protocol(samples=1)) as runner:
        field = open_field(runner, threads=1)
        with pytest.raises(UsageError, match="expert\\+SEARCHER"):
            play("wizard+annealing", field, budget=1, seed=0)
    with pytest.raises(UsageError, match="cache, memory, tiny"):
        sized("multiply", "huge")


def test_torch_computes_every_operator_as_the_reference_does():
    program = (
        "import json, sys; from kt_lab.evidence.torch_paths import answer; "
        "print(json.dumps([answer(job) for job in json.load(sys.stdin)]))"
    )
    few = {"threads": 1, "wanted": ["eager"], "rounds": 1, "batch_us": 1}
    jobs = [few | {"operator": o.name, "extents": dict(o.tiny)} for o in operators()]
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=True,
    )
    for operator, found in zip(operators(), json.loads(done.stdout), strict=True):
        for name, row in found["paths"].items():
            assert row["error"] == "", (operator.name, name)
            assert len(row["samples_us"]) == 1


def test_torch_compile_writes_into_the_outputs_that_it_is_given(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "compile", lambda fn, **_: fn)  # generating code takes minutes
    x, y, z = torch.ones(4), torch.full((4,), 2.0), torch.zeros(4)
    calls = torch_paths.paths(torch, "multiply", (x, y), (z,), ("compiled",))
    assert set(calls) == {"compiled/new", "compiled/out"}
    calls["compiled/out"]()
    assert z.tolist() == [2.0] * 4


def test_a_floor_goes_by_what_takes_longest():
    matmul, row_sum, multiply = (dojo.get_operator(n) for n in ("matmul", "row_sum", "multiply"))
    found = ceilings.Ceilings(1, 0, copy_gb_s=1.0, read_gb_s=2.0, gflop_s=1.0)
    assert ceilings.floor_us(multiply, {"elements": 1000}, found) == (6.0, "copy")  # of caches
    memory = replace(found, copy_gb_s=4.0)
    assert ceilings.floor_us(multiply, {"elements": 1000}, memory) == (3.0, "copy")
    us, limit = ceilings.floor_us(row_sum, {"rows": 1, "cols": 1000}, found)
    assert (us, limit) == (pytest.approx(4004 / 2000), "read")
    us, limit = ceilings.floor_us(matmul, {"m": 100, "n": 100, "k": 100}, found)
    assert (us, limit) == (pytest.approx(2e3, rel=0.01), "flops")


def test_a_ceiling_that_was_disturbed_makes_no_floor():
    def measured(size, copy, gflop, threads=1):
        return ceilings.Ceilings(threads, size, copy_gb_s=copy, read_gb_s=1.0, gflop_s=gflop)

    low, small, large = measured(10, 2.0, 3.0), measured(5, 9.0, 8.0), measured(20, 4.0, 6.0)
    two = measured(20, 99.0, 99.0, threads=2)
    found = ceilings.pooled(low, [low, small, large, two])
    assert found == measured(10, 4.0, 8.0), "a smaller size may be in a nearer cache"
    rows = [
        {
            "workload": "multiply/65536",
            "operator": "multiply",
            "size": "cache",
            "ceilings": asdict(each),
            "floor_us": 0.0,
        }
        for each in (low, large)
    ]
    told = dojo.floored(rows)
    bytes_moved = dojo.get_operator("multiply").bytes_moved({"elements": 65536})
    assert [row["floor_us"] for row in told] == [pytest.approx(bytes_moved / 4e3)] * 2


def test_rows_of_other_facts_are_measured_again(tmp_path):
    path, met = tmp_path / "rows.json", []

    def measure():
        met.append(1)
        return {"value": len(met)}

    for budget, again, expected in ((1, False, 1), (1, False, 1), (2, False, 2), (2, True, 3)):
        rows = Rows(path, {"budget": budget}, {}, again=again)
        rows.once({"workload": "a"}, measure)
        assert [row["value"] for row in rows.result["rows"]] == [expected]


def test_rows_that_are_kept_keep_the_provenance_they_were_measured_with(tmp_path):
    for commit in ("a", "b", "c"):
        rows = Rows(tmp_path / "rows.json", {}, {"commit": commit}, again=False)
        rows.once({"workload": commit}, dict)
    assert rows.result["provenance"] == {"commit": "c"}
    assert rows.result["resumed"] == [{"commit": "a"}, {"commit": "b"}]


def test_one_visit_cannot_choose_and_judge(tmp_path):
    with pytest.raises(UsageError, match=r"visits must be >= 2.*--visits 1"):
        dojo.run(asked(dojo, tmp_path / "dojo.json", "--visits", 1))


def test_a_latency_counts_once_another_visit_confirms_it():
    assert confirmed([6.0, 4.0, 4.1, 9.0]) == [1, 2]
    assert confirmed([1.0, 4.0, 4.1, 6.0]) == [1, 2]  # a single fast visit may be luck
    assert confirmed([1.0, 2.0]) == confirmed([1.0]) == []
    visits = [{"best": [6.0, 6.1], "tvm": [3.0]}, {"best": [4.0, 4.2], "tvm": [3.1]}]
    assert not settled(visits)
    assert merged(visits, agreeing=True)["best"]["min_us"] == 5.0
    visits.append({"best": [4.1, 4.2], "tvm": [9.0]})
    assert settled(visits)
    assert not settled([*visits, {"tvm": [2.0]}])  # two agree, but one was faster than both
    found = merged(visits, agreeing=True)
    assert found["best"]["min_us"] == pytest.approx(4.05)
    assert found["tvm"]["min_us"] == pytest.approx(3.05)
    assert merged(visits)["best"]["min_us"] == 4.1


def test_visits_merge_to_the_median_of_their_least_samples():
    found = merged([{"a": [1.0, 2.0], "b": [5.0]}, {"a": [3.0, 3.0]}, {"a": [2.0, 2.0]}])
    assert found["a"]["min_us"] == 2.0
    assert found["a"]["disturbed"]  # 1.5 over 1 in the first visit
    assert found["b"] == {"min_us": 5.0, "median_us": 5.0, "p90_us": 5.0, "disturbed": False}


def test_means_tell_groups_apart_and_count_losses():
    rows = [dojo_row("softmax", best=1.0, eager=2.0), dojo_row("multiply", best=2.0, eager=1.0)]
    rows += [dojo_row("bias_gelu", best=1.0, eager=4.0, chain=True)]
    table = ratios(rows)
    assert set(table["reference"]) == {"start", "eager", "compiled", "floor"}
    found = {(m["reference"], m["group"]): m for m in means(rows)}
    single, chain = (found["eager", g] for g in ("single operators", "fusable chains"))
    assert single["ratio"] == pytest.approx(1.0)
    assert (single["low"], single["high"]) == pytest.approx((0.5, 2.0))
    assert (single["losses"], single["workloads"]) == (1, 2)
    assert chain["ratio"] == pytest.approx(0.25)
    assert found["eager", "all"]["ratio"] == pytest.approx((0.5 * 2 * 0.25) ** (1 / 3))


def test_curves_are_read_at_powers_of_two_and_keep_what_they_have():
    assert best_so_far([None, 4.0, 5.0, 3.0, 2.0]) == [(1, None), (2, 4.0), (4, 3.0), (5, 2.0)]
    assert best_so_far([]) == [(1, None)]
    rows = [players_row("random", 0, [None, 8.0, 8.0, 4.0]), players_row("expert", 0, [2.0])]
    table = players_table(rows).set_index(["player", "programs"])["median"]
    assert table["random", 4] == 2.0
    assert table["expert", 4] == 1.0
    assert math.isinf(table["random", 1])


def test_the_middle_of_an_even_number_of_seeds_is_between_the_two():
    rows = [players_row("random", seed, [us]) for seed, us in enumerate((4.0, 1.0, 2.0, 3.0))]
    found = players_table(rows).iloc[0]
    assert found[["low", "median", "high"]].tolist() == [1.75, 2.5, 3.25]
    assert players_table(rows[1:3])["median"].tolist() == [1.5]
    found = players_table([*rows[1:3], players_row("random", 9, [None])]).iloc[0]
    assert found[["low", "median", "high"]].tolist() == [1.5, 2.0, math.inf]


def test_the_page_would_tell_ratios_times_and_players():
    rows = [dojo_row("softmax", best=1.0, eager=2.0), dojo_row("multiply", best=2.0, eager=1.0)]
    machine = {"cpu": "a CPU", "cores": 2}
    rows[0]["torch"] = "2.13"
    rows[1]["paths"]["best"]["disturbed"] = True
    comparison = {"rows": rows, "means": means(rows), "provenance": machine, "compiler": "gcc"}
    played = [players_row("random", 0, [8.0, 4.0]), players_row("expert", 0, [2.0])]
    played[1]["start_us"] *= 1.25
    played = {"rows": played, "budget": 2, "provenance": machine, "compiler": "gcc"}
    text = dojo_block(comparison, played)
    assert "| PyTorch eager | 1 | all | 1.00 [0.50, 2.00] | 1 of 2 |" in text
    assert "| `softmax/1` | 1 | 4 | 1.5 | 1 | 2 | 4 | 0.5 (copy) | 0.50 |" in text
    assert "| 2* |" in text
    assert "| Random | 2.00 (2.00 to 2.00) |" in text
    assert "PyTorch's numbers contain the cost of a call from Python, some microseconds" in text
    assert "The floor is a measured reference, which a program may beat" in text
    assert "was read up to 1.25 times as slow" in text
    assert "| Expert pass | 1.00 (1.00 to 1.00) |" in text


def test_the_page_would_tell_learners_and_tvm_and_claims_no_win_of_few_trials():
    machine = {"cpu": "a CPU", "cores": 2}
    rows = [players_row("dqn", 0, [8.0, 4.0]), players_row("max_q_dqn", 0, [2.0])]
    rows = [row | {"part": "curves"} for row in rows] + [{"part": "training"}]
    learners = {"rows": rows, "budget": 2, "provenance": machine, "compiler": "gcc"}
    text = dojo_block(None, None, learners)
    assert "| Deep Q | 2.00 (2.00 to 2.00) |" in text
    assert "shared one reading of each program" in text
    assert "never saw" not in text
    carried = {"part": "transfer", "trained": "softmax+matmul", "rounds": 6}
    plays = {"frozen": [8.0, 4.0], "scratch": [8.0, 2.0]}
    rows += [players_row(name, 0, us) | carried for name, us in plays.items()]
    text = dojo_block(None, None, learners | {"rows": rows})
    assert "trained on softmax and matmul (6 turns of 2 programs on each" in text
    assert "| player | `softmax/1`, 2 programs |" in text
    assert "| frozen | 2.00 (2.00 to 2.00) |" in text
    played = [row for row in rows if row["part"] == "transfer"]
    names = {"frozen": "minilm", "scratch": "structure"}
    eyes = [row | {"part": "encoders", "player": names[row["player"]]} for row in played]
    text = dojo_block(None, None, encoders=learners | {"rows": eyes})
    assert "with each encoder of programs: MiniLM is" in text
    assert "| MiniLM | 2.00 (2.00 to 2.00) |" in text
    text = dojo_block(None, None, None, None, learners | {"rows": played})
    assert "in all seeds, on other shapes of what it was trained on" in text
    assert "one policy a seed" not in text
    assert "| frozen | 2.00 (2.00 to 2.00) |" in text
    assert "a CPU, 2 cores, gcc" in text
    row = dojo_row("softmax", best=1.0, eager=2.0) | {"torch": "2.13"}
    row["paths"] |= {name: row["paths"]["best"] | {"min_us": 4.0} for name in ("tvm", "tvm_tuned")}
    row["tuning"] = {"trials": 64, "failed": 7}
    row["paths"]["expert+annealing"] = row["paths"]["best"] | {"min_us": 2.0}
    result = {"rows": [row], "provenance": machine, "trials": 64, "tvm": "0.27"}
    result |= {"players": ["expert+annealing"], "means": summary([row], ["expert+annealing"])}
    text = dojo_block(None, None, None, result)
    assert "measured 64 programs each (too few to claim a win: 256 are)" in text
    assert "| best | 1 | all | 0.25 [0.25, 0.25] | 0 of 1 |" in text
    assert "| expert + annealing | 1 | all | 0.50 [0.50, 0.50] | 0 of 1 |" in text
    assert "| `softmax/1` | 1 | 1.5 | 2 | 2 | 4 | 4 | 4 | 0.25 | 7 of 64 |" in text
    assert "Without" not in text
    over = "geomean over TVM | 1.80 | over tuned TVM: 4.00 [4.00, 4.00] on 1 thread (1 workload)"
    assert f"{over} |" in text
    assert "| Arm CPU (GH200), geomean over TVM | 13.65 | not reproduced: no Arm CPU |" in text
    assert "| multiply on an MI300A, over PyTorch | 1.62 | not reproduced |" in text
    assert "too few" not in dojo_block(None, None, None, result | {"trials": 256})
    row["tuning"] |= {"target": {"mcpu": "lake"}}
    assert f"{over} |" in dojo_block(None, None, None, result, elsewhere=[result])
    own = row | {"tuning": {"target": {"mcpu": "znver4"}, "trials": 64, "failed": 0}}
    text = dojo_block(None, None, None, result, elsewhere=[result, result | {"rows": [own]}])
    assert f"{over}; on Zen 4, the cores of an MI300A: 4.00 [4.00, 4.00] on 1 thread" in text
    text = dojo_block(None, None, elsewhere=[result])
    assert "On another CPU, a CPU (lake as LLVM calls it), `best` over tuned TVM: of" in text
    assert f"of {row['size']} size 0.25 [0.25, 0.25] on 1 thread, 0 of 1 lost. " in text
    assert "| `softmax/1` | 1 | 1.5 |" in text
    other = row | {"workload": "softmax/2", "paths": dict(row["paths"])}
    other["paths"]["best"] = row["paths"]["best"] | {"min_us": 2.0}
    other["size"] = "memory"
    rows = [row, other, row | {"threads": 2}]
    text = dojo_block(None, None, elsewhere=[result | {"rows": rows}])
    assert f"of {row['size']} size 0.25 [0.25, 0.25] on 2 threads, 0 of 1 lost" in text
    assert "of memory size 0.50 [0.50, 0.50] on 1 thread, 0 of 1 lost" in text
    assert "(0.25 and 0.25), `best` stands at 0.50 [0.50, 0.50] on 1 thread." in text
    both = text[text.index("of both sizes") : text.index(" lost. ")]
    assert both == "of both sizes 0.35 [0.25, 0.50] on 1 thread, 0 of 2"
    later = other | {"size": row["size"]}
    text = dojo_block(
        None, None, elsewhere=[result | {"rows": [row, later, row | {"threads": 2}]}]
    )
    assert f"of {row['size']} size 0.35 [0.25, 0.50] on 1 thread, 0 of 2 lost; 1 of 2 of" in text
    assert f"{row['size']} size on 2 threads so far, which have no mean yet. Without" in text
    text = dojo_block(None, None, None, result | {"rows": [row, other]})
    assert "Without `softmax/1`, where MetaSchedule got least far (0.25), `best` stands" in text
    assert "at 0.50 [0.50, 0.50] on 1 thread." in text


def test_a_player_that_nobody_knows_is_told_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr("kt_lab.evidence.playing.CRunner", None)  # would be called first
    with pytest.raises(UnknownName, match="got 'anealing'; did you mean 'annealing'"):
        short_game("row_sum/512x1024", ["annealing", "expert+anealing"], budget=8)


def test_an_interrupted_player_ends_the_game(monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    with CRunner(sized("multiply", "tiny")) as runner:
        field = Field(runner, ScheduleSpace(runner.start), Config(schedule=""), 1.0)
        monkeypatch.setattr(CRunner, "next", interrupted)
        with pytest.raises(KeyboardInterrupt):  # else the next player would begin
            play("random", field, budget=4, seed=0)
