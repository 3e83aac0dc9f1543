"""Live searches beside Helion: medians over seeds, ours over Helion's, and losses are counted."""

import json

import pytest

from kt_lab.evidence.live_tables import live_lines, live_table
from kt_lab.landscape import data_directory


def step(do, seed, seconds, configs):
    answer = {"wall_s": seconds, "configs": configs}
    if do == "helion":
        versions = {"helion": "1.4.0", "torch": "2.11.0", "triton": "3.6.0"}
        answer |= {"versions": versions, "metrics": {"hardware": "a GPU"}}
    return {"op": "softmax", "do": do, "seed": seed, "ok": True, "answer": answer}


def made_up(*, ours_us):
    names = ["torch", "helion/quick/seed0", "helion/quick/seed1", "ours/quick/seed0"]
    blocks = [[40.0, 10.0, 30.0, ours_us]] * 3
    steps = [step("helion", 0, 90.0, 50), step("helion", 1, 110.0, 60), step("ours", 0, 10.0, 55)]
    steps.append({"op": "softmax", "do": "ours", "seed": 1, "ok": False, "answer": {}})
    race = {"names": names, "blocks_us": {"events": blocks, "graph": blocks}}
    arguments = {"searcher": "scout"}
    return {"steps": steps, "races": {"softmax": race}, "arguments": arguments, "cores": 10}


def test_a_row_holds_medians_over_the_seeds_that_worked():
    row = live_table(made_up(ours_us=5.0)).iloc[0]
    assert (row["helion_seeds"], row["ours_seeds"]) == (2, 1)
    assert (row["helion_s"], row["helion_configs"], row["helion_graph"]) == (100.0, 55.0, 20.0)
    assert row["wall_ratio"] == pytest.approx(0.1)
    assert row["events_ratio"] == row["graph_ratio"] == pytest.approx(0.25)


@pytest.mark.parametrize(("ours_us", "lost"), [(5.0, 0), (25.0, 1)])
def test_losses_are_told(ours_us, lost):
    text = "\n".join(live_lines(made_up(ours_us=ours_us)))
    assert "`scout` with as many trials as Helion tried configs, or 100 where" in text
    assert f"events {ours_us / 20:.2f} (" in text
    assert f"{lost} of 1 lost; graph" in text


def test_what_ships_has_six_kernels_and_its_losses():
    path = data_directory() / "evidence" / "live.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert "with as many trials as Helion tried configs. One" in "\n".join(live_lines(stored))
    table = live_table(stored)
    assert len(table) == 6
    assert (table["wall_ratio"] < 1).all()
    assert (table["graph_ratio"] > 1).any()
